"""Pops and acknowledgements whose broker answers late: the consumer goes on after half a second.

A pop goes on, and its messages, which no other consumer gets meanwhile, are kept for the next
call. An acknowledgement of an iteration goes on beside the next messages.

Java counterpart: none; the proxy pops from one broker at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Container, Sequence
from typing import Final, TypeAlias

import anyio
import anyio.lowlevel

from ...remoting.pop_requests import Place
from ..connection.client import Client
from ..connection.patience import wait_a_little
from ..errors import ClientError, ClosedError, ConnectError, ExpiredReceiptError
from ..messages.message import for_log
from ..tasks.task_group import together
from .popped_message import PoppedMessage
from .popper import TRANSIENT_ERRORS, Popper

logger = logging.getLogger(__name__)

Pop: TypeAlias = Callable[[], Awaitable[list[PoppedMessage]]]
"""Pops once from one place; raises ClientError."""

DELIVERED_AGAIN: Final = (*TRANSIENT_ERRORS, ExpiredReceiptError)
"""Errors after which an iteration goes on."""


class LatePops:
    """The pops of one consumer that are late, and the messages that they bring.

    A place with a late pop is not asked again until that is answered.

    Args:
      client: an open client, whose background tasks pop.
      topics: the topics that the consumer subscribes to, with namespace; it changes.
      on_arrival: called when messages have arrived for which no call waits.
    """

    def __init__(
        self, client: Client, topics: Container[str], on_arrival: Callable[[], None]
    ) -> None:
        self._client = client
        self._topics = topics
        self._on_arrival = on_arrival
        self._late: set[_Pop] = set()
        self._answered_count = 0
        self._ended: anyio.Event | None = None
        self._messages: list[PoppedMessage] = []

    @property
    def has_messages(self) -> bool:
        """Whether late messages have come since the last `take`, or are left of it."""
        return bool(self._messages)

    def take(self, count: int) -> list[PoppedMessage]:
        """At most `count` late messages.

        Those whose invisible time is over, or whose topic was unsubscribed, are left out.
        """
        now_s = self._client.now_s()
        valid = [
            each
            for each in self._messages
            if now_s < each.deadline_s and each.settled.topic in self._topics
        ]
        self._messages = valid[count:]
        return valid[:count]

    def put(self, messages: Sequence[PoppedMessage]) -> None:
        """Keep messages for which no call waits any more."""
        self._messages += messages

    async def pop(self, place: Place, pop: Pop) -> list[PoppedMessage] | None:
        """Pop from a place; None: its broker has not answered within half a second, or earlier.

        If the caller is cancelled, the pop goes on.

        Raises: ClientError: the pop failed. ClosedError; ForkedError.
        """
        if any(late.place == place for late in self._late):
            await anyio.lowlevel.checkpoint()
            return None
        self._client.check_open()
        made = _Pop(place)
        try:
            await wait_a_little(self._client, self._run, made, pop)
        finally:
            if not made.ended.is_set():
                self._late.add(made)
        if made.error is not None:
            raise made.error
        return made.found

    async def wait_for_answer(self, limit_s: float) -> bool:
        """Wait until a late pop is answered; False: not within `limit_s`, or all have failed."""
        answered_count = self._answered_count
        with anyio.move_on_after(limit_s):
            while self._late and self._answered_count == answered_count:
                if self._ended is None or self._ended.is_set():
                    self._ended = anyio.Event()
                await self._ended.wait()
        return self._answered_count > answered_count

    async def _run(self, made: _Pop, pop: Pop) -> None:
        try:
            made.found = await pop()
        except ClientError as error:
            made.error = error
        finally:
            made.ended.set()
            if made in self._late:
                self._late.discard(made)
                self._on_late(made)

    def _on_late(self, made: _Pop) -> None:
        if made.error is not None:
            logger.debug("a late pop from %s failed: %s", made.place, made.error)
        elif made.found is not None:  # None: it was cancelled
            self._answered_count += 1
            self._messages += made.found
            if made.found:
                self._on_arrival()
        if self._ended is not None:
            self._ended.set()


class _Pop:
    """A pop, and what became of it."""

    __slots__ = ("ended", "error", "found", "place")

    def __init__(self, place: Place) -> None:
        self.place = place
        self.ended = anyio.Event()
        self.found: list[PoppedMessage] | None = None
        self.error: ClientError | None = None


def joined(failures: Sequence[ClientError]) -> ClientError:
    """One error for all brokers that failed: it names each, and why."""
    first = failures[0]
    texts = dict.fromkeys(map(str, failures))
    if len(texts) == 1:
        return first
    addresses = dict.fromkeys(getattr(each, "address", "") for each in failures)
    joined = ConnectError(";".join(addresses), f"no broker answered: {'; '.join(texts)}")
    joined.__cause__ = first
    return joined


class LateAcks:
    """The acknowledgements of one consumer's iterations.

    Args:
      client: an open client, whose background tasks send them.
      on_acknowledged: called with each message that is acknowledged.
    """

    def __init__(
        self, client: Client, popper: Popper, on_acknowledged: Callable[[PoppedMessage], None]
    ) -> None:
        self._client = client
        self._popper = popper
        self._on_acknowledged = on_acknowledged
        self._under_way: set[_Ack] = set()

    async def ack(self, message: PoppedMessage) -> None:
        """Acknowledge a message, and wait for the answer for half a second at most.

        If the broker cannot be reached, or does not accept the receipt any more, that is logged:
        the message is delivered again.

        Raises: ServerError: the broker refused the request in time. ClosedError; ForkedError.
        """
        self._client.check_open()
        ack = _Ack()
        self._under_way.add(ack)
        await wait_a_little(self._client, self._run, message, ack)
        if ack.error is not None and not isinstance(ack.error, DELIVERED_AGAIN):
            raise ack.error

    async def finish(self) -> None:
        """Wait until all are answered."""
        await together(ack.ended.wait for ack in self._under_way)

    async def _run(self, message: PoppedMessage, ack: _Ack) -> None:
        try:
            await self._popper.ack(message.settled)
            self._on_acknowledged(message)
        except ClosedError as error:
            ack.error = error
        except ClientError as error:
            ack.error = error
            text = "%s was not acknowledged and is delivered again: %s"
            logger.warning(text, for_log(message), error)
        finally:
            self._under_way.discard(ack)
            ack.ended.set()


class _Ack:
    """An acknowledgement, and what became of it."""

    __slots__ = ("ended", "error")

    def __init__(self) -> None:
        self.ended = anyio.Event()
        self.error: ClientError | None = None
