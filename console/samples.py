"""Samples of the cluster for all viewers at once, and their last hour."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final

import anyio
import msgspec

from ..client import ClientError
from ..common.texts import one_line
from ..operations.sampling import Sample
from ..operations.watch import Watch
from .lags import Lags

INTERVAL_S: Final = 5.0
"""Between two samples while there are viewers: clients commit their offsets each 5 s. With at most
nine requests a sample, a broker gets fewer than two a second."""
HISTORY_MS: Final = 3_600_000
POINTS_MAX: Final = 240
"""Points of a chart: one for each 15 s of an hour, three pixels wide."""
FRESH_S: Final = 5.0
"""A sample that is no older is not taken again for a page."""
STALE_S: Final = 60.0
"""A page shows a sample that is no older at once, while the next one is taken: that takes up to a
second with a thousand groups. A page that is open gets the next one by its events."""
FIRST_SAMPLE_S: Final = 3.0
"""How long a page waits for its sample; after that it says that the cluster did not answer."""
LATE: Final = f"nothing came within {FIRST_SAMPLE_S:g} s; it is asked again"
NO_BROKERS: Final = "the name servers know no broker"


class Point(msgspec.Struct, frozen=True, rename="camel"):
    """What a chart has of a sample.

    Attributes:
      timestamp_ms: ms since 1970.
      in_rate, out_rate: messages per second of all brokers; None: unknown.
      lag: messages that wait for the group that is farthest behind.
      lag_group: that group; "": none waits.
      disk_ratio: the used part of the fullest disk, 0 to 1; None: unknown.
      disk_broker: its broker.
    """

    timestamp_ms: int
    in_rate: float | None
    out_rate: float | None
    lag: int
    lag_group: str
    disk_ratio: float | None
    disk_broker: str


def point_of(sample: Sample) -> Point:
    """The point of a sample."""
    in_rates = [each.in_rate for each in sample.brokers if each.in_rate is not None]
    out_rates = [each.out_rate for each in sample.brokers if each.out_rate is not None]
    worst = max(sample.groups, key=lambda each: each.lag, default=None)
    disks = [each for each in sample.brokers if each.disk_ratio is not None]
    disk = max(disks, key=lambda each: each.disk_ratio or 0, default=None)
    return Point(
        sample.timestamp_ms,
        sum(in_rates) if in_rates else None,
        sum(out_rates) if out_rates else None,
        worst.lag if worst else 0,
        worst.group if worst and worst.lag else "",
        disk.disk_ratio if disk else None,
        disk.broker if disk else "",
    )


class Samples:
    """One sample for all viewers; none is taken without a viewer or an opened page.

    Args:
      take: takes a sample of the cluster.

    Attributes:
      lags: of each group, during the last hour in which there were viewers.
      error: why there is no newer sample; "": there is.
    """

    def __init__(self, take: Callable[[], Awaitable[Sample]]) -> None:
        self._take = take
        self._watch: Watch[Sample] = Watch(self._kept, interval_s=INTERVAL_S)
        self._points: deque[Point] = deque()
        self.lags = Lags()
        self._latest: Sample | None = None
        self._viewers = 0
        self.error = ""

    @property
    def viewers(self) -> int:
        """Open event streams."""
        return self._viewers

    @property
    def points(self) -> list[Point]:
        """Those of the last hour in which there were viewers, at most POINTS_MAX."""
        step = max(1, -(-len(self._points) // POINTS_MAX))
        return list(self._points)[::-1][::step][::-1]

    async def run(self) -> None:
        """Take samples while there are viewers, until it is cancelled."""
        await self._watch.run()

    async def fresh(self) -> Sample | None:
        """A sample that is at most STALE_S old; None: the cluster does not answer (`error`).

        One that is older than FRESH_S has the next one taken. A cluster that is slow to answer
        gives the one before.
        """
        with anyio.move_on_after(FIRST_SAMPLE_S), suppress(ClientError):
            return await self._watch.latest(FRESH_S, stale_s=STALE_S)
        if self._latest is None and not self.error:
            self.error = LATE
        return self._latest

    def expire(self) -> None:
        """A change was made: pages wait for a sample that shows it."""
        self._watch.expire()

    @property
    def gaps(self) -> tuple[str, ...]:
        """Brokers of the newest sample that did not answer all, with the reason."""
        rows = self._latest.brokers if self._latest is not None else ()
        return tuple(f"{row.broker}: {row.error}" for row in rows if row.error)

    async def _kept(self) -> Sample:
        try:
            sample = await self._take()
        except ClientError as error:
            self.error = one_line(error)
            raise
        self.error = "" if sample.brokers else NO_BROKERS
        self._latest = sample
        self._points.append(point_of(sample))
        self.lags.take(sample)
        while self._points[0].timestamp_ms < sample.timestamp_ms - HISTORY_MS:
            self._points.popleft()
        return sample

    @asynccontextmanager
    async def viewing(self) -> AsyncIterator[Callable[[], Awaitable[None]]]:
        """View the samples; what it gives waits for the next one."""
        self._viewers += 1
        number = 0

        async def following() -> None:
            nonlocal number
            number = (await self._watch.next(number)).number

        try:
            yield following
        finally:
            self._viewers -= 1
