"""Pushed metrics: a real OTLP receiver has the numbers; one that is gone costs one line."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager
from queue import Queue
from typing import Any

import grpc
import pytest
import trio
import trio.testing
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as service
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc as service_grpc

from trocket.broker.metrics.otlp import Collector, requests
from trocket.broker.metrics.push import Log, MetricsPush, Period, PushError
from trocket.broker.metrics.service import MetricsService
from trocket.broker.settings.config import BrokerConfig
from trocket.common.histogram import Histogram
from trocket.common.metrics_keys import MetricsExporterType
from trocket.common.steps import in_steps
from trocket.remoting.metrics.families import (
    Families,
    HistogramValue,
    Kind,
    Metric,
    Samples,
    gained,
)
from trocket.remoting.request_codes import RequestCode

from ...kit import broker_and_client, send_fields

SENT = Metric("rocketmq_messages_in_total", Kind.COUNTER, "Messages.", ("topic",))
LATENCY = Metric("rocketmq_rpc_latency_milliseconds", Kind.HISTOGRAM, "Time.", ("code",))
AGE = Metric("rocketmq_storage_size_bytes", Kind.GAUGE, "Size.")
OFFSET = Metric("rocketmq_producer_offset", Kind.GAUGE, "End.", ("topic",), has_common=False)


class Receiver(service_grpc.MetricsServiceServicer):
    """An OTLP receiver.

    Attributes:
      requests: what came, with its headers.
    """

    def __init__(self) -> None:
        self.requests: Queue[tuple[Any, dict[str, str]]] = Queue()
        self.refused = 0

    def Export(self, request: Any, context: Any) -> Any:
        self.requests.put((request, dict(context.invocation_metadata())))
        answer = service.ExportMetricsServiceResponse()
        answer.partial_success.rejected_data_points = self.refused
        return answer

    def metrics(self) -> dict[str, Any]:
        """The metrics of one request, by name."""
        request, _ = self.requests.get(timeout=10)
        return by_name(request)


def by_name(request: Any) -> dict[str, Any]:
    (of_resource,) = request.resource_metrics
    (scope,) = of_resource.scope_metrics
    assert scope.scope.name == "broker-meter"
    return {metric.name: metric for metric in scope.metrics}


def labels_of(point: Any) -> dict[str, str]:
    return {each.key: each.value.string_value for each in point.attributes}


@contextmanager
def receiving(port: int = 0) -> Iterator[tuple[Receiver, int]]:
    """An OTLP receiver on a port."""
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=2))
    receiver = Receiver()
    service_grpc.add_MetricsServiceServicer_to_server(receiver, server)
    bound = server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    try:
        yield receiver, bound
    finally:
        server.stop(grace=None).wait()


def config(port: int, **keys: Any) -> BrokerConfig:
    return BrokerConfig(
        metrics_exporter_type=MetricsExporterType.OTLP_GRPC,
        metrics_grpc_exporter_target=f"http://127.0.0.1:{port}",
        broker_cluster_name="DefaultCluster",
        broker_name="b",
        **keys,
    )


def families() -> Families:
    times = Histogram((1.0, 3.0))
    for value in (0.5, 2.0, 2.5, 7.0):
        times.add(value)
    samples = Samples(10)
    samples.add(SENT, 5, "T")
    samples.add(LATENCY, times, "send")
    samples.add(AGE, 1.5)
    samples.add(OFFSET, 7, "T")
    return samples.families


def test_a_receiver_has_names_units_labels_and_numbers() -> None:
    with receiving() as (receiver, port):
        collector = Collector(config(port, metrics_grpc_exporter_header="X-Token:a:b,x-zone:1"))
        collector.send(families(), Period(10, 20))
        collector.close()
        request, headers = receiver.requests.get(timeout=10)
    assert headers["x-token"] == "a:b"
    assert headers["x-zone"] == "1"
    found = by_name(request)
    mine = {"cluster": "DefaultCluster", "node_type": "broker", "node_id": "b"}
    counter = found["rocketmq_messages_in_total"]
    assert counter.sum.is_monotonic
    assert counter.sum.aggregation_temporality == 2  # cumulative
    (point,) = counter.sum.data_points
    assert (point.as_int, point.start_time_unix_nano, point.time_unix_nano) == (5, 10, 20)
    assert labels_of(point) == {**mine, "topic": "T"}
    times = found["rocketmq_rpc_latency"]
    assert times.unit == "milliseconds"
    (bars,) = times.histogram.data_points
    assert list(bars.explicit_bounds) == [1, 3]
    assert list(bars.bucket_counts) == [1, 2, 1]
    assert (bars.count, bars.sum) == (4, 12.0)
    assert found["rocketmq_storage_size"].unit == "bytes"
    assert found["rocketmq_storage_size"].gauge.data_points[0].as_double == 1.5
    (point,) = found["rocketmq_producer_offset"].gauge.data_points
    assert labels_of(point) == {"topic": "T"}


def test_many_samples_are_several_requests() -> None:
    samples = Samples(100)
    for number in range(25):
        samples.add(SENT, number, f"T{number}")
    samples.add(AGE, 1)
    made = list(requests(samples.families, {}, Period(1, 2), is_delta=False, points_max=10))
    counts = [
        [
            len(metric.sum.data_points) + len(metric.gauge.data_points)
            for metric in by_name(each).values()
        ]
        for each in made
    ]
    assert counts == [[10], [10], [5, 1]]
    assert not list(requests({}, {}, Period(1, 2), is_delta=False, points_max=10))


def test_counters_that_began_anew_have_gained_all() -> None:
    before = {SENT: {("T",): 5, ("U",): 9}, AGE: {(): 3}, LATENCY: {("c",): bars(1, 4)}}
    now = {SENT: {("T",): 7, ("U",): 2, ("V",): 1}, AGE: {(): 1}, LATENCY: {("c",): bars(3, 9)}}
    assert gained(now, before) == {
        SENT: {("T",): 2, ("U",): 2, ("V",): 1}, AGE: {(): 1}, LATENCY: {("c",): bars(2, 5)},
    }  # fmt: skip
    assert gained({LATENCY: {("c",): bars(0, 0)}}, before) == {LATENCY: {("c",): bars(0, 0)}}


def bars(count: int, total: float) -> HistogramValue:
    return HistogramValue((1.0,), (count, 0), total)


class Recorder:
    """A sink that keeps what is sent, and fails when it is told to."""

    name = "the collector C"

    def __init__(self) -> None:
        self.sent: list[tuple[Families, Period]] = []
        self.failure = ""
        self.is_closed = False
        self.on_sent: Callable[[], object] = lambda: None

    def send(self, families: Families, period: Period) -> None:
        if self.failure:
            raise PushError(self.failure)
        self.sent.append((families, period))
        self.on_sent()

    def close(self) -> None:
        self.is_closed = True


async def test_an_outage_costs_two_lines_and_no_gain(
    caplog: pytest.LogCaptureFixture, autojump_clock: trio.testing.MockClock
) -> None:
    value, began_s = 0, trio.current_time()

    async def collect() -> Samples:
        nonlocal value
        value += 10
        samples = Samples(10)
        samples.add(SENT, value, "T")
        return samples

    sink = Recorder()
    times = iter(range(100, 200))
    push = MetricsPush(collect, sink, 60, is_delta=True, wall_ns=lambda: next(times))
    await push.push()
    sink.failure = "UNAVAILABLE: connection refused"
    for _ in range(3):
        await push.push()
    sink.failure = ""
    await push.push()
    assert [families[SENT]["T",] for families, _ in sink.sent] == [10, 40]
    assert [period for _, period in sink.sent] == [(100, 101), (101, 105)]
    lost, again = [record.message for record in caplog.records]
    assert "do not reach the collector C: UNAVAILABLE: connection refused" in lost
    assert "again, after 3 failed attempts" in again
    with trio.CancelScope() as scope:
        sink.on_sent = lambda: len(sink.sent) == 4 and trio.from_thread.run_sync(scope.cancel)
        await push.run()
    assert trio.current_time() - began_s == 120
    assert sink.is_closed


def test_a_collector_that_is_gone_or_refuses_says_why() -> None:
    with receiving() as (receiver, port):
        receiver.refused = 3
        collector = Collector(config(port))
        with pytest.raises(PushError, match="refused 3 samples"):
            collector.send(families(), Period(1, 2))
    with pytest.raises(PushError, match="UNAVAILABLE"):
        collector.send(families(), Period(1, 2))
    collector.close()


@pytest.mark.slow
async def test_a_broker_pushes_to_a_receiver_while_it_serves() -> None:
    with receiving() as (receiver, port):
        async with broker_and_client(
            metrics_exporter_type=MetricsExporterType.OTLP_GRPC,
            metrics_grpc_exporter_target=f"http://127.0.0.1:{port}",
            metric_grpc_exporter_interval_in_mills=100,
            metrics_in_delta=True,
        ) as (broker, client):
            for _ in range(5):
                await client.ask(RequestCode.SEND_MESSAGE_V2, send_fields(), b"x" * 2000)
            metrics = MetricsService(broker.controller.parts, lambda: broker.controller.server)
            metrics.start()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(metrics.push)
                found = await trio.to_thread.run_sync(receiver.metrics)
                nursery.cancel_scope.cancel()
    points = found["rocketmq_messages_in_total"].sum.data_points
    (point,) = [each for each in points if labels_of(each)["topic"] == "T"]
    assert point.as_int == 5
    assert labels_of(point)["aggregation"] == "delta"
    assert found["trocket_ready"].gauge.data_points


async def test_what_a_request_switches_on_is_counted_by_a_broker_that_pushes() -> None:
    async with broker_and_client(
        metrics_exporter_type=MetricsExporterType.LOG, enable_request_metrics=False
    ) as (broker, client):
        await client.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, b"enableRequestMetrics=true")
        await client.ask(RequestCode.SEND_MESSAGE_V2, send_fields(), b"x")
        stats = broker.controller.parts.stats.manager
        await in_steps(stats.collect())
        assert stats.sizes["T"].count == 1


def test_the_log_has_a_line_of_json_for_each_metric(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        Log(config(1)).send(families(), Period(1, 2))
    split = [record.message.split(" ", 1) for record in caplog.records]
    assert [name for name, _ in split] == [metric.name for metric in families()]
    assert len({record.msg for record in caplog.records}) == len(split), "each is an event"
    lines = [json.loads(text) for _, text in split]
    assert lines[0] == {
        "type": "counter", "samples": [
            {
                "labels": {
                    "cluster": "DefaultCluster", "node_type": "broker", "node_id": "b",
                    "topic": "T",
                },
                "value": 5,
            }
        ],
    }  # fmt: skip
    assert lines[1]["samples"][0]["value"] == {
        "bounds": [1.0, 3.0], "counts": [1, 2, 1], "total": 12.0,
    }  # fmt: skip
