"""MetricsService: collects a broker's metrics when they are read, and answers for its health.

Between two readings nothing is collected: the broker only counts.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable
from typing import Final

import trio

from ...remoting.request_times import RequestTimes
from ...remoting.server import RemotingServer
from ...remoting.steps import Steps, in_steps
from ...store.errors import StoreError
from ..assembly import BrokerParts
from . import exporter_metrics, health, rocketmq_metrics, trocket_metrics
from .client_figures import ClientFigures
from .exposition import CONTENT_TYPE, expose
from .families import Samples
from .http_server import Answer, HttpServer

logger = logging.getLogger(__name__)

_TEXT: Final = "text/plain; charset=utf-8"

PATHS: Final = ("/metrics", "/health/live", "/health/ready")


class MetricsService:
    """The metrics and the health of a broker.

    Lifecycle: `start` once the store is loaded, then `run`.

    Args:
      parts: the broker's.
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
        config, turn = self._parts.config, self._parts.seams.turn
        if config.enable_request_metrics:
            self._parts.stats.measure_sizes(rocketmq_metrics.SIZE_BOUNDS)
        if config.enable_remoting_metrics and turn.request_times is None:
            turn.request_times = RequestTimes()

    async def run(self, listener: socket.socket) -> None:
        """Answer on a listening socket until cancelled; the socket stays open."""
        self.is_serving = True
        try:
            async with trio.open_nursery() as nursery:
                if self._parts.config.metrics_of_exporter:
                    nursery.start_soon(self.clients.run)
                await HttpServer(self.answer).serve(listener)
        finally:
            self.is_serving = False

    async def answer(self, path: str) -> Answer:
        """The answer to GET of a path."""
        path = path.partition("?")[0]
        if path == "/metrics":
            return await self._metrics()
        if path == "/health/live":
            return health.LIVE
        if path == "/health/ready":
            missing = health.missing(self._parts, is_serving=self.is_serving)
            return health.answer_of(missing)
        return Answer(404, _TEXT, f"there are {', '.join(PATHS)}\n".encode())

    async def _metrics(self) -> Answer:
        self.clients.want()
        try:
            samples = await self.collect()
        except StoreError as error:
            logger.warning(
                "metrics could not be collected: %(error)s. The next reader tries again",
                {"error": error},
            )
            return Answer(503, _TEXT, f"metrics could not be collected: {error}\n".encode())
        body = await trio.to_thread.run_sync(expose, samples, self._common)
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
        yield from parts.stats.collect()
        yield from rocketmq_metrics.collect(parts, parts.seams.turn.request_times, samples)
        if parts.config.metrics_of_exporter:
            yield from exporter_metrics.collect(parts, self.clients, samples)
        is_ready = not health.missing(parts, is_serving=self.is_serving)
        trocket_metrics.collect(parts, self._server(), samples, is_ready=is_ready)
