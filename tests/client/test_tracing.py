"""Producers and consumers with `trace`: what they report, and what losses do not affect."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import anyio
import pytest

from trocket import (
    Admin,
    Client,
    ClientError,
    ConfigurationError,
    ConsumeFromWhere,
    ConsumeOutcome,
    Message,
    MessageTrace,
    NotFoundError,
    Producer,
    PullConsumer,
    PushConsumer,
    RetryLater,
    ServerError,
    TracedType,
    TransactionProducer,
    TransactionState,
    blocking,
)
from trocket.client.core.trace_records import PubRecord, SubAfterRecord, decode_records
from trocket.client.sending import tracing
from trocket.remoting.request_codes import RequestCode
from trocket.testing import Broker

from .conftest import Play
from .support import until

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"


@pytest.fixture(scope="module")
def shared_broker() -> Iterator[Broker]:
    config = {"traceTopicEnable": True, "recallMessageEnable": True}
    with Broker(config=config) as broker:
        yield broker


async def traced(
    url: str, message_id: str, enough: object = None, **options: object
) -> MessageTrace:
    """The timeline, once the index has it and `enough` accepts it."""
    async with Admin(url) as admin:
        while True:
            try:
                found = await admin.message_trace(message_id, **options)  # type: ignore[arg-type]
                if enough is None or enough(found):  # type: ignore[operator]
                    return found
            except NotFoundError:
                pass
            await anyio.sleep(0.005)


def consumed(count: int) -> Callable[[MessageTrace], bool]:
    """Whether so many consumptions are reported, with their ends."""
    return lambda trace: sum(each.outcome is not None for each in trace.consumptions) == count


async def timeline_of_two(admin: Admin, topic: str, key: str) -> MessageTrace:
    """The timeline, once the index has two messages with the key."""
    while True:
        if len(await admin.messages_by_key(topic, key)) == 2:
            return await admin.message_trace(key, trace_topic=topic)
        await anyio.sleep(0.005)


def bodies(broker: Broker, topic: str = TRACE_TOPIC) -> list[bytes]:
    return [message.body for message in broker.messages(topic)]


def records(broker: Broker, topic: str = TRACE_TOPIC) -> list[object]:
    found: list[object] = []
    for body in bodies(broker, topic):
        decoded = decode_records(body)
        assert decoded.bad == []
        found += decoded.records
    return found


def test_every_kind_of_send_is_reported(play: Play, broker: Broker, topic: str) -> None:
    async def scenario() -> None:
        async with Producer(broker.url, group="senders", trace=True) as producer:
            one = await producer.send(Message(topic, "one", tags="t", keys=["a", "b"]))
            soon = await (await producer.send_soon(Message(topic, "soon")))
            pair = await producer.send_batch([Message(topic, "x"), Message(topic, "yy", keys="k")])
            late = await producer.send(Message(topic, "late", delay_level=1))
            await producer.send_oneway(Message(topic, "oneway"))
            client_id = producer.client.client_id
            address = producer.client.master_address(one.queue.broker_name)
        (sent,) = (await traced(broker.url, one.message_id)).sends
        assert (sent.group, sent.topic, sent.tags, sent.keys) == ("senders", topic, "t", "a b")
        assert sent.store_host == address
        assert sent.offset_message_id == one.offset_message_id
        assert (sent.body_length, sent.kind, sent.is_success) == (3, TracedType.NORMAL, True)
        assert (sent.client_host, sent.client_id) == ("127.0.0.1", client_id)
        assert sent.region == "DefaultRegion"
        assert sent.cost_ms >= 0
        # A broker's id leads there, too.
        assert (await traced(broker.url, one.offset_message_id)).message_id == one.message_id
        (sent,) = (await traced(broker.url, soon.message_id)).sends
        assert sent.body_length == 4
        lengths = []
        for message_id, place in zip(
            pair.message_id.split(","), pair.offset_message_id.split(","), strict=True
        ):
            (sent,) = (await traced(broker.url, message_id)).sends
            assert sent.offset_message_id == place
            lengths.append((sent.body_length, sent.keys))
        assert lengths == [(1, None), (2, "k")]
        (sent,) = (await traced(broker.url, late.message_id)).sends
        assert sent.kind is TracedType.DELAY

    play(scenario)


def test_automatic_batches_are_reported_message_by_message(
    play: Play, broker: Broker, topic: str
) -> None:
    async def scenario() -> None:
        async with Producer(broker.url, linger_s=0.05, trace=True) as producer:
            deliveries = [await producer.send_soon(Message(topic, body)) for body in ("a", "bb")]
            results = [await delivery for delivery in deliveries]
        for result, length in zip(results, (1, 2), strict=True):
            (sent,) = (await traced(broker.url, result.message_id)).sends
            assert (sent.body_length, sent.offset_message_id) == (length, result.offset_message_id)

    play(scenario)


@pytest.mark.slow
def test_transactions_and_their_checks_are_reported(
    play: Play, broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracing, "FLUSH_S", 0.05)

    async def scenario() -> None:
        def check(message: object) -> TransactionState:
            return TransactionState.ROLLBACK

        group = f"G_{topic}"
        async with TransactionProducer(
            broker.url, group=group, check=check, trace=True
        ) as producer:
            commits = await producer.send_in_transaction(
                Message(topic, "c", keys="k"), lambda message: TransactionState.COMMIT
            )
            asks = await producer.send_in_transaction(
                Message(topic, "u"), lambda message: TransactionState.UNKNOWN
            )
            found = await traced(
                broker.url, commits.result.message_id, lambda trace: trace.transaction_ends
            )
            (end,) = found.transaction_ends
            assert (end.state, end.is_from_check) == (TransactionState.COMMIT, False)
            assert (end.group, end.topic) == (group, topic)
            assert end.store_host == found.sends[0].store_host
            assert end.transaction_id == commits.result.transaction_id
            assert found.sends[0].kind is TracedType.HALF
            await anyio.to_thread.run_sync(lambda: broker.advance(minutes=2))
            found = await traced(
                broker.url, asks.result.message_id, lambda trace: len(trace.transaction_ends) == 2
            )
            assert [(each.state, each.is_from_check) for each in found.transaction_ends] == [
                (TransactionState.UNKNOWN, False),
                (TransactionState.ROLLBACK, True),
            ]

    play(scenario)


@pytest.mark.slow
def test_recalls_are_reported_with_their_outcome(play: Play, broker: Broker, topic: str) -> None:
    async def scenario() -> None:
        async with Producer(broker.url, trace=True) as producer:
            late = await producer.send(Message(topic, "late", delay_s=600))
            assert late.recall_handle is not None
            assert await producer.recall(topic, late.recall_handle) == late.message_id
            broker.faults.refuse(RequestCode.RECALL_MESSAGE, 1, "no", times=1)
            with pytest.raises(ServerError, match="no"):
                await producer.recall(topic, late.recall_handle)
        (recall,) = (await traced(broker.url, late.message_id)).recalls
        # The refusal of a test names no region.
        assert (recall.is_success, recall.topic) == (True, topic)

    play(scenario)


@pytest.mark.slow
def test_consumptions_are_reported_with_their_ends(
    play: Play, broker: Broker, topic: str, group: str
) -> None:
    async def scenario() -> None:
        async with Producer(broker.url) as producer:
            first, second, third, hangs = [
                await producer.send(Message(topic, body, keys="key")) for body in "123h"
            ]
        seen: list[str] = []

        async def handle(message: object) -> None:
            text = message.text  # type: ignore[attr-defined]
            seen.append(text)
            if seen.count(text) == 1:
                if text == "1":
                    raise RetryLater(1)
                if text == "2":
                    raise ValueError("broken")
                if text == "h":
                    await anyio.sleep_forever()
            if len(seen) == 7:
                consumer.stop()

        async with PushConsumer(
            broker.url,
            group=group,
            subscriptions={topic: "*"},
            consume_from_where=FIRST,
            is_orderly=True,
            suspend_queue_s=0.01,
            consume_timeout_s=0.5,
            trace=True,
        ) as consumer:
            await consumer.run(handle, concurrency=1)
            assert consumer.dropped_trace_count == 0
        outcomes = {}
        for name, result in (("1", first), ("2", second), ("3", third), ("h", hangs)):
            trace = await traced(broker.url, result.message_id, consumed(1 if name == "3" else 2))
            outcomes[name] = [(each.retry_times, each.outcome) for each in trace.consumptions]
            for each in trace.consumptions:
                assert (each.group, each.client_host) == (group, "127.0.0.1")
                assert (each.keys, each.is_success) == ("key", each.outcome == 0)
                assert each.cost_ms is not None
                assert each.cost_ms >= (400 if each.outcome is ConsumeOutcome.TIMEOUT else 0)
        good = ConsumeOutcome.SUCCESS
        assert outcomes == {
            "1": [(0, ConsumeOutcome.FAILED), (1, good)],
            "2": [(0, ConsumeOutcome.EXCEPTION), (1, good)],
            "3": [(0, good)],
            "h": [(0, ConsumeOutcome.TIMEOUT), (1, good)],
        }

    play(scenario)


def test_polled_messages_are_reported_as_consumed(
    play: Play, broker: Broker, topic: str, group: str
) -> None:
    async def scenario() -> None:
        async with Producer(broker.url) as producer:
            sent = await producer.send(Message(topic, "a"))
        async with PullConsumer(
            broker.url, group=group, consume_from_where=FIRST, trace=True
        ) as consumer:
            consumer.assign(await consumer.queues(topic))
            assert len(await consumer.poll()) == 1
        (one,) = (await traced(broker.url, sent.message_id, consumed(1))).consumptions
        assert (one.group, one.is_success, one.outcome) == (group, True, ConsumeOutcome.SUCCESS)

    play(scenario)


def test_the_blocking_clients_report(broker: Broker, topic: str, group: str) -> None:
    with blocking.Producer(broker.url, trace=True) as producer:
        one = producer.send(Message(topic, "a"))
        soon = producer.send_soon(Message(topic, "b")).result()
        assert producer.dropped_trace_count == 0
    with blocking.PushConsumer(
        broker.url,
        group=group,
        subscriptions={topic: "*"},
        consume_from_where=FIRST,
        is_orderly=True,
        suspend_queue_s=0.01,
        trace=True,
    ) as consumer:
        seen: list[str] = []

        def handle(message: blocking.PushedMessage) -> None:
            seen.append(message.text)
            if message.text == "b":
                if seen.count("b") == 1:
                    raise ValueError("broken")
                consumer.stop()

        consumer.run(handle, concurrency=1)
        assert consumer.dropped_trace_count == 0

    async def read() -> list[MessageTrace]:
        with anyio.fail_after(20):
            return [
                await traced(
                    broker.url,
                    sent.message_id,
                    lambda trace, count=count: bool(trace.sends) and consumed(count)(trace),
                )
                for sent, count in ((one, 1), (soon, 2))
            ]

    first, second = anyio.run(read)
    assert [len(trace.sends) for trace in (first, second)] == [1, 1]
    assert [each.outcome for each in first.consumptions] == [ConsumeOutcome.SUCCESS]
    assert [each.outcome for each in second.consumptions] == [
        ConsumeOutcome.EXCEPTION,
        ConsumeOutcome.SUCCESS,
    ]
    with blocking.Admin(broker.url) as admin:
        assert admin.message_trace(one.message_id) == first


def test_a_topic_of_the_programs_own_is_not_traced_itself(
    play: Play, broker: Broker, topic: str, group: str
) -> None:
    async def scenario() -> None:
        own = f"{topic}_trace"
        broker.create_topic(own, queues=1)
        async with Producer(broker.url, trace=own) as producer:
            sent = await producer.send(Message(topic, "a"))
            await producer.send(Message(own, "not a record"))
        async with PullConsumer(
            broker.url, group=group, consume_from_where=FIRST, trace=own
        ) as consumer:
            consumer.assign(await consumer.queues(own))
            polled = await consumer.poll()
            assert len(polled) > 0
        found = await traced(broker.url, sent.message_id, trace_topic=own)
        assert len(found.sends) == 1
        # The text is no trace message, so it has no keys and is not found.
        assert found.bad_count == 0
        decoded = [decode_records(body) for body in bodies(broker, own)]
        assert [len(each.records) for each in decoded if not each.bad] == [1]

    play(scenario)


def test_nothing_is_reported_that_the_broker_forbids(play: Play, topic: str, group: str) -> None:
    config = {"traceTopicEnable": True, "traceOn": False}
    with Broker(config=config) as broker:
        broker.create_topic(topic, queues=1)

        async def scenario() -> None:
            async with TransactionProducer(
                broker.url, group="p", check=lambda message: TransactionState.COMMIT, trace=True
            ) as producer:
                await producer.send(Message(topic, "a"))
                await producer.send_in_transaction(
                    Message(topic, "b"), lambda message: TransactionState.COMMIT
                )
            async with PullConsumer(
                broker.url, group=group, consume_from_where=FIRST, trace=True
            ) as consumer:
                consumer.assign(await consumer.queues(topic))
                assert await consumer.poll()

        play(scenario)
        assert bodies(broker) == []


def test_records_are_sent_together_and_at_close(play: Play, topic: str) -> None:
    with Broker(config={"traceTopicEnable": True}) as broker:
        broker.create_topic(topic, queues=1)

        async def scenario() -> None:
            async with Producer(broker.url, trace=True) as producer:
                for _ in range(tracing.BATCH_COUNT):
                    await producer.send(Message(topic, "a"))
                await until(lambda: bool(bodies(broker)))
                for _ in range(3):
                    await producer.send(Message(topic, "a"))
            sizes = [len(decode_records(body).records) for body in bodies(broker)]
            assert sizes == [tracing.BATCH_COUNT, 3]

        play(scenario)


@pytest.mark.slow
def test_pipelined_sends_are_all_reported(
    play: Play, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracing, "FLUSH_S", 0.05)
    # Half of what may wait: a busy machine may send all of them before it reports the first.
    portion, portions = tracing.QUEUE_COUNT_MAX // 2, 4
    with Broker(config={"traceTopicEnable": True}) as broker:
        broker.create_topic(topic, queues=1)

        def reported() -> int:
            pubs = (each for each in records(broker) if isinstance(each, PubRecord))
            return len({each.message_id for each in pubs})

        async def scenario() -> None:
            async with Producer(broker.url, trace=True) as producer:
                for number in range(1, portions + 1):
                    for _ in range(portion):
                        await producer.send_soon(Message(topic, "a"))
                    await producer.drain()
                    await until(lambda sent=number * portion: reported() == sent)
                assert producer.dropped_trace_count == 0

        play(scenario)


@pytest.mark.slow
def test_a_record_waits_five_seconds_at_most(
    play: Play, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracing, "FLUSH_S", 0.05)
    with Broker(config={"traceTopicEnable": True}) as broker:
        broker.create_topic(topic, queues=1)

        async def scenario() -> None:
            async with Producer(broker.url, trace=True) as producer:
                await producer.send(Message(topic, "a"))
                await until(lambda: bool(bodies(broker)))

        play(scenario)


def test_large_keys_are_spread_over_several_messages(play: Play, topic: str) -> None:
    with Broker(config={"traceTopicEnable": True}) as broker:
        broker.create_topic(topic, queues=1)

        async def scenario() -> None:
            keys = ["k" * 10_000, "l" * 10_000, "m" * 20_000]
            async with Producer(broker.url, trace=True) as producer:
                sent = [await producer.send(Message(topic, "a", keys=key)) for key in keys]
                assert producer.dropped_trace_count == 0
            # The last one's key is too long for any: it is found by its id alone.
            assert len(bodies(broker)) == 2
            for result in sent:
                assert len((await traced(broker.url, result.message_id)).sends) == 1

        play(scenario)


def test_without_a_trace_topic_sends_go_on_and_one_line_is_logged(
    play: Play, topic: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracing, "RETRY_S", 0.01)
    with Broker(config={"autoCreateTopicEnable": False}) as broker:
        broker.create_topic(topic, queues=1)

        async def scenario() -> None:
            async with Producer(broker.url, trace=True) as producer:
                for _ in range(3 * tracing.BATCH_COUNT):
                    await producer.send(Message(topic, "a"))
                await until(lambda: producer.dropped_trace_count > 0)
            assert producer.dropped_trace_count == 3 * tracing.BATCH_COUNT

        with caplog.at_level(logging.WARNING, "trocket.client.sending.tracing"):
            play(scenario)
        (line,) = [each for each in caplog.records if each.name == "trocket.client.sending.tracing"]
        assert "no name server knows the topic RMQ_SYS_TRACE_TOPIC" in line.getMessage()


def test_more_records_than_fit_into_the_queue_are_dropped_and_counted(
    play: Play, broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracing, "QUEUE_COUNT_MAX", 5)

    async def scenario() -> None:
        async with Producer(broker.url, trace=True) as producer:
            before = len(records(broker))
            results = [await producer.send(Message(topic, "a")) for _ in range(8)]
            assert producer.dropped_trace_count == 3
        await traced(broker.url, results[0].message_id)
        assert len(records(broker)) == before + 5

    play(scenario)


def test_closing_ends_in_time_when_nothing_can_be_sent(
    play: Play, broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracing, "CLOSE_TIMEOUT_S", 0.05)

    async def scenario() -> None:
        async with Client(broker.url) as client:
            producer = await Producer(client, trace=True).open()
            await producer.send(Message(topic, "a"))
            broker.faults.swallow(RequestCode.SEND_MESSAGE_V2)
            await producer.close()
            assert producer.dropped_trace_count == 1
            await producer.close()

    play(scenario)


@pytest.mark.slow
def test_a_consumer_leaves_its_group_before_it_waits_for_reports(
    play: Play, broker: Broker, topic: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracing, "CLOSE_TIMEOUT_S", 0.2)

    async def scenario() -> None:
        async with Client(broker.url) as client, Admin(client) as admin:
            async with Producer(client) as producer:
                await producer.send(Message(topic, "a"))
            consumer = await PushConsumer(
                client,
                group=group,
                subscriptions={topic: "*"},
                consume_from_where=FIRST,
                close_timeout_s=0.1,
                trace=True,
            ).open()
            (await consumer.receive()).ack()
            broker.faults.swallow(RequestCode.SEND_MESSAGE_V2)
            await consumer.close()
            assert consumer.dropped_trace_count == 2
            assert (await admin.clients(group)).clients == ()

    play(scenario)


def test_a_timeline_names_what_is_missing(play: Play, broker: Broker, topic: str) -> None:
    async def scenario() -> None:
        async with Producer(broker.url) as producer, Admin(broker.url) as admin:
            sent = await producer.send(Message(topic, "a"))
            with pytest.raises(NotFoundError, match="no client reported the message"):
                await admin.message_trace(sent.message_id)
            with pytest.raises(NotFoundError, match="no broker has the trace topic Nowhere"):
                await admin.message_trace(sent.message_id, trace_topic="Nowhere")
            with pytest.raises(ClientError, match="needs a key"):
                await admin.message_trace(" ")
            # Records that cannot be read are counted.
            own, key = f"{topic}_trace", admin.client.next_unique_id()
            broker.create_topic(own, queues=1)
            await producer.send(Message(own, b"Pub\x01?\x02\xff", keys=key))
            await producer.send(Message(own, b"Pub\x01?\x02Sub\x02", keys=key))
            with pytest.raises(NotFoundError, match="3 records there cannot be read"):
                await timeline_of_two(admin, own, key)

    play(scenario)


@pytest.mark.parametrize("trace", ["a b", "SCHEDULE_TOPIC_XXXX", ""])
def test_a_topic_that_cannot_be_is_refused(trace: str) -> None:
    with pytest.raises(ConfigurationError, match="trace is "):
        Producer("127.0.0.1:1", trace=trace)
    with pytest.raises(ConfigurationError, match="trace is "):
        PullConsumer("127.0.0.1:1", group="g", trace=trace)


def test_another_type_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="trace is 1: give True, False or the name"):
        Producer("127.0.0.1:1", trace=1)  # type: ignore[arg-type]


def test_kinds_of_records_in_the_topic(play: Play, topic: str, group: str) -> None:
    """Both ends of a message in one topic, as mqadmin finds them."""
    with Broker(config={"traceTopicEnable": True}) as broker:
        broker.create_topic(topic, queues=1)

        async def scenario() -> None:
            async with Producer(broker.url, namespace="space", trace=True) as producer:
                sent = await producer.send(Message(topic, "a", keys="k"))
            async with PullConsumer(
                broker.url,
                group=group,
                namespace="space",
                consume_from_where=FIRST,
                trace=True,
            ) as consumer:
                consumer.assign(await consumer.queues(topic))
                await consumer.poll()
            pub, _, after = records(broker)
            assert isinstance(pub, PubRecord)
            assert isinstance(after, SubAfterRecord)
            # Without the namespace, as Java's.
            assert (pub.topic, pub.group, after.group) == (topic, "trocket_producer", group)
            assert {pub.message_id, after.message_id} == {sent.message_id}
            keys = [message.keys for message in broker.messages(TRACE_TOPIC)]
            assert keys == [f"{sent.message_id} k"] * 2

        play(scenario)
