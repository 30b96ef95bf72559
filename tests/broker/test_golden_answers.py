"""Recorded requests of Apache's clients and tools, and what Apache's broker answered to each.

Each recorded request is served by a fresh broker that is put into the state that its recorded
answer shows (`PREPARE`); then our answer must be the recorded one: code, remark, ext fields with
their values, and body. What is not compared, and why:

- opaque, version and language: ours are our own;
- the order of members in bodies and of fields in headers;
- what the header's serialization cannot say: a ROCKETMQ header has no empty remark and no empty
  ext fields. Our answer goes through our own codec first, in the request's serialization;
- 5.5.0 is the model: answers of 4.9.7 are first given what 5.5.0 adds (`like_5_5_0`);
- bodies of 21 and 201: the values of timestamps and counters, and which topics there are;
- 46: what is wrong with an expression is said in other words.
"""

from __future__ import annotations

import json

import pytest

from trocket.broker.settings.config import BrokerConfig
from trocket.remoting.bodies import (
    HeartbeatData,
    LockBatchRequestBody,
    LockBatchResponseBody,
    SubscriptionGroupConfig,
    TopicConfig,
    TopicQueueMappingDetail,
)
from trocket.remoting.codec import decode_frame, encode
from trocket.remoting.request_codes import RequestCode

from .harness import BrokerTables, FakeChannel, client, consumer, subscription

FILES = [
    "json-5.5.0.jsonl",
    "rocketmq-5.5.0.jsonl",
    "register-5.5.0.jsonl",
    "json-4.9.7.jsonl",
    "rocketmq-4.9.7.jsonl",
    "register-4.9.7.jsonl",
]


def exchanges(golden, name):
    """Request and answer (None: oneway) of every recorded request that these processors serve."""
    served = BrokerTables().processors
    requests, answers = [], {}
    for line in (golden / "wire" / name).read_text().splitlines():
        record = json.loads(line)
        if record["request_code"] not in served:
            continue
        if record["dir"] == "request" and record["to"].startswith("apache-broker"):
            requests.append(record)
        elif record["dir"] == "response" and record["peer"].startswith("apache-broker"):
            answers[record["pair"]] = record
    for record in requests:
        answer = answers.get(record["pair"])
        if answer is not None or record["oneway"]:
            yield decode(record), None if answer is None else decode(answer)


def decode(record):
    return decode_frame(bytes.fromhex(record["frame_hex"]))


def queue_of(fields):
    return fields["topic"], int(fields["queueId"])


def offset_known(broker, request, answer):
    fields = request.ext_fields
    if answer.code == 0:
        offset = int(answer.ext_fields["offset"])
        broker.offsets.commit_offset(fields["consumerGroup"], *queue_of(fields), offset)


def group_and_topic_known(broker, request, answer):
    if answer.code == 0:
        broker.groups.find(request.ext_fields["consumerGroup"])
        broker.create_topic(request.ext_fields["topic"])


def consumed_queue_known(broker, request, answer):
    group_and_topic_known(broker, request, answer)
    broker.store.queues[queue_of(request.ext_fields)] = (
        0,
        int(request.ext_fields["commitOffset"]),
    )


def members_connected(broker, request, answer):
    if answer.code == 0:
        group = request.ext_fields["consumerGroup"]
        for client_id in json.loads(answer.body)["consumerIdList"]:
            broker.consumers.register(
                consumer(group, subscription("T")), client(FakeChannel(), client_id)
            )


def queue_ends_there(broker, request, answer):
    broker.store.queues[queue_of(request.ext_fields)] = (0, int(answer.ext_fields["offset"]))


def queue_begins_there(broker, request, answer):
    offset = int(answer.ext_fields["offset"])
    broker.store.queues[queue_of(request.ext_fields)] = (offset, offset + 1)


def found_by_time(broker, request, answer):
    offset = int(answer.ext_fields["offset"])
    broker.store.offset_by_time = lambda *question: offset


def earliest_known(broker, request, answer):
    timestamp_ms = int(answer.ext_fields["timestamp"])
    broker.store.earliest_store_time = lambda topic, queue_id: timestamp_ms


def rest_locked_by_another(broker, request, answer):
    body = LockBatchRequestBody.from_body(request.body)
    got = LockBatchResponseBody.from_body(answer.body).lock_ok_mq_set
    rest = [queue for queue in body.mq_set if queue not in got]
    broker.locks.try_lock_batch(
        body.consumer_group, rest, "another", now_s=broker.clock.monotonic_s()
    )


def topic_there(broker, request, answer):
    if answer.code == 0:
        broker.topics.update([TopicConfig.from_body(answer.body)])


def group_there(broker, request, answer):
    broker.groups.update([SubscriptionGroupConfig(group_name="gG")])


PREPARE = {
    RequestCode.QUERY_CONSUMER_OFFSET: offset_known,
    RequestCode.UPDATE_CONSUMER_OFFSET: consumed_queue_known,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: members_connected,
    RequestCode.GET_MAX_OFFSET: queue_ends_there,
    RequestCode.GET_MIN_OFFSET: queue_begins_there,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: found_by_time,
    RequestCode.GET_EARLIEST_MSG_STORETIME: earliest_known,
    RequestCode.LOCK_BATCH_MQ: rest_locked_by_another,
    RequestCode.GET_TOPIC_CONFIG: topic_there,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: group_there,
}


def as_compared(request, answer):
    """Code, remark, ext fields and body of an answer."""
    body = json.loads(answer.body or b"null")
    fields = dict(answer.ext_fields)
    if request.code == RequestCode.GET_ALL_TOPIC_CONFIG:
        fields, body = list(fields), table_form(body, "topicConfigTable")
    elif request.code == RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG:
        fields, body = list(fields), table_form(body, "subscriptionGroupTable")
    return answer.code, answer.remark or None, fields, body


def table_form(body, table):
    """The members of such a body, and those of the table's entries."""
    entries = {(name, frozenset(entry)) for name, entry in body.pop(table).items()}
    assert all(entry for _, entry in entries)
    return sorted(body), {members for _, members in entries}


def like_5_5_0(request, answer):
    """A recorded answer of 4.9.7 as 5.5.0 gives it."""
    code, remark, fields, body = as_compared(request, answer)
    if request.code == RequestCode.HEART_BEAT:
        fields = {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"}
    if request.code == RequestCode.GET_ALL_TOPIC_CONFIG:
        fields = ["totalTopicNum"]
        names, entries = body
        mappings = ["mappingDataVersion", "topicQueueMappingDetailMap", "topicQueueMappingInfoMap"]
        body = sorted([*names, *mappings]), {members | {"attributes"} for members in entries}
    if request.code == RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG:
        fields = ["totalGroupNum"]
        names, entries = body
        later = {
            "attributes", "consumeMessageOrderly", "consumeTimeoutMinute", "groupRetryPolicy",
            "groupSysFlag",
        }  # fmt: skip
        body = sorted([*names, "forbiddenTable"]), {members | later for members in entries}
    return code, remark, fields, body


def addressed(request):
    """The broker that a recorded request was sent to, as far as its answer depends on it."""
    if request.code == RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC:
        return TopicQueueMappingDetail.from_body(request.body).bname
    return "broker-a"


@pytest.mark.parametrize("name", FILES)
def test_the_answer_to_every_recorded_request_is_the_recorded_one(golden, name):
    compared = {}
    for request, recorded in exchanges(golden, name):
        broker = BrokerTables(
            BrokerConfig(broker_name=addressed(request), enable_property_filter=True)
        )
        if recorded is None:
            assert broker.handle(request).code in (0, 26)
            continue
        prepare = PREPARE.get(RequestCode(request.code))
        if prepare is not None:
            prepare(broker, request, recorded)
        answer = broker.handle(request)
        assert (answer.opaque, answer.flag, answer.serialize_type) == (
            request.opaque,
            1,
            request.serialize_type,
        )
        model = like_5_5_0 if recorded.version < 500 else as_compared
        ours = as_compared(request, decode_frame(encode(answer)))
        if request.code == RequestCode.CHECK_CLIENT_CONFIG and recorded.code:
            assert (ours[0], bool(ours[1])) == (recorded.code, bool(recorded.remark))
            continue
        assert ours == model(request, recorded), RequestCode(request.code).name
        compared[request.code] = compared.get(request.code, 0) + 1
    least = 3 if name.startswith("register") else 12
    assert len(compared) >= least, compared


def test_the_empty_remark_of_31_and_empty_ext_fields_are_the_recorded_ones(golden):
    """What `as_compared` lets pass, in the one serialization that can tell."""
    seen = set()
    for request, recorded in exchanges(golden, "json-5.5.0.jsonl"):
        prepare = PREPARE.get(RequestCode(request.code))
        if recorded is None or request.code == RequestCode.CHECK_CLIENT_CONFIG:
            continue
        broker = BrokerTables()
        if prepare is not None:
            prepare(broker, request, recorded)
        answer = decode_frame(encode(broker.handle(request)))
        assert (answer.remark, type(answer.ext_fields)) == (
            recorded.remark,
            type(recorded.ext_fields),
        ), RequestCode(request.code).name
        seen.add(request.code)
    assert {14, 15, 31, 35, 38} <= seen


def test_heartbeats_that_were_recorded_are_read_whole(golden):
    read = 0
    for name in FILES:
        for request, _ in exchanges(golden, name):
            if request.code == RequestCode.HEART_BEAT:
                broker = BrokerTables()
                broker.handle(request)
                data = HeartbeatData.from_body(request.body)
                groups = {item.group_name for item in data.consumer_data_set}
                assert set(broker.consumers.consumer_table) == groups
                for item in data.consumer_data_set:
                    for wanted in item.subscription_data_set:
                        found = broker.consumers.find_subscription_data(
                            item.group_name, wanted.topic
                        )
                        assert found.code_set == wanted.code_set
                assert set(broker.producers.group_table) == {
                    item.group_name for item in data.producer_data_set
                }
                read += 1
    assert read >= 20
