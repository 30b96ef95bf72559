"""Renewals: the last receipt that each message with a changed invisible time got.

A client writes receipts itself, from parts of answers, so a receipt can be forged, and each change
of an invisible time stores a check point that may become a copy of the message. So a message whose
time was changed is renewed by its last receipt only, until some time after that is over.

Pure: the time is an argument.

Java counterpart: none: Apache's broker stores a check point for any receipt.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ...remoting.receipt import Receipt
from .buffer import OrderKey

RENEWALS_MAX: Final = 50_000
"""Messages that are remembered, some 15 MB; the oldest is forgotten for another. Who renews more
messages than that stores no more copies than messages."""

KEPT_MS: Final = 60_000
"""How long a receipt is remembered after its time: by then its message has been revived, and an
offset that was reset is popped with receipts that the buffer knows."""


class CheckPointId(NamedTuple):
    """The parts of a receipt by which the acknowledgement of its check point is found."""

    start_offset: int
    pop_time: int
    invisible_time: int
    revive_queue_id: int
    broker_name: str

    @classmethod
    def of(cls, receipt: Receipt) -> CheckPointId:
        return cls(
            receipt.start_offset,
            receipt.pop_time,
            receipt.invisible_time,
            receipt.revive_queue_id,
            receipt.broker_name,
        )


class Renewals:
    """The last receipts by message. Not thread-safe: used from the broker's one trio run."""

    def __init__(self) -> None:
        # With the receipt by which each was got.
        self._last: dict[tuple[OrderKey, int], tuple[CheckPointId, CheckPointId]] = {}

    def __len__(self) -> int:
        return len(self._last)

    def allows(self, queue: OrderKey, receipt: Receipt, now_ms: int) -> bool:
        """Whether a message may be renewed by a receipt: by its last one."""
        known = self._last.get((queue, receipt.offset))
        if known is None:
            return True
        last = known[0]
        is_kept = now_ms <= last.pop_time + last.invisible_time + KEPT_MS
        return not is_kept or last == CheckPointId.of(receipt)

    def repeated(self, queue: OrderKey, receipt: Receipt, now_ms: int) -> CheckPointId | None:
        """What an earlier request with a receipt gave its message, if that is still in force: the
        request came twice. None: it did not."""
        last, former = self._last.get((queue, receipt.offset), (None, None))
        if last is None or former != CheckPointId.of(receipt):
            return None
        return last if now_ms <= last.pop_time + last.invisible_time else None

    def note(self, queue: OrderKey, receipt: Receipt, former: Receipt) -> None:
        """Remember the receipt that a message has got, and by which one."""
        key = queue, receipt.offset
        self._last.pop(key, None)
        if len(self._last) >= RENEWALS_MAX:
            del self._last[next(iter(self._last))]
        self._last[key] = CheckPointId.of(receipt), CheckPointId.of(former)
