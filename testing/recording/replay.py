"""Replays a recording: its requests are sent again, and the answers compared by their codes.

A recording is what `Tape.stop` and `trocket interop record --json` give: an object of JSON a line.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec
import trio
from trio.testing import wait_all_tasks_blocked

from ...remoting.codec import FrameDecoder, decode_frame
from ...remoting.errors import RemoteProtocolError
from ...remoting.poller import RECEIVE_SIZE
from ..errors import EmbeddedBrokerError
from .frame_stream import request_code_of

REPLAY_LIMIT_S: Final = 45.0
"""Seconds of a replay: less than the test kits wait for an answer of the control port (60)."""

_SERVERS_PAIR: Final = "/s"
"""In the pair of requests that a server sent, and of their answers; see `frame_object`."""

Connect = Callable[[int], tuple[object, Callable[[], trio.abc.Stream]]]
"""The server of a request code, and what connects to it."""


class RecordingError(EmbeddedBrokerError):
    """Something is no recording; the text names the line."""


class Replayed(NamedTuple):
    """A request of a recording that was sent again.

    Attributes:
      recorded_code: of the recorded answer; None: there was none.
      code: of the answer now; None: there was none, or none in time.
    """

    request_code: int
    recorded_code: int | None
    code: int | None


class _Line(msgspec.Struct):
    """What a replay reads of a line; bytes that are no frame have no `dir`."""

    connection: int = 0
    dir: str = ""
    pair: str = ""
    code: int = 0
    oneway: bool = False
    frame_hex: str = ""


class Step(NamedTuple):
    """A request to send, or an answer to wait for.

    Attributes:
      connection: of the recording, by number.
      opaque: of the request, and of its answer.
      frame: of a request; None: an answer.
      code: of the request or of the answer.
      is_oneway: a request that is not answered.
    """

    connection: int
    opaque: int
    frame: bytes | None
    code: int
    is_oneway: bool


def read_recording(text: str) -> list[Step]:
    """The steps of a recording; what servers asked clients is left out.

    Raises: RecordingError: a line is not of a recording.
    """
    steps: list[Step] = []
    for number, line in enumerate(text.splitlines(), 1):
        try:
            found = msgspec.json.decode(line, type=_Line)
            if found.dir and _SERVERS_PAIR not in found.pair:
                steps.append(_step(found))
        except (msgspec.MsgspecError, ValueError, RemoteProtocolError) as error:
            raise RecordingError(f"line {number} is not of a recording: {error}") from error
    return steps


def _step(line: _Line) -> Step:
    """Raises: ValueError, RemoteProtocolError: there is no frame in it."""
    frame = bytes.fromhex(line.frame_hex)
    command = decode_frame(frame)
    if command.is_response:
        return Step(line.connection, command.opaque, None, line.code, False)
    code = request_code_of(command)
    return Step(line.connection, command.opaque, frame, code, command.is_oneway)


async def replay(steps: list[Step], connect: Connect) -> list[Replayed]:
    """Send the requests of a recording again, in their order.

    A request is sent when all requests that were answered before it are answered again, so pulls
    that waited for a message wait again. Each recorded connection becomes one.

    Returns: each request with both codes, in the order of the recording.
    """
    player = _Player(connect)
    async with trio.open_nursery() as nursery:
        with trio.move_on_after(REPLAY_LIMIT_S):
            for step in steps:
                if step.frame is None:
                    await player.wait(step)
                else:
                    await player.send(step, step.frame, nursery)
            # Answers that the recording lacks, because of a fault, may be on their way.
            await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    return player.results(steps)


class _Player:
    """The connections of a replay, and the answers on them."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._streams: dict[tuple[int, object], trio.abc.Stream] = {}
        self._codes: dict[tuple[int, int], int | None] = {}
        self._answered: dict[tuple[int, int], trio.Event] = {}

    async def send(self, step: Step, frame: bytes, nursery: trio.Nursery) -> None:
        server, open_stream = self._connect(step.code)
        place = step.connection, server
        if place not in self._streams:
            self._streams[place] = open_stream()
            nursery.start_soon(self._receive, place)
        if not step.is_oneway:
            self._answered[step.connection, step.opaque] = trio.Event()
        try:
            await self._streams[place].send_all(frame)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self._end(place, self._streams[place])

    async def wait(self, step: Step) -> None:
        answered = self._answered.get((step.connection, step.opaque))
        if answered is not None:  # else its request came before the recording
            await answered.wait()

    async def _receive(self, place: tuple[int, object]) -> None:
        """Take the answers on a connection until it ends."""
        stream, decoder = self._streams[place], FrameDecoder()
        try:
            while data := await stream.receive_some(RECEIVE_SIZE):
                for command in decoder.receive_data(bytes(data)):
                    key = place[0], command.opaque
                    if command.is_response and key in self._answered:
                        self._codes.setdefault(key, command.code)
                        self._answered[key].set()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the server has closed it, as a test may have wanted
        finally:
            self._end(place, stream)
            await trio.aclose_forcefully(stream)

    def _end(self, place: tuple[int, object], stream: trio.abc.Stream) -> None:
        """Wait for no more answers on a connection; the next request there makes another."""
        if self._streams.get(place) is stream:
            del self._streams[place]
        for (connection, _), answered in self._answered.items():
            if connection == place[0]:
                answered.set()

    def results(self, steps: list[Step]) -> list[Replayed]:
        recorded = {
            (step.connection, step.opaque): step.code for step in steps if step.frame is None
        }
        return [
            Replayed(step.code, recorded.get(key), self._codes.get(key))
            for step in steps
            if step.frame is not None
            for key in [(step.connection, step.opaque)]
        ]
