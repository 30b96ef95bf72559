"""How many seconds a slave is behind, from what it acknowledges."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trocket.store.ha.sender import Distance


def test_a_slave_that_has_the_whole_log_is_not_behind() -> None:
    distance = Distance(0.0)
    distance.acknowledged(100, 100, 1.0)
    assert distance.seconds(100, 100, 50.0) == 0.0


def test_a_silent_slave_is_behind_since_it_had_the_whole_log() -> None:
    distance = Distance(0.0)
    distance.acknowledged(100, 100, 10.0)
    assert distance.seconds(100, 101, 12.5) == 2.5


def test_a_slave_that_copies_an_old_log_is_behind_since_it_connected() -> None:
    distance = Distance(5.0)
    distance.acknowledged(0, 1_000, 5.0)
    distance.acknowledged(500, 2_000, 7.0)
    assert distance.seconds(500, 2_000, 8.0) == 3.0


def test_a_slave_with_a_steady_lag_is_behind_by_it_and_no_more() -> None:
    """100 bytes a second, acknowledged 2 s later, for a minute."""
    distance = Distance(0.0)
    for second in range(2, 60):
        distance.acknowledged((second - 2) * 100, second * 100, float(second))
    assert 2.0 <= distance.seconds(57 * 100, 59 * 100, 59.0) <= 4.0


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50), st.floats(0, 10)), max_size=30))
def test_the_distance_is_never_too_small(steps: list[tuple[int, int, float]]) -> None:
    """Compared with the moment from which on the log had bytes that the slave lacks."""
    distance = Distance(0.0)
    now_s, end, offset = 0.0, 0, 0
    history = [(0, 0.0)]  # the log's ends, and since when
    for growth, acknowledged, passed_s in steps:
        now_s += passed_s
        if growth:
            end += growth
            history.append((end, now_s))
        offset = min(end, offset + acknowledged)
        distance.acknowledged(offset, end, now_s)
        later_s = now_s + 1.0
        lacked = [since_s for length, since_s in history if length > offset]
        if lacked:
            assert distance.seconds(offset, end, later_s) >= later_s - lacked[0]
        else:
            assert distance.seconds(offset, end, later_s) == 0.0
