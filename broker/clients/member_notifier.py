"""MemberNotifier: notifies the clients of a group that its members have changed.

A small group is notified at once. For a large one that would block the loop, some 10 us for each
client, and each client that joins or leaves causes a notification. So a task notifies large groups,
in slices, and once for all changes of NOTIFY_INTERVAL_S.

Java counterpart: broker/client/DefaultConsumerIdsChangeListener.java of 5.5, which notifies from a
thread; a newer change interrupts the notification of an older one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import trio

from .client_channel_info import ClientChannel
from .consumer_manager import notify_consumer_ids_changed

SMALL_GROUP: Final = 100
"""Clients of a group up to which it is notified at once, in about a millisecond; also the clients
that the task notifies without a pause for other tasks."""

NOTIFY_INTERVAL_S: Final = 1.0
"""Seconds between two notifications of a large group; its clients rebalance every 20 s anyway."""


class MemberNotifier:
    """Notifies groups; see the module.

    Args:
      is_enabled: returns whether clients are notified at all.
    """

    def __init__(self, is_enabled: Callable[[], bool]) -> None:
        self._is_enabled = is_enabled
        self._pending: dict[str, Sequence[ClientChannel]] = {}
        self._wanted = trio.Event()

    def notify(self, group: str, channels: Sequence[ClientChannel]) -> None:
        """Notify a group that has changed.

        Args:
          channels: the connections of all its clients.
        """
        if not self._is_enabled():
            return
        if len(channels) <= SMALL_GROUP:
            self._pending.pop(group, None)
            notify_consumer_ids_changed(group, channels)
            return
        self._pending[group] = channels
        self._wanted.set()

    async def run(self) -> None:
        """Notify large groups until cancelled."""
        while True:
            await self._wanted.wait()
            await trio.sleep(NOTIFY_INTERVAL_S)
            self._wanted = trio.Event()
            pending, self._pending = self._pending, {}
            for group, channels in pending.items():
                for start in range(0, len(channels), SMALL_GROUP):
                    notify_consumer_ids_changed(group, channels[start : start + SMALL_GROUP])
                    await trio.lowlevel.checkpoint()
