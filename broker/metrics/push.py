"""Pushed metrics: they are collected at an interval and given to a collector or to the log.

The event loop only collects; a thread encodes and sends. A collector that does not answer costs one
line in the log until it answers again.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol

import trio

from ...disk.errors import StoreError
from ...remoting.metrics.families import Families, HistogramValue, Samples, gained
from ..settings.config import BrokerConfig

logger = logging.getLogger(__name__)


class PushError(Exception):
    """The samples did not arrive; the message says why."""


class Period(NamedTuple):
    """Since when counters count and when the samples were collected, nanoseconds since 1970."""

    start_ns: int
    end_ns: int


class Sink(Protocol):
    """Where samples go; a thread calls the methods, one after the other.

    Attributes:
      name: for log lines.
    """

    name: str

    def send(self, families: Families, period: Period) -> None:
        """Send samples. Raises: PushError."""

    def close(self) -> None:
        """Release what it holds."""


class MetricsPush:
    """Pushes metrics at an interval.

    Lifecycle: `run` in a nursery.

    Args:
      collect: collects samples.
      sink: where they go.
      interval_s: seconds between two pushes.
      is_delta: push what counters have gained since the last push that succeeded, so that nothing
        is lost while a collector is away.
      wall_ns: nanoseconds since 1970.
    """

    def __init__(
        self,
        collect: Callable[[], Awaitable[Samples]],
        sink: Sink,
        interval_s: float,
        *,
        is_delta: bool = False,
        wall_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._collect = collect
        self._sink = sink
        self._interval_s = interval_s
        self._is_delta = is_delta
        self._wall_ns = wall_ns
        self._start_ns = wall_ns()
        self._pushed: Families = {}
        self._failed_count = 0

    async def run(self) -> None:
        """Push until cancelled."""
        try:
            while True:
                await trio.sleep(self._interval_s)
                await self.push()
        finally:
            self._sink.close()

    async def push(self) -> None:
        """Push once; a failure is logged if the previous push succeeded."""
        period = Period(self._start_ns, self._wall_ns())
        try:
            families = (await self._collect()).families
            shown = gained(families, self._pushed) if self._is_delta else families
            # A thread that waits for a collector does not keep the broker from stopping.
            await trio.to_thread.run_sync(self._sink.send, shown, period, abandon_on_cancel=True)
        except (PushError, StoreError) as error:
            self._failed_count += 1
            if self._failed_count == 1:
                logger.warning(
                    "metrics do not reach %(sink)s: %(error)s. Clients are served as before. "
                    "The next attempt is in %(interval_s)g s; further failures are not logged",
                    {"sink": self._sink.name, "error": error, "interval_s": self._interval_s},
                )
            return
        if self._failed_count:
            logger.warning(
                "metrics reach %(sink)s again, after %(failed_count)d failed attempts",
                {"sink": self._sink.name, "failed_count": self._failed_count},
            )
            self._failed_count = 0
        if self._is_delta:
            self._start_ns, self._pushed = period.end_ns, families


class Log:
    """Writes samples to the log: for each metric a line with its name and an object of JSON.

    Args:
      config: has the labels of all samples.
    """

    def __init__(self, config: BrokerConfig) -> None:
        self.name = "the log"
        self._common = config.metrics_labels

    def send(self, families: Families, period: Period) -> None:
        for metric, values in families.items():
            samples = []
            for label_values, value in values.items():
                labels = dict(self._common) if metric.has_common else {}
                labels.update(zip(metric.labels, label_values, strict=True))
                number = value._asdict() if isinstance(value, HistogramValue) else value
                samples.append({"labels": labels, "value": number})
            if samples:
                content = {"type": metric.kind.value, "samples": samples}
                # Each metric is an event: of one event few lines are written in an interval.
                event = f"{metric.name} %(metric)s"
                logger.info(event, {"metric": json.dumps(content, ensure_ascii=False)})

    def close(self) -> None:
        """Nothing is held."""
