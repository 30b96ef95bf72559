"""Results of the official benchmark: figures of a period, steady state, ratios. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from trocket.bench.kit import Spread, round_ratios, spread_of

WARM_WINDOWS = 3
WARM_SPREAD_MAX = 0.05
"""A rate is steady when this many windows in a row differ by no more than this share."""

WARM_MINUTES = 5
"""A JVM is warm when its rate and its CPU per message were steady for so long: it compiles for
minutes, and three windows may agree meanwhile."""

REPEAT_SHARE = 0.95
"""A round is measured again when the reference was slower in it than this share of its best round:
something else took the machine, and the ratio would flatter us."""
REPEATS_MAX = 3
"""Rounds that may be repeated in a workload; then what was measured stays, and is said."""

BUSY_CORE = 0.8
"""Of one core: a broker of one thread that uses as much is what limits the rate. It waits a little
between its turns."""
BUSY_MACHINE = 0.9
"""Of all cores that broker and clients could use: then their CPU together limits the rate."""


@dataclass(frozen=True, kw_only=True)
class Figures:
    """The figures of one period; of what was not measured None.

    Attributes:
      seconds: its length.
      send_ms, store_to_consumer_ms: means that the programs print.
      probe_p50_ms, probe_p99_ms: latencies of `send_probe.SendProbe`, in the same period.
      probe_refused: sends of the probe that the broker refused.
      broker_cpu_us: CPU of the broker's process per message sent.
      clients_cpu_us: CPU of the benchmark programs together per message sent.
      other_cores: CPU that everything else on the machine took, in cores.
      limit_share: the rate as a share of what the machine allows, which is the cores that nothing
        else took, divided by the CPU of broker and clients per message.
      failed: sends and consumes that the programs counted as failed in this period.
      unexpected_checks: checks of transactions that the program did not ask for.
    """

    seconds: float
    send_per_s: float
    consume_per_s: float | None = None
    send_ms: float | None
    store_to_consumer_ms: float | None = None
    probe_p50_ms: float | None = None
    probe_p99_ms: float | None = None
    probe_refused: int = 0
    broker_cpu_us: float
    clients_cpu_us: float
    other_cores: float
    limit_share: float | None = None
    failed: int = 0
    unexpected_checks: int | None = None


@dataclass(frozen=True, kw_only=True)
class Minute:
    """One minute of a warm-up: messages sent per s, and CPU of the broker per message."""

    send_per_s: float
    broker_cpu_us: float


@dataclass(frozen=True, kw_only=True)
class WarmUp:
    """What it took until the rates were steady, or that they never were.

    Attributes:
      seconds: under load.
      windows: the last rates per second, by program.
      minutes: the last WARM_MINUTES, of a JVM that was under load as long.
    """

    seconds: float
    is_steady: bool
    windows: dict[str, list[int]]
    minutes: list[Minute] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Start time and memory of broker and name server together.

    Attributes:
      start_s: from the start of the name server until the broker is ready.
      idle_mb: resident shortly after the start.
      resident_mb: resident after the last round.
      anonymous_mb: of that, what is not file pages.
    """

    start_s: float
    idle_mb: float
    resident_mb: float
    anonymous_mb: float


@dataclass(kw_only=True)
class BrokerResult:
    """One broker under one workload; what failed or was not reached is missing."""

    broker: str
    first_minute: Figures | None = None
    warm_up: WarmUp | None = None
    rounds: list[Figures] = field(default_factory=list)
    memory: Memory | None = None


@dataclass(kw_only=True)
class WorkloadResult:
    """One workload on all brokers, the reference first.

    Attributes:
      error: why it ended early; "" if it did not.
      repeated: rounds that were measured again, see REPEAT_SHARE.
    """

    workload: str
    brokers: list[BrokerResult]
    error: str = ""
    repeated: int = 0

    @property
    def label(self) -> str:
        """The workload, and the brokers whose rate never became steady."""
        unsteady = [
            each.broker for each in self.brokers if each.warm_up and not each.warm_up.is_steady
        ]
        return f"{self.workload} (NOT STEADY: {', '.join(unsteady)})" if unsteady else self.workload


@dataclass(kw_only=True)
class Report:
    """A whole run.

    Attributes:
      facts: what a reader needs to judge the figures: date, code, machine, versions, plan.
    """

    facts: dict[str, str]
    workloads: list[WorkloadResult]


METRICS = {
    "send_per_s": "sent msg/s",
    "consume_per_s": "consumed msg/s",
    "send_ms": "ms per send, mean",
    "store_to_consumer_ms": "ms store to consumer, mean",
    "probe_p50_ms": "ms of the probe, p50",
    "probe_p99_ms": "ms of the probe, p99",
    "broker_cpu_us": "broker CPU µs/msg",
    "clients_cpu_us": "clients' CPU µs/msg",
    "other_cores": "other CPU, cores",
    "limit_share": "share of the machine's limit",
    "failed": "failed",
    "unexpected_checks": "unexpected checks",
    "probe_refused": "probe refused",
}
"""Titles of the members of `Figures` that have a row."""

WITHOUT_RATIO = {"other_cores", "limit_share", "failed", "unexpected_checks", "probe_refused"}

MEMORY_METRICS = {
    "start_s": "start s",
    "idle_mb": "idle RSS MB",
    "resident_mb": "RSS after MB",
    "anonymous_mb": "of it not files MB",
}


class Row(NamedTuple):
    """One metric of one workload.

    Attributes:
      values, ratios: by broker; ratios are of that broker's value to the first one's, round by
        round. A broker without a value, and the first one among the ratios, is missing.
    """

    workload: str
    metric: str
    values: dict[str, Spread]
    ratios: dict[str, Spread]


def windows_agree(rates: Sequence[float]) -> bool:
    """Whether the last `WARM_WINDOWS` rates differ by at most `WARM_SPREAD_MAX` of their mean."""
    last = rates[-WARM_WINDOWS:]
    if len(last) < WARM_WINDOWS:
        return False
    mean = statistics.fmean(last)
    return mean > 0 and (max(last) - min(last)) / mean <= WARM_SPREAD_MAX


def minutes_agree(minutes: Sequence[Minute]) -> bool:
    """Whether rate and CPU per message of WARM_MINUTES differ by at most WARM_SPREAD_MAX each."""
    if len(minutes) < WARM_MINUTES:
        return False
    columns = zip(*((one.send_per_s, one.broker_cpu_us) for one in minutes), strict=True)
    return all(
        max(column) - min(column) <= WARM_SPREAD_MAX * statistics.fmean(column)
        for column in columns
    )


def limit_share(send_per_s: float, cpu_us: float, *, cores: float) -> float | None:
    """See `Figures.limit_share`.

    Args:
      cpu_us: of broker and clients per message.
      cores: that they could use.
    """
    return send_per_s * cpu_us / 1e6 / cores if cores > 0 else None


def limited_by(rounds: Sequence[Figures]) -> str:
    """What limited the rate of a broker's rounds, in words; "" without a round."""
    if not rounds:
        return ""
    broker = statistics.median(one.send_per_s * one.broker_cpu_us for one in rounds) / 1e6
    shares = [one.limit_share for one in rounds if one.limit_share is not None]
    share = statistics.median(shares) if shares else 0.0
    if share >= BUSY_MACHINE:
        return f"the machine: broker and clients use {share:.0%} of it"
    if broker >= BUSY_CORE:
        return f"the broker, which uses {broker:.2f} cores"
    return f"neither the broker ({broker:.2f} cores) nor the machine ({share:.0%})"


def is_slow(rounds: Sequence[Figures]) -> bool:
    """Whether the last round of the reference was slower than its best, see REPEAT_SHARE."""
    rates = [one.send_per_s for one in rounds]
    return bool(rates) and rates[-1] < REPEAT_SHARE * max(rates)


def steady_rows(results: Iterable[WorkloadResult]) -> list[Row]:
    """A row for each metric of the rounds; those without a steady state say so."""
    return [
        row
        for result in results
        for row in _rows(result.label, METRICS, {b.broker: b.rounds for b in result.brokers})
    ]


def first_minute_rows(results: Iterable[WorkloadResult]) -> list[Row]:
    """A row for each metric of the first minute, which each broker has once."""
    rows: list[Row] = []
    for result in results:
        found = {b.broker: [b.first_minute] if b.first_minute else [] for b in result.brokers}
        rows += _rows(result.workload, METRICS, found)
    return rows


def memory_rows(results: Iterable[WorkloadResult]) -> list[Row]:
    """A row for start time and each figure of the memory."""
    rows: list[Row] = []
    for result in results:
        found = {b.broker: [b.memory] if b.memory else [] for b in result.brokers}
        rows += _rows(result.workload, MEMORY_METRICS, found)
    return rows


def _rows(
    workload: str,
    metrics: dict[str, str],
    periods: Mapping[str, Sequence[Figures] | Sequence[Memory]],
) -> list[Row]:
    rows = []
    reference = next(iter(periods), "")
    for name, title in metrics.items():
        values = {broker: [getattr(one, name) for one in each] for broker, each in periods.items()}
        spreads: dict[str, Spread] = {}
        ratios: dict[str, Spread] = {}
        for broker, measured in values.items():
            known = [value for value in measured if value is not None]
            if known:
                spreads[broker] = spread_of(known)
            by_round = round_ratios(measured, values[reference])
            if broker != reference and name not in WITHOUT_RATIO and by_round:
                ratios[broker] = spread_of(by_round)
        if spreads:
            rows.append(Row(workload, title, spreads, ratios))
    return rows
