"""Refusals: counts and logs what the limits of a server refuse.

A flood may exceed a limit thousands of times a second. Each limit has at most one log line in
LOG_INTERVAL_S, with the number of refusals since the last one; metrics have the counts. So do
connections that TLS refuses, with a line for each problem.

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
        self._left_out: Counter[str] = Counter()  # refusals since the last line

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
        more = self._begin_line(limit)
        if more is not None:
            logger.warning(
                "%(peer)s: %(what)s, which is the limit %(limit)s%(more)s",
                {"peer": peer, "what": what, "limit": limit, "more": more},
            )

    def note_problem(self, kind: str, peer: str, what: str) -> None:
        """Count a refusal that is not due to a limit, and log it, unless a line of the same problem
        was logged shortly before.

        Args:
          kind: of the refusal, such as the key that demands it.
          peer: "ip:port".
          what: the problem and what to do; one of a few strings, which do not name the peer.
        """
        self._counts[kind] += 1
        more = self._begin_line(f"{kind}: {what}")
        if more is not None:
            logger.warning("%(peer)s: %(what)s%(more)s", {"peer": peer, "what": what, "more": more})

    def _begin_line(self, subject: str) -> str | None:
        """The end of the line about a further refusal; None: there was a line shortly before."""
        now_s = self._now_s()
        if now_s < self._next_line_s.get(subject, now_s):
            self._left_out[subject] += 1
            return None
        self._next_line_s[subject] = now_s + LOG_INTERVAL_S
        left_out = self._left_out.pop(subject, 0)
        return f" ({left_out} more refusals since the last such line)" if left_out else ""
