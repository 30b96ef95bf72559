"""SendMessage and RecallMessage, and what a receive gives of each kind of message."""

from __future__ import annotations

from typing import Any

from ...grpc_protocol.enums import MessageType
from ..wire_differ.normalise import without
from .builders import has_messages, in_s, join, message, receive, resource, send, wrong_calls
from .call import Call, Group, Script, Step, Together, Topic, given

_NO_OFFSETS = (without("offset", "answers.0.entries.*"),)
_KINDS = ("", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "PRIORITY", "MIXED")


MESSAGES: dict[str, dict[str, Any]] = {
    "NORMAL": {},
    "FIFO": {"message_type": MessageType.FIFO, "message_group": "a group"},
    "DELAY": {"message_type": MessageType.DELAY, "delivery_timestamp": in_s(60)},
    "TRANSACTION": {"message_type": MessageType.TRANSACTION},
    "PRIORITY": {"message_type": MessageType.PRIORITY, "priority": 3},
    "LITE": {"message_type": MessageType.LITE, "lite_topic": "lite"},
    "FIFO as NORMAL": {"message_group": "a group"},
    "DELAY as NORMAL": {"delivery_timestamp": in_s(60)},
    "FIFO and DELAY": {"message_group": "a group", "delivery_timestamp": in_s(60)},
    "TRANSACTION and FIFO": {
        "message_type": MessageType.TRANSACTION,
        "message_group": "a group",
    },
    "TRANSACTION and DELAY": {
        "message_type": MessageType.TRANSACTION,
        "delivery_timestamp": in_s(60),
    },
    "PRIORITY and FIFO": {"message_group": "a group", "priority": 1},
    "NORMAL as FIFO": {"message_type": MessageType.FIFO},
    "NORMAL as DELAY": {"message_type": MessageType.DELAY},
    "NORMAL as LITE": {"message_type": MessageType.LITE},
    "NORMAL as PRIORITY": {"message_type": MessageType.PRIORITY},
    "NORMAL as unspecified": {"message_type": 0},
    "NORMAL as an unknown kind": {"message_type": 99},
    "DELAY in the past": {"delivery_timestamp": in_s(-60)},
    "DELAY in 25 hours": {"delivery_timestamp": in_s(90_000)},
    "DELAY in 4 days": {"delivery_timestamp": in_s(345_600)},
}


def _by_kind() -> Script:
    steps: list[Step] = []
    for kind in _KINDS:
        topic = f"send-{kind or 'none'}"
        steps.append(Topic(topic, kind))
        steps += (
            send(f"{words} to a topic of {kind or 'no kind'}", message(topic, **system))
            for words, system in MESSAGES.items()
        )
    return Script("sends-by-kind", tuple(steps))


def _places() -> Script:
    topics = (
        "send-unknown",
        "TBW102",
        "SCHEDULE_TOPIC_XXXX",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "%RETRY%send-group",
        "%DLQ%send-group",
        "%RETRY%send-unknown",
        "ns%send-unknown",
    )
    steps: list[Step] = [Group("send-group")]
    steps += (send(f"to the topic {topic}", message(topic)) for topic in topics)
    for perm in (0, 2, 4):
        topic = f"send-perm-{perm}"
        steps += (
            Topic(topic, perm=perm),
            send(f"to a topic with the permission {perm}", message(topic)),
        )
    for reads, writes in ((0, 1), (1, 0), (1, 3), (3, 1)):
        topic = f"send-{reads}-{writes}"
        words = f"to a topic of {reads} queues to read and {writes} to write"
        steps += (
            Topic(topic, "MIXED", reads=reads, writes=writes),
            send(words, message(topic)),
            send(f"in order {words}", message(topic, message_group="g"), changes=_NO_OFFSETS),
        )
    return Script("sends-to-places", tuple(steps))


def _batches() -> Script:
    topic, other = "send-batch", "send-batch-other"
    fifo: dict[str, Any] = {"message_type": MessageType.FIFO, "message_group": "g"}
    steps: list[Step] = [
        Topic(topic, "MIXED"),
        Topic(other, "MIXED"),
        send("none"),
        send("two", message(topic, message_id="01A"), message(topic, message_id="01B")),
        send("two with one id", message(topic), message(topic)),
        send("two of two topics", message(topic), message(other)),
        send("two of a topic and an unknown one", message(topic), message("send-unknown")),
        send("two of one group", message(topic, **fifo), message(topic, **fifo)),
        send("two of two groups", message(topic, **fifo), message(topic, message_group="h")),
        send("a normal one and one in order", message(topic), message(topic, **fifo)),
        send("one in order and a normal one", message(topic, **fifo), message(topic)),
        send("two delayed", *[message(topic, delivery_timestamp=in_s(60))] * 2),
        send("a normal one and a delayed one", message(topic), message(topic, **MESSAGES["DELAY"])),
        send("two of transactions", *[message(topic, message_type=4)] * 2),
        send(
            "a normal one and one of a transaction", message(topic), message(topic, message_type=4)
        ),
        send("two with priorities", *[message(topic, priority=2)] * 2),
        send("two with an empty body", *[message(topic, b"")] * 2),
        send("one with and one without a body", message(topic), message(topic, b"")),
        send("one without an id", message(topic), message(topic, message_id="")),
        send("one gzipped and one not", message(topic, body_encoding=2), message(topic)),
        send("100", *[message(topic, message_id=f"0{number}") for number in range(100)]),
        send("5 of 1 MiB", *[message(topic, b"x" * (1 << 20))] * 5),
    ]
    return Script("sends-of-batches", tuple(steps))


_NAMES = (
        "TAGS", "KEYS", "DELAY", "RETRY_TOPIC", "UNIQ_KEY", "PGROUP", "__SHARDINGKEY",
        "TIMER_DELIVER_MS", "TRAN_MSG", "TRACE_CONTEXT", "__BORNHOST", "__LITE_TOPIC", "WAIT",
        "INSTANCE_ID", "CLUSTER", "MIN_OFFSET", "_SYS_MSG_PRIORITY_", "POP_CK", "traceParent",
        "DLQ_ORIGIN_TOPIC", "INNER_NUM", "BORN_TIMESTAMP", "CHECK_IMMUNITY_TIME_IN_SECONDS",
        "RECONSUME_TIME", "TIMER_DELAY_SEC", "MSG_REGION", "TRACE_ON", "__STREAM",
    )  # fmt: skip
"""Of properties that clients do not set as their own, or that Apache's lets them set."""


def _sizes() -> Script:
    topic = "send-sizes"
    steps: list[Step] = [
        Topic(topic, "MIXED"),
        send("4 MiB", message(topic, b"x" * (4 << 20))),
        send("4 MiB and a byte", message(topic, b"x" * ((4 << 20) + 1))),
        send("127 properties", message(topic, properties={f"k{n}": "v" for n in range(127)})),
        send("128 properties", message(topic, properties={f"k{n}": "v" for n in range(128)})),
        send("129 properties", message(topic, properties={f"k{n}": "v" for n in range(129)})),
        send("16 KiB of properties", message(topic, properties={"k": "v" * 16_383})),
        send("16 KiB and a byte of properties", message(topic, properties={"k": "v" * 16_384})),
        send("16 KiB of properties of other letters", message(topic, properties={"k": "♥" * 5461})),
        send("a long tag", message(topic, tag="t" * 40_000)),
        send("a tag with a bar", message(topic, tag="a|b")),
        send("a tag with two bars", message(topic, tag="a||b")),
        send("a tag with spaces around", message(topic, tag=" a ")),
        send("a key with a space", message(topic, keys=["a b"])),
        send("two keys", message(topic, keys=["a", "b"])),
        send("1000 keys", message(topic, keys=[f"key{n}" for n in range(1000)])),
        send("a group of 63 bytes", message(topic, message_group="g" * 63)),
        send("a group of 64 bytes", message(topic, message_group="g" * 64)),
        send("a group of 22 letters of 3 bytes", message(topic, message_group="♥" * 22)),
        send("a long id", message(topic, message_id="i" * 300)),
        send("a trace context", message(topic, trace_context="00-abc-def-01")),
        send("a long trace context", message(topic, trace_context="t" * 40_000)),
        send("a gzipped body", message(topic, b"\x1f\x8b", body_encoding=2)),
        send("a wrong digest", message(topic, body_digest={"type": 2, "checksum": "00"})),
        send("no birth", message(topic, born_timestamp={})),
        send("a birth in the past", message(topic, born_timestamp=in_s(-3600))),
    ]
    steps += (
        send(f"the property {name}", message(topic, properties={name: "v"})) for name in _NAMES
    )
    for seconds in (-1, 0, 1, 3600, 3601):
        system: dict[str, Any] = {
            "message_type": 4,
            "orphaned_transaction_recovery_duration": {"seconds": seconds},
        }
        steps.append(send(f"a check after {seconds} s", message(topic, **system)))
    steps += (
        send(f"the priority {priority}", message(topic, priority=priority))
        for priority in (-1, 0, 9, 10, 1000)
    )
    return Script("sends-of-sizes", tuple(steps))


def _wrong() -> Script:
    topic = "send-wrong"
    sent = message(topic, tag="t", message_group="g")
    return Script(
        "sends-with-wrong-fields",
        (
            Topic(topic, "MIXED"),
            *wrong_calls("SendMessage", {"messages": [sent]}, changes=_NO_OFFSETS),
        ),
    )


_BACK: dict[str, dict[str, Any]] = {
    "plain": {},
    "with all": {
        "tag": "t",
        "keys": ["a", "b"],
        "properties": {"k": "v", "ü": "♥"},
        "trace_context": "00-abc-def-01",
        "born_host": "a host",
        "delivery_attempt": 3,
    },
    "in order": {"message_type": 2, "message_group": "g"},
    "delayed": {"message_type": 3, "delivery_timestamp": in_s(1)},
    "with a priority": {"message_type": 6, "priority": 1},
    "of another letter case of its id": {"message_id": "01ab-é"},
    "gzipped": {"body_encoding": 2},
    "with a digest": {"body_digest": {"type": 1, "checksum": "00"}},
    "of no birth": {"born_timestamp": {}},
    "of the past": {"born_timestamp": {"seconds": 1_000_000_000, "nanos": 5_000_000}},
    "of an early birth": {"born_timestamp": {"seconds": -5}},
    "due before": {"delivery_timestamp": in_s(-60)},
}
"""Messages that are received after they were sent."""


def _received() -> Script:
    """What of a message comes back, of each kind."""
    made: list[Step] = []
    firsts: list[Call] = []
    sends: list[Call] = []
    receives: list[Call] = []
    for words, system in _BACK.items():
        name = words.replace(" ", "-")
        topic, group = f"send-back-{name}", f"send-back-{name}-group"
        settings, first = join(topic, group, client=name)
        made += (Topic(topic, "MIXED"), Group(group), settings)
        firsts.append(first)
        sends.append(send(f"{words}, to receive it", message(topic, **system)))
        options = {"until": has_messages(1), "client": name}
        receives.append(receive(f"a message {words}", topic, group, options=options))
    steps = (*made, Together(tuple(firsts)), *sends, Together(tuple(receives)))
    return Script("messages-of-each-kind", steps)


def _recalls() -> Script:
    topic = "recall"
    delayed = message(topic, message_type=3, delivery_timestamp=in_s(60))
    handle = given("a delayed message", "0.entries.0.recall_handle")
    fields = {"topic": resource(topic), "recall_handle": handle}
    other = {**fields, "topic": resource("recall-other")}
    steps: list[Step] = [
        Topic(topic, "DELAY"),
        Topic("recall-other", "DELAY"),
        send("a delayed message", delayed),
        Call("of another topic", "RecallMessage", other),
        Call("of an unknown topic", "RecallMessage", {**fields, "topic": resource("recall-no")}),
        Call("of a system topic", "RecallMessage", {**fields, "topic": resource("TBW102")}),
        Call("a delayed message", "RecallMessage", fields),
        Call("a message that was recalled", "RecallMessage", fields),
        *wrong_calls("RecallMessage", {"topic": resource(topic), "recall_handle": "x"}),
        Call("no base64", "RecallMessage", {**fields, "recall_handle": "!!"}),
        Call("base64 of nothing", "RecallMessage", {**fields, "recall_handle": "djE="}),
    ]
    return Script("recalls", tuple(steps))


SCRIPTS = (_by_kind(), _places(), _batches(), _sizes(), _wrong(), _received(), _recalls())
