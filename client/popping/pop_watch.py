"""Waiting for the first message at several brokers or of several topics.

A pop can wait at one broker only. So each broker gets a request that waits without popping
(NOTIFICATION), and the first one that is answered says where to pop.

Java counterpart: none; the proxy waits at one broker at a time.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping, Sequence
from typing import Final

import anyio
import anyio.lowlevel

from ...remoting.bodies import SubscriptionData
from ...remoting.pop_requests import Place, PopOrder
from ..connection.client import Client
from ..errors import ClientError
from .popper import Popper

logger = logging.getLogger(__name__)

WATCH_S: Final = 15.0
"""How long a broker may hold the request for its next message, where there are several brokers or
topics to receive from."""
PAUSE_S: Final = 0.5
"""Pause before the next such request, where the last one failed or the broker did not wait."""


class PopWatch:
    """The waiting requests of one consumer, at most one for each place.

    A request goes on when a `wait_for_any` ends; the next call uses it. Otherwise a consumer that
    gets many messages at one broker would leave ever more requests at the others.

    Lifecycle: `open` in the event loop, then `close`.

    Args:
      client: an open client.
      subscriptions: the consumer's, by topic with namespace; it changes.
      is_orderly: wait for what can be popped in order.
    """

    def __init__(
        self,
        client: Client,
        popper: Popper,
        subscriptions: Mapping[str, SubscriptionData],
        *,
        is_orderly: bool,
    ) -> None:
        self._client = client
        self._popper = popper
        self._subscriptions = subscriptions
        self._is_orderly = is_orderly
        self._waiting: dict[Place, anyio.CancelScope] = {}
        self._arrival: anyio.Event

    def open(self) -> None:
        """Prepare it for the running event loop."""
        self._arrival = anyio.Event()

    def close(self) -> None:
        """Give up all requests."""
        for scope in self._waiting.values():
            scope.cancel()

    def wake(self) -> None:
        """End `wait_for_any`: messages have arrived by another way."""
        self._arrival.set()

    async def wait_for_any(self, places: Sequence[Place], left_s: float) -> None:
        """Wait until one of the places may have a message, or the time is over.

        Args:
          places: where to wait.
          left_s: seconds to wait at most.
        """
        if self._arrival.is_set():
            self._arrival = anyio.Event()
        for place in places:
            subscription = self._subscriptions.get(place.topic)
            if place not in self._waiting and subscription is not None:
                self._waiting[place] = anyio.CancelScope()
                self._client.start_soon(self._wait_at, place, subscription)
        with anyio.move_on_after(left_s):
            await self._arrival.wait()

    async def _wait_at(self, place: Place, subscription: SubscriptionData) -> None:
        order = PopOrder(uuid.uuid4().hex) if self._is_orderly else None
        has_messages = False
        with self._waiting[place]:
            try:
                has_messages = await self._popper.wait_for_messages(
                    place, subscription, poll_s=WATCH_S, order=order
                )
            except ClientError as error:
                await anyio.lowlevel.checkpoint_if_cancelled()
                logger.debug("waiting for messages of %s failed: %s", place, error)
            if not has_messages:
                await anyio.sleep(PAUSE_S)
        self._waiting.pop(place, None)
        self._arrival.set()
