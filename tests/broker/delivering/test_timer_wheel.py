"""The timer wheel: what its slots cost, and what becomes of those that are done."""

from __future__ import annotations

from collections.abc import Callable

from trocket.broker.delivering.timer_wheel import TimerWheel

SECOND_MS = 1000
DAY_MS = 86_400_000


def test_a_slot_of_one_message_is_small(traced: Callable[[], int]) -> None:
    """A stranger may have a timer in each second of three days: that was 190 MB."""
    wheel, before, count = TimerWheel(), traced(), 10_000
    for number in range(count):
        wheel.add(number * SECOND_MS, number)
    assert (traced() - before) / count < 450


def test_messages_of_one_slot_take_some_bytes_each(traced: Callable[[], int]) -> None:
    wheel, before, count = TimerWheel(), traced(), 10_000
    for number in range(count):
        wheel.add(0, number)
    assert (traced() - before) / count < 12


def test_slots_that_are_done_are_forgotten_though_an_older_message_waits(
    traced: Callable[[], int],
) -> None:
    """One message that is due in three days kept all slots that were done since."""
    wheel = TimerWheel()
    wheel.add(3 * DAY_MS, 0)
    before = traced()
    for number in range(1, 10_000):
        wheel.add(number * SECOND_MS, number)
        wheel.took(1)
    assert traced() - before < 100_000
    assert wheel.waiting_offset(10_000) == 0
    wheel.took(1)
    assert wheel.waiting_offset(10_000) == 10_000


def test_the_oldest_that_waits_is_found_in_any_order() -> None:
    wheel = TimerWheel()
    for offset, moment_ms in ((3, 5000), (4, 1000), (5, 5000), (6, 1000), (7, 3000)):
        wheel.add(moment_ms, offset)
    assert wheel.waiting_offset(8) == 3
    wheel.took(2)  # 4 and 6
    assert wheel.waiting_offset(8) == 3
    wheel.took(1)  # 7
    wheel.add(9000, 8)
    wheel.took(2)  # 3 and 5
    assert wheel.waiting_offset(9) == 8
    assert len(wheel) == 1


def test_long_names_of_messages_taken_back_take_no_more_than_short_ones(
    traced: Callable[[], int],
) -> None:
    """A client says how long the key is of what it takes back; 30 KB each were kept."""
    slot, before, count = TimerWheel().slot(0), traced(), 1000
    for number in range(count):
        slot.recall(f"Orders+{number:030000d}")
    assert (traced() - before) / count < 250
    assert slot.is_recalled(f"Orders+{7:030000d}")
    assert not slot.is_recalled("Orders+7")
    assert not slot.is_rolled(f"Orders+{7:030000d}")
