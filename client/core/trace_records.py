"""Records of RocketMQ's message trace, and their text in the bodies of the trace topic.

A record is a line of fields, separated by \\x01 and ended by \\x02; the first field is its type.
Missing texts are written `null`. Clients append further fields over time, so a record may have
fewer fields than ours at its end (an older client's), or more, which are ignored.

Source of the format: RocketMQ 5.5.0 and 4.9.7 TraceDataEncoder, MessageType, ConsumeReturnType,
LocalTransactionState. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum, IntEnum
from typing import Any, ClassVar, Final, NamedTuple, TypeAlias

import msgspec

from ...common.java_integers import INT32_MAX, INT64_MAX
from ...common.message_properties import split_keys
from ...remoting.errors import LocalProtocolError, RemoteProtocolError
from ..messages.transaction import TransactionState

FIELD_END: Final = "\x01"
RECORD_END: Final = "\x02"
NULL: Final = "null"
DEFAULT_REGION: Final = "DefaultRegion"
"""Region of a broker that reports none. Source: MixAll.DEFAULT_TRACE_REGION_some."""
_SHOWN_MAX: Final = 80
"""Characters of a bad record in an error text."""


class TracedType(IntEnum):
    """The kind of a traced message."""

    NORMAL = 0
    HALF = 1
    """A transactional message that consumers do not see yet."""
    COMMIT = 2
    """The end of a transaction."""
    DELAY = 3
    ORDER = 4
    """Read, but never written: 4.9.7 cannot decode it. Java's classic client writes NORMAL."""


class ConsumeOutcome(IntEnum):
    """How a consumer's handler ended."""

    SUCCESS = 0
    TIMEOUT = 1
    EXCEPTION = 2
    NULL = 3
    """It returned null; only handlers in Java can."""
    FAILED = 4
    """It asked for a redelivery."""


class PubRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A send that a broker confirmed.

    Attributes:
      time_ms: when the send began, ms since 1970.
      group: of the producer, without namespace.
      topic: without namespace.
      message_id: that the producer gave; Java's batches have all of theirs, joined by commas.
      store_host: `host:port` of the broker.
      body_length: bytes, as sent: compressed, if it is.
      cost_ms: from the send to the answer.
      kind: the kind of message.
      offset_message_id: the broker's id of it.
      is_success: it was stored as safely as the broker is configured to.
      client_host: id of the client; "": not written.
    """

    TYPE: ClassVar = "Pub"
    time_ms: int
    region: str
    group: str
    topic: str
    message_id: str
    tags: str | None
    keys: str | None
    store_host: str
    body_length: int
    cost_ms: int
    kind: TracedType
    offset_message_id: str | None = None
    is_success: bool
    client_host: str = ""


class SubBeforeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A message that was given to a consumer's program.

    Attributes:
      request_id: the same in the SubAfterRecord.
      retry_times: number of earlier deliveries.
    """

    TYPE: ClassVar = "SubBefore"
    time_ms: int
    region: str
    group: str
    request_id: str
    message_id: str
    retry_times: int
    keys: str | None = None


class SubAfterRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a consumption.

    Attributes:
      outcome: None: written by an old client.
      time_ms, group: None: not written, by an old client or one of a cloud.
    """

    TYPE: ClassVar = "SubAfter"
    request_id: str
    message_id: str
    cost_ms: int
    is_success: bool
    keys: str | None
    outcome: ConsumeOutcome | None = None
    time_ms: int | None = None
    group: str | None = None


class EndTransactionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a transaction that a producer sent to the broker.

    Attributes:
      is_from_check: the broker had asked for it.
    """

    TYPE: ClassVar = "EndTransaction"
    time_ms: int
    region: str
    group: str
    topic: str
    message_id: str
    tags: str | None
    keys: str | None
    store_host: str
    kind: TracedType
    transaction_id: str | None
    state: TransactionState
    is_from_check: bool


class RecallRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A delayed message that a producer tried to take back (5.x)."""

    TYPE: ClassVar = "Recall"
    time_ms: int
    region: str
    group: str
    topic: str
    message_id: str
    is_success: bool

    @property
    def keys(self) -> None:
        """None: a recall names no keys."""
        return


TraceRecord: TypeAlias = (
    PubRecord | SubBeforeRecord | SubAfterRecord | EndTransactionRecord | RecallRecord
)


class Decoded(NamedTuple):
    """The records of one body.

    Attributes:
      bad: for each record that cannot be read, what is wrong with it.
    """

    records: list[TraceRecord]
    bad: list[str]


# Kinds of fields


_Field: TypeAlias = Callable[[str], Any]
"""Reads a value, which `_text` writes; raises ValueError."""


def _number(low: int, high: int) -> _Field:
    def read(text: str) -> int:
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdecimal()) or not low <= int(text) <= high:
            raise ValueError(f"not a number from {low} to {high}")
        return int(text)

    return read


def _one_of(names: Mapping[str, Any]) -> _Field:
    def read(text: str) -> Any:
        if text not in names:
            raise ValueError(f"not one of {', '.join(names)}")
        return names[text]

    return read


def _optional(text: str) -> str | None:
    return None if text in (NULL, "") else text


def _some(text: str) -> str:
    if not text:
        raise ValueError("empty")
    return text


_STATES: Final = {
    "COMMIT_MESSAGE": TransactionState.COMMIT,
    "ROLLBACK_MESSAGE": TransactionState.ROLLBACK,
    "UNKNOW": TransactionState.UNKNOWN,
}
"""The spelling is RocketMQ's."""
_STATE_NAMES: Final = {state: name for name, state in _STATES.items()}

_TEXT: Final[_Field] = str
_TIME: Final = _number(0, INT64_MAX)
_COUNT: Final = _number(0, INT32_MAX)
# A clock that was set back in between makes the cost negative.
_COST: Final = _number(-INT32_MAX - 1, INT32_MAX)
_BOOL: Final = _one_of({"true": True, "false": False})
_KIND: Final = _one_of({str(int(kind)): kind for kind in TracedType})
_OUTCOME: Final = _one_of({str(int(outcome)): outcome for outcome in ConsumeOutcome})
_STATE: Final = _one_of(_STATES)


class _Layout(NamedTuple):
    """The fields of one type of record behind its type, in order.

    Attributes:
      fields: all of them.
      counts: numbers of fields that records have; more than the largest are ignored.
      without: fields that are missing in records of one of these numbers, though not at the end.
    """

    record: type[Any]
    fields: Mapping[str, _Field]
    counts: tuple[int, ...]
    without: Mapping[int, str] = {}


_LAYOUTS: Final = {
    layout.record.TYPE: layout
    for layout in (
        _Layout(
            PubRecord,
            {
                "time_ms": _TIME,
                "region": _TEXT,
                "group": _TEXT,
                "topic": _TEXT,
                "message_id": _some,
                "tags": _optional,
                "keys": _optional,
                "store_host": _TEXT,
                "body_length": _COUNT,
                "cost_ms": _COST,
                "kind": _KIND,
                "offset_message_id": _optional,
                "is_success": _BOOL,
                "client_host": _TEXT,
            },
            counts=(12, 13, 14),
            without={12: "offset_message_id"},
        ),
        _Layout(
            SubBeforeRecord,
            {
                "time_ms": _TIME,
                "region": _TEXT,
                "group": _TEXT,
                "request_id": _some,
                "message_id": _some,
                "retry_times": _COUNT,
                "keys": _optional,
            },
            counts=(6, 7),
        ),
        _Layout(
            SubAfterRecord,
            {
                "request_id": _some,
                "message_id": _some,
                "cost_ms": _COST,
                "is_success": _BOOL,
                "keys": _optional,
                "outcome": _OUTCOME,
                "time_ms": _TIME,
                "group": _TEXT,
            },
            counts=(5, 6, 8),
        ),
        _Layout(
            EndTransactionRecord,
            {
                "time_ms": _TIME,
                "region": _TEXT,
                "group": _TEXT,
                "topic": _TEXT,
                "message_id": _some,
                "tags": _optional,
                "keys": _optional,
                "store_host": _TEXT,
                "kind": _KIND,
                "transaction_id": _optional,
                "state": _STATE,
                "is_from_check": _BOOL,
            },
            counts=(12,),
        ),
        _Layout(
            RecallRecord,
            {
                "time_ms": _TIME,
                "region": _TEXT,
                "group": _TEXT,
                "topic": _TEXT,
                "message_id": _some,
                "is_success": _BOOL,
            },
            counts=(6,),
        ),
    )
}


def encode_record(record: TraceRecord) -> str:
    """The text of a record, with its end.

    Raises: LocalProtocolError: a string has one of the separators in it.
    """
    layout = _LAYOUTS[record.TYPE]
    values = [_text(getattr(record, name)) for name in layout.fields]
    while not values[-1]:
        values.pop()  # Java drops empty fields at the end
    line = FIELD_END.join((record.TYPE, *values))
    if line.count(FIELD_END) != len(values) or RECORD_END in line:
        raise LocalProtocolError(f"a separator is in a field of {_shown(line)}")
    return line + RECORD_END


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return NULL
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Enum):
        return _STATE_NAMES[value] if isinstance(value, TransactionState) else str(value.value)
    return str(value)


def decode_record(text: str) -> TraceRecord:
    """The record in a string, without its end.

    Raises: RemoteProtocolError: it has an unknown type or number of fields, or a bad value.
    """
    kind, *values = text.split(FIELD_END)
    layout = _LAYOUTS.get(kind)
    if layout is None:
        raise RemoteProtocolError(
            f"a trace record has the unknown type {_shown(kind)}; known are {', '.join(_LAYOUTS)}"
        )
    count = min(len(values), max(layout.counts))
    if count not in layout.counts and values and not values[-1]:
        count -= 1  # an empty field at the end, as Java's for clouds has
    if count not in layout.counts:
        raise RemoteProtocolError(f"a {kind} record has {len(values)} fields: {_shown(text)}")
    names = [name for name in layout.fields if name != layout.without.get(count)]
    found = {}
    for name, value in zip(names, values[:count], strict=False):
        try:
            found[name] = layout.fields[name](value)
        except ValueError as error:
            raise RemoteProtocolError(
                f"{name} of a {kind} record is {_shown(value)}: {error}"
            ) from None
    record: TraceRecord = layout.record(**found)
    return record


def decode_records(body: bytes) -> Decoded:
    """The records of the body of a message in the trace topic; it never raises."""
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        return Decoded([], [f"the body is not UTF-8: {error}"])
    decoded = Decoded([], [])
    for line in text.split(RECORD_END):
        if not line:
            continue
        try:
            decoded.records.append(decode_record(line))
        except RemoteProtocolError as error:
            decoded.bad.append(str(error))
    return decoded


def index_keys(records: Iterable[TraceRecord]) -> list[str]:
    """The keys by which a message with these records is to be found: ids and the messages' keys."""
    found: dict[str, None] = {}
    for record in records:
        found[record.message_id] = None
        for key in split_keys(record.keys):
            found[key] = None
    return list(found)


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN_MAX else text[:_SHOWN_MAX] + "…")
