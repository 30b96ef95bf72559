"""The text for Prometheus, read by prometheus_client's own parser."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from trocket.broker.metrics import exporter_metrics, rocketmq_metrics, trocket_metrics
from trocket.broker.replication import metrics as replication_metrics
from trocket.common.histogram import Histogram
from trocket.remoting.metrics import server_metrics
from trocket.remoting.metrics.exposition import expose
from trocket.remoting.metrics.families import HistogramValue, Kind, Metric, Samples, in_base_units

COMMON = {"node_id": "b"}


def parsed(samples: Samples) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """Values by sample name and labels."""
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(expose(samples.families, COMMON).decode()):
        for sample in family.samples:
            labels = tuple(sorted(sample.labels.items()))
            found.setdefault(sample.name, {})[labels] = sample.value
    return found


def declared() -> list[Metric]:
    """All metrics that the modules declare."""
    modules = (
        exporter_metrics,
        replication_metrics,
        rocketmq_metrics,
        server_metrics,
        trocket_metrics,
    )
    found = [each for module in modules for each in vars(module).values()]
    found += exporter_metrics.CLIENT_METRICS.values()
    found += [each.metric for each in exporter_metrics.RUNTIME_METRICS]
    return [each for each in found if isinstance(each, Metric)]


def test_labels_are_escaped_and_the_common_ones_added() -> None:
    samples = Samples(10)
    metric = Metric("rocketmq_x", Kind.GAUGE, 'A "quoted" help\nof two lines.', ("topic",))
    samples.add(metric, 7, 'a"b\\c\nd')
    assert parsed(samples)["rocketmq_x"] == {(("node_id", "b"), ("topic", 'a"b\\c\nd')): 7}


@pytest.mark.parametrize(
    ("value", "text"),
    [(5, "5"), (True, "1"), (-2.5, "-2.5"), (1e300, "1e+300"), (10**30, "1" + "0" * 30),
     (float("inf"), "+Inf"), (float("-inf"), "-Inf"), (float("nan"), "NaN")],
)  # fmt: skip
def test_numbers(value: float, text: str) -> None:
    samples = Samples(10)
    samples.add(Metric("x", Kind.GAUGE, "Help.", has_common=False), value)
    page = expose(samples.families, COMMON).decode()
    assert page.startswith(f"# HELP x Help.\n# TYPE x gauge\nx {text}\n# HELP ")
    (found,) = parsed(samples)["x"].values()
    assert found == value or found != found


def test_a_name_with_half_a_character_does_not_fail_the_page() -> None:
    samples = Samples(10)
    samples.add(Metric("x", Kind.GAUGE, "Help.", ("group",)), 1, "\ud800")
    assert b'group="?"' in expose(samples.families, COMMON)


def test_counters_end_in_total_and_the_exporters_have_their_own_labels() -> None:
    samples = Samples(10)
    samples.add(Metric("rocketmq_y_total", Kind.COUNTER, "Help."), 3)
    samples.add(Metric("rocketmq_z", Kind.GAUGE, "Help.", ("group",), has_common=False), 4, "G")
    text = expose(samples.families, COMMON).decode()
    assert "# TYPE rocketmq_y_total counter" in text
    assert parsed(samples)["rocketmq_y_total"] == {(("node_id", "b"),): 3}
    assert parsed(samples)["rocketmq_z"] == {(("group", "G"),): 4}


def test_buckets_are_cumulative() -> None:
    histogram = Histogram((1.0, 5.0))
    for value in (0.5, 1.0, 3.0, 3.0, 100.0):
        histogram.add(value)
    samples = Samples(10)
    samples.add(Metric("h", Kind.HISTOGRAM, "Help.", has_common=False), histogram)
    found = parsed(samples)
    buckets = {dict(labels)["le"]: value for labels, value in found["h_bucket"].items()}
    assert buckets == {"1": 2, "5": 4, "+Inf": 5}
    assert found["h_sum"] == {(): 107.5}
    assert found["h_count"] == {(): 5}


def test_samples_above_the_limit_are_left_out_and_counted() -> None:
    samples = Samples(2)
    metric = Metric("rocketmq_x", Kind.GAUGE, "Help.", ("topic",))
    for topic in ("a", "b", "c", "d", "a"):
        samples.add(metric, 1, topic)
    assert len(samples.families[metric]) == 2
    assert samples.left_out == {"rocketmq_x": 2}


@pytest.mark.parametrize("metric", declared(), ids=lambda metric: metric.name)
def test_each_metric_has_a_help_and_a_unique_name(metric: Metric) -> None:
    assert metric.help.endswith(".")
    assert (metric.kind is Kind.COUNTER) == (
        metric.name.endswith("_total") and metric is not exporter_metrics.CAPACITY_TOTAL
    )
    assert len(set(metric.labels)) == len(metric.labels)
    assert [each for each in declared() if each.name == metric.name] == [metric]


def test_base_units_are_seconds_and_without_the_exporters_names() -> None:
    samples = Samples(10)
    times = Histogram((1.0, 3.0))
    times.add(2.0)
    samples.add(Metric("rocketmq_age_milliseconds", Kind.GAUGE, "Age.", ("topic",)), 1500, "T")
    samples.add(Metric("rocketmq_rpc_milliseconds", Kind.HISTOGRAM, "Time."), times)
    samples.add(Metric("rocketmq_topic_number", Kind.GAUGE, "Topics."), 3)
    samples.add(Metric("rocketmq_qps", Kind.GAUGE, "Rate.", has_common=False), 1)
    found = {metric.name: values for metric, values in in_base_units(samples.families).items()}
    assert found == {
        "rocketmq_age_seconds": {("T",): 1.5},
        "rocketmq_rpc_seconds": {(): HistogramValue((0.001, 0.003), (0, 1, 0), 0.002)},
        "rocketmq_topic_number": {(): 3},
    }
