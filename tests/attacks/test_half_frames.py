"""Half frames of strangers took all memory of a server, and a MemoryError ended its process.

Each connection may hold a frame of 16 MiB; there was no sum over the connections, nothing caught
the MemoryError, and the frames of closed connections waited for the cyclic garbage collector.
"""

from __future__ import annotations

import gc
import socket
import struct
import sys
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest
import trio
import trio.testing

from trocket.broker.settings.config import BrokerConfig
from trocket.broker.settings.config_checks import read_broker_config
from trocket.common.config import ConfigError, parse_properties
from trocket.common.connection_policy import BUDGET_MIN, ConnectionPolicy
from trocket.disk.memory_disk import MemoryDisk
from trocket.filtersrv.config import FiltersrvConfig
from trocket.filtersrv.controller import FiltersrvController
from trocket.interop.process import PeerError
from trocket.interop.trocket_peer import TrocketBroker
from trocket.interop.usage import anonymous_bytes
from trocket.interop.wire import Outgoing, WireClient
from trocket.namesrv.config import NamesrvConfig, read_namesrv_config
from trocket.namesrv.controller import NamesrvController
from trocket.remoting.channel import Channel
from trocket.remoting.codec import FrameDecoder, RemotingCommand, encode
from trocket.remoting.connection import ConnectionLimits
from trocket.remoting.message_codec import decode_record
from trocket.remoting.server import RemotingServer
from trocket.remoting.turn import Turn
from trocket.store.config import MessageStoreConfig

from ..kit import TrioClock, embedded_broker
from .little_memory import ADDRESS_SPACE_BYTES, HALF_FRAME, LIMITED, MIB, PROCESS_STRANGERS

ECHO, NEEDY = 900, 901
STRANGERS = 120


def echo(request: RemotingCommand, channel: Channel) -> RemotingCommand:
    return request.answer(body=request.body)


def needy(request: RemotingCommand, channel: Channel) -> RemotingCommand:
    """Fails as an allocation does for which there is no memory."""
    raise MemoryError


@asynccontextmanager
async def serving(memory_max: int = BUDGET_MIN) -> AsyncIterator[tuple[RemotingServer, Connect]]:
    server = RemotingServer(
        {ECHO: echo, NEEDY: needy},
        turn=Turn(),
        limits=ConnectionLimits(policy=ConnectionPolicy(remoting_bytes_max=memory_max)),
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(server.serve, [])
        yield server, Connect(server, nursery)
        nursery.cancel_scope.cancel()


class Connect:
    """Opens connections to a server, on memory streams."""

    def __init__(self, server: RemotingServer, nursery: trio.Nursery) -> None:
        self._server = server
        self._nursery = nursery
        self._count = 0

    def __call__(self) -> trio.StapledStream:
        self._count += 1
        near, far = trio.testing.memory_stream_pair()
        self._nursery.start_soon(self._server.serve_stream, near, f"192.0.2.1:{self._count}")
        return far


async def asked(stream: trio.StapledStream, body: bytes) -> bytes | None:
    """The body of the answer to a request; None: the connection was closed."""
    await stream.send_all(encode(RemotingCommand(ECHO, body=body)))
    return await answer(stream)


async def answer(stream: trio.StapledStream) -> bytes | None:
    decoder = FrameDecoder()
    while True:
        data = await stream.receive_some(MIB)
        if not data:
            return None
        for command in decoder.receive_data(bytes(data)):
            return command.body


@pytest.mark.slow
async def test_half_frames_of_all_connections_together_stay_below_their_share(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving() as (server, connect):
        share = server.memory.half_frames
        honest = connect()
        strangers = [connect() for _ in range(STRANGERS)]
        for stranger in strangers:
            await stranger.send_all(HALF_FRAME)
            await trio.testing.wait_all_tasks_blocked()
            assert share.used <= share.limit
            assert await asked(honest, b"still served") == b"still served"
        assert share.used > 0
        assert len(server.channels) <= 1 + share.limit // (15 * MIB) + 1
    line = next(line for line in caplog.messages if "half frames" in line)
    assert line.startswith("192.0.2.1:")
    assert str(share.limit) in line
    assert "remotingBytesMax" in line


@pytest.mark.slow
async def test_the_largest_half_frame_gives_way_and_a_smaller_one_is_completed() -> None:
    async with serving() as (server, connect):
        frame = encode(RemotingCommand(ECHO, body=bytes(4 * MIB)))
        slow = connect()
        await slow.send_all(frame[: 3 * MIB])
        for _ in range(5):
            await connect().send_all(HALF_FRAME)
            await trio.testing.wait_all_tasks_blocked()
        await slow.send_all(frame[3 * MIB :])
        assert await answer(slow) == bytes(4 * MIB)
        assert server.memory.half_frames.used <= server.memory.half_frames.limit


async def test_nothing_is_held_for_a_connection_that_is_gone() -> None:
    async with serving() as (server, connect):
        stranger = connect()
        await stranger.send_all(HALF_FRAME)
        await trio.testing.wait_all_tasks_blocked()
        assert server.memory.used >= 15 * MIB
        await stranger.aclose()
        await trio.testing.wait_all_tasks_blocked()
        assert server.memory.used == 0


def test_a_fault_keeps_no_bytes_of_its_frame() -> None:
    """The error's traceback held the frame that was read: a cycle of 16 MiB."""
    gc.disable()
    try:
        decoder = FrameDecoder()
        decoder.receive_data(struct.pack(">ii", 100, 1 << 24 | 60) + bytes(100))
        assert decoder.error is not None
        assert decoder.error.__traceback__ is None
        assert decoder.error.__context__ is None
    finally:
        gc.enable()


@pytest.mark.slow
async def test_a_closed_connection_is_freed_without_the_cyclic_collector() -> None:
    gc.collect()
    gc.disable()
    try:
        async with serving() as (server, connect):
            stranger = connect()
            await trio.testing.wait_all_tasks_blocked()
            before = traced_bytes()
            await stranger.send_all(HALF_FRAME)
            await trio.testing.wait_all_tasks_blocked()
            assert traced_bytes() - before >= 15 * MIB
            server.channels[0].close("for the test")
            assert traced_bytes() - before < MIB
    finally:
        gc.enable()


def traced_bytes() -> int:
    """Bytes that `tracemalloc` knows of; started at the first call."""
    if not tracemalloc.is_tracing():
        tracemalloc.start()
    return tracemalloc.get_traced_memory()[0]


@pytest.fixture(autouse=True)
def stopped_tracing() -> Iterator[None]:
    yield
    tracemalloc.stop()


async def test_a_request_without_memory_costs_its_own_connection_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving() as (server, connect):
        honest, stranger = connect(), connect()
        await stranger.send_all(encode(RemotingCommand(NEEDY)))
        assert await answer(stranger) is None
        assert await asked(honest, b"served") == b"served"
        assert len(server.channels) == 1
    assert "the process has no memory" in caplog.text


TOPIC = "Orders"
STORE_KEYS = {
    "mappedFileSizeCommitLog": 4 * MIB,
    "mappedFileSizeConsumeQueue": 20_000,
    "maxHashSlotNum": 10_000,
    "maxIndexNum": 10_000,
    "flushConsumerOffsetInterval": 600_000,
}


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs RLIMIT_AS")
@pytest.mark.parametrize(
    "budget", [{}, {"remotingBytesMax": 4096 * MIB}], ids=["default budget", "budget too large"]
)
def test_a_broker_with_little_address_space_outlives_half_frames(
    tmp_path: Path, budget: dict[str, int]
) -> None:
    """With the budget too large for the process, allocations fail, and it lives all the same."""
    broker = TrocketBroker(
        tmp_path / "broker",
        store=tmp_path / "store",
        broker_keys=STORE_KEYS | budget,
        command=(sys.executable, "-c", LIMITED, str(ADDRESS_SPACE_BYTES)),
    )
    acknowledged: list[bytes] = []
    try:
        broker.start_broker()
        host, _, port = broker.broker_address.rpartition(":")
        with ExitStack() as stack:
            honest = stack.enter_context(WireClient(broker.broker_address))
            honest.create_topic(TOPIC, queue_count=1)
            for number in range(PROCESS_STRANGERS):
                stranger = socket.create_connection((host, int(port)), timeout=30)
                stack.callback(stranger.close)
                with suppress(ConnectionError):  # closed already: it was the largest
                    stranger.sendall(HALF_FRAME)
                body = b"message %d" % number
                try:
                    honest.send_all([Outgoing(TOPIC, 0, body, "")], together=1)
                    acknowledged.append(body)
                except PeerError:
                    # An allocation may fail for anybody, where the budget is too large.
                    assert budget
                    honest = stack.enter_context(WireClient(broker.broker_address))
        print("anonymous memory:", anonymous_bytes(broker.pids[0]) // MIB, "MiB")
        assert len(acknowledged) > PROCESS_STRANGERS // 2
        with WireClient(broker.broker_address) as later:
            try:
                assert set(acknowledged) <= set(bodies(later))
            except PeerError as error:
                # The heap may keep its addresses, so that no file can be mapped, where the budget
                # is too large: docs/operations.md.
                if not budget or "no room in memory to map the file" not in str(error):
                    raise
        broker.stop_broker()  # raises if it ended before, or not with status 0
        broker.start_broker()
        with WireClient(broker.broker_address) as later:
            assert set(acknowledged) <= set(bodies(later))
        broker.stop_broker()
    finally:
        broker.close()
    log = "".join(path.read_text() for path in (tmp_path / "broker").glob("broker.err"))
    print(log)
    assert "Traceback" not in log
    assert "remotingBytesMax" in log


async def test_the_key_counts_for_every_server(autojump_clock: trio.testing.MockClock) -> None:
    total = 3 * BUDGET_MIN
    async with embedded_broker(remoting_bytes_max=total) as broker:
        assert broker.controller.server is not None
        assert broker.controller.server.memory.half_frames.limit == total * 3 // 8
    filters = FiltersrvConfig(connect_which_broker="127.0.0.1:1", remoting_bytes_max=total)
    filter_server = FiltersrvController(filters, {})
    assert filter_server.server.memory.half_frames.limit == total * 3 // 8
    names = NamesrvController(
        NamesrvConfig(remoting_bytes_max=total), clock=TrioClock(), disk=MemoryDisk()
    )
    assert names.server.memory.half_frames.limit == total * 3 // 8


def test_a_budget_that_holds_no_frame_is_refused() -> None:
    for read, config in (
        (read_broker_config, (BrokerConfig(), MessageStoreConfig())),
        (read_namesrv_config, (NamesrvConfig(),)),
    ):
        with pytest.raises(ConfigError, match=f"remotingBytesMax.*at least {BUDGET_MIN}"):
            read(parse_properties(f"remotingBytesMax={BUDGET_MIN - 1}"), *config)


def bodies(client: WireClient) -> list[bytes]:
    return [decode_record(record).body for record in client.pull_all("readers", TOPIC, 0)]
