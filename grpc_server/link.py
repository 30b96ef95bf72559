"""Link: the connection of one gRPC client to the broker of the same process.

To the broker it is a connection like any other: its requests are checked, limited, counted, held
and answered as those of a client of remoting, which sends the same bytes through a socket.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ..remoting.channel import Channel
from ..remoting.codec import FRAME_SIZE_MAX, FrameDecoder, RemotingCommand, encode
from ..remoting.connection import Connection
from ..remoting.loop_transport import LoopTransport
from ..remoting.response_codes import ResponseCode
from ..remoting.session import opaques
from ..remoting.turn import Turn

OnAnswer = Callable[[RemotingCommand], None]

_ENDED: Final = "the connection to the broker has ended"


class Link:
    """Asks the broker, and passes on what it asks.

    Lifecycle: after it was created, `connection` is run as a task; `close` ends it.

    Args:
      connect: makes the broker's side of the connection.
      turn: begun here for requests outside of one.
      remote_address, local_address: of the gRPC connection, `ip:port`.
      on_request: called with each request of the broker.
      on_asked: called when a request waits for `serve`, in a turn.
      on_closed: called once, when the connection has ended.

    Attributes:
      connection: the broker's side.
      closed: nothing more is answered.
    """

    def __init__(
        self,
        connect: Callable[[LoopTransport], Connection],
        turn: Turn,
        remote_address: str,
        local_address: str,
        *,
        on_request: OnAnswer,
        on_asked: Callable[[Link], None],
        on_closed: Callable[[], None],
    ) -> None:
        self._turn = turn
        self._on_request, self._on_asked, self._on_closed = on_request, on_asked, on_closed
        self._opaques = opaques()
        self._decoder = FrameDecoder(frame_size_max=FRAME_SIZE_MAX)
        self._waiting: dict[int, tuple[RemotingCommand, OnAnswer]] = {}
        self._frames: list[bytes] = []
        self._has_started = self.closed = False
        self.connection = connect(
            LoopTransport(
                remote_address,
                local_address,
                on_started=self._start,
                on_data=self._take,
                on_closed=self._end,
            )
        )

    @property
    def channel(self) -> Channel:
        """The broker's side of the connection, as its tables know the client."""
        return self.connection.channel

    def ask(self, command: RemotingCommand, on_answer: OnAnswer) -> int:
        """Send a request; outside of a turn it is served at once.

        Args:
          command: its opaque is set here.
          on_answer: called once, with the broker's answer, or one that says that there is none.
        Returns: the request's opaque.
        """
        command.opaque = next(self._opaques)
        if self.closed:
            on_answer(_unanswered(command))
            return command.opaque
        frame = encode(command)
        self._waiting[command.opaque] = (command, on_answer)
        self._send(frame)
        return command.opaque

    def forget(self, opaque: int) -> None:
        """Wait no longer for the answer to a request, which the broker will not give."""
        self._waiting.pop(opaque, None)

    @property
    def unanswered(self) -> int:
        """The number of requests that wait for the broker's answer."""
        return len(self._waiting)

    def answer(self, answer: RemotingCommand) -> None:
        """Answer a request of the broker."""
        if not self.closed:
            self._send(encode(answer))

    def _send(self, frame: bytes) -> None:
        self._frames.append(frame)
        if self._turn.active:
            self._on_asked(self)
        else:
            with self._turn:
                self.serve()

    def serve(self) -> None:
        """Have the broker serve the requests that wait, inside a turn."""
        # Before it has started, it cannot answer later.
        if self._has_started and self._frames:
            frames, self._frames = self._frames, []
            self.connection.take(b"".join(frames))

    def close(self, reason: str) -> None:
        """End the connection; what is not answered is answered with an error."""
        self.channel.close(reason)

    def _start(self) -> None:
        if not self._has_started:
            self._has_started = True
            with self._turn:
                self.serve()

    def _take(self, data: bytes) -> None:
        for command in self._decoder.receive_data(data):
            if not command.is_response:
                self._on_request(command)
                continue
            waiting = self._waiting.pop(command.opaque, None)
            if waiting is not None:
                waiting[1](command)
        if self._decoder.error is not None:
            self.close(f"an answer could not be read: {self._decoder.error}")

    def _end(self) -> None:
        self.closed = True
        self._frames = []
        waiting, self._waiting = self._waiting, {}
        for command, on_answer in waiting.values():
            on_answer(_unanswered(command))
        self._on_closed()


def _unanswered(command: RemotingCommand) -> RemotingCommand:
    return command.answer(ResponseCode.SYSTEM_BUSY, _ENDED)
