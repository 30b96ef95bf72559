"""Scripts for single messages: lookups, messages sent back, transactions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ...common.clock import SystemClock
from ...remoting.codec import RemotingCommand, SerializeType
from ...remoting.errors import RemoteProtocolError
from ...remoting.message_codec import decode_messages
from ...remoting.request_codes import RequestCode as Code
from .builders import (
    STORED,
    Names,
    bad,
    create_group,
    create_topic,
    heartbeat_body,
    properties,
    pull_fields,
    record_count,
    refused,
    send_fields,
    send_fields_v1,
    unique_key,
)
from .normalise import after, any_queue, clock, offset_ids, only, physical_offsets
from .request import BodyKind, FromServer, Played, Request, Script, answer_field, send_offset

PLACE = (offset_ids("fields.msgId"),)
LONG_MAX = 0x7FFF_FFFF_FFFF_FFFF
send = partial(Request, code=Code.SEND_MESSAGE_V2, body=b"x", normalisers=PLACE)
look_up = partial(
    Request,
    code=Code.QUERY_MESSAGE,
    body_kind=BodyKind.RECORDS,
    normalisers=(
        *STORED,
        clock("fields.indexLastUpdateTimestamp"),
        physical_offsets("fields.indexLastUpdatePhyoffset"),
    ),
)
AGAIN = (
    *STORED,
    offset_ids("body.*.properties.ORIGIN_MESSAGE_ID"),
    physical_offsets("body.*.prepared_transaction_offset"),
    clock("body.*.born_timestamp_ms"),
)
"""For records that the broker made from other records."""


def look_ups(header: SerializeType) -> Script:
    """Lookups by key and by physical offset."""
    names = Names("lookup", header)
    topic = names("topic")
    key = unique_key(names, 1)
    first = properties(KEYS="k1 k2", TAGS="A", UNIQ_KEY=key)
    second = properties(KEYS="k2", TAGS="A", UNIQ_KEY=unique_key(names, 2))
    view = partial(
        Request, code=Code.VIEW_MESSAGE_BY_ID, body_kind=BodyKind.RECORDS, normalisers=STORED
    )
    fields = {
        "topic": topic,
        "key": "k2",
        "maxNum": 32,
        "beginTimestamp": 0,
        "endTimestamp": LONG_MAX,
    }
    wrong = partial(look_up, erroneous=True, expect=22)
    no_key = {name: value for name, value in fields.items() if name != "key"}
    by_tag = {**fields, "key": "A", "indexType": "T"}
    unique = {**fields, "key": key, "_UNIQUE_KEY_QUERY": True}
    steps = (
        create_topic(topic),
        send(name="first", fields=send_fields(topic, first), body=b"1"),
        send(name="second", fields=send_fields(topic, second, e=1), body=b"2"),
        look_up(name="two", fields=fields, until=_found(2)),
        look_up(name="one of them", fields={**fields, "key": "k1"}),
        look_up(name="the newest", fields={**fields, "maxNum": 1}),
        look_up(name="by unique key", fields=unique),
        wrong(name="a key that none has", fields={**fields, "key": "k3"}),
        wrong(name="a topic that nobody knows", fields={**fields, "topic": names("missing")}),
        wrong(name="a time before", fields={**fields, "endTimestamp": 1000}),
        wrong(name="none at all", fields={**fields, "maxNum": 0}),
        wrong(name="a negative count", fields={**fields, "maxNum": -1}),
        look_up(name="by tag", fields=by_tag, since="5.5.0", until=_found(2)),
        look_up(name="the newest of a tag", fields={**by_tag, "maxNum": 1}, since="5.5.0"),
        wrong(name="a tag that none has", fields={**by_tag, "key": "B"}, since="5.5.0"),
        wrong(name="a key as a tag", fields={**by_tag, "key": "k2"}, since="5.5.0"),
        wrong(name="a tag as a key", fields={**fields, "key": "A"}),
        refused("without a key", Code.QUERY_MESSAGE, no_key),
        view(name="a message", fields={"offset": send_offset("first")}),
        view(
            name="a message with its topic",
            fields={"offset": send_offset("second"), "topic": topic},
        ),
        bad("beyond the end", Code.VIEW_MESSAGE_BY_ID, {"offset": LONG_MAX // 2}, expect=1),
        bad("a negative offset", Code.VIEW_MESSAGE_BY_ID, {"offset": -5}, expect=1),
        bad(
            "inside a message",
            Code.VIEW_MESSAGE_BY_ID,
            {"offset": send_offset("first", 3)},
            expect=1,
        ),
        refused("without an offset", Code.VIEW_MESSAGE_BY_ID),
    )
    return Script("look-ups", header, steps)


def _found(count: int) -> Callable[[RemotingCommand], bool]:
    return lambda answer: record_count(answer) >= count


def sent_back(header: SerializeType) -> Script:
    """Messages that a consumer sends back because it failed to consume them."""
    names = Names("back", header)
    topic, group, dead = names("topic"), names("group"), names("dead")
    key = properties(TAGS="A", UNIQ_KEY=unique_key(names, 1))
    code = Code.CONSUMER_SEND_MSG_BACK

    def back(who: str, level: int, **changed: object) -> dict[str, object]:
        return {
            "offset": send_offset("first"),
            "group": who,
            "delayLevel": level,
            "originMsgId": answer_field("first", "msgId"),
            "originTopic": topic,
            "unitMode": False,
            "maxReconsumeTimes": 16,
            **changed,
        }

    no_offset = {name: value for name, value in back(group, 1).items() if name != "offset"}
    none = names("none")

    def read(name: str, who: str, source: str) -> Request:
        return Request(
            name,
            Code.PULL_MESSAGE,
            pull_fields(who, source),
            body_kind=BodyKind.RECORDS,
            normalisers=AGAIN,
            until=lambda answer: bool(answer.body),
        )

    steps = (
        create_topic(topic),
        create_group(group),
        create_group(dead),
        create_group(none, retryQueueNums=0),
        send(name="first", fields=send_fields(topic, key), body=b"1"),
        Request("after a second", code, back(group, 1)),
        Request("never again", code, back(dead, -1)),
        Request("tried too often", code, back(dead, 0, maxReconsumeTimes=0)),
        Request("a group that never retries", code, back(none, 0)),
        create_topic(f"%DLQ%{dead}", "read the dead letters"),
        read("a dead letter", dead, f"%DLQ%{dead}"),
        bad("an illegal group", code, back("a b", 0), expect=26),
        bad("beyond the end", code, back(group, 0, offset=LONG_MAX // 2), expect=1),
        refused("without an offset", code, no_offset),
        read("a second try", group, f"%RETRY%{group}"),
    )
    return Script("messages sent back", header, steps)


def _now_ms(_: Played) -> int:
    """The time in a request: Apache compares the client's clock with the transaction's timeout."""
    return SystemClock().wall_ms()


def half_properties(producers: str, key: str) -> str:
    """The properties of a half message that is not checked during a run."""
    immune = {"CHECK_IMMUNITY_TIME_IN_SECONDS": "600"}
    return properties(TRAN_MSG="true", PGROUP=producers, UNIQ_KEY=key, **immune)


def transactions(header: SerializeType) -> Script:
    """Half messages and their ends."""
    names = Names("tran", header)
    topic, group, producers = names("topic"), names("group"), names("producers")

    def half(name: str, number: int) -> Request:
        text = half_properties(producers, unique_key(names, number))
        return send(
            name=name,
            fields=send_fields(topic, text, f=4, g=_now_ms),
            body=b"half",
            normalisers=(*PLACE, any_queue("fields.queueOffset")),
        )

    def end(of: str, kind: int, **changed: object) -> dict[str, object]:
        return {
            "producerGroup": producers,
            "tranStateTableOffset": answer_field(of, "queueOffset"),
            "commitLogOffset": send_offset(of),
            "commitOrRollback": kind,
            "fromTransactionCheck": False,
            "msgId": answer_field(of, "transactionId"),
            "transactionId": answer_field(of, "transactionId"),
            "topic": topic,
            "bname": "broker-a",
            **changed,
        }

    code = Code.END_TRANSACTION
    wrong = partial(bad, code=code, expect=1)
    no_place = {name: value for name, value in end("half", 8).items() if name != "commitLogOffset"}
    steps = (
        create_topic(topic),
        create_group(group),
        half("half", 1),
        half("other half", 2),
        half("third half", 3),
        Request(
            "half in words",
            Code.SEND_MESSAGE,
            send_fields_v1(topic, half_properties(producers, unique_key(names, 4)), sysFlag=4),
            b"half",
            normalisers=(*PLACE, any_queue("fields.queueOffset")),
        ),
        wrong("another group", fields=end("half", 8, producerGroup="x")),
        wrong("another place in the queue", fields=end("half", 8, tranStateTableOffset=99_999)),
        wrong("no message there", fields=end("half", 8, commitLogOffset=LONG_MAX // 2)),
        refused("without a place", code, no_place),
        Request("unknown yet", code, end("half", 0), expect=None),
        Request("a commit", code, end("half", 8)),
        Request("a rollback", code, end("other half", 12)),
        Request("a commit that nobody waits for", code, end("third half", 8), oneway=True,
                expect=None),
        Request(
            "what was committed",
            Code.PULL_MESSAGE,
            pull_fields(group, topic),
            body_kind=BodyKind.RECORDS,
            normalisers=AGAIN,
            until=_found(2),
        ),
        wrong("a second commit", fields=end("half", 8)),
        wrong("a commit after a rollback", fields=end("other half", 8)),
    )  # fmt: skip
    return Script("transactions", header, steps)


def checks(header: SerializeType) -> Script:
    """A transaction that is checked until it is parked, resumed, and checked once more."""
    names = Names("check", header)
    topic, producers, group = names("topic"), names("producers"), names("group")
    key = unique_key(names, 1)
    text = properties(TRAN_MSG="true", PGROUP=producers, UNIQ_KEY=key)
    code = Code.RESUME_CHECK_HALF_MESSAGE
    no_more = after("back to RMQ_SYS_TRANS_HALF_TOPIC.")
    asked = partial(
        FromServer,
        code=Code.CHECK_TRANSACTION_STATE,
        connection="producer",
        body_kind=BodyKind.RECORDS,
        normalisers=(
            *AGAIN,
            offset_ids("fields.offsetMsgId"),
            physical_offsets("fields.commitLogOffset"),
            any_queue("fields.tranStateTableOffset", "body.*.queue_offset"),
        ),
    )

    def parked(played: Played) -> object:
        answer = played.answers.get("what was parked")
        try:
            records = decode_messages(b"" if answer is None else answer.body)
        except RemoteProtocolError:
            return ""
        mine = (record.offset_message_id for record in records if record.unique_key == key)
        return next(mine, "")

    steps = (
        create_topic(topic),
        create_group(group),
        Request(
            "a producer",
            Code.HEART_BEAT,
            body=heartbeat_body(names("client"), producer=producers),
            connection="producer",
        ),
        send(
            name="half",
            fields=send_fields(topic, text, f=4, g=_now_ms),
            normalisers=(*PLACE, any_queue("fields.queueOffset")),
        ),
        asked(name="the first time"),
        Request(
            "what was parked",
            Code.PULL_MESSAGE,
            pull_fields(group, "TRANS_CHECK_MAX_TIME_TOPIC"),
            body_kind=BodyKind.RECORDS,
            normalisers=(
                only(key, "body"),
                *AGAIN,
                any_queue("body.*.queue_offset", "fields.maxOffset", "fields.nextBeginOffset"),
            ),
            until=lambda answer: key.encode() in answer.body,
        ),
        Request("a parked message", code, {"msgId": parked}),
        asked(name="after it was parked"),
        bad("no message id", code, {"msgId": "xyz"}, expect=1, normalisers=(no_more,)),
        refused("without a message id", code),
    )
    return Script("checks of transactions", header, steps)


SCRIPTS = (look_ups, sent_back, transactions, checks)
"""Each creates a script for one kind of header."""
