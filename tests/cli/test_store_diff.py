"""`trocket store diff`: equal stores, a shorter one, and each kind of difference."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from trocket.cli.main import main
from trocket.store.config import MessageStoreConfig
from trocket.store.message_store import MessageStore

HOST = bytes((127, 0, 0, 1, 0, 0, 0x2A, 0x9F))
FILE_SIZE = 16_384
QUEUE_FILE_SIZE = 400
UNIT_SIZE = 20


def write(root: Path, numbers: range) -> list[int]:
    """Store messages in two queues; their physical offsets."""
    config = MessageStoreConfig(
        store_path_root_dir=str(root),
        mapped_file_size_commit_log=FILE_SIZE,
        mapped_file_size_consume_queue=QUEUE_FILE_SIZE,
        max_hash_slot_num=20,
        max_index_num=50,
    )
    store = MessageStore(config)
    store.load()
    offsets = []
    for number in numbers:
        offsets.append(store.max_physical_offset)
        store.begin_burst()
        store.put_message(
            "Orders", number % 2, b"order %d " % number * 20, b"KEYS\x01k%d\x02" % number,
            tags_code=0, born_timestamp_ms=1, born_host=HOST, store_host=HOST,
        )  # fmt: skip
        store.commit()
    store.close()
    return offsets


@pytest.fixture
def first(tmp_path: Path) -> Path:
    root = tmp_path / "first"
    write(root, range(120))
    return root


@pytest.fixture
def second(first: Path, tmp_path: Path) -> Path:
    root = tmp_path / "second"
    shutil.copytree(first, root)
    return root


def diff(
    capsys: pytest.CaptureFixture[str], *words: object, status: int = 0
) -> tuple[list[str], str]:
    """The lines of a comparison that ends with a status, and what it says as an error."""
    assert main(["store", "diff", *map(str, words)]) == status
    captured = capsys.readouterr()
    return captured.out.splitlines(), captured.err


def test_a_copy_is_equal(first: Path, second: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (line,), _ = diff(capsys, first, second)
    assert line.startswith("120 records are equal, from physical offset 0 to ")


def test_what_only_the_longer_store_has_is_no_difference(
    first: Path, second: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begin, *_ = write(second, range(120, 140))
    for stores in ((first, second), (second, first)):
        (line,), _ = diff(capsys, *stores, "--json")
        found = json.loads(line)
        assert (found["records"], found["end"], found["logOffset"]) == (120, begin, None)
        assert found["queueCount"] == 0
        assert set(found["ends"]) == {begin, max(found["ends"])}


def test_the_first_record_that_differs_is_named(
    first: Path, second: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begin, *_ = write(first, range(120, 125))
    write(second, range(220, 225))  # as long, but other messages
    (equal, line), _ = diff(capsys, first, second, status=1)
    assert equal.startswith("120 records are equal")
    assert line == f"the logs differ from {begin} on"
    diff(capsys, first, second, "--until-offset", begin)


def test_a_queue_that_differs_is_named(
    first: Path, second: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = second / "consumequeue" / "Orders" / "1" / f"{0:020d}"
    with path.open("r+b") as file:
        file.seek(7 * UNIT_SIZE)
        file.write(bytes(UNIT_SIZE))
    (_, line), _ = diff(capsys, first, second, status=1)
    assert line == "the queue Orders 1 differs from 7 on"
    shutil.rmtree(path.parent)
    (_, line), _ = diff(capsys, first, second, status=1)
    assert line == "the queue Orders 1 differs from 0 on"


def test_what_is_no_store_ends_with_2(
    first: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines, error = diff(capsys, first, tmp_path / "nothing", status=2)
    assert (lines, "there is no such folder" in error) == ([], True)
