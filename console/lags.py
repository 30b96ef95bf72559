"""The last hour's lag of each group, in little memory."""

from __future__ import annotations

from array import array
from typing import Final

import msgspec

from ..operations.sampling import Sample

STEP_MS: Final = 15_000
"""Between two kept values: three pixels of a chart."""
COUNT_MAX: Final = 241
"""Values of a group: an hour's, with both ends."""
GROUPS_MAX: Final = 2_000
"""Groups with messages that waited within the hour: 8 bytes for each value make 4 MB at most."""
_UNKNOWN: Final = -1


class LagPoint(msgspec.Struct, frozen=True, rename="camel"):
    """A group's lag at one time, ms since 1970; None: unknown."""

    timestamp_ms: int
    lag: int | None


class Lags:
    """Lags of groups in which messages waited; of others it is 0."""

    def __init__(self) -> None:
        self._times: array[int] = array("q")
        self._lags: dict[str, array[int]] = {}

    def take(self, sample: Sample) -> None:
        """Keep what a sample says, if the last kept one is old enough."""
        now_ms = sample.timestamp_ms
        if self._times and 0 <= now_ms - self._times[-1] < STEP_MS:
            return
        known = {row.group: row.lag for row in sample.groups}
        before = len(self._times)
        self._times.append(now_ms)
        for group, lags in self._lags.items():
            lags.append(known.get(group, _UNKNOWN))
        waiting = (row for row in sample.groups if row.lag and row.group not in self._lags)
        for row in sorted(waiting, key=lambda each: -each.lag):
            if len(self._lags) == GROUPS_MAX:
                break
            self._lags[row.group] = array("q", [0] * before + [row.lag])
        self._forget()

    def _forget(self) -> None:
        over = len(self._times) - COUNT_MAX
        if over <= 0:
            return
        del self._times[:over]
        for group in list(self._lags):
            del self._lags[group][:over]
            if not any(lag > 0 for lag in self._lags[group]):
                del self._lags[group]

    def of(self, group: str) -> list[LagPoint]:
        """A group's lags, the oldest first; empty: there was no sample."""
        lags = self._lags.get(group) or [0] * len(self._times)
        return [
            LagPoint(at_ms, None if lag == _UNKNOWN else lag)
            for at_ms, lag in zip(self._times, lags, strict=True)
        ]
