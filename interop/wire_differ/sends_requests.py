"""Scripts for sends: single messages, batches and replies, with the records read back."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from ...remoting.codec import SerializeType
from ...remoting.message import Message
from ...remoting.message_codec import encode_batch
from ...remoting.request_codes import RequestCode as Code
from .builders import (
    CLUSTER,
    STORED,
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
    send_fields_v1,
    unique_key,
)
from .normalise import (
    after,
    any_queue,
    clock,
    java_exception_text,
    offset_ids,
    sizes,
    unique_keys,
)
from .request import BodyKind, ClientAnswer, FromServer, Request, Script

PLACE = (offset_ids("fields.msgId"),)
TOO_LARGE = bytes(4 * 1024 * 1024 + 1)
"""One byte more than the default of maxMessageSize."""

send = partial(Request, code=Code.SEND_MESSAGE_V2, body=b"x", normalisers=PLACE)
send_v1 = partial(Request, code=Code.SEND_MESSAGE, normalisers=PLACE)
send_batch = partial(Request, code=Code.SEND_BATCH_MESSAGE, normalisers=PLACE)
_wrong = partial(bad, code=Code.SEND_MESSAGE_V2, body=b"x")


def sends(header: SerializeType) -> Script:
    """Single messages: valid ones, read back, and refused ones."""
    names = Names("send", header)
    topic, group = names("topic"), names("group")
    text = properties(KEYS="k1 k2", TAGS="A", UNIQ_KEY=unique_key(names, 1))
    wait = properties(WAIT="false", UNIQ_KEY=unique_key(names, 2))
    steps = (
        create_topic(topic),
        create_group(group),
        send(name="a message", fields=send_fields(topic, text, h=7), body=b"one"),
        send(name="not to be waited for", fields=send_fields(topic, wait), body=b"two \xc3\xbc"),
        send_v1(name="a message", fields=send_fields_v1(topic, text), body=b"in words"),
        send_v1(
            name="no unique key",
            fields=send_fields_v1(names("keyless"), properties(TAGS="B")),
            body=b"x",
        ),
        send(
            name="oneway",
            fields=send_fields(topic, wait),
            body=b"four",
            oneway=True,
            expect=None,
            normalisers=(),
        ),
        pull_until(group, topic, "what was sent", 4),
        send(
            name="no unique key",
            fields=send_fields(topic, properties(TAGS="B"), e=1),
            body=b"x",
            normalisers=(*PLACE, unique_keys("fields.transactionId")),
        ),
        Request(
            "what was sent without a unique key",
            Code.PULL_MESSAGE,
            pull_fields(group, topic, queueId=1),
            body_kind=BodyKind.RECORDS,
            normalisers=(
                *STORED,
                unique_keys("body.*.properties.UNIQ_KEY"),
                sizes("body.*.store_size"),
            ),
            until=lambda answer: bool(answer.body),
        ),
        send(
            name="to any queue",
            fields=send_fields(topic, text, e=-1),
            normalisers=(*PLACE, any_queue("fields.queueId", "fields.queueOffset")),
        ),
        send(name="to a topic that is made by it", fields=send_fields(names("fresh"), text)),
        Request("a topic that a send made", Code.GET_TOPIC_CONFIG, {"topic": names("fresh")},
                body_kind=BodyKind.JSON),
        *_refused_sends(names, topic, text),
    )  # fmt: skip
    return Script("sends", header, steps)


def _refused_sends(names: Names, topic: str, text: str) -> tuple[Request, ...]:
    read_only = names("read")
    long = properties(TAGS="x" * 33_000)
    fields = send_fields(topic, text)
    no_queue = {name: value for name, value in fields.items() if name != "e"}
    words = send_fields_v1(topic, text)
    no_flag = {name: value for name, value in words.items() if name != "sysFlag"}
    nowhere = send_fields(names("nowhere"), text, c=names("nothing"))
    return (
        _wrong("a topic that nobody knows", fields=nowhere, expect=17),
        _wrong("an illegal topic", fields=send_fields("a b", text), expect=29),
        _wrong("a blank topic", fields=send_fields(" ", text), expect=29),
        _wrong("a topic too long", fields=send_fields("t" * 128, text), expect=29),
        _wrong("a topic of the broker", fields=send_fields("SCHEDULE_TOPIC_XXXX", text), expect=16),
        _wrong(
            "a queue that is not there",
            fields=send_fields(topic, text, e=9),
            expect=29,
            normalisers=(after("queueId[9] is illegal, "),),
        ),
        _wrong("a body too large", fields=fields, body=TOO_LARGE, expect=13),
        _wrong(
            "properties too long",
            fields=send_fields(topic, long),
            expect=13,
            normalisers=(after("msg properties length limit 32KB."),),
        ),
        refused("without a queue", Code.SEND_MESSAGE_V2, no_queue),
        refused("a queue that is no number", Code.SEND_MESSAGE_V2, {**fields, "e": "x"}),
        refused("without a flag", Code.SEND_MESSAGE, no_flag),
        bad("an illegal topic", Code.SEND_MESSAGE, send_fields_v1("a b", text), b"x", expect=29),
        _wrong(
            "an empty body",
            fields=send_fields(names("empty"), text),
            body=b"",
            expect=0,
            normalisers=PLACE,
        ),
        create_topic(read_only, perm=4),
        # Brokers accept it: only the route keeps producers from such a topic.
        send(
            name="a topic without write permission",
            fields=send_fields(read_only, text),
            erroneous=True,
        ),
    )


def batches(header: SerializeType) -> Script:
    """Batches: valid ones, read back, and refused ones."""
    names = Names("batch", header)
    topic, group = names("topic"), names("group")
    bodies = [
        Message(topic, b"%d" % number, number, {"TAGS": "A", "UNIQ_KEY": unique_key(names, number)})
        for number in range(3)
    ]
    body = encode_batch(bodies)
    text = properties(WAIT="true")
    fields = send_fields(topic, text, m=True)
    wrong = partial(bad, code=Code.SEND_BATCH_MESSAGE)
    delayed = encode_batch([Message(topic, b"x", 0, {"DELAY": "1"})])
    steps = (
        create_topic(topic),
        create_group(group),
        send_batch(name="three messages", fields=fields, body=body),
        pull_until(group, topic, "a batch", 3),
        wrong(
            "cut short",
            fields=fields,
            body=body[:-3],
            expect=1,
            normalisers=(java_exception_text(),),
        ),
        wrong("too large", fields=fields, body=TOO_LARGE, expect=13),
        wrong("an illegal topic", fields=send_fields("a b", text, m=True), body=body, expect=29),
        wrong(
            "a retry topic",
            fields=send_fields(f"%RETRY%{group}", text, m=True),
            body=body,
            expect=13,
        ),
        wrong("delayed messages", fields=fields, body=delayed, expect=13),
        wrong("nothing", fields=fields, expect=1, normalisers=(java_exception_text(),)),
    )
    return Script("batches", header, steps)


def replies(header: SerializeType) -> Script:
    """Replies to a client that this script plays."""
    names = Names("reply", header)
    topic = f"{CLUSTER}_REPLY_TOPIC"
    client_id = names("asker")
    text = properties(REPLY_TO_CLIENT=client_id, CORRELATION_ID="c1", UNIQ_KEY=unique_key(names, 1))
    missing = properties(REPLY_TO_CLIENT=names("missing"), UNIQ_KEY=unique_key(names, 2))
    place = (offset_ids("fields.msgId"), any_queue("fields.queueOffset"))
    pushed = FromServer(
        name="a reply",
        code=Code.PUSH_REPLY_MESSAGE_TO_CLIENT,
        connection="asker",
        answer=ClientAnswer(),
        normalisers=(clock("fields.storeTimestamp", "fields.properties.PUSH_REPLY_TIME"),),
    )
    failing = FromServer(
        name="a reply that the client refuses",
        code=Code.PUSH_REPLY_MESSAGE_TO_CLIENT,
        connection="asker",
        answer=ClientAnswer(code=1, remark="no"),
        normalisers=pushed.normalisers,
    )
    steps = (
        Request(
            "a client that asks",
            Code.HEART_BEAT,
            body=heartbeat_body(client_id, producer=names("producers")),
            connection="asker",
        ),
        Request(
            "a reply",
            Code.SEND_REPLY_MESSAGE_V2,
            send_fields(topic, text),
            b"answer",
            normalisers=place,
            meanwhile=(pushed,),
        ),
        Request(
            "a reply in words",
            Code.SEND_REPLY_MESSAGE,
            send_fields_v1(topic, text),
            b"answer",
            normalisers=place,
            meanwhile=(replace(pushed, name="a reply in words"),),
        ),
        bad(
            "a client that refuses",
            Code.SEND_REPLY_MESSAGE_V2,
            send_fields(topic, text),
            b"answer",
            expect=1,
            normalisers=place,
            meanwhile=(failing,),
        ),
        *(
            bad(name, code, fields(topic, what), b"x", expect=1, normalisers=place)
            for code, fields in (
                (Code.SEND_REPLY_MESSAGE, send_fields_v1),
                (Code.SEND_REPLY_MESSAGE_V2, send_fields),
            )
            for name, what in (("to nobody", missing), ("to no client", properties(A="b")))
        ),
    )
    return Script("replies", header, steps)


SCRIPTS = (sends, batches, replies)
"""Each creates a script for one kind of header."""
