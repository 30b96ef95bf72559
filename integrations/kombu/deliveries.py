"""Messages that a connection has received and not settled; and kombu's QoS, which counts them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, Final, Protocol

from kombu.transport import virtual

from ...blocking import PoppedMessage, SimpleConsumer
from ...client.errors import (
    ClientError,
    ClosedError,
    ConnectError,
    ExpiredReceiptError,
    RequestTimeoutError,
)
from .payloads import Payload

logger = logging.getLogger(__name__)

RENEW_SHARE: Final = 0.5
"""The share of a message's invisible time after which it is renewed: a renewal that fails once can
be made again in time."""


class Delivery:
    """One message that was received: any thread settles it, once.

    Args:
      consumer: received it.
      message: as received.
      queue: kombu's queue.
      payload: kombu's message.
      invisible_s: how long it is invisible to others, in seconds.
    """

    __slots__ = (
        "_consumer",
        "_invisible_s",
        "_is_settled",
        "_lock",
        "_renew_at_s",
        "message",
        "payload",
        "queue",
    )

    def __init__(
        self,
        consumer: SimpleConsumer,
        message: PoppedMessage,
        queue: str,
        payload: Payload,
        invisible_s: float,
    ) -> None:
        self._consumer = consumer
        self.message = message
        self.queue = queue
        self.payload = payload
        self._invisible_s = invisible_s
        # One request at a time: each renewal replaces the receipt by which it is acknowledged.
        self._lock = threading.Lock()
        self._is_settled = False
        self._renew_at_s = monotonic() + invisible_s * RENEW_SHARE

    @property
    def tag(self) -> str:
        """kombu's delivery tag."""
        tag: str = self.payload["properties"]["delivery_tag"]
        return tag

    def ack(self) -> None:
        """Acknowledge it.

        One that is not this consumer's any more is delivered again, which the log says.

        Raises: ClientError: the broker could not be reached, or refused.
        """
        with self._lock:
            if self._is_settled:
                return
            try:
                self._consumer.ack(self.message)
            except ExpiredReceiptError as error:
                logger.warning("%r comes again: acknowledged too late: %s", self.message, error)
            self._is_settled = True

    def give_back(self) -> None:
        """Have it delivered again soon, to any consumer.

        Raises: ClientError: the broker could not be reached, or refused; it is delivered again when
          its invisible time is over.
        """
        with self._lock:
            if self._is_settled:
                return
            self._is_settled = True
            self._consumer.change_invisible(self.message, 0)

    def renew_if_due(self, now_s: float) -> None:
        """Keep it invisible to others, if half of its time is over; failures are logged.

        Args:
          now_s: the present `time.monotonic()`.
        """
        if now_s < self._renew_at_s:
            return
        with self._lock:
            if self._is_settled:
                return
            try:
                self._consumer.change_invisible(self.message, self._invisible_s)
            except ClientError as error:
                logger.warning("%r may be delivered twice: not renewed: %s", self.message, error)
                return
            self._renew_at_s = monotonic() + self._invisible_s * RENEW_SHARE


def give_back_all(deliveries: Sequence[Delivery]) -> None:
    """Have all delivered again soon. Failures are logged: these come when their time is over.

    After a broker that is away no other is asked: each would be waited for.
    """
    for number, each in enumerate(deliveries):
        try:
            each.give_back()
        except (ConnectError, RequestTimeoutError, ClosedError) as error:
            count = len(deliveries) - number
            logger.warning("%d messages come again only later: %s", count, error)
            return
        except ClientError as error:
            logger.warning("%r comes again only later: %s", each.message, error)


class Holder(Protocol):
    """The channel, as its QoS needs it."""

    def wake(self) -> None:
        """Called when there may be room for more messages."""

    def taken(self, tag: str) -> Delivery:
        """The message that is being handed out."""

    def requeue(self, delivery: Delivery) -> None:
        """Have a message delivered again."""


class QoS(virtual.QoS):
    """What a channel's consumers hold unacknowledged, and how much that may be.

    Args:
      prefetch_count: largest number of unacknowledged messages; 0: no limit.
    """

    channel: Holder
    restore_at_shutdown = False

    def __init__(self, channel: Holder, prefetch_count: int = 0) -> None:
        # The base's is not called: it would publish copies of what is left when Python ends.
        self.channel = channel
        self._held: dict[str, Delivery] = {}
        self._changed: Callable[[], None] = channel.wake
        self._prefetch_count = prefetch_count or 0

    @property
    def prefetch_count(self) -> int:
        """Largest number of unacknowledged messages; 0: no limit."""
        return self._prefetch_count

    @prefetch_count.setter
    def prefetch_count(self, count: int) -> None:
        self._prefetch_count = count
        self._changed()

    def can_consume(self) -> bool:
        """Whether one more message may be handed out."""
        return not self._prefetch_count or len(self._held) < self._prefetch_count

    def can_consume_max_estimate(self) -> int | None:
        """How many more messages may be handed out; None: any number."""
        if not self._prefetch_count:
            return None
        return max(self._prefetch_count - len(self._held), 0)

    def append(self, message: Any, delivery_tag: str) -> None:
        """Hold a message until it is settled."""
        self._held[delivery_tag] = self.channel.taken(delivery_tag)

    def get(self, delivery_tag: str) -> Delivery:
        """An unacknowledged message."""
        return self._held[delivery_tag]

    def held(self) -> list[Delivery]:
        """All unacknowledged messages."""
        return list(self._held.values())

    def ack(self, delivery_tag: str) -> None:
        """Acknowledge a message; one that is settled already is passed over.

        Raises: ClientError: the broker could not be reached, or refused; it is still held.
        """
        held = self._held.get(delivery_tag)
        if held is not None:
            held.ack()
            self._forget(delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Drop a message, or have it delivered again.

        Raises: ClientError: the broker could not be reached, or refused.
        """
        if not requeue:
            self.ack(delivery_tag)
            return
        held = self._held.get(delivery_tag)
        if held is not None:
            self.channel.requeue(held)
            self._forget(delivery_tag)

    def _forget(self, delivery_tag: str) -> Delivery | None:
        held = self._held.pop(delivery_tag, None)
        self._changed()
        return held

    def restore_unacked(self) -> list[Any]:
        """Have all unacknowledged messages delivered again."""
        held = self.held()
        self._held.clear()
        give_back_all(held)
        self._changed()
        return []

    def restore_unacked_once(self, stderr: Any = None) -> None:
        """The same, at the end of the channel."""
        self.restore_unacked()
