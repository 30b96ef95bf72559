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
from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Final, NamedTuple

from ...common.message_properties import (
    PROPERTY_FIRST_POP_TIME,
    PROPERTY_ORIGIN_GROUP,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_TIMER_OUT_MS,
)
from ...remoting.bodies.pop import AckBody, BatchAckBody, CheckPointBody
from ...remoting.errors import RemoteProtocolError
from ...remoting.message import MessageExt
from ...remoting.numbers import INT32, INT64
from ...remoting.receipt import POP_COUNT_MAX
from ...store.writing.inner_message import InnerMessage

GRACE_MS: Final = 1_000
"""How long after the revive time an ack still counts. RocketMQ's broker waits for more than 2 s."""

CHECK_POINT_LEAD_MS: Final = 1_000
"""A check point is due this long before its acks. Source: PopAckConstants.ackTimeInterval."""

POINTS_MAX: Final = 20_000
"""Undecided check points of one queue (some 12 MB) from which on late acks are not waited for."""

EARLY_ACKS_MAX: Final = 20_000
"""Acks of one queue that wait for their check points; further ones are dropped, as RocketMQ's
broker drops all of them."""

RE_PUT_DELAYS_S: Final = (
    10, 20, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1_200, 1_800, 3_600, 7_200,
)  # fmt: skip
"""Until a message that could not be read is tried again; the last one repeats. Source:
PopReviveService.ckRewriteIntervalsInSeconds."""

_RE_PUTS_UNKNOWN: Final = 127  # Source: PopCheckPoint.parseRePutTimes
_MS_DIGITS: Final = 18


class PointKey(NamedTuple):
    """The identity of a check point, which its acks name.

    Attributes:
      topic: where the messages are: the topic, or the group's retry topic.
      group: the consumer group.
      queue_id: of `topic`.
      start_offset: offset in that queue.
      pop_time: ms since 1970.
      broker_name: of the broker that popped.
    """

    topic: str
    group: str
    queue_id: int
    start_offset: int
    pop_time: int
    broker_name: str


class WaitingPoint:
    """A check point that is not yet decided.

    Attributes:
      key: its identity.
      revive_offset: its offset in the revive queue.
      revive_time: when its messages become visible again, ms since 1970.
      diffs: the messages' offsets, counted from `key.start_offset`; POP_COUNT_MAX at most.
      open: bit i: message i is neither acknowledged nor revived.
      re_put_times: how often it was stored again.
      suspend: whether the messages' number of tries stays as it is.
      is_done: whether it is decided.
    """

    __slots__ = (
        "diffs",
        "is_done",
        "key",
        "open",
        "re_put_times",
        "revive_offset",
        "revive_time",
        "suspend",
    )

    def __init__(self, key: PointKey, body: CheckPointBody, revive_offset: int) -> None:
        self.key = key
        self.revive_offset = revive_offset
        self.revive_time = body.pop_time + body.invisible_time
        self.diffs = _diffs(body)
        self.open = (1 << len(self.diffs)) - 1 & ~body.bit_map
        self.re_put_times = _re_puts(body.re_put_times)
        self.suspend = body.suspend
        self.is_done = False

    def close(self, offset: int) -> None:
        """Note that a message is acknowledged or revived, by its queue offset; unknown: ignored."""
        diff = offset - self.key.start_offset
        if diff in self.diffs:
            self.open &= ~(1 << self.diffs.index(diff))

    def open_offsets(self) -> list[int]:
        """The queue offsets of the messages that are neither acknowledged nor revived."""
        start = self.key.start_offset
        return [start + diff for i, diff in enumerate(self.diffs) if self.open >> i & 1]


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
    """

    def __init__(self, next_offset: int, broker_name: str) -> None:
        self.next_offset = next_offset
        self._broker_name = broker_name
        self._points: dict[PointKey, WaitingPoint] = {}
        self._early: dict[PointKey, _EarlyAcks] = {}
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
    def committed(self) -> int:
        """The offset of the last record that is not needed any more; -1: there is none."""
        held = self._held
        while held and held[0].is_done:
            held.popleft()
        return (held[0].revive_offset if held else self.next_offset) - 1

    # ---- reading -------------------------------------------------------------------------

    def skip_to(self, offset: int) -> None:
        """Go on at an offset, because the records before it are gone."""
        self.next_offset = max(self.next_offset, offset)

    def take(self, message: MessageExt, revive_offset: int) -> None:
        """Process the next record.

        Args:
          message: of the revive topic; one that is no record of pop is ignored.
          revive_offset: its offset in the queue.
        Raises: RemoteProtocolError: its body cannot be read; it is skipped.
        """
        self.next_offset = revive_offset + 1
        self._seen_ms = max(self._seen_ms, _time_ms(message, PROPERTY_TIMER_OUT_MS))
        tags = message.tags
        if tags == "ck":
            self._take_point(CheckPointBody.from_body(message.body), revive_offset)
        elif tags == "ack":
            ack = AckBody.from_body(message.body)
            self._take_acks(ack, (ack.ack_offset,), message, revive_offset)
        elif tags == "bAck":
            batch = BatchAckBody.from_body(message.body)
            self._take_acks(batch, batch.ack_offsets, message, revive_offset)

    def _take_point(self, body: CheckPointBody, revive_offset: int) -> None:
        key = self._key(body)
        if not key.topic or not key.group:
            raise RemoteProtocolError("a check point without topic or group")
        if not INT64.has(body.pop_time + body.invisible_time) or key.start_offset < 0:
            raise RemoteProtocolError("a check point with impossible numbers")
        if key in self._points:
            return  # the timer service delivered it again after a crash
        point = WaitingPoint(key, body, revive_offset)
        early = self._early.pop(key, None)
        if early is not None:
            self._end_early(early)
            for offset in early.offsets:
                point.close(offset)
        if point.open:
            self._points[key] = point
            self._held.append(point)
            heappush(self._due, (point.revive_time + GRACE_MS, revive_offset, point))

    def _take_acks(
        self, body: AckBody, offsets: Sequence[int], message: MessageExt, revive_offset: int
    ) -> None:
        key = self._key(body)
        point = self._points.get(key)
        if point is not None:
            for offset in offsets:
                point.close(offset)
            if not point.open:
                self.finish(point)
            return
        revive_time = _time_ms(message, PROPERTY_TIMER_DELIVER_MS)
        if self._is_read_through(revive_time - CHECK_POINT_LEAD_MS):
            return  # its check point is decided
        if self._early_count + len(offsets) > EARLY_ACKS_MAX:
            return
        early = self._early.get(key)
        if early is None:
            early = self._early[key] = _EarlyAcks(revive_offset, revive_time)
            self._held.append(early)
        early.offsets.extend(offsets)
        self._early_count += len(offsets)

    def _key(self, body: CheckPointBody | AckBody) -> PointKey:
        # Equal names are one object: a check point takes 200 bytes less.
        names = self._names
        if len(names) > POINTS_MAX:
            names.clear()
        topic, group = names.setdefault(body.topic, body.topic), body.group
        group = names.setdefault(group, group)
        broker_name = body.broker_name or self._broker_name
        broker_name = names.setdefault(broker_name, broker_name)
        return PointKey(topic, group, body.queue_id, body.start_offset, body.pop_time, broker_name)

    def _end_early(self, early: _EarlyAcks) -> None:
        early.is_done = True
        self._early_count -= len(early.offsets)

    # ---- deciding ------------------------------------------------------------------------

    def note(self, *, timers_ms: float, now_ms: int, end: int) -> None:
        """Note how far the timer service is; acks that were due earlier are before `end`.

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
            if self._is_read_through(early.revive_time - CHECK_POINT_LEAD_MS):
                del self._early[key]
                self._end_early(early)

    def _is_read_through(self, moment_ms: int) -> bool:
        """Whether all timer messages that were due before a moment are read."""
        return self._reached.timers_ms >= moment_ms

    def due(self) -> WaitingPoint | None:
        """A check point that can be decided, the earliest first; None: there is none."""
        heap = self._due
        while heap and heap[0][2].is_done:
            heappop(heap)
        if not heap:
            return None
        due_ms, _, point = heap[0]
        if due_ms <= self._reached.now_ms and self._is_read_through(point.revive_time):
            return point
        # Too many: acks that came through the timer service are read, those are enough.
        if len(self._points) > POINTS_MAX and due_ms <= self._seen_ms:
            return point
        return None

    def next_due_ms(self) -> float:
        """When the next check point can be decided at the earliest, ms since 1970; infinity: there
        is none."""
        heap = self._due
        while heap and heap[0][2].is_done:
            heappop(heap)
        return heap[0][0] if heap else math.inf

    def finish(self, point: WaitingPoint) -> None:
        """Note that a check point is decided: its messages are acknowledged, revived or gone."""
        point.is_done = True
        del self._points[point.key]


def retry_message(
    message: MessageExt, point: WaitingPoint, topic: str, queue_id: int, host: bytes
) -> InnerMessage:
    """A message in the form in which it is stored in its group's retry topic.

    Args:
      message: the original.
      point: its check point.
      topic, queue_id: of the retry topic.
      host: of this broker, from `host_bytes`: RocketMQ's broker names itself as the sender.
    Source: PopReviveService.reviveRetry.
    """
    again = InnerMessage.of(message)
    again.topic, again.queue_id = topic, queue_id
    again.born_host = again.store_host = host
    if not point.suspend:
        again.reconsume_times = min(message.reconsume_times + 1, INT32.high)
    changed = {PROPERTY_ORIGIN_GROUP: point.key.group}
    if message.reconsume_times == 0 or PROPERTY_FIRST_POP_TIME not in message.properties:
        changed[PROPERTY_FIRST_POP_TIME] = str(point.key.pop_time)
    again.change_properties(changed)
    return again


def put_again(point: WaitingPoint, offset: int, now_ms: int) -> CheckPointBody:
    """The check point of one message that could not be revived, to be stored again.

    Args:
      point: its check point.
      offset: the message's queue offset.
      now_ms: the wall clock; the next try is RE_PUT_DELAYS_S later.
    Source: PopReviveService.rePutCK, which counts from the revive time.
    """
    key = point.key
    delay_s = RE_PUT_DELAYS_S[min(point.re_put_times, len(RE_PUT_DELAYS_S) - 1)]
    return CheckPointBody(
        start_offset=offset,
        pop_time=key.pop_time,
        invisible_time=max(point.revive_time, now_ms) - key.pop_time + delay_s * 1000,
        num=1,
        queue_id=key.queue_id,
        topic=key.topic,
        group=key.group,
        queue_offset_diff=[0],
        broker_name=key.broker_name,
        re_put_times=str(point.re_put_times + 1),
        suspend=point.suspend,
    )


def _diffs(body: CheckPointBody) -> tuple[int, ...]:
    """The messages' offsets, counted from the start offset. Source: ackOffsetByIndex."""
    if body.queue_offset_diff:
        return tuple(dict.fromkeys(body.queue_offset_diff[:POP_COUNT_MAX]))
    return tuple(range(min(max(body.num, 0), POP_COUNT_MAX)))


def _re_puts(text: str | None) -> int:
    if not text:
        return 0
    return int(text) if text.isdecimal() and len(text) < 10 else _RE_PUTS_UNKNOWN


def _time_ms(message: MessageExt, name: str) -> int:
    text = message.properties.get(name, "")
    return int(text) if text.isdecimal() and len(text) <= _MS_DIGITS else 0
