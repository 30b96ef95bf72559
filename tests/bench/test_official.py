"""Medians over rounds and the ratios between two peers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trocket.bench.official import WORKLOADS, Run, medians, report, summarize

BASE = Run("apache-5.5.0", "producer", 100.0, None, 2.0, None, 0, 30.0, 5.0, 500.0, 2000.0, 900.0)
PEERS = ["apache-5.5.0", "trocket"]


def two_rounds() -> list[Run]:
    runs = []
    for workload in WORKLOADS:
        consumed = None if workload == "producer" else 50.0
        for rate in (100.0, 110.0, 90.0):
            apache = replace(BASE, workload=workload, send_per_s=rate, consume_per_s=consumed)
            runs += [apache, replace(apache, peer="trocket", send_per_s=rate * 1.5, start_s=0.5)]
    return runs


def test_the_median_of_the_rounds_is_reported_and_what_was_not_measured_is_left_out() -> None:
    found = medians(two_rounds(), "trocket", "producer")
    assert found["send_per_s"] == 150.0
    assert "consume_per_s" not in found


def test_the_ratio_is_of_the_last_peer_to_the_first() -> None:
    rows = {(row["workload"], row["metric"]): row for row in summarize(two_rounds(), PEERS)}
    assert rows["producer", "sent msg/s"]["ratio"] == pytest.approx(1.5)
    assert rows["producer", "start s"]["ratio"] == pytest.approx(0.1)
    assert rows["producer and consumer", "consumed msg/s"]["ratio"] == pytest.approx(1.0)
    assert ("producer", "consumed msg/s") not in rows


def test_nothing_is_divided_by_a_median_of_zero() -> None:
    rows = [row for row in summarize(two_rounds(), PEERS) if row["metric"] == "failed"]
    assert len(rows) == len(WORKLOADS)
    assert all("ratio" not in row for row in rows)


def test_one_peer_alone_has_no_ratios() -> None:
    runs = [run for run in two_rounds() if run.peer == "apache-5.5.0"]
    rows = summarize(runs, ["apache-5.5.0"])
    assert rows
    assert all("ratio" not in row for row in rows)


def test_the_table_has_a_row_for_each_metric_that_was_measured() -> None:
    runs = two_rounds()
    assert report(runs, PEERS).row_count == len(summarize(runs, PEERS))
