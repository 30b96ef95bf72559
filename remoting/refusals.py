"""Refusals: counts and logs what the limits of a server refuse.

A flood may exceed a limit thousands of times a second. Each limit has at most one log line in
LOG_INTERVAL_S, with the number of refusals since the last one; metrics have the counts.

Pure: the clock is an argument.

Java counterpart: none.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

logger = logging.getLogger(__name__)

LOG_INTERVAL_S: Final = 10.0
"""Seconds between two lines of one limit."""


class Refusals:
    """The refusals of one server, by limit.

    Args:
      now_s: a monotonic clock, seconds.
    """

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._counts: Counter[str] = Counter()
        self._next_line_s: dict[str, float] = {}
        self._logged: Counter[str] = Counter()

    @property
    def counts(self) -> Mapping[str, int]:
        """Refusals by limit, since the start; read-only."""
        return self._counts

    def count(self, limit: str) -> None:
        """Count a refusal whose line is logged elsewhere; see `note`."""
        self._counts[limit] += 1

    def note(self, limit: str, peer: str, what: str) -> None:
        """Count a refusal, and log it, unless a line of this limit was logged shortly before.

        Args:
          limit: the configuration key that sets the limit, or the name of a fixed one.
          peer: "ip:port".
          what: what was refused, and why, such as "the connection is refused, because 10000 are
            open".
        """
        self._counts[limit] += 1
        now_s = self._now_s()
        if now_s < self._next_line_s.get(limit, now_s):
            return
        self._next_line_s[limit] = now_s + LOG_INTERVAL_S
        left_out = self._counts[limit] - self._logged[limit] - 1
        self._logged[limit] = self._counts[limit]
        logger.warning(
            "%(peer)s: %(what)s, which is the limit %(limit)s%(more)s",
            {
                "peer": peer,
                "what": what,
                "limit": limit,
                "more": f" ({left_out} more refusals since the last such line)" if left_out else "",
            },
        )
