"""How far timer messages are delivered: `config/timercheck`, a page of 4096 bytes.

Apache's broker keeps its wheel in files of its own, and notes here how far it has read queue and
time. Ours has no such files; it notes the first message that still waits, so that Apache's broker,
started on our store, reads all from there again: what came later and was delivered already it
delivers once more. Our own record lies at byte 128, where Apache's leaves zeros, and counts only
while Apache's fields are those it was written with.

Java counterpart: store/timer/TimerCheckpoint.java of 5.3.3. Pure.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from struct import Struct
from typing import Final

PAGE_SIZE: Final = 4096
_APACHE: Final = Struct(">qqqqqqq")
"""Read time, position in the timer log, queue offset, the master's queue offset, and a data
version: state version, timestamp, counter."""
_OURS_AT: Final = 128
_OURS: Final = Struct(">8sqqqI")
"""Magic, read time and first waiting offset as above, read offset, CRC32 of what is before."""
_MAGIC: Final = b"trockTMR"


@dataclass(frozen=True, slots=True)
class TimerCheckpoint:
    """What the page says.

    Attributes:
      read_time_ms: every message before `read_offset` whose TIMER_OUT_MS is before this is
        delivered.
      read_offset: queue offset in rmq_sys_wheel_timer.
      waiting_offset: no message before it waits; None: not known, the page is Apache's.
    """

    read_time_ms: int = 0
    read_offset: int = 0
    waiting_offset: int | None = 0

    @classmethod
    def from_page(cls, page: bytes) -> TimerCheckpoint:
        """Read a page; a short or empty one counts as all 0."""
        page = page.ljust(PAGE_SIZE, b"\0")
        read_time_ms, _, queue_offset, *_ = _APACHE.unpack_from(page)
        magic, its_time, waiting, read, crc = _OURS.unpack_from(page, _OURS_AT)
        covered = page[_OURS_AT : _OURS_AT + _OURS.size - 4]
        if (
            magic == _MAGIC
            and crc == zlib.crc32(covered)
            and (its_time, waiting) == (read_time_ms, queue_offset)
        ):
            return cls(read_time_ms, read, waiting)
        return cls(max(read_time_ms, 0), max(queue_offset, 0), None)

    def to_page(self, now_ms: int) -> bytes:
        """The page's bytes; `waiting_offset` must be known."""
        page = bytearray(PAGE_SIZE)
        waiting = self.waiting_offset or 0
        _APACHE.pack_into(page, 0, self.read_time_ms, 0, waiting, waiting, 0, now_ms, 0)
        fields = (_MAGIC, self.read_time_ms, waiting, self.read_offset)
        _OURS.pack_into(page, _OURS_AT, *fields, 0)
        crc = zlib.crc32(page[_OURS_AT : _OURS_AT + _OURS.size - 4])
        _OURS.pack_into(page, _OURS_AT, *fields, crc)
        return bytes(page)
