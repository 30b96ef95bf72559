"""Renewals: the invisible times that the service lengthens for clients that ask for that.

A client that receives with `auto_renew`, as push consumers do, consumes a message for as long as
that takes. Its receipt handle changes with each renewal, and the client knows only the first one:
what it does with a message is done with the newest.

Pure: its owner has the clock, and asks the broker.

Java counterpart: proxy/service/receipt/DefaultReceiptHandleManager.java and
proxy/common/RenewStrategyPolicy.java of RocketMQ 5.5.0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from .handle import Handle

CHECK_INTERVAL_S: Final = 5.0
"""Seconds between two looks at what is due."""

AHEAD_MS: Final = 10_000
"""How long before its time is over a message is renewed."""

LONGEST_MS: Final = 3 * 3_600_000
"""How long a message is renewed after it was received; then it comes again."""

STEPS_MS: Final = tuple(minutes * 60_000 for minutes in (1, 3, 5, 10, 30, 60))
"""Invisible times, by the number of renewals before."""

TRIES_MAX: Final = 3
"""Renewals of a message that may fail one after the other."""

CLEARED_MS: Final = 1_000
"""The invisible time of messages whose client has gone."""

MESSAGES_MAX: Final = 100_000
"""Messages of one client that are renewed, some 500 bytes each; of the oldest the time runs out."""


class MessageKey(NamedTuple):
    """A message as its client names it: by the handle that it received."""

    group: str
    message_id: str
    handle: str


@dataclass(slots=True)
class Renewed:
    """A received message.

    Attributes:
      handle: the newest.
      received_ms: when it was received, ms since 1970.
      change: asks the broker for another invisible time in ms, and calls back with the new handle,
        or None if it was refused.
      count: renewals so far.
      failures: that failed since the last one that did not.
      is_asked: the broker has not answered the last one.
    """

    handle: Handle
    received_ms: int
    change: Callable[[Handle, int, Callable[[Handle | None], None]], None]
    count: int = 0
    failures: int = 0
    is_asked: bool = False


class Renewals:
    """The messages of one client."""

    def __init__(self) -> None:
        self._messages: dict[MessageKey, Renewed] = {}

    def __len__(self) -> int:
        return len(self._messages)

    def add(self, key: MessageKey, message: Renewed) -> None:
        """Renew a message from now on."""
        if len(self._messages) >= MESSAGES_MAX:
            del self._messages[next(iter(self._messages))]
        self._messages[key] = message

    def newest(self, key: MessageKey) -> Handle | None:
        """The newest handle of a message; None: it is not renewed."""
        message = self._messages.get(key)
        return None if message is None else message.handle

    def remove(self, key: MessageKey) -> Handle | None:
        """Renew a message no longer; its newest handle, or None: it was not renewed."""
        message = self._messages.pop(key, None)
        return None if message is None else message.handle

    def renew(self, now_ms: int) -> None:
        """Renew what is due."""
        for key, message in self._due(now_ms):
            if now_ms - message.received_ms >= LONGEST_MS or message.failures >= TRIES_MAX:
                del self._messages[key]
                continue
            step_ms = STEPS_MS[min(message.count, len(STEPS_MS) - 1)]
            message.is_asked = True
            message.change(message.handle, step_ms, self._answered(message))

    def _due(self, now_ms: int) -> Iterator[tuple[MessageKey, Renewed]]:
        for key, message in list(self._messages.items()):
            if message.handle.receipt.revive_time - now_ms < AHEAD_MS and not message.is_asked:
                yield key, message

    @staticmethod
    def _answered(message: Renewed) -> Callable[[Handle | None], None]:
        def answered(handle: Handle | None) -> None:
            message.is_asked = False
            if handle is None:
                message.failures += 1
            else:
                message.handle, message.failures = handle, 0
                message.count += 1

        return answered

    def clear(self) -> None:
        """Have the broker give all messages to others soon."""
        messages, self._messages = self._messages, {}
        for message in messages.values():
            message.change(message.handle, CLEARED_MS, lambda handle: None)
