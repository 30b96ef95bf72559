"""The checks of a round trip with popped messages, on made-up records."""

from __future__ import annotations

import pytest

from trocket.interop.pop_round_trip import CHECKS, PART, Delivery, Record, check_complete
from trocket.interop.pop_wire import Popped
from trocket.interop.process import PeerError

OURS, APACHES = "ours after apache's", "apache after ours"
LOST, AGAIN, EARLY = CHECKS


def popped(body: bytes, topic: str = "T") -> Popped:
    return Popped(topic, 0, 0, body, "receipt", 0)


def record(*deliveries: Delivery) -> Record:
    """Two messages that were popped once; the first one was acknowledged."""
    made = Record(
        [Delivery("", popped(b"1"), False, False), Delivery("", popped(b"2"), False, False)],
        {b"1": popped(b"1")},
        ended={OURS: 0, APACHES: 0},
    )
    made.deliveries += deliveries
    return made


@pytest.mark.parametrize("what", CHECKS)
@pytest.mark.parametrize("moment", [OURS, APACHES])
def test_what_is_right_passes(what: str, moment: str) -> None:
    again = Delivery(OURS, popped(b"2", "%RETRY%g_T"), False, False)
    assert CHECKS[what](record(again), moment) == []


def test_what_does_not_come_again_is_found() -> None:
    made = record()
    made.ended[OURS] = 3
    assert CHECKS[LOST](made, OURS) == ["3 messages did not come again"]
    del made.ended[APACHES]
    assert CHECKS[LOST](made, APACHES) == ["this visit did not end"]


@pytest.mark.parametrize("moment", [OURS, APACHES])
def test_what_comes_again_after_its_ack_is_found(moment: str) -> None:
    made = record(Delivery(moment, popped(b"1"), True, False))
    (found,) = CHECKS[AGAIN](made, moment)
    assert "was acknowledged by receipt" in found


def test_what_comes_early_is_found() -> None:
    made = record(Delivery(OURS, popped(b"2"), False, True))
    (found,) = CHECKS[EARLY](made, OURS)
    assert "came while it was invisible" in found


def test_what_ours_revived_may_come_from_apaches_again() -> None:
    revived = Delivery(OURS, popped(b"1", "%RETRY%g_T"), False, False)
    again = Delivery(APACHES, popped(b"1", "%RETRY%g_T"), True, True)
    made = record(revived, again)
    assert CHECKS[AGAIN](made, APACHES) == CHECKS[EARLY](made, APACHES) == []
    assert CHECKS[AGAIN](record(Delivery(OURS, again.popped, True, True)), OURS) != []


def test_too_little_to_test_anything_is_an_error() -> None:
    check_complete([popped(b"1")] * PART)
    for few in ([], [popped(b"1")] * (PART - 1)):
        with pytest.raises(PeerError, match="messages were popped instead of 16"):
            check_complete(few)
