"""Metric families: the declaration of a metric, and the samples of one collection.

Pure. A collection is a `Samples`; what sends it to a monitoring system is in other modules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, NamedTuple

from ...common.histogram import Histogram

TOTAL: Final = "_total"
MILLISECONDS: Final = "_milliseconds"


class Kind(Enum):
    """What a metric's values mean; the values are Prometheus's names."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """The declaration of a metric.

    Attributes:
      name: as it is exposed, with its unit; a counter's ends in `_total`.
      kind: what its values mean.
      help: one line for people.
      labels: the names of the labels that its samples have beside those of all samples.
      has_common: whether its samples have the labels that the broker gives to all.
      is_misnamed: the name has a unit of time, and the values are numbers.
    """

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    has_common: bool = True
    is_misnamed: bool = False


class HistogramValue(NamedTuple):
    """A histogram at the moment of collection.

    Attributes:
      bounds: upper ends of its buckets.
      counts: by bucket, one more than there are bounds; not cumulative.
      total: the sum of all values.
    """

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float

    @classmethod
    def of(cls, histogram: Histogram) -> HistogramValue:
        return cls(tuple(histogram.bounds), tuple(histogram.counts), histogram.total)


Value = float | HistogramValue
LabelValues = tuple[str, ...]
Families = Mapping[Metric, Mapping[LabelValues, Value]]
"""Values by metric and by the values of its labels."""


class Samples:
    """The samples of one collection.

    Args:
      series_max: samples that one metric may have; further ones are left out and counted.

    Attributes:
      left_out: the number of samples left out, by the name of the metric.
    """

    def __init__(self, series_max: int) -> None:
        self.left_out: dict[str, int] = {}
        self._series_max = series_max
        self._families: dict[Metric, dict[LabelValues, Value]] = {}

    @property
    def families(self) -> Families:
        """The values by metric and by the values of its labels."""
        return self._families

    def declare(self, *metrics: Metric) -> None:
        """Let metrics be exposed although they may have no sample."""
        for metric in metrics:
            self._families.setdefault(metric, {})

    def add(self, metric: Metric, value: float | Histogram, *labels: str) -> None:
        """Add a sample; a second one with the same labels replaces the first.

        Args:
          labels: the values of the metric's labels, in the order of the declaration.
        """
        family = self._families.setdefault(metric, {})
        if len(family) >= self._series_max and labels not in family:
            self.left_out[metric.name] = self.left_out.get(metric.name, 0) + 1
            return
        family[labels] = HistogramValue.of(value) if isinstance(value, Histogram) else value


def in_base_units(families: Families) -> Families:
    """The metrics that have the names and units which Prometheus recommends.

    RocketMQ's milliseconds become seconds, or vanish from the name where the figure is not a time.
    The names of rocketmq-exporter, which have no such forms, are left out.
    """
    return {
        _in_seconds(metric): {labels: _thousandth(value) for labels, value in values.items()}
        if metric.name.endswith(MILLISECONDS) and not metric.is_misnamed
        else values
        for metric, values in families.items()
        if metric.has_common
    }


def _in_seconds(metric: Metric) -> Metric:
    if not metric.name.endswith(MILLISECONDS):
        return metric
    seconds = "" if metric.is_misnamed else "_seconds"
    return replace(metric, name=metric.name.removesuffix(MILLISECONDS) + seconds)


def _thousandth(value: Value) -> Value:
    if isinstance(value, HistogramValue):
        bounds = tuple(bound / 1000 for bound in value.bounds)
        return HistogramValue(bounds, value.counts, value.total / 1000)
    return value / 1000


def gained(families: Families, before: Families) -> Families:
    """What counters and histograms have gained since an earlier collection; gauges as they are.

    One that is smaller than before has begun anew, so all of it was gained.
    """
    return {
        metric: values
        if metric.kind is Kind.GAUGE
        else {
            labels: _difference(value, before.get(metric, {}).get(labels))
            for labels, value in values.items()
        }
        for metric, values in families.items()
    }


def _difference(value: Value, before: Value | None) -> Value:
    if isinstance(value, HistogramValue):
        if not isinstance(before, HistogramValue) or before.bounds != value.bounds:
            return value
        counts = tuple(now - then for now, then in zip(value.counts, before.counts, strict=True))
        if min(counts) < 0:
            return value
        return HistogramValue(value.bounds, counts, value.total - before.total)
    if before is None or isinstance(before, HistogramValue) or value < before:
        return value
    return value - before
