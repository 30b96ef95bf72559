"""Scripts for consumer groups: administration, offsets and locks."""

from __future__ import annotations

from functools import partial

from ...remoting.codec import SerializeType
from ...remoting.request_codes import RequestCode as Code
from .builders import (
    Names,
    bad,
    create_group,
    create_topic,
    heartbeat_body,
    json_body,
    properties,
    pull_fields,
    pull_until,
    refused,
    send_fields,
    subscription,
    unique_key,
)
from .normalise import clock, counts, data_versions, offset_ids, only, unordered
from .request import BodyKind, FieldValue, Request, Script


def groups(header: SerializeType) -> Script:
    """Groups are created, changed, listed and deleted."""
    names = Names("groups", header)
    group, topic = names("plain"), names("topic")
    one = partial(Request, code=Code.GET_SUBSCRIPTIONGROUP_CONFIG, body_kind=BodyKind.JSON)
    create = Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    several = Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
    delete, every_code = Code.DELETE_SUBSCRIPTIONGROUP, Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
    every = partial(
        Request,
        code=every_code,
        body_kind=BodyKind.JSON,
        normalisers=(
            only(names.prefix, "body.subscriptionGroupTable", "body.forbiddenTable"),
            data_versions("body.dataVersion"),
            counts("fields.totalGroupNum"),
        ),
    )
    listed = [{"groupName": names("list1")}, {"groupName": names("list2"), "retryMaxTimes": 3}]
    mixed = [{"groupName": names("list3")}, {"groupName": "a b"}]
    page = {"groupSeq": 0, "dataVersion": "", "maxGroupNum": 2000}
    offset = {"consumerGroup": group, "topic": topic, "queueId": 0}
    steps = (
        create_group(group, "a group"),
        one(name="a group", fields={"group": group}),
        create_group(group, "a change", retryMaxTimes=5, consumeBroadcastEnable=False),
        one(name="a group that was changed", fields={"group": group}),
        refused("an attribute that nobody knows", create,
                body=json_body({"groupName": names("attr"), "attributes": {"+x": "1"}})),
        Request("two groups", several, body=json_body({"groupConfigList": listed}), since="5.3.0"),
        one(name="one of a list", fields={"group": names("list2")}),
        every(name="at once"),
        every(name="a page beyond the end", fields={**page, "groupSeq": 99_999}, erroneous=True),
        every(name="a page", fields=page),
        every(name="a version that is no JSON", fields={**page, "dataVersion": "{"},
              erroneous=True, since="5.5.0"),
        bad("an illegal group among them", several, body=json_body({"groupConfigList": mixed}),
            expect=29, since="5.3.0"),
        one(name="one before an illegal group", fields={"group": names("list3")}),
        refused("a body that is no JSON", several, body=b"{", since="5.3.0"),
        bad("an illegal name", create, body=json_body({"groupName": "a b"}), expect=29),
        bad("a name too long", create, body=json_body({"groupName": "g" * 300}), expect=29),
        bad("no name", create, body=b"{}", expect=29),
        refused("a body that is no JSON", create, body=b"{"),
        bad("no body", create),
        one(name="a group that is not there", fields={"group": names("missing")}),
        bad("a group with an illegal name", Code.GET_SUBSCRIPTIONGROUP_CONFIG,
            {"group": "a b"}, expect=26),
        every(name="with the one that was asked for"),
        refused("without a group", Code.GET_SUBSCRIPTIONGROUP_CONFIG),
        create_topic(topic),
        Request("for a group", Code.UPDATE_CONSUMER_OFFSET, {**offset, "commitOffset": 0}),
        Request("with its offsets", delete, {"groupName": group, "cleanOffset": True}),
        bad("of a group that was deleted", Code.QUERY_CONSUMER_OFFSET,
            {**offset, "setZeroIfNotFound": False}, expect=22),
        Request("a group", delete, {"groupName": names("list1")}),
        bad("a group that is not there", delete, {"groupName": names("missing")}),
        refused("without a name", delete),
    )  # fmt: skip
    return Script("groups", header, steps)


def forbidden(header: SerializeType) -> Script:
    """A group is forbidden one topic, and allowed it again."""
    names = Names("forbidden", header)
    group, topic, client_id = names("group"), names("topic"), names("one")
    mine: dict[str, FieldValue] = {"group": group, "topic": topic}
    forbid = partial(Request, code=Code.UPDATE_AND_GET_GROUP_FORBIDDEN, body_kind=BodyKind.JSON)
    wrong = partial(forbid, erroneous=True)
    body = heartbeat_body(client_id, group=group, subscriptions=(subscription(topic),))
    pull = pull_fields(group, topic, sysFlag=0)
    text = properties(UNIQ_KEY=unique_key(names, 1))
    steps = (
        create_topic(topic),
        create_group(group),
        Request("a consumer", Code.HEART_BEAT, body=body, connection="one"),
        Request("a message", Code.SEND_MESSAGE_V2, send_fields(topic, text), b"x",
                normalisers=(offset_ids("fields.msgId"),)),
        forbid(name="only asked", fields=mine),
        forbid(name="forbidden", fields={**mine, "readable": False}),
        forbid(name="asked again", fields=mine),
        bad("of a group that is forbidden the topic", Code.PULL_MESSAGE, pull, expect=16,
            since="5.0.0", connection="one"),
        forbid(name="allowed", fields={**mine, "readable": True}),
        pull_until(group, topic, "of a group that is allowed again", 1, sysFlag=0),
        wrong(name="an unknown group and topic",
              fields={"group": names("missing"), "topic": names("nowhere")}),
        wrong(name="neither true nor false", fields={**mine, "readable": "maybe"}),
        refused("without a group", Code.UPDATE_AND_GET_GROUP_FORBIDDEN, {"topic": topic}),
        refused("without a topic", Code.UPDATE_AND_GET_GROUP_FORBIDDEN, {"group": group}),
    )  # fmt: skip
    return Script("forbidden topics", header, steps)


def offsets(header: SerializeType) -> Script:
    names = Names("offsets", header)
    topic, group = names("topic"), names("group")
    queue: dict[str, FieldValue] = {"topic": topic, "queueId": 0}
    nowhere: dict[str, FieldValue] = {"topic": names("missing"), "queueId": 0}
    mine: dict[str, FieldValue] = {**queue, "consumerGroup": group}
    query, update = Code.QUERY_CONSUMER_OFFSET, Code.UPDATE_CONSUMER_OFFSET
    most, least = Code.GET_MAX_OFFSET, Code.GET_MIN_OFFSET
    by_time, earliest = Code.SEARCH_OFFSET_BY_TIMESTAMP, Code.GET_EARLIEST_MSG_STORETIME
    text = properties(UNIQ_KEY=unique_key(names, 1))
    at = partial(Request, code=by_time)
    steps = (
        create_topic(topic),
        create_group(group),
        *(
            Request(f"message {number}", Code.SEND_MESSAGE_V2, send_fields(topic, text), b"x",
                    normalisers=(offset_ids("fields.msgId"),))
            for number in range(3)
        ),
        Request("three messages", most, queue, until=lambda a: a.ext_fields.get("offset") == "3"),
        Request("what is written", most, {**queue, "committed": False}),
        Request("three messages", least, queue),
        at(name="the beginning", fields={**queue, "timestamp": 0}),
        at(name="the end", fields={**queue, "timestamp": 4_000_000_000_000}),
        at(name="the end, upper", fields={**queue, "timestamp": 4_000_000_000_000,
                                          "boundaryType": "UPPER"}),
        at(name="the beginning, lower", fields={**queue, "timestamp": 1,
                                                "boundaryType": "LOWER"}),
        Request("three messages", earliest, queue, normalisers=(clock("fields.timestamp"),)),
        Request("never committed, new", query, mine),
        bad("never committed", query, {**mine, "setZeroIfNotFound": False}, expect=22),
        Request("an offset", update, {**mine, "commitOffset": 2}),
        Request("an offset", query, mine),
        Request("oneway", update, {**mine, "commitOffset": 3}, oneway=True, expect=None),
        Request("an offset of a oneway commit", query, mine,
                until=lambda a: a.ext_fields.get("offset") == "3"),
        bad("a queue without messages", earliest, {**queue, "queueId": 1}),
        *(bad("a queue that is not there", code, {**queue, "queueId": 9, **more})
          for code, more in ((most, {}), (least, {}), (by_time, {"timestamp": 0}), (earliest, {}))),
        *(bad("a topic that nobody knows", code, {**nowhere, **more})
          for code, more in ((most, {}), (least, {}), (by_time, {"timestamp": 0}), (earliest, {}))),
        *(refused("without a queue", code, {"topic": topic, "timestamp": 0})
          for code in (most, least, by_time, earliest)),
        *_refused_offsets(names, mine),
    )  # fmt: skip
    return Script("offsets", header, steps)


def _refused_offsets(names: Names, mine: dict[str, FieldValue]) -> tuple[Request, ...]:
    query, update = Code.QUERY_CONSUMER_OFFSET, Code.UPDATE_CONSUMER_OFFSET
    wrong = partial(bad, code=update)
    nowhere = {**mine, "topic": names("missing")}
    return (
        bad("a topic that nobody knows", query, {**nowhere, "setZeroIfNotFound": False}, expect=22),
        bad("a group that nobody knows", query,
            {**mine, "consumerGroup": names("missing"), "setZeroIfNotFound": False}, expect=22),
        refused("without a group", query, {"topic": "t", "queueId": 0}),
        wrong("a topic that nobody knows", fields={**nowhere, "commitOffset": 1}, expect=17),
        wrong("a group that nobody knows",
              fields={**mine, "consumerGroup": names("missing"), "commitOffset": 1}, expect=26),
        wrong("a queue that is not there", fields={**mine, "queueId": 9, "commitOffset": 1}),
        wrong("a negative offset", fields={**mine, "commitOffset": -3}),
        refused("without an offset", update, mine),
    )  # fmt: skip


def locks(header: SerializeType) -> Script:
    """Queues that clients lock for consuming in order."""
    names = Names("locks", header)
    lock, unlock = Code.LOCK_BATCH_MQ, Code.UNLOCK_BATCH_MQ
    held = partial(
        Request,
        code=lock,
        body_kind=BodyKind.JSON,
        normalisers=(unordered("body.lockOKMQSet"),),
    )

    def body(client: str, *queue_ids: int) -> bytes:
        queues = [
            {"brokerName": "broker-a", "queueId": queue_id, "topic": names("topic")}
            for queue_id in queue_ids
        ]
        client_id = names(client)
        members = {"clientId": client_id, "consumerGroup": names("group"), "mqSet": queues}
        return json_body({**members, "onlyThisBroker": False})

    steps = (
        held(name="two queues", body=body("one", 0, 1)),
        held(name="again", body=body("one", 0)),
        held(name="one of another's", body=body("two", 1, 2), erroneous=True),
        Request("a queue", unlock, body=body("one", 1)),
        held(name="a queue that was given back", body=body("two", 1)),
        bad("another's queue", unlock, body=body("two", 0)),
        held(name="still another's", body=body("two", 0), erroneous=True),
        Request("oneway", unlock, body=body("one", 0), oneway=True, expect=None),
        held(
            name="after a oneway unlock",
            body=body("two", 0),
            until=lambda answer: b'"queueId":0' in answer.body,
        ),
        held(name="no queues", body=body("one"), erroneous=True),
        refused("a body that is no JSON", lock, body=b"{"),
        refused("no body", lock),
        refused("a body that is no JSON", unlock, body=b"{"),
        refused("no body", unlock),
    )
    return Script("locks", header, steps)


SCRIPTS = (groups, forbidden, offsets, locks)
"""Each creates a script for one kind of header."""
