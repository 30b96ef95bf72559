"""The plan of a store query: the stores of a path, and the splits of their logs."""

from __future__ import annotations

import copy

import pytest

pytest.importorskip("numpy", reason="numpy is of the extra `spark`")
pytest.importorskip("pyarrow", reason="pyarrow is of the extra `spark`")

import itertools

from tests.store.offline.support import FILE_SIZE, LOG, ROOT, records, stopped_store
from tests.store.support import send, small_config
from trocket.common.clock import ManualClock
from trocket.disk.memory_disk import MemoryDisk
from trocket.spark.errors import DataLossError, OptionError
from trocket.spark.store_options import store_options
from trocket.spark.store_plan import StoreAt, find_stores, name_of, plan_log
from trocket.store.message_store import MessageStore
from trocket.store.offline.read_only import ReadOnlyDisk

STORES = [StoreAt(ROOT, "broker-a")]


def plan(disk, **given):
    return plan_log(disk, STORES, store_options({"path": ROOT, **given}))


@pytest.mark.parametrize(
    ("path", "name"),
    [("/data/broker-a/store", "broker-a"), ("/x/broker-b", "broker-b"), ("/store", "broker")],
)
def test_a_store_is_called_by_its_folder(path, name) -> None:
    assert name_of(path) == name


def test_a_pattern_means_several_stores_and_they_have_their_own_names(tmp_path) -> None:
    for name in ("broker-a", "broker-b"):
        (tmp_path / name / "store" / "commitlog").mkdir(parents=True)
    pattern = f"{tmp_path}/broker-*/store"
    found = find_stores(ReadOnlyDisk(), store_options({"path": pattern}))
    assert [store.broker_name for store in found] == ["broker-a", "broker-b"]
    with pytest.raises(OptionError, match="matches 2 stores"):
        find_stores(ReadOnlyDisk(), store_options({"path": pattern, "brokerName": "x"}))
    with pytest.raises(OptionError, match="there is no folder"):
        find_stores(ReadOnlyDisk(), store_options({"path": f"{tmp_path}/nothing"}))


def test_what_is_no_store_is_refused_with_what_to_give(tmp_path) -> None:
    options = store_options({"path": str(tmp_path)})
    with pytest.raises(OptionError, match="not a store"):
        plan_log(ReadOnlyDisk(), find_stores(ReadOnlyDisk(), options), options)


def test_pieces_cover_all_files_that_hold_anything() -> None:
    disk = stopped_store()
    splits = plan(disk, splitBytes="10000")
    newest = max(split.base for split in splits)
    assert [split.is_newest for split in splits] == [split.base == newest for split in splits]
    for base in range(0, newest + 1, FILE_SIZE):
        of_file = [(split.begin, split.end) for split in splits if split.base == base]
        assert of_file[0][0] == 0
        assert of_file[-1][1] == FILE_SIZE
        assert all(a[1] == b[0] for a, b in itertools.pairwise(of_file))


def test_a_file_that_was_made_ahead_is_not_the_newest() -> None:
    disk = stopped_store()
    before = plan(disk)
    newest = max(split.base for split in before)
    disk.contents[f"{LOG}/{newest + FILE_SIZE:020d}"] = bytearray(FILE_SIZE)
    assert plan(disk) == before


def test_files_of_other_times_are_left_out() -> None:
    disk = stopped_store()
    times = [record.store_timestamp_ms for record in records(disk)]
    hour = 3_600_000
    assert plan(disk, startingTimestamp=str(times[0])) == plan(disk)
    newest = [split for split in plan(disk) if split.is_newest]
    assert plan(disk, startingTimestamp=str(times[-1] + hour)) == newest
    assert plan(disk, endingTimestamp=str(times[0] - hour)) == []
    # Steps of a clock: within ten minutes nothing is left out.
    assert plan(disk, startingTimestamp=str(times[-1] + 60_000)) == plan(disk)


def test_a_file_that_is_missing_between_others_is_data_loss() -> None:
    disk = stopped_store()
    disk.unlink(f"{LOG}/{FILE_SIZE:020d}")
    with pytest.raises(DataLossError, match=f"{FILE_SIZE:020d} is missing"):
        plan(disk)
    assert FILE_SIZE not in {split.base for split in plan(disk, failOnDataLoss="false")}


def test_a_store_that_a_broker_has_open_is_read_up_to_where_its_queues_reached() -> None:
    disk = MemoryDisk()
    store = MessageStore(small_config(), clock=ManualClock(), disk=disk, memory_bytes=1 << 30)
    store.load()
    for _ in range(5):
        send(store)
    assert len(plan(disk)) == 1
    locked = copy.copy(disk)
    limits = [split.limit for split in plan(locked)]
    assert limits[0] <= FILE_SIZE
    store.close()


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"table": "comitlog"}, "no table 'comitlog'; did you mean commitlog"),
        ({"tail": "include"}, "tail=include needs mode=permissive"),
        ({"startingTimestamp": "5", "endingTimestamp": "4"}, "is before startingTimestamp"),
        ({"splitBytes": "0"}, "splitBytes must be at least 1"),
        ({"brokername": "x", "nameServer": "y"}, "has no option 'nameServer'"),
    ],
)
def test_options_that_cannot_be_right(given, text) -> None:
    with pytest.raises(OptionError) as caught:
        store_options({"path": "/x", **given})
    assert text in str(caught.value)
