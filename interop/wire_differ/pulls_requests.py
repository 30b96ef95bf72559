"""Scripts for pulls: with and without a result, suspended, and refused."""

from __future__ import annotations

from functools import partial

from ...remoting.codec import SerializeType
from ...remoting.request_codes import RequestCode as Code
from .builders import (
    COMMIT,
    STORED,
    SUSPEND,
    WITH_SUBSCRIPTION,
    Names,
    bad,
    create_group,
    create_topic,
    heartbeat_body,
    properties,
    pull_fields,
    pull_until,
    refused,
    send_fields,
    subscription,
    unique_key,
)
from .normalise import java_exception_text, offset_ids
from .request import BodyKind, Request, Script

pull = partial(Request, code=Code.PULL_MESSAGE, body_kind=BodyKind.RECORDS, normalisers=STORED)
_wrong = partial(pull, erroneous=True)
PLACE = (offset_ids("fields.msgId"),)


def _sent(names: Names, topic: str) -> tuple[Request, ...]:
    """Four messages with the tags A, B, A, B and a number n each."""
    return tuple(
        Request(
            f"message {number}",
            Code.SEND_MESSAGE_V2,
            send_fields(
                topic,
                properties(
                    TAGS="AB"[number % 2], n=str(number), UNIQ_KEY=unique_key(names, number)
                ),
            ),
            b"body %d" % number,
            normalisers=PLACE,
        )
        for number in range(4)
    )


def pulls(header: SerializeType) -> Script:
    """The possible results of a pull."""
    names = Names("pull", header)
    topic, group = names("topic"), names("group")
    fields = partial(pull_fields, group, topic)
    sql = {"expressionType": "SQL92"}
    steps = (
        create_topic(topic),
        create_group(group),
        pull(name="an empty queue", fields=fields(), expect=19),
        *_sent(names, topic),
        pull_until(group, topic, "all of them", 4),
        pull(name="two of them", fields=fields(queueOffset=1, maxMsgNums=2)),
        pull(name="few bytes", fields=fields(maxMsgBytes=1), since="5.5.0"),
        pull(name="by tag", fields=fields(subscription="A")),
        pull(name="by two tags", fields=fields(subscription="A || B")),
        pull(name="by a tag that none has", fields=fields(subscription="C"), expect=20),
        pull(name="by an expression", fields=fields(subscription="n >= 2", **sql)),
        pull(name="at the end", fields=fields(queueOffset=4), expect=19),
        pull(
            name="with a commit",
            fields=fields(queueOffset=2, sysFlag=WITH_SUBSCRIPTION | COMMIT, commitOffset=2),
        ),
        Request(
            "what a pull committed",
            Code.QUERY_CONSUMER_OFFSET,
            {"consumerGroup": group, "topic": topic, "queueId": 0},
        ),
        pull(
            name="held until a message comes",
            fields=fields(
                queueOffset=4, sysFlag=WITH_SUBSCRIPTION | SUSPEND, suspendTimeoutMillis=15_000
            ),
            meanwhile=(
                Request(
                    "a message for a held pull",
                    Code.SEND_MESSAGE_V2,
                    send_fields(topic, properties(UNIQ_KEY=unique_key(names, 9))),
                    b"late",
                    connection="producer",
                    normalisers=PLACE,
                ),
            ),
        ),
        Request(
            "of a lite pull consumer",
            Code.LITE_PULL_MESSAGE,
            fields(sysFlag=WITH_SUBSCRIPTION | 0x10),
            body_kind=BodyKind.RECORDS,
            normalisers=STORED,
            since="5.0.0",
        ),
        *_refused_pulls(names, topic, group),
    )
    return Script("pulls", header, steps)


def _refused_pulls(names: Names, topic: str, group: str) -> tuple[Request, ...]:
    fields = partial(pull_fields, group, topic)
    write_only, closed = names("write"), names("closed")
    all_fields = fields()
    no_offset = {name: value for name, value in all_fields.items() if name != "queueOffset"}
    return (
        _wrong(name="far beyond the end", fields=fields(queueOffset=100), expect=21),
        _wrong(name="before the beginning", fields=fields(queueOffset=-7), expect=21),
        _wrong(
            name="an empty queue not from 0", fields=fields(queueId=1, queueOffset=3), expect=21
        ),
        _wrong(name="a queue that is not there", fields=fields(queueId=9), expect=29),
        _wrong(name="an illegal group", fields=pull_fields("a b", topic), expect=26),
        _wrong(name="a topic that nobody knows", fields=pull_fields(group, names("x")), expect=17),
        _wrong(name="no client of the group", fields=fields(sysFlag=0), expect=24),
        _wrong(
            name="a wrong expression",
            fields=fields(subscription="n >", expressionType="SQL92"),
            expect=23,
        ),
        refused("without an offset", Code.PULL_MESSAGE, no_offset),
        refused("an offset that is no number", Code.PULL_MESSAGE, fields(queueOffset="x")),
        create_topic(write_only, perm=2),
        _wrong(
            name="a topic without read permission", fields=pull_fields(group, write_only), expect=16
        ),
        create_group(closed, consumeEnable=False),
        _wrong(name="a group that may not consume", fields=pull_fields(closed, topic), expect=16),
        bad(
            "a topic that nobody knows",
            Code.LITE_PULL_MESSAGE,
            pull_fields(group, names("missing")),
            expect=17,
            since="5.0.0",
        ),
        bad(
            "without a topic",
            Code.LITE_PULL_MESSAGE,
            {name: value for name, value in all_fields.items() if name != "topic"},
            expect=1,
            normalisers=(java_exception_text(),),
            since="5.0.0",
        ),
    )


def by_heartbeat(header: SerializeType) -> Script:
    """Pulls with the subscription from the group's heartbeats."""
    names = Names("pullhb", header)
    topic, group, client_id = names("topic"), names("group"), names("client")
    fields = partial(pull_fields, group, topic, sysFlag=0)

    def beat(name: str, *subscriptions: dict[str, object]) -> Request:
        body = heartbeat_body(client_id, group=group, subscriptions=subscriptions)
        return Request(name, Code.HEART_BEAT, body=body)

    by_n = subscription(topic, "n = 3", expressionType="SQL92", tagsSet=[], codeSet=[])
    newer = {**by_n, "subVersion": 1_700_000_001_000}
    steps = (
        create_topic(topic),
        create_group(group),
        *_sent(names, topic),
        beat("by tag", subscription(topic, "B")),
        pull(name="by the group's tag", fields=fields(), until=lambda answer: answer.code == 0),
        _wrong(
            name="a subscription that is newer",
            fields=fields(subVersion=1_800_000_000_000),
            expect=25,
        ),
        _wrong(name="a topic that nobody wants", fields={**fields(), "topic": "TBW102"}, expect=24),
        beat("by an expression", newer),
        pull(name="by the group's expression", fields=fields()),
        _wrong(
            name="an expression that is newer",
            fields=fields(subVersion=1_800_000_000_000),
            expect=25,
        ),
    )
    return Script("pulls by heartbeat", header, steps)


SCRIPTS = (pulls, by_heartbeat)
"""Each creates a script for one kind of header."""
