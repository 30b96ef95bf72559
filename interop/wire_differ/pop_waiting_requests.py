"""Scripts for pops that wait, for notifications, for their number, and for peeks."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from ...remoting.codec import RemotingCommand, SerializeType
from ...remoting.request_codes import RequestCode as Code
from .builders import (
    BORN_MS,
    BROKER_NAME,
    STORED,
    Names,
    bad,
    create_group,
    create_topic,
)
from .normalise import java_exception_text, unordered
from .pop_parts import (
    POPPED,
    WAIT_MS,
    ack,
    ack_fields,
    asking,
    empty_pop,
    malformed,
    pop,
    pop_fields,
    receipt,
    sent,
    without,
)
from .request import ANY_CODE, BodyKind, FieldValue, Request, Script

SHORT_MS = 1_000

_peek = asking(
    Code.PEEK_MESSAGE,
    body_kind=BodyKind.RECORDS,
    normalisers=(*STORED, unordered("body")),
)
_notify = asking(Code.NOTIFICATION)
_info = asking(Code.POLLING_INFO)


def _polling(number: int, answer: RemotingCommand) -> bool:
    return answer.ext_fields.get("pollingNum") == str(number)


def waiting(header: SerializeType) -> Script:
    """Pops that wait for a message, and how many do."""
    names = Names("popwait", header)
    topic, group = names("topic"), names("group")
    fields = partial(pop_fields, group, topic, pollTime=WAIT_MS)
    queue: dict[str, FieldValue] = {"consumerGroup": group, "topic": topic, "queueId": 0}
    whole = {**queue, "queueId": -1}

    def counted(name: str, number: int, **changed: FieldValue) -> Request:
        return _info(name, {**queue, **changed}, connection="counter",
                     until=partial(_polling, number))  # fmt: skip

    steps = (
        create_topic(topic),
        create_group(group),
        _info("none waits", queue),
        empty_pop(name="for a second, in vain", fields=fields(pollTime=SHORT_MS)),
        pop(name="woken by a message", fields=fields(),
            meanwhile=(counted("one waits", 1), counted("none waits for all queues", 0,
                                                        queueId=-1),
                       *_on_own_connection(sent(names, topic, 1)))),
        counted("none waits any more", 0),
        pop(name="of all queues, woken by a message", fields=fields(queueId=-1),
            meanwhile=(counted("one waits for all queues", 1, queueId=-1),
                       *_on_own_connection(sent(names, topic, 1, queue_id=1)))),
        pop(name="by tag, woken by the second message", fields=fields(exp="A"),
            meanwhile=(counted("one waits by tag", 1),
                       *_on_own_connection(sent(names, topic, 2, first=1)))),
        bad("an unknown topic", Code.POLLING_INFO, {**queue, "topic": names("missing")},
            expect=17),
        bad("a queue that is not there", Code.POLLING_INFO, {**queue, "queueId": 2}, expect=29),
        bad("an illegal group", Code.POLLING_INFO, {**queue, "consumerGroup": "a b"}, expect=26),
        *(malformed(f"without {name}", Code.POLLING_INFO, without(whole, name)) for name in whole),
        malformed("no fields", Code.POLLING_INFO),
    )  # fmt: skip
    return Script("waiting pops", header, steps)


def _on_own_connection(steps: list[Request]) -> list[Request]:
    return [replace(step, connection="producer") for step in steps]


def notifications(header: SerializeType) -> Script:
    """Notifications: whether there is something to pop."""
    names = Names("popnotify", header)
    topic, group = names("topic"), names("group")
    write_only, closed = names("write"), names("closed")
    fields = partial(_notification, group, topic)
    wrong = partial(_notify, erroneous=True)
    whole = fields()
    sql = {"expType": "SQL92"}
    steps = (
        create_topic(topic),
        create_topic(write_only, perm=2),
        create_group(group),
        create_group(closed, consumeEnable=False),
        _notify("nothing", fields()),
        _notify("nothing, for a second", fields(pollTime=SHORT_MS)),
        _notify("woken by a message", fields(pollTime=WAIT_MS),
                meanwhile=tuple(_on_own_connection(sent(names, topic, 2)))),
        _notify("a message", fields()),
        _notify("a message of all queues", fields(queueId=-1)),
        _notify("another queue", fields(queueId=1)),
        _notify("by tag", fields(exp="B", expType="TAG")),
        _notify("by a tag that none has", fields(exp="C", expType="TAG")),
        _notify("in order", fields(order=True)),
        pop(name="what was notified", fields=pop_fields(group, topic)),
        _notify("nothing more", fields()),
        wrong("too late", fields(bornTime=BORN_MS)),
        wrong("an unknown topic", _notification(group, names("missing")), expect=17),
        wrong("a topic without read permission", _notification(group, write_only), expect=16),
        wrong("a queue that is not there", fields(queueId=2), expect=29),
        wrong("an illegal group", _notification("a b", topic), expect=26),
        wrong("a group that may not consume", _notification(closed, topic), expect=16),
        wrong("a wrong expression", fields(exp="n >", **sql), expect=ANY_CODE),
        *(malformed(f"without {name}", Code.NOTIFICATION, without(whole, name))
          for name in ("consumerGroup", "topic", "queueId", "pollTime", "bornTime")),
        malformed("a time that is no number", Code.NOTIFICATION, fields(pollTime="x")),
        malformed("no fields", Code.NOTIFICATION),
    )  # fmt: skip
    return Script("notifications", header, steps)


def _notification(group: str, topic: str, **changed: FieldValue) -> dict[str, FieldValue]:
    return {
        "consumerGroup": group,
        "topic": topic,
        "queueId": 0,
        "pollTime": 0,
        "bornTime": 0,
        "bname": BROKER_NAME,
        **changed,
    }


def peeks(header: SerializeType) -> Script:
    """Messages that are read without being popped."""
    names = Names("poppeek", header)
    topic, group = names("topic"), names("group")
    write_only, closed = names("write"), names("closed")

    def fields(group: str = group, topic: str = topic, **more: FieldValue) -> dict[str, FieldValue]:
        return {"consumerGroup": group, "topic": topic, "queueId": 0, "maxMsgNums": 32, **more}

    wrong = partial(_peek, erroneous=True, normalisers=())
    steps = (
        create_topic(topic),
        create_topic(write_only, perm=2),
        create_group(group),
        create_group(closed, consumeEnable=False),
        _peek("nothing", fields(), expect=19),
        *sent(names, topic, 3),
        *sent(names, topic, 1, queue_id=1),
        _peek("all of a queue", fields()),
        _peek("all of a queue again", fields()),
        _peek("two of a queue", fields(maxMsgNums=2)),
        _peek("all queues", fields(queueId=-1)),
        pop(name="what was peeked", fields=pop_fields(group, topic, maxMsgNums=2)),
        ack("what was peeked", ack_fields(group, topic, receipt("what was peeked"), 0)),
        _peek("what is left", fields()),
        _peek("of a new group", fields(names("fresh"))),
        wrong("an unknown topic", fields(topic=names("missing")), expect=17),
        wrong("a topic without read permission", fields(topic=write_only), expect=16),
        wrong("a queue that is not there", fields(queueId=2), expect=29),
        wrong("an illegal group", fields("a b"), expect=26),
        wrong("a group that may not consume", fields(closed), expect=16),
        wrong("no messages", fields(maxMsgNums=0), expect=ANY_CODE),
        wrong("less than no messages", fields(maxMsgNums=-1), expect=1,
              normalisers=(java_exception_text(),)),
        wrong("33 messages", fields(maxMsgNums=33), expect=ANY_CODE, normalisers=POPPED),
        *(malformed(f"without {name}", Code.PEEK_MESSAGE, without(fields(), name))
          for name in ("consumerGroup", "topic", "queueId", "maxMsgNums")),
        malformed("no fields", Code.PEEK_MESSAGE),
    )  # fmt: skip
    return Script("peeks", header, steps)


JSON_SCRIPTS = (waiting, notifications, peeks)
"""Each creates a script; the codes need the JSON header."""
