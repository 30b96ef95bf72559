"""MetricsService: collects a broker's metrics when they are read or pushed, and answers for its
health.

Between two readings nothing is collected: the broker only counts.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import parse_qs

import trio

from ...common.metrics_keys import MetricsExporterType
from ...common.steps import Steps, in_steps
from ...disk.errors import StoreError
from ...remoting.metrics.answers import Answer, text_answer
from ...remoting.metrics.exposition import CONTENT_TYPE, expose
from ...remoting.metrics.families import Families, Samples, in_base_units
from ...remoting.metrics.listening import serve_metrics
from ...remoting.metrics.pages import answer_page
from ...remoting.request_times import RequestTimes
from ...remoting.server import RemotingServer
from ...remoting.tls_server import ServerTls
from ..assembly import BrokerParts
from . import exporter_metrics, health, rocketmq_metrics, trocket_metrics
from .client_figures import ClientFigures
from .push import Log, MetricsPush, Sink

logger = logging.getLogger(__name__)


UNITS: Final = "units"
BASE: Final = "base"
ROCKETMQ: Final = "rocketmq"
"""The parameter of `/metrics`, and its values: Prometheus's base units, or RocketMQ's names."""


class MetricsService:
    """The metrics and the health of a broker.

    Lifecycle: `start` once the store is loaded, then `run`.

    Args:
      server: returns the server of its connections; None: it does not listen.
      elapsed_s: a clock that measures the time of a collection.

    Attributes:
      clients: the figures of connected consumers.
      is_serving: `run` is running.
    """

    def __init__(
        self,
        parts: BrokerParts,
        server: Callable[[], RemotingServer | None],
        *,
        elapsed_s: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._parts = parts
        self._server = server
        self._elapsed_s = elapsed_s
        self._common = parts.config.metrics_labels
        self.clients = ClientFigures(parts.clients.consumers)
        self._one_at_a_time = trio.Lock()
        self._took_s = 0.0
        self.is_serving = False

    def start(self) -> None:
        """Begin to count what is counted for metrics only."""
        config, turn = self._parts.config, self._parts.foundation.seams.turn
        if config.enable_request_metrics:
            self._parts.stats.manager.measure_sizes(rocketmq_metrics.SIZE_BOUNDS)
        if config.enable_remoting_metrics and turn.request_times is None:
            turn.request_times = RequestTimes()

    async def run(self, listener: socket.socket, tls: ServerTls | None = None) -> None:
        """Answer on a listening socket until cancelled; the socket stays open.

        Args:
          tls: encrypts the connections; None: they are plain.
        """
        refusals = self._parts.foundation.refusals
        await self._run(serve_metrics, listener, self.answer, refusals, tls)

    async def push(self) -> None:
        """Push metrics to where `metrics_exporter_type`, OTLP_GRPC or LOG, says, until cancelled.

        Raises: ModuleNotFoundError: a package of the extra `otlp` is missing.
        """
        config = self._parts.config
        sink: Sink
        if config.metrics_exporter_type is MetricsExporterType.LOG:
            sink = Log(config)
            interval_ms = config.metric_logging_exporter_interval_in_mills
        else:
            from .otlp import Collector  # gRPC takes 100 ms

            sink = Collector(config)
            interval_ms = config.metric_grpc_exporter_interval_in_mills

        async def collect() -> Samples:
            self.clients.want()
            return await self.collect()

        push = MetricsPush(collect, sink, interval_ms / 1000, is_delta=config.metrics_in_delta)
        await self._run(push.run)

    async def _run(self, serve: Callable[..., Awaitable[None]], *args: object) -> None:
        self.is_serving = True
        try:
            async with trio.open_nursery() as nursery:
                if self._parts.config.metrics_of_exporter:
                    nursery.start_soon(self.clients.run)
                await serve(*args)
        finally:
            self.is_serving = False

    async def answer(self, path: str) -> Answer:
        """The answer to GET of a path with its query."""
        return await answer_page(path, self._metrics, self._missing)

    def _missing(self) -> list[str]:
        return health.missing(self._parts, is_serving=self.is_serving)

    async def _metrics(self, query: str) -> Answer:
        units = parse_qs(query, keep_blank_values=True).get(UNITS, [ROCKETMQ])
        if not {BASE, ROCKETMQ}.issuperset(units):
            return text_answer(400, f"{UNITS} is {ROCKETMQ}, the default, or {BASE}")
        self.clients.want()
        try:
            samples = await self.collect()
        except StoreError as error:
            logger.warning(
                "metrics could not be collected: %(error)s. The next reader tries again",
                {"error": error},
            )
            return text_answer(503, f"metrics could not be collected: {error}")
        shown = in_base_units if BASE in units else _as_they_are
        body = await trio.to_thread.run_sync(lambda: expose(shown(samples.families), self._common))
        return Answer(200, CONTENT_TYPE, body)

    async def collect(self) -> Samples:
        """Collect all metrics that are switched on; readers at the same time wait for each other.

        Raises: StoreError: a file cannot be read.
        """
        async with self._one_at_a_time:
            began_s = self._elapsed_s()
            samples = Samples(self._parts.config.metrics_otel_cardinality_limit)
            await in_steps(self._collect(samples))
            samples.add(trocket_metrics.SCRAPE, self._took_s)
            self._took_s = self._elapsed_s() - began_s
            return samples

    def _collect(self, samples: Samples) -> Steps[None]:
        parts = self._parts
        yield from parts.stats.manager.collect()
        yield from rocketmq_metrics.collect(
            parts, parts.foundation.seams.turn.request_times, samples
        )
        if parts.config.metrics_of_exporter:
            yield from exporter_metrics.collect(parts, self.clients, samples)
        for part in parts.all:
            yield from part.collect(samples)
        is_ready = not health.missing(parts, is_serving=self.is_serving)
        trocket_metrics.collect(parts, self._server(), samples, is_ready=is_ready)


def _as_they_are(families: Families) -> Families:
    return families
