"""The visible part of the log, record by record, for the index."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from ..index.index_service import IndexedRecord
from ..log.commit_log import CommitLog
from ..log.log_reader import LogReader, record_at

logger = logging.getLogger(__name__)


class VisibleLog:
    """Reads the log up to the end of its visible part.

    Args:
      end: returns the physical offset up to which the log is visible.
    """

    def __init__(self, log: CommitLog, end: Callable[[], int]) -> None:
        self._log = log
        self._end = end

    def records(self, start: int) -> Iterator[IndexedRecord]:
        """Visible records from a physical offset on, see `index_service.RecordsFrom`.

        Unreadable records are left out: they cannot be served either.
        """
        log = self._log
        while 0 <= start < self._end():
            start = max(start, log.min_offset)  # files may be deleted meanwhile
            reader = LogReader(log, start, check_crc=False, stop=self._end)
            for at, size, topic, _, _, sys_flag, timestamp_ms, properties in reader.scan():
                yield IndexedRecord(topic, sys_flag, properties, at, timestamp_ms, at + size)
            start, end = reader.end, self._end()
            if log.min_offset <= start < end:
                reason = reader.reason or "zeros, or a missing file"
                logger.error(
                    "the index leaves out damaged bytes of the log from offset %(start)d on: "
                    "%(reason)s",
                    {"start": start, "reason": reason},
                )
                hole = reader.skip_damage(end)
                start = hole.end if hole is not None else -1

    def is_record(self, physical_offset: int) -> bool:
        """Whether a record begins at a physical offset."""
        return record_at(self._log, physical_offset, check_crc=False) is not None
