"""The metrics of rocketmq-exporter: the names and labels that published boards and alerts use.

The exporter asks the brokers by mqadmin's requests; here the same numbers come from the broker's
own tables. A sample is of this broker only, as there are several of the exporter's for a topic with
several brokers.

Source: RMQMetricsCollector.java, MetricsCollectTask.java and BrokerRuntimeStats.java of
apache/rocketmq-exporter (2025-06). Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from ...common.steps import STEP_ITEMS, Steps
from ...common.topic_names import DLQ_TOPIC_PREFIX, RETRY_TOPIC_PREFIX
from ...disk.errors import StoreIOError
from ...remoting.metrics.families import TOTAL, Kind, Metric, Samples
from ..assembly import BrokerParts
from ..clients.consumer_group_info import ConsumerGroupInfo
from ..stats.broker_stats_manager import KEY_SEPARATOR, StatsName
from ..stats.stats_item import MINUTE
from ..stats.totals import PUT_TIME_NAMES
from .client_figures import ClientFigures
from .consumer_lag import QUEUES_PER_STEP, ConsumerLag, lag_of

ADDRESSES_SHOWN_MAX: Final = 20
"""Clients of a group whose addresses are in a label of `rocketmq_group_count`. The exporter lists
all of them."""

_TOPIC: Final = ("cluster", "broker", "topic")
_GROUP: Final = ("cluster", "broker", "topic", "group")
_DIFF: Final = ("group", "topic", "countOfOnlineConsumers", "msgModel")
_BROKER: Final = ("cluster", "brokerIP", "broker")
_CLIENT: Final = ("clientAddr", "clientId", "group", "topic")
_RUNTIME: Final = ("cluster", "brokerIP", "brokerHost", "des", "boottime", "broker_version")
_MODELS: Final = {"BROADCASTING": "0", "CLUSTERING": "1"}
"""The ordinals of RocketMQ's MessageModel."""


def _metric(name: str, text: str, labels: tuple[str, ...]) -> Metric:
    kind = Kind.COUNTER if name.endswith(TOTAL) else Kind.GAUGE
    return Metric(f"rocketmq_{name}", kind, text, labels, has_common=False)


PRODUCER_TPS: Final = _metric("producer_tps", "Messages stored per second in a topic.", _TOPIC)
PRODUCER_SIZE: Final = _metric(
    "producer_message_size", "Bytes stored per second in a topic.", _TOPIC
)
PRODUCER_OFFSET: Final = _metric("producer_offset", "Sum of the ends of a topic's queues.", _TOPIC)
RETRY_OFFSET: Final = _metric(
    "topic_retry_offset", "Sum of the ends of a retry topic's queues.", _TOPIC
)
DLQ_OFFSET: Final = _metric(
    "topic_dlq_offset", "Sum of the ends of the queues with a group's dead letters.",
    ("cluster", "broker", "group"),
)  # fmt: skip
PRODUCER_COUNT: Final = _metric(
    "producer_count", "Connected producers of a group.", ("cluster", "broker", "group")
)
BROKER_TPS: Final = _metric("broker_tps", "Messages stored per second.", _BROKER)
BROKER_QPS: Final = _metric("broker_qps", "Messages pulled per second.", _BROKER)
COMMITLOG_DIFF: Final = _metric(
    "broker_commitlog_diff", "Bytes of the master's commit log that a slave does not have.", _BROKER
)
CONSUMER_TPS: Final = _metric(
    "consumer_tps", "Messages pulled per second by a group from a topic.", _GROUP
)
CONSUMER_SIZE: Final = _metric(
    "consumer_message_size", "Bytes pulled per second by a group from a topic.", _GROUP
)
SEND_BACK: Final = _metric(
    "send_back_nums", "Messages that a group sent back in the last minute.", _GROUP
)
CONSUME_TPS: Final = _metric(
    "group_consume_tps", "Messages pulled per second by a group from a topic.", _GROUP
)
CONSUMER_OFFSET: Final = _metric(
    "consumer_offset", "Sum of the offsets that a group has consumed of a topic.", _GROUP
)
CONSUME_TOTAL: Final = _metric(
    "group_consume_total_offset", "Sum of the offsets that a group has consumed of a topic.", _GROUP
)
LATENCY: Final = _metric(
    "group_get_latency_by_storetime",
    "Age in milliseconds of the oldest message that a group has not consumed.", _GROUP,
)  # fmt: skip
DIFF: Final = _metric("group_diff", "Messages that a group has not consumed.", _DIFF)
RETRY_DIFF: Final = _metric(
    "group_retrydiff", "Retried messages that a group has not consumed.", _DIFF
)
DLQ_DIFF: Final = _metric("group_dlqdiff", "Dead letters that a group has not consumed.", _DIFF)
GROUP_COUNT: Final = _metric(
    "group_count", "Connected consumers of a group.", ("caddr", "localaddr", "group")
)
CLIENT_METRICS: Final[Mapping[str, Metric]] = {
    "consumeFailedMsgs": _metric(
        "client_consume_fail_msg_count", "Failed consumptions of the last hour.", _CLIENT
    ),
    "consumeFailedTPS": _metric(
        "client_consume_fail_msg_tps", "Failed consumptions per second.", _CLIENT
    ),
    "consumeOKTPS": _metric(
        "client_consume_ok_msg_tps", "Successful consumptions per second.", _CLIENT
    ),
    "consumeRT": _metric("client_consume_rt", "Milliseconds of one consumption.", _CLIENT),
    "pullRT": _metric("client_consumer_pull_rt", "Milliseconds of one pull.", _CLIENT),
    "pullTPS": _metric("client_consumer_pull_tps", "Messages pulled per second.", _CLIENT),
}
"""Figures of clients, by their names in the answers of clients."""


class RuntimeMetric(NamedTuple):
    """A metric that is read from the broker's runtime information.

    Attributes:
      metric: its declaration.
      key: of the table of strings.
      read: finds the number in the text.
    """

    metric: Metric
    key: str
    read: Callable[[str], float]


def _rate(number: int) -> Callable[[str], float]:
    return lambda text: float(text.split()[number])


def _first(text: str) -> float:
    return float(text.split()[0])


def _share(name: str) -> Callable[[str], float]:
    return lambda text: float(text.split(f"{name}:")[1].split()[0])


_PERIODS: Final = {"10": 0, "60": 1, "600": 2}
_NUMBERS: Final = {
    "msg_put_total_today_now": ("msgPutTotalTodayNow", "Messages stored since the start."),
    "msg_gettotal_today_now": ("msgGetTotalTodayNow", "Messages pulled since the start."),
    "msg_puttotal_todaymorning": ("msgPutTotalTodayMorning", "Messages stored until midnight."),
    "msg_gettotal_todaymorning": ("msgGetTotalTodayMorning", "Messages pulled until midnight."),
    "msg_puttotal_yesterdaymorning": (
        "msgPutTotalYesterdayMorning", "Messages stored until the midnight before the last.",
    ),
    "msg_gettotal_yesterdaymorning": (
        "msgGetTotalYesterdayMorning", "Messages pulled until the midnight before the last.",
    ),
    "dispatch_behind_bytes": (
        "dispatchBehindBytes", "Bytes of the commit log that are not yet in the consume queues.",
    ),
    "dispatch_maxbuffer": ("dispatchMaxBuffer", "Always 0."),
    "put_message_size_total": ("putMessageSizeTotal", "Bytes stored since the start."),
    "put_message_average_size": ("putMessageAverageSize", "Bytes of a message on average."),
    "putmessage_times_total": ("putMessageTimesTotal", "Messages stored since the start."),
    "putmessage_entire_time_max": (
        "putMessageEntireTimeMax", "Longest write to the commit log, milliseconds.",
    ),
    "getmessage_entire_time_max": ("getMessageEntireTimeMax", "Always 0."),
    "remain_transientstore_buffer_numbs": (
        "remainTransientStoreBufferNumbs", "Always 2147483647: there is no such store.",
    ),
    "earliest_message_timestamp": (
        "earliestMessageTimeStamp", "When the oldest message was stored, milliseconds since 1970.",
    ),
    "start_accept_sendrequest_time": ("startAcceptSendRequestTimeStamp", "Always 0."),
    "pagecache_lock_time_mills": ("pageCacheLockTimeMills", "Always 0: there is no such lock."),
    "commitlog_disk_ratio": (
        "commitLogDiskRatio", "Used part of the partition of the commit log, 0 to 1.",
    ),
    "consumequeue_disk_ratio": (
        "consumeQueueDiskRatio", "Used part of the partition of the consume queues, 0 to 1.",
    ),
    "commitlog_maxoffset": ("commitLogMaxOffset", "End of the commit log, bytes."),
    "commitlog_minoffset": ("commitLogMinOffset", "Start of the commit log, bytes."),
    "put_latency_99": (
        "putLatency99", "99th percentile of writes to the commit log, milliseconds.",
    ),
    "put_latency_999": (
        "putLatency999", "99.9th percentile of writes to the commit log, milliseconds.",
    ),
    "send_threadpool_queue_size": ("sendThreadPoolQueueSize", "Always 0: there are no pools."),
    "pull_threadpoolqueue_size": ("pullThreadPoolQueueSize", "Always 0: there are no pools."),
    "query_threadpoolqueue_size": ("queryThreadPoolQueueSize", "Always 0: there are no pools."),
    "send_threadpoolqueue_capacity": (
        "sendThreadPoolQueueCapacity", "Sends that may wait for the disk.",
    ),
    "pull_threadpoolqueue_capacity": ("pullThreadPoolQueueCapacity", "RocketMQ's default."),
    "query_threadpool_queue_capacity": ("queryThreadPoolQueueCapacity", "RocketMQ's default."),
    "send_threadpoolqueue_headwait_timemills": (
        "sendThreadPoolQueueHeadWaitTimeMills", "Always 0: there are no pools.",
    ),
    "pull_threadpoolqueue_headwait_timemills": (
        "pullThreadPoolQueueHeadWaitTimeMills", "Always 0: there are no pools.",
    ),
    "query_threadpoolqueue_headwait_timemills": (
        "queryThreadPoolQueueHeadWaitTimeMills", "Always 0: there are no pools.",
    ),
}  # fmt: skip
"""Numbers of the runtime information by the metric's name: the key, and the help."""
_RATES: Final = {
    "put": ("putTps", "Messages stored per second"),
    "getfound": ("getFoundTps", "Pulls per second that found messages"),
    "getmiss": ("getMissTps", "Pulls per second that found nothing"),
    "gettotal": ("getTotalTps", "Pulls per second"),
    "gettransfered": ("getTransferedTps", "Messages pulled per second"),
}
_PUT_TIMES: Final = (
    "0ms", "0to10ms", "10to50ms", "50to100ms", "100to200ms", "200to500ms", "500to1s", "1to2s",
    "2to3s", "3to4s", "4to5s", "5to10s", "10stomore",
)  # fmt: skip


def _runtime_metrics() -> tuple[RuntimeMetric, ...]:
    def declare(name: str, text: str) -> Metric:
        return _metric(f"brokeruntime_{name}", text, _RUNTIME)

    numbers = [
        RuntimeMetric(declare(name, text), key, float) for name, (key, text) in _NUMBERS.items()
    ]
    rates = [
        RuntimeMetric(
            declare(f"{name}_tps{period}", f"{text}, mean of {period} s."), key, _rate(number)
        )
        for name, (key, text) in _RATES.items()
        for period, number in _PERIODS.items()
    ]
    shares = [
        RuntimeMetric(
            declare(f"pmdt_{name}", f"Writes to the commit log in the last minute: {shown}."),
            "putMessageDistributeTime",
            _share(shown),
        )
        for name, shown in zip(_PUT_TIMES, PUT_TIME_NAMES, strict=True)
    ]
    left = RuntimeMetric(
        declare("remain_howmanydata_toflush", "What is not yet on the device, in RocketMQ's unit."),
        "remainHowManyDataToFlush",
        _first,
    )
    return (*numbers, *rates, *shares, left)


RUNTIME_METRICS: Final = _runtime_metrics()
CAPACITY_FREE: Final = _metric(
    "brokeruntime_commitlogdir_capacity_free", "Free bytes for the commit log.", _RUNTIME
)
CAPACITY_TOTAL: Final = Metric(
    "rocketmq_brokeruntime_commitlogdir_capacity_total", Kind.GAUGE,
    "Bytes of the partition of the commit log.", _RUNTIME, has_common=False,
)  # fmt: skip


def collect(parts: BrokerParts, clients: ClientFigures, samples: Samples) -> Steps[None]:
    """Steps that collect the exporter's metrics.

    Args:
      parts: the broker's, with its counters up to date.
      clients: the last figures of the connected consumers.
    """
    yield from _broker(parts, samples)
    yield from _topics(parts, samples)
    yield from _groups(parts, samples)
    yield from _rates_of_groups(parts, samples)
    samples.declare(*CLIENT_METRICS.values())
    for number, (client, figures) in enumerate(list(clients.figures.items())):
        if number % STEP_ITEMS == STEP_ITEMS - 1:
            yield
        for name, value in figures.items():
            metric = CLIENT_METRICS.get(name)
            if metric is not None:
                samples.add(metric, value, *client)


def _place(parts: BrokerParts) -> tuple[str, str]:
    return parts.config.broker_cluster_name, parts.config.broker_name


def _broker(parts: BrokerParts, samples: Samples) -> Steps[None]:
    cluster, name = _place(parts)
    address = parts.foundation.address.broker_addr
    for metric, stats_name in (
        (BROKER_TPS, StatsName.BROKER_PUT_NUMS), (BROKER_QPS, StatsName.BROKER_GET_NUMS),
    ):  # fmt: skip
        item = parts.stats.manager.items(stats_name).get(cluster)
        tps = 0.0 if item is None else item.growth(MINUTE).tps
        samples.add(metric, tps, cluster, address, name)
    samples.declare(COMMITLOG_DIFF)
    for slave in parts.replication.side.status().ha_connection_info:
        samples.add(COMMITLOG_DIFF, slave.diff, cluster, slave.addr, name)
    table = yield from parts.admin.runtime_info.table()
    labels = (
        cluster, address, name, table["brokerVersionDesc"], table["bootTimestamp"],
        table["brokerVersion"],
    )  # fmt: skip
    for runtime in RUNTIME_METRICS:
        samples.add(runtime.metric, runtime.read(table[runtime.key]), *labels)
    try:
        space = parts.store.disk.space(parts.store.config.store_path_root_dir)
    except StoreIOError:
        samples.declare(CAPACITY_FREE, CAPACITY_TOTAL)
        return
    samples.add(CAPACITY_FREE, space.free, *labels)
    samples.add(CAPACITY_TOTAL, space.used + space.free, *labels)


def _topics(parts: BrokerParts, samples: Samples) -> Steps[None]:
    cluster, name = _place(parts)
    samples.declare(PRODUCER_TPS, PRODUCER_SIZE, PRODUCER_OFFSET, RETRY_OFFSET, DLQ_OFFSET)
    for number, config in enumerate(list(parts.tables.topics.topic_config_table.values())):
        if number % STEP_ITEMS == STEP_ITEMS - 1:
            yield
        topic = config.topic_name
        end = sum(
            parts.store.max_offset(topic, queue_id) for queue_id in range(config.write_queue_nums)
        )
        if topic.startswith(RETRY_TOPIC_PREFIX):
            samples.add(RETRY_OFFSET, end, cluster, name, topic)
        elif topic.startswith(DLQ_TOPIC_PREFIX):
            group = topic.removeprefix(DLQ_TOPIC_PREFIX)
            samples.add(DLQ_OFFSET, end, cluster, name, group)
        else:
            samples.add(PRODUCER_OFFSET, end, cluster, name, topic)
            for metric, stats_name in (
                (PRODUCER_TPS, StatsName.TOPIC_PUT_NUMS), (PRODUCER_SIZE, StatsName.TOPIC_PUT_SIZE),
            ):  # fmt: skip
                item = parts.stats.manager.items(stats_name).get(topic)
                if item is not None:
                    samples.add(metric, item.growth(MINUTE).tps, cluster, name, topic)
    samples.declare(PRODUCER_COUNT)
    for number, (group, clients) in enumerate(list(parts.clients.producers.group_table.items())):
        if number % STEP_ITEMS == STEP_ITEMS - 1:
            yield
        samples.add(PRODUCER_COUNT, len(clients), cluster, name, group)


def _groups(parts: BrokerParts, samples: Samples) -> Steps[None]:
    """Counts of consumers, and the progress of all groups that have offsets or are connected."""
    cluster, name = _place(parts)
    samples.declare(
        DIFF, RETRY_DIFF, DLQ_DIFF, GROUP_COUNT, CONSUMER_OFFSET, CONSUME_TOTAL, LATENCY
    )
    now_ms = parts.store.clock.wall_ms()
    connected = parts.clients.consumers.consumer_table
    topics_of = {
        group: set(map(str, topics))
        for group, topics in (yield from parts.tables.offsets.topics_by_group()).items()
    }
    for group, info in list(connected.items()):
        topics_of.setdefault(group, set()).update(info.subscription_table)
    queues = 0  # since the last pause; a group counts, too
    for group, topics in topics_of.items():
        queues += 1
        info_now = connected.get(group)
        count = 0 if info_now is None else len(info_now.channel_info_table)
        samples.add(GROUP_COUNT, count, *_addresses(info_now), group)
        model = "CLUSTERING" if info_now is None else str(info_now.message_model)
        for topic in topics:
            if queues >= QUEUES_PER_STEP:
                queues = 0
                yield
            config = parts.tables.topics.select(topic)
            if config is None:
                continue
            queues += config.read_queue_nums
            lag = yield from lag_of(
                parts.store,
                parts.tables.offsets,
                group,
                topic,
                config.read_queue_nums,
                from_start=True,
            )
            labels = (cluster, name, topic, group)
            samples.add(CONSUMER_OFFSET, lag.consumed, *labels)
            samples.add(CONSUME_TOTAL, lag.consumed, *labels)
            if model != "BROADCASTING":
                age_ms = max(now_ms - lag.oldest_ms, 0) if lag.oldest_ms else 0
                samples.add(LATENCY, age_ms, *labels)
                _add_diff(samples, lag, group, topic, count, _MODELS.get(model, "1"))


def _add_diff(
    samples: Samples, lag: ConsumerLag, group: str, topic: str, count: int, model: str
) -> None:
    metric = DIFF
    if topic.startswith(RETRY_TOPIC_PREFIX):
        metric = RETRY_DIFF
    elif topic.startswith(DLQ_TOPIC_PREFIX):
        metric = DLQ_DIFF
    samples.add(metric, lag.end - lag.consumed, group, topic, str(count), model)


def _addresses(info: ConsumerGroupInfo | None) -> tuple[str, str]:
    """The addresses and the ids of a group's clients, as the exporter joins them."""
    if info is None:
        return "", ""
    clients = sorted(
        (client.channel.remote_address, client.client_id)
        for client in info.channel_info_table.values()
    )[:ADDRESSES_SHOWN_MAX]
    return " ".join(address for address, _ in clients), " ".join(name for _, name in clients)


def _rates_of_groups(parts: BrokerParts, samples: Samples) -> Steps[None]:
    cluster, name = _place(parts)
    samples.declare(CONSUMER_TPS, CONSUME_TPS, CONSUMER_SIZE, SEND_BACK)
    for metrics, stats_name in (
        ((CONSUMER_TPS, CONSUME_TPS), StatsName.GROUP_GET_NUMS),
        ((CONSUMER_SIZE,), StatsName.GROUP_GET_SIZE),
        ((SEND_BACK,), StatsName.SNDBCK_PUT_NUMS),
    ):
        for number, (key, item) in enumerate(list(parts.stats.manager.items(stats_name).items())):
            if number % STEP_ITEMS == STEP_ITEMS - 1:
                yield
            topic, _, group = key.partition(KEY_SEPARATOR)
            growth = item.growth(MINUTE)
            value = growth.sum if stats_name is StatsName.SNDBCK_PUT_NUMS else growth.tps
            for metric in metrics:
                samples.add(metric, value, cluster, name, topic, group)
