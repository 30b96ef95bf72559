"""Metrics of any trocket server: what runs, the event loop, the connections. Pure.

Their units are Prometheus's base units; RocketMQ has no names for them.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from ...native import choice
from ..loop_monitor import LoopMonitor
from ..refusals import Refusals
from ..server import RemotingServer
from .families import Kind, Metric, Samples


def trocket_metric(name: str, kind: Kind, text: str, *labels: str) -> Metric:
    """The declaration of a metric of trocket itself."""
    return Metric(f"trocket_{name}", kind, text, labels)


INFO: Final = trocket_metric(
    "build_info", Kind.GAUGE, "Always 1; the labels tell what runs.", "version", "hot_path"
)
LOOP_LAG: Final = trocket_metric(
    "event_loop_lag_seconds", Kind.HISTOGRAM,
    "Delay with which a task runs that is due; sampled each second.",
)  # fmt: skip
SLOW_BURSTS: Final = trocket_metric(
    "slow_burst_seconds", Kind.HISTOGRAM,
    "Time of requests that arrived together and took longer than the limit that is logged.",
)  # fmt: skip
CONNECTIONS: Final = trocket_metric("connections", Kind.GAUGE, "Open connections.")
MEMORY_USED: Final = trocket_metric(
    "connection_memory_bytes", Kind.GAUGE,
    "Bytes that connections hold: incomplete frames, held pulls, unread answers, subscriptions.",
)  # fmt: skip
MEMORY_MAX: Final = trocket_metric(
    "connection_memory_max_bytes", Kind.GAUGE, "The limit of these bytes (remotingBytesMax)."
)
REFUSALS: Final = trocket_metric(
    "limit_refusals_total", Kind.COUNTER,
    "Connections, requests and names that a limit or TLS refused or closed, by its key.", "limit",
)  # fmt: skip


def collect(
    monitor: LoopMonitor, refusals: Refusals, server: RemotingServer | None, samples: Samples
) -> None:
    """Collect the metrics.

    Args:
      monitor: of the server's event loop.
      server: of the connections; None: it does not listen yet.
    """
    samples.add(INFO, 1, _version(), choice.description)
    samples.add(LOOP_LAG, monitor.lags)
    samples.add(SLOW_BURSTS, monitor.bursts)
    if server is not None:
        samples.add(CONNECTIONS, len(server.channels))
        samples.add(MEMORY_USED, server.memory.used)
        samples.add(MEMORY_MAX, sum(each.limit for each in server.memory.shares))
    for limit, count in list(refusals.counts.items()):
        samples.add(REFUSALS, count, limit)


@cache
def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version  # 10 ms, at the first collection

    try:
        return version("trocket")
    except PackageNotFoundError:  # run from sources that are not installed
        return "unknown"
