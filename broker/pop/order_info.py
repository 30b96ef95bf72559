"""OrderInfo: what a group has popped in order from one queue and not acknowledged yet.

Java counterpart: OrderInfo in broker/pop/orderly/QueueLevelConsumerManager.java of 5.5.0, whose
members in `consumerOrderInfo.json` this module reads and writes. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from ...common.java_integers import INT64_MAX
from ...remoting.numbers import INT64, QUEUE_OFFSET, RECONSUME_TIMES, Range
from ...remoting.receipt import POP_COUNT_MAX
from ..table_numbers import whole_number

ATTEMPT_ID_LENGTH_MAX: Final = 256
"""Characters of an attempt id; the official clients and the proxy send 36. RocketMQ has no bound,
but keeps each in memory and in the file."""

_INVISIBLE: Final = Range("an invisible time in ms", INT64.low, INT64.high, 64)
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
        self.free_ms = max(
            (
                self.next_visible.get(offset, usual)
                for index, offset in enumerate(self.offsets)
                if not self.acked >> index & 1
            ),
            default=0,
        )

    @property
    def is_all_acked(self) -> bool:
        """Whether every message is acknowledged."""
        return self.acked == (1 << len(self.offsets)) - 1

    @property
    def next_offset(self) -> int:
        """The queue offset at which the group goes on: the first one without acknowledgement."""
        for index, offset in enumerate(self.offsets):
            if not self.acked >> index & 1:
                return offset
        return self.offsets[-1] + 1

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
    def read(cls, tree: Mapping[str, Any]) -> OrderInfo:
        """Read an entry, as RocketMQ or this class wrote it; unknown members are ignored.

        Raises: ValueError: it is not one; TypeError, AttributeError: a member has another type.
        """
        first, *others = [whole_number(each) for each in tree.get("o") or ()] or [-1]
        offsets = (first, *(first + each for each in others))
        if len(offsets) > POP_COUNT_MAX or not all(map(QUEUE_OFFSET.has, offsets)):
            raise ValueError(f"o has the offsets {str(tree.get('o'))[:100]}")
        if sorted(set(offsets)) != list(offsets):
            raise ValueError(f"the offsets of o do not rise: {str(tree.get('o'))[:100]}")
        attempt_id = tree.get("a")
        if attempt_id is not None and not isinstance(attempt_id, str):
            raise ValueError("a is not a text")
        consumed = tree.get("oc")
        return cls(
            attempt_id if attempt_id and len(attempt_id) <= ATTEMPT_ID_LENGTH_MAX else None,
            _number(tree, "popTime", INT64),
            _number(tree, "i", _INVISIBLE),
            offsets,
            _number(tree, "l", INT64),
            _number(tree, "cm", INT64) & (1 << len(offsets)) - 1,
            _numbers(tree.get("ot"), offsets, INT64),
            None if consumed is None else _numbers(consumed, offsets, RECONSUME_TIMES),
        )


def _map(numbers: Mapping[int, int]) -> str:
    if not numbers:
        return "{}"
    lines = f",\n{_INNER}".join(f"{key}:{value}" for key, value in numbers.items())
    return f"{{\n{_INNER}{lines}\n{_MEMBER}}}"


def _number(tree: Mapping[str, Any], name: str, right: Range) -> int:
    return _in_range(name, tree.get(name) or 0, right)


def _numbers(tree: Any, offsets: Sequence[int], right: Range) -> dict[int, int]:
    """The numbers of these offsets; RocketMQ also keeps those of others, which nothing reads."""
    found = {
        whole_number(key): _in_range("a number of oc or ot", value, right)
        for key, value in (tree or {}).items()
    }
    return {offset: found[offset] for offset in offsets if offset in found}


def _in_range(what: str, value: object, right: Range) -> int:
    number = whole_number(value)
    if not right.has(number):
        raise ValueError(f"{what} is {number}, which is not in {right}")
    return number
