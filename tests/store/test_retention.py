"""Which files go, and when the clock is believed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trocket.store.retention.disk_space import SpaceDecision
from trocket.store.retention.retention_rules import (
    CLOCK_DOUBT_S,
    HOUR_MS,
    START_DOUBT_S,
    ClockGuard,
    LogFileFacts,
    choose,
    delete_hours,
)

from .support import small_config

NOW = 1_700_000_000_000
SIZE = 64 * 1024


def files(*ages_h):
    """Oldest first; None: of unknown age."""
    return [
        LogFileFacts(number * SIZE, -1 if age is None else NOW - int(age * HOUR_MS))
        for number, age in enumerate(ages_h)
    ]


def chosen(found, *, hour=4, doubt="", space=SpaceDecision(), **keys):  # noqa: B008 - it is frozen
    config = small_config(**keys)
    return choose(found, now_ms=NOW, hour=hour, doubt=doubt, space=space, config=config)


def bases(found, **more):
    return [deletion.base // SIZE for deletion in chosen(found, **more)]


def test_at_the_hour_files_go_whose_newest_message_is_72_hours_old():
    assert bases(files(100, 73, 72, 71.9, 80)) == [0, 1, 2]
    assert "fileReservedTime=72 h" in chosen(files(73))[0].reason


def test_at_another_hour_nothing_goes():
    assert bases(files(100), hour=5) == []
    assert bases(files(100), hour=16, delete_when="04;16") == [0]


def test_on_a_disk_that_fills_expired_files_go_at_any_hour():
    assert bases(files(100, 1), hour=5, space=SpaceDecision(reclaim="75 %")) == [0]


def test_for_space_unexpired_files_go_but_no_more_than_needed():
    want = SpaceDecision(clean="full", excess=SIZE + 1)
    assert bases(files(3, 2, 1, 0), hour=5, space=want) == [0, 1]
    assert chosen(files(3), hour=5, space=want)[0].reason == "full"
    assert bases(files(100, 90, 80, 0), hour=5, space=want) == [0, 1, 2]


def test_for_space_nothing_unexpired_goes_where_that_is_forbidden():
    want = SpaceDecision(clean="full", excess=SIZE)
    assert bases(files(100, 1), hour=5, space=want, clean_file_forcibly_enable=False) == [0]


def test_at_one_look_no_more_than_the_batch_goes():
    assert len(bases(files(*[100] * 30))) == 10
    assert len(bases(files(*[100] * 30), delete_file_batch_max=3)) == 3


def test_a_file_of_unknown_age_does_not_expire_but_may_go_for_space():
    assert bases(files(None, 100)) == []
    assert bases(files(None, 1), space=SpaceDecision(clean="full", excess=1)) == [0]


def test_a_doubted_clock_expires_nothing_but_a_full_disk_is_full():
    assert bases(files(100), doubt="jumped") == []
    assert bases(files(100, 90), doubt="jumped", space=SpaceDecision(clean="full", excess=1)) == [0]


@given(
    st.lists(st.none() | st.integers(0, 200), max_size=15),
    st.integers(0, 23),
    st.booleans(),
    st.booleans(),
    st.integers(0, 5 * SIZE),
)
def test_what_goes_is_always_the_oldest_files_without_a_gap(ages, hour, reclaim, clean, excess):
    want = SpaceDecision("r" * reclaim, "c" * clean, excess * clean)
    gone = bases(files(*ages), hour=hour, space=want)
    assert gone == list(range(len(gone)))
    for number in gone:
        old = ages[number] is not None and ages[number] >= 72
        assert (old and (hour == 4 or reclaim or clean)) or (clean and number * SIZE < excess)


@pytest.mark.parametrize("text", ["", "4;", "24", "-1", "four", "04,16"])
def test_an_hour_that_is_none_is_an_error(text):
    with pytest.raises(ValueError, match=r"\w"):
        delete_hours(text)


def test_hours_are_read_as_rocketmq_writes_them():
    assert delete_hours("04") == {4}
    assert delete_hours("0;4;23") == {0, 4, 23}


# ---- the clock ----------------------------------------------------------------------------


class Clocks:
    """A guard and the two clocks it compares."""

    def __init__(self, *, idle_h=0.0):
        self.wall_ms = NOW
        self.elapsed_s = 1000.0
        self.guard = ClockGuard(NOW - int(idle_h * HOUR_MS), 72 * HOUR_MS)

    def look(self, *, passed_s=10.0, jumped_h=0.0):
        self.elapsed_s += passed_s
        self.wall_ms += int(passed_s * 1000 + jumped_h * HOUR_MS)
        return self.guard.check(self.wall_ms, self.elapsed_s)


def test_a_clock_that_goes_on_is_believed():
    clocks = Clocks()
    assert clocks.look() == ""
    assert clocks.look(passed_s=100 * 3600) == ""
    assert clocks.look(jumped_h=0.9) == ""
    assert clocks.look(jumped_h=0.9) == ""
    assert clocks.look(jumped_h=-50) == ""


def test_a_jump_of_more_than_an_hour_is_not_believed_for_a_day():
    clocks = Clocks()
    clocks.look()
    assert "jumped 30.0 h ahead" in clocks.look(jumped_h=30)
    assert clocks.look(passed_s=CLOCK_DOUBT_S - 1)
    assert clocks.look(passed_s=2) == ""
    assert clocks.look() == ""
    assert clocks.look(jumped_h=2)


def test_a_clock_that_is_set_back_is_believed_at_once():
    clocks = Clocks()
    clocks.look()
    assert clocks.look(jumped_h=1000)
    assert clocks.look(jumped_h=-1000) == ""
    assert clocks.look(jumped_h=1000)


def test_jumps_again_and_again_do_not_keep_everything_for_ever():
    clocks = Clocks()
    clocks.look()
    days = [clocks.look(passed_s=12 * 3600, jumped_h=12) for _ in range(6)]
    assert "" in days
    assert days[0]


def test_a_store_whose_newest_message_is_expired_at_the_start_keeps_it_for_an_hour():
    clocks = Clocks(idle_h=73)
    assert "even the newest message" in clocks.look()
    assert clocks.look(passed_s=START_DOUBT_S - 11)
    assert clocks.look(passed_s=11) == ""


def test_a_store_that_was_down_for_less_is_not_doubted():
    assert Clocks(idle_h=71).look() == ""


def test_a_store_whose_newest_message_is_to_come_keeps_everything_for_a_day():
    clocks = Clocks(idle_h=-10 * 365 * 24)
    assert "87600.0 h younger" in clocks.look(passed_s=0)
    assert clocks.look(jumped_h=-50)
    assert clocks.look(passed_s=CLOCK_DOUBT_S - 11)
    assert clocks.look(passed_s=2) == ""
    assert Clocks(idle_h=-0.9).look() == ""


def test_a_clock_set_back_in_the_first_hour_is_believed():
    clocks = Clocks(idle_h=1000)
    assert clocks.look()
    assert clocks.look(jumped_h=-990) == ""
