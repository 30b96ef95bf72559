"""Exposition: samples as Prometheus's text format 0.0.4, written by prometheus_client.

It takes some 5 us a sample, so `expose` is called in a thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from .families import TOTAL, Families, HistogramValue, Kind, Metric

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric as Family

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_BUCKET, _SUM, _COUNT = "_bucket", "_sum", "_count"


def expose(families: Families, common: Mapping[str, str]) -> bytes:
    """The values, and what prometheus_client knows about this process, as text.

    Args:
      common: labels of all samples of the metrics with `has_common`.
    """
    from prometheus_client import GCCollector, PlatformCollector, ProcessCollector
    from prometheus_client.exposition import generate_latest
    from prometheus_client.registry import Collector, CollectorRegistry

    class Broker(Collector):
        def collect(self) -> Iterable[Family]:
            for metric, values in families.items():
                yield _family(metric, values, common)

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Broker())
    for collector in (ProcessCollector, PlatformCollector, GCCollector):
        collector(registry=registry)
    return generate_latest(registry)


def _family(
    metric: Metric,
    values: Mapping[tuple[str, ...], float | HistogramValue],
    common: Mapping[str, str],
) -> Family:
    from prometheus_client.metrics_core import Metric as Family

    family = Family(metric.name.removesuffix(TOTAL) if metric.kind is Kind.COUNTER else metric.name,
                    metric.help, metric.kind.value)  # fmt: skip
    for label_values, value in values.items():
        labels = dict(common) if metric.has_common else {}
        labels.update(zip(metric.labels, label_values, strict=True))
        if isinstance(value, HistogramValue):
            for suffix, more, number in _of_histogram(value):
                family.add_sample(metric.name + suffix, {**labels, **more}, number)
        else:
            family.add_sample(metric.name, labels, value)
    return family


def _of_histogram(value: HistogramValue) -> Iterator[tuple[str, dict[str, str], float]]:
    """The samples of a histogram: suffix of the name, further labels, value."""
    ends = [*(f"{bound:g}" for bound in value.bounds), "+Inf"]
    sums = list(accumulate(value.counts))
    for end, count in zip(ends, sums, strict=True):
        yield _BUCKET, {"le": end}, count
    yield _SUM, {}, value.total
    yield _COUNT, {}, sums[-1]
