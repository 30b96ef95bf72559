"""The broker inside a trio loop: no thread, no port, and the loop's own time."""

from __future__ import annotations

import threading

import anyio
import pytest
import trio
import trio.testing

from trocket.common.config import ConfigError
from trocket.remoting.codec import RemotingCommand, encode
from trocket.testing import EmbeddedBrokerError, MemoryBroker

from ..kit.client import Client
from .blocking_client import Code, ResponseCode, pull_fields, send_fields


class Dialled(Client):
    """A client over `dial`, whose streams are anyio's."""

    stream: anyio.abc.ByteStream  # type: ignore[assignment]

    async def write(self, data: bytes) -> None:
        await self.stream.send(data)

    async def read(self) -> bytes:
        return await self.stream.receive()


async def dial(broker: MemoryBroker, address: str = "") -> Dialled:
    host, _, port = (address or broker.broker_address).rpartition(":")
    return Dialled(await broker.dial(host, int(port)))


async def test_a_message_goes_through_and_the_route_is_known() -> None:
    async with MemoryBroker() as broker:
        assert broker.url == "rocketmq://127.0.0.1:9876"
        await broker.create_topic("T", queues=1)
        namesrv = await dial(broker, broker.namesrv_address)
        route = await namesrv.ask(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"})
        assert broker.broker_address.encode() in route.body
        client = await dial(broker)
        assert (await client.ask(Code.SEND_MESSAGE_V2, send_fields("T"), b"hello")).code == 0
        assert b"hello" in (await client.ask(Code.PULL_MESSAGE, pull_fields("T"))).body
        assert [message.body for message in await broker.messages("T")] == [b"hello"]
        assert await broker.lag("G", "T") == 1
        await broker.create_group("G", retry_max_times=1)
        await broker.delete_topic("T")
        assert await broker.messages("T") == []


@pytest.mark.parametrize(
    ("level", "delay_s"), [("5", 60), pytest.param("18", 7_200, marks=pytest.mark.slow)]
)
async def test_time_jumps_to_what_is_due(
    autojump_clock: trio.testing.MockClock, level: str, delay_s: int
) -> None:
    async with MemoryBroker(start_ms=1_700_000_000_000) as broker:
        await broker.create_topic("T", queues=1)
        producer, consumer = await dial(broker), await dial(broker)
        begun_s = trio.current_time()
        await producer.ask(Code.SEND_MESSAGE_V2, send_fields("T", DELAY=level), b"late")
        found = b""
        while not found:
            fields = pull_fields("T", wait_ms=15_000)
            found = (await consumer.ask(Code.PULL_MESSAGE, fields)).body
        assert b"late" in found
        assert delay_s <= trio.current_time() - begun_s < delay_s + 1
        (message,) = await broker.messages("T")
        stored_ms = message.store_timestamp_ms - 1_700_000_000_000
        assert delay_s * 1000 <= stored_ms < (delay_s + 1) * 1000


async def test_advance_moves_only_messages(autojump_clock: trio.testing.MockClock) -> None:
    async with MemoryBroker() as broker:
        await broker.create_topic("T", queues=1)
        client = await dial(broker)
        await client.ask(Code.SEND_MESSAGE_V2, send_fields("T", DELAY="18"), b"late")
        begun_s, begun_ms = trio.current_time(), broker.now_ms
        await broker.advance(hours=2)
        assert [message.body for message in await broker.messages("T")] == [b"late"]
        assert trio.current_time() - begun_s < 1
        assert broker.now_ms - begun_ms >= 7_200_000


async def test_a_restart_and_a_crash() -> None:
    async with MemoryBroker(config={"flushDiskType": "SYNC_FLUSH"}) as broker:
        client = await dial(broker)
        await client.ask(Code.SEND_MESSAGE_V2, send_fields("T"), b"1")
        await broker.restart()
        with pytest.raises(anyio.EndOfStream):
            await client.stream.receive()
        client = await dial(broker)
        await client.ask(Code.SEND_MESSAGE_V2, send_fields("T"), b"2")
        await broker.crash()
        assert [message.body for message in await broker.messages("T")] == [b"1", b"2"]


async def test_faults() -> None:
    async with MemoryBroker() as broker:
        client = await dial(broker)
        broker.faults.refuse(Code.SEND_MESSAGE_V2, remark="no")
        answer = await client.ask(Code.SEND_MESSAGE_V2, send_fields("T"))
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_BUSY, "no")
        broker.faults.disconnect(Code.SEND_MESSAGE_V2)
        with pytest.raises(anyio.EndOfStream):
            await client.ask(Code.SEND_MESSAGE_V2, send_fields("T"))


async def test_a_delayed_request_waits_in_the_time_of_the_loop(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with MemoryBroker() as broker:
        client = await dial(broker)
        broker.faults.delay(Code.SEND_MESSAGE_V2, seconds=60)
        begun_s = trio.current_time()
        assert (await client.ask(Code.SEND_MESSAGE_V2, send_fields("T"))).code == 0
        assert 60 <= trio.current_time() - begun_s < 61


async def test_streams_behave_as_anyios() -> None:
    async with MemoryBroker() as broker:
        stream = (await dial(broker)).stream
        await stream.send_eof()
        with pytest.raises(anyio.EndOfStream):
            await stream.receive()
        await stream.aclose()
        await stream.aclose()
        with pytest.raises(anyio.ClosedResourceError):
            await stream.send(b"x")
        other = (await dial(broker)).stream
        broker.faults.disconnect()
        await other.send(encode(RemotingCommand(Code.GET_MAX_OFFSET)))
        with pytest.raises(anyio.EndOfStream):
            await other.receive()
        with pytest.raises(anyio.BrokenResourceError):
            await other.send(b"x")


async def test_nothing_listens_elsewhere() -> None:
    async with MemoryBroker() as broker:
        with pytest.raises(ConnectionRefusedError, match=r"127\.0\.0\.1:1;.*name server is at"):
            await broker.dial("127.0.0.1", 1)


async def test_two_brokers_and_no_thread() -> None:
    threads = threading.active_count()
    async with MemoryBroker() as one, MemoryBroker() as other:
        await one.create_topic("T")
        client = await dial(one)
        await client.ask(Code.SEND_MESSAGE_V2, send_fields("T"), b"1")
        assert await other.messages("T") == []
        assert threading.active_count() == threads


async def test_a_failure_in_the_block_comes_out_as_it_is() -> None:
    with pytest.raises(ZeroDivisionError):
        async with MemoryBroker():
            _ = 1 / 0


async def test_a_block_that_is_cancelled_ends_at_once() -> None:
    with trio.move_on_after(0) as scope:
        async with MemoryBroker() as broker:
            await broker.create_topic("T")
            await trio.sleep_forever()
    assert scope.cancelled_caught


async def test_mistakes() -> None:
    broker = MemoryBroker()
    with pytest.raises(EmbeddedBrokerError, match="not running: use it as `async with"):
        _ = broker.url
    async with broker:
        with pytest.raises(EmbeddedBrokerError, match="running already"):
            await broker.__aenter__()
    with pytest.raises(EmbeddedBrokerError, match="closed"):
        _ = broker.url
    with pytest.raises(EmbeddedBrokerError, match=r"create another MemoryBroker\(\)"):
        await broker.__aenter__()
    with pytest.raises(ConfigError, match="brokerName"):
        MemoryBroker(config={"brokerNme": "b"})


def test_under_asyncio_it_says_what_to_use() -> None:
    async def main() -> None:
        async with MemoryBroker():
            """Not reached."""

    with pytest.raises(EmbeddedBrokerError, match="needs a running trio loop"):
        anyio.run(main, backend="asyncio")
