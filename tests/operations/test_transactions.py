"""Half messages: which are open, when they are checked, who can answer, and which were given up."""

from __future__ import annotations

from collections.abc import Iterator

import anyio
import pytest

from trocket.client import (
    Admin,
    Message,
    Producer,
    ReceivedMessage,
    TransactionProducer,
    TransactionState,
)
from trocket.operations.transactions import (
    READ_MAX,
    Answerer,
    given_up_at,
    next_check_ms,
    settings_of,
    transactions,
)
from trocket.remoting.request_codes import RequestCode
from trocket.testing import Broker

CHECK_MAX = 2
REQUESTS_MAX = 39
"""To a broker when a page is opened, beside one for the cluster."""
CONFIG = {
    "transactionTimeOut": 6_000,
    "transactionCheckInterval": 60_000,
    "transactionCheckMax": CHECK_MAX,
}


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(config=CONFIG) as running:
        running.create_topic("orders", queues=1)
        yield running


def undecided(message: ReceivedMessage) -> TransactionState:
    return TransactionState.UNKNOWN


async def leave_open(producer: TransactionProducer, body: str, **given: str) -> None:
    """Send a half message whose transaction nothing ends."""
    with pytest.raises(ZeroDivisionError):
        async with producer.transaction(Message("orders", body, **given)):
            raise ZeroDivisionError


async def advance(broker: Broker, seconds: float) -> None:
    await anyio.to_thread.run_sync(lambda: broker.advance(seconds=seconds))


def tried(broker: Broker, scenario) -> None:
    async def run() -> None:
        with anyio.fail_after(30):
            async with Admin(broker.url) as admin:
                await scenario(admin)

    anyio.run(run)


def test_a_cluster_without_transactions_has_none(broker: Broker) -> None:
    async def scenario(admin: Admin) -> None:
        found = await transactions(admin)
        assert (found.open, found.given_up, found.error, found.is_late) == ((), (), "", False)
        (here,) = found.brokers
        assert (here.records, here.open, here.given_up, here.left_out) == (0, 0, 0, 0)
        assert (here.check_max, here.time_out_ms) == (CHECK_MAX, 6_000)

    tried(broker, scenario)


def test_what_is_open_and_who_can_answer(broker: Broker) -> None:
    async def scenario(admin: Admin) -> None:
        async with TransactionProducer(admin.client, group="shop", check=undecided) as producer:
            async with producer.transaction(Message("orders", "committed")):
                pass
            await leave_open(producer, "open", tags="paid", keys="k1")
            (half,) = (await transactions(admin)).open
            assert (half.topic, half.tag, half.keys) == ("orders", "paid", ("k1",))
            assert (half.producer_group, half.checks) == ("shop", 0)
            assert half.sender.startswith("127.0.0.1:")
            assert half.next_check_ms == half.stored_ms + 6_000
            assert half.answerer == Answerer.CONNECTED.name
            assert half.clients
            await advance(broker, 7)
            (half,) = (await transactions(admin)).open
            assert half.checks == 1
            assert half.next_check_ms == half.stored_ms + 60_000
        found = await transactions(admin)
        (half,) = found.open
        assert (half.answerer, half.clients) == (Answerer.NOT_CONNECTED.name, ())
        (here,) = found.brokers
        assert here.knows_ends
        assert (here.records, here.open) == (3, 1)
        async with Producer(admin.client, group="store") as other:
            await other.send(Message("orders", "x"))
            (half,) = (await transactions(admin)).open
            assert (half.answerer, half.other_groups) == (Answerer.OTHER_GROUP.name, ("store",))

    tried(broker, scenario)


@pytest.mark.parametrize(("now", "expected"), [(0, 10), (10, 10), (11, 70), (70, 70), (131, 190)])
def test_a_check_that_no_producer_can_answer_is_put_off(now: int, expected: int) -> None:
    assert next_check_ms(10, 60, now) == expected


def test_what_was_given_up_is_checked_again(broker: Broker) -> None:
    asked: list[bytes] = []

    def check(message: ReceivedMessage) -> TransactionState:
        asked.append(message.body)
        return TransactionState.UNKNOWN if len(asked) <= CHECK_MAX else TransactionState.COMMIT

    async def scenario(admin: Admin) -> None:
        async with TransactionProducer(admin.client, group="shop", check=check) as producer:
            await leave_open(producer, "late")
            for _ in range(CHECK_MAX + 1):
                await advance(broker, 61)
            found = await transactions(admin)
            assert found.open == ()
            (half,) = found.given_up
            assert (half.checks, half.next_check_ms) == (CHECK_MAX, None)
            assert not half.is_open_again
            assert await given_up_at(admin, "broker-a", 7) is None
            parked = await given_up_at(admin, "broker-a", 0)
            assert parked is not None
            await admin.resume_check(parked)
            found = await transactions(admin)
            assert [each.message_id for each in found.open] == [half.message_id]
            assert found.open[0].checks == 0
            assert [each.is_open_again for each in found.given_up] == [True]
            await advance(broker, 7)
            while not await anyio.to_thread.run_sync(lambda: broker.messages("orders")):
                await anyio.lowlevel.checkpoint()
            assert (await transactions(admin)).open == ()

    tried(broker, scenario)
    assert [each.body for each in broker.messages("orders")] == [b"late"]


def test_many_transactions_need_few_requests(broker: Broker) -> None:
    count = READ_MAX + 40

    async def scenario(admin: Admin) -> None:
        async with TransactionProducer(admin.client, group="shop", check=undecided) as producer:
            for number in range(count):
                async with producer.transaction(Message("orders", f"ended {number}")):
                    pass
            for number in range(count):
                await leave_open(producer, f"open {number}")
            codes = [code for code in RequestCode if code != RequestCode.HEART_BEAT]
            faults = [broker.faults.delay(code, seconds=0, times=None) for code in codes]
            found = await transactions(admin)
            assert sum(fault.hits for fault in faults) <= REQUESTS_MAX
            (here,) = found.brokers
            assert len(found.open) == here.open == READ_MAX
            assert here.left_out >= count - READ_MAX
            assert {each.answerer for each in found.open} == {Answerer.CONNECTED.name}

    tried(broker, scenario)


@pytest.mark.parametrize("text", ["", "x", "-1", "9" * 40])
def test_settings_that_are_no_numbers_are_rocketmqs(text: str) -> None:
    keys = ("transactionTimeOut", "transactionCheckMax", "transactionCheckInterval")
    assert settings_of(dict.fromkeys(keys, text)) == (6_000, 15, 60_000)
