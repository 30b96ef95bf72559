"""ReceiveMessage, AckMessage, ChangeInvisibleDuration, ForwardMessageToDeadLetterQueue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from .builders import (
    consumer_settings,
    has_messages,
    join,
    message,
    receive,
    receive_fields,
    resource,
    send,
    wrong_calls,
)
from .call import NOTHING, Call, Group, Script, Step, Talk, Together, Topic, given
from .tree import durations

HANDLE: Final = "1.message.system_properties.receipt_handle"
_GOT: Final[dict[str, Any]] = {"until": has_messages(1)}


def _got(
    name: str, topic: str, group: str, *, options: Mapping[str, Any] = NOTHING, **changed: Any
) -> tuple[Call, Call]:
    """A message is sent and received."""
    return (
        send(f"sent for {name}", message(topic)),
        receive(name, topic, group, options={**_GOT, **options}, **changed),
    )


def _settle(method: str, topic: str, group: str, handle: Any, **changed: Any) -> dict[str, Any]:
    """The fields of a request about one message."""
    both: dict[str, Any] = {"topic": resource(topic), "group": resource(group)}
    if method == "AckMessage":
        entry = {"message_id": "01AB", "receipt_handle": handle}
        return both | {"entries": [entry]} | changed
    both |= {"receipt_handle": handle, "message_id": "01AB"}
    if method == "ChangeInvisibleDuration":
        both["invisible_duration"] = {"seconds": 30}
    else:
        both |= {"delivery_attempt": 1, "max_delivery_attempts": 3}
    return both | changed


def _in_namespace(topic: str, group: str) -> dict[str, Any]:
    return receive_fields(topic, group) | {
        "group": {"resource_namespace": "ns", "name": group},
        "message_queue": {"topic": {"resource_namespace": "ns", "name": topic}, "id": -1},
    }


def _received() -> Script:
    topic, group = "receive", "receive-group"
    tags = {"type": 1, "expression": "a || b"}
    sql = {"type": 2, "expression": "k = 1"}
    steps: list[Step] = [
        Topic(topic, "MIXED"),
        Group(group),
        *join(topic, group),
        *_got("one message", topic, group),
        send("two at once", message(topic, message_id="01A"), message(topic, message_id="01B")),
        receive("two messages", topic, group, options={"until": has_messages(2)}),
        send("two for a batch of 1", message(topic, message_id="01A"), message(topic)),
        receive("the first of two", topic, group, batch_size=1, options=_GOT),
        receive("the second of two", topic, group, batch_size=1, options=_GOT),
        send("with the tag a", message(topic, tag="a")),
        receive("by tags", topic, group, filter_expression=tags, options=_GOT),
        send("with the tag c", message(topic, tag="c")),
        receive("by other tags", topic, group, filter_expression=tags),
        send("with a property", message(topic, properties={"k": "1"})),
        receive("by SQL", topic, group, filter_expression=sql, options=_GOT),
        send("with another property", message(topic, properties={"k": "2"})),
        receive("by SQL that does not match", topic, group, filter_expression=sql),
        *_got("with renewal", topic, group, auto_renew=True),
        *_got("with an attempt's id", topic, group, attempt_id="attempt-1"),
        send("sent for a receive with a namespace", message(topic)),
        Call("with a namespace", "ReceiveMessage", _in_namespace(topic, group), **_GOT),
    ]
    return Script("receives", tuple(steps))


def _empty() -> Script:
    """Receives that find nothing, all at once: they wait."""
    topic, group = "receive-empty", "receive-empty-group"
    steps: list[Step] = [Topic(topic), Group(group), *join(topic, group)]
    waits: list[Call] = [receive("nothing there", topic, group)]
    for seconds in (0, 1, 5, 6, 20, 21, 100):
        polling = {"long_polling_timeout": {"seconds": seconds}}
        waits.append(receive(f"for {seconds} s", topic, group, **polling))
    for timeout_s in (0.001, 1.0, 4.9, 9.0):
        limit = {"timeout_s": timeout_s}
        waits.append(receive(f"within {timeout_s:g} s", topic, group, options=limit))
    old = {"x-mq-client-version": "5.0.2"}
    waits += (
        receive(
            "of an old client within 4 s", topic, group, options={"timeout_s": 4.0, "metadata": old}
        ),
        receive("without a deadline", topic, group, options={"timeout_s": None}),
    )
    fields = receive_fields(topic, group)
    del fields["long_polling_timeout"]
    waits.append(Call("for an unknown time within 9 s", "ReceiveMessage", fields, timeout_s=9.0))
    for seconds in (0, 9, 10, 43_200, 43_201):
        invisible = {"invisible_duration": {"seconds": seconds}}
        waits.append(receive(f"invisible for {seconds} s", topic, group, **invisible))
    for kind, expression in (
        (1, ""), (1, " "), (1, "|"), (1, "||"), (1, "a|b"), (1, "a||"), (1, "a || a"), (1, "*"),
        (1, "* || a"), (1, "t" * 300), (2, ""), (2, " "), (2, "k = "), (2, "k = 1"), (2, "1"),
        (2, "k LIKE 'a'"), (2, "*"), (2, "k = 1 AND"), (0, "*"), (0, "a"), (9, "*"), (9, "k = 1"),
    ):  # fmt: skip
        words = f"by {expression[:20]!r} of the kind {kind}"
        by = {"filter_expression": {"type": kind, "expression": expression}}
        waits.append(receive(words, topic, group, **by))
    steps.append(Together(tuple(waits)))
    return Script("empty-receives", tuple(steps))


def _places() -> Script:
    group = "receive-place-group"
    waits: list[Call] = []
    steps: list[Step] = [
        Group(group),
        Group("receive-off-group", {"consumeEnable": False}),
        Group("receive-fifo-group", {"consumeMessageOrderly": True}),
    ]
    for perm in (0, 2, 4):
        topic = f"receive-perm-{perm}"
        steps.append(Topic(topic, perm=perm))
        waits.append(receive(f"from a topic with the permission {perm}", topic, group))
    topic = "receive-place"
    steps += (
        Topic(topic, reads=2, writes=2),
        Talk("settings for the places", (consumer_settings(topic, group),), is_compared=False),
    )
    topics = (
        "receive-unknown",
        "TBW102",
        "SCHEDULE_TOPIC_XXXX",
        "%RETRY%x",
        f"%RETRY%{group}",
    )
    groups = ("receive-unknown-group", "CID_RMQ_SYS_x", "receive-off-group", "a b")
    waits += (receive(f"from the topic {other}", other, group) for other in topics)
    waits += (receive(f"of the group {other}", topic, other) for other in groups)
    for queue_id in (-1, 0, 1, 2, 99, -2):
        queue = {"message_queue": {"topic": resource(topic), "id": queue_id}}
        waits.append(receive(f"from the queue {queue_id}", topic, group, **queue))
        waits.append(receive(f"in order from {queue_id}", topic, "receive-fifo-group", **queue))
    waits.append(
        receive(
            "of another broker",
            topic,
            group,
            message_queue={"topic": resource(topic), "id": -1, "broker": {"name": "other"}},
        )
    )
    steps.append(Together(tuple(waits)))
    return Script("receives-from-places", tuple(steps))


def _wrong() -> Script:
    topic, group = "receive-wrong", "receive-wrong-group"
    fields = receive_fields(topic, group)
    fields["attempt_id"] = "a"
    return Script(
        "receives-with-wrong-fields",
        (
            Topic(topic),
            Group(group),
            *join(topic, group),
            Together(wrong_calls("ReceiveMessage", fields)),
        ),
    )


def _settled() -> Script:
    """Good and bad handles of each method."""
    topic, group = "settle", "settle-group"
    steps: list[Step] = [Topic(topic), Topic("settle-other"), Group(group), *join(topic, group)]
    for method in ("AckMessage", "ChangeInvisibleDuration", "ForwardMessageToDeadLetterQueue"):
        got = f"to settle by {method}"
        handle = given(got, HANDLE)
        fields = _settle(method, topic, group, handle)
        steps += (
            *_got(got, topic, group),
            Call("of another group", method, fields | {"group": resource("settle-unknown")}),
            Call("of a system group", method, fields | {"group": resource("CID_RMQ_SYS_x")}),
            Call("of another topic", method, fields | {"topic": resource("settle-other")}),
            Call("of an unknown topic", method, fields | {"topic": resource("settle-unknown")}),
            Call("of a system topic", method, fields | {"topic": resource("TBW102")}),
            Call("a good one", method, fields),
            Call("the same again", method, fields),
            *_got(f"{got}, of another id", topic, group),
            Call(
                "by another message's id",
                method,
                _settle(method, topic, group, given(f"{got}, of another id", HANDLE))
                | ({} if method == "AckMessage" else {"message_id": "other"}),
            ),
        )
        for words, wrong in _HANDLES.items():
            steps.append(Call(f"of {words}", method, _settle(method, topic, group, wrong)))
    return Script("handles", tuple(steps))


_HANDLES: Final[Mapping[str, str]] = {
    "an unknown handle": "handle",
    "an expired handle": "0 1700000000000 30000 0 0 broker-a 0 0 100",
    "a handle without a place": "0 1700000000000 30000 0 0 broker-a 0 0",
    "a handle of another broker": "0 4000000000000 30000 0 0 other 0 0 100",
    "a handle of an unknown message": "0 4000000000000 30000 0 0 broker-a 0 999 100",
    "a handle of an unknown queue": "0 4000000000000 30000 0 0 broker-a 99 0 100",
    "a handle with a letter": "0 4000000000000 30000 0 x broker-a 0 0 100",
    "a handle with too much": "0 4000000000000 30000 0 0 broker-a 0 0 100 7",
    "a handle with a negative place": "0 4000000000000 30000 0 0 broker-a 0 0 -100",
    "a handle with a great number": "0 99999999999999999999 30000 0 0 broker-a 0 0 100",
    "a handle of spaces": " " * 8,
}


def _changed() -> Script:
    topic, group = "change", "change-group"
    method = "ChangeInvisibleDuration"
    got = given("to change it", HANDLE)
    again = given("for 60 s", "0.receipt_handle")
    steps: list[Step] = [
        Topic(topic),
        Group(group),
        *join(topic, group),
        *_got("to change it", topic, group),
    ]
    for words, seconds in (("-1 s", -1), ("43201 s", 43_201), ("60 s", 60)):
        by = {"invisible_duration": {"seconds": seconds}}
        steps.append(Call(f"for {words}", method, _settle(method, topic, group, got, **by)))
    wrong = _settle(method, topic, group, again)
    steps += (
        Call("by the old handle", method, _settle(method, topic, group, got)),
        Call(
            "acknowledged by the old handle", "AckMessage", _settle("AckMessage", topic, group, got)
        ),
        Call(
            "acknowledged by the new handle",
            "AckMessage",
            _settle("AckMessage", topic, group, again),
        ),
        *_got("to have it again", topic, group),
        Call(
            "for no time",
            method,
            _settle(method, topic, group, given("to have it again", HANDLE), invisible_duration={}),
        ),
        receive("it comes again", topic, group, options=_GOT),
        *_got("to suspend it", topic, group),
        Call(
            "suspended",
            method,
            _settle(method, topic, group, given("to suspend it", HANDLE), suspend=True),
        ),
        *wrong_calls(method, {**wrong, "receipt_handle": _HANDLES["an expired handle"]}),
    )
    return Script("changes-of-the-invisible-time", tuple(steps))


def _acknowledged() -> Script:
    topic, group = "ack", "ack-group"
    first, second = given("two to ack", HANDLE), given("two to ack", HANDLE.replace("1", "2", 1))
    steps: list[Step] = [
        Topic(topic),
        Group(group),
        *join(topic, group),
        send("two for acks", message(topic, message_id="01A"), message(topic, message_id="01B")),
        receive("two to ack", topic, group, options={"until": has_messages(2)}),
        Call(
            "a good and a bad one",
            "AckMessage",
            _settle("AckMessage", topic, group, "")
            | {
                "entries": [
                    {"message_id": "01A", "receipt_handle": first},
                    {"message_id": "x", "receipt_handle": _HANDLES["an expired handle"]},
                ]
            },
        ),
        Call(
            "a good one twice",
            "AckMessage",
            _settle("AckMessage", topic, group, "")
            | {"entries": [{"message_id": "01B", "receipt_handle": second}] * 2},
        ),
        Call(
            "two bad ones",
            "AckMessage",
            _settle("AckMessage", topic, group, "")
            | {
                "entries": [
                    {"message_id": "a", "receipt_handle": _HANDLES["an expired handle"]},
                    {"message_id": "b", "receipt_handle": _HANDLES["an expired handle"]},
                ]
            },
        ),
        Call(
            "an expired and an unknown one",
            "AckMessage",
            _settle("AckMessage", topic, group, "")
            | {
                "entries": [
                    {"message_id": "a", "receipt_handle": _HANDLES["an expired handle"]},
                    {"message_id": "b", "receipt_handle": "handle"},
                ]
            },
        ),
        Call("none", "AckMessage", _settle("AckMessage", topic, group, "", entries=[])),
        *wrong_calls(
            "AckMessage",
            _settle("AckMessage", topic, group, _HANDLES["an expired handle"]),
        ),
        *wrong_calls(
            "ForwardMessageToDeadLetterQueue",
            _settle("ForwardMessageToDeadLetterQueue", topic, group, _HANDLES["an expired handle"]),
        ),
    ]
    return Script("acknowledgements", tuple(steps))


def _dead_letters() -> Script:
    topic, group, method = "dead", "dead-group", "ForwardMessageToDeadLetterQueue"
    dead = "%DLQ%dead-group"
    handle = given("to bury it", HANDLE)
    steps: list[Step] = [
        Topic(topic),
        Group(group),
        Group("dead-reader"),
        *join(topic, group),
        send("for the graveyard", message(topic, tag="t", properties={"k": "v"})),
        receive("to bury it", topic, group, options=_GOT),
        Call("buried", method, _settle(method, topic, group, handle)),
        Call("the dead letter's topic", "QueryRoute", {"topic": resource(dead)}),
        receive("the dead letters", dead, "dead-reader"),
        receive("after it is buried", topic, group),
    ]
    return Script("dead-letters", tuple(steps))


def _in_order() -> Script:
    topic, group = "order", "order-group"
    queue = {"topic": resource(topic), "id": 0, "broker": {"name": "broker-a"}}
    fifo: dict[str, Any] = {"message_type": 2, "message_group": "g"}
    steps: list[Step] = [
        Topic(topic, "FIFO"),
        Group(group, {"consumeMessageOrderly": True}),
        Talk("in order", (consumer_settings(topic, group),)),
        receive(
            "first in order", topic, group, message_queue=queue, options={"is_compared": False}
        ),
        send("1", message(topic, message_id="01A", **fifo)),
        send("2", message(topic, message_id="01B", **fifo)),
        receive(
            "the first",
            topic,
            group,
            message_queue=queue,
            batch_size=1,
            attempt_id="x",
            options=_GOT,
        ),
        receive(
            "the first again by its attempt",
            topic,
            group,
            message_queue=queue,
            batch_size=1,
            attempt_id="x",
        ),
        receive("nothing before the first is settled", topic, group, message_queue=queue),
        receive("nothing by another attempt", topic, group, message_queue=queue, attempt_id="y"),
        Call(
            "ack the first",
            "AckMessage",
            _settle("AckMessage", topic, group, given("the first again by its attempt", HANDLE)),
        ),
        receive("the second", topic, group, message_queue=queue, batch_size=1, options=_GOT),
        Call(
            "the second for no time",
            "ChangeInvisibleDuration",
            _settle(
                "ChangeInvisibleDuration",
                topic,
                group,
                given("the second", HANDLE),
                invisible_duration={},
            ),
            changes=(durations("answers.0.receipt_handle"),),
        ),
        receive("the second again", topic, group, message_queue=queue, options=_GOT),
    ]
    return Script("in-order", tuple(steps))


def _long_poll() -> Script:
    """A receive that waits gets what is sent meanwhile."""
    topic, group = "poll", "poll-group"
    steps: list[Step] = [
        Topic(topic),
        Group(group),
        *join(topic, group),
        Together(
            (
                receive(
                    "a message that comes meanwhile",
                    topic,
                    group,
                    options={"until": has_messages(1)},
                ),
                send("meanwhile", message(topic)),
            )
        ),
    ]
    return Script("long-polls", tuple(steps))


SCRIPTS = (
    _received(),
    _empty(),
    _places(),
    _wrong(),
    _settled(),
    _changed(),
    _acknowledged(),
    _dead_letters(),
    _in_order(),
    _long_poll(),
)
