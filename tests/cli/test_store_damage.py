"""Damaged stores of trocket and RocketMQ: start, fsck and repair find the same, in the same words.

Each kind of damage is done to a stopped store. A start on one copy says what it finds; fsck and
repair must report just these words; after the repair a start says nothing, and every message is
there.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

import pytest

from tests.cli.damage import KINDS, Kind
from tests.interop.golden_stores import sizes, unpack
from tests.kit.in_memory import folder_in_memory
from tests.store.offline.support import killed_store, stopped_store
from trocket.broker.controller import open_as_broker
from trocket.cli.main import main
from trocket.disk.errors import CorruptRecordError, StoreError
from trocket.disk.os_disk import OsDisk
from trocket.remoting.message_codec import decode_messages
from trocket.store.config import MessageStoreConfig

TROCKET = {
    "mapedFileSizeCommitLog": 65536,
    "mapedFileSizeConsumeQueue": 400,
    "maxHashSlotNum": 20,
    "maxIndexNum": 50,
}


class Words(logging.Handler):
    """The warnings of a start, as an operator reads them.

    Not those of connections: a broker of other tests may run in this process.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        is_of_a_start = not record.name.startswith("trocket.remoting.")
        if is_of_a_start and record.getMessage() not in self.lines:
            self.lines.append(record.getMessage())


@contextmanager
def words():
    handler, logger = Words(), logging.getLogger("trocket")
    logger.addHandler(handler)
    try:
        yield handler.lines
    finally:
        logger.removeHandler(handler)


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """In memory: each test copies a store, and syncs its hundred files again and again."""
    with folder_in_memory() as folder:
        yield folder


class Damaged:
    """A stopped store on disk, its sizes, and what a start on it says."""

    def __init__(self, root: Path, keys: dict[str, int]) -> None:
        self.root = root
        self.conf = root.parent / "broker.conf"
        self.conf.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
        self._keys = keys

    @cached_property
    def whole(self) -> dict[tuple[str, int, int], bytes]:
        """All messages, as a start on a copy without damage finds them."""
        with folder_in_memory() as folder:
            _, found = self.start(Path(shutil.copytree(self.root, folder / "whole")))
        assert found
        return found

    def start(self, root: Path):
        """Start a broker, and stop it; what it says, and the messages."""
        config = MessageStoreConfig(store_path_root_dir=str(root))
        for key, value in self._keys.items():
            setattr(config, FIELDS[key], int(value))
        with words() as lines:
            try:
                store = open_as_broker(config, OsDisk())
            except StoreError as error:
                return [*lines, str(error)], {}
            found = messages(store)
            store.close()
        return lines, found

    def command(self, capsys, *more) -> tuple[int, str]:
        capsys.readouterr()
        status = main(["store", *map(str, more), "-c", str(self.conf)])
        out = capsys.readouterr()
        return status, out.out + out.err


FIELDS = {
    "mapedFileSizeCommitLog": "mapped_file_size_commit_log",
    "mappedFileSizeCommitLog": "mapped_file_size_commit_log",
    "mapedFileSizeConsumeQueue": "mapped_file_size_consume_queue",
    "mappedFileSizeConsumeQueue": "mapped_file_size_consume_queue",
    "maxHashSlotNum": "max_hash_slot_num",
    "maxIndexNum": "max_index_num",
}


def messages(store) -> dict[tuple[str, int, int], bytes]:
    found = {}
    for topic, queue_ids in store.topics().items():
        for queue_id in queue_ids:
            offset = store.min_offset(topic, queue_id)
            while offset < store.max_offset(topic, queue_id):
                try:
                    result = store.get_message(topic, queue_id, offset, 32)
                except CorruptRecordError:
                    offset += 1
                    continue
                for buffer in result.buffers:
                    for message in decode_messages(buffer, check_crc=True):
                        found[topic, queue_id, message.queue_offset] = message.body
                assert result.next_begin_offset > offset
                offset = result.next_begin_offset
    return found


def started(root: Path, keys) -> Damaged:
    """A store after an orderly start and stop of trocket's broker."""
    damaged = Damaged(root, keys)
    damaged.start(root)
    assert damaged.start(root)[0] == []
    return damaged


@pytest.fixture(scope="module")
def trocket_store(tmp_path_factory) -> Damaged:
    folder = tmp_path_factory.mktemp("trocket")
    return started(on_disk(stopped_store(), folder), TROCKET)


def on_disk(disk, folder: Path) -> Path:
    """Write a store in memory to a folder."""
    for path, data in disk.contents.items():
        target = folder / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    return folder / "data"


@pytest.fixture(scope="module")
def rocketmq_store(tmp_path_factory, golden) -> Damaged:
    folder = tmp_path_factory.mktemp("rocketmq")
    root = unpack(golden, "5.5.0-mix", folder)
    keys = {key: int(value) for key, value in sizes(golden, "5.5.0-mix").items() if key in FIELDS}
    return Damaged(root, keys)


@pytest.mark.slow
def test_a_store_whose_broker_was_killed_needs_no_repair(tmp_path, capsys):
    disk = killed_store()
    end = len(bytes(disk.contents["/data/commitlog/00000000000000131072"]).rstrip(b"\0"))
    disk.contents["/data/commitlog/00000000000000131072"][end + 1 : end + 4] = b"torn"[:3]
    store = Damaged(on_disk(disk, tmp_path), TROCKET)
    status, out = store.command(capsys, "fsck", store.root, "--json")
    assert status == 0
    assert "the log is cut at" in out
    status, out = store.command(capsys, "repair", store.root, "--in-place", "--yes")
    assert (status, store.start(store.root)[0]) == (0, [])


def of_copy(lines: list[str], root: Path) -> set[str]:
    """The lines without what differs from run to run: the folder, and the time of day."""
    return {
        re.sub(r"later than \d+|log at \d+|due before \d+", "TIME", line.replace(str(root), "ROOT"))
        for line in lines
    }


def agree(original: Damaged, kind: Kind, tmp_path: Path, capsys) -> None:
    root, copy, expected = tmp_path / "store", tmp_path / "copy", original.whole
    shutil.copytree(original.root, root)
    if kind.damage(root) is False:
        pytest.skip("this store has no such file")
    shutil.copytree(root, copy)
    said = of_copy(original.start(copy)[0], copy)
    status, out = original.command(capsys, "fsck", root, "--json")
    if status == 2:
        error = json.loads(out)["error"]
        assert of_copy([error], root) == said
        repaired = original.command(capsys, "repair", root, "--in-place", "--yes")
        assert repaired == (2, f"trocket store: {error}\n")
        return
    assert status == 1 or kind.is_harmless
    found = findings(out)
    assert of_copy([f["what"] for f in found if f["kind"].startswith("start.")], root) == said
    assert status == int(any(f["severity"] in ("error", "loss") for f in found))
    status, out = original.command(capsys, "repair", root, "--in-place", "--yes", "--json")
    if kind.needs_backup and status == 2:
        return
    assert status == 0, out
    assert original.command(capsys, "fsck", root)[0] == 0
    lines, after = original.start(root)
    assert lines == []
    assert after.keys() <= expected.keys()
    assert after == expected or kind.needs_backup


def findings(out: str) -> list[dict[str, str]]:
    return json.loads(out.splitlines()[0])["findings"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_start_fsck_and_repair_agree_on_a_store_of_trocket(trocket_store, kind, tmp_path, capsys):
    agree(trocket_store, kind, tmp_path, capsys)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_start_fsck_and_repair_agree_on_a_store_of_rocketmq(rocketmq_store, kind, tmp_path, capsys):
    agree(rocketmq_store, kind, tmp_path, capsys)
