"""Scripts for what happens to popped messages: acknowledgement, another time, another delivery."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeAlias

from ...remoting.codec import SerializeType
from ...remoting.receipt import Receipt
from ...remoting.request_codes import RequestCode as Code
from .builders import BROKER_NAME, Names, bad, create_group, create_topic, json_body
from .pop_parts import (
    MINUTE_MS,
    POP_ONLY,
    ack,
    ack_fields,
    asking,
    changed_receipt,
    committed,
    empty_pop,
    found_receipts,
    is_found,
    malformed,
    offset_is,
    pop,
    pop_fields,
    receipt,
    sent,
    stored_receipt,
    without,
)
from .request import ANY_CODE, Body, FieldValue, Played, Request, Script

SOON_MS = 1_000
"""An invisible time that ends within the script."""

_change = asking(Code.CHANGE_MESSAGE_INVISIBLETIME, normalisers=POP_ONLY)
_batch = asking(Code.BATCH_ACK_MESSAGE)


def acks(header: SerializeType) -> Script:
    """Acknowledgements, right, repeated and refused."""
    names = Names("popack", header)
    topic, group = names("topic"), names("group")
    mine = receipt("three")
    acked = partial(ack_fields, group, topic)
    wrong = partial(ack, erroneous=True)
    fields = acked(mine, 0)
    steps = (
        create_topic(topic),
        create_group(group),
        *sent(names, topic, 3),
        pop(name="three", fields=pop_fields(group, topic)),
        ack("a message", fields),
        ack("a message twice", fields),
        ack("a message with another's receipt", acked(mine, 1)),
        ack("the end of the queue", acked(mine, 3)),
        wrong("an unknown topic", ack_fields(group, names("missing"), mine, 0), expect=17),
        wrong("a queue that is not there", acked(mine, 0, queueId=2), expect=13),
        wrong("a negative queue", acked(mine, 0, queueId=-1), expect=13),
        wrong("before the beginning", acked(mine, -1), expect=208),
        wrong("behind the end", acked(mine, 4), expect=208),
        wrong("another group's", ack_fields(names("other"), topic, mine, 0), expect=ANY_CODE),
        wrong("an illegal group's", ack_fields("a b", topic, mine, 0), expect=ANY_CODE),
        wrong("another queue's receipt", acked(mine, 0, queueId=1), expect=ANY_CODE),
        *(
            malformed(f"a receipt {name}", Code.ACK_MESSAGE, acked(text, 0))
            for name, text in _BAD_RECEIPTS.items()
        ),
        *(
            malformed(f"without {name}", Code.ACK_MESSAGE, without(fields, name))
            for name in ("consumerGroup", "topic", "queueId", "extraInfo", "offset")
        ),
        malformed("an offset that is no number", Code.ACK_MESSAGE, acked(mine, "x")),
        malformed("an offset of 65 bits", Code.ACK_MESSAGE, acked(mine, 1 << 64)),
        malformed("no fields", Code.ACK_MESSAGE),
        ack("oneway", acked(receipt("three", 2), 2), oneway=True, expect=None),
    )
    return Script("acknowledgements", header, steps)


_BAD_RECEIPTS: Mapping[str, str] = {
    "of one field": "0",
    "of seven fields": "0 1 2 3 0 broker-a 0",
    "without a pop time": f"0 x {MINUTE_MS} 0 0 {BROKER_NAME} 0 0",
    "without an offset to count from": f"x 1 {MINUTE_MS} 0 0 {BROKER_NAME} 0 0",
    "without a revive queue": f"0 1 {MINUTE_MS} x 0 {BROKER_NAME} 0 0",
}


def again(header: SerializeType) -> Script:
    """What is not acknowledged in time is popped again, from the group's retry topic."""
    names = Names("popagain", header)
    topic, group = names("topic"), names("group")
    retry = f"%RETRY%{group}_{topic}"
    fields = partial(pop_fields, group, topic)
    more = receipt("once more")
    steps = (
        create_topic(topic),
        create_group(group),
        *sent(names, topic, 3),
        pop(name="for a second", fields=fields(invisibleTime=SOON_MS)),
        ack("one of three in time", ack_fields(group, topic, receipt("for a second", 1), 1)),
        Request("two in the retry topic", Code.GET_MAX_OFFSET, {"topic": retry, "queueId": 0},
                until=offset_is(2)),
        pop(name="again", fields=fields(maxMsgNums=1), until=is_found),
        pop(name="again, the other", fields=fields(invisibleTime=SOON_MS), until=is_found),
        ack("too late", ack_fields(group, topic, receipt("for a second"), 0)),
        ack("of the retry topic", ack_fields(group, retry, stored_receipt("again"), 0)),
        ack("of the retry topic with a made receipt",
            ack_fields(group, retry, receipt("again"), 0)),
        pop(name="once more", fields=fields(), until=is_found),
        ack("of the third try", ack_fields(group, retry, more, 2)),
        empty_pop(name="nothing comes again", fields=fields()),
        committed(group, topic, "behind what came again", 3),
        committed(group, retry, "of the retry topic", 3),
        bad("behind the end of the retry topic", Code.ACK_MESSAGE,
            ack_fields(group, retry, more, 9), expect=208),
        bad("a retry topic, popped", Code.POP_MESSAGE, pop_fields(group, retry), expect=ANY_CODE,
            normalisers=POP_ONLY),
    )  # fmt: skip
    return Script("popped again", header, steps)


_MakeEntry: TypeAlias = Callable[[Played], dict[str, object]]


def _bits(*numbers: int, size: int = 1) -> str:
    return b64encode(sum(1 << number for number in numbers).to_bytes(size, "little")).decode()


def _of(played: Played, request: str) -> Receipt | None:
    return next(iter(found_receipts(played, request)), None)


def _entry(request: str, group: str, topic: str, bits: str, **changed: object) -> _MakeEntry:
    """An entry of a batch, by the receipt of an earlier pop's first message."""

    def make(played: Played) -> dict[str, object]:
        found = _of(played, request)
        return {
            "c": group,
            "t": topic,
            "r": "0" if found is None else found.form.value,
            "so": 0 if found is None else found.start_offset,
            "q": 0 if found is None else found.queue_id,
            "rq": 0 if found is None else found.revive_queue_id,
            "pt": 0 if found is None else found.pop_time,
            "it": 0 if found is None else found.invisible_time,
            "b": bits,
            **changed,
        }

    return make


def _body(*entries: _MakeEntry) -> Body:
    return lambda played: json_body(
        {"brokerName": BROKER_NAME, "acks": [make(played) for make in entries]}
    )


_LONG_NAMES: Mapping[str, str] = {
    "c": "consumerGroup",
    "t": "topic",
    "r": "retry",
    "so": "startOffset",
    "q": "queueId",
    "rq": "reviveQueueId",
    "pt": "popTime",
    "it": "invisibleTime",
    "b": "bitSet",
}


def _long(make: _MakeEntry) -> _MakeEntry:
    return lambda played: {_LONG_NAMES[name]: value for name, value in make(played).items()}


def batches(header: SerializeType) -> Script:
    """Acknowledgements of several messages in one request."""
    names = Names("popbatch", header)
    topic, group = names("topic"), names("group")
    entry = partial(_entry, "six", group, topic)
    other = partial(_entry, "two for a second", group, topic)
    wrong = partial(_batch, erroneous=True)
    fields = partial(pop_fields, group, topic)
    steps = (
        create_topic(topic),
        create_group(group),
        *sent(names, topic, 8),
        pop(name="six", fields=fields(maxMsgNums=6)),
        _batch("two of six", body=_body(entry(_bits(0, 2)))),
        _batch("two of six again", body=_body(entry(_bits(0, 2)))),
        _batch("one of six", body=_body(entry(_bits(1)))),
        _batch("two entries", body=_body(entry(_bits(3)), entry(_bits(4, 5)))),
        wrong("bits behind the messages", body=_body(entry(_bits(5, 6, 31, 40, size=6)))),
        malformed("no bits", Code.BATCH_ACK_MESSAGE, body=_body(entry(""))),
        wrong("no bits that are set", body=_body(entry("AA=="))),
        wrong("one wrong and one right",
              body=_body(entry("AQ==", t=names("missing")), entry(_bits(5)))),
        wrong("no body", expect=208),
        wrong("no entries", body=json_body({"brokerName": BROKER_NAME, "acks": []}), expect=208),
        wrong("no list", body=json_body({"brokerName": BROKER_NAME}), expect=208),
        malformed("no JSON", Code.BATCH_ACK_MESSAGE, body=b"{"),
        wrong("an unknown topic", body=_body(entry("AQ==", t=names("missing")))),
        wrong("a queue that is not there", body=_body(entry("AQ==", q=9))),
        wrong("a negative queue", body=_body(entry("AQ==", q=-1))),
        malformed("an unknown form", Code.BATCH_ACK_MESSAGE, body=_body(entry("AQ==", r="7"))),
        malformed("an offset of 65 bits", Code.BATCH_ACK_MESSAGE,
                  body=_body(entry("AQ==", so=1 << 64))),
        malformed("bits that are no base64", Code.BATCH_ACK_MESSAGE, body=_body(entry("??"))),
        committed(group, topic, "behind six", 6),
        pop(name="two for a second", fields=fields(maxMsgNums=2, invisibleTime=SOON_MS)),
        _batch("with long names", body=_body(_long(other(_bits(0))))),
        pop(name="one from the retry topic", fields=fields(queueId=0, maxMsgNums=1),
            until=lambda answer: is_found(answer) and
            answer.ext_fields["startOffsetInfo"].startswith("1")),
        _batch("of the retry topic",
               body=_body(_entry("one from the retry topic", group, topic, _bits(0)))),
        _batch("too late", body=_body(other(_bits(1)))),
        committed(group, f"%RETRY%{group}_{topic}", "of the retry topic, by a batch", 1),
    )  # fmt: skip
    return Script("acknowledgements in batches", header, steps)


def invisible_times(header: SerializeType) -> Script:
    """Other invisible times for popped messages."""
    names = Names("poptime", header)
    topic, group = names("topic"), names("group")
    retry = f"%RETRY%{group}_{topic}"
    fields = partial(pop_fields, group, topic)
    mine = receipt("to be changed")

    def timed(
        receipt: FieldValue, offset: FieldValue, time_ms: FieldValue = MINUTE_MS, **more: FieldValue
    ) -> dict[str, FieldValue]:
        return ack_fields(group, topic, receipt, offset, invisibleTime=time_ms, **more)

    wrong = partial(_change, erroneous=True)
    whole = timed(mine, 0)
    code = Code.CHANGE_MESSAGE_INVISIBLETIME
    steps = (
        create_topic(topic),
        create_group(group),
        *sent(names, topic, 4),
        pop(name="to be changed", fields=fields()),
        _change("longer", timed(mine, 0)),
        _change("longer, again", timed(changed_receipt("to be changed", "longer", 0), 0)),
        ack("with the newest receipt",
            ack_fields(group, topic, changed_receipt("to be changed", "longer, again", 0), 0)),
        _change("with an old receipt", timed(mine, 0)),
        _change("until soon", timed(receipt("to be changed", 1), 1, SOON_MS)),
        pop(name="what was changed", fields=fields(), until=is_found),
        _change("until soon, suspended",
                timed(receipt("to be changed", 2), 2, SOON_MS, suspend=True)),
        pop(name="what was suspended", fields=fields(), until=is_found),
        _change("of the retry topic",
                {**timed(receipt("what was suspended"), 1), "topic": retry}),
        wrong("an unknown topic", {**whole, "topic": names("missing")}, expect=17),
        wrong("a queue that is not there", {**whole, "queueId": 2}, expect=13),
        wrong("a negative queue", {**whole, "queueId": -1}, expect=13),
        wrong("before the beginning", timed(mine, -1), expect=208),
        wrong("the end of the queue", timed(mine, 4), expect=208),
        wrong("another group's", {**whole, "consumerGroup": names("other")}, expect=ANY_CODE),
        wrong("for no time", timed(receipt("to be changed", 3), 3, 0), expect=ANY_CODE),
        wrong("for less than no time", timed(receipt("to be changed", 3), 3, -5),
              expect=ANY_CODE),
        wrong("for four days",
              timed(receipt("to be changed", 3), 3, 4 * 24 * 60 * MINUTE_MS), expect=ANY_CODE),
        *(malformed(f"a receipt {name}", code, timed(text, 0))
          for name, text in _BAD_RECEIPTS.items()),
        *(malformed(f"without {name}", code, without(whole, name))
          for name in ("consumerGroup", "topic", "queueId", "extraInfo", "offset",
                       "invisibleTime")),
        malformed("a time of 65 bits", code, timed(mine, 0, 1 << 64)),
        malformed("no fields", code),
    )  # fmt: skip
    return Script("invisible times", header, steps)


JSON_SCRIPTS = (acks, again, batches, invisible_times)
"""Each creates a script; the codes need the JSON header."""
