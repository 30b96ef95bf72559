"""Metrics of a broker that RocketMQ has no names for: the disk, held pulls, their own collection.
Their units are Prometheus's base units. Pure."""

from __future__ import annotations

from typing import Final

from ...remoting.metrics import server_metrics
from ...remoting.metrics.families import Kind, Samples
from ...remoting.metrics.server_metrics import trocket_metric
from ...remoting.server import RemotingServer
from ..assembly import BrokerParts
from ..pulling.fast_paths import fast_paths

READY: Final = trocket_metric("ready", Kind.GAUGE, "Whether /health/ready says so: 1 or 0.")
SENDS_REFUSED: Final = trocket_metric(
    "sends_refused", Kind.GAUGE, "Whether the store accepts no messages now: 1 or 0."
)
TURN_MESSAGES: Final = trocket_metric(
    "turn_messages", Kind.HISTOGRAM, "Sends that one write to the commit log stored."
)
FSYNCS: Final = trocket_metric(
    "fsync_seconds", Kind.HISTOGRAM, "Time of an fsync of the commit log."
)
HELD_PULLS: Final = trocket_metric("held_pulls", Kind.GAUGE, "Pulls that wait for messages.")
LOG_FILES: Final = trocket_metric(
    "commit_log_files", Kind.GAUGE, "Files of the commit log, and how many are mapped.", "state"
)
QUEUES: Final = trocket_metric("consume_queues", Kind.GAUGE, "Consume queues of the store.")
PARKED: Final = trocket_metric(
    "parked_transactions_total", Kind.COUNTER,
    "Transactions that were checked too often without a result.",
)  # fmt: skip
FAST_PATH: Final = trocket_metric(
    "fast_path_total", Kind.COUNTER,
    "Usual sends, batches, deliveries of delayed messages, half messages and their ends, pulls "
    "that wait and pulls that are woken, by who served them: the C extension (native) or Python.",
    "path", "by",
)  # fmt: skip
FAST_PATH_FAILURES: Final = trocket_metric(
    "fast_path_failures_total", Kind.COUNTER,
    "Unexpected errors of the C extension; the log has them.", "path",
)  # fmt: skip
SCRAPE: Final = trocket_metric(
    "collection_seconds", Kind.GAUGE, "Time that the previous collection of metrics took."
)
ALL: Final = "all"
"""The label for the sum over all metrics."""
LEFT_OUT: Final = trocket_metric(
    "series_left_out", Kind.GAUGE,
    "Samples of a metric above metricsOtelCardinalityLimit that are not shown.", "metric",
)  # fmt: skip


def collect(
    parts: BrokerParts, server: RemotingServer | None, samples: Samples, *, is_ready: bool
) -> None:
    """Collect the metrics.

    Args:
      server: of the broker's connections; None: it does not listen yet.
      is_ready: see `READY`.
    """
    store, stats = parts.store, parts.stats.manager
    server_metrics.collect(
        parts.foundation.seams.turn.monitor, parts.foundation.refusals, server, samples
    )
    samples.add(READY, int(is_ready))
    samples.add(SENDS_REFUSED, int(bool(store.trouble)))
    samples.add(TURN_MESSAGES, stats.turn_messages)
    samples.add(FSYNCS, store.flusher.times)
    samples.add(HELD_PULLS, parts.pulling.processor.hold_service.count)
    samples.add(LOG_FILES, len(store.log.files), "all")
    samples.add(LOG_FILES, len(store.log.views), "mapped")
    samples.add(QUEUES, len(store.queue_store.queues))
    samples.add(PARKED, parts.transactions.service.parked)
    for path, counts in fast_paths(
        store, parts.pulling.processor, parts.transactions.service.counts
    ).items():
        samples.add(FAST_PATH, counts.taken, path, "native")
        samples.add(FAST_PATH, counts.left, path, "python")
        samples.add(FAST_PATH_FAILURES, counts.failed, path)
    left_out = dict(samples.left_out)
    samples.add(LEFT_OUT, sum(left_out.values()), ALL)
    for name, count in left_out.items():
        samples.add(LEFT_OUT, count, name)
