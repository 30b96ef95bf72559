"""ControllerMetrics: a controller's metrics and health, collected when they are read.

Java counterpart: controller/metrics/ControllerMetricsManager.java of 5.5.0, whose names are about
its consensus; these are about the sets of brokers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..remoting.metrics import server_metrics
from ..remoting.metrics.answers import Answer
from ..remoting.metrics.families import Kind, Metric, Samples
from ..remoting.metrics.pages import answer_page, exposed
from ..remoting.request_codes import RequestCode
from ..remoting.server import RemotingServer
from .config import ControllerConfig
from .leader import Leader
from .leadership import Leadership

SERIES_MAX: Final = 50_000
"""Samples of one metric, as a broker's `metricsOtelCardinalityLimit`; most have one per set."""


def _metric(name: str, kind: Kind, text: str, *labels: str) -> Metric:
    return server_metrics.trocket_metric(f"controller_{name}", kind, text, *labels)


READY: Final = _metric("ready", Kind.GAUGE, "Whether /health/ready says so: 1 or 0.")
LEADS: Final = _metric("leads", Kind.GAUGE, "Whether this controller leads: 1 or 0.")
TERM: Final = _metric("term", Kind.GAUGE, "The term of this controller's lease; only a leader's.")
ELECTIONS: Final = _metric(
    "elections_total", Kind.COUNTER, "Masters elected since this controller leads."
)
MEMBERS: Final = _metric(
    "members",
    Kind.GAUGE,
    "Brokers of a set: all, alive, and in_sync.",
    "cluster",
    "broker",
    "state",
)
EPOCH: Final = _metric(
    "master_epoch", Kind.GAUGE, "Elections that a set has had.", "cluster", "broker"
)
MASTER: Final = _metric(
    "master_id", Kind.GAUGE, "Id of a set's master; 0: it has none.", "cluster", "broker"
)
REQUESTS: Final = _metric("requests_total", Kind.COUNTER, "Requests by their code.", "request_code")


class ControllerMetrics:
    """Answers for the metrics and the health of a controller.

    Args:
      counts: its requests by code, from `request_counts.counted`.
      node_id: the address that it listens on, a label of all metrics.
    """

    def __init__(
        self,
        config: ControllerConfig,
        leadership: Leadership,
        server: RemotingServer,
        counts: Mapping[int, int],
        *,
        node_id: str,
    ) -> None:
        self._leadership = leadership
        self._server = server
        self._counts = counts
        self._labels = config.metrics_labels | {"node_id": node_id}

    async def answer(self, path: str) -> Answer:
        """The answer to GET of a path with its query."""
        return await answer_page(path, self._metrics, self.missing)

    async def _metrics(self, _query: str) -> Answer:
        return await exposed(self.collect().families, self._labels)

    def missing(self) -> list[str]:
        """What keeps masters from being elected, one sentence each; empty: nothing."""
        if self._leadership.leader is not None or self._leadership.known_leader is not None:
            return []
        return ["no controller leads, as far as this one knows: is the store of the state there?"]

    def collect(self) -> Samples:
        """Collect all metrics now; the work is proportional to the number of sets."""
        samples = Samples(SERIES_MAX)
        server = self._server
        server_metrics.collect(server.monitor, server.refusals, server, samples)
        leader = self._leadership.leader
        samples.add(READY, int(not self.missing()))
        samples.add(LEADS, int(leader is not None))
        samples.declare(TERM, ELECTIONS, MEMBERS, EPOCH, MASTER, REQUESTS)
        for code, count in self._counts.items():
            samples.add(REQUESTS, count, RequestCode(code).name.lower())
        if leader is not None:
            _collect_sets(leader, samples)
        return samples


def _collect_sets(leader: Leader, samples: Samples) -> None:
    samples.add(TERM, leader.lease.term)
    samples.add(ELECTIONS, leader.elections)
    for each in leader.sets():
        labels = (each.cluster_name, each.broker_name)
        samples.add(MEMBERS, len(each.replicas), *labels, "all")
        samples.add(MEMBERS, len(leader.alive(each)), *labels, "alive")
        samples.add(MEMBERS, len(each.in_sync), *labels, "in_sync")
        samples.add(EPOCH, each.master_epoch, *labels)
        samples.add(MASTER, each.master_id or 0, *labels)
