"""The state that the channels of one connection share, from its opening to its end."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from time import monotonic
from typing import Final

from ...client.errors import ClientError
from .cluster import Cluster
from .deliveries import Delivery
from .feeder import Feeder
from .options import Options

RENEWALS: Final = 8
"""How often unsettled messages are looked through within their invisible time. Each is renewed
after half of it; a renewal that fails is made again several times before it ends."""


class Session:
    """State of one open connection.

    Args:
      cluster: its open objects of RocketMQ.
      unsettled: all messages that its channels have received and not settled.

    Attributes:
      condition: held for changes of buffers and reservations; all are notified of them.
      transient: queues that are deleted with their last consumer.
      doomed: queues that are deleted when the request for their messages, which the broker may
        still hold, is over.
      turns: number of reservations so far.
    """

    def __init__(
        self,
        options: Options,
        cluster: Cluster,
        unsettled: Callable[[], Iterable[Delivery]],
    ) -> None:
        self.options = options
        self.cluster = cluster
        self.condition = threading.Condition()
        self.transient: set[str] = set()
        self.doomed: set[str] = set()
        self.turns = 0
        self._unsettled = unsettled
        self._pid = os.getpid()
        self._error: ClientError | None = None
        self._ending: list[Feeder] = []
        self._keeper: threading.Thread | None = None
        self._is_over = threading.Event()

    @property
    def is_of_this_process(self) -> bool:
        """False in a forked child of the process that connected."""
        return self._pid == os.getpid()

    def close(self) -> None:
        """Close the clients, after the channels: what they gave up is finished before."""
        for feeder in self._ending:
            feeder.join()
        self._is_over.set()
        if self._keeper is not None:
            self._keeper.join()
        self.cluster.close()

    def failed(self, error: ClientError) -> None:
        """Have the next `drain_events` of the connection raise an error."""
        with self.condition:
            self._error = error
            self.condition.notify_all()

    def raise_failure(self) -> None:
        """Raise what failed since the last call, once.

        Raises: ClientError.
        """
        error, self._error = self._error, None
        if error is not None:
            raise error

    def leave(self, feeder: Feeder) -> None:
        """Wait for a stopped feeder at the end of the connection, not now."""
        with self.condition:
            self._ending = [each for each in self._ending if each.is_alive] + [feeder]

    # Renewals

    def keep_invisible(self) -> None:
        """From now on, keep received messages invisible to others until they are settled."""
        if self._keeper is None:
            self._keeper = threading.Thread(target=self._keep, name="kombu-renewals", daemon=True)
            self._keeper.start()

    def _keep(self) -> None:
        pause_s = self.options.visibility_timeout / RENEWALS
        while not self._is_over.wait(pause_s):
            for delivery in self._unsettled():
                delivery.renew_if_due(monotonic())
