"""Scripts for statistics and look-ups of administrators."""

from __future__ import annotations

from functools import partial

from ...remoting.codec import SerializeType
from ...remoting.request_codes import RequestCode as Code
from .builders import (
    CLUSTER,
    Names,
    bad,
    create_group,
    create_topic,
    heartbeat_body,
    properties,
    refused,
    send_fields,
    subscription,
    unique_key,
)
from .normalise import (
    clock,
    counts,
    forms,
    offset_ids,
    only,
    physical_offsets,
    place,
    rates,
    sizes,
    unordered,
    without,
)
from .request import BodyKind, FieldValue, Request, Script, Step

RUNTIME_FORMS = (
    "bootTimestamp", "runtime", "commitLogDirCapacity", "commitLogMaxOffset",
    "pageCacheLockTimeMills", "msgPutTotalTodayNow", "sendThreadPoolQueueCapacity",
)  # fmt: skip
"""Strings of 28 whose forms are compared; rates are empty with Apache's in the first minute."""


UNREAD_FIELD: tuple[str, dict[str, FieldValue]] = ("with a field that is not read", {"x": "y"})
"""The only mistake that a request without fields allows: a name, and the field."""

OWN_TOPICS = (
    "CHECKPOINT_TOPIC", "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC",
    "rmq_sys_SYNC_BROKER_MEMBER_broker-a", "rmq_sys_REVIVE_LOG_DefaultCluster",
    "rmq_sys_wheel_timer",
)  # fmt: skip
"""System topics of parts that 4.9.7, or trocket, does not have."""


def statistics(header: SerializeType) -> Script:
    """Offsets, times and counters of a topic with two messages, one of them consumed."""
    names = Names("statistics", header)
    topic, group = names("topic"), names("group")
    text = properties(UNIQ_KEY=unique_key(names, 1))
    queue: dict[str, FieldValue] = {"topic": topic, "queueId": 0}
    mine: dict[str, FieldValue] = {"topic": topic, "consumerGroup": group}
    commit = partial(Request, code=Code.UPDATE_CONSUMER_OFFSET)
    json = partial(Request, body_kind=BodyKind.JSON)
    of_topic = json(
        name="two messages", code=Code.GET_TOPIC_STATS_INFO, fields={"topic": topic},
        normalisers=(
            clock("body.offsetTable.*.lastUpdateTimestamp"), without("topicPutTps", "body"),
        ),
    )  # fmt: skip
    progress = partial(
        json, code=Code.GET_CONSUME_STATS,
        normalisers=(
            clock("body.offsetTable.*.lastTimestamp"), rates("body.consumeTps"),
            without("pullOffset", "body.offsetTable.*"),
        ),
    )  # fmt: skip
    steps: tuple[Step, ...] = (
        create_topic(topic),
        create_group(group),
        *(
            Request(f"message {number}", Code.SEND_MESSAGE_V2, send_fields(topic, text), b"x",
                    normalisers=(offset_ids("fields.msgId"),))
            for number in range(2)
        ),
        Request("two messages", Code.GET_MAX_OFFSET, queue,
                until=lambda a: a.ext_fields.get("offset") == "2"),
        commit(name="one message", fields={**mine, "queueId": 0, "commitOffset": 1}),
        commit(name="an empty queue", fields={**mine, "queueId": 1, "commitOffset": 0}),
        of_topic,
        progress(name="of a topic", fields=mine),
        progress(name="of all topics", fields={"consumerGroup": group}),
        json(name="one message is consumed", code=Code.QUERY_CONSUME_TIME_SPAN,
             fields={"topic": topic, "group": group},
             normalisers=(
                 clock("body.consumeTimeSpanSet.*.minTimeStamp"),
                 clock("body.consumeTimeSpanSet.*.maxTimeStamp"),
                 clock("body.consumeTimeSpanSet.*.consumeTimeStamp"),
                 counts("body.consumeTimeSpanSet.*.delayTime"),
                *(without(f"{name}TimeStampStr", "body.consumeTimeSpanSet.*")
                  for name in ("min", "max", "consume")),
             )),
        *_of_all_groups(group),
        *_units(names, topic),
        json(name="stored messages", code=Code.VIEW_BROKER_STATS_DATA,
             fields={"statsName": "TOPIC_PUT_NUMS", "statsKey": topic},
             normalisers=(rates("body.*.*"),)),
        json(name="stored messages of a queue", code=Code.VIEW_BROKER_STATS_DATA,
             fields={"statsName": "QUEUE_PUT_NUMS", "statsKey": f"{topic}@0"},
             normalisers=(rates("body.*.*"),)),
        json(name="the latency of a queue", code=Code.VIEW_BROKER_STATS_DATA, since="5.0.0",
             fields={"statsName": "TOPIC_PUT_LATENCY", "statsKey": f"0@{topic}"},
             normalisers=(rates("body.*.*"),)),
        json(name="of the cluster", code=Code.VIEW_BROKER_STATS_DATA,
             fields={"statsName": "BROKER_PUT_NUMS", "statsKey": CLUSTER},
             normalisers=(rates("body.*.*"),)),
        json(name="all", code=Code.GET_BROKER_RUNTIME_INFO,
             normalisers=(forms("body.table", *RUNTIME_FORMS),)),
        json(name=UNREAD_FIELD[0], code=Code.GET_BROKER_RUNTIME_INFO, fields=UNREAD_FIELD[1],
             erroneous=True,
             normalisers=(forms("body.table", *RUNTIME_FORMS),)),
        *_refused(names, mine),
    )  # fmt: skip
    return Script("statistics", header, steps)


def rocksdb(header: SerializeType) -> Script:
    """Requests about RocksDB, at brokers with files."""
    names = Names("rocksdb", header)
    check = partial(Request, code=Code.CHECK_ROCKSDB_CQ_WRITE_PROGRESS, body_kind=BodyKind.JSON)
    export = Code.EXPORT_ROCKSDB_CONFIG_TO_JSON
    steps: tuple[Step, ...] = (
        check(name="of a topic", fields={"topic": names("topic"), "checkStoreTime": 0}),
        check(name="without a topic", erroneous=True),
        Request("all", export, {"configType": "topics;subscriptionGroups;consumerOffsets;"}),
        Request("in another case", export, {"configType": "TOPICS"}),
        refused("an unknown table", export, {"configType": "topics;queues"}),
        refused("without tables", export),
    )
    return Script("RocksDB", header, steps)


def _units(names: Names, topic: str) -> tuple[Request, ...]:
    """The units of a queue with two messages."""
    query = partial(
        Request, code=Code.QUERY_CONSUME_QUEUE, body_kind=BodyKind.JSON,
        normalisers=(
            physical_offsets("body.queueData.*.physicOffset"),
            sizes("body.queueData.*.physicSize"),
        ),
    )  # fmt: skip
    connected = names("connected")
    queue: dict[str, FieldValue] = {"topic": topic, "queueId": 0, "index": 0, "count": 10}
    return (
        query(name="two messages", fields=queue),
        query(name="the second message", fields={**queue, "index": 1, "count": 1}),
        query(name="of a group that is not connected",
              fields={**queue, "consumerGroup": names("group")}),
        Request("a consumer", Code.HEART_BEAT, connection="one",
                body=heartbeat_body(names("one"), group=connected,
                                    subscriptions=(subscription(topic),))),
        query(name="of a group that is connected", fields={**queue, "consumerGroup": connected}),
        query(name="past the end", fields={**queue, "index": 9}, erroneous=True,
              body_kind=BodyKind.BYTES, normalisers=()),
        query(name="without a queue", fields={"topic": topic}, erroneous=True),
    )  # fmt: skip


def _of_all_groups(group: str) -> tuple[Request, ...]:
    """The progress of all groups, of which only one is compared."""
    every = partial(
        Request, code=Code.GET_BROKER_CONSUME_STATS, body_kind=BodyKind.JSON,
        normalisers=(
            only(group, "body.consumeStatsList"), rates("body.totalDiff"),
            clock(f"body.consumeStatsList.*.{group}.*.offsetTable.*.lastTimestamp"),
            rates(f"body.consumeStatsList.*.{group}.*.consumeTps"),
            without("totalInflightDiff", "body"),
            without("pullOffset", f"body.consumeStatsList.*.{group}.*.offsetTable.*"),
        ),
    )  # fmt: skip
    return (
        every(name="all groups", fields={"isOrder": False}),
        every(name="all groups, ordered topics", fields={"isOrder": True}),
        every(name="without an order", fields={}, erroneous=True),
    )


def _refused(names: Names, mine: dict[str, FieldValue]) -> tuple[Request, ...]:
    missing = names("missing")
    span, view = Code.QUERY_CONSUME_TIME_SPAN, Code.VIEW_BROKER_STATS_DATA
    empty = (rates("body.consumeTps"),)
    return (
        bad("an unknown topic", Code.GET_TOPIC_STATS_INFO, {"topic": missing}, expect=17),
        refused("without a topic", Code.GET_TOPIC_STATS_INFO),
        bad("an unknown group", Code.GET_CONSUME_STATS, {"consumerGroup": missing},
            body_kind=BodyKind.JSON, normalisers=empty),
        bad("an unknown topic", Code.GET_CONSUME_STATS, {**mine, "topic": missing},
            body_kind=BodyKind.JSON, normalisers=empty),
        refused("without a group", Code.GET_CONSUME_STATS),
        bad("an unknown topic", span, {"topic": missing, "group": names("group")},
            expect=17),
        refused("without a group", span, {"topic": names("topic")}),
        bad("an unknown counter", view, {"statsName": "X", "statsKey": "y"}, expect=1),
        bad("an unknown key", view, {"statsName": "TOPIC_PUT_NUMS", "statsKey": missing},
            expect=1),
        refused("without a key", view, {"statsName": "TOPIC_PUT_NUMS"}),
    )  # fmt: skip


def look_ups(header: SerializeType) -> Script:
    """Topics, subscriptions and offsets of a group, and connected producers."""
    names = Names("grouplookups", header)
    topic, group, other, producers = names("topic"), names("group"), names("other"), names("prod")
    json = partial(Request, body_kind=BodyKind.JSON)
    producers_of = partial(
        json, code=Code.GET_ALL_PRODUCER_INFO, since="4.9.5",
        normalisers=(
            only(producers, "body.data"), place("body.data.*.*.remoteIP"),
            clock("body.data.*.*.lastUpdateTimestamp"),
        ),
    )  # fmt: skip
    system_topics = partial(
        json, code=Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
        normalisers=(
            unordered("body.topicList"),
            *(without(name, "body.topicList") for name in OWN_TOPICS),
        ),
    )  # fmt: skip
    commit = {"topic": topic, "consumerGroup": group, "queueId": 0, "commitOffset": 0}
    clone = {"srcGroup": group, "destGroup": other, "topic": topic, "offline": True}
    correct = {"topic": topic, "compareGroup": group}
    steps: tuple[Step, ...] = (
        create_topic(topic),
        create_group(group),
        create_group(other, "another group"),
        Request("a producer", Code.HEART_BEAT,
                body=heartbeat_body(names("one"), group=names("cg"), producer=producers),
                connection="one"),
        *(
            producers_of(name=name, fields=fields, erroneous=bool(fields))
            for name, fields in (("one producer", {}), UNREAD_FIELD)
        ),
        *(
            system_topics(name=name, fields=fields, erroneous=bool(fields))
            for name, fields in (("all", {}), UNREAD_FIELD)
        ),
        Request("an offset", Code.UPDATE_CONSUMER_OFFSET, commit),
        json(name="of a group", code=Code.QUERY_TOPICS_BY_CONSUMER, fields={"group": group}),
        json(name="a group without members", code=Code.QUERY_SUBSCRIPTION_BY_CONSUMER,
             fields={"group": group, "topic": topic}),
        json(name="of two groups", code=Code.QUERY_CORRECTION_OFFSET, fields=correct),
        Request("to another group", Code.CLONE_GROUP_OFFSET, clone),
        Request("a cloned offset", Code.QUERY_CONSUMER_OFFSET,
                {"topic": topic, "consumerGroup": other, "queueId": 0,
                 "setZeroIfNotFound": False}),
        bad("an unknown group", Code.QUERY_TOPICS_BY_CONSUMER,
            {"group": names("missing")}, body_kind=BodyKind.JSON),
        refused("without a group", Code.QUERY_TOPICS_BY_CONSUMER),
        bad("an unknown group", Code.QUERY_SUBSCRIPTION_BY_CONSUMER,
            {"group": names("missing"), "topic": topic}, body_kind=BodyKind.JSON),
        refused("without a group", Code.QUERY_SUBSCRIPTION_BY_CONSUMER, {"topic": topic}),
        bad("an unknown topic", Code.QUERY_CORRECTION_OFFSET,
            {**correct, "topic": names("missing")}, body_kind=BodyKind.JSON),
        refused("without a group", Code.QUERY_CORRECTION_OFFSET, {"topic": topic}),
        bad("an unknown group", Code.CLONE_GROUP_OFFSET,
            {**clone, "srcGroup": names("missing")}),
        refused("without a target", Code.CLONE_GROUP_OFFSET, {"srcGroup": group}),
    )  # fmt: skip
    return Script("group look-ups", header, steps)


def cleaning(header: SerializeType) -> Script:
    """Deletion of what has expired, and of queues of unknown topics: there are none."""
    names = Names("cleaning", header)
    steps: tuple[Step, ...] = (
        create_topic(names("topic")),
        *(
            Request(name, code, fields, erroneous=bool(fields))
            for code in (
                Code.CLEAN_EXPIRED_CONSUMEQUEUE,
                Code.CLEAN_UNUSED_TOPIC,
                Code.DELETE_EXPIRED_COMMITLOG,
            )
            for name, fields in (("at once", {}), UNREAD_FIELD)
        ),
    )
    return Script("cleaning", header, steps)


SCRIPTS = (statistics, look_ups, cleaning, rocksdb)
"""Each creates a script for one kind of header."""
