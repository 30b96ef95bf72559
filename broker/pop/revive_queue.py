"""ReviveQueue: the check points of one queue of the revive topic that are not yet decided.

Check points and acks reach a revive queue as timer messages: a check point one second before its
messages become visible again (its revive time), an ack at the revive time, or at once if it is
later. So an ack is read after its check point, and a check point can be decided when

- its revive time is GRACE_MS past, so that acks that were on their way have arrived;
- the timer service has delivered every message that was due at the revive time; and
- the queue was read to the end that it had at that moment.

What has no ack then is put into the group's retry topic. The committed offset is that of the last
record before the oldest undecided check point; RocketMQ's broker begins after it, too.

Memory holds the check points of the last few seconds only: earlier ones are decided, later ones
wait in the timer wheel, in eight bytes each. Unlike in RocketMQ's broker no record is read twice,
except after a restart.

Pure. Java counterpart: broker/processor/PopReviveService.java of 5.5.0.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import replace
from heapq import heappop, heappush
from typing import Final, NamedTuple

from ...common.java_integers import INT32_MAX
from ...common.message_properties import (
    PROPERTY_FIRST_POP_TIME,
    PROPERTY_ORIGIN_GROUP,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_TIMER_OUT_MS,
)
from ...remoting.message import MessageExt
from ...remoting.message_batch import iter_batch
from ...remoting.sys_flag import INNER_BATCH, NEED_UNWRAP
from ...store.writing.inner_message import InnerMessage
from .check_point import RE_PUTS_UNKNOWN, CheckPoint, CheckPointKey
from .records import CHECK_POINT_EARLIER_MS, Ack, read_record

GRACE_MS: Final = 1_000
"""How long after the revive time an ack still counts. RocketMQ's broker waits for more than 2 s."""

POINTS_MAX: Final = 20_000
"""Undecided check points of one queue (some 18 MB) from which on late acks are not waited for."""

EARLY_ACKS_MAX: Final = 20_000
"""Acks of one queue that wait for their check points; further ones are dropped, as RocketMQ's
broker drops all of them."""

RE_PUT_DELAYS_S: Final = (
    10, 20, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1_200, 1_800, 3_600, 7_200,
)  # fmt: skip
"""Until a message that could not be read is tried again; the last one repeats. Source:
PopReviveService.ckRewriteIntervalsInSeconds."""

_MS_DIGITS: Final = 18


class WaitingPoint:
    """A check point that is not yet decided.

    Attributes:
      check_point: its messages; those that are revived are marked as acknowledged, too.
      key: its identity, with the name of the broker.
      revive_offset: its offset in the revive queue.
      is_done: whether it is decided.
    """

    __slots__ = ("check_point", "is_done", "key", "revive_offset")

    def __init__(self, check_point: CheckPoint, key: CheckPointKey, revive_offset: int) -> None:
        self.check_point = check_point
        self.key = key
        self.revive_offset = revive_offset
        self.is_done = False


class _EarlyAcks:
    """Acks that were read before their check point.

    They are late acks: a check point that the timer service delivers late is behind them.

    Attributes:
      revive_offset: of the first of them.
      revive_time: of their check point, ms since 1970.
      offsets: of the acknowledged messages.
      is_done: whether they are used or dropped.
    """

    __slots__ = ("is_done", "offsets", "revive_offset", "revive_time")

    def __init__(self, revive_offset: int, revive_time: int) -> None:
        self.revive_offset = revive_offset
        self.revive_time = revive_time
        self.offsets: list[int] = []
        self.is_done = False


class _Mark(NamedTuple):
    """A moment at which the records up to `end` were in the queue.

    Attributes:
      timers_ms: all timer messages with a lower TIMER_OUT_MS were delivered.
      now_ms: the wall clock.
      end: of the revive queue.
    """

    timers_ms: float
    now_ms: int
    end: int


class ReviveQueue:
    """The state of one revive queue.

    Args:
      next_offset: of the first record to read.
      broker_name: the own one, for records without one.

    Attributes:
      next_offset: of the next record to read.
      set_ms: to which time a test moved the wall clock, ms since 1970; 0: it did not. What became
        visible by that is decided without GRACE_MS: no ack was on its way.
    """

    def __init__(self, next_offset: int, broker_name: str) -> None:
        self.next_offset = next_offset
        self.set_ms = 0
        self._broker_name = broker_name
        self._points: dict[CheckPointKey, WaitingPoint] = {}
        self._early: dict[CheckPointKey, _EarlyAcks] = {}
        self._early_count = 0
        self._held: deque[WaitingPoint | _EarlyAcks] = deque()  # by revive offset; some are done
        self._due: list[tuple[int, int, WaitingPoint]] = []  # a heap; some are done
        self._names: dict[str, str] = {}
        self._seen_ms = 0  # the greatest TIMER_OUT_MS that was read
        self._mark: _Mark | None = None  # not yet reached
        self._reached = _Mark(0, 0, 0)

    def __len__(self) -> int:
        """The number of undecided check points."""
        return len(self._points)

    @property
    def has_early_acks(self) -> bool:
        """Whether acks wait for their check points."""
        return bool(self._early)

    @property
    def committed(self) -> int:
        """The offset of the last record that is not needed any more; -1 if there is none."""
        held = self._held
        while held and held[0].is_done:
            held.popleft()
        return (held[0].revive_offset if held else self.next_offset) - 1

    # ---- reading -------------------------------------------------------------------------

    def skip_to(self, offset: int) -> None:
        """Go on at an offset, because the records before it are gone."""
        self.next_offset = max(self.next_offset, offset)

    def take(self, message: MessageExt, revive_offset: int) -> CheckPoint | Ack | None:
        """Process the next record, and return what it is; None: it is no record of pop.

        Args:
          message: of the revive topic; one that is no record of pop is ignored.
          revive_offset: its offset in the queue.
        Raises: RemoteProtocolError: its body cannot be read; it is skipped.
        """
        self.next_offset = revive_offset + 1
        self._seen_ms = max(self._seen_ms, _time_ms(message, PROPERTY_TIMER_OUT_MS))
        record = read_record(message)
        if isinstance(record, CheckPoint):
            self._take_point(record, revive_offset)
        elif record is not None:
            self._take_ack(record, message, revive_offset)
        return record

    def _take_point(self, check_point: CheckPoint, revive_offset: int) -> None:
        key = self._known(check_point.key)
        check_point.topic, check_point.group, check_point.broker_name = key[0], key[1], key[5]
        if key in self._points:
            return  # the timer service delivered it again after a crash
        early = self._early.pop(key, None)
        if early is not None:
            self._end_early(early)
            for offset in early.offsets:
                check_point.ack(offset)
        if check_point.is_done:
            return
        point = WaitingPoint(check_point, key, revive_offset)
        self._points[key] = point
        self._held.append(point)
        heappush(self._due, (check_point.revive_time + GRACE_MS, revive_offset, point))

    def _take_ack(self, ack: Ack, message: MessageExt, revive_offset: int) -> None:
        key = self._known(ack.key)
        point = self._points.get(key)
        if point is not None:
            for offset in ack.offsets:
                point.check_point.ack(offset)
            if point.check_point.is_done:
                self.finish(point)
            return
        revive_time = _time_ms(message, PROPERTY_TIMER_DELIVER_MS)
        if self._is_read_through(revive_time - CHECK_POINT_EARLIER_MS):
            return  # its check point is decided
        if self._early_count + len(ack.offsets) > EARLY_ACKS_MAX:
            return
        early = self._early.get(key)
        if early is None:
            early = self._early[key] = _EarlyAcks(revive_offset, revive_time)
            self._held.append(early)
        early.offsets.extend(ack.offsets)
        self._early_count += len(ack.offsets)

    def _known(self, key: CheckPointKey) -> CheckPointKey:
        """A key with the broker's name, whose strings are shared with equal ones in memory."""
        names = self._names
        if len(names) > POINTS_MAX:
            names.clear()
        topic, group = (
            names.setdefault(key.topic, key.topic),
            names.setdefault(key.group, key.group),
        )
        name = key.broker_name or self._broker_name
        name = names.setdefault(name, name)
        return CheckPointKey(topic, group, key.queue_id, key.start_offset, key.pop_time, name)

    def _end_early(self, early: _EarlyAcks) -> None:
        early.is_done = True
        self._early_count -= len(early.offsets)

    # ---- deciding ------------------------------------------------------------------------

    def note(self, *, timers_ms: float, now_ms: int, end: int) -> None:
        """Record how far the timer service is; acks that were due earlier are before `end`.

        Args:
          timers_ms: all timer messages with a lower TIMER_OUT_MS are delivered; infinity: all.
          now_ms: the wall clock.
          end: the queue's next offset, read after the other two.
        """
        if self._mark is None:
            self._mark = _Mark(min(timers_ms, now_ms), now_ms, end)
        if self.next_offset >= self._mark.end:
            self._reached, self._mark = self._mark, None
            if self._early:
                self._drop_early()

    def _drop_early(self) -> None:
        """Drop acks whose check points will not come any more."""
        for key, early in list(self._early.items()):
            if self._is_read_through(early.revive_time - CHECK_POINT_EARLIER_MS):
                del self._early[key]
                self._end_early(early)

    def _is_read_through(self, moment_ms: int) -> bool:
        """Whether all timer messages that were due before a moment are read."""
        return self._reached.timers_ms >= moment_ms

    def take_due(self) -> WaitingPoint | None:
        """Take a check point that can be decided, the earliest first; None if there is none.

        `finish` or `put_back` must follow.
        """
        next_ms = self.next_due_ms()
        if next_ms == math.inf:
            return None
        due_ms, _, point = self._due[0]
        is_complete = next_ms <= self._reached.now_ms and self._is_read_through(due_ms - GRACE_MS)
        # Too many: acks that came through the timer service are read, those are enough.
        if is_complete or (len(self._points) > POINTS_MAX and due_ms <= self._seen_ms):
            heappop(self._due)
            return point
        return None

    def put_back(self, point: WaitingPoint, due_ms: int = 0) -> None:
        """Return a check point that `take_due` took, because it could not be decided.

        Args:
          due_ms: not to be taken before, ms since 1970.
        """
        due_ms = max(due_ms, point.check_point.revive_time + GRACE_MS)
        heappush(self._due, (due_ms, point.revive_offset, point))

    def next_due_ms(self) -> float:
        """When the next check point can be decided at the earliest, ms since 1970; infinity: there
        is none."""
        heap = self._due
        while heap and heap[0][2].is_done:
            heappop(heap)
        if not heap:
            return math.inf
        visible_ms = heap[0][0] - GRACE_MS
        return visible_ms if visible_ms <= self.set_ms else heap[0][0]

    def finish(self, point: WaitingPoint) -> None:
        """Record that a check point is decided: its messages are acknowledged, revived or gone."""
        point.is_done = True
        del self._points[point.key]


def single_messages(message: MessageExt) -> list[MessageExt]:
    """The messages of a record of a queue of batches, which a retry topic cannot have as one; of
    any other record the message itself.

    Raises: RemoteProtocolError: the batch cannot be read.
    """
    if not message.sys_flag & INNER_BATCH:
        return [message]
    sys_flag = message.sys_flag & ~(INNER_BATCH | NEED_UNWRAP)
    return [
        replace(message, body=body, properties_bytes=properties, flag=flag, sys_flag=sys_flag)
        for flag, body, properties in iter_batch(message.body)
    ]


def retry_message(
    message: MessageExt, check_point: CheckPoint, topic: str, queue_id: int, host: bytes
) -> InnerMessage:
    """A message in the form in which it is stored in its group's retry topic.

    Args:
      message: the original.
      check_point: that it belongs to.
      topic, queue_id: of the retry topic.
      host: of this broker, as `host_bytes` packs it; RocketMQ's broker names itself as the sender.
    Source: PopReviveService.reviveRetry.
    """
    again = InnerMessage.of(message)
    again.topic, again.queue_id = topic, queue_id
    again.born_host = again.store_host = host
    if not check_point.suspend:
        again.reconsume_times = min(message.reconsume_times + 1, INT32_MAX)
    changed = {PROPERTY_ORIGIN_GROUP: check_point.group}
    if message.reconsume_times == 0 or PROPERTY_FIRST_POP_TIME not in message.properties:
        changed[PROPERTY_FIRST_POP_TIME] = str(check_point.pop_time)
    again.change_properties(changed)
    return again


def put_again(check_point: CheckPoint, offset: int, now_ms: int) -> CheckPoint:
    """The check point of one message that could not be revived, to be stored again.

    Args:
      check_point: that it belongs to.
      offset: the message's queue offset.
      now_ms: the wall clock; the next try is RE_PUT_DELAYS_S later.
    Source: PopReviveService.rePutCK, which counts from the revive time.
    """
    delay_s = RE_PUT_DELAYS_S[min(check_point.re_put_times, len(RE_PUT_DELAYS_S) - 1)]
    tried_ms = max(check_point.revive_time, now_ms) - check_point.pop_time
    return replace(
        check_point,
        start_offset=offset,
        invisible_time=tried_ms + delay_s * 1000,
        diffs=range(1),
        acked=0,
        re_put_times=min(check_point.re_put_times + 1, RE_PUTS_UNKNOWN),
    )


def _time_ms(message: MessageExt, name: str) -> int:
    text = message.properties.get(name, "")
    return int(text) if text.isdecimal() and len(text) <= _MS_DIGITS else 0
