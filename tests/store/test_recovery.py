"""The decision table: every combination has exactly one answer."""

from __future__ import annotations

import itertools

import pytest

from trocket.store.config import FlushDiskType
from trocket.store.recovery import TABLE, Action, Place, Rest, decide, scan_start


@pytest.mark.parametrize(
    ("rest", "clean", "place", "flush"),
    list(itertools.product(Rest, (True, False), Place, FlushDiskType)),
)
def test_every_combination_meets_exactly_one_row(rest, clean, place, flush):
    rows = [
        case
        for case in TABLE
        if case.rest is rest
        and case.clean in (None, clean)
        and case.place in (None, place)
        and case.flush in (None, flush)
    ]
    assert rows == [decide(rest=rest, clean=clean, place=place, flush=flush)]


def test_zeros_behind_the_log_are_never_cut():
    assert {c.action for c in TABLE if c.rest is Rest.ZEROS} == {Action.KEEP}


def test_a_hole_in_synced_bytes_is_always_refused():
    for clean, flush in itertools.product((True, False), FlushDiskType):
        case = decide(rest=Rest.RECORDS, clean=clean, place=Place.SYNCED, flush=flush)
        assert case.action is Action.REFUSE


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
    files = [(100, 10), (200, 20), (300, 0)]
    start = scan_start(
        clean=clean,
        dispatched_offset=dispatched,
        files=files,
        queues_end=queues_end,
        safe_timestamp_ms=safe_ms,
    )
    assert start == expected


def test_an_empty_log_is_read_from_0():
    assert (
        scan_start(clean=True, dispatched_offset=77, files=[], queues_end=0, safe_timestamp_ms=0)
        == 0
    )
