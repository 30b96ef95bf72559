"""Parser for the report lines of the official benchmark programs. Pure.

Each program prints one line per report interval, over the last 9 or 10 seconds (10 or 11 snapshots
a second apart). Source: RocketMQ 5.3.3 example/benchmark/Producer.java, Consumer.java,
BatchProducer.java, TransactionProducer.java; lines printed by 5.5.0.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

WINDOW_S = 10.0
"""The time that each printed rate covers."""

WINDOW_SLACK_S = 0.5
"""Timers of the program and of the reader differ by less than this."""

_PRODUCER = re.compile(
    r"Send TPS: (\d+) \| Max RT\(ms\): (\d+) \| Average RT\(ms\): +([\d.]+|NaN) \| "
    r"Send Failed: (\d+) \| Response Failed: (\d+)"
)
_BATCH_PRODUCER = re.compile(
    r"Send MPS: (\d+) \| .*Average RT\(ms\): +([\d.]+|NaN) \| "
    r".*Send Failed: (\d+) \| Send Message Failed: \d+"
)
_TRANSACTION_PRODUCER = re.compile(
    r"Send TPS: +(\d+) \| .*AVG RT\(ms\): ([\d.]+|NaN) \| Send Failed: (\d+) \| Check: \d+ \| "
    r"UnexpectedCheck: (\d+) \| DuplicatedCheck: (\d+)"
)
_CONSUMER = re.compile(
    r"Consume TPS: (\d+) \| AVG\(B2C\) RT\(ms\): +([\d.]+|NaN) \| "
    r"AVG\(S2C\) RT\(ms\): +([\d.]+|NaN) .*Consume Fail: (\d+)"
)


@dataclass(frozen=True)
class ReportLine:
    """One periodic line: messages per second, the mean time in ms, and failures.

    Of batches the messages are counted, not the calls. The time is that of a send (of a batch, of a
    transaction with its end) for a producer, and from store to consumer for a consumer.

    Attributes:
      failed: since the start of the program, or with `fails_of_window` in the last 10 seconds.
      checks: of transactions only, in the last 10 seconds: those that the program did not ask for,
        and repeated ones. They are no failures: a broker also checks a half whose send the client
        gave up, as a client does that was suspended.
    """

    rate_per_s: int
    average_ms: float
    failed: int
    fails_of_window: bool = False
    checks: int | None = None


def parse_report(line: str) -> ReportLine | None:
    """A periodic line of any of the programs, or None for any other line."""
    match = _PRODUCER.search(line)
    if match is not None:
        failed = int(match[4]) + int(match[5])
        return ReportLine(int(match[1]), float(match[3]), failed)
    match = _BATCH_PRODUCER.search(line)
    if match is not None:
        return ReportLine(int(match[1]), float(match[2]), int(match[3]))
    match = _TRANSACTION_PRODUCER.search(line)
    if match is not None:
        return ReportLine(
            int(match[1]),
            float(match[2]),
            int(match[3]),
            fails_of_window=True,
            checks=int(match[4]) + int(match[5]),
        )
    match = _CONSUMER.search(line)
    if match is not None:
        return ReportLine(int(match[1]), float(match[3]), int(match[4]), fails_of_window=True)
    return None


def windows_between(
    reports: list[tuple[float, ReportLine]], *, start_s: float, end_s: float
) -> list[ReportLine]:
    """The latest reports whose 10-second windows lie between two times and do not overlap.

    Args:
      reports: (time of arrival in seconds, report), oldest first.
    Returns: oldest first; empty when no whole window lies between.
    """
    chosen: list[ReportLine] = []
    latest_s = end_s + WINDOW_SLACK_S
    for arrived_s, report in reversed(reports):
        if arrived_s <= latest_s and arrived_s >= start_s + WINDOW_S - WINDOW_SLACK_S:
            chosen.insert(0, report)
            latest_s = arrived_s - WINDOW_S + WINDOW_SLACK_S
    return chosen


def mean_ms(windows: list[ReportLine]) -> float | None:
    """The mean time of all messages of some windows; None: there are none.

    A window without a message has a rate of 0 and no mean.
    """
    counted = [one for one in windows if one.rate_per_s and math.isfinite(one.average_ms)]
    total = sum(one.rate_per_s for one in counted)
    return sum(one.rate_per_s * one.average_ms for one in counted) / total if total else None


def failed_between(reports: list[tuple[float, ReportLine]], *, start_s: float, end_s: float) -> int:
    """The failures that a program counted between two times, in whole windows.

    Args:
      reports: as for `windows_between`.
    """
    windows = windows_between(reports, start_s=start_s, end_s=end_s)
    if not windows:
        return 0
    if windows[-1].fails_of_window:
        return sum(one.failed for one in windows)
    before = [report.failed for arrived_s, report in reports if arrived_s < start_s]
    return windows[-1].failed - (before[-1] if before else 0)
