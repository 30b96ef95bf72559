"""The first message of a time is found, whatever a broker guesses."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trocket.spark.time_search import first_new


@given(st.integers(0, 5), st.integers(0, 60), st.integers(0, 60), st.integers(-3, 70))
def test_any_guess_leads_to_the_first_one(low: int, size: int, old_count: int, guess: int) -> None:
    high = low + size
    first = min(low + old_count, high)
    asked = []

    def is_new(offset: int) -> bool:
        assert low <= offset < high
        asked.append(offset)
        return offset >= first

    assert first_new(guess, low, high, is_new) == first
    distance = abs(min(max(guess, low), high) - first)
    assert len(asked) <= 2 + 2 * distance.bit_length()
