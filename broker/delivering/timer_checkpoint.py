"""TimerCheckpoint: the delivery progress of timer messages, `config/timercheck`, 4096 bytes.

Apache's broker keeps its wheel in separate files, and records here how far it has read the queue
and to which time. Ours has no such files; it records the first waiting message, so that Apache's
broker, started on our store, reads everything from there and delivers later messages a second time.
Our record is at byte 128, where Apache's leaves zeros, and is valid only while Apache's fields are
unchanged.

Java counterpart: store/timer/TimerCheckpoint.java of 5.3.3. Pure.
"""

from __future__ import annotations

import logging
import zlib
from dataclasses import dataclass
from typing import Final

from ...store.format import (
    TIMER_FILE_SIZE,
    TIMER_HEAD,
    TIMER_PROGRESS_HEAD,
    TIMER_PROGRESS_MAGIC,
    TIMER_PROGRESS_POSITION,
)

logger = logging.getLogger(__name__)


CLOCK_STEP_MAX_MS: Final = 60_000
"""How far the clock may have been set back since the page was written."""


@dataclass(frozen=True, slots=True)
class TimerCheckpoint:
    """The content of the page.

    Attributes:
      read_time_ms: every message before `read_offset` whose TIMER_OUT_MS is before this is
        delivered.
      read_offset: queue offset in rmq_sys_wheel_timer.
      waiting_offset: offset of the first waiting message; None: unknown, the page is Apache's.
    """

    read_time_ms: int = 0
    read_offset: int = 0
    waiting_offset: int | None = 0

    @classmethod
    def from_page(cls, page: bytes) -> TimerCheckpoint:
        """Read a page; a short or empty one counts as all 0."""
        page = page.ljust(TIMER_FILE_SIZE, b"\0")
        read_time_ms, _, queue_offset, *_ = TIMER_HEAD.unpack_from(page)
        magic, *known, read_offset, crc = TIMER_PROGRESS_HEAD.unpack_from(
            page, TIMER_PROGRESS_POSITION
        )
        if (
            magic == TIMER_PROGRESS_MAGIC
            and crc == _crc(page)
            # Apache's broker writes its own fields only: then this part is out of date.
            and known == [read_time_ms, queue_offset]
        ):
            return cls(read_time_ms, read_offset, queue_offset)
        return cls(max(read_time_ms, 0), max(queue_offset, 0), None)

    def correct(
        self, path: str, *, queue_end: int, latest_ms: int, delivered_ms: int
    ) -> TimerCheckpoint:
        """Replace impossible values, with a warning; return the result.

        Delivered messages are on the device before the page, so an offset past the queue's end is
        wrong, even after a crash. Apache's times have no checksum.

        Args:
          path: of the page, for the warning.
          queue_end: offset after the newest message of rmq_sys_wheel_timer.
          latest_ms: the later of the wall clock and the log's newest store timestamp.
          delivered_ms: messages due before it count as delivered if the page is wrong.
        """
        offset = max(self.read_offset, self.waiting_offset or 0)
        time_ms = self.read_time_ms
        if offset <= queue_end and (
            self.waiting_offset is not None or time_ms <= latest_ms + CLOCK_STEP_MAX_MS
        ):
            return self
        logger.warning(
            "%(path)s says that all messages before offset %(offset)d that were due before "
            "%(time_ms)d are delivered, but the queue ends at %(queue_end)d, and clock and log "
            "at %(latest_ms)d. Instead messages due before %(delivered_ms)d count as delivered: "
            "some may be delivered twice. The file is written again",
            {
                "path": path,
                "offset": offset,
                "time_ms": time_ms,
                "queue_end": queue_end,
                "latest_ms": latest_ms,
                "delivered_ms": delivered_ms,
            },
        )
        return TimerCheckpoint(max(delivered_ms, 0), queue_end, 0)

    def to_answer(self, now_ms: int) -> bytes:
        """The answer to GET_TIMER_CHECK_POINT (60): Apache's part of the page, and ours if known.

        Source: TimerCheckpoint.encode; its `decode` ignores the bytes that follow.
        """
        if self.waiting_offset is None:
            offsets = (self.read_offset, self.read_offset)
            return TIMER_HEAD.pack(self.read_time_ms, 0, *offsets, 0, now_ms, 0)
        return self.to_page(now_ms)[: TIMER_PROGRESS_POSITION + TIMER_PROGRESS_HEAD.size]

    def to_page(self, now_ms: int) -> bytes:
        """The page's bytes; `waiting_offset` must be known."""
        page = bytearray(TIMER_FILE_SIZE)
        waiting = self.waiting_offset or 0
        TIMER_HEAD.pack_into(page, 0, self.read_time_ms, 0, waiting, waiting, 0, now_ms, 0)
        fields = (TIMER_PROGRESS_MAGIC, self.read_time_ms, waiting, self.read_offset)
        TIMER_PROGRESS_HEAD.pack_into(page, TIMER_PROGRESS_POSITION, *fields, 0)
        TIMER_PROGRESS_HEAD.pack_into(page, TIMER_PROGRESS_POSITION, *fields, _crc(page))
        return bytes(page)


def _crc(page: bytes | bytearray) -> int:
    end = TIMER_PROGRESS_POSITION + TIMER_PROGRESS_HEAD.size - 4
    return zlib.crc32(page[TIMER_PROGRESS_POSITION:end])
