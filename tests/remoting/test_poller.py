"""The poller, on socket pairs."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from functools import partial

import pytest
import trio
import trio.testing

from trocket.remoting.poller import CLOCK_SOCKETS, TURN_TIME_MAX_S, SocketPoller
from trocket.remoting.turn import Turn


@pytest.fixture
def pairs() -> Iterator[list[tuple[socket.socket, socket.socket]]]:
    made = [socket.socketpair() for _ in range(3)]
    for near, _ in made:
        near.setblocking(False)
    yield made
    for near, far in made:
        near.close()
        far.close()


async def test_all_that_is_readable_at_one_moment_is_one_turn(
    pairs: list[tuple[socket.socket, socket.socket]],
) -> None:
    ends: list[int] = []
    read: list[bytes] = []
    turn = Turn(lambda: ends.append(len(read)))
    poller = SocketPoller(turn)
    for near, far in pairs:
        poller.add(near, lambda near=near: read.append(near.recv(10)))
        far.send(b"x")
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(poller.run)
            while len(read) < 3:
                await trio.testing.wait_all_tasks_blocked(0.001)
            nursery.cancel_scope.cancel()
    assert read == [b"x"] * 3
    assert ends == [3]
    assert not turn.active


async def test_a_socket_that_a_callback_removed_is_not_called_any_more(
    pairs: list[tuple[socket.socket, socket.socket]],
) -> None:
    poller = SocketPoller(Turn())
    called: list[int] = []

    def read_and_remove_the_others(number: int) -> None:
        called.append(number)
        pairs[number][0].recv(10)
        for near, _ in pairs:
            poller.remove(near)

    for number, (near, far) in enumerate(pairs):
        poller.add(near, lambda number=number: read_and_remove_the_others(number))
        far.send(b"x")
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(poller.run)
            while not called:
                await trio.testing.wait_all_tasks_blocked(0.001)
            await trio.testing.wait_all_tasks_blocked(0.001)
            nursery.cancel_scope.cancel()
    assert len(called) == 1


async def test_after_its_end_sockets_may_still_be_added_and_removed(
    pairs: list[tuple[socket.socket, socket.socket]],
) -> None:
    poller = SocketPoller(Turn())
    near = pairs[0][0]
    poller.add(near, lambda: None)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(poller.run)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    poller.remove(near)
    poller.add(near, lambda: None)
    poller.remove(near)
    assert near.fileno() >= 0


async def test_a_turn_ends_in_time_and_the_next_one_begins_with_the_rest() -> None:
    pairs = [socket.socketpair() for _ in range(3 * CLOCK_SOCKETS)]
    clock_s, turns, served = [0.0], [0], list[int]()
    rounds: list[list[int]] = []

    def end_turn() -> None:
        turns[0] += 1
        rounds.append(list(served))
        served.clear()

    def on_readable(number: int) -> None:
        served.append(number)  # and does not read: it is readable again at once
        clock_s[0] += TURN_TIME_MAX_S / CLOCK_SOCKETS * 1.1

    poller = SocketPoller(Turn(end_turn), elapsed_s=lambda: clock_s[0])
    for number, (near, far) in enumerate(pairs):
        poller.add(near, partial(on_readable, number))
        far.send(b"x")
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(poller.run)
            while turns[0] < 6:
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
    for near, far in pairs:
        near.close()
        far.close()
    assert {len(one) for one in rounds[:6]} == {CLOCK_SOCKETS}
    for first in (0, 3):
        three = [number for one in rounds[first : first + 3] for number in one]
        assert sorted(three) == list(range(len(pairs)))
