"""Metrics of trocket itself, which RocketMQ has no names for: the event loop, the disk, the
connections. Their units are Prometheus's base units. Pure."""

from __future__ import annotations

from functools import cache
from typing import Final

from ...native import choice
from ...remoting.server import RemotingServer
from ..assembly import BrokerParts
from .families import Kind, Metric, Samples


def _metric(name: str, kind: Kind, text: str, *labels: str) -> Metric:
    return Metric(f"trocket_{name}", kind, text, labels)


INFO: Final = _metric(
    "build_info", Kind.GAUGE, "Always 1; the labels tell what runs.", "version", "hot_path"
)
READY: Final = _metric("ready", Kind.GAUGE, "Whether /health/ready says so: 1 or 0.")
SENDS_REFUSED: Final = _metric(
    "sends_refused", Kind.GAUGE, "Whether the store accepts no messages now: 1 or 0."
)
LOOP_LAG: Final = _metric(
    "event_loop_lag_seconds", Kind.HISTOGRAM,
    "Delay with which a task runs that is due; sampled each second.",
)  # fmt: skip
SLOW_BURSTS: Final = _metric(
    "slow_burst_seconds", Kind.HISTOGRAM,
    "Time of requests that arrived together and took longer than the limit that is logged.",
)  # fmt: skip
TURN_MESSAGES: Final = _metric(
    "turn_messages", Kind.HISTOGRAM, "Sends that one write to the commit log stored."
)
FSYNCS: Final = _metric("fsync_seconds", Kind.HISTOGRAM, "Time of an fsync of the commit log.")
CONNECTIONS: Final = _metric("connections", Kind.GAUGE, "Open connections.")
MEMORY_USED: Final = _metric(
    "connection_memory_bytes", Kind.GAUGE,
    "Bytes that connections hold: incomplete frames, held pulls, unread answers, subscriptions.",
)  # fmt: skip
MEMORY_MAX: Final = _metric(
    "connection_memory_max_bytes", Kind.GAUGE, "The limit of these bytes (remotingBytesMax)."
)
REFUSALS: Final = _metric(
    "limit_refusals_total", Kind.COUNTER,
    "Connections, requests and names that a limit refused or closed, by the limit's key.", "limit",
)  # fmt: skip
HELD_PULLS: Final = _metric("held_pulls", Kind.GAUGE, "Pulls that wait for messages.")
LOG_FILES: Final = _metric(
    "commit_log_files", Kind.GAUGE, "Files of the commit log, and how many are mapped.", "state"
)
QUEUES: Final = _metric("consume_queues", Kind.GAUGE, "Consume queues of the store.")
PARKED: Final = _metric(
    "parked_transactions_total", Kind.COUNTER,
    "Transactions that were checked too often without a result.",
)  # fmt: skip
SCRAPE: Final = _metric(
    "collection_seconds", Kind.GAUGE, "Time that the previous collection of metrics took."
)
ALL: Final = "all"
"""The label for the sum over all metrics."""
LEFT_OUT: Final = _metric(
    "series_left_out", Kind.GAUGE,
    "Samples of a metric above metricsOtelCardinalityLimit that are not shown.", "metric",
)  # fmt: skip


def collect(
    parts: BrokerParts, server: RemotingServer | None, samples: Samples, *, is_ready: bool
) -> None:
    """Collect the metrics.

    Args:
      parts: the broker's.
      server: of the broker's connections; None: it does not listen yet.
      samples: takes the samples.
      is_ready: see `READY`.
    """
    store, stats = parts.store, parts.stats
    samples.add(INFO, 1, _version(), choice.description)
    samples.add(READY, int(is_ready))
    samples.add(SENDS_REFUSED, int(bool(store.trouble)))
    monitor = parts.seams.turn.monitor
    samples.add(LOOP_LAG, monitor.lags)
    samples.add(SLOW_BURSTS, monitor.bursts)
    samples.add(TURN_MESSAGES, stats.turn_messages)
    samples.add(FSYNCS, store.flusher.times)
    if server is not None:
        samples.add(CONNECTIONS, len(server.channels))
        samples.add(MEMORY_USED, server.memory.used)
        samples.add(MEMORY_MAX, sum(each.limit for each in server.memory.shares))
    for limit, count in list(parts.refusals.counts.items()):
        samples.add(REFUSALS, count, limit)
    samples.add(HELD_PULLS, parts.pulls.hold_service.count)
    samples.add(LOG_FILES, len(store.log.files), "all")
    samples.add(LOG_FILES, len(store.log.views), "mapped")
    samples.add(QUEUES, len(store.queue_store.queues))
    samples.add(PARKED, parts.deliveries.transactions.parked)
    left_out = dict(samples.left_out)
    samples.add(LEFT_OUT, sum(left_out.values()), ALL)
    for name, count in left_out.items():
        samples.add(LEFT_OUT, count, name)


@cache
def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version  # 10 ms, at the first collection

    try:
        return version("trocket")
    except PackageNotFoundError:  # run from sources that are not installed
        return "unknown"
