"""Bursts: runs are served between the requests around them, and everything else is decoded."""

from __future__ import annotations

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from trocket import native
from trocket.remoting.burst_reader import BurstReader, RunProcessor
from trocket.remoting.channel import Answer, Buffer, Channel
from trocket.remoting.codec import RemotingCommand, decode_frame, encode
from trocket.remoting.session import Session, State
from trocket.remoting.turn import Turn

needs_extension = pytest.mark.skipif(
    native.extension is None, reason="only the C extension recognises plain sends"
)

SEND_CODE, PULL_CODE = 310, 11
SEND_FIELDS = {
    "a": "PG", "b": "T", "e": "0", "f": "0", "g": "1700000000000", "h": "0", "j": "0",
    "i": "UNIQ_KEY\1A\2",
}  # fmt: skip


def send_frame(serialize_type: int = 1) -> bytes:
    return encode(RemotingCommand(SEND_CODE, SEND_FIELDS, b"body", serialize_type=serialize_type))


def ask_frame(serialize_type: int = 1) -> bytes:
    return encode(RemotingCommand(30, {"topic": "T"}, opaque=7, serialize_type=serialize_type))


class Mute:
    """A transport that sends nothing."""

    remote_address = local_address = "192.0.2.1:1"

    def send_nowait(self, buffers: list[Buffer]) -> list[Buffer]:
        return buffers

    async def send_all(self, buffers: list[Buffer]) -> None:
        await trio.sleep_forever()

    def abort(self) -> None:
        pass


def process(request: RemotingCommand, channel: Channel) -> Answer:
    """The processor that the runs replace."""
    return None


class Broker:
    """Takes sends of one form in runs, and pulls by `take_pulls`.

    Attributes:
      served: what was asked for, in order: the size of a run, or the events.
      declines: no run is served.
    """

    def __init__(self, send: bytes, *, declines: bool = False, frame_size_max: int = 1000) -> None:
        self.channel = Channel(Mute(), Turn(), frame_size_max=frame_size_max)
        self.processors = {SEND_CODE: process}
        self.served: list[object] = []
        self.declines = declines
        self.pull = b""
        self._send = send
        runs = RunProcessor(self.serve, {SEND_CODE: process}, self.take_pulls)
        self.reader = BurstReader(self.channel, self.processors, runs)

    def serve(
        self,
        data: bytes,
        position: int,
        frame_size_max: int,
        channel: Channel,
        counts: dict[int, int],
    ) -> int:
        end = position
        while not self.declines and data.startswith(self._send, end):
            end += len(self._send)
        size = end - position
        self.served.append(size // len(self._send))
        if size:
            counts[SEND_CODE] = counts.get(SEND_CODE, 0) + size // len(self._send)
        return size

    def take_pulls(
        self,
        data: bytes,
        position: int,
        frame_size_max: int,
        channel: Channel,
        commands: list[RemotingCommand],
    ) -> int:
        """Hold the first pull, and decode the second."""
        for is_held in (True, False):
            if self.pull and data.startswith(self.pull, position):
                if not is_held:
                    commands.append(decode_frame(self.pull))
                position += len(self.pull)
        return position

    def read(self, *pieces: bytes) -> None:
        for piece in pieces:
            for events in self.reader.read(piece):
                self.served.append(list(events))


@needs_extension
@pytest.mark.parametrize("serialize_type", [0, 1])
def test_a_run_is_served_after_the_requests_before_it(serialize_type: int) -> None:
    send, ask = send_frame(serialize_type), ask_frame(serialize_type)
    data = send * 2 + ask * 2 + send + ask + send
    broker, asked = Broker(send), decode_frame(ask)
    whole = [2, [asked] * 2, 1, [asked], 1]
    broker.read(data)
    assert broker.served == whole
    assert (broker.reader.run_counts, broker.reader.has_taken) == ({SEND_CODE: 4}, True)
    broker.read(data[:-1], data[-1:] + data[:1], data[1:])
    # The last send of the first piece is whole only in the second, the first of it in the third.
    assert broker.served == whole + whole[:4] + [1] + whole
    assert broker.channel.session.state is State.OPEN


@needs_extension
def test_a_send_that_is_no_run_is_decoded_and_the_next_one_is_offered_again() -> None:
    send, ask = send_frame(), ask_frame()
    broker = Broker(send, declines=True)
    broker.read(send * 2 + ask)
    sent, asked = decode_frame(send), decode_frame(ask)
    assert broker.served == [0, [sent], 0, [sent, asked]]
    assert (broker.reader.run_counts, broker.reader.has_taken) == ({}, False)


@needs_extension
def test_a_connection_that_is_closed_before_a_run_keeps_no_bytes() -> None:
    send, ask = send_frame(), ask_frame()
    broker = Broker(send)
    session = broker.channel.session
    events = broker.reader.read(ask + send + ask + send[:-1])
    assert next(events) == [decode_frame(ask)]
    session.close("test")
    assert list(events) == [[decode_frame(ask)]]
    assert (session.state, session.partial_size, broker.served) == (State.CLOSED, 0, [1])


@pytest.mark.parametrize("has_runs", [True, False])
def test_without_the_usual_processors_everything_is_decoded(has_runs: bool) -> None:
    send, ask = send_frame(), ask_frame()
    broker = Broker(send)
    if has_runs:
        broker.processors[SEND_CODE] = lambda request, channel: None  # as a fault does
    else:
        broker.reader = BurstReader(broker.channel, broker.processors, None)
    broker.read(send + ask, send)
    assert broker.served == [[decode_frame(send), decode_frame(ask)], [decode_frame(send)]]
    assert not broker.reader.has_taken


def test_pulls_at_the_beginning_are_taken_and_the_others_decoded() -> None:
    broker, ask = Broker(send_frame()), ask_frame()
    broker.pull = encode(RemotingCommand(PULL_CODE, {"topic": "T"}, serialize_type=1))
    pull, asked = decode_frame(broker.pull), decode_frame(ask)
    broker.read(broker.pull * 3 + ask + broker.pull, broker.pull, ask)
    assert broker.served == [[pull, pull, asked, pull], [asked]]
    assert not broker.reader.has_taken
    broker.read(broker.pull)
    assert broker.reader.has_taken, "so the connection is not idle"


frames = st.sampled_from(
    [send_frame(0), send_frame(1), ask_frame(0), ask_frame(1), b"\0\0\0\x06GET", bytes(9)]
)
bursts = st.lists(frames | st.binary(max_size=30), max_size=6).map(b"".join)


@given(bursts, st.integers(0, 2_000), st.booleans())
def test_whatever_the_bytes_the_same_requests_are_served(
    data: bytes, cut: int, declines: bool
) -> None:
    send = send_frame()
    broker, plain = Broker(send, declines=declines), Session[None]("peer", frame_size_max=1000)
    broker.read(data[:cut], data[cut:])
    expected = [*plain.receive_data(data[:cut]), *plain.receive_data(data[cut:])]
    found = [
        each
        for some in broker.served
        for each in ([decode_frame(send)] * some if isinstance(some, int) else some)
    ]
    session = broker.channel.session
    assert found == expected
    assert (session.state, session.partial_size) == (plain.state, plain.partial_size)
    assert (session.error is None) == (plain.error is None)
    if plain.error is not None and declines:
        assert str(session.error) == str(plain.error)
