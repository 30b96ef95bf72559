"""Scripts that play clients: heartbeats, notifications, and requests from the broker."""

from __future__ import annotations

from functools import partial

from ...remoting.codec import SerializeType
from ...remoting.request_codes import RequestCode as Code
from .builders import (
    BORN_MS,
    Names,
    bad,
    create_group,
    create_topic,
    heartbeat_body,
    json_body,
    properties,
    refused,
    send_fields,
    subscription,
    unique_key,
)
from .normalise import clock, java_exception_text, offset_ids, physical_offsets, unordered
from .request import BodyKind, ClientAnswer, FromServer, Request, Script, Step, answer_field

STATE = json_body({"properties": {"PROP_CLIENT_VERSION": "V5_5_0"}, "subscriptionSet": []})
OFFSETS = b'{"messageQueueTable":{{"topic":"T","brokerName":"broker-a","queueId":1}:5}}'
DIRECTLY = json_body({"autoCommit": True, "consumeResult": "CR_SUCCESS", "spentTimeMills": 3})


def clients(header: SerializeType) -> Script:
    """Two consumers of a group and a producer register, are listed and leave."""
    names = Names("clients", header)
    topic, group, producers = names("topic"), names("group"), names("producers")
    one, two = names("one"), names("two")
    wanted = (subscription(topic, "A || B"),)
    beat = partial(Request, code=Code.HEART_BEAT)
    members = partial(
        Request,
        code=Code.GET_CONSUMER_LIST_BY_GROUP,
        fields={"consumerGroup": group},
        body_kind=BodyKind.JSON,
        normalisers=(unordered("body.consumerIdList"),),
    )
    connections = partial(
        Request,
        code=Code.GET_CONSUMER_CONNECTION_LIST,
        fields={"consumerGroup": group},
        body_kind=BodyKind.JSON,
        normalisers=(
            unordered(
                "body.connectionSet",
                "body.subscriptionTable.*.codeSet",
                "body.subscriptionTable.*.tagsSet",
            ),
        ),
    )
    changed = partial(FromServer, code=Code.NOTIFY_CONSUMER_IDS_CHANGED, connection="one")
    first = heartbeat_body(one, group=group, subscriptions=wanted)
    steps: tuple[Step, ...] = (
        create_topic(topic),
        create_group(group),
        beat(name="a consumer", body=first, connection="one"),
        beat(name="the same again", body=first, connection="one"),
        members(name="one client"),
        beat(
            name="a second consumer",
            body=heartbeat_body(two, group=group, subscriptions=wanted, producer=producers),
            connection="two",
        ),
        changed(name="a second member"),
        members(name="two clients"),
        connections(name="two clients"),
        Request("a producer", Code.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": producers},
                body_kind=BodyKind.JSON),
        Request("a topic", Code.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": topic},
                body_kind=BodyKind.JSON, normalisers=(unordered("body.groupList"),)),
        Request("a second consumer", Code.UNREGISTER_CLIENT,
                {"clientID": two, "consumerGroup": group, "producerGroup": producers},
                connection="two"),
        changed(name="a member that left"),
        members(name="the other one left"),
        *_refused(names, group),
    )  # fmt: skip
    return Script("clients", header, steps)


def _refused(names: Names, group: str) -> tuple[Request, ...]:
    who = Code.QUERY_TOPIC_CONSUME_BY_WHO
    list_code, unregister = Code.GET_CONSUMER_LIST_BY_GROUP, Code.UNREGISTER_CLIENT
    missing = {"consumerGroup": names("missing")}
    producer = Code.GET_PRODUCER_CONNECTION_LIST
    illegal = heartbeat_body(names("x"), group="a b")
    return (
        refused("a body that is no JSON", Code.HEART_BEAT, body=b"{"),
        refused("no body", Code.HEART_BEAT),
        bad("an illegal group", Code.HEART_BEAT, body=illegal, connection="other"),
        bad("a group that nobody knows", list_code, missing, expect=1),
        refused("without a group", list_code),
        bad("a group that nobody knows", Code.GET_CONSUMER_CONNECTION_LIST, missing, expect=206),
        refused("without a group", Code.GET_CONSUMER_CONNECTION_LIST),
        bad("a group that nobody knows", producer, {"producerGroup": names("missing")}, expect=1),
        refused("without a group", producer),
        bad("a topic that nobody knows", who, {"topic": names("missing")}, body_kind=BodyKind.JSON),
        refused("without a topic", who),
        bad("a client that nobody knows", unregister,
            {"clientID": names("missing"), "consumerGroup": group}, connection="other"),
        refused("without a client", unregister, {"consumerGroup": group}),
    )  # fmt: skip


def checked(header: SerializeType) -> Script:
    """Subscriptions that a client has the broker check before it starts."""
    names = Names("checked", header)
    code = Code.CHECK_CLIENT_CONFIG

    def body(expression: str, kind: str) -> bytes:
        wanted = subscription(names("topic"), expression, expressionType=kind)
        return json_body(
            {"clientId": names("one"), "group": names("group"), "subscriptionData": wanted}
        )

    steps: tuple[Step, ...] = (
        Request("tags", code, body=body("A || B", "TAG")),
        Request("an expression", code, body=body("a > 1 AND b IS NOT NULL", "SQL92")),
        bad("a wrong expression", code, body=body("a >", "SQL92"), expect=23),
        bad("a type that nobody knows", code, body=body("a", "XPATH"), expect=23),
        refused("a body that is no JSON", code, body=b"{"),
        bad("no body", code),
    )
    return Script("checked subscriptions", header, steps)


def asked(header: SerializeType) -> Script:
    """A consumer that an administrator reaches through the broker."""
    names = Names("asked", header)
    topic, group, client_id = names("topic"), names("group"), names("one")
    run, directly = Code.GET_CONSUMER_RUNNING_INFO, Code.CONSUME_MESSAGE_DIRECTLY
    reset = Code.INVOKE_BROKER_TO_RESET_OFFSET
    body = heartbeat_body(client_id, group=group, subscriptions=(subscription(topic),))
    who = {"consumerGroup": group, "clientId": client_id}
    one_message = {**who, "msgId": answer_field("first", "msgId"), "brokerName": "broker-a"}
    from_server = partial(FromServer, connection="one")
    text = properties(UNIQ_KEY=unique_key(names, 1))
    place = {"group": group, "topic": topic, "timestamp": BORN_MS, "isForce": True}
    committed = {"consumerGroup": group, "topic": topic, "commitOffset": 1}
    message = (
        offset_ids("fields.msgId"),
        clock("body.*.store_timestamp_ms"),
        physical_offsets("body.*.physical_offset"),
    )
    status, of_client = (
        Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, Code.GET_CONSUMER_STATUS_FROM_CLIENT,
    )  # fmt: skip
    telling = from_server(name="of each", code=of_client, answer=ClientAnswer(body=OFFSETS))
    one_tells = from_server(name="of one", code=of_client, answer=ClientAnswer(body=OFFSETS))
    refusing = from_server(name="refused", code=of_client, answer=ClientAnswer(code=3))
    running = from_server(name="of a client", code=run, answer=ClientAnswer(body=STATE))
    steps: tuple[Step, ...] = (
        create_topic(topic),
        create_group(group),
        Request("a consumer", Code.HEART_BEAT, body=body, connection="one"),
        Request("first", Code.SEND_MESSAGE_V2, send_fields(topic, text), b"1",
                normalisers=(offset_ids("fields.msgId"),)),
        Request("by the broker", run, {**who, "jstackEnable": False}, body_kind=BodyKind.JSON,
                meanwhile=(running,)),
        Request("by the broker", directly, one_message, body_kind=BodyKind.JSON, meanwhile=(
            from_server(name="at a client", code=directly, answer=ClientAnswer(body=DIRECTLY),
                        body_kind=BodyKind.RECORDS, normalisers=message),
        )),
        Request("queue 0", Code.UPDATE_CONSUMER_OFFSET, {**committed, "queueId": 0}),
        Request("queue 1", Code.UPDATE_CONSUMER_OFFSET,
                {**committed, "queueId": 1, "commitOffset": 0}),
        Request("to a time", reset, place, body_kind=BodyKind.JSON),
        from_server(name="at a client", code=Code.RESET_CONSUMER_CLIENT_OFFSET,
                    body_kind=BodyKind.JSON),
        Request("of the group", status, {"group": group, "topic": topic}, body_kind=BodyKind.JSON,
                meanwhile=(telling,)),
        Request("of one client", status, {"group": group, "topic": topic, "clientAddr": client_id},
                body_kind=BodyKind.JSON, meanwhile=(one_tells,)),
        Request("of a client that refuses", status, {"group": group, "topic": topic},
                body_kind=BodyKind.JSON, meanwhile=(refusing,), erroneous=True),
        *_refused_asks(names, {**who}, one_message, place),
    )  # fmt: skip
    return Script("clients that are asked", header, steps)


def _refused_asks(
    names: Names, who: dict[str, object], one_message: dict[str, object], place: dict[str, object]
) -> tuple[Request, ...]:
    run, directly = Code.GET_CONSUMER_RUNNING_INFO, Code.CONSUME_MESSAGE_DIRECTLY
    reset = Code.INVOKE_BROKER_TO_RESET_OFFSET
    group = {"consumerGroup": names("missing")}
    client = {"clientId": names("missing")}
    no_time = {name: value for name, value in place.items() if name != "timestamp"}
    status = Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
    mine = {"group": place["group"], "topic": place["topic"]}
    return (
        bad("an unknown client", status, {**mine, "clientAddr": names("missing")},
            body_kind=BodyKind.JSON),
        refused("an unknown group", status, {**mine, "group": names("missing")}),
        refused("without a group", status, {"topic": place["topic"]}),
        refused("without a topic", status, {"group": place["group"]}),
        bad("a client that nobody knows", run, {**who, **client}, expect=1),
        bad("a group that nobody knows", run, {**who, **group}, expect=1),
        refused("without a client", run, group),
        bad("a client that nobody knows", directly, {**one_message, **client}, expect=1),
        bad("a message that is none", directly, {**one_message, "msgId": "xyz"}, expect=1,
            normalisers=(java_exception_text(),)),
        bad("a topic that nobody knows", reset, {**place, "topic": names("missing")}, expect=17),
        bad("a group that nobody knows", reset, {**place, "group": names("missing")}, expect=1),
        refused("without a time", reset, no_time),
    )  # fmt: skip


def filter_servers(header: SerializeType) -> Script:
    """The registration of a filter server, which Apache's serves up to 4.9.5 and 5.1.0."""
    names = Names("filterservers", header)
    code = Code.REGISTER_FILTER_SERVER
    here = {"filterServerAddr": "127.0.0.1:40747"}
    steps: tuple[Step, ...] = (
        Request("a filter server", code, here),
        Request("the same again", code, here),
        refused("without an address", code),
        bad("no address", code, {"filterServerAddr": names("nowhere")}, expect=1,
            connection="other"),
    )  # fmt: skip
    return Script("filter servers", header, steps)


SCRIPTS = (clients, checked, asked, filter_servers)
"""Each creates a script for one kind of header."""
