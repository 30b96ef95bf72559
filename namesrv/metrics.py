"""NamesrvMetrics: a name server's metrics and health, collected when they are read.

Java counterpart: none; Apache's name server has metrics only where it runs a controller.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from ..remoting.metrics import server_metrics
from ..remoting.metrics.answers import Answer
from ..remoting.metrics.families import Kind, Metric, Samples
from ..remoting.metrics.pages import answer_page, exposed
from ..remoting.request_codes import RequestCode
from ..remoting.server import RemotingServer
from .config import NamesrvConfig
from .registration import MASTER_ID
from .route_info_manager import RouteInfoManager

SERIES_MAX: Final = 50_000
"""Samples of one metric, as a broker's `metricsOtelCardinalityLimit`; most have one per broker."""


def _metric(name: str, kind: Kind, text: str, *labels: str) -> Metric:
    return server_metrics.trocket_metric(f"namesrv_{name}", kind, text, *labels)


READY: Final = _metric("ready", Kind.GAUGE, "Whether /health/ready says so: 1 or 0.")
CLUSTERS: Final = _metric("clusters", Kind.GAUGE, "Clusters that have a broker.")
BROKERS: Final = _metric(
    "brokers", Kind.GAUGE, "Registered brokers of a cluster: masters and slaves.", "cluster", "role"
)
TOPICS: Final = _metric("topics", Kind.GAUGE, "Topics that some broker has registered.")
SILENCE: Final = _metric(
    "broker_silence_seconds", Kind.GAUGE,
    "Time since a broker's last registration or heartbeat; it is removed after 120 s, or its own "
    "limit.", "cluster", "broker",
)  # fmt: skip
REMOVED: Final = _metric(
    "brokers_removed_total", Kind.COUNTER,
    "Brokers that were removed from all routes: silent, connection_closed, or unregistered.",
    "reason",
)  # fmt: skip
REQUESTS: Final = _metric(
    "requests_total", Kind.COUNTER,
    "Requests by their code; register_broker counts registrations.", "request_code",
)  # fmt: skip
WARNINGS: Final = _metric(
    "duplicate_brokers", Kind.GAUGE,
    "Names and ids that several connected brokers register; the log names them.",
)  # fmt: skip


class NamesrvMetrics:
    """Answers for the metrics and the health of a name server.

    Args:
      node_id: the address that it listens on, a label of all metrics.
      now_ms: the clock of the route table.
      started_ms: when it started, by that clock.
      counts: its requests by code, from `request_counts.counted`.
    """

    def __init__(
        self,
        config: NamesrvConfig,
        routes: RouteInfoManager,
        server: RemotingServer,
        counts: Mapping[int, int],
        *,
        node_id: str,
        now_ms: Callable[[], int],
        started_ms: int,
    ) -> None:
        self._config = config
        self._routes = routes
        self._server = server
        self._counts = counts
        self._labels = config.metrics_labels | {"node_id": node_id}
        self._now_ms = now_ms
        self._started_ms = started_ms

    async def answer(self, path: str) -> Answer:
        """The answer to GET of a path with its query."""
        return await answer_page(path, self._metrics, self.missing)

    async def _metrics(self, _query: str) -> Answer:
        return await exposed(self.collect().families, self._labels)

    def missing(self) -> list[str]:
        """What keeps it from answering queries for routes, one sentence each; empty: nothing."""
        config = self._config
        left_ms = self._started_ms + config.wait_seconds_for_service * 1_000 - self._now_ms()
        if not config.need_wait_for_service or left_ms <= 0:
            return []
        reason = (
            f"queries for routes are refused for {-(-left_ms // 1_000)} s more, until brokers had "
            "time to register (needWaitForService, waitSecondsForService)"
        )
        return [reason]

    def collect(self) -> Samples:
        """Collect all metrics now; the work is proportional to the number of brokers."""
        samples = Samples(SERIES_MAX)
        server = self._server
        server_metrics.collect(server.monitor, server.refusals, server, samples)
        samples.add(READY, int(not self.missing()))
        samples.add(TOPICS, len(self._routes.topics))
        samples.add(WARNINGS, len(self._routes.warnings()))
        for reason in ("silent", "connection_closed", "unregistered"):
            samples.add(REMOVED, self._routes.removed[reason], reason)
        samples.declare(REQUESTS)
        for code, count in self._counts.items():
            samples.add(REQUESTS, count, RequestCode(code).name.lower())
        self._collect_brokers(samples)
        return samples

    def _collect_brokers(self, samples: Samples) -> None:
        info = self._routes.cluster_info()
        samples.add(CLUSTERS, len(info.cluster_addr_table))
        samples.declare(BROKERS, SILENCE)
        numbers: Counter[tuple[str, str]] = Counter()
        for cluster in info.cluster_addr_table:
            numbers[cluster, "master"] = numbers[cluster, "slave"] = 0
        for group in info.broker_addr_table.values():
            for broker_id in group.broker_addrs:
                numbers[group.cluster, "master" if broker_id == MASTER_ID else "slave"] += 1
        for (cluster, role), count in numbers.items():
            samples.add(BROKERS, count, cluster, role)
        for broker, silence_ms in self._routes.silences_ms(self._now_ms()).items():
            samples.add(SILENCE, silence_ms / 1_000, broker.cluster_name, broker.broker_addr)
