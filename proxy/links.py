"""Links over TCP: a connection of remoting for each gRPC client and broker.

So a broker has in its tables, limits and logs the clients themselves, and not one proxy.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

import trio

from ..common.supervision import FailureLog, contained
from ..grpc_server.link import LinkOwner, NoAnswer, OnAnswer, Why
from ..grpc_server.refused import Refused
from ..remoting.channel import CallWaiter, Channel, end_calls
from ..remoting.codec import RemotingCommand, encode
from ..remoting.connection import Connection, ConnectionLimits
from ..remoting.errors import RemotingConnectError, RemotingError, RemotingTimeoutError
from ..remoting.memory_budget import MemoryBudget
from ..remoting.opener import Opener
from ..remoting.request_codes import RequestCode
from ..remoting.session import REQUESTS_MAX, opaques
from ..remoting.turn import Turn

_failures = FailureLog(logging.getLogger(__name__))

TIMEOUT_S: Final = 3.0
"""For an answer, where the client does not say how long it waits. RocketMQ: 3,000 ms."""

TIMEOUT_S_MAX: Final = 60.0
"""However long a client would wait: what it asked is kept for so long."""

WAITING_MAX: Final = 1_000
WAITING_SIZE_MAX: Final = 16 * 1024 * 1024
"""Requests of a client that wait for the connection to one broker, and their bytes."""

UNANSWERED_MAX: Final = REQUESTS_MAX
"""Requests of a client that one broker has not answered."""

BROKERS_MAX: Final = 1_000
"""Links of one client: handles, which come from clients, name brokers."""

AGAIN_S: Final = 0.5
"""After a connection could not be opened, further requests of the client fail at once for so
long."""

SILENCE_S: Final = 2.0
"""A broker from which nothing came for so long after a request does not respond: its connection may
be half open. Clients may wait for a shorter time, which says nothing of the broker."""

AVOIDED_S: Final = 10.0
"""How long sends go to other brokers after one did not answer."""

_OF_BROKERS: Final = (
    RequestCode.CHECK_TRANSACTION_STATE,
    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
    RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
    RequestCode.GET_CONSUMER_RUNNING_INFO,
    RequestCode.CONSUME_MESSAGE_DIRECTLY,
    RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
)
"""What brokers ask clients."""

_CLOSED: Final = "the client's connection has ended"


class Network:
    """What the links of all clients share.

    Args:
      opener: opens connections.
      address_of: the address of a broker; None: it is unknown. Raises: Refused.
      turn: the server's, in which answers are passed on.
      start_soon: runs connections.
      links_max: connections at a time.

    Attributes:
      links: connections that are open or being opened.
    """

    def __init__(
        self,
        opener: Opener,
        address_of: Callable[[str], Awaitable[str | None]],
        *,
        turn: Turn,
        start_soon: Callable[..., object],
        memory: MemoryBudget,
        links_max: int,
    ) -> None:
        self.opener = opener
        self.address_of = address_of
        self.turn = turn
        self.start_soon = start_soon
        self.memory = memory
        self.limits = ConnectionLimits()
        self.links_max = links_max
        self.links = 0
        self._avoided: dict[str, float] = {}
        self._idle = trio.Event()

    def link_ended(self) -> None:
        """Count a link that was open, or was to be opened, no longer."""
        self.links -= 1
        if not self.links:
            self._idle.set()

    async def wait_closed(self) -> None:
        """Wait until no link is open."""
        while self.links:
            self._idle = trio.Event()
            await self._idle.wait()

    def avoids(self, broker: str) -> bool:
        """Whether a broker did not answer lately."""
        until_s = self._avoided.get(broker)
        return until_s is not None and trio.current_time() < until_s

    def note(self, broker: str, *, answers: bool) -> None:
        """Remember whether a broker answers."""
        if not answers:
            self._avoided[broker] = trio.current_time() + AVOIDED_S
        else:
            self._avoided.pop(broker, None)


class _Waiting(NamedTuple):
    """A request that waits for the connection."""

    opaque: int
    code: int
    frame: bytes
    on_answer: OnAnswer
    due_s: float


class _Waiter(CallWaiter):
    """Passes the answer to a request on."""

    __slots__ = ("_heard", "_link", "_on_answer", "_opaque")

    def __init__(self, link: RemoteLink, opaque: int, on_answer: OnAnswer) -> None:
        self._link = link
        self._opaque = opaque
        self._on_answer = on_answer
        self._heard = link.heard

    def finish(self, result: RemotingCommand | RemotingError) -> None:
        """Call what waits."""
        if isinstance(result, RemotingCommand):
            self._link.answered(self._on_answer, result)
            return
        why, is_silent = Why.LOST, False
        if isinstance(result, RemotingTimeoutError):
            why = Why.LATE
            is_silent = result.timeout_s >= SILENCE_S and self._link.heard == self._heard
        answer = NoAnswer.to(self._opaque, why, str(result))
        self._link.answered(self._on_answer, answer, is_silent=is_silent)


class RemoteLink:
    """See `grpc_server.link.Link`. It connects when something is asked, and again after a loss."""

    has_deadlines = True

    def __init__(self, broker: str, owner: LinkOwner, network: Network, links: RemoteLinks) -> None:
        self.broker = broker
        self._owner = owner
        self._network = network
        self._links = links
        self._channel: Channel | None = None
        self._opaques = opaques()
        self._waiting: list[_Waiting] = []
        self._waiting_size = 0
        self._is_opening = False
        self._failed: tuple[float, str] = (-AGAIN_S, "")
        self._unanswered = 0
        self._sweep = trio.Event()
        self._due_s = 0.0

    @property
    def is_open(self) -> bool:
        """Whether there is a connection, or will be soon."""
        return self._is_opening or self._channel is not None

    @property
    def heard(self) -> int:
        """How often bytes were received on the connection."""
        return 0 if self._channel is None else self._channel.heard

    def ask(
        self, command: RemotingCommand, on_answer: OnAnswer, timeout_s: float | None = None
    ) -> int:
        """See `Link`. What the broker has not answered in time is a NoAnswer."""
        command.opaque = self.next_opaque()
        self._ask(command.opaque, command.code, encode(command), on_answer, timeout_s)
        return command.opaque

    def next_opaque(self) -> int:
        return next(self._opaques)

    def send(
        self, opaque: int, frame: bytes, on_answer: OnAnswer, timeout_s: float | None = None
    ) -> None:
        """`ask` of an encoded request."""
        self._ask(opaque, RequestCode.SEND_MESSAGE_V2, frame, on_answer, timeout_s)

    def _ask(
        self, opaque: int, code: int, frame: bytes, on_answer: OnAnswer, timeout_s: float | None
    ) -> None:
        timeout_s = min(timeout_s or TIMEOUT_S, TIMEOUT_S_MAX)
        self._unanswered += 1
        channel = self._channel
        now_s = trio.current_time()
        failed_s, text = self._failed
        if self._unanswered > UNANSWERED_MAX:
            text = (
                f"{UNANSWERED_MAX} requests wait for the broker {self.broker}, which is the limit"
            )
            self._refuse(opaque, on_answer, Why.ENDED, text)
        elif channel is not None:
            self._write(channel, opaque, code, frame, on_answer, now_s, timeout_s)
        elif self._links.closed and not self._is_opening:
            self._refuse(opaque, on_answer, Why.ENDED, _CLOSED)
        elif now_s - failed_s < AGAIN_S:
            self._refuse(opaque, on_answer, Why.UNREACHABLE, text)
        elif (
            len(self._waiting) >= WAITING_MAX or self._waiting_size + len(frame) > WAITING_SIZE_MAX
        ):
            text = f"too many requests wait for the connection to the broker {self.broker}"
            self._refuse(opaque, on_answer, Why.ENDED, text)
        else:
            self._waiting.append(_Waiting(opaque, code, frame, on_answer, now_s + timeout_s))
            self._waiting_size += len(frame)
            self._open()

    def answer(self, answer: RemotingCommand) -> None:
        """Answer a request of the broker."""
        if self._channel is not None:
            self._channel.write(encode(answer))

    def withdraw(self, opaque: int) -> None:
        """Do nothing: no request ends the wait of a pop. What it takes is given back."""

    def end(self) -> None:
        """Close the connection, as soon as all is answered: what is popped is given back."""
        if self._channel is not None and not self._unanswered:
            self._channel.close("its gRPC connection ended")

    def answered(
        self, on_answer: OnAnswer, answer: RemotingCommand, *, is_silent: bool = False
    ) -> None:
        """Pass an answer on; after one that did not come, the connection may be half open."""
        try:
            on_answer(answer)
        except Exception as error:  # noqa: BLE001 - our bug: others are served
            _failures.note("serving the answer of a broker", "Others are served", error)
        self._unanswered -= 1
        if is_silent:
            self._network.note(self.broker, answers=False)
            if self._channel is not None:
                self._channel.close(f"the broker {self.broker} does not respond")
        if self._links.closed:
            self.end()

    def _refuse(self, opaque: int, on_answer: OnAnswer, why: Why, text: str) -> None:
        self.answered(on_answer, NoAnswer.to(opaque, why, text))

    def _write(
        self,
        channel: Channel,
        opaque: int,
        code: int,
        frame: bytes,
        on_answer: OnAnswer,
        now_s: float,
        timeout_s: float,
    ) -> None:
        session = channel.session
        try:
            waiter = _Waiter(self, opaque, on_answer)
            session.expect(opaque, code, waiter, now_s, timeout_s)
        except RemotingError as error:  # it was closed in this moment
            self._refuse(opaque, on_answer, Why.UNREACHABLE, str(error))
            return
        if session.next_due_s < self._due_s:
            self._sweep.set()
        channel.write(frame)

    # The connection

    def _open(self) -> None:
        if self._is_opening:
            return
        if self._network.links >= self._network.links_max:
            self._fail(f"{self._network.links_max} connections to brokers are open: the limit")
            return
        self._is_opening = True
        self._network.links += 1
        self._network.start_soon(self._run)

    async def _run(self) -> None:
        network = self._network
        try:
            with contained(_failures, "a connection to a broker", "The next request opens one"):
                connection = await self._connected()
                if connection is not None:
                    network.note(self.broker, answers=True)
                    await self._serve(connection)
        finally:
            self._channel = None
            self._is_opening = False
            network.link_ended()
            self._links.ended(self)

    async def _serve(self, connection: Connection) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._expire, connection.channel)
            with self._network.turn:
                self._begin(connection.channel)
            await connection.run()
            nursery.cancel_scope.cancel()

    async def _connected(self) -> Connection | None:
        """A new connection; None: there is none, and what waits for it is answered."""
        network, broker = self._network, self.broker
        address: str | None = None
        try:
            with trio.fail_after(TIMEOUT_S):
                address = await network.address_of(broker)
                if address is None:
                    raise RemotingConnectError("the name servers do not know it")
                transport = await network.opener.open(address)
        except (RemotingError, Refused, ValueError, trio.TooSlowError) as error:
            # Names come from clients: of those that are no broker's nothing is remembered.
            if address is None:
                self._links.forget(self)
            else:
                network.note(broker, answers=False)
            with network.turn:
                self._fail(f"broker {broker[:100]}: {error or 'its address is not known in time'}")
            return None
        return Connection(
            transport,
            {int(code): self._pass_on for code in _OF_BROKERS},
            network.turn,
            network.limits,
            memory=network.memory,
        )

    def _begin(self, channel: Channel) -> None:
        """Register the client, and send what waits."""
        self._channel, self._is_opening = channel, False
        registration = self._owner.registration()
        waiting = self._take_waiting()
        is_registering = any(each.code == RequestCode.HEART_BEAT for each in waiting)
        if registration is not None and not is_registering:
            self.ask(registration, lambda answer: None)
        now_s = trio.current_time()
        for opaque, code, frame, on_answer, due_s in waiting:
            left_s = max(due_s - now_s, 0.001)
            self._write(channel, opaque, code, frame, on_answer, now_s, left_s)

    def _take_waiting(self) -> list[_Waiting]:
        waiting, self._waiting, self._waiting_size = self._waiting, [], 0
        return waiting

    def _fail(self, text: str) -> None:
        self._failed = (trio.current_time(), text)
        for each in self._take_waiting():
            self._refuse(each.opaque, each.on_answer, Why.UNREACHABLE, text)

    def _pass_on(self, request: RemotingCommand, channel: Channel) -> None:
        self._owner.on_request(self, request)

    async def _expire(self, channel: Channel) -> None:
        """End requests whose time is over; sleeps until the earliest deadline."""
        session = channel.session
        while True:
            self._due_s = session.next_due_s
            self._sweep = trio.Event()
            with trio.move_on_at(self._due_s):
                await self._sweep.wait()
            late = session.expire(trio.current_time())
            if late:
                with self._network.turn:
                    end_calls(late)


class RemoteLinks:
    """See `grpc_server.link.Links`.

    Attributes:
      closed: no new connection is opened.
    """

    def __init__(self, owner: LinkOwner, network: Network) -> None:
        self._owner = owner
        self._network = network
        self._links: dict[str, RemoteLink] = {}
        self.closed = False

    def to(self, broker: str) -> RemoteLink:
        """The link to a broker; it connects when something is asked."""
        link = self._links.get(broker)
        if link is None:
            link = RemoteLink(broker, self._owner, self._network, self)
            if len(self._links) < BROKERS_MAX:
                self._links[broker] = link
        return link

    @property
    def brokers(self) -> list[str]:
        """The brokers that there is a connection to, or will be."""
        return [name for name, link in self._links.items() if link.is_open]

    def ended(self, link: RemoteLink) -> None:
        """Forget a link whose connection has ended, if its client has gone."""
        if self.closed:
            self.forget(link)

    def forget(self, link: RemoteLink) -> None:
        """Keep a link no longer."""
        if self._links.get(link.broker) is link:
            del self._links[link.broker]

    def close(self, reason: str) -> None:
        """End the connections, each as soon as all is answered."""
        if self.closed:
            return
        self.closed = True
        for link in list(self._links.values()):
            link.end()
        self._owner.on_closed()
