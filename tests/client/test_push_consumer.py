"""Push consumers against an embedded broker, in both loops."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest

from trocket import (
    AlreadySettledError,
    ClosedError,
    ConfigurationError,
    ConsumeFromWhere,
    Message,
    MessageModel,
    MessageQueue,
    Producer,
    PushConsumer,
    PushConsumerOptions,
    RebalanceListener,
    RetryLater,
)
from trocket.client import PushedMessage
from trocket.client.connection import route_table
from trocket.client.pushing import push_rebalance, queue_puller
from trocket.remoting.bodies import GetConsumerStatusBody
from trocket.remoting.request_codes import RequestCode
from trocket.remoting.response_codes import ResponseCode
from trocket.testing import Broker

from .conftest import Play
from .support import send

FIRST = PushConsumerOptions(consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two attempts; no test here measures them."""
    monkeypatch.setattr(queue_puller, "PULL_RETRY_S", 0.05)
    monkeypatch.setattr(push_rebalance, "REBALANCE_RETRY_S", 0.05)
    monkeypatch.setattr(route_table, "RETRY_S", 0.05)


async def texts(consumer: PushConsumer, count: int) -> list[str]:
    """So many messages, each acknowledged."""
    found = []
    for _ in range(count):
        message = await consumer.receive()
        found.append(message.text)
        message.ack()
    return found


def test_an_iteration_acknowledges_what_it_went_past(
    play: Play, broker: Broker, topic: str, group: str
) -> None:
    async def scenario() -> None:
        await send(broker.url, topic, *"abc")
        seen = []
        async with PushConsumer(
            broker.url, group=group, subscriptions={topic: "*"}, **FIRST
        ) as consumer:
            async for message in consumer:
                seen.append(message.text)
                assert (message.topic, message.reconsume_times) == (topic, 0)
                if message.text == "c":
                    break
        assert seen == ["a", "b", "c"]
        # The loop broke off at c: it comes again.
        async with PushConsumer(
            broker.url, group=group, subscriptions={topic: "*"}, **FIRST
        ) as consumer:
            assert await texts(consumer, 1) == ["c"]
        assert broker.lag(group, topic) == 0

    play(scenario)


def test_a_message_that_failed_comes_again_and_ends_as_a_dead_letter(
    play: Play, broker: Broker, topic: str, group: str
) -> None:
    async def scenario() -> None:
        await send(broker.url, topic, "poison")
        tries: list[int] = []
        tried = anyio.Event()

        async def fail(message: PushedMessage) -> None:
            tries.append(message.reconsume_times)
            assert message.topic == topic
            tried.set()
            raise ValueError("the handler's own")

        async with (
            PushConsumer(
                broker.url,
                group=group,
                subscriptions={topic: "*"},
                max_reconsume_times=2,
                **FIRST,
            ) as consumer,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(consumer.run, fail)
            while not any(m.body == b"poison" for m in broker.messages(f"%DLQ%{group}")):
                await tried.wait()
                tried = anyio.Event()
                while not tried.is_set() and not broker.messages(f"%DLQ%{group}"):
                    await anyio.to_thread.run_sync(lambda: broker.advance(minutes=1))
            consumer.stop()
        assert tries == [0, 1, 2]
        (letter,) = broker.messages(f"%DLQ%{group}")
        assert letter.properties["RETRY_TOPIC"] == topic

    play(scenario)


@pytest.mark.slow
def test_a_handler_that_does_not_return_is_ended(
    play: Play, broker: Broker, topic: str, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        await send(broker.url, topic, "slow", "next")
        seen = []

        async def handle(message: PushedMessage) -> None:
            seen.append((message.text, message.reconsume_times))
            if message.text == "slow" and len(seen) < 3:
                await anyio.sleep_forever()
            if message.text == "next":
                consumer.stop()

        async with PushConsumer(
            broker.url,
            group=group,
            subscriptions={topic: "*"},
            is_orderly=True,
            consume_timeout_s=0.1,
            suspend_queue_s=0.01,
            **FIRST,
        ) as consumer:
            await consumer.run(handle, concurrency=1)
        assert seen == [("slow", 0), ("slow", 1), ("slow", 2), ("next", 0)]
        assert "did not return in 0.1 s" in caplog.text

    play(scenario)


def test_a_handler_says_when_a_message_comes_again(
    play: Play, broker: Broker, topic: str, group: str
) -> None:
    async def scenario() -> None:
        await send(broker.url, topic, "a")
        again = anyio.Event()
        # Of other tests; the broker is theirs, too.
        waiting = len(broker.messages("SCHEDULE_TOPIC_XXXX"))

        async def handle(message: PushedMessage) -> None:
            if message.reconsume_times == 0:
                again.set()
                raise RetryLater(18)
            consumer.stop()

        async with (
            PushConsumer(broker.url, group=group, subscriptions={topic: "*"}, **FIRST) as consumer,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(consumer.run, handle)
            await again.wait()
            while len(broker.messages("SCHEDULE_TOPIC_XXXX")) == waiting:  # noqa: ASYNC110
                await anyio.sleep(0.01)
            await anyio.to_thread.run_sync(lambda: broker.advance(hours=2))

    play(scenario)


@pytest.mark.slow
def test_each_message_can_be_settled_by_itself(
    play: Play, broker: Broker, topic: str, group: str
) -> None:
    async def scenario() -> None:
        await send(broker.url, topic, "a", "b", "c")
        async with PushConsumer(
            broker.url, group=group, subscriptions={topic: "*"}, **FIRST
        ) as consumer:
            messages = consumer.messages(auto_ack=False)
            first = await anext(messages)
            async with first.process():
                assert not first.is_settled
            assert first.is_settled
            second = await anext(messages)
            with pytest.raises(KeyError):
                async with second.process(delay_level=1):
                    raise KeyError("mine")
            third = await anext(messages)
            third.ack()
            with pytest.raises(AlreadySettledError, match="acknowledged already"):
                third.ack()
            with pytest.raises(AlreadySettledError, match="retry of message"):
                await third.retry()
            again = await anext(messages)
            assert (again.text, again.reconsume_times) == ("b", 1)
            assert again.message_id == second.message_id
            again.ack()
            await consumer.commit()
        assert broker.lag(group, topic) == 0

    play(scenario)


def test_offsets_do_not_pass_a_message_that_is_still_out(
    play: Play, broker: Broker, topic: str, group: str
) -> None:
    async def scenario() -> None:
        await send(broker.url, topic, "a", "b", "c")
        async with PushConsumer(
            broker.url, group=group, subscriptions={topic: "*"}, **FIRST
        ) as consumer:
            out = [await consumer.receive() for _ in range(3)]
            out[1].ack()
            out[2].ack()
        async with PushConsumer(
            broker.url, group=group, subscriptions={topic: "*"}, **FIRST
        ) as consumer:
            assert await texts(consumer, 3) == ["a", "b", "c"]

    play(scenario)


def test_an_ordered_queue_waits_for_its_message(play: Play, broker: Broker, group: str) -> None:
    async def scenario() -> None:
        topic = f"{group}_T"
        broker.create_topic(topic, queues=2)
        async with Producer(broker.url) as producer:
            for number in range(10):
                await producer.send(
                    Message(topic, f"{number % 2}/{number}", sharding_key="ab"[number % 2])
                )
        seen: list[str] = []

        async def handle(message: PushedMessage) -> None:
            seen.append(message.text)
            if message.text == "0/4" and message.reconsume_times < 2:
                raise RetryLater
            if len(seen) == 12:
                consumer.stop()

        async with PushConsumer(
            broker.url,
            group=group,
            subscriptions={topic: "*"},
            is_orderly=True,
            suspend_queue_s=0.01,
            **FIRST,
        ) as consumer:
            await consumer.run(handle)
        assert [t for t in seen if t.startswith("0/")] == [
            "0/0", "0/2", "0/4", "0/4", "0/4", "0/6", "0/8",
        ]  # fmt: skip
        assert [t for t in seen if t.startswith("1/")] == ["1/1", "1/3", "1/5", "1/7", "1/9"]

    play(scenario)


def test_members_share_the_queues_and_hear_of_it(play: Play, broker: Broker, group: str) -> None:
    class Hears(RebalanceListener):
        def __init__(self) -> None:
            self.heard: list[tuple[str, int]] = []
            self.change = anyio.Event()

        def _note(self, what: str, queues: Sequence[MessageQueue]) -> None:
            count = sum(not q.topic.startswith("%RETRY%") for q in queues)
            if count:
                self.heard.append((what, count))
                self.change.set()
                self.change = anyio.Event()

        def on_assign(self, queues: Sequence[MessageQueue]) -> None:
            self._note("assign", queues)
            raise RuntimeError("a listener's bug")

        def on_revoke(self, queues: Sequence[MessageQueue]) -> None:
            self._note("revoke", queues)

    async def scenario() -> None:
        topic = f"{group}_T"
        broker.create_topic(topic, queues=4)
        hears = Hears()

        def mine(consumer: PushConsumer) -> int:
            return sum(q.topic == topic for q in consumer.queues)

        async def until(count: int, consumer: PushConsumer) -> None:
            while mine(consumer) != count:
                await hears.change.wait()

        async with PushConsumer(
            broker.url, group=group, subscriptions={topic: "*"}, listener=hears, **FIRST
        ) as first:
            await until(4, first)
            async with PushConsumer(
                broker.url, group=group, subscriptions={topic: "*"}, **FIRST
            ) as second:
                await until(2, first)
                while mine(second) != 2:
                    await second.rebalance()
            await until(4, first)
        assert hears.heard == [("assign", 4), ("revoke", 2), ("assign", 2)]

    play(scenario)


def test_broadcasting_keeps_offsets_in_a_file(
    play: Play, broker: Broker, topic: str, group: str, tmp_path: Path
) -> None:
    async def scenario() -> None:
        path = tmp_path / "offsets" / "mine.json"
        path.unlink(missing_ok=True)
        options = PushConsumerOptions(
            message_model=MessageModel.BROADCASTING, offset_path=path, **FIRST
        )
        await send(broker.url, topic, "a", "b")
        async with PushConsumer(
            broker.url, group=group, subscriptions={topic: "*"}, **options
        ) as consumer:
            assert await texts(consumer, 2) == ["a", "b"]
        assert b'"offsetTable":{{' in path.read_bytes()
        await send(broker.url, topic, "c")
        async with PushConsumer(
            broker.url, group=group, subscriptions={topic: "*"}, **options
        ) as consumer:
            assert await texts(consumer, 1) == ["c"]
        path.write_text("not JSON")
        with pytest.raises(ConfigurationError, match=r"mine\.json"):
            PushConsumer(broker.url, group=group, subscriptions={topic: "*"}, **options)

    play(scenario)


def test_stopping_lets_handlers_finish(play: Play, broker: Broker, topic: str, group: str) -> None:
    async def scenario() -> None:
        await send(broker.url, topic, *map(str, range(10)))
        done: list[str] = []
        began = anyio.Event()
        may_end = anyio.Event()

        async def handle(message: PushedMessage) -> None:
            began.set()
            await may_end.wait()
            done.append(message.text)

        async with (
            PushConsumer(broker.url, group=group, subscriptions={topic: "*"}, **FIRST) as consumer,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(lambda: consumer.run(handle, concurrency=2))
            await began.wait()
            consumer.stop()
            may_end.set()
        assert 1 <= len(done) <= 2
        assert broker.lag(group, topic) == 10 - len(done)
        with pytest.raises(ClosedError):
            await consumer.receive()

    play(scenario)


@pytest.mark.slow
def test_pulling_pauses_while_much_is_out(
    play: Play, broker: Broker, topic: str, group: str
) -> None:
    async def scenario() -> None:
        await send(broker.url, topic, *map(str, range(60)))
        async with PushConsumer(
            broker.url,
            group=group,
            subscriptions={topic: "*"},
            pull_batch_size=4,
            pull_threshold_for_queue=8,
            **FIRST,
        ) as consumer:
            out = [await consumer.receive() for _ in range(8)]
            with anyio.move_on_after(0.2):
                await consumer.receive()
                pytest.fail("more than the threshold was pulled")
            assert consumer.receive_nowait() is None
            for message in out:
                message.ack()
            assert await texts(consumer, 52) == [str(n) for n in range(8, 60)]

    play(scenario)


@pytest.mark.slow
def test_consumption_goes_on_when_the_broker_was_restarted(play: Play, group: str) -> None:
    async def scenario() -> None:
        with Broker() as own:
            own.create_topic("T", queues=1)
            await send(own.url, "T", "a")
            async with PushConsumer(
                own.url, group=group, subscriptions={"T": "*"}, **FIRST
            ) as consumer:
                assert await texts(consumer, 1) == ["a"]
                await consumer.commit()
                await anyio.to_thread.run_sync(own.restart)
                await send(own.url, "T", "b")
                assert await texts(consumer, 1) == ["b"]

    play(scenario)


@pytest.mark.slow
def test_a_pull_that_fails_is_made_again(
    play: Play, broker: Broker, topic: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        await send(broker.url, topic, "a")
        faults = [
            broker.faults.refuse(RequestCode.PULL_MESSAGE, ResponseCode.SYSTEM_ERROR, "no"),
            broker.faults.disconnect(RequestCode.PULL_MESSAGE),
        ]
        async with PushConsumer(
            broker.url, group=group, subscriptions={topic: "*"}, **FIRST
        ) as consumer:
            assert await texts(consumer, 1) == ["a"]
        assert [fault.hits for fault in faults] == [1, 1]

    play(scenario)


def test_a_topic_may_come_later(play: Play, broker: Broker, group: str) -> None:
    async def scenario() -> None:
        topic = f"{group}_later"
        async with PushConsumer(
            broker.url, group=group, subscriptions={topic: "*"}, **FIRST
        ) as consumer:
            broker.create_topic(topic, queues=1)
            await send(broker.url, topic, "a")
            assert await texts(consumer, 1) == ["a"]

    play(scenario)


def test_an_administrator_can_send_a_group_back(
    play: Play, broker: Broker, topic: str, group: str
) -> None:
    async def scenario() -> None:
        await send(broker.url, topic, "a", "b")
        async with PushConsumer(
            broker.url, group=group, subscriptions={topic: "*"}, **FIRST
        ) as consumer:
            assert await texts(consumer, 2) == ["a", "b"]
            await consumer.commit()
            await consumer.client.request(
                broker.broker_address,
                RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
                more={"topic": topic, "group": group, "timestamp": "0", "isForce": "true"},
            )
            assert await texts(consumer, 2) == ["a", "b"]

    play(scenario)


def test_an_administrator_can_look_and_try(
    play: Play, broker: Broker, topic: str, group: str
) -> None:
    async def scenario() -> None:
        await send(broker.url, topic, "a")
        (stored,) = broker.messages(topic)
        tried: list[str] = []

        async def handle(message: PushedMessage) -> None:
            tried.append(message.text)
            if len(tried) == 3:
                raise ValueError("third time")

        async with (
            PushConsumer(broker.url, group=group, subscriptions={topic: "*"}, **FIRST) as consumer,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(consumer.run, handle)
            while not tried:  # noqa: ASYNC110 - the handler's
                await anyio.sleep(0.01)
            ask = {"consumerGroup": group, "clientId": consumer.client.client_id}
            answer = await consumer.client.request(
                broker.broker_address, RequestCode.GET_CONSUMER_RUNNING_INFO, more=ask
            )
            text = answer.body.decode()
            assert '"PROP_CONSUME_TYPE":"CONSUME_PASSIVELY"' in text
            assert f'"topic":"{topic}"' in text
            answer = await consumer.client.request(
                broker.broker_address,
                RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
                more={"topic": topic, "group": group},
            )
            told = GetConsumerStatusBody.from_body(answer.body).consumer_table
            offsets = told[consumer.client.client_id]
            assert {queue.topic for queue in offsets} == {topic}
            assert offsets.keys() == consumer.positions.keys()
            for outcome in ("CR_SUCCESS", "CR_THROW_EXCEPTION"):
                answer = await consumer.client.request(
                    broker.broker_address,
                    RequestCode.CONSUME_MESSAGE_DIRECTLY,
                    more=ask | {"msgId": stored.offset_message_id, "brokerName": "broker-a"},
                )
                result = json.loads(answer.body)
                assert result["consumeResult"] == outcome
            assert "third time" in result["remark"]
            consumer.stop()

    play(scenario)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"subscriptions": {}}, "no subscriptions"),
        ({"subscriptions": {"no blanks": "*"}}, "no blanks"),
        ({"subscriptions": {"T": " || "}}, "names no tag"),
        ({"subscriptions": {"T": "*"}, "group": "no blanks"}, "no blanks"),
        ({"subscriptions": {"T": "*"}, "colour": 1}, "unknown option colour"),
    ],
)
def test_an_argument_that_cannot_be_right_is_refused(options: dict[str, object], why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        PushConsumer("127.0.0.1:9876", **({"group": "g"} | options))  # type: ignore[arg-type]


@pytest.mark.slow
def test_leaving_while_a_message_is_sent_back_is_no_error(
    play: Play, broker: Broker, topic: str, group: str
) -> None:
    async def scenario() -> None:
        await send(broker.url, topic, "a")
        fault = broker.faults.drop(RequestCode.CONSUMER_SEND_MSG_BACK)

        async def fail(message: PushedMessage) -> None:
            raise RetryLater(1)

        async with (
            anyio.create_task_group() as tasks,
            PushConsumer(broker.url, group=group, subscriptions={topic: "*"}, **FIRST) as consumer,
        ):
            tasks.start_soon(consumer.run, fail)
            while fault.hits == 0:  # noqa: ASYNC110 - the broker is in another thread
                await anyio.sleep(0.01)

    play(scenario)
