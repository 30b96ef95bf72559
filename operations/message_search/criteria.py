"""Criteria of a search, their checks, and the predicate that is made of them. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Final
from zlib import crc32

import msgspec

from ...client.messages.message import ReceivedMessage
from ...common.java_integers import INT64_MAX
from ...common.message_properties import (
    KEY_SEPARATOR,
    PROPERTY_CORRELATION_ID,
    PROPERTY_DLQ_ORIGIN_MESSAGE_ID,
    PROPERTY_ORIGIN_MESSAGE_ID,
    PROPERTY_POP_CK,
    PROPERTY_TRANSACTION_ID,
    PROPERTY_UNIQUE_KEY,
)
from ...common.sql92.expression import FilterSyntaxError, compile_expression
from ..unpacking import unpacked
from .problems import Problem, SearchError

TEXT_LENGTH_MAX: Final = 1_000
"""Characters of a text, a tag or a key: a search is an address, which servers limit to some KiB."""
SQL_LENGTH_MAX: Final = 4_000
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,20}", re.ASCII)
TIME_MAX_MS: Final = 253_402_300_799_999
"""The last millisecond of the year 9999."""

_ID_LENGTH_MIN: Final = 8
"""Characters from which on a text is looked for in ids too: every message has some "42" there."""
_IDS: Final = frozenset(
    {
        PROPERTY_UNIQUE_KEY,
        PROPERTY_TRANSACTION_ID,
        PROPERTY_ORIGIN_MESSAGE_ID,
        PROPERTY_DLQ_ORIGIN_MESSAGE_ID,
        PROPERTY_CORRELATION_ID,
        PROPERTY_POP_CK,
    }
)

Mask = Callable[[ReceivedMessage], ReceivedMessage]
"""Takes away what may not be seen, before anything is searched in a message."""
Predicate = Callable[[ReceivedMessage], bool]


def unmasked(message: ReceivedMessage) -> ReceivedMessage:
    """The mask that hides nothing."""
    return message


class Criteria(msgspec.Struct, frozen=True, kw_only=True):
    """What a search looks for; all criteria together, and those left out match everything.

    Attributes:
      topic: without the client's namespace.
      broker_name: of the queues; "": all brokers.
      queue_id: with `broker_name` one queue, else that queue of each broker; None: all.
      offset: of one queue, where the search begins.
      begin_ms, end_ms: stored between these, both included, ms since 1970 by the brokers' clocks.
      tag: the tag, or several with " || " between them.
      sql: SQL92 over the properties, as consumers filter.
      key: one of the message's keys, or its producer's id; found by the index of the brokers.
      text: in the body or in a name or value of a property, whatever the case of ASCII letters;
        one of less than 8 characters is not looked for in ids.
      is_newest_first: the order of the results; False: oldest first.
    """

    topic: str
    broker_name: str = ""
    queue_id: int | None = None
    offset: int | None = None
    begin_ms: int | None = None
    end_ms: int | None = None
    tag: str = ""
    sql: str = ""
    key: str = ""
    text: str = ""
    is_newest_first: bool = True

    @property
    def checksum(self) -> int:
        """By which a cursor knows the search that it is of."""
        return crc32(
            msgspec.msgpack.encode([ascii(each) for each in msgspec.structs.astuple(self)])
        )


def read_number(field: str, text: str) -> int | None:
    """A number that was typed, or that an address has; None: the field was left empty.

    Args:
      field: its name, for the error.
      text: as it came.

    Raises: SearchError: NOT_A_NUMBER.
    """
    text = text.strip()
    if not text:
        return None
    # Not int() alone: it takes 1_000 and digits of other scripts, and time for many digits.
    if _NUMBER.fullmatch(text) is None:
        raise SearchError(Problem.NOT_A_NUMBER, field=field, text=text[:TEXT_LENGTH_MAX])
    return int(text)


def check(criteria: Criteria) -> None:
    """Check criteria that come from outside.

    Raises: SearchError: a problem with its data.
    """
    for field in ("topic", "broker_name", "tag", "key", "text", "sql"):
        length, limit = len(getattr(criteria, field)), TEXT_LENGTH_MAX
        if field == "sql":
            limit = SQL_LENGTH_MAX
        if length > limit:
            raise SearchError(Problem.TOO_LONG, field=field, length=length, limit=limit)
    if not criteria.topic:
        raise SearchError(Problem.EMPTY)
    if KEY_SEPARATOR in criteria.key:
        raise SearchError(Problem.BAD_KEY, key=criteria.key)
    queue_id, offset = criteria.queue_id, criteria.offset
    if queue_id is not None and not 0 <= queue_id <= 0x7FFFFFFF:
        queue = f"{criteria.broker_name}/{queue_id}"
        raise SearchError(Problem.NO_QUEUE, topic=criteria.topic, queue=queue)
    if offset is not None:
        if not criteria.broker_name or queue_id is None:
            raise SearchError(Problem.NEEDS_QUEUE)
        if offset < 0:
            raise SearchError(Problem.OFFSET_NEGATIVE, offset=offset)
        if offset > INT64_MAX:
            raise SearchError(Problem.OFFSET_ABOVE, offset=offset, end=INT64_MAX)
    for time_ms in (criteria.begin_ms, criteria.end_ms):
        if time_ms is not None and not 0 <= time_ms <= TIME_MAX_MS:
            raise SearchError(Problem.TIME_OUT_OF_RANGE, time_ms=time_ms, limit=TIME_MAX_MS)
    begin_ms, end_ms = criteria.begin_ms, criteria.end_ms
    if begin_ms is not None and end_ms is not None and begin_ms > end_ms:
        raise SearchError(Problem.TIMES_REVERSED, begin_ms=begin_ms, end_ms=end_ms)


def predicate(criteria: Criteria) -> Predicate:
    """Whether a message, masked, is one that is looked for.

    Args:
      criteria: checked.

    Raises: SearchError: BAD_SQL.
    """
    parts: list[Predicate] = []
    begin_ms, end_ms = criteria.begin_ms or 0, criteria.end_ms
    if criteria.begin_ms is not None or end_ms is not None:
        last_ms = TIME_MAX_MS if end_ms is None else end_ms
        parts.append(lambda message: begin_ms <= message.store_timestamp_ms <= last_ms)
    if criteria.tag:
        tags = frozenset(tag.strip() for tag in criteria.tag.split("||"))
        parts.append(lambda message: message.tags in tags)
    if criteria.sql:
        parts.append(_by_sql(criteria.sql))
    if key := criteria.key:
        parts.append(lambda message: key in message.keys or key == message.message_id)
    if criteria.text:
        parts.append(_by_text(criteria.text))
    return lambda message: all(part(message) for part in parts)


def _by_sql(sql: str) -> Predicate:
    try:
        expression = compile_expression(sql)
    except FilterSyntaxError as error:
        raise SearchError(
            Problem.BAD_SQL, reason=error.reason, line=error.line, column=error.column
        ) from error
    return lambda message: expression.matches(message.properties)


def _by_text(text: str) -> Predicate:
    plain = text.encode("utf-8", "surrogatepass").lower()
    # JSON may have letters beyond ASCII, quotes and line breaks as escapes.
    needles = {plain, json.dumps(text)[1:-1].encode().lower()}

    def is_in(raw: bytes) -> bool:
        lowered = raw.lower()
        return any(needle in lowered for needle in needles)

    is_id = len(text) >= _ID_LENGTH_MIN

    def matches(message: ReceivedMessage) -> bool:
        for name, value in message.properties.items():
            if name in _IDS and not is_id:
                continue
            if is_in(name.encode()) or is_in(value.encode()):
                return True
        return is_in(unpacked(message.body, message.sys_flag).content)

    return matches
