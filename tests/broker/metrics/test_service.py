"""Metrics and health of a whole broker: the numbers are those of its messages and clients."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import trio
import trio.testing
from prometheus_client.parser import text_string_to_metric_families

from trocket.broker.metrics import exporter_metrics, rocketmq_metrics
from trocket.broker.metrics.client_figures import NAMES
from trocket.broker.metrics.consumer_lag import QUEUES_PER_STEP
from trocket.broker.metrics.service import MetricsService
from trocket.common.known_keys import read_keys
from trocket.disk.errors import StoreIOError
from trocket.remoting.bodies import TopicConfig
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.metrics.families import Samples
from trocket.remoting.request_codes import RequestCode

from ...kit import Broker, embedded_broker, heartbeat, pull_fields, send_fields, subscribed

HEARTBEAT = heartbeat("CG", subscribed(), client_id="c@1", producers=("PG",))


class Page:
    """A page of metrics."""

    def __init__(self, text: str) -> None:
        self._samples: dict[str, list[Any]] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                self._samples.setdefault(sample.name, []).append(sample)

    def value(self, name: str, **labels: str) -> float:
        """The only sample of that name whose labels include these."""
        (found,) = [
            sample for sample in self._samples[name] if labels.items() <= sample.labels.items()
        ]
        return found.value

    def count(self, name: str) -> int:
        """The number of samples of that name."""
        return len(self._samples[name])

    def names(self) -> set[str]:
        return set(self._samples)


def service(broker: Broker) -> MetricsService:
    metrics = MetricsService(broker.controller.parts, lambda: broker.controller.server)
    metrics.start()
    metrics.is_serving = True
    return metrics


@contextmanager
def no_autojump() -> Iterator[None]:
    """Let virtual time stand still while a thread works, which the clock takes for idleness."""
    clock = trio.lowlevel.current_clock()
    if not isinstance(clock, trio.testing.MockClock):
        yield
        return
    threshold = clock.autojump_threshold
    clock.autojump_threshold = math.inf
    try:
        yield
    finally:
        clock.autojump_threshold = threshold


async def read(metrics: MetricsService, query: str = "") -> Page:
    with no_autojump():
        answer = await metrics.answer(f"/metrics{query}")
    assert answer.status == 200, answer.body
    return Page(answer.body.decode())


async def test_what_is_sent_and_consumed_is_counted() -> None:
    async with embedded_broker() as broker:
        metrics = service(broker)
        client = await broker.connect()
        await client.ask(RequestCode.HEART_BEAT, {}, HEARTBEAT)
        for _ in range(5):
            answer = await client.ask(RequestCode.SEND_MESSAGE_V2, send_fields(), b"x" * 2000)
            assert answer.code == 0, answer.remark
        await client.ask(RequestCode.PULL_MESSAGE, pull_fields(maxMsgNums=3))
        await client.ask(
            RequestCode.UPDATE_CONSUMER_OFFSET,
            {"consumerGroup": "CG", "topic": "T", "queueId": 0, "commitOffset": 2},
        )
        page = await read(metrics)
    mine = {"cluster": "DefaultCluster", "node_type": "broker", "node_id": "b"}
    sent = {"topic": "T", "message_type": "normal", "is_system": "false", **mine}
    group = {"topic": "T", "consumer_group": "CG", **mine}
    assert page.value("rocketmq_messages_in_total", **sent) == 5
    assert page.value("rocketmq_throughput_in_total", **sent) > 10_000
    assert page.value("rocketmq_message_size_bucket", topic="T", le="1024") == 0
    assert page.value("rocketmq_message_size_bucket", topic="T", le="4096") == 5
    assert page.value("rocketmq_messages_out_total", **group) == 3
    assert page.value("rocketmq_consumer_lag_messages", **group) == 3
    assert page.value("rocketmq_consumer_connections", consumer_group="CG") == 1
    assert page.value("rocketmq_producer_connections", language="python") == 1
    code = {"request_code": "send_message_v2", "response_code": "success"}
    assert page.value("rocketmq_rpc_latency_milliseconds_count", **code) == 5
    assert page.value("rocketmq_producer_offset", topic="T", broker="b") == 5
    assert page.value("rocketmq_consumer_offset", topic="T", group="CG") == 2
    assert page.value("rocketmq_group_diff", topic="T", group="CG", msgModel="1") == 3
    assert page.value("rocketmq_group_count", group="CG") == 1
    assert page.value("rocketmq_brokeruntime_msg_put_total_today_now") == 5
    assert page.value("trocket_turn_messages_sum") == 5
    assert page.value("trocket_connections") == 1
    assert page.value("process_open_fds") > 0


async def test_the_age_of_the_oldest_waiting_message_is_the_latency(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with embedded_broker(metrics_per_queue=True) as broker:
        metrics = service(broker)
        client = await broker.connect()
        await client.ask(RequestCode.HEART_BEAT, {}, HEARTBEAT)
        offset = {"consumerGroup": "CG", "topic": "T", "commitOffset": 0}
        for queue_id in (0, 1):
            await client.ask(RequestCode.SEND_MESSAGE_V2, send_fields(queue_id=queue_id))
            fields = {**offset, "queueId": queue_id}
            await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields)
            await trio.sleep(10)
        samples = await metrics.collect()
    found = {
        metric.name: dict(values)
        for metric, values in samples.families.items()
        if metric.name.startswith(("rocketmq_consumer_", "rocketmq_group_get"))
    }
    labels = ("T", "CG", "false", "false")
    assert found["rocketmq_consumer_lag_latency_milliseconds"] == {labels: 20_000}
    assert found["rocketmq_consumer_ready_messages"] == {labels: 2}
    by_queue = found["rocketmq_consumer_queue_lag_messages"]
    assert {key[2]: value for key, value in by_queue.items() if value} == {"0": 1, "1": 1}
    latency = found["rocketmq_group_get_latency_by_storetime"]
    assert latency["DefaultCluster", "b", "T", "CG"] == 20_000


async def test_a_group_that_has_no_offset_lags_as_mqadmin_says_or_not_at_all() -> None:
    async with embedded_broker() as broker:
        metrics = service(broker)
        client = await broker.connect()
        await client.ask(RequestCode.HEART_BEAT, {}, HEARTBEAT)
        await client.ask(RequestCode.SEND_MESSAGE_V2, send_fields())
        page = await read(metrics)
    assert page.value("rocketmq_consumer_lag_messages", topic="T") == 0
    assert page.value("rocketmq_group_diff", topic="T", group="CG") == 1


async def test_refused_requests_are_counted_by_their_code() -> None:
    async with embedded_broker() as broker:
        metrics = service(broker)
        client = await broker.connect()
        answer = await client.ask(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "none"})
        assert answer.code == 17
        page = await read(metrics)
    code = {"request_code": "get_topic_stats_info"}
    name = "rocketmq_rpc_latency_milliseconds_count"
    assert page.value(name, **code, response_code="topic_not_exist") == 1


async def test_groups_of_metrics_are_switched_off_by_their_keys() -> None:
    switches = [key for key in _fields() if key.startswith("enable_") and "metrics" in key]
    off = dict.fromkeys(switches, False)
    async with embedded_broker(**off, metrics_of_exporter=False) as broker:
        page = await read(service(broker))
    assert not {name for name in page.names() if name.startswith("rocketmq_")}
    assert len(switches) == 8
    assert {"enableRequestMetrics", "metricsOtelCardinalityLimit"} <= read_keys("broker").keys()


def _fields() -> list[str]:
    from trocket.broker.settings.config import BrokerConfig

    return list(BrokerConfig.__dataclass_fields__)


async def test_a_store_that_cannot_be_read_costs_one_reading(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with embedded_broker() as broker:
        metrics = service(broker)
        stats = broker.controller.parts.stats.manager

        def fail() -> None:
            raise StoreIOError("/store/consumequeue", "Input/output error")

        with monkeypatch.context() as patched:
            patched.setattr(stats, "collect", fail)
            answer = await metrics.answer("/metrics")
        assert answer.status == 503
        assert b"Input/output error" in answer.body
        assert (await metrics.answer("/metrics")).status == 200


@pytest.mark.slow
async def test_many_topics_are_bounded_and_the_others_counted() -> None:
    async with embedded_broker(metrics_otel_cardinality_limit=20) as broker:
        metrics = service(broker)
        client = await broker.connect()
        for number in range(30):
            await client.ask(RequestCode.SEND_MESSAGE_V2, send_fields(topic=f"T{number}"))
        page = await read(metrics)
    assert page.count("rocketmq_messages_in_total") == 20
    left_out = page.value("trocket_series_left_out", metric="rocketmq_messages_in_total")
    assert left_out == 10
    assert page.value("trocket_series_left_out", metric="all") > 10


async def test_the_topics_of_one_group_are_looked_at_in_several_steps() -> None:
    topics = [f"T{number}" for number in range(200)]
    async with embedded_broker() as broker:
        controller = broker.controller
        controller.topics.update(
            TopicConfig(topic_name=topic, read_queue_nums=8, write_queue_nums=8) for topic in topics
        )
        client = await broker.connect()
        body = heartbeat("CG", *map(subscribed, topics))
        answer = await client.ask(RequestCode.HEART_BEAT, {}, body)
        assert answer.code == 0, answer.remark
        metrics, samples = service(broker), Samples(1_000)
        for steps in (
            rocketmq_metrics.collect(controller.parts, None, samples),
            exporter_metrics.collect(controller.parts, metrics.clients, samples),
        ):
            assert len(list(steps)) >= 200 * 8 // (2 * QUEUES_PER_STEP)
    for metric in (rocketmq_metrics.LAG, exporter_metrics.DIFF):
        assert len(samples.families[metric]) >= 200


async def test_units_are_rocketmqs_or_prometheuss() -> None:
    async with embedded_broker() as broker:
        metrics = service(broker)
        client = await broker.connect()
        await client.ask(RequestCode.SEND_MESSAGE_V2, send_fields())
        for query, unit, other in (
            ("", "milliseconds", "seconds"),
            ("?units=rocketmq&x=1", "milliseconds", "seconds"),
            ("?units=base", "seconds", "milliseconds"),
        ):
            answer = await metrics.answer(f"/metrics{query}")
            names = Page(answer.body.decode()).names()
            assert f"rocketmq_rpc_latency_{unit}_count" in names
            assert f"rocketmq_rpc_latency_{other}_count" not in names
        for query in ("?units=inches", "?units=", "?units=base&units=x"):
            answer = await metrics.answer(f"/metrics{query}")
            assert answer.status == 400
            assert b"units is rocketmq, the default, or base" in answer.body


async def test_ready_names_what_is_missing() -> None:
    async with embedded_broker() as broker:
        metrics = service(broker)
        answer = await metrics.answer("/health/ready")
        assert answer.status == 503
        assert "namesrvAddr" in json.loads(answer.body)["missing"][0]
        metrics.is_serving = False
        answer = await metrics.answer("/health/ready")
        assert json.loads(answer.body)["missing"] == ["the broker is stopping"]
        assert (await metrics.answer("/health/live")).status == 200
        assert (await metrics.answer("/health/ready?x=1")).status == 503
        assert (await metrics.answer("/nothing")).status == 404


def test_the_figures_that_are_kept_are_those_that_have_a_metric() -> None:
    assert exporter_metrics.CLIENT_METRICS.keys() == NAMES


async def test_consumers_are_asked_for_their_figures_once_a_minute(
    autojump_clock: trio.testing.MockClock,
) -> None:
    status = {"consumeOKTPS": 2.5, "consumeRT": 7, "pullRT": "no number", "unknown": 1}
    status["pullTPS"] = 10**400
    async with embedded_broker() as broker:
        metrics = service(broker)
        client = await broker.connect()
        await client.ask(RequestCode.HEART_BEAT, {}, HEARTBEAT)
        figures = metrics.clients
        async with trio.open_nursery() as nursery:
            nursery.start_soon(figures.run)
            await metrics.collect()
            assert not figures.figures
            figures.want()
            joined = await client.asked()
            assert joined.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
            asked = await client.asked()
            assert asked.code == RequestCode.GET_CONSUMER_RUNNING_INFO
            assert asked.ext_fields["clientId"] == "c@1"
            tree = {"statusTable": {"T": status}, "mqTable": {}}
            reply = RemotingCommand(0, opaque=asked.opaque, flag=1, body=json.dumps(tree).encode())
            await client.reply(reply)
            await trio.testing.wait_all_tasks_blocked()
            samples = await metrics.collect()
            nursery.cancel_scope.cancel()
    assert list(figures.figures.values()) == [{"consumeOKTPS": 2.5, "consumeRT": 7}]
    found = {metric.name: dict(values) for metric, values in samples.families.items()}
    (labels,) = found["rocketmq_client_consume_ok_msg_tps"]
    assert labels[1:] == ("c@1", "CG", "T")
    assert found["rocketmq_client_consume_ok_msg_tps"][labels] == 2.5
    assert found["rocketmq_client_consumer_pull_rt"] == {}
