"""A log as record batches: ours and Apache's, whole and damaged, all of it or what is wanted."""

from __future__ import annotations

import hashlib
import re

import pytest

np = pytest.importorskip("numpy", reason="numpy is of the extra `spark`")
pa = pytest.importorskip("pyarrow", reason="pyarrow is of the extra `spark`")

from tests.interop.golden_stores import NAMES, manifest, unpack  # noqa: E402
from tests.store.offline.support import LOG, ROOT, poke, records, stopped_store  # noqa: E402
from tests.store.support import put, small_config  # noqa: E402
from trocket.common.clock import ManualClock  # noqa: E402
from trocket.disk.memory_disk import MemoryDisk  # noqa: E402
from trocket.remoting.body_compression import CompressionType, compress  # noqa: E402
from trocket.spark.errors import CorruptStoreError, DataLossError  # noqa: E402
from trocket.spark.log_read import read_log  # noqa: E402
from trocket.spark.store_options import log_request, store_options  # noqa: E402
from trocket.spark.store_plan import StoreAt, plan_log  # noqa: E402
from trocket.store.message_store import MessageStore  # noqa: E402
from trocket.store.offline.layout import read_layout  # noqa: E402
from trocket.store.offline.log_walk import LogWalk  # noqa: E402
from trocket.store.offline.read_only import ReadOnlyDisk  # noqa: E402


def rows(disk, columns=None, *, root=ROOT, **given):
    """All rows that a query would have, by its options."""
    options = store_options({"path": root, "splitBytes": "20000", **given})
    request = log_request(options, tuple(columns or options.columns))
    found = []
    for split in plan_log(disk, [StoreAt(root, "broker-a")], options):
        for batch in read_log(disk, split, request, fail_on_data_loss=options.fail_on_data_loss):
            batch.validate(full=True)
            assert batch.num_rows <= options.arrow_batch_rows
            found += batch.to_pylist()
    return found


@pytest.mark.slow
def test_every_record_is_a_row() -> None:
    disk = stopped_store()
    messages = records(disk)
    found = rows(disk, arrowBatchRows="7")
    assert [row["commitLogOffset"] for row in found] == [m.physical_offset for m in messages]
    assert [row["body"] for row in found] == [m.body for m in messages]
    assert [row["tags"] for row in found] == [m.tags for m in messages]
    assert {row["brokerName"] for row in found} == {"broker-a"}
    assert {row["valid"] for row in found} == {True}
    for row in found:
        assert int(row["segment"]) + row["position"] == row["commitLogOffset"]


def test_a_choice_of_columns_is_in_its_order() -> None:
    found = rows(stopped_store(), ["queueOffset", "topic"])
    assert {tuple(row) for row in found} == {("queueOffset", "topic")}


def test_properties_are_the_text_of_a_record_where_that_is_wanted() -> None:
    disk = stopped_store()
    texts = [row["properties"] for row in rows(disk, ["properties"], propertiesAs="string")]
    assert texts == [m.properties_bytes.decode() for m in records(disk)]
    assert texts[0].count("\x01") == len(rows(disk, ["properties"])[0]["properties"])


def test_topics_tags_and_times_choose_rows() -> None:
    disk = stopped_store()
    messages = records(disk)
    times = sorted(m.store_timestamp_ms for m in messages)

    def offsets(**given):
        return [row["commitLogOffset"] for row in rows(disk, ["commitLogOffset"], **given)]

    def expected(wanted):
        return [m.physical_offset for m in messages if wanted(m)]

    assert offsets(topic="U") == expected(lambda m: m.topic == "U")
    assert offsets(topic="U, SCHEDULE_TOPIC_XXXX") == expected(lambda m: m.topic != "T")
    assert offsets(tags="tag1 || tag3") == expected(lambda m: m.tags in ("tag1", "tag3"))
    assert offsets(tags="*") == expected(lambda m: True)
    first, last = times[50], times[100]
    assert offsets(startingTimestamp=str(first), endingTimestamp=str(last)) == expected(
        lambda m: first <= m.store_timestamp_ms <= last
    )
    assert offsets(topic="nothing") == []


def test_a_hole_is_an_error_or_a_row() -> None:
    disk = stopped_store()
    good = rows(disk, ["commitLogOffset"])
    bad, after = (good[row]["commitLogOffset"] for row in (20, 21))
    poke(disk, bad, b"\0\0\0\x05")
    with pytest.raises(
        CorruptStoreError, match=f"{after - bad} bytes at {bad} are not records: a r"
    ):
        rows(disk)
    found = rows(disk, mode="permissive")
    assert [row["commitLogOffset"] for row in found if row["valid"]] == [
        row["commitLogOffset"] for row in good if row["commitLogOffset"] != bad
    ]
    (hole,) = (row for row in found if not row["valid"])
    assert (hole["position"], hole["size"], hole["topic"]) == (bad, after - bad, None)
    assert re.fullmatch("a record of 5 bytes with [0-9]+ left in the file", hole["_corrupt"])
    assert hole["_raw"] == bytes(disk.contents[f"{LOG}/{0:020d}"][bad : bad + 128])


def test_a_tail_is_a_row_only_when_asked_for() -> None:
    disk = stopped_store()
    walk = LogWalk(read_layout(disk, ROOT).commit_log(disk))
    list(walk.records())
    poke(disk, walk.end, b"torn")
    assert {row["valid"] for row in rows(disk)} == {True}
    assert {row["valid"] for row in rows(disk, mode="permissive")} == {True}
    last = rows(disk, mode="permissive", tail="include")[-1]
    assert (last["valid"], last["size"], last["_raw"][:4]) == (False, 4, b"torn")
    assert last["_corrupt"].startswith("tail: ")


def test_a_body_that_does_not_inflate_is_an_error_or_a_row_with_the_reason() -> None:
    disk = MemoryDisk()
    store = MessageStore(small_config(), clock=ManualClock(), disk=disk, memory_bytes=1 << 30)
    store.load()
    flag = CompressionType.ZLIB.sys_flag
    put(store, compress(b"good" * 99, CompressionType.ZLIB), sys_flag=flag)
    put(store, b"bad", sys_flag=flag)
    store.commit()
    store.close()
    with pytest.raises(
        CorruptStoreError, match="topic T, queue 0, offset 1: the body is not a zlib"
    ):
        rows(disk)
    good, bad = rows(disk, mode="permissive")
    assert (good["body"], good["valid"], good["_corrupt"]) == (b"good" * 99, True, None)
    assert (bad["body"], bad["valid"]) == (b"bad", False)
    assert bad["_corrupt"].startswith("the body is not a zlib stream")
    assert bad["_raw"].endswith(b"bad\x01T\0\0")
    assert [row["body"] for row in rows(disk, decompress="false")][1] == b"bad"
    # Bodies are not requested, so there is no error.
    assert len(rows(disk, ["topic"])) == 2


def test_a_file_that_goes_between_plan_and_read_is_data_loss() -> None:
    disk = stopped_store()
    options = store_options({"path": ROOT})
    request = log_request(options, ("topic",))
    split = plan_log(disk, [StoreAt(ROOT, "b")], options)[0]
    disk.unlink(split.path)
    with pytest.raises(DataLossError, match="was removed after the query was planned"):
        list(read_log(disk, split, request))
    assert list(read_log(disk, split, request, fail_on_data_loss=False)) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_stores_of_apache_say_what_their_manifests_say(name, golden, tmp_path) -> None:
    root = str(unpack(golden, name, tmp_path))
    found = rows(ReadOnlyDisk(), root=root)
    by_offset = {row["commitLogOffset"]: row for row in found}
    assert len(by_offset) == len(found)
    lines = manifest(golden, name)
    assert lines["message"]
    for line in lines["message"]:
        row = by_offset[line["physicalOffset"]]
        assert row["size"] == line["size"]
        assert row["topic"] == line["topic"]
        assert row["queueId"] == line["queueId"]
        assert row["queueOffset"] == line["queueOffset"]
        assert row["storeTimestamp"].timestamp() * 1000 == pytest.approx(line["storeTimestamp"])
        assert row["tags"] == line.get("tags")
        assert row["keys"] == line.get("keys")
        if "props" in line:
            assert dict(row["properties"]) == line["props"]
        assert hashlib.sha1(row["body"]).hexdigest() == line["bodySha1"]
        if "magic" in line:
            assert row["magic"] == int(line["magic"], 16) - (1 << 32)
    # And what consumers do not see is there, too: nothing but whole records, all of them.
    walk = LogWalk(read_layout(ReadOnlyDisk(), root).commit_log(ReadOnlyDisk()))
    assert [row["commitLogOffset"] for row in found] == [m.physical_offset for m in walk.records()]
