"""Recent records: messages in memory, and in one file of the log, as the C extension gets them."""

from __future__ import annotations

from typing import NamedTuple

from ...native import Extension
from ..format import UNIT_PLACE
from ..log.commit_log import CommitLog


class RecentRecords(NamedTuple):
    """Where recent messages are, and the limits of a get of them.

    Attributes:
      native: the C extension.
      log: has the records.
      near: bytes before the log's end that count as in memory.
      size_max, count_max: bytes and messages that one get answers at most.
      queue_file_count: units of a queue's file; a get does not go past its end.
    """

    native: Extension
    log: CommitLog
    near: int
    size_max: int
    count_max: int
    queue_file_count: int

    def join(self, units: bytes, log_end: int, size_max: int) -> bytes | None:
        """Small records that are apart from each other, as one body; None: they are not.

        Args:
          units: of the records, at least one.
          log_end: physical offset.
          size_max: bytes of the body.
        """
        file_size = self.log.file_size
        (physical_offset, _) = UNIT_PLACE.unpack_from(units)
        base = physical_offset - physical_offset % file_size
        view = self.log.view(base)
        if view is None:
            return None
        most = min(size_max, self.size_max)
        return self.native.join_records(units, view, base, log_end - self.near, log_end, most)
