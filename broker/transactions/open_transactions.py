"""OpenTransactions: half messages without a commit or rollback, by offset in the half queue.

A producer that ends none of its transactions makes this table grow, so a half message is stored as
33 bytes in arrays, not as objects. The arrays are in blocks of `BLOCK_COUNT`, by rising offset:

::

    offsets   7     8     9     12        7 was ended; 8 was written again, as 12
    kinds     ENDED OLDER OPEN  OPEN
    dues      never never 6000  9000      time of the next check
    marks     -     12    4     5         OLDER: offset of the next copy; OPEN: see `open`
    older     -     none  none  8         offset of the previous copy

Pure.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from heapq import heapify, heappop, heappush, heapreplace
from typing import Final

OPEN_COUNT_MAX: Final = 1_000_000
"""Open transactions; RocketMQ has no bound. Further half messages are refused with SYSTEM_BUSY.
They take 35 MB, and as much again after each check of all of them without a result (at most 15
times, transactionCheckMax)."""

BLOCK_COUNT: Final = 128
"""Half messages per block. Finding the next due one scans a block, which takes 3 us."""

COMPACTED_COUNT_MIN: Final = 16
"""Half messages of the smallest block from which ended ones are removed: fewer take less than the
block itself, and transactions that end within a turn or two would each cause a copy."""

NEVER: Final = (1 << 63) - 1
_NONE: Final = -1
_ENDED, _OPEN, _OLDER = range(3)
_OPEN_KIND: Final = bytes([_OPEN])


class _Block:
    """Half messages with neighbouring offsets, as columns; see the module's text.

    Attributes:
      ended_count: the number of ENDED in `kinds`.
      first_due_ms: a lower bound of `dues`.
    """

    __slots__ = ("dues", "ended_count", "first_due_ms", "kinds", "marks", "offsets", "older")

    def __init__(self) -> None:
        self.offsets = array("q")
        self.dues = array("q")
        self.marks = array("q")
        self.older = array("q")
        self.kinds = bytearray()
        self.ended_count = 0
        self.first_due_ms = NEVER

    def insert(self, at: int, offset: int) -> None:
        """Insert a row for a half message."""
        for column, value in (
            (self.offsets, offset), (self.dues, NEVER), (self.marks, 0), (self.older, _NONE),
        ):  # fmt: skip
            column.insert(at, value)
        self.kinds.insert(at, _ENDED)
        self.ended_count += 1

    def compact(self) -> None:
        """Remove the rows of ended half messages."""
        stays = [at for at, kind in enumerate(self.kinds) if kind != _ENDED]
        self.offsets, self.dues, self.marks, self.older = (
            array("q", [column[at] for at in stays])
            for column in (self.offsets, self.dues, self.marks, self.older)
        )
        self.kinds = bytearray(self.kinds[at] for at in stays)
        self.ended_count = 0


_Place = tuple[_Block, int]
"""The position of a half message: its block, and its index there. A plain tuple, because each
transaction needs three, and a NamedTuple takes 0.25 us more."""


class OpenTransactions:
    """The half messages without a commit or rollback, by queue offset.

    Args:
      count_max: see OPEN_COUNT_MAX.
      block_count: half messages per block.
    """

    def __init__(self, count_max: int = OPEN_COUNT_MAX, block_count: int = BLOCK_COUNT) -> None:
        self._count_max = count_max
        self._block_count = block_count
        self._count = 0
        self._blocks: list[_Block] = []
        self._starts: list[int] = []  # the first offset that each block had
        self._dues: list[tuple[int, int]] = []  # heap: a block's `first_due_ms`, its start

    def __len__(self) -> int:
        return self._count

    @property
    def is_full(self) -> bool:
        """Whether the limit of open transactions is reached."""
        return self._count >= self._count_max

    def open(self, offset: int, due_ms: int, op_mark: int) -> None:
        """Add a half message.

        Args:
          offset: in the half queue.
          due_ms: time of its first check, by the clock of the caller.
          op_mark: end of the op queue when it was stored; earlier entries there do not concern it.
        """
        blocks = self._blocks
        if not blocks:
            block = self._append_block(offset)
        else:
            block = blocks[-1]
            if offset <= block.offsets[-1]:
                self._open(offset, due_ms, op_mark, _NONE)
                return
            if len(block.offsets) >= self._block_count:
                block = self._append_block(offset)
        block.offsets.append(offset)
        block.dues.append(due_ms)
        block.marks.append(op_mark)
        block.older.append(_NONE)
        block.kinds.append(_OPEN)
        self._count += 1
        if not block.first_due_ms <= due_ms < NEVER:
            self._plan(block, len(block.offsets) - 1, due_ms)

    def open_all(self, offsets: Sequence[int], due_ms: int, op_mark: int) -> None:
        """Add half messages that are due at the same time, with rising offsets; see `open`."""
        # One by one up to the block's end; then as many at once as fit into a block.
        at = 0
        while at < len(offsets):
            self.open(offsets[at], due_ms, op_mark)
            at += 1
            block = self._blocks[-1]
            if block.offsets[-1] != offsets[at - 1]:
                continue  # others with greater offsets are there
            some = offsets[at : at + max(self._block_count - len(block.offsets), 0)]
            count = len(some)
            block.offsets.extend(some)
            block.dues.extend([due_ms] * count)
            block.marks.extend([op_mark] * count)
            block.older.extend([_NONE] * count)
            block.kinds += _OPEN_KIND * count
            self._count += count
            at += count

    def _append_block(self, offset: int) -> _Block:
        block = _Block()
        self._starts.append(offset)
        self._blocks.append(block)
        return block

    def _open(self, offset: int, due_ms: int, op_mark: int, older: int) -> None:
        block, at = self._make(offset)
        block.kinds[at] = _OPEN
        block.ended_count -= 1
        block.marks[at] = op_mark
        block.older[at] = older
        self._count += 1
        self._plan(block, at, due_ms)

    def _make(self, offset: int) -> _Place:
        """Insert a row for a half message, in practice at the end."""
        index = bisect_right(self._starts, offset) - 1
        is_last = index == len(self._blocks) - 1
        if index < 0 or (is_last and len(self._blocks[index].offsets) >= self._block_count):
            # Before all blocks, or behind a full last one.
            index += 1
            self._starts.insert(index, offset)
            self._blocks.insert(index, _Block())
        block = self._blocks[index]
        at = bisect_left(block.offsets, offset)
        block.insert(at, offset)
        return block, at

    def _find(self, offset: int) -> _Place | None:
        index = bisect_right(self._starts, offset) - 1
        if index < 0:
            return None
        block = self._blocks[index]
        offsets = block.offsets
        at = offset - offsets[0]  # where no other kind of half message is between them
        if 0 <= at < len(offsets) and offsets[at] == offset:
            return (block, at)
        at = bisect_left(offsets, offset)
        is_there = at < len(offsets) and offsets[at] == offset
        return (block, at) if is_there else None

    def current(self, offset: int) -> int | None:
        """The offset of the newest copy of a half message; None: it has ended."""
        place = self._find(offset)
        while place is not None:
            block, at = place
            kind = block.kinds[at]
            if kind != _OLDER:
                return offset if kind == _OPEN else None
            # The mark of an older copy is the offset of the newer one.
            offset = block.marks[at]
            place = self._find(offset)
        return None

    def _find_open(self, offset: int) -> _Place | None:
        place = self._find(offset)
        return place if place is not None and place[0].kinds[place[1]] == _OPEN else None

    def end(self, offset: int) -> None:
        """Remove a half message that was committed, rolled back or given up, with older copies."""
        place = self._find_open(offset)
        if place is not None:
            self._count -= 1
        while place is not None:
            block, at = place
            older = block.older[at]
            self._forget(block, at)
            place = None if older == _NONE else self._find(older)

    def _forget(self, block: _Block, at: int) -> None:
        block.kinds[at] = _ENDED
        block.dues[at] = NEVER
        block.ended_count += 1
        count = len(block.offsets)
        if block.ended_count == count:
            index = bisect_right(self._starts, block.offsets[0]) - 1
            del self._starts[index], self._blocks[index]
        # Rows in the middle are not removed one by one, which would move all behind them.
        elif block.ended_count * 2 > count >= COMPACTED_COUNT_MIN:
            block.compact()

    def renew(self, old: int, new: int, due_ms: int, op_mark: int) -> None:
        """Replace a half message by its copy, which was written again at offset `new`."""
        place = self._find_open(old)
        if place is not None:
            block, at = place
            block.kinds[at] = _OLDER
            block.dues[at] = NEVER
            block.marks[at] = new
            self._count -= 1
        self._open(new, due_ms, op_mark, _NONE if place is None else old)

    def put_off(self, offset: int, due_ms: int) -> None:
        """Postpone the check of a half message."""
        place = self._find_open(offset)
        if place is not None:
            self._plan(*place, due_ms)

    def _plan(self, block: _Block, at: int, due_ms: int) -> None:
        block.dues[at] = due_ms = min(max(due_ms, 0), NEVER - 1)
        if due_ms >= block.first_due_ms:
            return
        block.first_due_ms = due_ms
        if len(self._dues) <= 2 * len(self._blocks):
            start = self._starts[bisect_right(self._starts, block.offsets[at]) - 1]
            heappush(self._dues, (due_ms, start))
        else:  # most entries are out of date: rebuild the heap
            pairs = zip(self._blocks, self._starts, strict=True)
            self._dues = [(b.first_due_ms, s) for b, s in pairs if b.first_due_ms < NEVER]
            heapify(self._dues)

    def next_due_ms(self) -> int | None:
        """The time of the next check; None: no transaction is open."""
        block = self._first()
        return None if block is None else block.first_due_ms

    def take_due(self, now_ms: int) -> int | None:
        """A half message that is due now; the caller must then `renew`, `put_off` or `end` it."""
        block = self._first()
        if block is None or block.first_due_ms > now_ms:
            return None
        at = block.dues.index(block.first_due_ms)
        block.dues[at] = NEVER
        return block.offsets[at]

    def _first(self) -> _Block | None:
        """The block with the earliest due time; its `first_due_ms` is then exact."""
        while self._dues:
            due_ms, start = self._dues[0]
            index = bisect_left(self._starts, start)
            is_there = index < len(self._starts) and self._starts[index] == start
            block = self._blocks[index] if is_there else None
            if block is not None and block.first_due_ms == due_ms:
                # The heap may name a row that has ended since; a block is looked through only when
                # it is its turn.
                block.first_due_ms = min(block.dues)
                if block.first_due_ms == due_ms:
                    return block
                if block.first_due_ms < NEVER:
                    heapreplace(self._dues, (block.first_due_ms, start))
                    continue
            heappop(self._dues)
        return None

    def through(self, half_end: int, op_end: int) -> tuple[int, int]:
        """The offsets in both queues before which no entry is needed any more.

        Args:
          half_end, op_end: the queues' ends.
        """
        for block in self._blocks:
            at = block.kinds.find(_OPEN)
            if at >= 0:
                return block.offsets[at], min(block.marks[at], op_end)
        return half_end, op_end
