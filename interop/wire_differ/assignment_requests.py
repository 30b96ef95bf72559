"""Scripts for the assignment of queues by the broker, and for the rest of pop's codes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ...remoting.codec import RemotingCommand, SerializeType
from ...remoting.request_codes import RequestCode as Code
from .builders import (
    BROKER_NAME,
    Names,
    bad,
    create_group,
    create_topic,
    heartbeat_body,
    json_body,
    refused,
    subscription,
)
from .normalise import java_exception_text, only, unordered
from .pop_parts import MINUTE_MS, asking
from .request import ANY_CODE, BodyKind, FieldValue, Request, Script

_QUEUES = 4

_query = asking(
    Code.QUERY_ASSIGNMENT,
    body_kind=BodyKind.JSON,
    normalisers=(unordered("body.messageQueueAssignments"),),
)
_set = asking(Code.SET_MESSAGE_REQUEST_MODE)


def _is_assigned(answer: RemotingCommand) -> bool:
    return b'"queueId"' in answer.body


def _asked(client: str, *, topic: object, group: object, **changed: object) -> bytes:
    return json_body(
        {
            "topic": topic,
            "consumerGroup": group,
            "clientId": client,
            "strategyName": "AVG",
            "messageModel": "CLUSTERING",
            **changed,
        }
    )


def _beat(client: str, topic: str, group: str) -> Request:
    """A heartbeat of a client, on its own connection."""
    body = heartbeat_body(client, group=group, subscriptions=(subscription(topic),))
    number = client.rsplit("-", 1)[-1]
    return Request(f"of client {number}", Code.HEART_BEAT, body=body, connection=client)


def assignments(header: SerializeType) -> Script:
    """Queues for the clients of a group, to be pulled."""
    names = Names("assign", header)
    topic, group, write_only = names("topic"), names("group"), names("write")
    one, two = names("client-1"), names("client-2")

    def asked(client: str, **changed: object) -> bytes:
        return _asked(client, **{"topic": topic, "group": group, **changed})

    wrong = partial(_query, erroneous=True)
    steps = (
        create_topic(topic, readQueueNums=_QUEUES, writeQueueNums=_QUEUES),
        create_topic(write_only, perm=2),
        create_group(group),
        wrong("no client of the group", body=asked(one)),
        _beat(one, topic, group),
        _query("alone", body=asked(one), until=_is_assigned),
        _query("in broadcasting", body=asked(one, messageModel="BROADCASTING")),
        _beat(two, topic, group),
        *(_query(f"the {word} of two, {by}", body=asked(client, strategyName=by))
          for word, client in (("first", one), ("second", two))
          for by in ("AVG", "AVG_BY_CIRCLE")),
        wrong("an absent client", body=asked(names("absent"))),
        wrong("an unknown topic", body=asked(one, topic=names("missing"))),
        wrong("a topic that is written only", body=asked(one, topic=write_only)),
        wrong("an unknown group", body=asked(one, group=names("missing"))),
        wrong("an unknown strategy", body=asked(one, strategyName="MACHINE_ROOM")),
        wrong("no strategy", body=asked(one, strategyName=None)),
        wrong("an unknown model", body=asked(one, messageModel="ALL"), expect=ANY_CODE,
              normalisers=(java_exception_text(),)),
        _query("a retry topic", body=asked(one, topic=f"%RETRY%{group}"), until=_is_assigned),
        *_refused(Code.QUERY_ASSIGNMENT, group),
    )  # fmt: skip
    return Script("assignments", header, steps)


def _refused(code: Code, group: str) -> tuple[Request, ...]:
    return (
        refused("no body", code),
        refused("no JSON", code, body=b"{"),
        refused("no topic", code, body=json_body({"consumerGroup": group})),
    )


def modes(header: SerializeType) -> Script:
    """A group's mode for a topic, and queues to be popped, shared or not."""
    names = Names("mode", header)
    topic, group = names("topic"), names("group")
    clients = [names(f"client-{number}") for number in range(1, 6)]
    one, two, three, *more = clients
    members: dict[str, object] = {"topic": topic, "consumerGroup": group, "mode": "POP"}

    def asked(client: str, **changed: object) -> bytes:
        return _asked(client, **{"topic": topic, "group": group, **changed})

    def mode(name: str, share: int, mode: str = "POP") -> Request:
        return _set(name, body=json_body({**members, "mode": mode, "popShareQueueNum": share}))

    def each(of: Sequence[str]) -> list[Request]:
        return [
            _query(f"client {number} of {len(of)}", body=asked(client))
            for number, client in enumerate(of, 1)
        ]

    wrong = partial(_query, erroneous=True)
    refuse = partial(_set, erroneous=True)
    steps = (
        create_topic(topic, readQueueNums=_QUEUES, writeQueueNums=_QUEUES),
        create_group(group),
        mode("to pop", 0),
        _beat(one, topic, group),
        _beat(two, topic, group),
        _query("each of two", body=asked(one), until=_is_assigned),
        *each(clients[:2]),
        wrong("an absent client, popping", body=asked(names("absent"))),
        _query("popped in broadcasting", body=asked(one, messageModel="BROADCASTING")),
        _query("popped from a retry topic", body=asked(one, topic=f"%RETRY%{group}"),
               until=_is_assigned),
        _beat(three, topic, group),
        mode("shared with one", 1),
        *each(clients[:3]),
        _query("shared, by circle", body=asked(one, strategyName="AVG_BY_CIRCLE")),
        wrong("shared, an absent client", body=asked(names("absent"))),
        mode("shared with all", 2),
        _query("shared with all", body=asked(one)),
        *(_beat(client, topic, group) for client in more),
        mode("shared with two", 2),
        *each(clients),
        mode("shared with less than none", -1),
        _query("shared with less than none", body=asked(two)),
        mode("to pull again", 0, "PULL"),
        _query("pulled again", body=asked(two)),
        Request("all", Code.GET_ALL_MESSAGE_REQUEST_MODE, body_kind=BodyKind.JSON,
                normalisers=(only(names.prefix, "body.messageRequestModeMap"),)),
        refuse("a retry topic", body=json_body({**members, "topic": f"%RETRY%{group}"}),
               expect=16),
        refuse("an unknown topic", body=json_body({**members, "topic": names("missing")}),
               expect=17),
        refuse("an illegal group", body=json_body({**members, "consumerGroup": "a b"}),
               expect=26),
        refuse("an unknown mode", body=json_body({**members, "mode": "PUSH"}), expect=ANY_CODE),
        refuse("no mode", body=json_body({"topic": topic, "consumerGroup": names("modeless")}),
               expect=ANY_CODE),
        *_refused(Code.SET_MESSAGE_REQUEST_MODE, group),
    )  # fmt: skip
    return Script("modes", header, steps)


def lite_topics(header: SerializeType) -> Script:
    """Requests about lite topics, on a broker that has none."""
    names = Names("lite", header)
    topic, group, client = names("topic"), names("group"), names("client")
    who: dict[str, FieldValue] = {"parentTopic": topic, "group": group, "clientId": client}
    popped: dict[str, FieldValue] = {
        "clientId": client,
        "consumerGroup": group,
        "topic": topic,
        "maxMsgNum": 1,
        "invisibleTime": MINUTE_MS,
        "pollTime": 0,
        "bornTime": 0,
        "bname": BROKER_NAME,
    }
    lite = partial(bad, expect=ANY_CODE)
    steps = (
        create_topic(topic),
        create_group(group),
        lite("a topic of another kind", Code.POP_LITE_MESSAGE, popped),
        lite("an unknown topic", Code.POP_LITE_MESSAGE,
             {**popped, "topic": names("missing")}),
        lite("no subscriptions", Code.LITE_SUBSCRIPTION_CTL, body=json_body({})),
        lite("all of the broker", Code.GET_BROKER_LITE_INFO),
        lite("a topic of another kind", Code.GET_PARENT_TOPIC_INFO, {"topic": topic}),
        *(lite("a topic of another kind", code, {**who, "liteTopic": "lite", "topK": 1})
          for code in (Code.GET_LITE_TOPIC_INFO, Code.GET_LITE_CLIENT_INFO,
                       Code.GET_LITE_GROUP_INFO, Code.TRIGGER_LITE_DISPATCH)),
    )  # fmt: skip
    return Script("lite topics", header, steps)


def rollback(header: SerializeType) -> Script:
    """The copy of pop's state from a key-value store, on a broker without one."""
    return Script("pop's key-value store", header, (Request("none", Code.POP_ROLLBACK),))


SCRIPTS = (assignments, modes)
"""Each creates a script for one kind of header."""
JSON_SCRIPTS = (lite_topics, rollback)
"""Each creates a script; the codes need the JSON header."""
