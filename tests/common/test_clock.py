"""Clocks."""

from __future__ import annotations

from trocket.common.clock import ManualClock, SystemClock


def test_the_machines_clock_goes_on_and_names_a_local_time():
    clock = SystemClock()
    first, second = clock.wall_ms(), clock.wall_ms()
    assert 1_600_000_000_000 < first <= second
    assert clock.monotonic_s() <= clock.monotonic_s()
    assert clock.elapsed_s() <= clock.elapsed_s()
    name = clock.local_time_name(1_700_000_000_123)
    assert len(name) == 17
    assert name.endswith("20123")


def test_a_manual_clock_moves_when_it_is_set():
    clock = ManualClock(1_700_000_000_000)
    assert clock.local_time_name(clock.wall_ms()) == "20231114221320000"
    clock.advance(1500)
    assert (clock.wall_ms(), clock.monotonic_s()) == (1_700_000_001_500, 1_700_000_001.5)


def test_a_manual_clock_that_is_set_does_not_let_time_pass():
    clock = ManualClock(1_700_000_000_000)
    clock.jump(5000)
    assert clock.wall_ms() == 1_700_000_005_000
    assert clock.monotonic_s() == clock.elapsed_s() == 1_700_000_000.0


def test_any_moment_has_a_name_of_17_digits():
    for clock in (SystemClock(), ManualClock()):
        for moment in (-(1 << 63), -1, 0, 1 << 50, (1 << 63) - 1):
            name = clock.local_time_name(moment)
            assert len(name) == 17
            assert name.isdigit()
