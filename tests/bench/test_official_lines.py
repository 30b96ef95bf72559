"""Lines that the official benchmark programs of 5.5.0 printed, and the windows made of them."""

from __future__ import annotations

import math

import pytest

from trocket.bench.official_lines import (
    ReportLine,
    failed_between,
    mean_ms,
    parse_report,
    windows_between,
)

PRODUCER = (
    "Current Time: 2026-11-21 08:12:09,123 | Send TPS: 36512 | Max RT(ms): 243 | "
    "Average RT(ms):   1.702 | Send Failed: 3 | Response Failed: 4"
)
CONSUMER = (
    "Current Time: 2026-11-21 08:12:09,123 | Consume TPS: 21400 | AVG(B2C) RT(ms):   6.250 | "
    "AVG(S2C) RT(ms):   5.125 | MAX(B2C) RT(ms): 77 | MAX(S2C) RT(ms): 70 | Consume Fail: 2"
)
BATCH_PRODUCER = (
    "Current Time: 2026-11-21 08:12:09,123 | Send TPS: 8950 | Send MPS: 286400 | Max RT(ms): 9 | "
    "Average RT(ms):   1.700 | Average Message RT(ms):   0.053 | Send Failed: 2 | "
    "Send Message Failed: 64"
)
TRANSACTION_PRODUCER = (
    "Current Time: 2026-11-21 08:12:09,123 | Send TPS: 20800 | Max RT(ms):    31 | "
    "AVG RT(ms): 1.5 | Send Failed: 1 | Check: 7 | UnexpectedCheck: 2 | DuplicatedCheck: 3"
)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (PRODUCER, ReportLine(36512, 1.702, 7)),
        (CONSUMER, ReportLine(21400, 5.125, 2, fails_of_window=True)),
        (BATCH_PRODUCER, ReportLine(286_400, 1.7, 2)),
        (TRANSACTION_PRODUCER, ReportLine(20_800, 1.5, 1, fails_of_window=True, checks=5)),
        ("Consumer Started.", None),
        ("", None),
    ],
    ids=["producer", "consumer", "batches", "transactions", "started", "empty"],
)
def test_a_periodic_line_gives_rate_time_and_failures(
    line: str, expected: ReportLine | None
) -> None:
    assert parse_report(line) == expected


def test_a_window_without_a_message_is_a_rate_of_zero() -> None:
    report = parse_report(PRODUCER.replace("36512", "0").replace("  1.702", "    NaN"))
    assert report is not None
    assert report.rate_per_s == 0


def reports(*times_s: float) -> list[tuple[float, ReportLine]]:
    return [(at, ReportLine(int(at), 1.0, 0)) for at in times_s]


@pytest.mark.parametrize(
    ("start_s", "end_s", "expected"),
    [
        (0.0, 30.0, [10, 20, 30]),
        (5.0, 30.0, [20, 30]),
        (0.0, 29.0, [19, 29]),
        (0.0, 10.0, [10]),
        (0.0, 9.0, []),
        (40.0, 60.0, []),
    ],
)
def test_windows_lie_in_the_measured_time_and_do_not_overlap(
    start_s: float, end_s: float, expected: list[int]
) -> None:
    found = windows_between(reports(*range(1, 31)), start_s=start_s, end_s=end_s)
    assert [one.rate_per_s for one in found] == expected


def test_a_report_that_comes_a_little_late_still_counts() -> None:
    found = windows_between(reports(10.2, 20.3, 30.4), start_s=0.1, end_s=30.1)
    assert [one.rate_per_s for one in found] == [10, 20, 30]


@pytest.mark.parametrize(
    ("fails_of_window", "start_s", "end_s", "expected"),
    [
        # At second n the program reports n failures.
        (False, 0.0, 30.0, 30),
        (False, 10.5, 30.0, 20),
        (False, 10.5, 12.0, 0),
        (True, 0.0, 30.0, 10 + 20 + 30),
        (True, 11.0, 30.0, 30),
    ],
)
def test_failures_of_a_period_are_counted_by_totals_or_by_windows(
    fails_of_window: bool, start_s: float, end_s: float, expected: int
) -> None:
    found = [
        (float(at), ReportLine(1, 1.0, at, fails_of_window=fails_of_window)) for at in range(1, 31)
    ]
    assert failed_between(found, start_s=start_s, end_s=end_s) == expected


@pytest.mark.parametrize(
    ("windows", "expected"),
    [
        ([(100, 2.0), (300, 4.0)], 3.5),
        ([(0, math.nan), (100, 2.0)], 2.0),
        ([(0, math.nan)], None),
        ([], None),
    ],
    ids=["weighted by messages", "a window without messages", "no messages", "no windows"],
)
def test_the_mean_time_is_of_all_messages(
    windows: list[tuple[int, float]], expected: float | None
) -> None:
    assert mean_ms([ReportLine(rate, mean, 0) for rate, mean in windows]) == expected
