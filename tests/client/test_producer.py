"""Producers against an embedded broker with faults, in both loops."""

from __future__ import annotations

import json
import re
import socket

import anyio
import pytest

from trocket import (
    BadAnswerError,
    Client,
    ClosedError,
    ConfigurationError,
    ConnectError,
    Interceptor,
    Message,
    MessageQueue,
    MessageRefusedError,
    Producer,
    ReplyTimeoutError,
    RequestTimeoutError,
    RouteNotFoundError,
    SendError,
    SendStatus,
    ServerError,
    UndeliveredError,
)
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.recall_handle import RecallHandle
from trocket.remoting.request_codes import RequestCode
from trocket.remoting.response_codes import ResponseCode
from trocket.testing import Broker

from .conftest import Play
from .scripted_broker import URL, scripted

SEND = RequestCode.SEND_MESSAGE_V2
BUSY = ResponseCode.SYSTEM_BUSY


def bodies(broker: Broker, topic: str) -> list[bytes]:
    return [message.body for message in broker.messages(topic)]


def test_a_confirmed_message_is_stored_as_it_was_given(
    play: Play, broker: Broker, topic: str
) -> None:
    async def scenario() -> None:
        async with Producer(broker.url) as producer:
            message = Message(
                topic,
                b"hello",
                tags="Tag",
                keys=["one", "two"],
                properties={"colour": "red"},
                flag=7,
                sharding_key="k",
            )
            result = await producer.send(message)
            assert result.status is SendStatus.SEND_OK
            assert (result.queue.topic, result.queue.queue_id) == (topic, 0)
            (stored,) = broker.messages(topic)
            assert stored.body == b"hello"
            assert (stored.tags, stored.keys, stored.flag) == ("Tag", "one two", 7)
            assert stored.properties["colour"] == "red"
            assert stored.unique_key == result.message_id
            assert stored.offset_message_id == result.offset_message_id
            assert stored.queue_offset == result.queue_offset

    play(scenario)


def test_texts_and_what_a_serializer_makes_are_bodies(
    play: Play, broker: Broker, topic: str
) -> None:
    async def scenario() -> None:
        def serialize(value: object) -> bytes:
            return json.dumps(value).encode()

        async with Producer(broker.url, serializer=serialize) as producer:
            await producer.send(Message(topic, "grün"))
            await producer.send(Message(topic, {"a": 1}))
        assert bodies(broker, topic) == ["grün".encode(), b'{"a": 1}']

    play(scenario)


def test_a_busy_broker_is_tried_again(play: Play, broker: Broker, topic: str) -> None:
    async def scenario() -> None:
        async with Producer(broker.url) as producer:
            fault = broker.faults.refuse(SEND, BUSY, "too much", times=2)
            await producer.send(Message(topic, "a"))
            assert fault.hits == 2
        assert bodies(broker, topic) == [b"a"]

    play(scenario)


def test_after_all_attempts_the_error_has_each(play: Play, broker: Broker, topic: str) -> None:
    async def scenario() -> None:
        async with Producer(broker.url, retry_times=1) as producer:
            fault = broker.faults.refuse(SEND, BUSY, "too much", times=None)
            with pytest.raises(SendError) as caught:
                await producer.send(Message(topic, "a"))
            assert fault.hits == len(caught.value.attempts) == 2
            text = str(caught.value)
            for part in (topic, "2 tries", broker.broker_address, "SYSTEM_BUSY", "too much"):
                assert part in text
            assert isinstance(caught.value.__cause__, ServerError)
        assert bodies(broker, topic) == []

    play(scenario)


def test_a_refusal_for_good_is_not_tried_again(play: Play, broker: Broker, topic: str) -> None:
    async def scenario() -> None:
        async with Producer(broker.url) as producer:
            fault = broker.faults.refuse(SEND, ResponseCode.MESSAGE_ILLEGAL, "no", times=None)
            with pytest.raises(ServerError, match=r"MESSAGE_ILLEGAL \(13\): no") as caught:
                await producer.send(Message(topic, "a"))
            assert (fault.hits, caught.value.code) == (1, ResponseCode.MESSAGE_ILLEGAL)

    play(scenario)


@pytest.mark.slow
def test_a_broker_that_vanishes_in_the_middle_is_tried_again(
    play: Play, broker: Broker, topic: str
) -> None:
    async def scenario() -> None:
        async with Producer(broker.url) as producer:
            await producer.send(Message(topic, "a"))
            broker.faults.disconnect(SEND)
            await producer.send(Message(topic, "b"))
        assert bodies(broker, topic) == [b"a", b"b"]

    play(scenario)


@pytest.mark.slow
def test_no_answer_is_a_timeout_that_names_address_and_time(
    play: Play, broker: Broker, topic: str
) -> None:
    async def scenario() -> None:
        async with Producer(broker.url, retry_times=0) as producer:
            await producer.send(Message(topic, "a"))
            broker.faults.drop(SEND, times=None)
            with pytest.raises(SendError) as caught:
                await producer.send(Message(topic, "b"), timeout_s=0.1)
            (attempt,) = caught.value.attempts
            assert isinstance(attempt.error, RequestTimeoutError)
            assert attempt.error.address == broker.broker_address
            # What is left of the 0.1 s when the request goes out.
            assert re.search(
                r"did not answer SEND_MESSAGE_V2 within 0\.[01]\d* s", str(attempt.error)
            )

    play(scenario)


def test_sends_go_on_when_the_broker_was_restarted(play: Play, topic: str) -> None:
    async def scenario() -> None:
        with Broker() as own:
            async with Producer(own.url) as producer:
                await producer.send(Message(topic, "a"))
                await anyio.to_thread.run_sync(own.restart)
                await producer.send(Message(topic, "b"), timeout_s=10.0)
            assert sorted(bodies(own, topic)) == [b"a", b"b"]

    play(scenario)


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (Message("no blanks", "a"), "no blanks"),
        (Message("x" * 200, "a"), "127"),
        (Message("", "a"), "topic"),
        (Message("SCHEDULE_TOPIC_XXXX", "a"), "SCHEDULE_TOPIC_XXXX"),
        (Message("T", ""), "empty"),
        (Message("T", 5), "type int"),
        (Message("T", bytes(5_000_000)), "4194304"),
        (Message("T", "a", properties={"KEYS": "k"}), "'KEYS' is reserved"),
        (Message("T", "a", properties={"p": ""}), "'p' is empty"),
        (Message("T", "a", properties={"p": "\2"}), "separator"),
        (Message("T", "a", properties={"p": "x" * 40_000}), "32767"),
    ],
)
def test_what_no_broker_would_take_is_refused_at_once(
    play: Play, broker: Broker, message: Message, why: str
) -> None:
    async def scenario() -> None:
        async with Producer(broker.url) as producer:
            for send in (producer.send, producer.send_soon, producer.send_oneway):
                with pytest.raises(MessageRefusedError, match=why):
                    await send(message)

    play(scenario)


def test_a_batch_is_stored_together(play: Play, broker: Broker, topic: str) -> None:
    async def scenario() -> None:
        async with Producer(broker.url) as producer:
            result = await producer.send_batch([Message(topic, f"{n}") for n in range(5)])
            stored = broker.messages(topic)
            assert [m.body for m in stored] == [b"0", b"1", b"2", b"3", b"4"]
            assert result.message_id.split(",") == [m.unique_key for m in stored]
            for bad, why in (
                ([], "batch is empty"),
                ([Message(topic, "a"), Message("Other", "b")], "one batch for each topic"),
                ([Message(topic, "a", delay_level=1)], "delayed"),
                ([Message(topic, bytes(3_000_000))] * 2, "6000000 bytes"),
            ):
                with pytest.raises(MessageRefusedError, match=why):
                    await producer.send_batch(bad)

    play(scenario)


def test_one_key_goes_to_one_queue(play: Play, broker: Broker, group: str) -> None:
    async def scenario() -> None:
        topic = f"{group}_T"
        broker.create_topic(topic, queues=4)
        async with Producer(broker.url) as producer:
            queues = await producer.queues(topic)
            assert [q.queue_id for q in queues] == [0, 1, 2, 3]
            found = {
                key: {(await producer.send(Message(topic, key, sharding_key=key))).queue}
                for key in "abcabc"
            }
            assert len(set.union(*found.values())) == 3
            chosen = await producer.send(Message(topic, "x"), queue=queues[2])
            assert chosen.queue == queues[2]
            picked = await producer.send(Message(topic, "x"), selector=lambda all_, m: all_[-1])
            assert picked.queue == queues[3]
            with pytest.raises(ConfigurationError, match="a queue of Other"):
                await producer.send(Message(topic, "x"), queue=MessageQueue("Other", "b", 0))

    play(scenario)


def test_pipelined_sends_are_bounded_and_drained(play: Play, broker: Broker, topic: str) -> None:
    async def scenario() -> None:
        async with Producer(broker.url, send_buffer_count_max=8) as producer:
            deliveries = []
            for number in range(100):
                deliveries.append(await producer.send_soon(Message(topic, f"{number}")))
                assert sum(not d.is_done for d in deliveries) <= 8
            await producer.drain()
            assert all(d.is_done for d in deliveries)
            offsets = [(await d).queue_offset for d in deliveries]
            assert offsets == sorted(offsets)
        assert bodies(broker, topic) == [b"%d" % number for number in range(100)]

    play(scenario)


def test_pipelined_sends_are_tried_again(play: Play, broker: Broker, topic: str) -> None:
    async def scenario() -> None:
        async with Producer(broker.url) as producer:
            await producer.send(Message(topic, "0"))
            fault = broker.faults.refuse(SEND, BUSY, "too much", times=3)
            for number in range(1, 11):
                await producer.send_soon(Message(topic, f"{number}"))
            await producer.drain()
            assert fault.hits == 3
        assert sorted(map(int, bodies(broker, topic))) == list(range(11))

    play(scenario)


def test_what_was_given_up_is_raised_once(play: Play, broker: Broker, topic: str) -> None:
    async def scenario() -> None:
        async with Producer(broker.url, retry_times=0) as producer:
            broker.faults.refuse(SEND, BUSY, "no", times=3)
            deliveries = [await producer.send_soon(Message(topic, f"{n}")) for n in range(3)]
            with pytest.raises(SendError):
                await deliveries[0]
            with pytest.raises(UndeliveredError, match="2 messages") as caught:
                await producer.drain()
            assert len(caught.value.errors) == 2
            await producer.drain()

    play(scenario)


def test_leaving_the_block_waits_for_what_is_under_way(
    play: Play, broker: Broker, topic: str
) -> None:
    async def scenario() -> None:
        async with Producer(broker.url) as producer:
            for number in range(50):
                await producer.send_soon(Message(topic, f"{number}"))
        assert len(bodies(broker, topic)) == 50
        broker.faults.refuse(SEND, BUSY, "no")

        async def lose() -> None:
            async with Producer(broker.url, retry_times=0) as producer:
                await producer.send_soon(Message(topic, "lost"))

        with pytest.raises(UndeliveredError):
            await lose()

    play(scenario)


def test_a_cancelled_send_leaves_the_connection_whole(
    play: Play, broker: Broker, topic: str
) -> None:
    async def scenario() -> None:
        async with Producer(broker.url) as producer:
            await producer.send(Message(topic, "a"))
            broker.faults.drop(SEND)
            with anyio.move_on_after(0.05) as scope:
                await producer.send(Message(topic, "b"))
            assert scope.cancelled_caught
            connection = producer.client.open_connection(broker.broker_address)
            await producer.send(Message(topic, "c"))
            assert producer.client.open_connection(broker.broker_address) is connection

    play(scenario)


def test_interceptors_see_every_send(play: Play, broker: Broker, topic: str) -> None:
    seen: list[object] = []

    class Marks(Interceptor):
        def before_send(self, message: Message) -> Message:
            return Message(message.topic, message.body, properties={"marked": "yes"})

        def after_send(self, message: object, result: object, error: object) -> None:
            seen.append((result is not None, type(error).__name__))
            raise RuntimeError("an interceptor's bug")

    async def scenario() -> None:
        seen.clear()
        async with Producer(broker.url, interceptors=[Marks()], retry_times=0) as producer:
            await producer.send(Message(topic, "a"))
            await producer.send_soon(Message(topic, "b"))
            await producer.drain()
            broker.faults.refuse(SEND, BUSY, "no")
            with pytest.raises(SendError):
                await producer.send(Message(topic, "c"))
        assert seen == [(True, "NoneType"), (True, "NoneType"), (False, "SendError")]
        assert {m.properties["marked"] for m in broker.messages(topic)} == {"yes"}

    play(scenario)


def test_an_unknown_host_is_named(play: Play) -> None:
    async def scenario() -> None:
        options = {"connect_timeout_s": 20.0, "wait_for_broker_s": 0}
        async with Producer("nosuch.invalid:9876", **options) as producer:
            with pytest.raises(ConnectError, match=r"nosuch\.invalid:9876.*Is one running there"):
                await producer.send(Message("T", "a"))

    play(scenario)


def test_all_name_servers_that_were_tried_are_named(play: Play) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

    async def scenario() -> None:
        url = f"127.0.0.1:{port};localhost:{port}"
        async with Producer(url, wait_for_broker_s=0) as producer:
            with pytest.raises(ConnectError) as caught:
                await producer.send(Message("T", "a"))
        assert f"127.0.0.1:{port}: cannot connect" in str(caught.value)
        assert f"localhost:{port}: cannot connect" in str(caught.value)

    play(scenario)


def test_the_next_name_server_is_asked(play: Play, broker: Broker, topic: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

    async def scenario() -> None:
        url = f"rocketmq://127.0.0.1:{port};{broker.namesrv_address}"
        async with Producer(url) as producer:
            await producer.send(Message(topic, "a"))

    play(scenario)


def test_a_peer_that_is_no_name_server_is_named(play: Play) -> None:
    async def scenario() -> None:
        async def serve(stream: anyio.abc.ByteStream) -> None:
            async with stream:
                await stream.receive()
                await stream.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        async with listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, serve)
            async with Producer(f"127.0.0.1:{port}", wait_for_broker_s=0) as producer:
                with pytest.raises((ConnectError, BadAnswerError), match="protocol"):
                    await producer.send(Message("T", "a"))
            tasks.cancel_scope.cancel()

    play(scenario)


def test_a_topic_that_does_not_exist_has_no_route(play: Play) -> None:
    async def scenario() -> None:
        with Broker(config={"autoCreateTopicEnable": False}) as own:
            async with Producer(own.url, wait_for_broker_s=0) as producer:
                with pytest.raises(RouteNotFoundError, match=r"Nosuch.*create it first"):
                    await producer.send(Message("Nosuch", "a"))

    play(scenario)


def test_a_producer_is_used_while_it_is_open(play: Play, broker: Broker) -> None:
    async def scenario() -> None:
        producer = Producer(broker.url)
        with pytest.raises(ClosedError, match="not open"):
            await producer.send(Message("T", "a"))
        async with producer:
            pass
        for send in (producer.send, producer.send_soon, producer.send_oneway):
            with pytest.raises(ClosedError, match="closed"):
                await send(Message("T", "a"))
        with pytest.raises(ClosedError, match="opened only once"):
            async with producer:
                pass

    play(scenario)


def test_an_error_of_the_block_comes_out_as_it_is(play: Play, broker: Broker) -> None:
    async def scenario() -> None:
        with pytest.raises(KeyError):
            async with Producer(broker.url):
                raise KeyError("mine")

    play(scenario)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: Producer("127.0.0.1:9876", colour="red"), "unknown option colour"),
        (lambda: Producer("127.0.0.1:9876", timeout_s=0), "timeout_s is 0"),
        (lambda: Producer("rocketmq://127.0.0.1:x"), "port"),
        (lambda: Producer("127.0.0.1:9876", group="no blanks"), "no blanks"),
        (lambda: Producer(""), "address is empty"),
        (lambda: Producer(Client("127.0.0.1:9876"), timeout_s=1.0), "shared"),
    ],
)
def test_an_argument_that_cannot_be_right_is_refused(make: object, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        make()  # type: ignore[operator]


def test_a_client_can_be_shared(play: Play, broker: Broker, topic: str) -> None:
    async def scenario() -> None:
        async with (
            Client(broker.url) as client,
            Producer(client, group="one") as one,
            Producer(client, group="two") as two,
        ):
            await one.send(Message(topic, "a"))
            await two.send(Message(topic, "b"))
            with pytest.raises(ConfigurationError, match="already has a member of the group one"):
                async with Producer(client, group="one"):
                    pass
        assert bodies(broker, topic) == [b"a", b"b"]

    play(scenario)


@pytest.mark.slow
def test_a_request_without_a_reply_is_an_error(play: Play, broker: Broker, topic: str) -> None:
    async def scenario() -> None:
        async with Producer(broker.url) as producer:
            with pytest.raises(ReplyTimeoutError, match=f"{topic} within 0.3 s"):
                await producer.request(Message(topic, "a"), timeout_s=0.3)

    play(scenario)


@pytest.mark.slow
def test_many_sends_share_one_try_to_connect(play: Play, broker: Broker, topic: str) -> None:
    dialled: list[int] = []

    async def dial(host: str, port: int) -> anyio.abc.ByteStream:
        if f"{host}:{port}" == broker.broker_address:
            dialled.append(port)
            raise ConnectionRefusedError("refused")
        return await anyio.connect_tcp(host, port)

    async def scenario() -> None:
        dialled.clear()
        async with Producer(broker.url, dial=dial, retry_times=1) as producer:

            async def send(number: int) -> None:
                with pytest.raises(SendError, match=r"2 tries.*refused"):
                    await producer.send(Message(topic, f"{number}"))

            async with anyio.create_task_group() as tasks:
                for number in range(50):
                    tasks.start_soon(send, number)
        # Twice by the sends, and perhaps by heartbeats: not once for each of 100 tries.
        assert 2 <= len(dialled) < 10

    play(scenario)


def test_a_clock_that_jumps_does_no_harm(play: Play, broker: Broker, topic: str) -> None:
    month_ms = 31 * 24 * 3600 * 1000
    jumps = iter([0, month_ms, -month_ms, 0, 1, -5_000, 10**11] * 20)
    now_ms = 1_795_000_000_000

    async def scenario() -> None:
        async with Producer(broker.url, wall_ms=lambda: now_ms + next(jumps)) as producer:
            ids = {(await producer.send(Message(topic, "a"))).message_id for _ in range(20)}
        assert len(ids) == 20

    play(scenario)


async def test_a_recall_names_the_broker_which_a_proxy_hands_it_to() -> None:
    handle = RecallHandle("T", "b", "1", "id").to_text()
    async with scripted() as brokers:
        brokers.answer(RequestCode.RECALL_MESSAGE, RemotingCommand(ResponseCode.SUCCESS))
        async with Producer(URL, dial=brokers.dial) as producer:
            await producer.recall("T", handle)
        (fields,) = brokers.fields(RequestCode.RECALL_MESSAGE)
        assert fields["bname"] == "b"
