"""Queues, index and state as rows: what the offline tools say of the same files."""

from __future__ import annotations

import pytest

pytest.importorskip("numpy", reason="numpy is of the extra `spark`")
pytest.importorskip("pyarrow", reason="pyarrow is of the extra `spark`")

from tests.interop.golden_stores import NAMES, consumer_offsets, unpack
from tests.store.offline.support import ROOT, stopped_store
from trocket.spark.columns import TABLES
from trocket.spark.errors import CorruptStoreError, OptionError
from trocket.spark.store_options import store_options
from trocket.spark.store_plan import StoreAt
from trocket.spark.store_tables import plan_table, read_table
from trocket.store.offline.dump import dump_checkpoint, dump_index, dump_queues
from trocket.store.offline.layout import read_layout
from trocket.store.offline.read_only import ReadOnlyDisk
from trocket.store.offline.selection import Selection


def rows(disk, table, root=ROOT, **given):
    options = store_options({"path": root, "table": table, "splitBytes": "4096", **given})
    names = tuple(options.columns)
    found = []
    for split in plan_table(disk, [StoreAt(root, "broker-a")], options):
        for batch in read_table(disk, split, names, options.mode):
            batch.validate(full=True)
            found += batch.to_pylist()
    for row in found:
        assert row.pop("brokerName") == "broker-a"
    return found


def ms(row, name):
    return round(row[name].timestamp() * 1000)


@pytest.mark.parametrize("name", ["ours", *NAMES])
@pytest.mark.slow
def test_queues_and_index_are_what_the_tools_say(name, request, tmp_path) -> None:
    disk, root = stopped_store(), ROOT
    if name != "ours":
        golden = request.getfixturevalue("golden")
        disk, root = ReadOnlyDisk(), str(unpack(golden, name, tmp_path))
    layout = read_layout(disk, root)
    queues = sorted(
        (row["topic"], row["queueId"], row["queueOffset"], row["commitLogOffset"], row["size"],
         row["tagsCode"])
        for row in rows(disk, "consumequeue", root)
    )  # fmt: skip
    expected = sorted(
        (row["topic"], row["queueId"], row["queueOffset"], row["physicalOffset"], row["size"],
         row["tagsCode"])
        for row in dump_queues(disk, layout, Selection())
    )  # fmt: skip
    assert queues == expected
    assert queues
    index = [
        (row["number"], row["keyHash"], row["commitLogOffset"], ms(row, "storeTimestamp"),
         row["slot"], row["prev"])
        for row in rows(disk, "index", root)
    ]  # fmt: skip
    assert index == [
        (row["number"], row["keyHash"], row["physicalOffset"], row["storeTimestamp"],
         row["slot"], row["previous"])
        for row in dump_index(disk, layout, Selection(), None)
        if row["kind"] == "entry"
    ]  # fmt: skip


def test_a_topic_chooses_queues() -> None:
    disk = stopped_store()
    wanted = [row for row in rows(disk, "consumequeue") if row["topic"] == "U"]
    assert rows(disk, "consumequeue", topic="U") == wanted
    assert wanted


def test_the_state_of_our_broker() -> None:
    disk = stopped_store()
    assert rows(disk, "consumeroffsets") == [
        {"group": "g", "topic": "T", "queueId": 0, "offset": 5},
        {"group": "g", "topic": "T", "queueId": 1, "offset": 80},
        {"group": "g", "topic": "U", "queueId": 1, "offset": 24},
    ]
    assert rows(disk, "delayoffsets") == [{"delayLevel": 2, "offset": 9}]
    assert [row["topic"] for row in rows(disk, "topics")] == ["SCHEDULE_TOPIC_XXXX", "T", "U"]
    (checkpoint,) = rows(disk, "checkpoint")
    expected = dump_checkpoint(disk, read_layout(disk, ROOT))
    for name in ("physicMsgTimestamp", "logicsMsgTimestamp", "indexMsgTimestamp"):
        assert ms(checkpoint, name) == expected[name]
    assert checkpoint["dispatchedOffset"] == expected["dispatchedOffset"]
    assert checkpoint["abort"] is False


@pytest.mark.slow
def test_the_state_of_apaches_broker(golden, tmp_path) -> None:
    store = unpack(golden, "5.5.0-mix", tmp_path)
    disk, root = ReadOnlyDisk(), str(store)
    found = {
        (row["group"], row["topic"], row["queueId"]): row["offset"]
        for row in rows(disk, "consumeroffsets", root)
    }
    assert found == consumer_offsets(store)
    assert found
    topics = {row["topic"]: row for row in rows(disk, "topics", root)}
    assert topics["TopicPlain"]["perm"] == 6
    assert topics["TopicPlain"]["writeQueueNums"] > 0
    (checkpoint,) = rows(disk, "checkpoint", root)
    assert checkpoint["physicMsgTimestamp"].year == 2026
    assert checkpoint["dispatchedOffset"] is None  # ours only


def test_damaged_state_is_an_error_or_left_out_with_a_warning(caplog) -> None:
    disk = stopped_store()
    disk.contents[f"{ROOT}/config/consumerOffset.json"][:] = b"{"
    with pytest.raises(CorruptStoreError, match=r"consumerOffset\.json cannot be read"):
        rows(disk, "consumeroffsets")
    assert rows(disk, "consumeroffsets", mode="permissive") == []
    assert "consumerOffset.json cannot be read" in caplog.text
    disk.contents[f"{ROOT}/config/delayOffset.json"][:] = b'{"offsetTable":{"x":"y"}}'
    with pytest.raises(CorruptStoreError, match="not a table of delay offsets"):
        rows(disk, "delayoffsets")


def test_state_that_is_not_there_has_no_rows() -> None:
    disk = stopped_store()
    disk.unlink(f"{ROOT}/config/consumerOffset.json")
    disk.unlink(f"{ROOT}/checkpoint")
    assert rows(disk, "consumeroffsets") == rows(disk, "checkpoint") == []


def test_queues_in_rocksdb_are_refused_by_name() -> None:
    disk = stopped_store()
    disk.make_folder(f"{ROOT}/consumequeue_rocksdb")
    with pytest.raises(OptionError, match="keeps its consume queues in RocksDB"):
        rows(disk, "consumequeue")


def test_each_table_has_its_columns() -> None:
    disk = stopped_store()
    for table, columns in TABLES.items():
        if table != "commitlog":
            assert set(rows(disk, table)[0]) == set(columns) - {"brokerName"}
