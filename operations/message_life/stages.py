"""The stages of a message on its brokers: sent, stored, in its queue, in the index, on slaves,
deleted. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

import msgspec

from ...client import MessageTrace
from ...common.java_hash import tags_code
from ...common.message_properties import PROPERTY_PRODUCER_GROUP
from .facts import MessageFacts
from .sources import Source

_HOUR_MS = 3_600_000


class StageKind(StrEnum):
    """A stage of a message."""

    SENT = "SENT"
    LOG = "LOG"
    """In the commit log."""
    DELAY = "DELAY"
    """Kept back until its time, or until its transaction ends."""
    QUEUE = "QUEUE"
    """In its queue, where consumers find it."""
    INDEX = "INDEX"
    """Found by its keys."""
    SLAVE = "SLAVE"
    DELETION = "DELETION"


class StageState(StrEnum):
    """Whether a message has reached a stage."""

    DONE = "DONE"
    NOT_YET = "NOT_YET"
    WRONG = "WRONG"
    """Something is there that is not the message's."""
    UNKNOWN = "UNKNOWN"


class Stage(msgspec.Struct, frozen=True, rename="camel"):
    """A stage of a message, with what is known about it. None and "": not known, or not of it.

    Attributes:
      at_ms: when it was reached; of DELAY, when it ends; of DELETION, the earliest time.
      host: of SENT, the producer's; of LOG, the broker's; of SLAVE, the slave's.
      group, client_id: of SENT, the producer's, by a trace.
      cost_ms: of SENT, from the send to the answer.
      broker_name, queue_id: of QUEUE.
      offset: in bytes of LOG and SLAVE (the end of its log), in messages of QUEUE.
      end: the end of the log or of the queue.
      size: of the record, in bytes.
      tags_code: of QUEUE, what its unit has; `expected_code`: that of the message's tag.
      is_intact: of LOG: its body has the CRC that is stored with it.
      broker_id: of SLAVE.
      reserved_hours, delete_hours, is_file_full: of DELETION; a file that is written yet counts
        from now on. A full disk deletes earlier.
    """

    kind: StageKind
    state: StageState
    known_from: tuple[Source, ...]
    at_ms: int | None = None
    host: str = ""
    group: str = ""
    client_id: str = ""
    cost_ms: int | None = None
    broker_name: str = ""
    queue_id: int | None = None
    offset: int | None = None
    end: int | None = None
    size: int | None = None
    tags_code: int | None = None
    expected_code: int | None = None
    is_intact: bool | None = None
    broker_id: int | None = None
    reserved_hours: int | None = None
    delete_hours: str = ""
    is_file_full: bool | None = None


def stages(message: MessageFacts, trace: MessageTrace | None, now_ms: int) -> tuple[Stage, ...]:
    """The stages of a message, in their order; without DELAY, if nothing keeps it back.

    Args:
      trace: what its producer reported; None: nothing.
    """
    return (
        _sent(message, trace),
        _in_log(message),
        *_delayed(message),
        _in_queue(message),
        _indexed(message),
        *_on_slaves(message),
        _deleted(message, now_ms),
    )


def _sent(message: MessageFacts, trace: MessageTrace | None) -> Stage:
    made = Stage(
        StageKind.SENT,
        StageState.DONE,
        (Source.MESSAGE,),
        at_ms=message.born_ms,
        host=message.born_host,
        group=message.properties.get(PROPERTY_PRODUCER_GROUP, ""),
    )
    if trace is None or not trace.sends:
        return made
    first = trace.sends[0]
    return msgspec.structs.replace(
        made,
        known_from=(Source.MESSAGE, Source.TRACE),
        group=first.group,
        client_id=first.client_id,
        cost_ms=first.cost_ms,
    )


def _in_log(message: MessageFacts) -> Stage:
    is_checked = message.is_intact is not None
    return Stage(
        StageKind.LOG,
        StageState.WRONG if message.is_intact is False else StageState.DONE,
        (Source.MESSAGE, *([Source.LOG] if is_checked else [])),
        at_ms=message.store_ms,
        host=message.store_host,
        offset=message.physical_offset,
        size=message.size,
        is_intact=message.is_intact,
        end=message.log_end,
    )


def _delayed(message: MessageFacts) -> Iterator[Stage]:
    if not message.is_in_topic:
        source = Source.DELAYED_TOPIC if message.due_ms is not None else Source.MESSAGE
        yield Stage(StageKind.DELAY, StageState.NOT_YET, (source,), at_ms=message.due_ms)


def _in_queue(message: MessageFacts) -> Stage:
    expected = tags_code(message.tags)
    made = Stage(
        StageKind.QUEUE,
        StageState.UNKNOWN,
        (),
        broker_name=message.broker_name,
        queue_id=message.queue_id,
        offset=message.queue_offset,
        end=message.queue_end,
        expected_code=expected,
    )
    if not message.is_in_topic:
        return msgspec.structs.replace(made, state=StageState.NOT_YET, offset=None, end=None)
    if message.queue_end is not None and message.queue_offset >= message.queue_end:
        known_from: tuple[Source, ...] = (Source.QUEUE_RANGE,)
        return msgspec.structs.replace(made, state=StageState.NOT_YET, known_from=known_from)
    if message.unit_offset is None:
        return made
    if message.unit_offset < 0:
        state = StageState.NOT_YET
    elif message.unit_offset != message.physical_offset:
        state = StageState.WRONG
    else:
        state = StageState.DONE
    known_from = (Source.QUEUE,)
    code = message.unit_code if state is not StageState.NOT_YET else None
    return msgspec.structs.replace(made, state=state, known_from=known_from, tags_code=code)


def _indexed(message: MessageFacts) -> Stage:
    known: dict[bool | None, StageState] = {True: StageState.DONE, False: StageState.NOT_YET}
    state = known.get(message.is_indexed, StageState.UNKNOWN)
    return Stage(StageKind.INDEX, state, () if message.is_indexed is None else (Source.INDEX,))


def _on_slaves(message: MessageFacts) -> Iterator[Stage]:
    end = message.physical_offset + message.size
    for slave in message.slaves:
        state = StageState.UNKNOWN
        if slave.log_end is not None:
            state = StageState.DONE if slave.log_end >= end else StageState.NOT_YET
        yield Stage(
            StageKind.SLAVE,
            state,
            () if slave.log_end is None else (Source.SLAVE_LOG,),
            host=slave.address,
            broker_id=slave.broker_id,
            offset=slave.log_end,
        )


def _deleted(message: MessageFacts, now_ms: int) -> Stage:
    kept = message.retention
    if kept is None or kept.file_size < 1:
        return Stage(StageKind.DELETION, StageState.UNKNOWN, ())
    file_end = (message.physical_offset // kept.file_size + 1) * kept.file_size
    is_full = None if message.log_end is None else message.log_end >= file_end
    since_ms = now_ms if is_full is False else message.store_ms
    return Stage(
        StageKind.DELETION,
        StageState.NOT_YET,
        (Source.SETTINGS, *([Source.LOG_RANGE] if is_full is not None else [])),
        at_ms=since_ms + kept.reserved_hours * _HOUR_MS,
        reserved_hours=kept.reserved_hours,
        delete_hours=kept.delete_hours,
        is_file_full=is_full,
    )
