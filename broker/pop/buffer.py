"""PopBuffer: check points and acknowledgements that wait in memory, and the order of commits.

A check point that is acknowledged soon leaves no record. The others are stored when they have
waited for popCkStayBufferTime, or popCkStayBufferTimeOut before their revive time.

The committed offset of a topic, group and queue follows the pops in their order: it passes a check
point only when that is acknowledged, or its record is on the device. After a crash the messages
from the committed offset on are popped again.

Pure. Java counterpart: broker/processor/PopBufferMergeService.java of 5.5.0, which is off by
default, scans all check points each 5 ms, and may commit an offset whose check point is lost in a
power cut.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from heapq import heappop, heappush
from itertools import islice
from typing import Final, NamedTuple

from ...common.steps import Steps
from ...remoting.receipt import Receipt, TopicForm
from ..settings.pop_config import PopConfig
from ..stats.pop_counts import PopCounts
from ..tables.consumer_offset_manager import ConsumerOffsetManager, key_of
from .check_point import CheckPoint, CheckPointKey

IDLE_MS: Final = 300_000
"""A queue without pops for that long is forgotten. Source: PopBufferMergeService.scanGarbage."""

IN_FLIGHT_IDLE_MS: Final = 3 * 24 * 3600 * 1000
"""The same for one with messages that are not acknowledged: the default of timerMaxDelaySec, the
longest invisible time."""

HURRIED_MAX: Final = 64
"""The oldest pops of a full queue among which one is stored before its time, for each new pop."""

RETRY_MS: Final = 1_000
"""The pause before a check point is stored again that the store refused."""


class OrderKey(NamedTuple):
    """A queue as one group pops it; `topic` may be a retry topic."""

    topic: str
    group: str
    queue_id: int


class PopOrder:
    """The pops of one queue by one group, in order.

    Attributes:
      key: topic, group and queue.
      offset_key: of topic and group in the table of offsets.
      entries: the pops that the committed offset has not passed.
      in_flight: messages that were popped since the start and are not acknowledged, about.
      used_ms: when it was popped last, ms since 1970.
    """

    __slots__ = ("entries", "in_flight", "key", "offset_key", "used_ms")

    def __init__(self, key: OrderKey) -> None:
        self.key = key
        self.offset_key = key_of(key.topic, key.group)
        self.entries: deque[Buffered] = deque()
        self.in_flight = 0
        self.used_ms = 0


class Buffered:
    """A check point in the buffer, or one that was stored and whose commit waits.

    Attributes:
      check_point: its acknowledged bits are current while it is in the buffer.
      text: identifies it in acknowledgements, see `text_of`.
      revive_queue_id: queue of the revive topic.
      order: the pops of its queue; None: the group's offset was reset since.
      next_offset: the committed offset when it and all before it are passed.
      is_done: whether the committed offset may pass it when the log is on the device to `log_end`.
      is_hurried: it is stored before its time, because its queue is full.
      log_end: physical offset; 0 if there is no record.
      all_acked: `CheckPoint.all_acked`.
    """

    __slots__ = (
        "all_acked",
        "check_point",
        "is_done",
        "is_hurried",
        "log_end",
        "next_offset",
        "order",
        "revive_queue_id",
        "text",
    )

    def __init__(
        self,
        check_point: CheckPoint,
        text: str,
        revive_queue_id: int,
        order: PopOrder | None,
        next_offset: int,
    ) -> None:
        self.check_point = check_point
        self.text = text
        self.revive_queue_id = revive_queue_id
        self.order = order
        self.next_offset = next_offset
        self.is_done = self.is_hurried = False
        self.log_end = 0
        self.all_acked = (1 << len(check_point.diffs)) - 1


def text_of(check_point: CheckPoint, revive_queue_id: int) -> str:
    """What identifies a check point in the buffer: its topic, group, and receipts without offset.

    A receipt is sent back as it is, so an acknowledgement finds its check point without parsing it.
    """
    ck = check_point
    return (
        f"{ck.topic}@{ck.group}@{ck.start_offset} {ck.pop_time} {ck.invisible_time} "
        f"{revive_queue_id} {TopicForm.of(ck.topic).value} {ck.broker_name} {ck.queue_id}"
    )


def text_of_receipt(queue: OrderKey, receipt: Receipt) -> str:
    """The same for the check point of a receipt of a message of this queue."""
    return (
        f"{queue.topic}@{queue.group}@{receipt.start_offset} {receipt.pop_time} "
        f"{receipt.invisible_time} {receipt.revive_queue_id} {receipt.form.value} "
        f"{receipt.broker_name} {queue.queue_id}"
    )


class PopBuffer:
    """The buffer of one broker. Not thread-safe: used from the broker's one trio run.

    Args:
      config: the broker's; read at each use.
      offsets: the table that is committed to.
      flushed: gives the physical offset up to which the log is on the device.
      wake: called when a check point may be due earlier than `left_ms` said.
      counts: counts check points and acknowledgements.
      started_ms: when the broker started, ms since 1970; earlier pops are not in flight.
    """

    def __init__(
        self,
        config: PopConfig,
        offsets: ConsumerOffsetManager,
        *,
        flushed: Callable[[], int],
        wake: Callable[[], None] = lambda: None,
        counts: PopCounts | None = None,
        started_ms: int = 0,
    ) -> None:
        self.wake = wake
        self.counts = counts or PopCounts()
        self._started_ms = started_ms
        self._config = config
        self._offsets = offsets
        self._flushed = flushed
        self._by_text: dict[str, Buffered] = {}
        self._orders: dict[tuple[str, str, int], PopOrder] = {}
        self._unsynced: dict[PopOrder, None] = {}  # with a head that waits for an fsync
        # By due time: nearly all wait equally long, so they come in order; the others in a heap.
        self._line: deque[tuple[int, Buffered]] = deque()
        self._heap: list[tuple[int, int, Buffered]] = []
        self._count = 0

    def __len__(self) -> int:
        """The number of check points in memory that are not stored."""
        return len(self._by_text)

    @property
    def waiting_commits(self) -> int:
        """The number of pops that the committed offsets have not passed."""
        return sum(len(order.entries) for order in self._orders.values())

    # ---- pops ------------------------------------------------------------------------------

    def find(self, topic: str, group: str, queue_id: int) -> PopOrder | None:
        """The pops of a queue by a group; None if there was none lately."""
        return self._orders.get((topic, group, queue_id))

    def order(self, topic: str, group: str, queue_id: int) -> PopOrder:
        """The same, created if missing."""
        key = OrderKey(topic, group, queue_id)
        order = self._orders.get(key)
        if order is None:
            order = self._orders[key] = PopOrder(key)
        return order

    def next_offset(self, topic: str, group: str, queue_id: int) -> int:
        """The offset after the last pop whose commit waits; -1 if there is none."""
        order = self._orders.get((topic, group, queue_id))
        return order.entries[-1].next_offset if order is not None and order.entries else -1

    def in_flight(self, topic: str, group: str, queue_id: int) -> int:
        """The number of messages that were popped and are not acknowledged, about."""
        order = self._orders.get((topic, group, queue_id))
        return 0 if order is None else order.in_flight

    def check_points(self) -> Iterator[tuple[CheckPoint, int]]:
        """The check points that are in memory and not stored, the oldest first, each with its queue
        of the revive topic: those of the moment of the call."""
        entries = list(self._by_text.values())  # up to popCkMaxBufferSize: 200,000 in a millisecond
        return ((entry.check_point, entry.revive_queue_id) for entry in entries)

    def skip(self, order: PopOrder, next_offset: int) -> None:
        """Move the committed offset past messages that no pop returned, because of a filter."""
        if order.entries:
            order.entries[-1].next_offset = next_offset
        else:
            self._commit(order, next_offset)

    def may_wait(self, order: PopOrder, check_point: CheckPoint, now_ms: int) -> bool:
        """Whether a new check point may wait in memory; else it is stored at once."""
        config = self._config
        if (
            not config.enable_pop_buffer_merge
            or len(self._by_text) >= config.pop_ck_max_buffer_size
        ):
            return False
        if len(order.entries) >= config.pop_ck_offset_max_queue_size:
            # The oldest of the queue holds up its offset, and with it all others.
            self._hurry(order, now_ms)
            return False
        return self._due_ms(check_point) > now_ms

    def add(
        self, order: PopOrder, check_point: CheckPoint, next_offset: int, revive_queue_id: int
    ) -> Buffered | None:
        """Keep a check point in memory.

        Args:
          next_offset: after the messages that its pop read.
          revive_queue_id: queue of the revive topic.

        Returns: the entry; None: another pop has the same identity, so its record is stored.
        """
        text = text_of(check_point, revive_queue_id)
        if text in self._by_text:
            return None
        entry = Buffered(check_point, text, revive_queue_id, order, next_offset)
        self._by_text[text] = entry
        order.entries.append(entry)
        self._note_pop(order, check_point)
        self._wait_until(self._due_ms(check_point), entry)
        return entry

    def add_stored(
        self, order: PopOrder, check_point: CheckPoint, next_offset: int, revive_queue_id: int
    ) -> Buffered:
        """Record a check point whose record was appended; `was_written` must follow the commit."""
        entry = Buffered(check_point, "", revive_queue_id, order, next_offset)
        order.entries.append(entry)
        self._note_pop(order, check_point)
        return entry

    def _note_pop(self, order: PopOrder, check_point: CheckPoint) -> None:
        order.in_flight += len(check_point.diffs)
        pops = self.counts.pops
        pops[order.offset_key] = pops.get(order.offset_key, 0) + 1

    def was_written(self, entry: Buffered, log_end: int) -> None:
        """Move the committed offset past a check point, and forget it: its record is in the log.

        Args:
          log_end: physical offset after the record.
        """
        if entry.text:
            del self._by_text[entry.text]
        entry.log_end = max(entry.log_end, log_end)
        self._done(entry)

    def was_not_written(self, entry: Buffered, now_ms: int) -> None:
        """Keep a check point in memory whose record was not written with its turn."""
        if not entry.text:
            text = text_of(entry.check_point, entry.revive_queue_id)
            while text in self._by_text:  # another pop has the same identity
                text += "'"
            entry.text = text
            self._by_text[text] = entry
        self._wait_until(now_ms + RETRY_MS, entry)

    # ---- acknowledgements ------------------------------------------------------------------

    def entry_of(self, text: str) -> Buffered | None:
        """The check point that `text_of` names; None: it is not in memory."""
        return self._by_text.get(text)

    def ack(
        self, entry: Buffered, bits: int, log_end: int = 0, *, is_renewed: bool = False
    ) -> None:
        """Mark messages of a check point in memory as acknowledged.

        Args:
          bits: bit i: message i.
          log_end: physical offset to which the log must be on the device before the committed
            offset passes them; 0: any.
          is_renewed: they have a new check point, so they are in flight as before.
        """
        check_point = entry.check_point
        acked = check_point.acked | bits
        order = entry.order
        if order is not None and acked != check_point.acked:
            count = (acked ^ check_point.acked).bit_count()
            acks = self.counts.acks
            acks[order.offset_key] = acks.get(order.offset_key, 0) + count
            if not is_renewed:
                order.in_flight -= count
        check_point.acked = acked
        if log_end > entry.log_end:
            entry.log_end = log_end
        if acked == entry.all_acked and entry.text:
            del self._by_text[entry.text]
            self._done(entry)

    def acked_elsewhere(self, key: CheckPointKey, count: int) -> None:
        """Count acknowledged messages whose check point was stored."""
        acks, name = self.counts.acks, key_of(key.topic, key.group)
        acks[name] = acks.get(name, 0) + count
        self.landed(key, count)

    def landed(self, key: CheckPointKey, count: int) -> None:
        """Count messages that are not in flight any more, and whose check point was stored."""
        order = self._orders.get((key.topic, key.group, key.queue_id))
        if order is not None and key.pop_time >= self._started_ms:
            order.in_flight = max(order.in_flight - count, 0)

    # ---- storing ---------------------------------------------------------------------------

    def take_due(self, now_ms: int, count_max: int) -> list[Buffered]:
        """The check points that are due; the caller stores them, or calls `was_not_written`."""
        due: dict[Buffered, None] = {}  # one may wait twice, see `_hurry`
        line, heap = self._line, self._heap
        while line and len(due) < count_max and (line[0][0] <= now_ms or not line[0][1].text):
            entry = line.popleft()[1]
            if entry.text:
                due[entry] = None
        while heap and len(due) < count_max and (heap[0][0] <= now_ms or not heap[0][2].text):
            entry = heappop(heap)[2]
            if entry.text:
                due[entry] = None
        return list(due)

    def take_all(self, count_max: int) -> list[Buffered]:
        """Check points that are not stored, the oldest first."""
        return [entry for entry, _ in zip(self._by_text.values(), range(count_max), strict=False)]

    def left_ms(self, now_ms: int) -> float:
        """Milliseconds until a check point is due; infinity: none waits."""
        due = math.inf
        if self._line:
            due = self._line[0][0]
        if self._heap:
            due = min(due, self._heap[0][0])
        return due - now_ms

    @property
    def waits_for_sync(self) -> bool:
        """Whether a committed offset waits for an fsync of the log."""
        return bool(self._unsynced)

    def synced(self) -> None:
        """Commit what waited for an fsync of the log."""
        for order in list(self._unsynced):
            self._advance(order)

    # ---- tables ----------------------------------------------------------------------------

    def restart(self, order: PopOrder) -> None:
        """Make the next pop begin at the committed offset, which an administrator has set.

        Check points of earlier pops stay, and their messages are revived, but commit nothing.
        """
        for entry in order.entries:
            entry.order = None
        order.entries.clear()
        order.in_flight = 0
        self._unsynced.pop(order, None)

    def forget_topic(self, topic: str) -> None:
        """Drop all pops of a deleted topic."""
        self._forget([order for key, order in self._orders.items() if key[0] == topic])

    def forget_group(self, group: str) -> None:
        """Drop all pops of a deleted group."""
        self._forget([order for key, order in self._orders.items() if key[1] == group])

    def _forget(self, orders: Iterable[PopOrder]) -> None:
        for order in orders:
            for entry in order.entries:
                self._by_text.pop(entry.text, None)
                entry.text = ""
            del self._orders[order.key]
            self.restart(order)

    def drop_idle(self, now_ms: int) -> Steps[None]:
        """Steps that forget queues without recent pops."""
        for count, (key, order) in enumerate(list(self._orders.items())):
            idle_ms = IN_FLIGHT_IDLE_MS if order.in_flight else IDLE_MS
            if not order.entries and now_ms - order.used_ms > idle_ms:
                self._orders.pop(key, None)
            if count % 1000 == 999:
                yield

    # ---- inside ----------------------------------------------------------------------------

    def _due_ms(self, check_point: CheckPoint) -> int:
        """When a check point must be stored."""
        config = self._config
        pop_time = check_point.pop_time
        left = check_point.invisible_time - config.pop_ck_stay_buffer_time_out
        stay = config.pop_ck_stay_buffer_time
        return pop_time + (left if left < stay else stay)

    def _wait_until(self, due_ms: int, entry: Buffered) -> None:
        line = self._line
        if not line:
            line.append((due_ms, entry))
            if not self._heap:
                self.wake()
        # Nearly always: pops have the same invisible time, so a queue does, and the heap stays
        # small.
        elif due_ms >= line[-1][0]:
            line.append((due_ms, entry))
        else:
            self._count += 1
            heappush(self._heap, (due_ms, self._count, entry))
            if self._heap[0][2] is entry:
                self.wake()

    def _hurry(self, order: PopOrder, now_ms: int) -> None:
        """Store the oldest check point of a queue now, since too many commits wait for it."""
        for entry in islice(order.entries, HURRIED_MAX):
            if entry.text and not entry.is_hurried:
                entry.is_hurried = True
                self._wait_until(now_ms, entry)
                return

    def _done(self, entry: Buffered) -> None:
        entry.text = ""
        entry.is_done = True
        order = entry.order
        if order is not None and order.entries[0] is entry:
            self._advance(order)

    def _advance(self, order: PopOrder) -> None:
        """Commit up to the first check point that is not done."""
        entries, offset = order.entries, -1
        while entries and entries[0].is_done:
            # Its acknowledgement may be lost in a power cut: then the message must be popped again.
            if entries[0].log_end > self._flushed():
                if order not in self._unsynced:
                    self._unsynced[order] = None
                    self.wake()
                break
            offset = entries.popleft().next_offset
        else:
            self._unsynced.pop(order, None)
        if offset >= 0:
            self._commit(order, offset)

    def _commit(self, order: PopOrder, offset: int) -> None:
        topic, group, queue_id = order.key
        offsets, key = self._offsets, order.offset_key
        if offsets.reset_offset_table and offsets.has_offset_reset(group, topic, queue_id):
            return
        known = offsets.offset_table.get(key)
        if known is None or known.get(queue_id, -1) < offset:
            offsets.commit_by_key(key, queue_id, offset)
