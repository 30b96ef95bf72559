"""`timercheck` as a page, and as the answer that slaves get."""

from __future__ import annotations

import pytest

from trocket.broker.delivering.timer_checkpoint import TimerCheckpoint
from trocket.store.format import TIMER_FILE_SIZE, TIMER_HEAD

NOW_MS = 1_700_000_000_000
OURS = TimerCheckpoint(read_time_ms=NOW_MS - 5, read_offset=9, waiting_offset=7)
APACHES = TimerCheckpoint(read_time_ms=NOW_MS - 5, read_offset=9, waiting_offset=None)


@pytest.mark.parametrize("known", [OURS, APACHES, TimerCheckpoint()])
def test_a_slave_of_ours_reads_from_the_answer_what_the_master_knows(known) -> None:
    answer = known.to_answer(NOW_MS)
    assert len(answer) < TIMER_FILE_SIZE
    assert TimerCheckpoint.from_page(answer) == known


@pytest.mark.parametrize(("known", "offset"), [(OURS, 7), (APACHES, 9)])
def test_an_apache_slave_reads_where_it_has_to_begin(known, offset) -> None:
    head = TIMER_HEAD.unpack_from(known.to_answer(NOW_MS))
    assert head == (NOW_MS - 5, 0, offset, offset, 0, NOW_MS, 0)


def test_ours_does_not_count_once_apache_has_written_the_page() -> None:
    page = bytearray(OURS.to_page(NOW_MS))
    TIMER_HEAD.pack_into(page, 0, NOW_MS, 0, 20, 20, 0, NOW_MS, 1)
    assert TimerCheckpoint.from_page(bytes(page)) == TimerCheckpoint(NOW_MS, 20, None)
