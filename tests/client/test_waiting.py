"""Programs that start before their servers, and look-ups while name servers are away."""

from __future__ import annotations

import logging
import socket
from collections.abc import Awaitable, Callable
from typing import Any, Final

import anyio
import pytest
import trio
import trio.testing

from trocket import (
    Admin,
    ClientError,
    ConnectError,
    Message,
    Producer,
    PullConsumer,
    RouteNotFoundError,
    SendError,
    SimpleConsumer,
    TransactionProducer,
    TransactionState,
)
from trocket.client.connection.connection import OUTBOX_SIZE_MAX
from trocket.client.connection.waiting import PAUSE_MAX_S
from trocket.remoting.bodies import ClusterInfo, MessageQueue
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.request_codes import RequestCode
from trocket.remoting.response_codes import ResponseCode

from .outages import BROKERS, cluster_of, member_of, two_brokers
from .scripted_broker import NAME_SERVER, URL, URL_OF_TWO, ScriptedBrokers, refusal

BACK_S: Final = 2.0
"""When a server comes that was not there: before the shortest of all time limits."""
SEND_S: Final = 10.0
TRY_S: Final = 3.0
LINGER_S: Final = 0.01


async def send(brokers: ScriptedBrokers, **options: Any) -> object:
    async with Producer(URL, dial=brokers.dial, **options) as producer:
        return await producer.send(Message("T", "x"))


async def send_soon(brokers: ScriptedBrokers, **options: Any) -> object:
    async with Producer(URL, dial=brokers.dial, **options) as producer:
        return await (await producer.send_soon(Message("T", "x")))


async def send_lingering(brokers: ScriptedBrokers, **options: Any) -> object:
    async with Producer(URL, dial=brokers.dial, linger_s=LINGER_S, **options) as producer:
        return await (await producer.send_soon(Message("T", "x")))


async def send_ordered(brokers: ScriptedBrokers, **options: Any) -> object:
    async with Producer(URL, dial=brokers.dial, **options) as producer:
        return await producer.send(Message("T", "x", sharding_key="k"))


async def send_oneway(brokers: ScriptedBrokers, **options: Any) -> object:
    async with Producer(URL, dial=brokers.dial, **options) as producer:
        return await producer.send_oneway(Message("T", "x"))


async def send_batch(brokers: ScriptedBrokers, **options: Any) -> object:
    async with Producer(URL, dial=brokers.dial, **options) as producer:
        return await producer.send_batch([Message("T", "x")])


async def send_in_transaction(brokers: ScriptedBrokers, **options: Any) -> object:
    producer = TransactionProducer(
        URL, group="p", check=lambda _: TransactionState.COMMIT, dial=brokers.dial, **options
    )
    async with producer:
        return await producer.send_in_transaction(
            Message("T", "x"), lambda _: TransactionState.COMMIT
        )


async def consume(brokers: ScriptedBrokers, **options: Any) -> object:
    async with member_of(brokers, **options) as member:
        return await member.receive()


async def receive(brokers: ScriptedBrokers, **options: Any) -> object:
    subscriptions = {"T": "*"}
    consumer = SimpleConsumer(
        URL, group="g", subscriptions=subscriptions, dial=brokers.dial, **options
    )
    async with consumer:
        return await consumer.receive()


async def queues(brokers: ScriptedBrokers, **options: Any) -> object:
    async with PullConsumer(URL, group="g", dial=brokers.dial, **options) as consumer:
        return await consumer.queues("T")


async def administer(brokers: ScriptedBrokers, **options: Any) -> object:
    async with Admin(URL, dial=brokers.dial, **options) as admin:
        return await admin.system_topics()


SENDS: Final = [
    *(send, send_soon, send_lingering, send_ordered, send_oneway, send_batch),
    send_in_transaction,
]
LOOK_UPS: Final = [*SENDS, receive, queues]


def named(start: Callable[..., object]) -> str:
    return start.__name__


@pytest.mark.parametrize(
    ("start", "fault"),
    [
        (start, fault)
        for start in [*LOOK_UPS, consume, administer]
        for fault in ["down", "hanging", "lost"]
        # The one request of an administrator has all of its time limit, and is lost then.
        if (start, fault) != (administer, "hanging")
    ],
)
async def test_a_service_may_start_before_its_name_server(
    autojump_clock: trio.testing.MockClock, start: Callable[..., Awaitable[object]], fault: str
) -> None:
    async with two_brokers() as brokers, trio.open_nursery() as nursery:
        away: set[str] = getattr(brokers, fault)
        away.update(("ns1", "ns2"))

        async def come() -> None:
            await trio.sleep(BACK_S)
            away.clear()

        nursery.start_soon(come)
        with trio.fail_after(BACK_S + PAUSE_MAX_S + TRY_S):
            await start(brokers)


@pytest.mark.parametrize("start", [*LOOK_UPS, consume], ids=named)
async def test_a_service_may_start_before_the_broker_has_registered(
    autojump_clock: trio.testing.MockClock, start: Callable[..., Awaitable[object]]
) -> None:
    async with two_brokers() as brokers, trio.open_nursery() as nursery:
        brokers.topics.clear()

        async def come() -> None:
            await trio.sleep(BACK_S)
            brokers.topics.add("T")

        nursery.start_soon(come)
        with trio.fail_after(BACK_S + 3 * PAUSE_MAX_S):
            await start(brokers)


@pytest.mark.parametrize("start", SENDS, ids=named)
async def test_a_service_may_start_before_its_broker(
    autojump_clock: trio.testing.MockClock, start: Callable[..., Awaitable[object]]
) -> None:
    async with two_brokers() as brokers, trio.open_nursery() as nursery:
        brokers.down.update(BROKERS)

        async def come() -> None:
            await trio.sleep(BACK_S)
            brokers.down.clear()

        nursery.start_soon(come)
        with trio.fail_after(BACK_S + 2 * PAUSE_MAX_S):
            await start(brokers)


@pytest.mark.parametrize("start", [*LOOK_UPS, consume, administer], ids=named)
async def test_a_client_that_does_not_wait_fails_at_once(
    autojump_clock: trio.testing.MockClock, start: Callable[..., Awaitable[object]]
) -> None:
    async with two_brokers() as brokers:
        brokers.down.update(("ns1", "ns2"))
        began_s = trio.current_time()
        with pytest.raises(ConnectError, match=r"127\.0\.0\.1:9876.*refused"):
            await start(brokers, wait_for_broker_s=0)
        assert trio.current_time() - began_s <= LINGER_S


@pytest.mark.parametrize("start", SENDS, ids=named)
async def test_a_send_that_does_not_wait_fails_without_its_broker_after_its_tries(
    autojump_clock: trio.testing.MockClock, start: Callable[..., Awaitable[object]]
) -> None:
    async with two_brokers() as brokers:
        brokers.down.update(BROKERS)
        began_s = trio.current_time()
        with pytest.raises((ConnectError, SendError), match=r"127\.0\.0\.1:1091"):
            await start(brokers, wait_for_broker_s=0)
        assert trio.current_time() - began_s < PAUSE_MAX_S


@pytest.mark.parametrize("start", LOOK_UPS, ids=named)
async def test_a_client_that_does_not_wait_fails_at_once_without_the_topic(
    autojump_clock: trio.testing.MockClock, start: Callable[..., Awaitable[object]]
) -> None:
    async with two_brokers() as brokers:
        brokers.topics.clear()
        began_s = trio.current_time()
        with pytest.raises(RouteNotFoundError):
            await start(brokers, wait_for_broker_s=0)
        assert trio.current_time() - began_s <= LINGER_S


@pytest.mark.parametrize("start", [*SENDS, queues, consume, administer], ids=named)
async def test_a_client_waits_as_long_as_it_is_to_wait(
    autojump_clock: trio.testing.MockClock, start: Callable[..., Awaitable[object]]
) -> None:
    async with two_brokers() as brokers, trio.open_nursery() as nursery:
        brokers.down.update(("ns1", *BROKERS))

        async def come() -> None:
            await trio.sleep(30)
            brokers.down.clear()

        nursery.start_soon(come)
        with trio.fail_after(30 + 2 * PAUSE_MAX_S):
            await start(brokers, wait_for_broker_s=40)


async def receive_briefly(brokers: ScriptedBrokers, **options: Any) -> object:
    consumer = SimpleConsumer(URL, group="g", subscriptions={"T": "*"}, dial=brokers.dial)
    async with consumer:
        return await consumer.receive(wait_s=options["wait_for_broker_s"])


@pytest.mark.parametrize("wait_s", [0, 0.1])
@pytest.mark.parametrize("start", [*LOOK_UPS, consume, administer, receive_briefly], ids=named)
async def test_a_short_wait_leaves_a_slow_name_server_the_time_of_one_request(
    autojump_clock: trio.testing.MockClock,
    start: Callable[..., Awaitable[object]],
    wait_s: float,
) -> None:
    async with two_brokers() as brokers, trio.open_nursery() as nursery:
        brokers.frozen.update(ns1=trio.Event(), ns2=trio.Event())

        async def answer() -> None:
            await trio.sleep(2.5)
            for each in brokers.frozen.values():
                each.set()

        nursery.start_soon(answer)
        with trio.fail_after(TRY_S):
            await start(brokers, wait_for_broker_s=wait_s)


@pytest.mark.parametrize("fault", ["down", "hanging", "lost"])
@pytest.mark.parametrize("away", ["name servers", "brokers"])
async def test_the_time_limit_of_one_send_holds(
    autojump_clock: trio.testing.MockClock, fault: str, away: str
) -> None:
    names = BROKERS if away == "brokers" else ("ns1", "ns2")
    async with two_brokers() as brokers:
        getattr(brokers, fault).update(names)
        async with Producer(URL_OF_TWO, dial=brokers.dial, wait_for_broker_s=60) as producer:
            began_s = trio.current_time()
            with pytest.raises(ClientError):
                await producer.send(Message("T", "x"), timeout_s=1.5)
            assert trio.current_time() - began_s <= 1.5 + 1e-6


class Slow:
    """Holds each request for some time."""

    async def wait(self) -> None:
        await trio.sleep(2.0)


async def test_the_time_limit_of_a_send_of_a_new_topic_holds_beside_a_slow_name_server(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with two_brokers() as brokers:
        brokers.frozen["ns1"] = Slow()  # type: ignore[assignment]
        async with Producer(URL, dial=brokers.dial) as producer:
            began_s = trio.current_time()
            with pytest.raises(ConnectError, match="did not answer"):
                await producer.send(Message("T2", "x"), timeout_s=3.0)
            assert trio.current_time() - began_s <= 3.0 + 1e-6


async def test_another_topic_is_looked_up_while_the_name_server_is_away(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with two_brokers() as brokers, trio.open_nursery() as nursery:
        brokers.topics.add("Other")
        async with Producer(URL, dial=brokers.dial) as producer:
            await producer.send(Message("T", "x"))
            brokers.down.add("ns1")
            await brokers.cut("ns1")

            async def come() -> None:
                await trio.sleep(5)
                await producer.send(Message("T", "its route is known"))
                brokers.down.clear()

            nursery.start_soon(come)
            with trio.fail_after(5 + 2 * PAUSE_MAX_S):
                await producer.send(Message("Other", "x"))


async def test_tasks_that_wait_for_one_route_fail_together(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with two_brokers() as brokers:
        brokers.hanging.update(("ns1", "ns2"))
        failures: list[float] = []
        async with Producer(URL_OF_TWO, dial=brokers.dial) as producer:

            async def fail() -> None:
                with pytest.raises(ConnectError, match=r"9876 did not answer.*9877 did not answer"):
                    await producer.send(Message("T", "x"))
                failures.append(trio.current_time())

            began_s = trio.current_time()
            async with trio.open_nursery() as nursery:
                for _ in range(100):
                    nursery.start_soon(fail)
        assert max(failures) - began_s <= SEND_S + 1e-6


async def test_batches_that_wait_for_one_route_fail_together(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with two_brokers() as brokers:
        brokers.down.add("ns1")
        async with Producer(
            URL, dial=brokers.dial, linger_s=LINGER_S, batch_count_max=2
        ) as producer:
            deliveries = [await producer.send_soon(Message("T", "x")) for _ in range(20)]
            with trio.fail_after(SEND_S + 1):
                for delivery in deliveries:
                    with pytest.raises(ConnectError, match="no name server answered"):
                        await delivery


async def test_the_wait_for_a_route_is_logged_once(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with two_brokers() as brokers:
        brokers.down.add("ns1")
        with caplog.at_level(logging.WARNING), pytest.raises(ConnectError):
            await send(brokers)
    (line,) = [each.getMessage() for each in caplog.records if "wait up to" in each.getMessage()]
    assert line.startswith("calls wait up to 10 s for the route of T: ")


async def test_a_name_server_that_does_not_know_a_topic_has_not_the_last_word(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with two_brokers() as brokers:
        brokers.forgetful.add("ns1")  # it was just started
        async with Producer(URL_OF_TWO, dial=brokers.dial) as producer:
            with trio.fail_after(0.1):
                await producer.send(Message("T", "x"))


async def test_a_refusal_of_a_name_server_does_not_wait_for_one_that_hangs(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with two_brokers() as brokers:
        brokers.hanging.add("ns1")
        async with Admin(URL_OF_TWO, dial=brokers.dial) as admin:
            with trio.fail_after(1.1), pytest.raises(RouteNotFoundError):
                await admin.topic("Missing")


async def test_the_last_error_names_each_address_and_the_reason(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with two_brokers() as brokers:
        brokers.hanging.add("ns2")

        async def dial(host: str, port: int) -> anyio.abc.ByteStream:
            if host == "nowhere":
                raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
            if host == "10.255.0.1":
                await anyio.sleep_forever()
            if port == 1:
                raise ConnectionRefusedError(111, "refused")
            return await brokers.dial(host, port)

        url = "127.0.0.1:1;nowhere:9876;10.255.0.1:9876;127.0.0.1:9877"
        with pytest.raises(ConnectError) as caught:
            async with Producer(url, dial=dial, timeout_s=4.0) as producer:
                await producer.send(Message("T", "x"))
    text = str(caught.value)
    for part in (
        "127.0.0.1:1: cannot connect: connection refused",
        "nowhere:9876: cannot connect: no such host",
        "10.255.0.1:9876: no connection within",
        "127.0.0.1:9877 did not answer GET_ROUTEINFO_BY_TOPIC within",
    ):
        assert part in text


async def test_a_refusal_with_a_code_is_named_with_it(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with two_brokers() as brokers:
        brokers.answer(
            RequestCode.SEND_MESSAGE_V2, refusal(ResponseCode.SYSTEM_BUSY, "too many requests")
        )
        with pytest.raises(SendError, match=r"127\.0\.0\.1:1091[12] refused.*SYSTEM_BUSY \(2\)"):
            await send(brokers)


async def test_a_message_for_a_certain_queue_waits_for_its_broker_but_is_sent_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with two_brokers() as brokers:
        brokers.answer(RequestCode.SEND_MESSAGE_V2, None)  # the connection is lost
        async with Producer(URL, dial=brokers.dial) as producer:
            with pytest.raises(SendError, match="in 1 tries"):
                await producer.send(Message("T", "x"), queue=MessageQueue("T", "a", 0))
            assert len(brokers.requests[RequestCode.SEND_MESSAGE_V2]) == 1


class Blocked:
    """A peer whose receive buffer is full."""

    async def send(self, data: bytes) -> None:
        await anyio.sleep_forever()

    async def receive(self, max_bytes: int = 65536) -> bytes:
        await anyio.sleep_forever()
        return b""

    async def aclose(self) -> None:
        """Close nothing."""


@pytest.mark.slow
async def test_a_send_ends_in_time_when_its_broker_takes_no_more_bytes(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with two_brokers() as brokers:

        async def dial(host: str, port: int) -> Any:
            return await brokers.dial(host, port) if port == NAME_SERVER else Blocked()

        async with Producer(URL, dial=dial) as producer:
            body = b"x" * (OUTBOX_SIZE_MAX // 2)
            began_s = trio.current_time()

            async def fail() -> None:
                with pytest.raises(SendError, match=r"127\.0\.0\.1:1091[12] did not answer"):
                    await producer.send(Message("T", body))

            async with trio.open_nursery() as nursery:
                for _ in range(16):
                    nursery.start_soon(fail)
            assert trio.current_time() - began_s <= SEND_S


async def test_a_peer_that_closes_each_connection_is_not_tried_without_a_pause(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with two_brokers() as brokers, Producer(URL, dial=brokers.dial) as producer:
        await producer.send(Message("T", "x"))
        brokers.lost.update(BROKERS)
        await brokers.cut("a")
        await brokers.cut("b")
        made = brokers.connection_counts.total()
        with pytest.raises(SendError):
            await producer.send(Message("T", "x"))
        assert brokers.connection_counts.total() - made <= 2 * SEND_S / 0.1


async def test_a_member_leaves_the_other_broker_while_a_heartbeat_hangs(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with two_brokers() as brokers:
        async with member_of(brokers) as member:
            await member.receive()
            brokers.hanging.add("a")
            member.client.heartbeat_soon()
            await trio.testing.wait_all_tasks_blocked()
        assert ("b", RequestCode.UNREGISTER_CLIENT) in brokers.log


async def test_a_commit_at_a_restarted_broker_waits_for_no_other_one(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with two_brokers() as brokers:
        async with PullConsumer(URL, group="g", dial=brokers.dial) as consumer:
            queues = await consumer.queues("T")
            brokers.hanging.add("a")
            unknown = refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST)
            brokers.answer(
                RequestCode.UPDATE_CONSUMER_OFFSET, unknown, RemotingCommand(ResponseCode.SUCCESS)
            )
            with trio.fail_after(0.1):
                await consumer.commit({queues[-1]: 1})
        committed = [code for name, code in brokers.log if name == "b"]
        assert committed.count(RequestCode.UPDATE_CONSUMER_OFFSET) >= 2
        assert committed.count(RequestCode.HEART_BEAT) >= 1


async def test_an_administrator_waits_once_for_a_broker_that_hangs(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with two_brokers() as brokers, Admin(URL, dial=brokers.dial) as admin:
        topics = [f"T{number}" for number in range(30)]
        brokers.topics.update(topics)
        names = '", "'.join(topics)
        body = f'{{"topicList":["{names}"]}}'.encode()
        listed = RemotingCommand(ResponseCode.SUCCESS, body=body)
        brokers.answer(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, listed)
        none = RemotingCommand(ResponseCode.SUCCESS, body=b'{"topicList":[]}')
        brokers.answer(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS, none)
        brokers.answer(RequestCode.QUERY_MESSAGE, refusal(ResponseCode.QUERY_NOT_FOUND))
        brokers.hanging.add("a")
        with trio.fail_after(TRY_S + 0.1), pytest.raises(ClientError, match="10911"):
            await admin.message("7F00000100002A9F0000000000000001AA")


async def test_an_administrator_creates_a_topic_when_a_broker_has_registered(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with two_brokers() as brokers, Admin(URL, dial=brokers.dial) as admin:
        nobody = RemotingCommand(ResponseCode.SUCCESS, body=ClusterInfo().to_body())
        brokers.answer(
            RequestCode.GET_BROKER_CLUSTER_INFO, nobody, nobody, nobody, cluster_of(brokers)
        )
        created = RemotingCommand(ResponseCode.SUCCESS)
        brokers.answer(RequestCode.UPDATE_AND_CREATE_TOPIC, created)
        await admin.create_topic("New", 1)
        assert len(brokers.requests[RequestCode.UPDATE_AND_CREATE_TOPIC]) == len(BROKERS)
