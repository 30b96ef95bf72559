"""Sizes read off the files, a disk that only reads, JSON checksums, copies, listings, exports."""

from __future__ import annotations

import base64
import io
import json
import stat
import subprocess
import sys

import pytest

from trocket.disk.errors import StoreIOError, StoreLockedError
from trocket.disk.json_config import sealed
from trocket.disk.memory_disk import MemoryDisk
from trocket.disk.os_disk import OsDisk
from trocket.remoting.body_compression import CompressionType, compress
from trocket.store.offline import dump
from trocket.store.offline.copying import check_room, copy_file
from trocket.store.offline.export import ExportError, JsonWriter, ParquetWriter
from trocket.store.offline.index_counts import IndexCounts, find_counts
from trocket.store.offline.json_files import (
    clamp_consumers,
    encode,
    parse,
    read_json,
)
from trocket.store.offline.layout import NoStoreError, log_file_size, read_conf, read_layout
from trocket.store.offline.opening import opened
from trocket.store.offline.read_only import ReadOnlyDisk
from trocket.store.offline.selection import Bodies, Selection, as_json, selected

from ..support import ROOT, open_store, put
from .support import COUNT, FILE_SIZE, poke, records, stopped_store

# ---- sizes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ({0: 1000, 1000: 1000, 2000: 1000}, 1000),
        ({0: 1000, 1000: 1000, 2000: 17}, 1000),
        ({0: 300, 1000: 1000}, 1000),
        ({0: 300, 1000: 300}, 1000),
        ({4000: 1000, 6000: 1000}, 1000),
        ({0: 1000}, 1000),
        ({0: 0}, 1 << 30),
    ],
    ids=["whole", "newest short", "oldest short", "all short", "one missing", "single", "empty"],
)
def test_the_size_of_log_files_is_where_they_begin(sizes, expected):
    assert log_file_size(sizes) == expected


def test_a_configuration_counts_more_than_the_files():
    conf = read_conf(
        b"mappedFileSizeCommitLog=131072\nbrokerName=x\nstorePathCommitLog=/log\n", path="b.conf"
    )
    layout = read_layout(stopped_store(), ROOT, conf)
    assert (layout.log_file_size, layout.log_folder) == (131072, "/log")


@pytest.mark.parametrize("text", [b"mappedFileSizeCommitLog=many\n", b"maxIndexNum=-1\n"])
def test_a_configuration_with_a_bad_size_is_refused_by_line(text):
    with pytest.raises(NoStoreError, match=r"b\.conf: line 1"):
        read_conf(text, path="b.conf")


def index_paths(disk):
    return sorted(path for path in disk.contents if path.startswith(f"{ROOT}/index/"))


def test_the_counts_of_index_files_are_found_with_the_log_and_without_its_beginning():
    disk = stopped_store()
    files = read_layout(disk, ROOT).commit_log(disk)
    paths = index_paths(disk)
    assert find_counts(disk, paths, None, files) == (20, 50)
    assert find_counts(disk, paths[-1:], None, files) == (20, 50)
    assert find_counts(disk, paths, IndexCounts(7, 8), files) == (7, 8)
    disk.unlink(f"{ROOT}/commitlog/{0:020d}")
    files = read_layout(disk, ROOT).commit_log(disk)
    assert find_counts(disk, paths, None, files) == (20, 50)
    assert find_counts(disk, [], None, files) is None


# ---- reading only ------------------------------------------------------------------------------


def test_a_disk_for_reading_writes_nothing_and_needs_no_right_to(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"bytes")
    path.chmod(stat.S_IRUSR)
    disk = ReadOnlyDisk()
    file = disk.open(str(path))
    assert file.pread(5, 0) == b"bytes"
    with pytest.raises(StoreIOError):
        file.pwrite(b"x", 0)
    with pytest.raises(StoreIOError):
        file.resize(1)
    file.close()
    for refused in (
        lambda: disk.open(str(path), create=True),
        lambda: disk.rename(str(path), str(path) + "2"),
        lambda: disk.unlink(str(path)),
        lambda: disk.make_folder(str(tmp_path / "new")),
        lambda: disk.remove_folder(str(tmp_path)),
    ):
        with pytest.raises(StoreIOError, match="only reads"):
            refused()
    assert path.read_bytes() == b"bytes"


LOCKER = """
import sys
from trocket.disk.os_disk import OsDisk
disk = OsDisk()
disk.lock(sys.argv[1])
print("locked", flush=True)
sys.stdin.read()
"""


def test_its_lock_is_shared_among_tools_and_keeps_brokers_out(tmp_path):
    path = str(tmp_path / "lock")
    fresh = ReadOnlyDisk()
    fresh.lock(path)  # never used by a broker: the folder is locked, and no file is made
    assert not list(tmp_path.iterdir())
    with pytest.raises(StoreLockedError):
        OsDisk().lock(path)
    fresh.unlock(path)
    broker = subprocess.Popen(
        [sys.executable, "-c", LOCKER, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert broker.stdout.readline() == b"locked\n"
        with pytest.raises(StoreLockedError):
            ReadOnlyDisk().lock(path)
    finally:
        broker.communicate(timeout=30)
    disk = ReadOnlyDisk()
    disk.lock(path)
    second = subprocess.run(
        [sys.executable, "-c", LOCKER, path], input=b"", capture_output=True, timeout=60
    )
    assert b"StoreLockedError" in second.stderr
    disk.unlock(path)
    OsDisk().lock(path)


# ---- JSON --------------------------------------------------------------------------------------


def test_a_wrong_seal_is_a_problem_and_a_right_one_is_taken_off():
    disk = MemoryDisk()
    text = b'{"offsetTable":{}}'
    disk.contents["/x.json"] = bytearray(sealed(text))
    assert read_json(disk, "/x.json") == (text, {"offsetTable": {}}, "")
    disk.contents["/x.json"][2:3] = b"O"
    assert read_json(disk, "/x.json").problem == "its checksum is wrong"


def test_bare_keys_as_fastjson_writes_them_are_read():
    assert parse(b'{"a":{0:1,18:2}}') == {"a": {"0": 1, "18": 2}}
    with pytest.raises(ValueError, match="list"):
        parse(b"[1]")


def test_offsets_beyond_a_queue_are_set_back_and_the_others_stay():
    tree = parse(b'{"dataVersion":{"counter":3},"offsetTable":{"T@g":{0:5,1:99,2:7}}}')
    ends = {("T", 0): 10, ("T", 1): 10}
    assert clamp_consumers(tree, lambda topic, queue_id: ends.get((topic, queue_id))) == 1
    assert encode(tree) == b'{"dataVersion":{"counter":3},"offsetTable":{"T@g":{0:5,1:10,2:7}}}'


def test_an_empty_file_holds_nothing():
    disk = MemoryDisk()
    disk.contents["/x.json"] = bytearray(b"\0\0")
    assert read_json(disk, "/x.json").problem == "it is empty"


# ---- copies ------------------------------------------------------------------------------------


def test_a_copy_has_the_same_bytes_and_its_holes_take_no_room(tmp_path):
    source, target = tmp_path / "source", tmp_path / "folder" / "target"
    with source.open("wb") as file:
        file.truncate(8 << 20)
        for position in (0, 5000, 3 << 20, (8 << 20) - 3):
            file.seek(position)
            file.write(b"abc")
    copied = []
    copy_file(ReadOnlyDisk(), str(source), OsDisk(), str(target), copied.append)
    assert target.read_bytes() == source.read_bytes()
    assert target.stat().st_blocks * 512 < 1 << 20
    assert sum(copied) > 0


def test_a_copy_without_room_is_refused_with_the_numbers():
    disk = MemoryDisk()
    disk.make_folder("/a")
    disk.capacity = 100 << 20
    check_room(disk, "/a/b/c", 1 << 20)
    with pytest.raises(StoreIOError, match="167,108,864 bytes are needed"):
        check_room(disk, "/a/b/c", 100_000_000)


# ---- which messages ----------------------------------------------------------------------------


def chosen(disk, **wanted):
    files = read_layout(disk, ROOT).commit_log(disk)
    try:
        return list(selected(files, Selection(**wanted), read_body=True))
    finally:
        files.close()


def test_each_filter_leaves_the_messages_that_it_names():
    disk = stopped_store()
    everything = records(disk)
    assert chosen(disk) == everything
    assert chosen(disk, topic="U") == [r for r in everything if r.topic == "U"]
    assert [r.queue_offset for r in chosen(disk, topic="T", queue_id=1, start=5, stop=8)] == [
        5,
        6,
        7,
    ]
    middle = everything[100]
    assert chosen(disk, start=middle.physical_offset)[0] == middle
    assert chosen(disk, start=middle.physical_offset - 1)[0] == middle
    assert chosen(disk, stop=middle.physical_offset) == everything[:100]
    assert [r.keys for r in chosen(disk, key="k17")] == ["k17 all"]
    assert len(chosen(disk, key="all")) == COUNT
    assert [r.keys for r in chosen(disk, key=f"{33:032X}")] == ["k33 all"]
    since, until = everything[10].store_timestamp_ms, everything[20].store_timestamp_ms
    timely = [r for r in everything if since <= r.store_timestamp_ms <= until]
    assert chosen(disk, since_ms=since, until_ms=until) == timely
    assert chosen(disk, limit=3) == everything[:3]
    assert chosen(disk, limit=0) == []


def test_files_before_the_wanted_physical_offset_are_not_read():
    disk = stopped_store()
    read = set()
    disk.fault = lambda operation, path: read.add(path) if operation == "pread" else None
    assert chosen(disk, start=2 * FILE_SIZE + 10)
    assert f"{ROOT}/commitlog/{0:020d}" not in read


def test_a_damaged_place_is_skipped_and_reported():
    disk = stopped_store()
    victim = records(disk)[50]
    poke(disk, victim.physical_offset, b"\xff" * 50)
    walks = []
    files = read_layout(disk, ROOT).commit_log(disk)
    found = list(selected(files, Selection(), read_body=False, on_walk=walks.append))
    files.close()
    assert len(found) == len(records(stopped_store())) - 1
    assert walks[0].hole_count == 1


def test_a_message_as_json_has_all_its_fields():
    store = open_store(disk := MemoryDisk())
    body = "äöü".encode() * 100
    zipped = compress(body, CompressionType.ZLIB)
    flag = CompressionType.ZLIB.sys_flag
    put(store, zipped, properties=b"KEYS\x01k\x02TAGS\x01t\x02", sys_flag=flag, flag=7)
    put(store, b"\xff\xfe")
    store.commit()
    store.close()
    first, second = records(disk)
    shown = json.loads(json.dumps(as_json(first, Bodies.AUTO)))
    assert shown["body"] == body.decode()
    assert shown["properties"] == {"KEYS": "k", "TAGS": "t"}
    assert (shown["topic"], shown["queueId"], shown["queueOffset"], shown["flag"]) == ("T", 0, 0, 7)
    assert shown["msgId"] == first.offset_message_id
    assert shown["storeHost"] == "127.0.0.1:10911"
    stored = as_json(first, Bodies.BASE64, inflate=False)
    assert base64.b64decode(stored["bodyBase64"]) == zipped
    assert stored["isCompressed"] is True
    assert base64.b64decode(as_json(second, Bodies.AUTO)["bodyBase64"]) == b"\xff\xfe"
    assert "body" not in as_json(second, Bodies.NONE)
    assert as_json(second, Bodies.TEXT)["body"] == "\ufffd\ufffd"


# ---- listings ----------------------------------------------------------------------------------


def test_queue_units_are_listed_with_what_they_point_at():
    disk = stopped_store()
    layout = read_layout(disk, ROOT)
    rows = list(dump.dump_queues(disk, layout, Selection(topic="T", queue_id=1, start=2, stop=4)))
    assert [row["queueOffset"] for row in rows] == [2, 3]
    assert {row["record"] for row in rows} == {"ok"}
    assert rows[0]["keys"] == "k7 all"
    poke(disk, rows[0]["physicalOffset"], b"\xff" * 8)
    rows = list(dump.dump_queues(disk, layout, Selection(topic="T", queue_id=1, start=2, stop=4)))
    assert [row["record"] for row in rows] == ["missing", "ok"]
    everything = list(dump.dump_queues(disk, layout, Selection()))
    assert len(everything) == sum(1 for r in records(stopped_store()) if not r.sys_flag & 4)


def test_index_entries_are_listed_and_found_by_key():
    disk = stopped_store()
    layout = read_layout(disk, ROOT)
    rows = list(dump.dump_index(disk, layout, Selection(), None))
    assert sum(row["kind"] == "entry" for row in rows) == COUNT * 4
    headers = [row for row in rows if row["kind"] == "header"]
    assert headers[0]["maxIndexNum"] == 50
    found = list(dump.dump_index(disk, layout, Selection(topic="T", key="k9"), None))
    entries = [row for row in found if row["kind"] == "entry"]
    assert len(entries) == 1
    (message,) = chosen(disk, key="k9")
    assert entries[0]["physicalOffset"] == message.physical_offset


def test_checkpoint_config_and_summary_are_shown():
    disk = stopped_store()
    layout = read_layout(disk, ROOT)
    page = dump.dump_checkpoint(disk, layout)
    end = records(disk)[-1].physical_offset + records(disk)[-1].store_size
    assert page["dispatchedOffset"] == end
    assert page["abort"] is False
    files = {row["path"].rpartition("/")[2]: row for row in dump.dump_config(disk, layout)}
    assert set(files) == {"topics.json", "consumerOffset.json", "delayOffset.json"}
    assert files["topics.json"]["content"]["topicConfigTable"]["U"] == {"topicName": "U"}
    summary = dump.dump_summary(disk, layout)
    assert summary["maxPhyOffset"] == end
    assert summary["topics"]["T"] == COUNT
    assert {row["maxOffset"] for row in summary["queues"] if row["topic"] == "T"} == {COUNT // 3}


def test_batch_queues_are_listed(golden, tmp_path):
    from ..test_golden_stores import unpack

    config = unpack(golden, "5.5.0-mix", tmp_path)
    disk = ReadOnlyDisk()
    with opened(disk, config.store_path_root_dir) as store:
        rows = list(dump.dump_queues(disk, store.layout, Selection(topic="TopicInner")))
    assert rows
    assert [row["queueOffset"] for row in rows] == sorted(row["queueOffset"] for row in rows)
    assert rows[0]["batchSize"] > 1


# ---- files that are written ----------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, 3])
def test_one_json_document_parses_whatever_the_number_of_messages(count):
    out = bytearray()
    writer = JsonWriter(out.extend, bodies=Bodies.AUTO, inflate=True, as_array=True)
    for record in records(stopped_store())[:count]:
        writer.write(record)
    writer.finish()
    assert len(json.loads(bytes(out))) == count


def test_without_pyarrow_parquet_is_refused_with_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ExportError, match="pip install"):
        ParquetWriter(io.BytesIO(), inflate=True)


@pytest.mark.slow
def test_parquet_has_a_row_for_each_message():
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is an extra")
    file = io.BytesIO()
    writer = ParquetWriter(file, inflate=True)
    wanted = records(stopped_store())
    for record in wanted:
        writer.write(record)
    writer.finish()
    rows = parquet.read_table(io.BytesIO(file.getvalue())).to_pylist()
    assert [row["body"] for row in rows] == [record.body for record in wanted]
    assert [dict(row["properties"]) for row in rows] == [record.properties for record in wanted]
