"""client/core/send_buffer.py: how much `send_soon` has under way, and what `drain` reports."""

from __future__ import annotations

import pytest

from trocket.client.core.send_buffer import FAILED_MAX, DeliveryState, UnconfirmedSends
from trocket.client.errors import ClosedError, MessageRefusedError, UndeliveredError
from trocket.client.messages.message import Message

MESSAGE = Message("T", "body")
ERROR = ClosedError("closed")


def fail(unconfirmed: UnconfirmedSends, error: Exception = ERROR) -> DeliveryState:
    delivery: DeliveryState = DeliveryState(MESSAGE)
    unconfirmed.enter(0)
    unconfirmed.leave(delivery, 0, None, error)
    return delivery


def test_it_is_bounded_in_messages_and_in_bytes():
    unconfirmed = UnconfirmedSends(2, 100)
    unconfirmed.enter(60)
    assert unconfirmed.has_room(40)
    assert not unconfirmed.has_room(41)
    assert not unconfirmed.has_room(0, count=2)
    unconfirmed.enter(10)
    assert not unconfirmed.has_room(0)
    unconfirmed.leave(DeliveryState(MESSAGE), 60, None, ERROR)
    assert unconfirmed.has_room(90)
    assert (unconfirmed.count, unconfirmed.size) == (1, 10)


def test_one_message_alone_may_be_larger_than_all_the_room():
    assert UnconfirmedSends(2, 100).has_room(1000)


def test_each_failure_is_reported_once():
    unconfirmed = UnconfirmedSends(2, 100)
    fail(unconfirmed)
    fail(unconfirmed)
    with pytest.raises(UndeliveredError, match="2 messages were not delivered"):
        unconfirmed.raise_failures()
    unconfirmed.raise_failures()


def test_what_the_program_looked_at_is_not_reported():
    unconfirmed = UnconfirmedSends(2, 100)
    assert fail(unconfirmed).error is ERROR
    fail(unconfirmed).look_at()
    unconfirmed.raise_failures()


def test_an_error_of_a_serializer_is_reported_as_an_error_of_the_client():
    unconfirmed = UnconfirmedSends(2, 100)
    fail(unconfirmed, ValueError("not 13"))
    with pytest.raises(UndeliveredError, match="could not be prepared: ValueError"):
        unconfirmed.raise_failures()


def test_failures_are_bounded_and_those_that_are_dropped_are_logged(caplog):
    unconfirmed = UnconfirmedSends(2, 100)
    fail(unconfirmed, MessageRefusedError("the first"))
    for _ in range(FAILED_MAX):
        fail(unconfirmed)
    assert caplog.messages == [
        "a message was not delivered, and the program did not look at its Delivery: the first"
    ]
    with pytest.raises(UndeliveredError, match=f"{FAILED_MAX} messages"):
        unconfirmed.raise_failures()
