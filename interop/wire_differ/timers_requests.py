"""Scripts for delayed and timed messages and their recall."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from ...remoting.codec import SerializeType
from ...remoting.request_codes import RequestCode as Code
from .builders import (
    BROKER_NAME,
    STORED,
    Names,
    bad,
    create_group,
    create_topic,
    properties,
    pull_until,
    send_fields,
    unique_key,
)
from .normalise import any_queue, clock, java_exception_text, recall_handles
from .request import FieldValue, Request, Script, answer_field
from .sends_requests import PLACE, send

_recall = partial(Request, code=Code.RECALL_MESSAGE, since="5.5.0")


def timers(header: SerializeType) -> Script:
    """Delayed and timed messages are sent, delivered and recalled."""
    names = Names("timer", header)
    topic, group = names("topic"), names("group")
    key = unique_key(names, 1)
    handle = answer_field("in an hour", "recallHandle")
    timed = properties(TIMER_DELAY_SEC="3600", UNIQ_KEY=key)
    soon = properties(TIMER_DELAY_MS="1000", UNIQ_KEY=unique_key(names, 2))
    delayed = properties(DELAY="1", UNIQ_KEY=unique_key(names, 3))
    who: dict[str, FieldValue] = {
        "producerGroup": "wd-producers",
        "topic": topic,
        "bname": BROKER_NAME,
    }
    place = (*PLACE, any_queue("fields.queueOffset"), recall_handles("fields.recallHandle"))
    steps = (
        create_topic(topic),
        create_group(group),
        send(
            name="in an hour",
            fields=send_fields(topic, timed),
            body=b"x",
            normalisers=place,
            since="5.5.0",
        ),
        _recall(name="a message", fields={**who, "recallHandle": handle}),
        send(
            name="in a second",
            fields=send_fields(topic, soon, e=1),
            normalisers=place,
            since="5.5.0",
        ),
        send(name="delay level 1", fields=send_fields(topic, delayed), normalisers=place),
        *_refused(names, topic, who, handle),
        pull_until(group, topic, "what was delayed", 1),
        replace(
            pull_until(group, topic, "what was timed", 1, queueId=1),
            since="5.5.0",
            normalisers=(
                *STORED,
                clock(
                    "body.*.properties.TIMER_ENQUEUE_MS",
                    "body.*.properties.TIMER_DEQUEUE_MS",
                    "body.*.properties.TIMER_OUT_MS",
                ),
            ),
        ),
    )
    return Script("timers", header, steps)


def _refused(
    names: Names, topic: str, who: dict[str, FieldValue], handle: FieldValue
) -> tuple[Request, ...]:
    wrong = partial(_recall, erroneous=True)
    late = properties(TIMER_DELAY_SEC="99999999", UNIQ_KEY=unique_key(names, 1))
    return (
        wrong(name="a bad handle", fields={**who, "recallHandle": "xyz"}, expect=604),
        wrong(name="without a handle", fields=who, expect=1, normalisers=(java_exception_text(),)),
        wrong(
            name="a topic that nobody knows",
            fields={**who, "topic": names("missing"), "recallHandle": handle},
            expect=17,
        ),
        wrong(
            name="another topic",
            fields={**who, "topic": "TBW102", "recallHandle": handle},
            expect=604,
        ),
        bad(
            "too late",
            Code.SEND_MESSAGE_V2,
            send_fields(topic, late),
            b"x",
            expect=13,
            since="5.5.0",
        ),
        bad(
            "a delay that is no number",
            Code.SEND_MESSAGE_V2,
            send_fields(topic, properties(DELAY="x")),
            b"x",
            expect=1,
            normalisers=(java_exception_text(),),
        ),
    )


SCRIPTS = (timers,)
"""Each creates a script for one kind of header."""
