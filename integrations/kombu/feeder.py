"""The thread that receives the messages of one queue for a channel."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from ...blocking import PoppedMessage, SimpleConsumer
from ...client.errors import ClientError, ClosedError

logger = logging.getLogger(__name__)

UNLIMITED_COUNT: Final = 10
"""Most messages of a queue that wait in this process when there is no prefetch limit."""

TURN_S: Final = 0.2
"""How long a request waits, in seconds, when the prefetch limit leaves too little for all queues of
a channel: then they take turns."""

RETRY_S: Final = 1.0
"""Pause after an error, in seconds."""

JOIN_S: Final = 5.0
"""How long the end of a connection waits for a request that is under way, beyond its own time."""


class Fed(Protocol):
    """What gets the messages; see Inflow, which has the details."""

    @property
    def invisible_s(self) -> float: ...
    def reserve(self, feeder: Feeder) -> tuple[int, bool]: ...
    def received(
        self, feeder: Feeder, consumer: SimpleConsumer, messages: Sequence[PoppedMessage]
    ) -> None: ...
    def failed(self, feeder: Feeder, error: ClientError) -> None: ...
    def pause(self, feeder: Feeder, seconds: float) -> None:
        """Wait some seconds, or until the feeder is stopped."""


class Feeder:
    """Receives messages of a queue while there is room for them.

    Args:
      fed: gets the messages and the errors.
      queue: kombu's queue.
      consumer: makes the consumer.
      wait_s: how long a request waits for a message, in seconds.

    Attributes:
      reserved: how many messages it asks for now.
      served: the number of its last reservation.
    """

    def __init__(
        self, fed: Fed, queue: str, consumer: Callable[[], SimpleConsumer], wait_s: float
    ) -> None:
        self.queue = queue
        self.reserved = 0
        self.served = 0
        self._fed = fed
        self._consumer = consumer
        self._wait_s = wait_s
        self._is_stopped = False
        self._then: Callable[[], None] | None = None
        self._thread = threading.Thread(target=self._run, name=f"kombu-{queue}", daemon=True)

    def start(self) -> None:
        """Begin to receive."""
        self._thread.start()

    def stop(self, then: Callable[[], None] | None = None) -> None:
        """Receive no more; does not wait. What is received meanwhile is given back.

        Args:
          then: called in the feeder's thread at its end.
        """
        self._then = then
        self._is_stopped = True

    def join(self) -> None:
        """Wait for the request that is under way, after `stop`."""
        self._thread.join(self._wait_s + JOIN_S)

    @property
    def is_stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._is_stopped

    @property
    def is_alive(self) -> bool:
        """Whether a request may be under way."""
        return self._thread.is_alive()

    def _run(self) -> None:
        while not self._is_stopped:
            try:
                self._receive()
            except ClosedError as error:
                self._fed.failed(self, error)
                break
            except ClientError as error:
                logger.debug("receiving from %s: %s", self.queue, error)
                if not self._is_stopped:
                    self._fed.failed(self, error)
                    self._fed.pause(self, RETRY_S)
        if self._then is not None:
            self._then()

    def _receive(self) -> None:
        count, is_scarce = self._fed.reserve(self)
        if not count:
            return
        consumer = self._consumer()
        messages = consumer.receive(
            count,
            invisible_s=self._fed.invisible_s,
            wait_s=min(self._wait_s, TURN_S) if is_scarce else self._wait_s,
        )
        self._fed.received(self, consumer, messages)
