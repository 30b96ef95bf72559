"""The pages of docs/formats say what the declarations say, and their examples are real bytes.

A fence names where its bytes come from: `hex PATH POSITION` or `text PATH` in a golden store, or
`… ours NAME` for files that only we write. In a hex fence a line's words begin after two blanks,
and `@0000abcd` goes on at another position of the file.
"""

from __future__ import annotations

import re
import tarfile
from functools import cache
from pathlib import Path

import pytest

from trocket.disk.json_config import sealed
from trocket.disk.memory_disk import MemoryDisk
from trocket.remoting import record_schema
from trocket.remoting.schema import Layout
from trocket.store import format as store_format
from trocket.store.config import MessageStoreConfig
from trocket.store.ha.epochs import Epochs, encode_epochs
from trocket.store.message_store import MessageStore
from trocket.store.queues.deleted_topics import DeletedTopics
from trocket.store.queues.queue_ends import QueueEnds
from trocket.store.recovery.checkpoint import Checkpoint, IndexProgress
from trocket.store.recovery.log_cut import LogCut, write_cut

FOLDER = Path(__file__).resolve().parent.parent.parent / "docs" / "formats"
PAGES = {path.name: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.md"))}
FENCE = re.compile(r"^```(hex|text) (\S+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LAYOUT = re.compile(r"<!-- layout: (\w+) -->\n\|.*\n\|[-|]*\n((?:\|.*\n)+)")
ROW = re.compile(r"^\| (\d+) \| (\d+) \| (\w+) \|", re.MULTILINE)

FENCES = [(name, *found) for name, page in PAGES.items() for found in FENCE.findall(page)]
LAYOUTS = [(name, *found) for name, page in PAGES.items() for found in LAYOUT.findall(page)]


def our_checkpoint() -> bytes:
    return Checkpoint(
        physic_msg_timestamp_ms=0x1A1FCAE56A8,
        logics_msg_timestamp_ms=0x1A1FCAE56A8,
        dispatched_offset=1_346_520,
        index=IndexProgress(
            file_name=20261121055711975,
            begin_timestamp_ms=0x1A1FCAE1E9F,
            end_timestamp_ms=0x1A1FCAE56A8,
            begin_physical_offset=0,
            end_physical_offset=0x148000,
            hash_slot_count=171,
            index_count=202,
            indexed_offset=1_346_520,
            files=((20261121055700000, 0x12345678),),
        ),
    ).to_page()


def our_queue_ends() -> bytes:
    return QueueEnds(
        1_346_520,
        2000,
        ends={("TopicPlain", 0): 125, ("TopicPlain", 1): 125, ("TopicTx", 0): 3},
        begins={("TopicPlain", 0): 100, ("TopicPlain", 1): 97},
        log_start=1_048_576,
        begins_at=1_048_576,
        own_from=0,
    ).to_bytes()


def our_log_cut() -> bytes:
    disk = MemoryDisk()
    disk.make_folder("/store")
    write_cut(disk, "/store", LogCut(1028578, 1040682))
    return bytes(disk.contents["/store/log_cut.trocket"])


def our_deleted_topics() -> bytes:
    disk = MemoryDisk()
    deleted = DeletedTopics(disk, "/store")
    deleted.begin(0)
    deleted.add(["TopicOld"], log_end=100)
    return bytes(disk.contents["/store/deleted_topics.trocket"])


OURS = {
    "checkpoint": our_checkpoint,
    "deleted_topics": our_deleted_topics,
    "epochs": lambda: encode_epochs(Epochs([(1, 0)])),
    "log_cut": our_log_cut,
    "queue_ends": our_queue_ends,
    "sealed": lambda: sealed(b'{"offsetTable":{}}'),
}


@cache
def golden_file(golden: Path, path: str) -> bytes:
    store = path.partition("/")[0]
    with tarfile.open(golden / "store" / f"{store}.tar.xz") as archive:
        member = next(m for m in archive if m.name.removeprefix("./") == path)
        file = archive.extractfile(member)
        assert file is not None
        return file.read()


def pieces(text: str, start: int) -> list[tuple[int, bytes]]:
    """(position, bytes) of each run of lines in a hex fence; `@` positions are of the file."""
    found = [(start, bytearray())]
    for line in text.splitlines():
        line = line.partition("  ")[0]
        if line.startswith("@"):
            found.append((int(line[1:], 16), bytearray()))
        else:
            found[-1][1].extend(bytes.fromhex(line))
    return [(position, bytes(data)) for position, data in found]


@pytest.mark.parametrize(("page", "kind", "path", "more", "text"), FENCES)
def test_an_example_is_what_the_file_holds(golden, page, kind, path, more, text):
    data = OURS[more]() if path == "ours" else golden_file(golden, path)
    if kind == "text":
        assert data.decode().removesuffix("\n") == text.removesuffix("\n")
        return
    for position, expected in pieces(text, 0 if path == "ours" else int(more)):
        assert data[position : position + len(expected)].hex(" ", 4) == expected.hex(" ", 4), (
            f"{page}: at {position:08x} of {path}"
        )


@pytest.mark.parametrize(("page", "name", "rows"), LAYOUTS)
def test_a_table_lists_the_fields_that_are_declared(page, name, rows):
    module = record_schema if name == "RECORD" else store_format
    layout = getattr(module, name)
    until = "body_length" if name == "RECORD" else None
    context = {"sys_flag": 0}
    position, expected = 0, []
    for field in layout.names(until=until):
        end = layout.struct(until=field, context=context).size
        expected.append((str(position), str(end - position), field))
        position = end
    assert ROW.findall(rows) == expected, page


def test_every_declared_file_has_a_page_with_an_example_and_a_table():
    declared = {name for name, value in vars(store_format).items() if isinstance(value, Layout)}
    assert {name for _, name, _ in LAYOUTS} == declared | {"RECORD"}
    assert {page for page, *_ in FENCES} == PAGES.keys() - {"README.md"}
    assert all(f"]({name})" in PAGES["README.md"] for name in PAGES if name != "README.md")


LEFT_ALONE = [
    "timerwheel", "timerlog", "config/timermetrics",
    "config/consumerOrderInfo.json", "config/transactionMetrics",
    "compaction", "rocksdbstore", "abort.bak",
]  # fmt: skip


@pytest.mark.slow
def test_what_is_said_to_be_left_alone_is_left_alone(golden, tmp_path):
    table = PAGES["README.md"].partition("## What is left alone")[2]
    assert set(re.findall(r"`([\w/.]+?)/?`(?=[,| ])", table)) >= set(LEFT_ALONE)
    with tarfile.open(golden / "store" / "5.5.0-mix.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    root = tmp_path / "5.5.0-mix"
    assert all((root / name).exists() for name in LEFT_ALONE)

    def snapshot():
        files = [p for n in LEFT_ALONE for p in (root / n, *(root / n).rglob("*")) if p.is_file()]
        return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}

    before = snapshot()
    assert len(before) > len(LEFT_ALONE)
    (root / "abort").touch()
    config = MessageStoreConfig(
        store_path_root_dir=str(root),
        mapped_file_size_commit_log=1 << 20,
        mapped_file_size_consume_queue=2000,
        max_hash_slot_num=1000,
        max_index_num=4000,
    )
    store = MessageStore(config)
    store.load()
    store.close()
    assert snapshot() == before
