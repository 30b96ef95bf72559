"""Fields of a send's header, read without a typed header for speed. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from ...common.message_properties import (
    PROPERTY_TRANSACTION_PREPARED,
    TRANSACTION_PREPARED_NAME,
    find_property,
)
from ...remoting.errors import RequestRefused
from ...remoting.headers import read_number
from ...remoting.number_fields import (
    MESSAGE_SYS_FLAG,
    QUEUE_ID_OR_ANY,
    RECONSUME_TIMES,
    TIME_MS,
    USER_FLAG,
)
from ...remoting.response_codes import ResponseCode
from ...remoting.sys_flag import COMPRESSED, TRANSACTION_PREPARED_TYPE

QUEUE_ID_MAX: Final = 1023
"""The largest of `QUEUE_IDS`, and of the sends that the C extension serves."""
QUEUE_IDS: Final = {str(queue_id): queue_id for queue_id in range(-1, QUEUE_ID_MAX + 1)}
"""The queue ids of nearly all sends by their strings: faster than `int`, and as strict as Java."""
BORN_DIGITS: Final = 13
"""Digits of a time in ms since 1970 between the years 2001 and 2286."""

_HALF_FLAGS: Final = (TRANSACTION_PREPARED_TYPE, TRANSACTION_PREPARED_TYPE | COMPRESSED)
_HALF_TEXTS: Final = {str(flag): flag for flag in _HALF_FLAGS}
"""The sysFlags of nearly all half messages by their strings."""
_PREPARED_HEAD: Final = f"{PROPERTY_TRANSACTION_PREPARED}\x01"
_PREPARED: Final = f"{_PREPARED_HEAD}true\x02"
_PREPARED_LATER: Final = f"\x02{_PREPARED}"


class SendNames(NamedTuple):
    """The names of a send's fields on the wire."""

    topic: str
    queue_id: str
    sys_flag: str
    born_timestamp: str
    flag: str
    properties: str
    reconsume_times: str
    batch: str


WORD_NAMES: Final = SendNames(
    topic="topic",
    queue_id="queueId",
    sys_flag="sysFlag",
    born_timestamp="bornTimestamp",
    flag="flag",
    properties="properties",
    reconsume_times="reconsumeTimes",
    batch="batch",
)
LETTER_NAMES: Final = SendNames(
    topic="b",
    queue_id="e",
    sys_flag="f",
    born_timestamp="g",
    flag="h",
    properties="i",
    reconsume_times="j",
    batch="m",
)


class SendNumbers(NamedTuple):
    """The numbers of a send; `reconsume_times` is the number of earlier retries."""

    queue_id: int
    born_timestamp_ms: int
    flag: int
    sys_flag: int
    reconsume_times: int


def is_batch(fields: Mapping[str, str], names: SendNames) -> bool:
    """Whether a send says that its body is a batch, whatever its code: the C++ client sends batches
    with the codes of single messages.

    Source: SendMessageProcessor.processRequest goes by this field, not by the code; the text is
    read as by Java's Boolean.parseBoolean.
    """
    return fields.get(names.batch, "").lower() == "true"


def read_numbers(fields: Mapping[str, str], names: SendNames) -> SendNumbers:
    """Read and check the numbers of a send.

    Raises: KeyError: a field is missing. RequestRefused: a number is malformed or out of range, or
      its sysFlag would hide the message from all consumers.
    """
    half = _half_numbers(fields, names)
    if half is not None:
        return half
    sys_flag = read_number(names.sys_flag, MESSAGE_SYS_FLAG, fields[names.sys_flag])
    refuse_hidden(sys_flag, fields.get(names.properties, "").encode("utf-8", "replace"))
    tries = fields.get(names.reconsume_times) or "0"
    return SendNumbers(
        read_number(names.queue_id, QUEUE_ID_OR_ANY, fields[names.queue_id]),
        read_number(names.born_timestamp, TIME_MS, fields[names.born_timestamp]),
        read_number(names.flag, USER_FLAG, fields[names.flag]),
        sys_flag,
        read_number(names.reconsume_times, RECONSUME_TIMES, tries),
    )


def _half_numbers(fields: Mapping[str, str], names: SendNames) -> SendNumbers | None:
    """The fast path of `read_numbers`, for the usual half message; None: for all other sends."""
    get = fields.get
    sys_flag = _HALF_TEXTS.get(get(names.sys_flag, ""))
    queue_id = QUEUE_IDS.get(get(names.queue_id, ""))
    born = get(names.born_timestamp, "")
    properties = get(names.properties, "")
    if (
        sys_flag is not None
        and queue_id is not None
        and get(names.flag) == "0"
        and (get(names.reconsume_times) or "0") == "0"
        and len(born) == BORN_DIGITS
        and born.isascii()
        and born.isdecimal()
        and (_PREPARED_LATER in properties or properties.startswith(_PREPARED))
        and properties.count(_PREPARED_HEAD) == 1
    ):
        return SendNumbers(queue_id, int(born), 0, sys_flag, 0)
    return None


def refuse_hidden(sys_flag: int, properties: bytes) -> None:
    """Refuse a send whose sysFlag, but not its properties, marks it as part of a transaction.

    No consumer would see such a message, and no transaction would end it.

    Raises: RequestRefused: MESSAGE_ILLEGAL. RocketMQ stores and acknowledges it.
    """
    if (
        sys_flag & TRANSACTION_PREPARED_TYPE
        and find_property(properties, TRANSACTION_PREPARED_NAME) != b"true"
    ):
        raise RequestRefused(
            ResponseCode.MESSAGE_ILLEGAL,
            f"the sysFlag {sys_flag} hides the message from consumers: it has a transaction's bit, "
            "but the message has no property TRAN_MSG=true",
        )
