"""OrderInfo: what a group has popped in order from one queue and not acknowledged yet.

Java counterpart: OrderInfo in broker/pop/orderly/QueueLevelConsumerManager.java of 5.5.0, whose
members in `consumerOrderInfo.json` this module reads and writes. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Final

import msgspec

from ...common.java_integers import INT64_MAX
from ...remoting.bodies.base import Int64
from ...remoting.number_fields import QUEUE_OFFSET, RECONSUME_TIMES
from ...remoting.receipt import POP_COUNT_MAX

ATTEMPT_ID_LENGTH_MAX: Final = 256
"""Characters of an attempt id; the official clients and the proxy send 36. RocketMQ has no bound,
but keeps each in memory and in the file."""

_Times = Annotated[int, RECONSUME_TIMES.meta, RECONSUME_TIMES]
_MEMBER: Final = "\t\t\t\t"
_NEXT: Final = f",\n{_MEMBER}"
_INNER: Final = f"{_MEMBER}\t"


@dataclass(slots=True)
class OrderInfo:
    """The messages of the last pop in order, by one group from one queue.

    Attributes:
      attempt_id: of the pop; None: the client gave none.
      pop_time: when, ms since 1970; receipts have it, too.
      invisible_time: how long the messages are the client's, ms.
      offsets: their queue offsets, rising.
      last_consume_ms: when this was made, ms since 1970.
      acked: bit i: message i is acknowledged.
      next_visible: for messages whose invisible time was changed: when it ends, ms since 1970.
      consumed: how often messages were popped before, without those for which that is 0; None: the
        queue had no OrderInfo before.
      free_ms: when all messages that are not acknowledged are visible again, ms since 1970.
    """

    attempt_id: str | None
    pop_time: int
    invisible_time: int
    offsets: tuple[int, ...]
    last_consume_ms: int
    acked: int = 0
    next_visible: dict[int, int] = field(default_factory=dict)
    consumed: dict[int, int] | None = None
    free_ms: int = field(init=False)

    def __post_init__(self) -> None:
        self._settle()

    def _settle(self) -> None:
        usual = self.pop_time + self.invisible_time
        if self.is_all_acked:
            self.free_ms = 0
        elif not self.next_visible:  # nearly always
            self.free_ms = usual
        else:
            self.free_ms = max(
                self.next_visible.get(offset, usual)
                for index, offset in enumerate(self.offsets)
                if not self.acked >> index & 1
            )

    @property
    def is_all_acked(self) -> bool:
        """Whether every message is acknowledged."""
        return self.acked == (1 << len(self.offsets)) - 1

    @property
    def next_offset(self) -> int:
        """The queue offset at which the group continues: the first without acknowledgement."""
        if self.is_all_acked:
            return self.offsets[-1] + 1
        lowest_zero = ~self.acked & (self.acked + 1)
        return self.offsets[lowest_zero.bit_length() - 1]

    @property
    def times(self) -> int:
        """How often the message that was popped least had been popped before."""
        counts = self.consumed or {}
        return min(counts.get(offset, 0) for offset in self.offsets)

    def blocks(self, attempt_id: str | None, invisible_time: int, now_ms: int) -> bool:
        """Whether a pop has to wait for these messages.

        Args:
          attempt_id: of the pop; that of these messages: their answer was lost, so it has not.
          invisible_time: of the pop, ms; used if the one of these messages is 0, as RocketMQ does.
          now_ms: ms since 1970.
        """
        if attempt_id is not None and attempt_id == self.attempt_id:
            return False
        if self.invisible_time <= 0 < invisible_time:
            self.invisible_time = invisible_time
            self._settle()
        return now_ms < self.free_ms

    def ack(self, offset: int) -> bool:
        """Acknowledge a message; False: it is not one of these."""
        if offset not in self.offsets:
            return False
        self.acked |= 1 << self.offsets.index(offset)
        self._settle()
        return True

    def change_visible(self, offset: int, visible_ms: int) -> bool:
        """Set when a message becomes visible, ms since 1970; False: it is not one of these."""
        if offset not in self.offsets:
            return False
        self.next_visible[offset] = min(visible_ms, INT64_MAX)
        self._settle()
        return True

    def count_from(self, before: OrderInfo) -> None:
        """Count how often the messages were popped, from the queue's OrderInfo before this one."""
        counts = before.consumed or {}
        if before.attempt_id is not None and before.attempt_id == self.attempt_id:
            # The same pop, sent again.
            self.consumed = {each: counts[each] for each in self.offsets if each in counts}
        else:
            known = frozenset(before.offsets)
            self.consumed = {
                offset: min(counts.get(offset, 0) + 1, RECONSUME_TIMES.high)
                for offset in self.offsets
                if offset in known
            }

    # The file

    def written(self) -> bytes:
        """The entry in `consumerOrderInfo.json`, as fastjson's pretty form at its depth."""
        # RocketMQ writes the later offsets as distances from the first.
        first, *others = self.offsets
        places = ",".join(map(str, [first, *(each - first for each in others)]))
        members = [
            f'"cm":{self.acked}',
            f'"i":{self.invisible_time}',
            f'"l":{self.last_consume_ms}',
            f'"o":[{places}]',
        ]
        if self.attempt_id is not None:
            members.insert(0, f'"a":{msgspec.json.encode(self.attempt_id).decode()}')
        if self.consumed is not None:
            members.append(f'"oc":{_map(self.consumed)}')
        if self.next_visible:
            members.append(f'"ot":{_map(self.next_visible)}')
        members.append(f'"popTime":{self.pop_time}')
        return f"{{\n{_MEMBER}{_NEXT.join(members)}\n\t\t\t}}".encode()

    @classmethod
    def read(cls, tree: object) -> OrderInfo:
        """Read an entry, as RocketMQ or this class wrote it; unknown members are ignored.

        Numbers of messages that the entry does not have, which RocketMQ also keeps, are dropped:
        nothing reads them.

        Raises: ValueError: it is not one.
        """
        try:
            stored = msgspec.convert(tree, _Stored, strict=False)
        except msgspec.ValidationError as error:
            raise ValueError(str(error)) from error
        first, *others = stored.offsets
        offsets = (first, *(first + each for each in others))
        if not all(map(QUEUE_OFFSET.has, offsets)) or sorted(set(offsets)) != list(offsets):
            raise ValueError(f"the offsets of `$.o` do not rise: {stored.offsets}")
        is_kept = stored.attempt_id is not None and len(stored.attempt_id) <= ATTEMPT_ID_LENGTH_MAX
        return cls(
            attempt_id=stored.attempt_id if is_kept else None,
            pop_time=stored.pop_time,
            invisible_time=stored.invisible_time or 0,
            offsets=offsets,
            last_consume_ms=stored.last_consume_ms,
            # Bits without a message would keep the queue blocked.
            acked=stored.acked & (1 << len(offsets)) - 1,
            next_visible=_of_offsets(stored.next_visible or {}, offsets),
            consumed=None if stored.consumed is None else _of_offsets(stored.consumed, offsets),
        )


class _Stored(msgspec.Struct, gc=False):
    """An entry in the file; see docs/formats/config_json.md."""

    offsets: Annotated[list[Int64], msgspec.Meta(min_length=1, max_length=POP_COUNT_MAX)] = (
        msgspec.field(name="o")
    )
    pop_time: Int64 = msgspec.field(name="popTime", default=0)
    invisible_time: Int64 | None = msgspec.field(name="i", default=0)
    last_consume_ms: Int64 = msgspec.field(name="l", default=0)
    acked: Int64 = msgspec.field(name="cm", default=0)
    attempt_id: str | None = msgspec.field(name="a", default=None)
    next_visible: dict[Int64, Int64] | None = msgspec.field(name="ot", default=None)
    consumed: dict[Int64, _Times] | None = msgspec.field(name="oc", default=None)


def _of_offsets(numbers: Mapping[int, int], offsets: Sequence[int]) -> dict[int, int]:
    return {offset: numbers[offset] for offset in offsets if offset in numbers}


def _map(numbers: Mapping[int, int]) -> str:
    if not numbers:
        return "{}"
    lines = f",\n{_INNER}".join(f"{key}:{value}" for key, value in numbers.items())
    return f"{{\n{_INNER}{lines}\n{_MEMBER}}}"
