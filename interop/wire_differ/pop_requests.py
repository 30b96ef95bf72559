"""Scripts for pops: what they find, in parallel and in order, and what is refused."""

from __future__ import annotations

from functools import partial

from ...common.clock import SystemClock
from ...remoting.codec import SerializeType
from ...remoting.request_codes import RequestCode as Code
from .builders import BORN_MS, Names, bad, create_group, create_topic
from .normalise import any_queue, durations, java_exception_text, some_queue, unique_keys
from .pop_parts import (
    MINUTE_MS,
    POP_ONLY,
    POPPED,
    ack,
    ack_fields,
    asking,
    committed,
    empty_pop,
    is_found,
    malformed,
    pop,
    pop_fields,
    receipt,
    sent,
    without,
)
from .request import ANY_CODE, Played, Script

_CLOCK = SystemClock()
_wrong = partial(pop, erroneous=True, normalisers=POP_ONLY)


def _now_ms(_: Played) -> object:
    return _CLOCK.wall_ms()


def pops(header: SerializeType) -> Script:
    """The possible results of a pop."""
    names = Names("pop", header)
    topic, group = names("topic"), names("group")
    fields = partial(pop_fields, group, topic)
    of = partial(pop_fields, topic=topic)
    sql = {"expType": "SQL92"}
    acknowledged = (("two of them", 0), ("two of them", 1), ("the next", 0), ("the next", 1))
    steps = (
        create_topic(topic),
        create_group(group),
        empty_pop(name="an empty queue", fields=fields()),
        *sent(names, topic, 4),
        pop(name="two of them", fields=fields(maxMsgNums=2)),
        pop(name="the next", fields=fields()),
        empty_pop(name="nothing more", fields=fields()),
        *sent(names, topic, 1, queue_id=1),
        empty_pop(name="another queue's", fields=fields()),
        pop(name="of all queues", fields=fields(queueId=-1)),
        pop(name="of any negative queue", fields=of(names("negative"), queueId=-7)),
        pop(name="one of all queues", fields=of(names("one"), queueId=-1, maxMsgNums=1),
            normalisers=(*POPPED, any_queue("body.*.queue_id"),
                         unique_keys("body.*.properties.UNIQ_KEY"),
                         some_queue("fields.startOffsetInfo", "fields.msgOffsetInfo"))),
        pop(name="of a new group", fields=of(names("fresh"))),
        pop(name="from the end", fields=of(names("end"), initMode=1)),
        pop(name="by the client's clock", fields=of(names("clock"), bornTime=_now_ms)),
        pop(name="with no more fields than needed",
            fields=without(of(names("plain")), "exp", "expType", "order", "bname")),
        pop(name="an empty expression", fields=of(names("empty"), exp="")),
        pop(name="by tag", fields=of(names("tag"), exp="A")),
        empty_pop(name="by tag again", fields=of(names("tag"), exp="A")),
        pop(name="by two tags", fields=of(names("tags"), exp="A || B")),
        empty_pop(name="by a tag that none has", fields=of(names("none"), exp="C")),
        committed(names("none"), topic, "behind what does not match", 4),
        pop(name="by an expression", fields=of(names("sql"), exp="n >= 2", **sql)),
        pop(name="by a tag without a type",
            fields=without(of(names("typeless"), exp="B"), "expType")),
        *(ack(f"message {number} of four",
              ack_fields(group, topic, receipt(name, index), number))
          for number, (name, index) in enumerate(acknowledged)),
        committed(group, topic, "behind what is acknowledged", 4),
    )  # fmt: skip
    return Script("pops", header, steps)


def refused_pops(header: SerializeType) -> Script:
    """Each check of a pop, and which of two comes first."""
    names = Names("poprefused", header)
    topic, group = names("topic"), names("group")
    write_only, closed, missing = names("write"), names("closed"), names("missing")
    fields = partial(pop_fields, group, topic)
    of = partial(pop_fields, topic=topic)
    sql = {"expType": "SQL92"}
    steps = (
        create_topic(topic),
        create_topic(write_only, perm=2),
        create_group(group),
        create_group(closed, consumeEnable=False),
        *sent(names, topic, 2),
        _wrong(name="too late", fields=fields(bornTime=BORN_MS), expect=210),
        _wrong(name="too late and too many", fields=fields(bornTime=BORN_MS, maxMsgNums=33),
               expect=210),
        _wrong(name="33 messages", fields=fields(maxMsgNums=33), expect=29),
        _wrong(name="33 messages of no topic", fields=pop_fields(group, missing, maxMsgNums=33),
               expect=29),
        _wrong(name="an unknown topic", fields=pop_fields(group, missing), expect=17),
        _wrong(name="no topic and no group", fields=pop_fields("a b", missing), expect=17),
        _wrong(name="a topic without read permission", fields=pop_fields(group, write_only),
               expect=16),
        _wrong(name="a queue that is not there", fields=fields(queueId=2), expect=29),
        _wrong(name="no queue and no group", fields=of("a b", queueId=2), expect=29),
        _wrong(name="an illegal group", fields=of("a b"), expect=26),
        _wrong(name="an illegal group and a wrong expression", fields=of("a b", exp="n >", **sql),
               expect=26),
        _wrong(name="a group that may not consume", fields=of(closed), expect=16),
        _wrong(name="a wrong expression", fields=fields(exp="n >", **sql), expect=23),
        _wrong(name="an unknown type", fields=fields(exp="n", expType="JEXL"), expect=23),
        _wrong(name="no messages", fields=fields(maxMsgNums=0), expect=ANY_CODE),
        _wrong(name="less than no messages", fields=fields(maxMsgNums=-1), expect=1,
               normalisers=(java_exception_text(),)),
        _wrong(name="an unknown way to begin", fields=of(names("begin"), initMode=7),
               expect=ANY_CODE, normalisers=POPPED),
        _wrong(name="invisible for no time", fields=of(names("zero"), invisibleTime=0),
               expect=ANY_CODE, normalisers=POPPED),
        _wrong(name="invisible for less than no time",
               fields=of(names("past"), invisibleTime=-MINUTE_MS), expect=ANY_CODE,
               normalisers=POPPED),
        _wrong(name="invisible for four days",
               fields=of(names("days"), invisibleTime=4 * 24 * 60 * MINUTE_MS), expect=ANY_CODE,
               normalisers=POPPED),
        *(malformed(f"without {name}", Code.POP_MESSAGE, without(of(names(f"no-{name}")), name))
          for name in ("consumerGroup", "topic", "queueId", "maxMsgNums", "invisibleTime",
                       "pollTime", "bornTime", "initMode")),
        malformed("a count that is no number", Code.POP_MESSAGE, of(names("word"), maxMsgNums="x")),
        malformed("a count of 33 bits", Code.POP_MESSAGE, of(names("33"), maxMsgNums=1 << 32)),
        malformed("a time of 65 bits", Code.POP_MESSAGE, of(names("65"), invisibleTime=1 << 64)),
        malformed("no fields", Code.POP_MESSAGE),
        pop(name="nothing is lost", fields=fields()),
    )  # fmt: skip
    return Script("refused pops", header, steps)


def in_order(header: SerializeType) -> Script:
    """Pops in order: a queue is blocked until what was popped is acknowledged."""
    names = Names("poporder", header)
    topic, group = names("topic"), names("group")
    fields = partial(pop_fields, group, topic, order=True)
    acked = partial(ack_fields, group, topic)
    change = asking(
        Code.CHANGE_MESSAGE_INVISIBLETIME,
        normalisers=(*POP_ONLY, durations("fields.invisibleTime")),
    )
    first = receipt("two in order")
    steps = (
        create_topic(topic),
        create_group(group, consumeMessageOrderly=True),
        *sent(names, topic, 5),
        pop(name="two in order", fields=fields(maxMsgNums=2, attemptId="one")),
        committed(group, topic, "at the first of two", 0),
        empty_pop(name="while two are open", fields=fields(attemptId="two")),
        empty_pop(name="while two are open, without attempt", fields=fields()),
        pop(name="the same attempt", fields=fields(maxMsgNums=2, attemptId="one")),
        ack("in order, of the attempt before", acked(first, 0)),
        ack("in order, not popped", acked(receipt("the same attempt"), 4), erroneous=True,
            expect=13),
        ack("the second in order", acked(receipt("the same attempt", 1), 1)),
        committed(group, topic, "still at the first of two", 0),
        empty_pop(name="while one is open", fields=fields(attemptId="three")),
        change("in order, longer", acked(receipt("the same attempt"), 0, invisibleTime=500)),
        pop(name="the first again", fields=fields(attemptId="four", maxMsgNums=1),
            until=is_found),
        ack("the first in order", acked(receipt("the first again"), 0)),
        committed(group, topic, "behind the first", 1),
        ack("in order, twice", acked(receipt("the first again"), 0)),
        pop(name="the rest", fields=fields(attemptId="five", invisibleTime=500)),
        pop(name="the rest again, by time", fields=fields(attemptId="six"),
            until=is_found),
        change("in order, behind the group",
               acked(receipt("the same attempt"), 0, invisibleTime=500), erroneous=True),
        *(ack(f"in order, message {number}",
              acked(receipt("the rest again, by time", number - 1), number))
          for number in (1, 2, 3, 4)),
        committed(group, topic, "behind all", 5),
        empty_pop(name="nothing more, in order", fields=fields(attemptId="seven")),
    )  # fmt: skip
    return Script("pops in order", header, steps)


def short_codes(header: SerializeType) -> Script:
    """Codes of pop and lite topics in a header of 16 bits: no server knows what arrives."""
    names = Names("popshort", header)
    fields = {"topic": names("topic"), "consumerGroup": names("group")}
    codes = sorted(code for code in Code if code >= Code.POP_MESSAGE)
    steps = tuple(bad("in 16 bits", code, fields, expect=3) for code in codes)
    return Script("pop codes in 16 bits", header, steps)


JSON_SCRIPTS = (pops, refused_pops, in_order)
"""Each creates a script; the codes need the JSON header."""
ROCKETMQ_SCRIPTS = (short_codes,)
"""Each creates a script; only for the ROCKETMQ header."""
