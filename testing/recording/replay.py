"""Replays a recording: its requests are sent again, and the answers compared by their codes.

A recording is what `Tape.stop` and `trocket interop record --json` give: an object of JSON a line.
"""

from __future__ import annotations

from collections import deque
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
    frame_hex: str = ""


class Step(NamedTuple):
    """A request to send, or an answer to wait for.

    Attributes:
      request: the number of the request, or of that which is answered, 0 for the first one.
      connection: of the recording, by number.
      opaque: of the request, and of its answer.
      frame: of a request; None: an answer.
      code: of the request or of the answer.
    """

    request: int
    connection: int
    opaque: int
    frame: bytes | None
    code: int


def read_recording(text: str) -> list[Step]:
    """The steps of a recording. What servers asked clients is left out, and so are answers whose
    requests came before the recording.

    Raises: RecordingError: a line is not of a recording.
    """
    steps: list[Step] = []
    reader = _Reader()
    for number, line in enumerate(text.splitlines(), 1):
        try:
            found = msgspec.json.decode(line, type=_Line)
            if found.dir and _SERVERS_PAIR not in found.pair:
                step = reader.step(found)
                steps += [] if step is None else [step]
        except (msgspec.MsgspecError, ValueError, RemoteProtocolError) as error:
            raise RecordingError(f"line {number} is not of a recording: {error}") from error
    return steps


class _Waiting:
    """The numbers of requests without an answer on one connection; some clients use an opaque
    again."""

    def __init__(self) -> None:
        self._numbers: dict[int, deque[int]] = {}

    def add(self, opaque: int, number: int) -> None:
        """Have a request wait."""
        self._numbers.setdefault(opaque, deque()).append(number)

    def take(self, opaque: int) -> int | None:
        """The number of the request that an answer is for; None: it is for none of them."""
        numbers = self._numbers.get(opaque)
        return numbers.popleft() if numbers else None

    def take_all(self) -> list[int]:
        """The numbers of those that get no answer any more."""
        numbers = [each for every in self._numbers.values() for each in every]
        self._numbers.clear()
        return numbers


class _Reader:
    """Reads the lines of a recording."""

    def __init__(self) -> None:
        self._count = 0
        self._waiting: dict[int, _Waiting] = {}

    def step(self, line: _Line) -> Step | None:
        """The step of a line, if it is one.

        Raises: ValueError, RemoteProtocolError: no frame is there.
        """
        frame = bytes.fromhex(line.frame_hex)
        command = decode_frame(frame)
        connection, opaque = line.connection, command.opaque
        waiting = self._waiting.setdefault(connection, _Waiting())
        if command.is_response:
            number = waiting.take(opaque)
            return None if number is None else Step(number, connection, opaque, None, command.code)
        number = self._count
        self._count += 1
        if not command.is_oneway:
            waiting.add(opaque, number)
        return Step(number, connection, opaque, frame, request_code_of(command))


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


class _Link(NamedTuple):
    """A connection of a replay."""

    stream: trio.abc.Stream
    waiting: _Waiting


class _Player:
    """The connections of a replay, and the answers on them."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._links: dict[tuple[int, object], _Link] = {}
        self._codes: dict[int, int] = {}
        self._ended: dict[int, trio.Event] = {}

    async def send(self, step: Step, frame: bytes, nursery: trio.Nursery) -> None:
        server, open_stream = self._connect(step.code)
        place = step.connection, server
        link = self._links.get(place)
        if link is None:
            link = self._links[place] = _Link(open_stream(), _Waiting())
            nursery.start_soon(self._receive, place, link)
        self._ended[step.request] = trio.Event()
        if not decode_frame(frame).is_oneway:
            link.waiting.add(step.opaque, step.request)
        try:
            await link.stream.send_all(frame)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self._end(place, link)

    async def wait(self, step: Step) -> None:
        await self._ended[step.request].wait()

    async def _receive(self, place: tuple[int, object], link: _Link) -> None:
        """Take the answers on a connection until it ends."""
        decoder = FrameDecoder()
        try:
            while data := await link.stream.receive_some(RECEIVE_SIZE):
                for command in decoder.receive_data(bytes(data)):
                    number = link.waiting.take(command.opaque) if command.is_response else None
                    if number is not None:
                        self._codes[number] = command.code
                        self._ended[number].set()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the server has closed it, as a test may have wanted
        finally:
            self._end(place, link)
            await trio.aclose_forcefully(link.stream)

    def _end(self, place: tuple[int, object], link: _Link) -> None:
        """Wait for no more answers on a connection; the next request there makes another."""
        if self._links.get(place) is link:
            del self._links[place]
        for number in link.waiting.take_all():
            self._ended[number].set()

    def results(self, steps: list[Step]) -> list[Replayed]:
        recorded = {step.request: step.code for step in steps if step.frame is None}
        return [
            Replayed(step.code, recorded.get(step.request), self._codes.get(step.request))
            for step in steps
            if step.frame is not None
        ]
