"""Steady state, and values and ratios over the rounds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trocket.bench.official_figures import (
    BrokerResult,
    Figures,
    Memory,
    Minute,
    WarmUp,
    WorkloadResult,
    first_minute_rows,
    is_slow,
    limit_share,
    limited_by,
    memory_rows,
    minutes_agree,
    steady_rows,
    windows_agree,
)

BASE = Figures(
    seconds=30.0,
    send_per_s=100.0,
    send_ms=2.0,
    probe_p99_ms=8.0,
    broker_cpu_us=30.0,
    clients_cpu_us=40.0,
    other_cores=0.1,
)
MEMORY = Memory(start_s=5.0, idle_mb=500.0, resident_mb=2000.0, anonymous_mb=900.0)
STEADY = WarmUp(seconds=95.0, is_steady=True, windows={"Producer": [100, 101, 99]})
PEERS = ("apache-5.5.0", "trocket")


def broker(name: str, rates: list[float], **changes: float) -> BrokerResult:
    rounds = [replace(BASE, send_per_s=rate, **changes) for rate in rates]
    return BrokerResult(
        broker=name, first_minute=BASE, warm_up=STEADY, rounds=rounds, memory=MEMORY
    )


def both() -> WorkloadResult:
    apache = broker("apache-5.5.0", [100.0, 50.0, 80.0])
    ours = broker("trocket", [150.0, 100.0, 80.0], broker_cpu_us=15.0)
    return WorkloadResult(workload="producer", brokers=[apache, ours])


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        ([100, 104, 101], True),
        ([100, 105, 100], True),  # 5 of 101.7
        ([100, 106, 100], False),
        ([1, 50, 100, 101, 102], True),
        ([100, 101, 102, 120], False),
        ([100, 100], False),
        ([], False),
        ([0, 0, 0], False),
    ],
)
def test_a_rate_is_steady_when_its_last_three_windows_agree_within_a_twentieth(
    rates: list[int], expected: bool
) -> None:
    assert windows_agree(rates) is expected


def test_a_row_has_the_median_of_the_rounds_and_of_their_ratios_with_the_spread() -> None:
    rows = {row.metric: row for row in steady_rows([both()])}
    sent = rows["sent msg/s"]
    assert sent.workload == "producer"
    assert sent.values == {"apache-5.5.0": (80.0, 50.0, 100.0), "trocket": (100.0, 80.0, 150.0)}
    # 1.5, 2 and 1: not the ratio of the medians, 1.25.
    assert sent.ratios == {"trocket": (1.5, 1.0, 2.0)}
    assert rows["broker CPU µs/msg"].ratios["trocket"].median == pytest.approx(0.5)


def test_what_was_not_measured_has_no_row() -> None:
    assert "consumed msg/s" not in {row.metric for row in steady_rows([both()])}


def test_failures_and_the_cpu_of_others_have_no_ratio() -> None:
    rows = {row.metric: row for row in steady_rows([both()])}
    assert not any(rows[name].ratios for name in ("failed", "probe refused", "other CPU, cores"))


def test_each_further_broker_is_compared_with_the_first() -> None:
    result = both()
    result.brokers.append(broker("trocket TROCKET_PURE=1", [50.0, 50.0, 40.0]))
    sent = steady_rows([result])[0]
    assert sent.ratios["trocket TROCKET_PURE=1"] == (0.5, 0.5, 1.0)


def test_one_broker_alone_has_no_ratios() -> None:
    rows = steady_rows([WorkloadResult(workload="batch", brokers=[broker("trocket", [9.0])])])
    assert rows
    assert not any(row.ratios for row in rows)


def test_rows_of_a_rate_that_never_became_steady_say_so() -> None:
    result = both()
    result.brokers[1].warm_up = replace(STEADY, is_steady=False)
    labels = {row.workload for row in steady_rows([result])}
    assert labels == {"producer (NOT STEADY: trocket)"}


def test_first_minute_and_memory_have_one_value_and_what_was_not_reached_none() -> None:
    result = both()
    result.brokers[1].first_minute = result.brokers[1].memory = None
    sent = first_minute_rows([result])[0]
    assert sent.values == {"apache-5.5.0": (100.0, 100.0, 100.0)}
    assert sent.ratios == {}
    start = memory_rows([result])[0]
    assert start.metric == "start s"
    assert start.values["apache-5.5.0"].median == 5.0
    assert memory_rows([both()])[0].ratios["trocket"].median == 1.0


def minutes(rates: list[float], costs: list[float]) -> list[Minute]:
    pairs = zip(rates, costs, strict=True)
    return [Minute(send_per_s=rate, broker_cpu_us=cost) for rate, cost in pairs]


@pytest.mark.parametrize(
    ("rates", "costs", "expected"),
    [
        ([100, 101, 102, 103, 104], [30, 30, 30, 30, 30], True),
        ([100, 101, 102, 103, 110], [30, 30, 30, 30, 30], False),
        # It still compiles: the rate is that of the clients, but each message costs less.
        ([100, 100, 100, 100, 100], [40, 36, 33, 31, 30], False),
        ([100, 100, 100, 100], [30, 30, 30, 30], False),
        ([], [], False),
    ],
)
def test_a_jvm_is_warm_when_rate_and_cost_agree_over_minutes(rates, costs, expected) -> None:
    assert minutes_agree(minutes(rates, costs)) is expected


def test_the_share_of_the_machine_is_of_the_cores_that_are_left() -> None:
    assert limit_share(50_000, 40.0, cores=2.0) == pytest.approx(1.0)
    assert limit_share(10_000, 30.0, cores=1.5) == pytest.approx(0.2)
    assert limit_share(1, 1, cores=0) is None


@pytest.mark.parametrize(
    ("rate", "cost", "share", "expected"),
    [
        (50_000, 10.0, 0.96, "the machine: broker and clients use 96% of it"),
        (50_000, 19.0, 0.7, "the broker, which uses 0.95 cores"),
        (10_000, 10.0, 0.4, "neither the broker (0.10 cores) nor the machine (40%)"),
    ],
)
def test_what_limited_a_rate_is_said(rate, cost, share, expected) -> None:
    one = replace(BASE, send_per_s=rate, broker_cpu_us=cost, limit_share=share)
    assert limited_by([one]) == expected
    assert limited_by([]) == ""


def test_a_round_slower_than_the_best_one_is_slow() -> None:
    assert not is_slow([])
    for rates, expected in (([100.0, 96.0], False), ([100.0, 94.0], True), ([90.0, 100.0], False)):
        assert is_slow([replace(BASE, send_per_s=rate) for rate in rates]) is expected
