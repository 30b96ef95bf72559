"""The metrics of RocketMQ 5.x: the names, labels and units that its broker exposes by itself.

Each function collects the metrics of one group; the groups can be switched off by their keys, as in
RocketMQ. `docs/metrics.md` lists the differences.

Java counterpart: broker/metrics/BrokerMetricsManager.java, store/metrics/
DefaultStoreMetricsManager.java and remoting/metrics/RemotingMetricsManager.java of 5.5.0. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple

from ...common.steps import STEP_ITEMS, Steps
from ...common.topic_names import (
    RETRY_TOPIC_PREFIX,
    TRANS_HALF_TOPIC,
    is_system_group,
    is_system_topic,
)
from ...disk.errors import StoreError, StoreIOError
from ...remoting.bodies import ConsumeType, TopicConfig
from ...remoting.errors import RemoteProtocolError
from ...remoting.language_codes import LanguageCode
from ...remoting.message_codec import decode_record
from ...remoting.metrics.families import Kind, Metric, Samples
from ...remoting.mq_version import version_name
from ...remoting.request_codes import RequestCode
from ...remoting.request_times import RequestTimes
from ...remoting.response_codes import ResponseCode
from ...store.offsets import PhysicalOffset
from ..assembly import BrokerParts
from ..settings.attributes import MESSAGE_TYPE
from ..stats.broker_stats_manager import KEY_SEPARATOR, StatsName
from .consumer_lag import QUEUES_PER_STEP, ConsumerLag, lag_of

SIZE_BOUNDS: Final = (1024.0, 4096.0, 524_288.0, 1_048_576.0, 2_097_152.0, 4_194_304.0)
"""Upper ends of the buckets of message sizes, bytes. Source: BrokerMetricsManager."""

SNAPSHOT_BOUNDS_S: Final = (5, 60, 300, 900, 3_600, 14_400, 28_800, 86_400)
"""Ends of the periods, seconds from now, in which waiting timer messages are counted.
Source: TimerMetrics.timerDist."""

PROCESSORS: Final = (
    "send", "async_put", "pull", "ack", "query_message", "client_manager", "heartbeat", "lite_pull",
    "transaction", "consumer_manager", "admin", "reply",
)  # fmt: skip
"""The labels of RocketMQ's thread pools. Source: BrokerMetricsManager.initStatsMetrics."""

_MODES: Final = {
    ConsumeType.CONSUME_ACTIVELY: "pull",
    ConsumeType.CONSUME_PASSIVELY: "push",
    ConsumeType.CONSUME_POP: "pop",
}
_CODES: Final = {int(code): code.name.lower() for code in RequestCode}
_RESULTS: Final = {int(code): code.name.lower() for code in ResponseCode}
_LANGUAGES: Final = {int(language): language.name.lower() for language in LanguageCode}


def _metric(name: str, kind: Kind, text: str, *labels: str) -> Metric:
    return Metric(f"rocketmq_{name}", kind, text, labels)


_STORE: Final = ("storage_type", "storage_medium")
_LOCAL: Final = ("local", "disk")
_LAG: Final = ("topic", "consumer_group", "is_retry", "is_system")
_OUT: Final = ("topic", "consumer_group", "is_system", "is_retry")
_IN: Final = ("topic", "message_type", "is_system")
_CREATION: Final = ("invocation_status", "is_system")

WATERMARK: Final = _metric(
    "processor_watermark", Kind.GAUGE, "Requests that wait in the queue of a processor.",
    "processor",
)  # fmt: skip
PERMISSION: Final = _metric(
    "broker_permission", Kind.GAUGE, "What the broker permits: 2 is write, 4 is read, 6 is both."
)
TOPICS: Final = _metric("topic_number", Kind.GAUGE, "Topics of the broker.")
GROUPS: Final = _metric("consumer_group_number", Kind.GAUGE, "Consumer groups of the broker.")
TOPIC_CREATION: Final = _metric(
    "topic_create_execution_time_milliseconds", Kind.HISTOGRAM,
    "Time until a topic that an administrator creates or changes is saved.", *_CREATION,
)  # fmt: skip
GROUP_CREATION: Final = _metric(
    "consumer_group_create_execution_time_milliseconds", Kind.HISTOGRAM,
    "Time until a consumer group that an administrator creates or changes is saved.", *_CREATION,
)  # fmt: skip
RPC_LATENCY: Final = _metric(
    "rpc_latency_milliseconds", Kind.HISTOGRAM,
    "Time that the event loop took for a request and those that came with it.",
    "protocol_type", "request_code", "response_code", "is_long_polling", "result",
)  # fmt: skip
MESSAGES_IN: Final = _metric("messages_in_total", Kind.COUNTER, "Messages stored in a topic.", *_IN)
MESSAGES_OUT: Final = _metric(
    "messages_out_total", Kind.COUNTER, "Messages that a group pulled from a topic.", *_OUT
)
THROUGHPUT_IN: Final = _metric(
    "throughput_in_total", Kind.COUNTER, "Bytes of the records stored in a topic.", *_IN
)
THROUGHPUT_OUT: Final = _metric(
    "throughput_out_total", Kind.COUNTER, "Bytes of the records that a group pulled.", *_OUT
)
MESSAGE_SIZE: Final = _metric(
    "message_size", Kind.HISTOGRAM, "Bytes of the records stored in a topic.",
    "topic", "message_type",
)  # fmt: skip
PRODUCERS: Final = _metric(
    "producer_connections", Kind.GAUGE, "Connected producers.",
    "language", "version", "protocol_type",
)  # fmt: skip
CONSUMERS: Final = _metric(
    "consumer_connections", Kind.GAUGE, "Connected consumers of a group.",
    "consumer_group", "language", "version", "consume_mode", "protocol_type", "is_system",
)  # fmt: skip
LAG: Final = _metric(
    "consumer_lag_messages", Kind.GAUGE, "Messages that a group has not consumed.", *_LAG
)
LAG_LATENCY: Final = _metric(
    "consumer_lag_latency_milliseconds", Kind.GAUGE,
    "Age of the oldest message that a group has not consumed.", *_LAG,
)  # fmt: skip
IN_FLIGHT: Final = _metric(
    "consumer_inflight_messages", Kind.GAUGE,
    "Messages that a group has pulled and not consumed.", *_LAG,
)  # fmt: skip
QUEUEING_LATENCY: Final = _metric(
    "consumer_queueing_latency_milliseconds", Kind.GAUGE,
    "Age of the oldest message that a group has not pulled.", *_LAG,
)  # fmt: skip
READY: Final = _metric(
    "consumer_ready_messages", Kind.GAUGE, "Messages that a group has not pulled.", *_LAG
)
QUEUE_LAG: Final = _metric(
    "consumer_queue_lag_messages", Kind.GAUGE,
    "Messages of one queue that a group has not consumed (metricsPerQueue).",
    "topic", "consumer_group", "queue_id",
)  # fmt: skip
TO_DLQ: Final = _metric(
    "send_to_dlq_messages_total", Kind.COUNTER,
    "Messages that became dead letters of a group.", "topic", "consumer_group", "is_system",
)  # fmt: skip
HALF: Final = _metric("half_messages", Kind.GAUGE, "Messages of open transactions.", "topic")
COMMITTED: Final = _metric(
    "commit_messages_total", Kind.COUNTER, "Messages of committed transactions.", "topic"
)
ROLLED_BACK: Final = _metric(
    "rollback_messages_total", Kind.COUNTER, "Messages of rolled back transactions.", "topic"
)
FINISH_LATENCY: Final = _metric(
    "finish_message_latency_milliseconds", Kind.HISTOGRAM,
    "Time from the send of a transaction's message to its commit.", "topic",
)  # fmt: skip
STORAGE_SIZE: Final = _metric(
    "storage_size_bytes", Kind.GAUGE, "Used bytes of the partition of the commit log.", *_STORE
)
FLUSH_BEHIND: Final = _metric(
    "storage_flush_behind_bytes", Kind.GAUGE,
    "Bytes of the commit log that are not yet on the device.", *_STORE,
)  # fmt: skip
DISPATCH_BEHIND: Final = _metric(
    "storage_dispatch_behind_bytes", Kind.GAUGE,
    "Bytes of the commit log that are not yet in the consume queues.", *_STORE,
)  # fmt: skip
RESERVE_TIME: Final = _metric(
    "storage_message_reserve_time_milliseconds", Kind.GAUGE, "Age of the oldest message.", *_STORE
)
TIMER_ENQUEUE_LAG: Final = _metric(
    "timer_enqueue_lag", Kind.GAUGE, "Timer messages that were not yet read.", *_STORE
)
TIMER_ENQUEUE_LATENCY: Final = _metric(
    "timer_enqueue_latency_milliseconds", Kind.GAUGE,
    "Age of the oldest timer message that was not yet read.", *_STORE,
)  # fmt: skip
TIMER_DEQUEUE_LAG: Final = _metric(
    "timer_dequeue_lag", Kind.GAUGE, "Timer messages that are due and not delivered.", *_STORE
)
TIMER_DEQUEUE_LATENCY: Final = _metric(
    "timer_dequeue_latency_milliseconds", Kind.GAUGE,
    "Time for which the oldest due timer message has been due.", *_STORE,
)  # fmt: skip
TIMING: Final = _metric(
    "timing_messages", Kind.GAUGE, "Timer messages that wait.", *_STORE, "topic"
)
TIMER_ENQUEUED: Final = _metric(
    "timer_enqueue_total", Kind.COUNTER, "Timer messages that began to wait.", *_STORE, "topic"
)
TIMER_DEQUEUED: Final = _metric(
    "timer_dequeue_total", Kind.COUNTER, "Timer messages that were delivered.", *_STORE, "topic"
)
TIMER_SNAPSHOT: Final = _metric(
    "timer_message_snapshot", Kind.GAUGE,
    "Timer messages that are due in a period, named by its end in seconds from now.",
    *_STORE, "timer_bound_s",
)  # fmt: skip
DELAY_LATENCY: Final = _metric(
    "delay_message_latency_seconds", Kind.HISTOGRAM,
    "Time for which timer messages were to wait.", *_STORE,
)  # fmt: skip


def collect(parts: BrokerParts, times: RequestTimes | None, samples: Samples) -> Steps[None]:
    """Steps that collect the groups of metrics that are switched on.

    Args:
      parts: the broker's, with its counters up to date.
      times: of the requests; None: they are not counted.
    """
    config = parts.config
    if config.enable_stats_metrics:
        _stats(parts, samples)
    if config.enable_remoting_metrics and times is not None:
        _requests(times, samples)
    if config.enable_request_metrics:
        yield from _traffic(parts, samples)
    if config.enable_connection_metrics:
        yield from _connections(parts, samples)
    if config.enable_lag_and_dlq_metrics:
        yield from _lags(parts, samples)
    if config.enable_transaction_metrics:
        yield from _transactions(parts, samples)
    if config.enable_message_store_metrics:
        _store(parts, samples)
        if parts.store.config.timer_wheel_enable and not parts.store.is_slave:
            yield from _timers(parts, samples)


def message_type(topic: TopicConfig | None) -> str:
    """The label for the kind of a topic's messages: the one the topic declares, or normal.

    Source: TopicMessageType.getMetricsValue of 5.5.0.
    """
    declared = "" if topic is None else topic.attributes.get(MESSAGE_TYPE, "")
    return {"UNSPECIFIED": "", "MIXED": ""}.get(declared, declared).lower() or "normal"


def _bool(value: bool) -> str:
    return "true" if value else "false"


def _stats(parts: BrokerParts, samples: Samples) -> None:
    for processor in PROCESSORS:
        samples.add(WATERMARK, 0, processor)  # there are no queues of thread pools
    samples.add(PERMISSION, parts.config.broker_permission)
    samples.add(TOPICS, len(parts.tables.topics.topic_config_table))
    samples.add(GROUPS, len(parts.tables.groups.subscription_group_table))


def _requests(times: RequestTimes, samples: Samples) -> None:
    samples.declare(RPC_LATENCY)
    for (code, response_code), histogram in times.histograms.items():
        samples.add(
            RPC_LATENCY,
            histogram,
            "remoting",
            _CODES.get(code, str(code)),
            _RESULTS.get(response_code, str(response_code)),
            "false",
            "success",
        )


def _traffic(parts: BrokerParts, samples: Samples) -> Steps[None]:
    stats, table = parts.stats.manager, parts.tables.topics.topic_config_table
    samples.declare(MESSAGES_IN, MESSAGES_OUT, THROUGHPUT_IN, THROUGHPUT_OUT, MESSAGE_SIZE)
    for metric, name in (
        (MESSAGES_IN, StatsName.TOPIC_PUT_NUMS), (THROUGHPUT_IN, StatsName.TOPIC_PUT_SIZE),
    ):  # fmt: skip
        for number, (topic, item) in enumerate(list(stats.items(name).items())):
            if number % STEP_ITEMS == STEP_ITEMS - 1:
                yield
            kind = message_type(table.get(topic))
            samples.add(metric, item.value, topic, kind, _bool(is_system_topic(topic)))
    for metric, name in (
        (MESSAGES_OUT, StatsName.GROUP_GET_NUMS), (THROUGHPUT_OUT, StatsName.GROUP_GET_SIZE),
    ):  # fmt: skip
        for number, (key, item) in enumerate(list(stats.items(name).items())):
            if number % STEP_ITEMS == STEP_ITEMS - 1:
                yield
            topic, _, group = key.partition(KEY_SEPARATOR)
            is_system = is_system_topic(topic) or is_system_group(group)
            is_retry = topic.startswith(RETRY_TOPIC_PREFIX)
            samples.add(metric, item.value, topic, group, _bool(is_system), _bool(is_retry))
    for number, (topic, histogram) in enumerate(list(stats.sizes.items())):
        if number % STEP_ITEMS == STEP_ITEMS - 1:
            yield
        samples.add(MESSAGE_SIZE, histogram, topic, message_type(table.get(topic)))
    for metric, times in (
        (TOPIC_CREATION, stats.topic_creations_ms), (GROUP_CREATION, stats.group_creations_ms),
    ):  # fmt: skip
        samples.add(metric, times, "success", "false")


def _connections(parts: BrokerParts, samples: Samples) -> Steps[None]:
    samples.declare(PRODUCERS, CONSUMERS)
    counts: Counter[tuple[str, str]] = Counter()
    for number, clients in enumerate(list(parts.clients.producers.group_table.values())):
        if number % STEP_ITEMS == STEP_ITEMS - 1:
            yield
        for client in clients.values():
            counts[_software(client.language, client.version)] += 1
    for software, count in counts.items():
        samples.add(PRODUCERS, count, *software, "remoting")
    for number, (group, info) in enumerate(list(parts.clients.consumers.consumer_table.items())):
        if number % STEP_ITEMS == STEP_ITEMS - 1:
            yield
        of_group = Counter(
            _software(client.language, client.version)
            for client in info.channel_info_table.values()
        )
        mode = _MODES.get(info.consume_type, "push")
        for software, count in of_group.items():
            is_system = _bool(is_system_group(group))
            samples.add(CONSUMERS, count, group, *software, mode, "remoting", is_system)


def _software(language: int, version: int) -> tuple[str, str]:
    return _LANGUAGES.get(language, "other"), version_name(version).lower()


class _Progress(NamedTuple):
    """A topic that a group consumes, or one of its retry topics.

    Attributes:
      topic: the topic that it asks for.
      source: the topic with the messages: `topic`, or a retry topic.
      pops: whether the group pops it.
    """

    group: str
    topic: str
    source: str
    pops: bool


def _lags(parts: BrokerParts, samples: Samples) -> Steps[None]:
    """The lag of the connected groups and of those that pop."""
    samples.declare(LAG, LAG_LATENCY, IN_FLIGHT, QUEUEING_LATENCY, READY, TO_DLQ)
    topics, offsets, buffer = parts.tables.topics, parts.tables.offsets, parts.pop.services.buffer
    now_ms = parts.store.clock.wall_ms()
    queues = 0  # since the last pause; a topic that is left out counts, too
    for group, topic, source, pops in _consumed(parts):
        if queues >= QUEUES_PER_STEP:
            queues = 0
            yield
        queues += 1
        config = topics.select(source)
        if config is None:
            continue
        queues += config.write_queue_nums
        lag = yield from lag_of(
            parts.store,
            offsets,
            group,
            source,
            config.write_queue_nums,
            pops=buffer if pops else None,
        )
        is_system = is_system_topic(topic) or is_system_group(group)
        labels = (topic, group, _bool(source != topic), _bool(is_system))
        per_queue = parts.config.metrics_per_queue and source == topic
        _add_lag(samples, lag, now_ms, labels, per_queue=per_queue)
    dead = list(parts.stats.manager.items(StatsName.DLQ_PUT_NUMS).items())
    for number, (key, item) in enumerate(dead):
        if number % STEP_ITEMS == STEP_ITEMS - 1:
            yield
        topic, _, group = key.partition(KEY_SEPARATOR)
        samples.add(TO_DLQ, item.value, topic, group, _bool(is_system_group(group)))


def _consumed(parts: BrokerParts) -> Iterator[_Progress]:
    """What groups consume; a broadcasting group keeps its offsets to itself.

    Groups and topics that come meanwhile are left out.
    """
    consumers, retry_topics = parts.clients.consumers, parts.pop.services.retry_topics
    popped = {group: list(topics) for group, topics in consumers.compensated.groups.items()}
    # Copies, because samples are taken in steps: groups and topics that come meanwhile are left
    # out.
    connected = list(consumers.consumer_table.items())
    topics_of = {
        group: [] if info.is_broadcasting else list(info.subscription_table)
        for group, info in connected
    }
    for group in topics_of.keys() | popped.keys():
        pops = popped.get(group, ())
        for topic in dict.fromkeys((*topics_of.get(group, ()), *pops)):
            if topic.startswith(RETRY_TOPIC_PREFIX):
                continue
            yield _Progress(group, topic, topic, topic in pops)
            if topic in pops:
                names = retry_topics.read_names(topic, group)
                known = (name for name in names if parts.tables.topics.select(name) is not None)
                for name in islice(known, 1):
                    yield _Progress(group, topic, name, True)


def _add_lag(
    samples: Samples,
    lag: ConsumerLag,
    now_ms: int,
    labels: tuple[str, str, str, str],
    *,
    per_queue: bool,
) -> None:
    samples.add(LAG, lag.end - lag.consumed, *labels)
    samples.add(LAG_LATENCY, _age_ms(lag.oldest_ms, now_ms), *labels)
    samples.add(IN_FLIGHT, lag.pulled - lag.consumed, *labels)
    samples.add(QUEUEING_LATENCY, _age_ms(lag.oldest_unpulled_ms, now_ms), *labels)
    samples.add(READY, lag.end - lag.pulled, *labels)
    if per_queue:
        for queue in lag.queues:
            behind = queue.end - queue.consumed
            samples.add(QUEUE_LAG, behind, labels[0], labels[1], str(queue.queue_id))


def _age_ms(time_ms: int, now_ms: int) -> int:
    return max(now_ms - time_ms, 0) if time_ms else 0


def _transactions(parts: BrokerParts, samples: Samples) -> Steps[None]:
    transactions = parts.transactions.service
    samples.declare(COMMITTED, ROLLED_BACK, FINISH_LATENCY)
    # The topic of an open transaction is in its message only, which is not read for this.
    samples.add(HALF, len(transactions.open), TRANS_HALF_TOPIC)
    for metric, counts in (
        (COMMITTED, transactions.ends.committed), (ROLLED_BACK, transactions.ends.rolled_back),
    ):  # fmt: skip
        for number, (topic, count) in enumerate(list(counts.items())):
            if number % STEP_ITEMS == STEP_ITEMS - 1:
                yield
            samples.add(metric, count, topic)
    for number, (topic, histogram) in enumerate(list(transactions.ends.latencies_ms.items())):
        if number % STEP_ITEMS == STEP_ITEMS - 1:
            yield
        samples.add(FINISH_LATENCY, histogram, topic)


def _store(parts: BrokerParts, samples: Samples) -> None:
    store = parts.store
    try:
        used = store.disk.space(store.config.commit_log_folder).used
    except StoreIOError:
        samples.declare(STORAGE_SIZE)
    else:
        samples.add(STORAGE_SIZE, used, *_LOCAL)
    end = store.max_physical_offset
    samples.add(FLUSH_BEHIND, max(end - store.flusher.flushed_offset, 0), *_LOCAL)
    samples.add(DISPATCH_BEHIND, max(end - store.dispatched_offset, 0), *_LOCAL)
    samples.add(RESERVE_TIME, _oldest_age_ms(parts), *_LOCAL)


def _oldest_age_ms(parts: BrokerParts) -> int:
    store = parts.store
    try:
        record = store.message_at(PhysicalOffset(store.min_physical_offset))
        oldest_ms = 0 if record is None else decode_record(record).store_timestamp_ms
    except (StoreError, RemoteProtocolError):
        return 0
    return _age_ms(oldest_ms, store.clock.wall_ms())


def _timers(parts: BrokerParts, samples: Samples) -> Steps[None]:
    timers = parts.delivering.timers
    now_ms = parts.store.clock.wall_ms()
    samples.declare(TIMING, TIMER_ENQUEUED, TIMER_DEQUEUED)
    unread, unread_ms = timers.unread()
    samples.add(TIMER_ENQUEUE_LAG, unread, *_LOCAL)
    samples.add(TIMER_ENQUEUE_LATENCY, _age_ms(unread_ms, now_ms), *_LOCAL)
    # A slot is due at its end.
    first_ms = timers.wheel.first_ms() + parts.store.config.timer_precision_ms
    bounds = [now_ms + 1000 * bound_s for bound_s in (0, *SNAPSHOT_BOUNDS_S)]
    due, *later = yield from timers.wheel.waiting_before(bounds)
    samples.add(TIMER_DEQUEUE_LAG, due, *_LOCAL)
    samples.add(TIMER_DEQUEUE_LATENCY, _age_ms(first_ms if due else 0, now_ms), *_LOCAL)
    for bound_s, count in zip(SNAPSHOT_BOUNDS_S, later, strict=True):
        samples.add(TIMER_SNAPSHOT, count, *_LOCAL, str(bound_s))
    for metric, counts in (
        (TIMING, timers.counts.waiting()), (TIMER_ENQUEUED, timers.counts.came),
        (TIMER_DEQUEUED, timers.counts.delivered),
    ):  # fmt: skip
        for number, (topic, count) in enumerate(list(counts.items())):
            if number % STEP_ITEMS == STEP_ITEMS - 1:
                yield
            samples.add(metric, count, *_LOCAL, topic)
    samples.add(DELAY_LATENCY, timers.counts.delays_s, *_LOCAL)
