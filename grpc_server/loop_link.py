"""LoopLink: the connection of one gRPC client to the broker of the same process.

To the broker it is a connection like any other: its requests are checked, limited, counted, held
and answered as those of a client of remoting, which sends the same bytes through a socket.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ..remoting.channel import Channel
from ..remoting.codec import FRAME_SIZE_MAX, FrameDecoder, RemotingCommand, encode
from ..remoting.loop_transport import LoopTransport
from ..remoting.session import opaques
from .link import LinkOwner, NoAnswer, OnAnswer, Why

_ENDED: Final = "the connection to the broker has ended"


class LoopLink:
    """Asks the broker, and passes on what it asks. It is the only link of its client.

    Lifecycle: after it was created, `connection` is run as a task of its owner; `close` ends it.

    Args:
      broker: its name.
      withdraw: forgets a pop that waits for messages; whether it did. It is not answered then.

    Attributes:
      broker: its name.
      has_deadlines: a request is given up after a time: here, by its call alone.
      connection: the broker's side.
      closed: nothing more is answered.
    """

    has_deadlines = False

    def __init__(
        self, owner: LinkOwner, broker: str, withdraw: Callable[[Channel, int], bool]
    ) -> None:
        self.broker = broker
        self._owner = owner
        self._turn = owner.server.turn
        self._withdraw = withdraw
        self._opaques = opaques()
        self._decoder = FrameDecoder(frame_size_max=FRAME_SIZE_MAX)
        self._waiting: dict[int, OnAnswer] = {}
        self._frames: list[bytes] = []
        self._has_started = self.closed = False
        transport = LoopTransport(
            owner.channel.remote_address,
            owner.channel.local_address,
            on_started=self._start,
            on_data=self._take,
            on_closed=self._end,
        )
        # Not as one of the server's: its limits are those of the gRPC connection.
        self.connection = owner.server.loop_connection(transport, owner.address)
        owner.start_soon(self.connection.run)

    def to(self, broker: str) -> LoopLink:
        """The link to a broker: there is one broker."""
        return self

    @property
    def brokers(self) -> tuple[str, ...]:
        """The brokers that it is connected to."""
        return (self.broker,)

    @property
    def channel(self) -> Channel:
        """The broker's side of the connection, as its tables know the client."""
        return self.connection.channel

    def ask(
        self, command: RemotingCommand, on_answer: OnAnswer, timeout_s: float | None = None
    ) -> int:
        """Send a request; outside of a turn it is served at once. It may take any time."""
        command.opaque = next(self._opaques)
        self.send(command.opaque, b"" if self.closed else encode(command), on_answer)
        return command.opaque

    def next_opaque(self) -> int:
        """The opaque of a request that is encoded elsewhere, for `send`."""
        return next(self._opaques)

    def send(
        self, opaque: int, frame: bytes, on_answer: OnAnswer, timeout_s: float | None = None
    ) -> None:
        """`ask` of an encoded request."""
        if self.closed:
            on_answer(_unanswered(opaque))
            return
        self._waiting[opaque] = on_answer
        self._send(frame)

    def withdraw(self, opaque: int) -> None:
        """Have a pop that waits for messages wait no longer."""
        if self._withdraw(self.channel, opaque):
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
            self._owner.on_asked(self)
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
                self._owner.on_request(self, command)
                continue
            on_answer = self._waiting.pop(command.opaque, None)
            if on_answer is not None:
                on_answer(command)
        if self._decoder.error is not None:
            self.close(f"an answer could not be read: {self._decoder.error}")

    def _end(self) -> None:
        self.closed = True
        self._frames = []
        waiting, self._waiting = self._waiting, {}
        for opaque, on_answer in waiting.items():
            on_answer(_unanswered(opaque))
        self._owner.on_closed()


def _unanswered(opaque: int) -> RemotingCommand:
    return NoAnswer.to(opaque, Why.ENDED, _ENDED)
