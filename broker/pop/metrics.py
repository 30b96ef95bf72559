"""The metrics of pop consumption of RocketMQ 5.x: names, labels and units as its broker has them.

Java counterpart: broker/metrics/PopMetricsManager.java of 5.5.0, which counts a record of the
revive topic each time it is read; here each is read once. Pure.
"""

from __future__ import annotations

from typing import Final

from ...common.steps import STEP_ITEMS, Steps
from ...disk.errors import StoreError
from ...remoting.metrics.families import Kind, Metric, Samples
from ..stats.pop_counts import PopCounts
from .services import PopServices


def _metric(name: str, kind: Kind, text: str, *labels: str, is_misnamed: bool = False) -> Metric:
    return Metric(f"rocketmq_pop_{name}", kind, text, labels, is_misnamed=is_misnamed)


SCANS: Final = _metric(
    "buffer_scan_time_consume_milliseconds", Kind.HISTOGRAM,
    "Time of storing some check points that waited in memory.",
)  # fmt: skip
REVIVE_IN: Final = _metric(
    "revive_in_message_total", Kind.COUNTER,
    "Records of check points (CK) and acknowledgements (ACK) that were stored.",
    "consumer_group", "topic", "revive_message_type", "put_status",
)  # fmt: skip
REVIVE_OUT: Final = _metric(
    "revive_out_message_total", Kind.COUNTER,
    "Records of check points (CK) and acknowledgements (ACK) that were read.",
    "consumer_group", "topic", "queue_id", "revive_message_type",
)  # fmt: skip
RETRIES: Final = _metric(
    "revive_retry_messages_total", Kind.COUNTER,
    "Messages that were not acknowledged in time and put into a retry topic.",
    "consumer_group", "topic", "put_status",
)  # fmt: skip
OFFSET_BUFFER: Final = _metric(
    "offset_buffer_size", Kind.GAUGE, "Pops that the committed offsets have not passed."
)
CHECK_POINT_BUFFER: Final = _metric(
    "checkpoint_buffer_size", Kind.GAUGE, "Check points that are in memory and not stored."
)
REVIVE_LAG: Final = _metric(
    "revive_lag_milliseconds", Kind.GAUGE,
    "Records of a revive queue that were not read: a number, in spite of RocketMQ's name.",
    "queue_id", is_misnamed=True,
)  # fmt: skip
REVIVE_LATENCY: Final = _metric(
    "revive_latency_milliseconds", Kind.GAUGE,
    "Age of the oldest record of a revive queue that was not read.", "queue_id",
)  # fmt: skip


def collect(pop: PopServices, counts: PopCounts, now_ms: int, samples: Samples) -> Steps[None]:
    """Steps that collect the metrics.

    Args:
      now_ms: the time of day.
    """
    samples.declare(REVIVE_IN, REVIVE_OUT, RETRIES, REVIVE_LAG, REVIVE_LATENCY)
    samples.add(SCANS, counts.scans_ms)
    samples.add(OFFSET_BUFFER, pop.buffer.waiting_commits)
    samples.add(CHECK_POINT_BUFFER, len(pop.buffer))
    left = STEP_ITEMS
    rows = [
        *((REVIVE_IN, count, (key.group, key.topic, key.kind, key.status.name))
          for key, count in counts.puts.items()),
        *((REVIVE_OUT, count, (key.group, key.topic, str(key.queue_id), key.kind))
          for key, count in counts.gets.items()),
        *((RETRIES, count, (key.group, key.topic, key.status.name))
          for key, count in counts.retries.items()),
    ]  # fmt: skip
    for metric, count, labels in rows:
        left -= 1
        if not left:
            left = STEP_ITEMS
            yield
        samples.add(metric, count, *labels)
    _revive_queues(pop, now_ms, samples)


def _revive_queues(pop: PopServices, now_ms: int, samples: Samples) -> None:
    for queue_id in pop.revive.queue_ids:
        try:
            unread, oldest_ms = pop.revive.lag(queue_id)
        except StoreError:
            continue  # the record is damaged; the service skips it and says so
        age_ms = max(now_ms - oldest_ms, 0) if oldest_ms else 0
        samples.add(REVIVE_LAG, unread, str(queue_id))
        samples.add(REVIVE_LATENCY, age_ms, str(queue_id))
