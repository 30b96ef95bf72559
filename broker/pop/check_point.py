"""CheckPoint: the messages of one queue that one pop gave to a consumer.

They are invisible to the other consumers of the group until the revive time. Those that are not
acknowledged by then are stored again in the group's retry topic.

Pure. Java counterpart: store/pop/PopCheckPoint.java of 5.5.0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

from ...common.java_integers import INT64_MAX
from ...remoting.bodies import CheckPointBody
from ...remoting.errors import RemoteProtocolError
from ...remoting.receipt import POP_COUNT_MAX

RE_PUTS_UNKNOWN: Final = 127
"""The count of a record whose count is not a number. Source: PopCheckPoint.parseRePutTimes."""

_NUM_MAX: Final = POP_COUNT_MAX + 1


class CheckPointKey(NamedTuple):
    """The identity of a check point, which an acknowledgement names.

    Attributes: as of `CheckPoint`.
    """

    topic: str
    group: str
    queue_id: int
    start_offset: int
    pop_time: int
    broker_name: str | None


@dataclass(slots=True)
class CheckPoint:
    """The messages of one queue that one pop gave to a consumer.

    Attributes:
      topic: where the messages are: the topic, or the group's retry topic.
      queue_id: of `topic`.
      start_offset: offset in the queue that the others are counted from.
      pop_time: ms since 1970.
      invisible_time: ms after `pop_time`.
      broker_name: of the broker that popped; None: an acknowledgement in an old record.
      diffs: the messages' offsets, counted from `start_offset`, in ascending order; a range if they
        are consecutive.
      acked: bit i: message i is acknowledged.
      suspend: whether the messages' number of tries stays as it is.
      re_put_times: how often this was stored again, because a message could not be revived.
    """

    topic: str
    group: str
    queue_id: int
    start_offset: int
    pop_time: int
    invisible_time: int
    broker_name: str | None
    diffs: Sequence[int]
    acked: int = 0
    suspend: bool = False
    re_put_times: int = 0

    @property
    def key(self) -> CheckPointKey:
        """What acknowledgements name."""
        return CheckPointKey(
            self.topic,
            self.group,
            self.queue_id,
            self.start_offset,
            self.pop_time,
            self.broker_name,
        )

    @property
    def revive_time(self) -> int:
        """When the messages become visible again, ms since 1970."""
        return self.pop_time + self.invisible_time

    @property
    def all_acked(self) -> int:
        """`acked` when all messages are acknowledged."""
        return (1 << len(self.diffs)) - 1

    @property
    def is_done(self) -> bool:
        """Whether all messages are acknowledged."""
        return self.acked == self.all_acked

    def index_of(self, offset: int) -> int:
        """The index of the message at a queue offset; -1 if it is not one of these."""
        diff, diffs = offset - self.start_offset, self.diffs
        if type(diffs) is range:
            return diff if 0 <= diff < len(diffs) else -1
        return diffs.index(diff) if diff in diffs else -1

    def ack(self, offset: int) -> bool:
        """Mark the message at a queue offset as acknowledged; return whether it is one of these."""
        index = self.index_of(offset)
        if index < 0:
            return False
        self.acked |= 1 << index
        return True

    def acked_offsets(self) -> list[int]:
        """The queue offsets of the acknowledged messages, in ascending order."""
        start, acked = self.start_offset, self.acked
        return [start + diff for index, diff in enumerate(self.diffs) if acked >> index & 1]

    def unacked_offsets(self) -> list[int]:
        """The queue offsets of the other messages, in ascending order."""
        start, acked = self.start_offset, self.acked
        return [start + diff for index, diff in enumerate(self.diffs) if not acked >> index & 1]

    def offsets(self) -> Iterator[int]:
        """The queue offsets of all messages, in ascending order."""
        return (self.start_offset + diff for diff in self.diffs)

    def to_body(self) -> CheckPointBody:
        """The body of its record. Acknowledgements have records of their own."""
        return CheckPointBody(
            start_offset=self.start_offset,
            pop_time=self.pop_time,
            invisible_time=self.invisible_time,
            num=len(self.diffs),
            queue_id=self.queue_id,
            topic=self.topic,
            group=self.group,
            queue_offset_diff=list(self.diffs),
            broker_name=self.broker_name,
            re_put_times=str(self.re_put_times) if self.re_put_times else None,
            suspend=self.suspend,
        )

    @classmethod
    def from_body(cls, body: CheckPointBody) -> CheckPoint:
        """Read the body of a record, of this broker or of Apache's.

        Raises: RemoteProtocolError: a number is out of its range.
        """
        # Records of Apache's older brokers have a count instead of offsets: the messages are in a
        # row.
        diffs = offsets_from_start(body.queue_offset_diff or range(min(body.num, _NUM_MAX)))
        count = len(diffs)
        if not 0 < count <= POP_COUNT_MAX:
            raise RemoteProtocolError(
                f"a check point of {count} messages, it must have 1 to {POP_COUNT_MAX}"
            )
        if diffs[0] < 0 or any(low >= high for low, high in pairwise(diffs)):
            raise RemoteProtocolError(
                f"a check point with the offsets {diffs!r}, they must be ascending from 0"
            )
        if (
            min(body.start_offset, body.pop_time, body.invisible_time, body.queue_id) < 0
            or body.start_offset + diffs[-1] > INT64_MAX
            or body.pop_time + body.invisible_time > INT64_MAX
        ):
            raise RemoteProtocolError(
                f"a check point at {body.start_offset} of queue {body.queue_id}, popped at "
                f"{body.pop_time} for {body.invisible_time} ms: a number is negative or too large"
            )
        return cls(
            topic=body.topic,
            group=body.group,
            queue_id=body.queue_id,
            start_offset=body.start_offset,
            pop_time=body.pop_time,
            invisible_time=body.invisible_time,
            broker_name=body.broker_name,
            diffs=diffs,
            # With bits beyond its messages it would never equal `all_acked`.
            acked=body.bit_map & ((1 << count) - 1),
            suspend=body.suspend,
            re_put_times=_re_put_times(body.re_put_times),
        )


def offsets_from_start(diffs: Sequence[int]) -> Sequence[int]:
    """The same numbers, as a range from 0 if they are one."""
    count = len(diffs)
    plain = range(count)
    return plain if list(diffs) == list(plain) else tuple(diffs)


def _re_put_times(text: str | None) -> int:
    if text is None:
        return 0
    return int(text) if text.isdecimal() and len(text) <= 9 else RE_PUTS_UNKNOWN
