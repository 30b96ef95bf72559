"""OTLP: samples as the requests that an OpenTelemetry collector accepts, and the channel to it.

Needs `pip install 'trocket[otlp]'`.

Java counterpart: the OtlpGrpcMetricExporter of OpenTelemetry, which Apache's broker configures in
broker/metrics/BrokerMetricsManager.java. Names are as there: a unit is not a part of the name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as service
from opentelemetry.proto.common.v1 import common_pb2 as common
from opentelemetry.proto.metrics.v1 import metrics_pb2 as proto

from ...remoting.metrics.families import Families, HistogramValue, Kind, LabelValues, Metric, Value
from ..settings.config import BrokerConfig
from .push import Period, PushError

SCOPE: Final = "broker-meter"
"""The name of RocketMQ's meter. Source: BrokerMetricsConstant.OPEN_TELEMETRY_METER_NAME."""

EXPORT: Final = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"
"""The method that a collector serves."""

UNITS: Final = ("milliseconds", "seconds", "bytes")
"""The units, in RocketMQ's words."""

RECONNECT_MS_MAX: Final = 10_000
"""Between two attempts to connect. gRPC's default, two minutes, is longer than an interval."""


def requests(
    families: Families,
    common_labels: Mapping[str, str],
    period: Period,
    *,
    is_delta: bool,
    points_max: int,
) -> Iterator[service.ExportMetricsServiceRequest]:
    """The samples as requests of at most `points_max` of them each. Pure.

    Args:
      families: what counters have gained in the period if `is_delta`; otherwise since its start.
      common_labels: of all samples of the metrics with `has_common`.
    """
    temporality = (
        proto.AGGREGATION_TEMPORALITY_DELTA if is_delta
        else proto.AGGREGATION_TEMPORALITY_CUMULATIVE
    )  # fmt: skip
    request, scope = _empty()
    count = 0
    for metric, values in families.items():
        labels = common_labels if metric.has_common else {}
        items = list(values.items())
        while items:
            part, items = items[: points_max - count], items[points_max - count :]
            _add(scope.metrics.add(), metric, part, labels, period, temporality)
            count += len(part)
            if count == points_max:
                yield request
                request, scope = _empty()
                count = 0
    if count:
        yield request


def name_and_unit(metric: Metric) -> tuple[str, str]:
    """A metric's name without its unit, and the unit; the exporter's names have no unit."""
    name, _, unit = metric.name.rpartition("_")
    if metric.has_common and unit in UNITS:
        return name, unit
    return metric.name, ""


def _empty() -> tuple[service.ExportMetricsServiceRequest, proto.ScopeMetrics]:
    request = service.ExportMetricsServiceRequest()
    scope = request.resource_metrics.add().scope_metrics.add()
    scope.scope.name = SCOPE
    return request, scope


def _add(
    made: proto.Metric,
    metric: Metric,
    items: Sequence[tuple[LabelValues, Value]],
    common_labels: Mapping[str, str],
    period: Period,
    temporality: proto.AggregationTemporality.ValueType,
) -> None:
    made.name, made.unit = name_and_unit(metric)
    made.description = metric.help
    if metric.kind is Kind.COUNTER:
        made.sum.is_monotonic = True
        made.sum.aggregation_temporality = temporality
    elif metric.kind is Kind.HISTOGRAM:
        made.histogram.aggregation_temporality = temporality
    for label_values, value in items:
        if isinstance(value, HistogramValue):
            bars = made.histogram.data_points.add()
            bars.explicit_bounds.extend(value.bounds)
            bars.bucket_counts.extend(value.counts)
            bars.count, bars.sum = sum(value.counts), value.total
            bars.start_time_unix_nano, bars.time_unix_nano = period
            _label(bars, metric, label_values, common_labels)
            continue
        point = (made.sum if metric.kind is Kind.COUNTER else made.gauge).data_points.add()
        if isinstance(value, int) and -(1 << 63) <= value < 1 << 63:
            point.as_int = value
        else:
            point.as_double = value
        if metric.kind is Kind.COUNTER:
            point.start_time_unix_nano = period.start_ns
        point.time_unix_nano = period.end_ns
        _label(point, metric, label_values, common_labels)


def _label(
    point: proto.NumberDataPoint | proto.HistogramDataPoint,
    metric: Metric,
    label_values: LabelValues,
    common_labels: Mapping[str, str],
) -> None:
    for name, value in (*common_labels.items(), *zip(metric.labels, label_values, strict=True)):
        point.attributes.append(
            common.KeyValue(key=name, value=common.AnyValue(string_value=value))
        )


class Collector:
    """The channel to a collector; its methods block, so a thread calls them.

    Args:
      config: has the address, the headers and the timeout.
    """

    def __init__(self, config: BrokerConfig) -> None:
        target = config.metrics_grpc_exporter_target.strip().removesuffix("/")
        address = target.removeprefix("http://").removeprefix("https://")
        options = [("grpc.max_reconnect_backoff_ms", RECONNECT_MS_MAX)]
        if target.startswith("http://"):
            self._channel = grpc.insecure_channel(address, options)
        else:
            self._channel = grpc.secure_channel(address, grpc.ssl_channel_credentials(), options)
        self.name = f"the collector {target}"
        self._export = self._channel.unary_unary(
            EXPORT,
            request_serializer=service.ExportMetricsServiceRequest.SerializeToString,
            response_deserializer=service.ExportMetricsServiceResponse.FromString,
        )
        self._common = config.metrics_labels
        self._headers = config.metrics_headers
        self._timeout_s = config.metric_grpc_exporter_time_out_in_mills / 1000
        self._is_delta = config.metrics_in_delta
        self._points_max = config.metrics_export_batch_max_data_points

    def send(self, families: Families, period: Period) -> None:
        """Send samples. Raises: PushError: the collector did not accept all of them."""
        for request in requests(
            families,
            self._common,
            period,
            is_delta=self._is_delta,
            points_max=self._points_max,
        ):
            try:
                answer = self._export(request, timeout=self._timeout_s, metadata=self._headers)
            except grpc.RpcError as error:
                raise PushError(_text(error)) from error
            refused = answer.partial_success.rejected_data_points
            if refused:
                reason = answer.partial_success.error_message or "without a reason"
                raise PushError(f"it refused {refused} samples: {reason}")

    def close(self) -> None:
        self._channel.close()


def _text(error: grpc.RpcError) -> str:
    """What went wrong: gRPC's code and its details."""
    if isinstance(error, grpc.Call):
        return f"{error.code().name}: {error.details()}"
    return str(error)
