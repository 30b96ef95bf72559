"""`onlyQueues` gives those messages of a log that the units of its queues point to."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("numpy", reason="numpy is of the extra `spark`")
pytest.importorskip("pyarrow", reason="pyarrow is of the extra `spark`")

from tests.spark.test_log_read import rows
from tests.store.offline.support import ROOT, records, stopped_store
from trocket.spark import queue_units
from trocket.spark.errors import OptionError
from trocket.spark.store_options import ReadMode, store_options
from trocket.spark.store_plan import StoreAt
from trocket.spark.store_tables import plan_table, read_table

COLUMNS = ["topic", "queueId", "queueOffset", "commitLogOffset"]
QUEUES = sorted(path for path in stopped_store().contents if "/consumequeue/" in path)


def units(disk):
    """What the table of the queues says."""
    options = store_options({"path": ROOT, "table": "consumequeue"})
    found = set()
    for split in plan_table(disk, [StoreAt(ROOT, "b")], options):
        for batch in read_table(disk, split, tuple(COLUMNS), ReadMode.FAILFAST):
            found |= {tuple(row.values()) for row in batch.to_pylist()}
    return found


def seen(disk, **given):
    return [tuple(row.values()) for row in rows(disk, COLUMNS, **given)]


def test_half_messages_are_in_the_log_and_in_no_queue() -> None:
    disk = stopped_store()
    found = rows(disk, ["body"], onlyQueues="true", arrowBatchRows="50")
    assert b"half" not in {row["body"] for row in found}
    assert len(found) == sum(message.body != b"half" for message in records(disk))


@given(
    st.lists(st.sampled_from(QUEUES), max_size=2),
    st.lists(st.tuples(st.sampled_from(QUEUES), st.integers(0, 399), st.integers(0, 255))),
)
@settings(max_examples=20)
@pytest.mark.slow
def test_it_is_what_the_queues_point_to_whatever_they_hold(gone, damage) -> None:
    disk = stopped_store()
    for path, place, byte in damage:
        disk.contents[path][place] = byte
    for path in set(gone):
        disk.unlink(path)
    pointed = units(disk)
    everything = seen(disk)
    assert seen(disk, onlyQueues="true") == [row for row in everything if row in pointed]
    assert everything == seen(stopped_store())


def test_few_files_are_open_at_once(monkeypatch) -> None:
    expected = seen(stopped_store(), onlyQueues="true")
    monkeypatch.setattr(queue_units, "OPEN_MAX", 1)
    assert seen(stopped_store(), onlyQueues="true") == expected


@pytest.mark.parametrize(
    ("folder", "text"),
    [("consumequeue_rocksdb", "in RocksDB"), ("batchconsumequeue/T/0", "batch consume queues")],
)
def test_queues_that_are_not_read_are_refused(folder, text) -> None:
    disk = stopped_store()
    disk.make_folder(f"{ROOT}/{folder}")
    with pytest.raises(OptionError, match=text):
        rows(disk, onlyQueues="true")
