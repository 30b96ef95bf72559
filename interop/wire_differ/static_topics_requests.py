"""Scripts for static topics of one broker: mappings, sends, pulls and offsets of logic queues."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from ...remoting.bodies import LogicQueueMappingItem, TopicQueueMappingDetail
from ...remoting.codec import RemotingCommand, SerializeType
from ...remoting.message import Message
from ...remoting.message_codec import encode_batch
from ...remoting.request_codes import RequestCode as Code
from .builders import (
    BORN_MS,
    BROKER_NAME,
    Names,
    bad,
    create_group,
    json_body,
    properties,
    pull_fields,
    pull_until,
    refused,
    send_fields,
    send_fields_v1,
    topic_fields,
    unique_key,
)
from .normalise import counts, data_versions, offset_ids, only
from .request import BodyKind, FieldValue, Request, Script, Server

Item = LogicQueueMappingItem

SINCE = "5.0.0"
PHYSICAL = {0: 1, 1: 0}
"""Physical queue of each logic queue: not the same numbers."""


def _item(queue_id: int, gen: int = 0, logic: int = 0, bname: str = BROKER_NAME) -> Item:
    return LogicQueueMappingItem(gen=gen, queue_id=queue_id, bname=bname, logic_offset=logic)


def _mapping(
    topic: str, hosted: dict[int, list[Item]] | None = None, *, epoch: int = BORN_MS, total: int = 2
) -> bytes:
    queues = {number: [_item(physical)] for number, physical in PHYSICAL.items()}
    return TopicQueueMappingDetail(
        topic=topic,
        total_queues=total,
        bname=BROKER_NAME,
        epoch=epoch,
        hosted_queues=queues if hosted is None else hosted,
    ).to_body()


_put = partial(Request, code=Code.UPDATE_AND_CREATE_STATIC_TOPIC)
_wrong = partial(bad, code=Code.UPDATE_AND_CREATE_STATIC_TOPIC, expect=1)


def static_topics(header: SerializeType) -> Script:
    """A static topic is made, used, changed wrongly, and deleted."""
    names = Names("static", header)
    topic, group = names("topic"), names("group")
    fields = topic_fields(topic)
    config = partial(Request, code=Code.GET_TOPIC_CONFIG, body_kind=BodyKind.JSON)
    steps = (
        create_group(group),
        _put("a static topic", fields=fields, body=_mapping(topic)),
        config(name="of a static topic", fields={"topic": topic, "lo": True}),
        config(name="of a static topic, physically", fields={"topic": topic}),
        Request(
            "mapped",
            Code.GET_ROUTEINFO_BY_TOPIC,
            {"topic": topic},
            server=Server.NAMESRV,
            body_kind=BodyKind.JSON,
            until=lambda answer: b"currIdMap" in answer.body,
        ),
        Request(
            "with a mapping",
            Code.GET_ALL_TOPIC_CONFIG,
            body_kind=BodyKind.JSON,
            normalisers=(
                only(names.prefix, "body.topicConfigTable", "body.topicQueueMappingDetailMap"),
                data_versions("body.dataVersion", "body.mappingDataVersion"),
                counts("fields.totalTopicNum"),
            ),
        ),
        *_sends(names, topic),
        *_offsets(topic, group),
        *_pulls(topic, group),
        *_refused(topic),
        Request("a static topic", Code.DELETE_TOPIC_IN_BROKER, {"topic": topic}),
        bad("deleted", Code.GET_TOPIC_CONFIG, {"topic": topic, "lo": True}, expect=17),
    )
    return Script("static topics", header, tuple(replace(step, since=SINCE) for step in steps))


def _sends(names: Names, topic: str) -> tuple[Request, ...]:
    place = (offset_ids("fields.msgId"),)
    text = properties(TAGS="A", UNIQ_KEY=unique_key(names, 1))
    batch = encode_batch([Message(topic, b"3"), Message(topic, b"4")])
    send = partial(Request, code=Code.SEND_MESSAGE_V2, body=b"x", normalisers=place)
    wrong = partial(bad, code=Code.SEND_MESSAGE_V2, body=b"x", expect=501)
    return (
        send(name="to a logic queue", fields=send_fields(topic, text, e=0)),
        send(name="to it again", fields=send_fields(topic, text, e=0)),
        Request(
            "to a logic queue",
            Code.SEND_MESSAGE,
            send_fields_v1(topic, text, queueId=0),
            b"y",
            normalisers=place,
        ),
        Request(
            "to a logic queue",
            Code.SEND_BATCH_MESSAGE,
            send_fields(topic, "", e=0, m=True),
            batch,
            normalisers=place,
        ),
        wrong(name="to a logic queue that is not there", fields=send_fields(topic, text, e=9)),
    )


def _has_offset(offset: str, answer: RemotingCommand) -> bool:
    return answer.code == 0 and answer.ext_fields["offset"] == offset


def _offsets(topic: str, group: str) -> tuple[Request, ...]:
    queue: dict[str, FieldValue] = {"topic": topic, "queueId": 0}
    none: dict[str, FieldValue] = {"topic": topic, "queueId": 9}
    of_group: dict[str, FieldValue] = {**queue, "consumerGroup": group}
    answers = []
    # Apache's broker adds stored messages to their queues a moment later.
    for code, more, offset in (
        (Code.GET_MAX_OFFSET, {}, "5"),
        (Code.GET_MIN_OFFSET, {}, "0"),
        (Code.SEARCH_OFFSET_BY_TIMESTAMP, {"timestamp": 0}, "0"),
    ):
        answers.append(
            Request(
                "of a logic queue",
                code,
                {**queue, **more},
                until=partial(_has_offset, offset),
            )
        )
        answers.append(
            bad("of a logic queue that is not there", code, {**none, **more}, expect=501)
        )
    missing: dict[str, FieldValue] = {**none, "consumerGroup": group}
    return (
        *answers,
        bad("of a logic queue that is not there", Code.GET_EARLIEST_MSG_STORETIME, none,
            expect=501),
        Request("of a logic queue", Code.UPDATE_CONSUMER_OFFSET, {**of_group, "commitOffset": 3}),
        Request("of a logic queue", Code.QUERY_CONSUMER_OFFSET, of_group),
        bad("of a logic queue that is not there", Code.UPDATE_CONSUMER_OFFSET,
            {**missing, "commitOffset": 3}, expect=501),
        bad("of a logic queue that is not there", Code.QUERY_CONSUMER_OFFSET, missing, expect=501),
    )  # fmt: skip


def _pulls(topic: str, group: str) -> tuple[Request, ...]:
    pull = partial(Request, code=Code.PULL_MESSAGE)
    return (
        pull_until(group, topic, "from a logic queue", 5),
        pull(
            name="at the end of a logic queue",
            fields=pull_fields(group, topic, queueOffset=5),
            expect=19,
        ),
        pull(
            name="past the end of a logic queue",
            fields=pull_fields(group, topic, queueOffset=50),
            erroneous=True,
            expect=19,
        ),
        pull(
            name="from an empty logic queue",
            fields=pull_fields(group, topic, queueId=1),
            expect=19,
        ),
        bad(
            "from a logic queue that is not there",
            Code.PULL_MESSAGE,
            pull_fields(group, topic, queueId=9),
            expect=501,
        ),
    )


def _refused(topic: str) -> tuple[Request, ...]:
    fields = topic_fields(topic)
    later = BORN_MS + 1
    own = {number: [_item(physical)] for number, physical in PHYSICAL.items()}

    def items(*of_first: Item) -> dict[int, list[Item]]:
        return {**own, 0: list(of_first)}

    first = _item(1)
    return (
        _wrong("an older epoch", fields=fields, body=_mapping(topic, epoch=BORN_MS - 1)),
        _wrong("no items at the same epoch", fields=fields, body=_mapping(topic, {})),
        _wrong(
            "another leader at the same epoch",
            fields=fields,
            body=_mapping(topic, items(first, _item(1, 1, 10_000, "broker-b"))),
        ),
        _wrong(
            "logic offsets out of order",
            fields=fields,
            body=_mapping(topic, items(first, _item(1, 1, 0, "broker-b")), epoch=later),
        ),
        _wrong(
            "generations out of order",
            fields=fields,
            body=_mapping(topic, items(first, _item(1, 0, 10_000, "broker-b")), epoch=later),
        ),
        _wrong(
            "a negative queue",
            fields=fields,
            body=_mapping(topic, items(_item(-1)), epoch=later),
        ),
        bad(
            "a physical queue that is not there",
            Code.UPDATE_AND_CREATE_STATIC_TOPIC,
            fields,
            body=_mapping(topic, {2: [_item(7)]}, epoch=later, total=3),
        ),
        bad("no body", Code.UPDATE_AND_CREATE_STATIC_TOPIC, fields),
        refused("a body that is no JSON", Code.UPDATE_AND_CREATE_STATIC_TOPIC, fields, body=b"{"),
        refused(
            "without a topic", Code.UPDATE_AND_CREATE_STATIC_TOPIC, body=json_body({"epoch": 1})
        ),
        bad(
            "an illegal name",
            Code.UPDATE_AND_CREATE_STATIC_TOPIC,
            topic_fields("a b"),
            body=_mapping("a b"),
            expect=29,
        ),
    )


SCRIPTS = (static_topics,)
"""Each creates a script for one kind of header."""
