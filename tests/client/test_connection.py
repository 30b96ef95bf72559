"""The client's connection on a stream in memory and virtual time: answers, time-outs, ends."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from tests.kit.client import Client as Far
from trocket.client.connection.connection import OUTBOX_SIZE_MAX, Connection
from trocket.client.connection.transport import StreamTransport, Take
from trocket.client.errors import ClientError, ConnectError, RequestTimeoutError
from trocket.remoting.codec import RemotingCommand, encode
from trocket.remoting.request_codes import RequestCode
from trocket.testing.memory_stream import MemoryStream

PULL, NOTIFY = RequestCode.PULL_MESSAGE, RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
ADDRESS = "192.0.2.1:10911"


class Ends:
    """Both ends of a connection, and what the client's end was given."""

    def __init__(self, *, lockstep: bool = False) -> None:
        make = trio.testing.lockstep_stream_pair if lockstep else trio.testing.memory_stream_pair
        near, far = make()
        self.far = Far(far)
        self.requests: list[RemotingCommand] = []
        self.answers: list[RemotingCommand | ClientError] = []
        self.connection = Connection(
            StreamTransport(MemoryStream(near)),
            ADDRESS,
            lambda _, request: self.requests.append(request),
        )

    def submit(self, opaque: int, timeout_s: float = 3.0) -> None:
        frame = encode(RemotingCommand(PULL, opaque=opaque))
        self.connection.submit(frame, opaque, self.answers.append, timeout_s, PULL)


@asynccontextmanager
async def connected(*, lockstep: bool = False) -> AsyncIterator[Ends]:
    ends = Ends(lockstep=lockstep)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ends.connection.run)
        yield ends
        nursery.cancel_scope.cancel()


async def test_answers_find_their_requests_and_the_peers_requests_are_handed_on():
    async with connected() as ends:
        for opaque in (5, 6):
            ends.submit(opaque)
        five, six = await ends.far.asked(), await ends.far.asked()
        frames = [six.answer(1), RemotingCommand(NOTIFY, opaque=5), five.answer(2)]
        await ends.far.write(b"".join(map(encode, frames)))
        await trio.testing.wait_all_tasks_blocked()
        assert [(each.opaque, each.code) for each in ends.answers] == [(6, 1), (5, 2)]
        assert [each.code for each in ends.requests] == [NOTIFY]


async def test_an_answer_counts_that_arrived_while_the_loop_was_held_up(mock_clock):
    async with connected() as ends:
        for opaque in range(20):  # trio wakes the reader and the timer in any order
            ends.submit(opaque, timeout_s=1)
            asked = await ends.far.asked()
            await trio.testing.wait_all_tasks_blocked()
            await ends.far.write(encode(asked.answer(0)))
            mock_clock.jump(2)  # no other task has run since the answer arrived
            await trio.testing.wait_all_tasks_blocked()
        assert [type(each) for each in ends.answers] == [RemotingCommand] * 20


async def test_each_request_is_given_up_at_its_time(autojump_clock):
    async with connected() as ends:
        begun_s = trio.current_time()
        ended_s: list[float] = []

        async def call(timeout_s: float, opaque: int) -> None:
            with pytest.raises(RequestTimeoutError, match=f"PULL_MESSAGE within {timeout_s:g} s"):
                await ends.connection.call(RemotingCommand(PULL, opaque=opaque), timeout_s)
            ended_s.append(trio.current_time() - begun_s)

        async with trio.open_nursery() as nursery:
            # The second is due before the one that the timer was set to.
            nursery.start_soon(call, 5, 1)
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(call, 2, 2)
        assert [round(each, 3) for each in ended_s] == [2, 5]
        assert not ends.connection.closed


async def test_an_answer_that_comes_too_late_is_dropped(autojump_clock):
    async with connected() as ends:
        ends.submit(1, timeout_s=1.0)
        request = await ends.far.asked()
        await trio.sleep(2)
        await ends.far.reply(request.answer(0))
        await trio.testing.wait_all_tasks_blocked()
        assert [type(each) for each in ends.answers] == [RequestTimeoutError]


async def test_a_forgotten_request_hears_nothing(autojump_clock):
    async with connected() as ends:
        ends.submit(1, timeout_s=1.0)
        ends.connection.forget(1)
        await ends.far.reply((await ends.far.asked()).answer(0))
        await trio.sleep(2)
        assert ends.answers == []


async def test_a_lost_connection_ends_what_waits_and_takes_nothing_more():
    async with connected() as ends:
        ends.submit(1)
        await ends.far.asked()
        await ends.far.stream.aclose()
        await trio.testing.wait_all_tasks_blocked()
        (error,) = ends.answers
        assert isinstance(error, ConnectError)
        assert str(error) == (f"{ADDRESS}: the peer closed the connection, before the answer came")
        assert ends.connection.closed
        with pytest.raises(ConnectError, match="the connection is closed"):
            ends.submit(2)
        with pytest.raises(ConnectError, match="the connection is closed"):
            ends.connection.send_oneway(b"")


async def test_closed_by_us():
    async with connected() as ends:
        ends.submit(1)
        ends.connection.close("the client is closed")
        (error,) = ends.answers
        assert str(error) == f"{ADDRESS}: the client is closed, before the answer came"


async def test_the_answers_before_a_bad_frame_count_and_what_they_lead_to_is_refused():
    """A callback may submit again while the connection has failed already."""
    async with connected() as ends:
        errors: list[ClientError] = []

        def again(_: object) -> None:
            try:
                ends.submit(3)
            except ClientError as error:
                errors.append(error)

        ends.connection.submit(encode(RemotingCommand(PULL, opaque=1)), 1, again, 3.0, PULL)
        ends.submit(2)
        request = await ends.far.asked()
        await ends.far.write(encode(request.answer(0)) + b"HTTP/1.1 400 Bad Request")
        await trio.testing.wait_all_tasks_blocked()
        assert [type(each) for each in errors] == [ConnectError]
        (lost,) = ends.answers
        assert "the peer broke the protocol: frame length" in str(lost)


async def test_a_slow_peer_slows_who_waits_for_it():
    async with connected(lockstep=True) as ends:
        frame = encode(RemotingCommand(PULL, body=bytes(OUTBOX_SIZE_MAX)))
        ends.connection.send_oneway(frame)
        await trio.testing.wait_all_tasks_blocked()
        ends.connection.send_oneway(frame)
        assert ends.connection.is_backed_up
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ends.connection.wait_writable)
            await ends.far.asked()
        assert not ends.connection.is_backed_up


class Recorder:
    """A transport that notes what it is given, and takes at most some bytes at once."""

    def __init__(self, taken_at_once: int) -> None:
        self._left = taken_at_once
        self.sent: list[bytes] = []

    def send_nowait(self, data: bytes) -> bytes:
        taken, rest = data[: self._left], data[self._left :]
        self._left -= len(taken)
        if taken:
            self.sent.append(taken)
        return rest

    async def send(self, data: bytes | memoryview) -> None:
        self.sent.append(bytes(data))

    async def receive(self, take: Take) -> None:
        self.take = take
        await trio.sleep_forever()

    async def aclose(self) -> None:
        pass


@asynccontextmanager
async def recorded(taken_at_once: int = 1 << 20) -> AsyncIterator[tuple[Connection, Recorder]]:
    transport = Recorder(taken_at_once)
    connection = Connection(transport, ADDRESS, lambda _, request: None)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(connection.run)
        await trio.testing.wait_all_tasks_blocked()
        yield connection, transport
        nursery.cancel_scope.cancel()


def submit(connection: Connection, opaque: int, *, at_once: bool) -> bytes:
    frame = encode(RemotingCommand(PULL, opaque=opaque))
    connection.submit(frame, opaque, lambda answer: None, 3.0, PULL, at_once=at_once)
    return frame


async def test_of_requests_made_together_only_the_first_is_sent_in_its_call():
    async with recorded() as (connection, transport):
        first = submit(connection, 1, at_once=True)
        assert transport.sent == [first]
        others = [submit(connection, opaque, at_once=True) for opaque in (2, 3)]
        assert transport.sent == [first]
        await trio.testing.wait_all_tasks_blocked()
        assert transport.sent == [first, b"".join(others)]
        # An answer begins the next round.
        transport.take(encode(RemotingCommand(PULL, opaque=1).answer(0)))
        fourth = submit(connection, 4, at_once=True)
        assert transport.sent[2:] == [fourth]


async def test_pipelined_requests_share_a_call_from_the_first():
    async with recorded() as (connection, transport):
        frames = [submit(connection, opaque, at_once=False) for opaque in (1, 2)]
        assert transport.sent == []
        await trio.testing.wait_all_tasks_blocked()
        assert transport.sent == [b"".join(frames)]


async def test_a_request_overtakes_none_that_wait():
    async with recorded() as (connection, transport):
        frames = [submit(connection, 1, at_once=False), submit(connection, 2, at_once=True)]
        await trio.testing.wait_all_tasks_blocked()
        assert transport.sent == [b"".join(frames)]


async def test_a_frame_that_is_sent_in_part_is_completed_before_the_next():
    async with recorded(taken_at_once=5) as (connection, transport):
        frames = [submit(connection, 1, at_once=True), submit(connection, 2, at_once=True)]
        assert transport.sent == [frames[0][:5]]
        await trio.testing.wait_all_tasks_blocked()
        assert b"".join(transport.sent) == b"".join(frames)
