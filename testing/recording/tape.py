"""`Tape`: records the frames that clients and embedded servers exchange, on connections it taps.

Connections of gRPC clients and encrypted ones are left out, and so are the broker's with its name
server. Pure; `taps.py` has the sockets and streams.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

from ...remoting.request_codes import RequestCode
from ..errors import EmbeddedBrokerError
from .frame_stream import Conversation, FrameSplitter, SeenFrame

FRAMES_MAX: Final = 10_000
"""Frames of a recording: two for a request. A test has some hundreds."""

BYTES_MAX: Final = 4 << 20
"""Bytes of all frames: a line of JSON has about five times as many, and a test keeps all lines in
memory."""

_OF_BROKERS: Final = frozenset(
    {
        RequestCode.REGISTER_BROKER,
        RequestCode.UNREGISTER_BROKER,
        RequestCode.BROKER_HEARTBEAT,
        RequestCode.QUERY_DATA_VERSION,
        RequestCode.REGISTER_TOPIC_IN_NAMESRV,
    }
)
"""What only brokers ask name servers: their connections are in no recording of clients."""


class Tape:
    """The recording of one embedded broker and its name server.

    Args:
      now_ms: the broker's time, ms since 1970, for the lines.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.now_ms = now_ms
        self._frames: list[SeenFrame] | None = None
        self._size = 0
        self._recording = 0
        self._connections = 0

    @property
    def recording(self) -> int:
        """The number of the present recording, 1 for the first one; 0: nothing is recorded."""
        return self._recording if self._frames is not None else 0

    def start(self) -> None:
        """Record from now on; a recording that runs is forgotten."""
        self._frames, self._size = [], 0
        self._recording += 1

    def stop(self) -> str:
        """End the recording, and return it: an object of JSON a line, as `frame_object` has it.

        Raises: EmbeddedBrokerError: nothing is recorded, or it was too much.
        """
        from .frame_lines import frame_object

        frames, self._frames = self._frames, None
        if frames is None:
            raise EmbeddedBrokerError("nothing is recorded: start a recording before")
        if self._size > BYTES_MAX or len(frames) > FRAMES_MAX:
            raise EmbeddedBrokerError(
                f"more than {FRAMES_MAX} frames or {BYTES_MAX} bytes were exchanged, which is too "
                "much for a recording: record a shorter time"
            )
        return "".join(json.dumps(frame_object(each)) + "\n" for each in frames)

    def tap(self, client: str, server: str) -> Tap:
        """The tap of a new connection, between two `ip:port`."""
        self._connections += 1
        seen = SeenFrame(b"", 0, True, connection=self._connections, client=client, server=server)
        return Tap(self, seen)

    def note(self, frame: SeenFrame) -> None:
        """Add a frame to the recording."""
        frames = self._frames
        # One beyond the limits says that they were exceeded; the rest would only take memory.
        if frames is not None and self._size <= BYTES_MAX and len(frames) <= FRAMES_MAX:
            self._size += len(frame.data)
            frames.append(frame)


class Tap:
    """One connection of a `Tape`. It follows the frames also while nothing is recorded, so that a
    recording begins with a whole frame.

    Args:
      seen: has what all its frames share.
    """

    def __init__(self, tape: Tape, seen: SeenFrame) -> None:
        self._tape = tape
        self._seen = seen
        self._splitters = {True: FrameSplitter(), False: FrameSplitter()}
        self._conversation = Conversation(seen)
        self._recording = 0
        self._has_asked = self._is_left_out = False

    def take(self, to_server: bool, data: bytes) -> None:
        """Take bytes that went in one direction."""
        if self._is_left_out:
            return
        found = self._splitters[to_server].receive_data(data)
        if not all(is_frame for _, _, is_frame in found):
            self._is_left_out = True  # HTTP/2, TLS, or a client that breaks the protocol
            return
        if to_server and found and not self._has_asked:
            self._has_asked = True
            # Seen also while nothing is recorded: a broker asks for more than these later.
            (first,) = Conversation().receive_data(True, found[0][1])
            self._is_left_out = first.request_code in _OF_BROKERS
        recording = self._tape.recording
        if not recording or self._is_left_out:
            return
        if recording != self._recording:
            self._recording, self._conversation = recording, Conversation(self._seen)
        for _, frame, _ in found:
            for seen in self._conversation.receive_data(to_server, frame, self._tape.now_ms()):
                if to_server and seen.request_code in _OF_BROKERS:
                    self._is_left_out = True
                    return
                self._tape.note(seen)
