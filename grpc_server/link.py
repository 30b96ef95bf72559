"""Link: what a gRPC client is to a broker, a connection like any other.

Its requests are checked, limited, counted, held and answered there as those of a client of
remoting. A broker that serves gRPC itself has a link in its process (`loop_link.py`); a proxy has
one to each broker.
"""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Protocol

from ..remoting.address_limits import PeerAddress
from ..remoting.channel import Channel
from ..remoting.codec import RemotingCommand
from ..remoting.server import RemotingServer


class Why(enum.Enum):
    """Why a request has no answer."""

    ENDED = "ended"
    """The link was closed."""
    UNREACHABLE = "unreachable"
    """The broker has not received it."""
    LOST = "lost"
    """The connection was lost; the broker may have served it."""
    LATE = "late"
    """There was no answer in time; the broker may have served it."""


class NoAnswer(RemotingCommand, gc=False):
    """Stands for the answer of a broker that has not answered.

    Attributes:
      why: see Why.
    """

    why: Why = Why.ENDED

    @classmethod
    def to(cls, opaque: int, why: Why, text: str) -> NoAnswer:
        """In place of the answer to a request."""
        return cls(code=-1, remark=text, opaque=opaque, why=why)


OnAnswer = Callable[[RemotingCommand], None]


class Link(Protocol):
    """Asks one broker, and passes on what it asks.

    Attributes:
      broker: its name.
      has_deadlines: a request is given up after a time.
    """

    broker: str
    has_deadlines: bool

    def ask(
        self, command: RemotingCommand, on_answer: OnAnswer, timeout_s: float | None = None
    ) -> int:
        """Send a request.

        Args:
          command: its opaque is set here.
          on_answer: called once, with the broker's answer or a NoAnswer.
          timeout_s: how long another process may take.
        Returns: the request's opaque.
        """

    def next_opaque(self) -> int:
        """The opaque of a request that is encoded elsewhere, for `send`."""

    def send(
        self, opaque: int, frame: bytes, on_answer: OnAnswer, timeout_s: float | None = None
    ) -> None:
        """`ask` of an encoded request."""

    def answer(self, answer: RemotingCommand) -> None:
        """Answer a request of the broker."""

    def withdraw(self, opaque: int) -> None:
        """Have a pop wait no longer, if the broker lets it. Otherwise it is answered."""


class Links(Protocol):
    """The links of one client."""

    def to(self, broker: str) -> Link:
        """The link to a broker."""

    @property
    def brokers(self) -> Collection[str]:
        """The brokers that there are links to."""

    def close(self, reason: str) -> None:
        """End them; what is not answered is answered with a NoAnswer."""


class Served(Protocol):
    """What serves what was asked in a turn."""

    def serve(self) -> None:
        """Serve it, inside the turn."""


@dataclass(frozen=True, slots=True)
class LinkOwner:
    """A client's gRPC connection, as its links need it.

    Attributes:
      client_id: as the client gives it with each call.
      server: whose connection it is.
      channel: of the gRPC connection.
      address: counted together with the other connections of its address.
      start_soon: runs a task for as long as the connection lives.
      registration: makes the heartbeat that registers the client at a broker; None: it is unknown.
      on_request: called with each request of a broker.
      on_asked: called in a turn when a request waits for `Served.serve`.
      on_closed: called once, when the links have ended.
    """

    client_id: str
    server: RemotingServer
    channel: Channel
    address: PeerAddress
    start_soon: Callable[[Callable[[], Awaitable[object]]], object]
    registration: Callable[[], RemotingCommand | None]
    on_request: Callable[[Link, RemotingCommand], None]
    on_asked: Callable[[Served], None]
    on_closed: Callable[[], None]
