"""An exception at the end of a turn, in one callback or one channel's flush, ended the process."""

from __future__ import annotations

import socket

import pytest
import trio
import trio.testing

from trocket.broker.waiting.pull_request_hold import HeldPull, PullRequestHoldService
from trocket.remoting.channel import Channel
from trocket.remoting.poller import SocketPoller
from trocket.remoting.transport import StreamTransport
from trocket.remoting.turn import Turn

from ..broker.harness import held_pull
from ..kit import broker_and_client, embedded_broker, pull_fields, send_fields

SEND, PULL = 310, 11
SUCCESS, PULL_NOT_FOUND = 0, 19


class Outbox:
    """A channel with something to send."""

    def __init__(self, error: Exception | None = None) -> None:
        self.is_flushed = False
        self.close_reason = ""
        self._error = error

    def flush(self) -> None:
        if self._error is not None:
            raise self._error
        self.is_flushed = True

    def close(self, reason: str) -> None:
        self.close_reason = reason


@pytest.mark.parametrize("error", [RuntimeError("bug"), OSError("bug"), MemoryError("bug")])
def test_a_failing_callback_does_not_keep_answers_back(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise error

    turn, channel = Turn(fail), Outbox()
    turn.active = True
    turn.dirty.append(channel)
    turn.end()
    assert channel.is_flushed
    assert (turn.active, turn.dirty) == (False, [])
    assert "the end of a turn failed" in caplog.text


def test_a_failing_flush_costs_its_own_connection_only() -> None:
    turn = Turn()
    channels = [Outbox(), Outbox(KeyError("bug")), Outbox()]
    turn.active = True
    turn.dirty += channels
    turn.end()
    assert [channel.is_flushed for channel in channels] == [True, False, True]
    assert [bool(channel.close_reason) for channel in channels] == [False, True, False]


def test_what_ends_the_process_is_raised_on() -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    turn, channel = Turn(stop), Outbox()
    turn.dirty.append(channel)
    with pytest.raises(KeyboardInterrupt):
        turn.end()
    assert channel.is_flushed


async def test_a_failing_reader_costs_its_own_socket_only() -> None:
    poller = SocketPoller(Turn())
    (bad, bad_peer), (good, good_peer) = socket.socketpair(), socket.socketpair()
    done = trio.Event()

    def fail() -> None:
        raise RuntimeError("bug")

    def read() -> None:
        good.recv(10)
        if read_again:
            done.set()
        read_again.append(True)
        good_peer.send(b"x")

    read_again: list[bool] = []
    with bad, bad_peer, good, good_peer, trio.fail_after(10):
        poller.add(bad, fail)
        poller.add(good, read)
        bad_peer.send(b"x")
        good_peer.send(b"x")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(poller.run)
            await done.wait()
            nursery.cancel_scope.cancel()
        assert bad_peer.recv(10) == b""  # shut down: its client connects anew


@pytest.mark.slow
async def test_a_poll_that_fails_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """epoll_wait fails once for good: its descriptor has become another file's."""
    poller = SocketPoller(Turn())
    near, far = socket.socketpair()
    done = trio.Event()
    waits = []

    async def fail_once(descriptor: int) -> None:
        waits.append(descriptor)
        if len(waits) == 1:
            raise OSError(9, "Bad file descriptor")
        await wait_readable(descriptor)

    wait_readable = trio.lowlevel.wait_readable
    monkeypatch.setattr(trio.lowlevel, "wait_readable", fail_once)
    with near, far, trio.fail_after(10):
        poller.add(near, done.set)
        far.send(b"x")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(poller.run)
            await done.wait()
            nursery.cancel_scope.cancel()


async def test_a_send_whose_commit_fails_is_not_answered_with_success(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with broker_and_client() as (broker, client):
        assert (await client.ask(SEND, send_fields(), b"first")).code == SUCCESS
        store = broker.controller.store

        def fail(position: int, data: bytes) -> None:
            raise MemoryError("no memory for the join")

        with monkeypatch.context() as patch:
            patch.setattr(store.log, "write", fail)
            assert (await client.ask(SEND, send_fields(), b"second")).code != SUCCESS
        assert (await client.ask(SEND, send_fields(), b"third")).code == SUCCESS
        found = await client.ask(PULL, pull_fields())
        assert found.code == SUCCESS
        assert b"first" in found.body
        assert b"second" not in found.body
        assert b"third" in found.body


async def test_a_turn_that_fails_closes_the_connections_of_its_senders(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with broker_and_client() as (broker, client):

        def fail() -> None:
            raise KeyError("bug")

        with monkeypatch.context() as patch:
            patch.setattr(broker.controller.transactions, "before_commit", fail)
            with pytest.raises(trio.EndOfChannel):
                await client.ask(SEND, send_fields(), b"first")
        client = await broker.connect()
        assert (await client.ask(SEND, send_fields(), b"second")).code == SUCCESS
        found = await client.ask(PULL, pull_fields())
        assert b"second" in found.body
        assert b"first" not in found.body


async def test_a_failing_listener_of_new_messages_costs_no_send(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with embedded_broker() as broker:
        sender, puller = await broker.connect(), await broker.connect()
        assert (await sender.ask(SEND, send_fields(), b"first")).code == SUCCESS

        def fail(queues: object) -> None:
            raise RuntimeError("bug")

        broker.controller.parts.foundation.new_messages.subscribe(fail)
        assert (await sender.ask(SEND, send_fields(), b"second")).code == SUCCESS
        assert b"second" in (await puller.ask(PULL, pull_fields())).body


async def test_a_held_pull_that_fails_costs_its_own_connection_only() -> None:
    turn = Turn()
    pulls = [held_by(turn) for _ in range(3)]
    answered: list[HeldPull] = []

    def resume(held: HeldPull, over: bool) -> bool:
        if held is pulls[1]:
            raise RuntimeError("bug")
        answered.append(held)
        return True

    service = PullRequestHoldService(resume, elapsed_s=lambda: 0.0)
    for held in pulls:
        service.hold(held)
    service.notify_messages([("T", 0)])
    assert answered == [pulls[0], pulls[2]]
    assert [held.pull.channel.closed for held in pulls] == [False, True, False]
    assert service.count == 0


def held_by(turn: Turn) -> HeldPull:
    near, _ = trio.testing.memory_stream_pair()
    return held_pull(Channel(StreamTransport(near), turn))
