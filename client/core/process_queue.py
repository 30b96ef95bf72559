"""The messages pulled from one queue and not consumed yet.

Messages come in the order of their offsets and end in any order; what may be committed is the
offset below which all have ended. Each operation costs O(1) per message, amortised, as long as
offsets arrive ascending; what arrives out of order costs one sort.

Java counterpart: ProcessQueue of RocketMQ 5.3.3. Pure: times are arguments, ms of one clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final, Generic, Protocol, TypeVar

REBALANCE_LOCK_MAX_LIVE_MS: Final = 30_000
"""A lock not renewed for so long is not ours any more."""

_HOLES_COUNT_MIN: Final = 1024  # fewer offsets of ended messages do not matter


class PulledMessage(Protocol):
    """What a ProcessQueue needs of a message."""

    @property
    def queue_offset(self) -> int:
        """Its place in the queue, in messages, >= 0."""

    @property
    def body(self) -> bytes:
        """Its body."""


MessageT = TypeVar("MessageT", bound=PulledMessage)


class ProcessQueue(Generic[MessageT]):
    """What a consumer holds of one queue. Owner: the consumer's shell; not thread-safe.

    A queue that is consumed concurrently uses `put` and `remove`; one consumed in order uses `put`,
    `take`, and then `commit`, `rollback` or `make_message_to_consume_again`.

    Args:
      now_ms: when it was made.

    Attributes:
      is_dropped: rebalancing took the queue away: nothing is consumed or committed any more.
      is_locked: the broker gave us its lock (`set_locked`).
      last_lock_ms, last_pull_ms, last_consume_ms: when that happened last.
      try_unlock_times: how often dropping it had to wait for its consumer; for administrators.
      behind_count: messages behind the last one pulled that the broker has, as it said last.
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
        # The keys of _messages, ascending. What was removed elsewhere than at the ends stays as a
        # hole; neither end is one.
        self._offsets: deque[int] = deque()
        self._taken: dict[int, MessageT] = {}
        self._offset_max = -1
        self._size = 0
        self._is_consuming = False

    @property
    def count(self) -> int:
        """Messages held, those taken for orderly consumption included."""
        return len(self._messages) + len(self._taken)

    @property
    def size(self) -> int:
        """Bytes of their bodies."""
        return self._size

    @property
    def span(self) -> int:
        """Last offset less first offset of the messages waiting; 0 when there is none."""
        offsets = self._offsets
        return offsets[-1] - offsets[0] if offsets else 0

    @property
    def oldest(self) -> MessageT | None:
        """The waiting message with the least offset, or None."""
        return self._messages[self._offsets[0]] if self._offsets else None

    @property
    def has_waiting(self) -> bool:
        """Whether a message waits that was not taken."""
        return bool(self._messages)

    def contains(self, offset: int) -> bool:
        """Whether the message of this offset waits here."""
        return offset in self._messages

    def put(self, messages: Sequence[MessageT], *, max_offset: int | None = None) -> bool:
        """Take in what a pull brought. A message that waits here already is replaced.

        Args:
          messages: with ascending offsets (else it costs a sort).
          max_offset: of the broker's queue, from the pull's answer: offset of the next to come.
        Returns: whether nobody consumes this queue in order and somebody should start to.
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
        """Messages have ended: consumed, or sent back.

        Args:
          offsets: of messages in any order; unknown ones are ignored.
          now_ms: notes that something was consumed.
        Returns: the offset that may be committed: of the oldest message left, or behind all that
          came when none is left. None: there was nothing here, so nothing is to be committed.
        """
        self.last_consume_ms = now_ms
        waiting = self._messages
        if not waiting:
            return None
        for offset in offsets:
            message = waiting.pop(offset, None)
            if message is not None:
                self._size -= len(message.body)
        self._trim()
        return self._offsets[0] if self._offsets else self._offset_max + 1

    def take(self, count: int, *, now_ms: float) -> list[MessageT]:
        """The next messages for orderly consumption; they count until `commit`.

        Args:
          count: of messages, at most; >= 1.
          now_ms: notes that something is consumed.
        Returns: in the order of offsets. None left: an empty list; the next `put` that brings one
          returns True.
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
        """What was taken has been consumed.

        Returns: the offset to commit: behind the last of them. None: nothing was taken.
        """
        taken = self._taken
        if not taken:
            return None
        self._size -= sum([len(message.body) for message in taken.values()])
        offset = max(taken) + 1
        taken.clear()
        return offset

    def rollback(self) -> None:
        """Everything that was taken waits again."""
        taken, self._taken = self._taken, {}
        self._give_back(taken)

    def make_message_to_consume_again(self, messages: Iterable[MessageT]) -> None:
        """Some of the messages that were taken wait again; what is still taken can be committed.

        Args:
          messages: they take the place of those taken. One that is not taken (any more) is ignored;
            Java puts it in, and so brings back what `clear` removed.
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
        """Remove the holes at both ends, and all of them when they are many."""
        waiting, offsets = self._messages, self._offsets
        while offsets and offsets[0] not in waiting:
            offsets.popleft()
        while offsets and offsets[-1] not in waiting:
            offsets.pop()
        if len(offsets) > 2 * len(waiting) + _HOLES_COUNT_MIN:
            self._sort()

    def clear(self) -> None:
        """Forget all messages, the taken ones too."""
        self._messages.clear()
        self._offsets.clear()
        self._taken.clear()
        self._offset_max = -1
        self._size = 0

    def set_locked(self, is_locked: bool, *, now_ms: float) -> None:
        """The broker gave or refused its lock."""
        self.is_locked = is_locked
        if is_locked:
            self.last_lock_ms = now_ms

    def is_lock_expired(self, now_ms: float) -> bool:
        """Whether the lock may be another's by now: more than 30 s since it was given."""
        return now_ms - self.last_lock_ms > REBALANCE_LOCK_MAX_LIVE_MS
