"""Distance: how many seconds a slave is behind its master. Pure: the time is an argument."""

from __future__ import annotations


class Distance:
    """Derives a slave's distance in time from its acknowledgements.

    An acknowledgement of what was the log's end at some moment proves that the slave had the whole
    log of that moment. One moment is kept in mind at a time, so the result is never too small, and
    too large by at most the time between two acknowledgements (haSendHeartbeatInterval, 5 s).

    Args:
      now_s: when the slave connected; before its first proof, the distance counts from then on.
    """

    def __init__(self, now_s: float) -> None:
        self._proved_s = now_s
        self._end = 0
        self._end_s = now_s

    def acknowledged(self, offset: int, end: int, now_s: float) -> None:
        """Take an acknowledgement.

        Args:
          offset: physical offset up to which the slave has the log.
          end: physical offset of the log's end now.
        """
        if offset >= end:
            self._proved_s = now_s
        elif offset >= self._end:
            self._proved_s = self._end_s
        else:
            return
        self._end, self._end_s = end, now_s

    def seconds(self, offset: int, end: int, now_s: float) -> float:
        """The distance now; 0: the slave has the whole log."""
        return max(now_s - self._proved_s, 0.0) if offset < end else 0.0
