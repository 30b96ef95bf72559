"""Invisible times that are lengthened for clients: pure, and with a broker."""

from __future__ import annotations

from collections.abc import Callable

import trio
import trio.testing

from trocket.grpc_server.handle import Handle
from trocket.grpc_server.renewals import (
    AHEAD_MS,
    CLEARED_MS,
    LONGEST_MS,
    MESSAGES_MAX,
    STEPS_MS,
    TRIES_MAX,
    MessageKey,
    Renewals,
    Renewed,
)
from trocket.remoting.bodies import TopicConfig
from trocket.remoting.receipt import Receipt, TopicForm

from ..kit import embedded_broker
from .caller import message, receive_fields
from .wire import Wire, as_client, parsed, wired

Answer = Callable[[Handle | None], None]

KEY = MessageKey("G", "01AB", "first")


def handle(pop_ms: int, invisible_ms: int = 60_000) -> Handle:
    return Handle(Receipt(0, pop_ms, invisible_ms, 0, TopicForm.NORMAL, "b", 0, 0), 0)


class Broker:
    """Answers changes, or keeps them."""

    def __init__(self, *, is_silent: bool = False, refuses: bool = False) -> None:
        self.changes: list[int] = []
        self.is_silent = is_silent
        self.refuses = refuses
        self.now_ms = 0

    def change(self, old: Handle, invisible_ms: int, then: Answer) -> None:
        self.changes.append(invisible_ms)
        if not self.is_silent:
            then(None if self.refuses else handle(self.now_ms, invisible_ms))


def test_a_message_is_renewed_in_steps_until_it_takes_too_long() -> None:
    broker, renewals = Broker(), Renewals()
    renewals.add(KEY, Renewed(handle(0), 0, broker.change))
    while len(renewals):
        renewals.renew(broker.now_ms)
        broker.now_ms += 5_000
        assert broker.now_ms < 2 * LONGEST_MS
    assert broker.changes[: len(STEPS_MS)] == list(STEPS_MS)
    assert broker.now_ms >= LONGEST_MS


def test_it_is_not_renewed_early_nor_twice_at_a_time() -> None:
    broker, renewals = Broker(is_silent=True), Renewals()
    renewals.add(KEY, Renewed(handle(0), 0, broker.change))
    renewals.renew(60_000 - AHEAD_MS)
    assert broker.changes == []
    for _ in range(3):
        renewals.renew(60_000 - AHEAD_MS + 1)
    assert len(broker.changes) == 1


def test_one_that_is_refused_is_tried_some_times() -> None:
    broker, renewals = Broker(refuses=True), Renewals()
    renewals.add(KEY, Renewed(handle(0), 0, broker.change))
    for _ in range(10):
        renewals.renew(55_000)
    assert len(broker.changes) == TRIES_MAX
    assert len(renewals) == 0


def test_what_a_client_does_is_done_with_the_newest_handle() -> None:
    broker, renewals = Broker(), Renewals()
    renewals.add(KEY, Renewed(handle(0), 0, broker.change))
    broker.now_ms = 55_000
    renewals.renew(broker.now_ms)
    newest = renewals.newest(KEY)
    assert newest is not None
    assert newest.receipt.pop_time == 55_000
    assert renewals.remove(KEY) is newest
    assert renewals.remove(KEY) is None
    assert renewals.newest(KEY) is None


def test_the_messages_of_a_client_that_is_gone_are_given_back() -> None:
    broker, renewals = Broker(), Renewals()
    for number in range(3):
        renewals.add(KEY._replace(message_id=str(number)), Renewed(handle(0), 0, broker.change))
    renewals.clear()
    assert broker.changes == [CLEARED_MS] * 3
    assert len(renewals) == 0


def test_the_number_of_messages_is_limited() -> None:
    renewals, one = Renewals(), Renewed(handle(0), 0, Broker().change)
    for number in range(MESSAGES_MAX + 10):
        renewals.add(KEY._replace(message_id=str(number)), one)
    assert len(renewals) == MESSAGES_MAX


async def received(wire: Wire, client_id: str = "me@1") -> list[bytes]:
    """The bodies of a receive with renewal."""
    fields = receive_fields("T", "G", auto_renew=True)
    answer = wire.begin("ReceiveMessage", headers=as_client("ReceiveMessage", client_id), **fields)
    await wire.flush()
    await trio.sleep(6)
    return [each.message.body for each in parsed("ReceiveMessage", answer)[1:-1]]


async def test_a_message_stays_its_consumers_as_long_as_that_is_there(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with embedded_broker() as broker:
        broker.controller.topics.update([TopicConfig(topic_name="T", read_queue_nums=1)])
        async with wired(broker) as other:
            assert await received(other, "other@1") == []
            async with wired(broker, address="127.0.0.1:40001") as wire:
                await wire.call("SendMessage", messages=[message("T", b"long")])
                assert await received(wire) == [b"long"]
                for _ in range(60):
                    await trio.sleep(10)
                    # As a client's heartbeats keep its connection.
                    await wire.call("QueryRoute", topic={"name": "T"})
                    headers = as_client("QueryRoute", "other@1")
                    await other.call("QueryRoute", headers=headers, topic={"name": "T"})
                assert await received(other, "other@1") == []
            assert await received(other, "other@1") == [b"long"]
