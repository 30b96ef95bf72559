"""Exposition: samples as Prometheus's text format 0.0.4.

It takes some 2 us a sample, so `expose` is called in a thread. What prometheus_client knows about
the process comes from it; its own writer would take six times as long.

Source of the format: "Exposition formats" of Prometheus's documentation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from math import inf
from typing import Final

from .families import Families, HistogramValue, Kind, LabelValues, Metric, Value

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


def expose(families: Families, common: Mapping[str, str]) -> bytes:
    """The values, and what prometheus_client knows about this process, as text.

    Args:
      common: labels of all samples of the metrics with `has_common`.
    """
    prefix = _labels(common.keys(), common.values())
    lines: list[str] = []
    for metric, values in families.items():
        lines += _family(metric, values, prefix if metric.has_common else "")
    lines.append("")
    return "\n".join(lines).encode("utf-8", "replace") + _of_process()


def _of_process() -> bytes:
    from prometheus_client import GCCollector, PlatformCollector, ProcessCollector
    from prometheus_client.exposition import generate_latest
    from prometheus_client.registry import CollectorRegistry

    registry = CollectorRegistry(auto_describe=False)
    for collector in (ProcessCollector, PlatformCollector, GCCollector):
        collector(registry=registry)
    return generate_latest(registry)


def _family(metric: Metric, values: Mapping[LabelValues, Value], common: str) -> Iterator[str]:
    """The lines of a metric.

    Args:
      common: labels that come before those of the metric, as they are written.
    """
    name = metric.name
    yield f"# HELP {name} {metric.help.replace(_BACKSLASH, _BACKSLASH * 2).replace(_LF, _LF_TEXT)}"
    yield f"# TYPE {name} {metric.kind.value}"
    for label_values, value in values.items():
        labels = _joined(common, _labels(metric.labels, label_values))
        if metric.kind is Kind.HISTOGRAM and isinstance(value, HistogramValue):
            yield from _histogram(name, labels, value)
        elif not isinstance(value, HistogramValue):
            yield f"{name}{{{labels}}} {_number(value)}" if labels else f"{name} {_number(value)}"


def _histogram(name: str, labels: str, value: HistogramValue) -> Iterator[str]:
    sums = list(accumulate(value.counts))
    before = _joined(labels, "le=")
    for bound, count in zip((*value.bounds, inf), sums, strict=True):
        yield f'{name}_bucket{{{before}"{_end(bound)}"}} {count}'
    in_braces = f"{{{labels}}}" if labels else ""
    yield f"{name}_sum{in_braces} {_number(value.total)}"
    yield f"{name}_count{in_braces} {sums[-1]}"


def _labels(names: Iterable[str], values: Iterable[str]) -> str:
    pairs = zip(names, values, strict=True)
    return ",".join([f'{name}="{_escaped(value)}"' for name, value in pairs])


def _joined(first: str, second: str) -> str:
    return f"{first},{second}" if first and second else first or second


_BACKSLASH: Final = "\\"
_LF: Final = "\n"
_LF_TEXT: Final = "\\n"
_ESCAPES: Final = str.maketrans({_BACKSLASH: _BACKSLASH * 2, '"': '\\"', _LF: _LF_TEXT})


def _escaped(value: str) -> str:
    if _BACKSLASH in value or '"' in value or _LF in value:
        return value.translate(_ESCAPES)
    return value


def _end(bound: float) -> str:
    return "+Inf" if bound == inf else f"{bound:g}"


def _number(value: float) -> str:
    if isinstance(value, int):
        return f"{value:d}"
    if -inf < value < inf:
        return repr(value)
    return "NaN" if value != value else f"{'+' if value > 0 else '-'}Inf"
