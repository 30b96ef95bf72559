"""The messages that were pulled from one queue and are not consumed yet.

Messages arrive in the order of their offsets and are settled in any order; the offset to commit is
the one below which all are settled. Each operation costs O(1) per message, amortised, if offsets
arrive in ascending order; otherwise it costs a sort.

Java counterpart: ProcessQueue of RocketMQ 5.3.3. Pure: times are arguments, ms of one clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final, Generic, Protocol, TypeVar

REBALANCE_LOCK_MAX_LIVE_MS: Final = 30_000
"""Time after which a lock that was not renewed counts as expired."""

_HOLES_COUNT_MIN: Final = 1024  # fewer offsets of settled messages cost too little to remove


class PulledMessage(Protocol):
    """The part of a message that a ProcessQueue uses."""

    @property
    def queue_offset(self) -> int:
        """Offset in the queue, in messages, >= 0."""

    @property
    def body(self) -> bytes:
        """The body."""


MessageT = TypeVar("MessageT", bound=PulledMessage)


class ProcessQueue(Generic[MessageT]):
    """The messages of one queue in memory. Not thread-safe.

    Concurrent consumption uses `put` and `remove`. Orderly consumption uses `put`, `take`, and then
    `commit`, `rollback` or `make_message_to_consume_again`.

    Args:
      now_ms: the current time.

    Attributes:
      is_dropped: the queue was revoked: its messages are neither consumed nor committed.
      is_locked: this client has the lock of the queue (`set_locked`).
      last_lock_ms, last_pull_ms, last_consume_ms: time of the last lock, pull and consumption.
      try_unlock_times: number of times that dropping it had to wait for its consumer; shown to
        administrators.
      behind_count: messages on the broker after the last one that was pulled, as of that pull.
    """

    __slots__ = (
        "_is_consuming",
        "_messages",
        "_offset_max",
        "_offsets",
        "_size",
        "_taken",
        "behind_count",
        "is_dropped",
        "is_locked",
        "last_consume_ms",
        "last_lock_ms",
        "last_pull_ms",
        "try_unlock_times",
    )

    def __init__(self, now_ms: float) -> None:
        self.is_dropped: bool = False
        self.is_locked: bool = False
        self.last_lock_ms: float = now_ms
        self.last_pull_ms: float = now_ms
        self.last_consume_ms: float = now_ms
        self.try_unlock_times: int = 0
        self.behind_count: int = 0
        self._messages: dict[int, MessageT] = {}
        # The keys of _messages in ascending order, and holes: offsets of messages that were removed
        # between others. The first and the last offset are never holes.
        self._offsets: deque[int] = deque()
        self._taken: dict[int, MessageT] = {}
        self._offset_max = -1
        self._size = 0
        self._is_consuming = False

    @property
    def count(self) -> int:
        """Number of messages, including those taken for orderly consumption."""
        return len(self._messages) + len(self._taken)

    @property
    def size(self) -> int:
        """Total size of their bodies, in bytes."""
        return self._size

    @property
    def span(self) -> int:
        """Difference of the last and first offset of the waiting messages; 0 without messages."""
        offsets = self._offsets
        return offsets[-1] - offsets[0] if offsets else 0

    @property
    def oldest(self) -> MessageT | None:
        """The waiting message with the smallest offset; None without messages."""
        return self._messages[self._offsets[0]] if self._offsets else None

    @property
    def has_waiting(self) -> bool:
        """Whether there are messages that were not taken."""
        return bool(self._messages)

    def contains(self, offset: int) -> bool:
        """Whether the message of this offset is waiting."""
        return offset in self._messages

    def put(self, messages: Sequence[MessageT], *, max_offset: int | None = None) -> bool:
        """Add pulled messages; a waiting message of the same offset is replaced.

        Args:
          messages: the messages, preferably in ascending order of offsets.
          max_offset: the maximum offset of the broker's queue, from the answer to the pull.

        Returns: whether orderly consumption of the queue has to be started.
        """
        waiting, offsets = self._messages, self._offsets
        last = offsets[-1] if offsets else -1
        size = 0
        in_order = True
        for message in messages:
            offset = message.queue_offset
            size += len(message.body)
            if offset > last:
                offsets.append(offset)
                last = offset
            elif offset in waiting:
                size -= len(waiting[offset].body)
            else:
                in_order = False
            waiting[offset] = message
        self._size += size
        if not in_order:
            self._sort()
        if last > self._offset_max:
            self._offset_max = last
        if max_offset is not None and messages:
            behind = max_offset - messages[-1].queue_offset
            if behind > 0:
                self.behind_count = behind
        if waiting and not self._is_consuming:
            self._is_consuming = True
            return True
        return False

    def remove(self, offsets: Iterable[int], *, now_ms: float) -> int | None:
        """Remove messages that were consumed or sent back.

        Args:
          offsets: offsets of the messages, in any order; unknown ones are ignored.
          now_ms: the current time, which becomes `last_consume_ms`.

        Returns: the offset to commit: that of the oldest message left, or the one after all
          messages if none is left. None if there were no messages, so there is nothing to commit.
        """
        self.last_consume_ms = now_ms
        waiting = self._messages
        if not waiting:
            return None
        for offset in offsets:
            message = waiting.pop(offset, None)
            if message is not None:
                self._size -= len(message.body)
        offsets_left = self._offsets
        # Messages are mostly consumed in order: the first part of `_trim`, without its call.
        while offsets_left and offsets_left[0] not in waiting:
            offsets_left.popleft()
        if not offsets_left:
            return self._offset_max + 1
        if offsets_left[-1] not in waiting or len(offsets_left) > _HOLES_COUNT_MIN:
            self._trim()
        return offsets_left[0]

    def take(self, count: int, *, now_ms: float) -> list[MessageT]:
        """Take the next messages for orderly consumption; they count until `commit`.

        Args:
          count: largest number of messages, >= 1.
          now_ms: the current time, which becomes `last_consume_ms`.

        Returns: the messages in the order of their offsets. After an empty list, the next `put` of
          a message returns True.
        """
        self.last_consume_ms = now_ms
        waiting, offsets = self._messages, self._offsets
        result: list[MessageT] = []
        while offsets and len(result) < count:
            offset = offsets.popleft()
            message = waiting.pop(offset, None)
            if message is not None:
                self._take(offset, message)
                result.append(message)
        self._trim()
        if not result:
            self._is_consuming = False
        return result

    def _take(self, offset: int, message: MessageT) -> None:
        again = self._taken.get(offset)
        if again is not None:
            self._size -= len(again.body)
        self._taken[offset] = message

    def commit(self) -> int | None:
        """Finish the messages that were taken.

        Returns: the offset to commit, the one after the last of them; None if none was taken.
        """
        taken = self._taken
        if not taken:
            return None
        self._size -= sum([len(message.body) for message in taken.values()])
        offset = max(taken) + 1
        taken.clear()
        return offset

    def rollback(self) -> None:
        """Put all messages that were taken back."""
        taken, self._taken = self._taken, {}
        self._give_back(taken)

    def make_message_to_consume_again(self, messages: Iterable[MessageT]) -> None:
        """Put some of the messages that were taken back; the others can be committed.

        Args:
          messages: they replace the ones that were taken. A message that is not taken (any more) is
            ignored. (Java adds it, which brings back messages that `clear` has removed.)
        """
        back: dict[int, MessageT] = {}
        for message in messages:
            offset = message.queue_offset
            taken = self._taken.pop(offset, None)
            if taken is not None:
                self._size += len(message.body) - len(taken.body)
                back[offset] = message
        self._give_back(back)

    def _give_back(self, messages: dict[int, MessageT]) -> None:
        if not messages:
            return
        waiting, offsets = self._messages, self._offsets
        for offset in messages.keys() & waiting.keys():
            self._size -= len(waiting[offset].body)
        waiting.update(messages)
        if not offsets or max(messages) < offsets[0]:
            offsets.extendleft(sorted(messages, reverse=True))
        else:
            self._sort()

    def _sort(self) -> None:
        self._offsets = deque(sorted(self._messages))

    def _trim(self) -> None:
        """Remove the holes at both ends, and all holes if there are many."""
        waiting, offsets = self._messages, self._offsets
        while offsets and offsets[0] not in waiting:
            offsets.popleft()
        while offsets and offsets[-1] not in waiting:
            offsets.pop()
        if len(offsets) > 2 * len(waiting) + _HOLES_COUNT_MIN:
            self._sort()

    def clear(self) -> None:
        """Remove all messages, including those that were taken."""
        self._messages.clear()
        self._offsets.clear()
        self._taken.clear()
        self._offset_max = -1
        self._size = 0

    def set_locked(self, is_locked: bool, *, now_ms: float) -> None:
        """Record that the broker granted or refused the lock."""
        self.is_locked = is_locked
        if is_locked:
            self.last_lock_ms = now_ms

    def is_lock_expired(self, now_ms: float) -> bool:
        """Whether the lock was granted more than 30 s ago, so another client may have it."""
        return now_ms - self.last_lock_ms > REBALANCE_LOCK_MAX_LIVE_MS
