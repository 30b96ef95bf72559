"""The decision table: every combination has exactly one answer."""

from __future__ import annotations

import itertools

import pytest

from trocket.store.config import FlushDiskType
from trocket.store.recovery.recovery_table import TABLE, Action, Place, Rest, decide, scan_start

EVERYTHING = list(itertools.product(Rest, (True, False), Place, FlushDiskType))


def action(rest, clean, place, flush):
    return decide(rest=rest, clean=clean, place=place, flush=flush).action


@pytest.mark.parametrize(("rest", "clean", "place", "flush"), EVERYTHING)
def test_every_combination_meets_exactly_one_row(rest, clean, place, flush):
    rows = [case for case in TABLE if case.matches(rest, clean, place, flush)]
    assert rows == [decide(rest=rest, clean=clean, place=place, flush=flush)]


def test_every_row_is_met_by_something():
    assert {decide(rest=r, clean=c, place=p, flush=f) for r, c, p, f in EVERYTHING} == set(TABLE)


def test_labels_are_unique():
    assert len({case.label for case in TABLE}) == len(TABLE)


def test_zeros_behind_the_log_are_never_cut():
    assert {action(*row) for row in EVERYTHING if row[0] is Rest.ZEROS} == {
        Action.KEEP,
        Action.READ_ONLY,
    }


def test_nothing_that_was_synced_is_ever_cut():
    found = {action(*row) for row in EVERYTHING if row[2] is Place.SYNCED}
    assert found == {Action.READ_ONLY}


def test_a_hole_is_cut_only_where_nothing_behind_it_can_have_been_vouched_for():
    for rest, clean, place, flush in EVERYTHING:
        if rest is Rest.RECORDS and action(rest, clean, place, flush) is Action.TRUNCATE:
            assert place is Place.UNSYNCED
            assert clean or flush is FlushDiskType.ASYNC_FLUSH


def test_what_a_power_cut_left_unwritten_is_a_tail_under_sync_flush_too():
    arguments = (False, Place.UNSYNCED, FlushDiskType.SYNC_FLUSH)
    assert action(Rest.SKIPPED, *arguments) is Action.TRUNCATE
    assert action(Rest.RECORDS, *arguments) is Action.READ_ONLY


@pytest.mark.parametrize(
    ("clean", "dispatched", "queues_end", "safe_ms", "expected"),
    [
        pytest.param(False, 150, 0, 0, 150, id="our checkpoint says where"),
        pytest.param(False, 50, 0, 0, 100, id="a checkpoint from before the oldest file"),
        pytest.param(True, -1, 250, 0, 200, id="clean: the newest file the queues reach"),
        pytest.param(True, -1, 0, 0, 100, id="clean without queues: the oldest"),
        pytest.param(False, -1, 999, 25, 200, id="abnormal: the newest old enough"),
        pytest.param(False, -1, 999, 5, 100, id="abnormal: none is old enough"),
    ],
)
def test_where_reading_starts(clean, dispatched, queues_end, safe_ms, expected):
    start = scan_start(
        clean=clean,
        dispatched_offset=dispatched,
        bases=[100, 200, 300],
        first_timestamp_ms={100: 10, 200: 20, 300: 0}.__getitem__,
        queues_end=queues_end,
        safe_timestamp_ms=safe_ms,
    )
    assert start == expected


def test_an_empty_log_is_read_from_0():
    start = scan_start(
        clean=True,
        dispatched_offset=77,
        bases=[],
        first_timestamp_ms=lambda base: 0,
        queues_end=0,
        safe_timestamp_ms=0,
    )
    assert start == 0
