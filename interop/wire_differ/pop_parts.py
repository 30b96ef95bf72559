"""Parts of the scripts for pop: headers, receipts taken from answers, and what always differs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

from ...remoting.codec import RemotingCommand
from ...remoting.errors import RemoteProtocolError
from ...remoting.message_codec import decode_messages
from ...remoting.receipt import Receipt, decode_offsets, decode_start_offsets
from ...remoting.request_codes import RequestCode as Code
from .builders import BROKER_NAME, STORED, Names, properties, send_fields, unique_key
from .normalise import (
    Normaliser,
    any_order,
    clock,
    java_exception_text,
    offset_ids,
    receipts,
    revive_queues,
    unordered,
    unset_remark,
)
from .request import ANY_CODE, Body, BodyKind, FieldValue, Played, Request

MINUTE_MS = 60_000
WAIT_MS = 8_000
"""How long a pop waits that is to be woken; less than the player waits for an answer."""

POPPED: tuple[Normaliser, ...] = (
    *STORED,
    clock("fields.popTime"),
    revive_queues("fields.reviveQid"),
    any_order("fields.startOffsetInfo", "fields.msgOffsetInfo"),
    unordered("body"),
    clock("body.*.properties.1ST_POP_TIME"),
    receipts("body.*.properties.POP_CK"),
)
"""For an answer with popped messages. The messages of several queues are sorted."""

POP_ONLY: tuple[Normaliser, ...] = (clock("fields.popTime"), revive_queues("fields.reviveQid"))
"""For an answer to a pop without a message, and to a change of the invisible time."""


def asking(code: Code, **usual: Any) -> Callable[..., Request]:
    """A maker of requests with one code.

    Args:
      usual: arguments of `Request`, unless the maker's call has others.
    Returns: a function of the name, the fields, and further arguments of `Request`.
    """

    def make(
        name: str, fields: Mapping[str, FieldValue] = MappingProxyType({}), **more: Any
    ) -> Request:
        found = Request(name, code, fields, **{**usual, **more})
        return replace(found, normalisers=(*found.normalisers, unset_remark()))

    return make


pop = asking(Code.POP_MESSAGE, body_kind=BodyKind.RECORDS, normalisers=POPPED)
empty_pop = partial(pop, normalisers=POP_ONLY, expect=210)
ack = asking(Code.ACK_MESSAGE)


def malformed(
    name: str,
    code: Code,
    fields: Mapping[str, FieldValue] = MappingProxyType({}),
    body: Body = b"",
) -> Request:
    """A request with something missing or unreadable.

    Apache's answers with the text of a Java exception, or takes it for 0 or nothing and serves the
    request.
    """
    return Request(
        name,
        code,
        fields,
        body,
        expect=ANY_CODE,
        erroneous=True,
        body_kind=BodyKind.RECORDS,
        normalisers=(*POPPED, java_exception_text(), unset_remark()),
    )


def pop_fields(group: str, topic: str, **changed: FieldValue) -> dict[str, FieldValue]:
    """The header of a pop of queue 0, as clients fill it; the broker's clock, no waiting."""
    return {
        "consumerGroup": group,
        "topic": topic,
        "queueId": 0,
        "maxMsgNums": 32,
        "invisibleTime": MINUTE_MS,
        "pollTime": 0,
        "bornTime": 0,
        "initMode": 0,
        "expType": "TAG",
        "exp": "*",
        "order": False,
        "bname": BROKER_NAME,
        **changed,
    }


def ack_fields(
    group: str, topic: str, receipt: FieldValue, offset: FieldValue, **changed: FieldValue
) -> dict[str, FieldValue]:
    """The header of an acknowledgement of a message of queue 0."""
    return {
        "consumerGroup": group,
        "topic": topic,
        "queueId": 0,
        "extraInfo": receipt,
        "offset": offset,
        "bname": BROKER_NAME,
        **changed,
    }


def is_found(answer: RemotingCommand) -> bool:
    """Whether an answer is one of success, as that to a pop with messages; for `until`."""
    return answer.code == 0


def offset_is(offset: int) -> Callable[[RemotingCommand], bool]:
    """For `until`: whether an answer has this offset."""
    return lambda answer: answer.ext_fields.get("offset") == str(offset)


def found_receipts(played: Played, request: str) -> list[Receipt]:
    """The receipts of all messages in the answer to a pop; none if there is no such answer."""
    answer = played.answers.get(request)
    if answer is None:
        return []
    fields = answer.ext_fields
    try:
        starts = decode_start_offsets(fields["startOffsetInfo"])
        offsets = decode_offsets(fields["msgOffsetInfo"])
        return [
            Receipt(
                starts[key],
                int(fields["popTime"]),
                int(fields["invisibleTime"]),
                int(fields["reviveQid"]),
                key.form,
                BROKER_NAME,
                key.queue_id,
                offset,
            )
            for key, some in offsets.items()
            for offset in some
        ]
    except (RemoteProtocolError, KeyError, ValueError):
        return []


def receipt(request: str, number: int = 0) -> Callable[[Played], object]:
    """A field's value: the receipt of a message in the answer to an earlier pop; "" if none."""

    def value(played: Played) -> object:
        found = found_receipts(played, request)
        return found[number].to_text() if number < len(found) else ""

    return value


def stored_receipt(request: str, number: int = 0) -> Callable[[Played], object]:
    """A field's value: the receipt that the broker wrote into a popped message."""

    def value(played: Played) -> object:
        answer = played.answers.get(request)
        if answer is None or answer.code != 0:
            return ""
        try:
            records = decode_messages(answer.body, inflate=False)
        except RemoteProtocolError:
            return ""
        return records[number].properties.get("POP_CK", "") if number < len(records) else ""

    return value


def changed_receipt(request: str, change: str, offset: int) -> Callable[[Played], object]:
    """A field's value: the receipt after a change of the invisible time, as clients make it.

    Args:
      request: the pop.
      change: the request that changed the time.
      offset: the message's queue offset.
    """

    def value(played: Played) -> object:
        found = [one for one in found_receipts(played, request) if one.offset == offset]
        if not found:
            return ""
        times = [played.field(change, name) for name in ("popTime", "invisibleTime", "reviveQid")]
        if not all(text.isdecimal() for text in times):
            return ""
        pop_time, invisible_time, revive_queue = map(int, times)
        return (
            found[0]
            ._replace(
                start_offset=offset,
                pop_time=pop_time,
                invisible_time=invisible_time,
                revive_queue_id=revive_queue,
            )
            .to_text()
        )

    return value


def sent(
    names: Names, topic: str, count: int, *, queue_id: int = 0, first: int = 0
) -> list[Request]:
    """Requests that send messages with the tags A and B by turns and a number n each.

    The last request waits until they can be consumed: a broker answers a send before that.

    Args:
      count: number of messages.
      first: n of the first; greater than 0: as many are in the queue already.
    """
    steps = [
        Request(
            f"message {number} of queue {queue_id}",
            Code.SEND_MESSAGE_V2,
            send_fields(
                topic,
                properties(
                    TAGS="AB"[number % 2],
                    n=str(number),
                    UNIQ_KEY=unique_key(names, 100 * queue_id + number),
                ),
                e=queue_id,
            ),
            b"body %d" % number,
            normalisers=(offset_ids("fields.msgId"),),
        )
        for number in range(first, first + count)
    ]
    end = first + count
    return [
        *steps,
        Request(
            f"{end} messages of queue {queue_id}",
            Code.GET_MAX_OFFSET,
            {"topic": topic, "queueId": queue_id},
            until=offset_is(end),
        ),
    ]


def committed(group: str, topic: str, name: str, offset: int, queue_id: int = 0) -> Request:
    """A request for a group's offset, repeated until it is the wanted one.

    A broker moves the offset some moments after a pop or an acknowledgement.
    """
    fields = {"consumerGroup": group, "topic": topic, "queueId": queue_id}
    return Request(name, Code.QUERY_CONSUMER_OFFSET, fields, until=offset_is(offset))


def without(fields: dict[str, FieldValue], *names: str) -> dict[str, FieldValue]:
    """The fields but some."""
    return {name: value for name, value in fields.items() if name not in names}
