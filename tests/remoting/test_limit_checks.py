"""The check of all connections' limits: silent ones cost little, many are checked in parts, and an
ended connection leaves nothing that only the garbage collector could free."""

from __future__ import annotations

import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.abc
import trio.testing

from trocket.common.connection_policy import ConnectionPolicy
from trocket.remoting import server as server_module
from trocket.remoting.codec import RemotingCommand, encode
from trocket.remoting.connection import Connection, ConnectionLimits
from trocket.remoting.server import RemotingServer
from trocket.remoting.turn import Turn

from .test_connection import ECHO, SILENT, FarEnd, Service

CONNECTIONS = 50
PART = 10


class Served:
    """A server with many clients, each of which was answered once."""

    def __init__(self, server: RemotingServer, service: Service, nursery: trio.Nursery) -> None:
        self.server, self.service, self._nursery = server, service, nursery
        self.peers: list[FarEnd] = []

    async def connect(self, *, lockstep: bool = False) -> FarEnd:
        make = trio.testing.lockstep_stream_pair if lockstep else trio.testing.memory_stream_pair
        near, far = make()
        self._nursery.start_soon(self.server.serve_stream, near)
        peer = FarEnd(far)
        assert await peer.ask(RemotingCommand(ECHO)) is not None
        self.peers.append(peer)
        return peer


@asynccontextmanager
async def served(
    count: int = CONNECTIONS, limits: ConnectionLimits | None = None
) -> AsyncIterator[Served]:
    service = Service()
    server = RemotingServer(
        service.processors(),
        turn=Turn(service.end_turn),
        on_channel_closed=service.closed.append,
        limits=limits,
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(server.serve, [])
        clients = Served(server, service, nursery)
        for _ in range(count):
            await clients.connect()
        yield clients
        nursery.cancel_scope.cancel()


async def test_silent_connections_are_not_examined_each_second(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    examined = 0
    exceeds_policy = Connection._exceeds_policy

    def counted(self: Connection, now_s: float, *, is_crowded: bool) -> bool:
        nonlocal examined
        examined += 1
        return exceeds_policy(self, now_s, is_crowded=is_crowded)

    async with served() as clients:
        await trio.sleep(5)
        monkeypatch.setattr(Connection, "_exceeds_policy", counted)
        await trio.sleep(60)
        assert examined == 0
        await clients.peers[0].ask(RemotingCommand(ECHO))
        await trio.sleep(40)
        assert examined == 1
        await trio.sleep(30)
        # All but the one that asked have been idle for too long.
        assert len(clients.service.closed) == CONNECTIONS - 1
        assert await clients.peers[0].ask(RemotingCommand(ECHO)) is not None


class Parts(trio.abc.Instrument):
    """How often connections are checked within one step of a task, at most."""

    def __init__(self) -> None:
        self.most = self._now = 0

    def checked(self) -> None:
        self._now += 1
        self.most = max(self.most, self._now)

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._now = 0


async def test_many_connections_are_checked_in_parts(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "SWEEP_COUNT", PART)
    parts = Parts()
    enforce_limits = Connection.enforce_limits
    checked: set[Connection] = set()

    def counted(self: Connection, now_s: float, *, is_crowded: bool = False) -> None:
        checked.add(self)
        parts.checked()
        enforce_limits(self, now_s, is_crowded=is_crowded)

    async with served() as clients:
        monkeypatch.setattr(Connection, "enforce_limits", counted)
        trio.lowlevel.add_instrument(parts)
        await trio.sleep(1.5)
        trio.lowlevel.remove_instrument(parts)
        assert checked == set(clients.server.served)
        assert len(checked) == CONNECTIONS
    assert parts.most == PART


async def test_a_connection_that_ends_during_a_check_is_left_out(
    autojump_clock: trio.testing.MockClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A line that it was closed for a limit would be wrong."""
    monkeypatch.setattr(server_module, "SWEEP_COUNT", 1)
    enforce_limits = Connection.enforce_limits
    checked: list[Connection] = []

    def counted(self: Connection, now_s: float, *, is_crowded: bool = False) -> None:
        checked.append(self)
        clients.server._connections.intersection_update({self})  # as if the others had ended
        enforce_limits(self, now_s, is_crowded=is_crowded)

    async with served(5) as clients:
        monkeypatch.setattr(Connection, "enforce_limits", counted)
        await trio.sleep(1.5)
        assert len(checked) == 1


async def test_a_half_frame_after_silence_has_its_time(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with served(1, ConnectionLimits(frame_s=30)) as clients:
        await trio.sleep(60)
        peer, begin_s = clients.peers[0], trio.current_time()
        await peer.stream.send_all(encode(RemotingCommand(ECHO))[:-1])
        assert await peer.receive() is None
        assert 30 < trio.current_time() - begin_s < 34
        await trio.testing.wait_all_tasks_blocked()
        assert "a frame was not complete 30 s" in clients.service.closed[0].close_reason


async def test_answers_that_wait_after_silence_have_their_time(
    autojump_clock: trio.testing.MockClock,
) -> None:
    limits = ConnectionLimits(policy=ConnectionPolicy(unread_answers_timeout_seconds=20))
    async with served(0, limits) as clients:
        peer = await clients.connect(lockstep=True)
        await peer.send(RemotingCommand(SILENT))
        await trio.sleep(60)
        (channel,) = clients.service.channels
        begin_s = trio.current_time()
        channel.send_oneway(RemotingCommand(40))
        with trio.move_on_after(60):
            while not channel.closed:  # noqa: ASYNC110
                await trio.sleep(0.5)
        assert 20 < trio.current_time() - begin_s < 24
        assert "has not read its answers" in channel.close_reason


async def test_an_ended_connection_is_freed_without_the_garbage_collector() -> None:
    async with served(20) as clients:
        ended = [weakref.ref(each) for each in clients.server.served]
        for peer in clients.peers:
            await peer.stream.aclose()
        await trio.testing.wait_all_tasks_blocked()
        assert len(clients.service.closed) == len(ended)
        clients.service.closed.clear()
        assert [each() for each in ended] == [None] * len(ended)
