"""client/core/in_flight.py: how much `send_soon` has under way, and what `drain` reports."""

from __future__ import annotations

import pytest

from trocket.client.core.in_flight import FAILED_MAX, DeliveryState, InFlight
from trocket.client.errors import ClosedError, MessageRefusedError, UndeliveredError
from trocket.client.messages.message import Message

MESSAGE = Message("T", "body")
ERROR = ClosedError("closed")


def fail(in_flight: InFlight, error: Exception = ERROR) -> DeliveryState:
    delivery: DeliveryState = DeliveryState(MESSAGE)
    in_flight.enter(0)
    in_flight.leave(delivery, 0, None, error)
    return delivery


def test_it_is_bounded_in_messages_and_in_bytes():
    in_flight = InFlight(2, 100)
    in_flight.enter(60)
    assert in_flight.has_room(40)
    assert not in_flight.has_room(41)
    assert not in_flight.has_room(0, count=2)
    in_flight.enter(10)
    assert not in_flight.has_room(0)
    in_flight.leave(DeliveryState(MESSAGE), 60, None, ERROR)
    assert in_flight.has_room(90)
    assert (in_flight.count, in_flight.size) == (1, 10)


def test_one_message_alone_may_be_larger_than_all_the_room():
    assert InFlight(2, 100).has_room(1000)


def test_each_failure_is_reported_once():
    in_flight = InFlight(2, 100)
    fail(in_flight)
    fail(in_flight)
    with pytest.raises(UndeliveredError, match="2 messages were not delivered"):
        in_flight.raise_failures()
    in_flight.raise_failures()


def test_what_the_program_looked_at_is_not_reported():
    in_flight = InFlight(2, 100)
    assert fail(in_flight).error is ERROR
    fail(in_flight).look_at()
    in_flight.raise_failures()


def test_an_error_of_a_serializer_is_reported_as_an_error_of_the_client():
    in_flight = InFlight(2, 100)
    fail(in_flight, ValueError("not 13"))
    with pytest.raises(UndeliveredError, match="could not be prepared: ValueError"):
        in_flight.raise_failures()


def test_failures_are_bounded_and_those_that_are_dropped_are_logged(caplog):
    in_flight = InFlight(2, 100)
    fail(in_flight, MessageRefusedError("the first"))
    for _ in range(FAILED_MAX):
        fail(in_flight)
    assert caplog.messages == [
        "a message was not delivered, and the program did not look at its Delivery: the first"
    ]
    with pytest.raises(UndeliveredError, match=f"{FAILED_MAX} messages"):
        in_flight.raise_failures()
