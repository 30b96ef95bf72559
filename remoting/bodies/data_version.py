"""DataVersion: the version of a broker's table."""

from __future__ import annotations

from .base import Body
from .fields import Version


class DataVersion(Body):
    """The version of a table; two are equal when all three numbers are.

    Attributes:
      timestamp: time of the last change, ms since 1970.
      counter: number of changes.
      state_version: version of the state machine behind it (5.x); 0: none, also from 4.x.
    Source: RocketMQ 5.5.0 DataVersion.
    """

    timestamp: Version = 0
    counter: Version = 0
    state_version: Version = 0

    def next_version(self, now_ms: int, state_version: int = 0) -> None:
        """Advance the version after a change.

        Args:
          now_ms: the wall clock, ms since 1970.
          state_version: version of the state machine; 0 if there is none.
        """
        self.timestamp = now_ms
        self.state_version = state_version
        self.counter += 1

    def assign(self, other: DataVersion) -> None:
        """Become equal to another version."""
        self.timestamp = other.timestamp
        self.counter = other.counter
        self.state_version = other.state_version
