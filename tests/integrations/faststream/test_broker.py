"""Publishing, consuming, settling and requests, over a broker in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from trocket import ConfigurationError, Message, MessageRefusedError
from trocket.blocking import Admin, Producer
from trocket.client import ReceivedMessage
from trocket.testing import Broker

faststream = pytest.importorskip("faststream", reason="needs the extra `faststream`")

from faststream import AckPolicy  # noqa: E402
from faststream.exceptions import NackMessage, StopConsume  # noqa: E402

from trocket.integrations.faststream import RocketResponse, RocketRouter  # noqa: E402
from trocket.integrations.faststream.annotations import RocketMessage  # noqa: E402

Made = Callable[..., Any]
DEADLINE_S = 60.0


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a test in a new loop, with a deadline."""
    asyncio.run(asyncio.wait_for(test(), DEADLINE_S))


async def until(is_true: Callable[[], bool]) -> None:
    while not is_true():  # noqa: ASYNC110 (what handlers have seen is no event)
        await asyncio.sleep(0.05)


def dead_letters(broker: Broker, group: str) -> list[ReceivedMessage]:
    with Admin(broker.url) as admin:
        return list(admin.dead_letters(group))


def unsettled(broker: Broker, group: str) -> list[str]:
    """Receipts of messages that the group has received and not settled."""
    with Admin(broker.url) as admin:
        return [each.receipt for each in admin.popped(group).messages]


def test_a_message_arrives_with_all_its_fields_and_is_acknowledged(
    made: Made, topic: str, broker: Broker
) -> None:
    got: list[Any] = []

    async def test() -> None:
        rocket = made()

        @rocket.subscriber(topic, group=f"{topic}-g", selector="paid || sent", wait_s=0.1)
        async def handle(order: dict[str, int], message: RocketMessage) -> None:
            got.append((order, message.tag, message.keys, message.headers, message.correlation_id))

        async with rocket:
            await rocket.start()
            await rocket.publish({"n": 1}, topic, tag="new")
            options = {"tag": "paid", "keys": ["k1", "k2"], "correlation_id": "c7"}
            result = await rocket.publish({"n": 2}, topic, headers={"shop": 5, "no": ""}, **options)
            assert result.message_id
            await rocket.publish({"n": 3}, topic, tag="sent", sharding_key="a")
            await until(lambda: len(got) >= 2)

    run(test)
    # Queues are popped in any order.
    first = next(each for each in got if each[0] == {"n": 2})
    headers = {"content-type": "application/json", "correlation_id": "c7", "shop": "5"}
    assert first[1:] == ("paid", ("k1", "k2"), headers, "c7")
    assert sorted(each[0]["n"] for each in got) == [2, 3]
    assert unsettled(broker, f"{topic}-g") == []


def test_what_was_published_before_the_group_is_not_lost(
    made: Made, topic: str, broker: Broker
) -> None:
    # By another program, without headers.
    with Producer(broker.url) as producer:
        for body in (b"one", b"two"):
            producer.send(Message(topic, body, sharding_key="of one queue"))
    got: list[Any] = []

    async def test() -> None:
        rocket = made()

        @rocket.subscriber(topic, wait_s=0.1)
        async def handle(body: bytes) -> None:
            got.append(body)

        async with rocket:
            await rocket.start()
            await until(lambda: len(got) >= 2)

    run(test)
    assert got == [b"one", b"two"]


def test_an_empty_body_arrives_empty(made: Made, topic: str) -> None:
    got: list[Any] = []

    async def test() -> None:
        rocket = made()
        done = asyncio.Event()

        @rocket.subscriber(topic, wait_s=0.1)
        async def handle(message: RocketMessage) -> None:
            got.append((message.body, "empty-body" in message.headers))
            done.set()

        async with rocket:
            await rocket.start()
            await rocket.publish(None, topic)
            await done.wait()

    run(test)
    assert got == [(b"", False)]


@pytest.mark.parametrize(
    ("policy", "attempts", "dead"),
    [
        (AckPolicy.NACK_ON_ERROR, 2, 0),
        (AckPolicy.REJECT_ON_ERROR, 1, 1),
        (AckPolicy.ACK, 1, 0),
        (AckPolicy.ACK_FIRST, 1, 0),
    ],
)
def test_policies_settle_a_message_whose_handler_fails(
    made: Made, topic: str, broker: Broker, policy: AckPolicy, attempts: int, dead: int
) -> None:
    got: list[int] = []

    async def test() -> None:
        rocket = made()
        last = asyncio.Event()

        @rocket.subscriber(topic, ack_policy=policy, nack_delay_s=0, wait_s=0.1)
        async def handle(number: int, message: RocketMessage) -> None:
            if number == 2:
                last.set()
                return
            got.append(message.delivery_attempt)
            if message.delivery_attempt == 1:
                raise ValueError("the first attempt fails")

        async with rocket:
            await rocket.start()
            await rocket.publish(1, topic)
            await until(lambda: len(got) >= attempts)
            await rocket.publish(2, topic)
            await last.wait()

    run(test)
    assert got == list(range(1, attempts + 1))
    if attempts == 1:  # the broker keeps its record of a message that it has delivered again
        assert unsettled(broker, topic) == []
    assert [each.body for each in dead_letters(broker, topic)] == [b"1"] * dead


def test_a_message_that_always_fails_becomes_a_dead_letter(
    made: Made, topic: str, broker: Broker
) -> None:
    got: list[int] = []

    async def test() -> None:
        rocket = made()

        @rocket.subscriber(topic, max_retries=1, nack_delay_s=60, wait_s=0.1)
        async def handle(number: int, message: RocketMessage) -> None:
            got.append(message.delivery_attempt)
            raise NackMessage(delay_s=0)

        async with rocket:
            await rocket.start()
            await rocket.publish(1, topic)
            await until(lambda: len(got) >= 2)

    run(test)
    assert got == [1, 2]
    assert [each.body for each in dead_letters(broker, topic)] == [b"1"]


@pytest.mark.slow
def test_what_a_manual_handler_leaves_comes_again_and_is_renewed_meanwhile(
    made: Made, topic: str
) -> None:
    got: list[int] = []

    async def test() -> None:
        rocket = made()
        done = asyncio.Event()

        @rocket.subscriber(topic, ack_policy=AckPolicy.MANUAL, invisible_s=1, wait_s=0.1)
        async def handle(number: int, message: RocketMessage) -> None:
            got.append(message.delivery_attempt)
            if message.delivery_attempt == 1:
                popped = message.raw_message.message
                first_ms = popped.invisible_until_ms
                await until(lambda: popped.invisible_until_ms > first_ms)
                got.append(0)
                return
            await message.ack()
            done.set()

        async with rocket:
            await rocket.start()
            await rocket.publish(1, topic)
            await done.wait()

    run(test)
    assert got == [1, 0, 2]


def test_workers_handle_several_messages_at_once(made: Made, topic: str) -> None:
    async def test() -> None:
        rocket = made()
        together = asyncio.Barrier(3)
        done = 0

        @rocket.subscriber(topic, max_workers=3, wait_s=0.1)
        async def handle(number: int) -> None:
            nonlocal done
            await together.wait()
            done += 1

        async with rocket:
            await rocket.start()
            for number in range(6):
                await rocket.publish(number, topic)
            await until(lambda: done == 6)

    run(test)


def test_a_message_of_a_handler_that_is_cancelled_comes_to_others_soon(
    made: Made, topic: str
) -> None:
    got: list[int] = []

    async def test() -> None:
        begun, done = asyncio.Event(), asyncio.Event()
        first, second = made(graceful_timeout=0.1), made()

        @first.subscriber(topic, wait_s=0.1)
        async def hang(number: int) -> None:
            begun.set()
            await asyncio.Event().wait()

        @second.subscriber(topic, wait_s=0.1)
        async def handle(number: int) -> None:
            got.append(number)
            done.set()

        async with first:
            await first.start()
            await first.publish(1, topic)
            await begun.wait()
        async with second:
            await second.start()
            # Not after the 60 s for which it would be invisible otherwise.
            await asyncio.wait_for(done.wait(), DEADLINE_S / 2)

    run(test)
    assert got == [1]


def test_a_handler_may_stop_its_subscriber(made: Made, topic: str) -> None:
    got: list[int] = []

    async def test() -> None:
        rocket = made()

        @rocket.subscriber(topic, wait_s=0.1)
        async def handle(number: int) -> None:
            got.append(number)
            raise StopConsume

        subscriber = rocket.subscribers[0]
        async with rocket:
            await rocket.start()
            await rocket.publish(1, topic)
            await until(lambda: bool(got) and not subscriber.running)
            await rocket.publish(2, topic)

    run(test)
    assert got == [1]


def test_a_request_gets_the_answer_of_its_handler(made: Made, topic: str, broker: Broker) -> None:
    async def test() -> None:
        rocket = made()

        @rocket.subscriber(topic, wait_s=0.1)
        async def double(number: int) -> RocketResponse:
            return RocketResponse(number * 2, headers={"by": "double"})

        async with rocket:
            await rocket.start()
            reply = await rocket.request(4, topic, correlation_id="c1", timeout=DEADLINE_S)
            assert (await reply.decode(), reply.correlation_id) == (8, "c1")
            assert reply.headers["by"] == "double"
            with pytest.raises(TimeoutError, match="no reply"):
                await rocket.request(1, f"{topic}-nowhere", timeout=0.5)

    run(test)


def test_other_clients_ask_a_handler(made: Made, topic: str, broker: Broker) -> None:
    def ask() -> bytes:
        with Producer(broker.url) as producer:
            return producer.request(Message(topic, b"5"), timeout_s=DEADLINE_S).body

    async def test() -> None:
        rocket = made()

        @rocket.subscriber(topic, wait_s=0.1)
        async def double(number: int) -> int:
            return number * 2

        async with rocket:
            await rocket.start()
            assert await asyncio.to_thread(ask) == b"10"

    run(test)


def test_an_answer_goes_to_publishers_and_reply_to(made: Made, topic: str) -> None:
    got: list[tuple[str, Any, str | None, str]] = []

    async def test() -> None:
        rocket = made()
        router = RocketRouter(prefix=f"{topic}-")

        @router.subscriber("in", wait_s=0.1)
        @router.publisher("out", tag="made", headers={"a": "b"})
        async def handle(number: int) -> int:
            return number + 1

        @router.subscriber("out", wait_s=0.1)
        async def out(number: int, message: RocketMessage) -> None:
            got.append(("out", number, message.tag, message.headers["a"]))

        @router.subscriber("reply", wait_s=0.1)
        async def reply(number: int, message: RocketMessage) -> None:
            got.append(("reply", number, message.tag, message.correlation_id))

        rocket.include_router(router)
        async with rocket:
            await rocket.start()
            options = {"reply_to": f"{topic}-reply", "correlation_id": "c2"}
            await rocket.publish(1, f"{topic}-in", **options)
            await until(lambda: len(got) >= 2)

    run(test)
    assert sorted(got) == [("out", 2, "made", "b"), ("reply", 2, None, "c2")]


def test_a_program_without_a_handler_asks_for_messages(made: Made, topic: str) -> None:
    async def test() -> None:
        rocket = made()
        subscriber = rocket.subscriber(topic, wait_s=0.1)
        async with rocket:
            await rocket.start()
            assert await subscriber.get_one(timeout=0.1) is None
            await rocket.publish("one", topic)
            message = await subscriber.get_one(timeout=DEADLINE_S)
            assert await message.decode() == "one"
            await message.ack()
            await rocket.publish("two", topic)
            async for message in subscriber:
                assert await message.decode() == "two"
                await message.ack()
                break

    run(test)


def test_ping_says_whether_a_name_server_answers(made: Made, broker: Broker) -> None:
    async def test() -> None:
        rocket = made()
        assert not await rocket.ping(1)
        async with rocket:
            assert await rocket.ping(DEADLINE_S)
        assert not await rocket.ping(1)
        # It may be connected again.
        async with rocket:
            assert await rocket.ping(DEADLINE_S)

    run(test)


def test_mistakes_are_refused_with_the_reason(made: Made, topic: str) -> None:
    with pytest.raises(ConfigurationError, match="max_workers from 1 on"):
        made().subscriber(topic, max_workers=0)

    async def test() -> None:
        rocket = made()
        async with rocket:
            with pytest.raises(MessageRefusedError, match="reserved"):
                await rocket.publish(1, topic, headers={"KEYS": "x"})
        with pytest.raises(faststream.exceptions.IncorrectState, match="not connected"):
            await rocket.publish(1, topic)
        for _ in range(2):

            @rocket.subscriber(topic, wait_s=0.1)
            async def handle(number: int) -> None: ...

        with pytest.raises(ConfigurationError, match=topic):
            await rocket.start()
        await rocket.stop()

    run(test)
