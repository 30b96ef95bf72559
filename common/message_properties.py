r"""A message's properties: `name 0x01 value 0x02 name 0x01 value 0x02 …` in UTF-8.

Java counterpart: `MessageDecoder.messageProperties2String`, `string2messageProperties`,
`MessageConst` (RocketMQ 5.3.3). 4.9 leaves out the last 0x02; both forms are read. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from ..native import extension

PROPERTY_KEYS = "KEYS"
PROPERTY_TAGS = "TAGS"
PROPERTY_WAIT_STORE_MSG_OK = "WAIT"
PROPERTY_DELAY_TIME_LEVEL = "DELAY"
PROPERTY_RETRY_TOPIC = "RETRY_TOPIC"
PROPERTY_REAL_TOPIC = "REAL_TOPIC"
PROPERTY_REAL_QUEUE_ID = "REAL_QID"
PROPERTY_REAL_DUE_MS = "REAL_DUE_MS"
"""Of a message with a delay level that was stored while the log's newest store timestamp was ahead
of the time of day: when it is due, ms since 1970. trocket's own; Apache's brokers ignore it."""
PROPERTY_TRANSACTION_PREPARED = "TRAN_MSG"
PROPERTY_PRODUCER_GROUP = "PGROUP"
PROPERTY_MIN_OFFSET = "MIN_OFFSET"
PROPERTY_MAX_OFFSET = "MAX_OFFSET"
PROPERTY_ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
PROPERTY_RECONSUME_TIME = "RECONSUME_TIME"
PROPERTY_MSG_REGION = "MSG_REGION"
PROPERTY_TRACE_SWITCH = "TRACE_ON"
PROPERTY_UNIQUE_KEY = "UNIQ_KEY"
PROPERTY_MAX_RECONSUME_TIMES = "MAX_RECONSUME_TIMES"
PROPERTY_CONSUME_START_TIME = "CONSUME_START_TIME"
PROPERTY_INNER_NUM = "INNER_NUM"
PROPERTY_INNER_BASE = "INNER_BASE"
PROPERTY_TRANSACTION_ID = "__transactionId__"
PROPERTY_CLUSTER = "CLUSTER"
PROPERTY_PRIORITY = "_SYS_MSG_PRIORITY_"
PROPERTY_SHARDING_KEY = "__SHARDINGKEY"
PROPERTY_INNER_MULTI_DISPATCH = "INNER_MULTI_DISPATCH"
PROPERTY_INNER_MULTI_QUEUE_OFFSET = "INNER_MULTI_QUEUE_OFFSET"
PROPERTY_TIMER_DELAY_SEC = "TIMER_DELAY_SEC"
PROPERTY_TIMER_DELIVER_MS = "TIMER_DELIVER_MS"
PROPERTY_TIMER_DELAY_MS = "TIMER_DELAY_MS"
PROPERTY_TIMER_OUT_MS = "TIMER_OUT_MS"
PROPERTY_TIMER_ENQUEUE_MS = "TIMER_ENQUEUE_MS"
PROPERTY_TIMER_DEQUEUE_MS = "TIMER_DEQUEUE_MS"
PROPERTY_TIMER_ROLL_TIMES = "TIMER_ROLL_TIMES"
PROPERTY_TIMER_DEL_UNIQKEY = "TIMER_DEL_UNIQKEY"
PROPERTY_CRC32 = "__CRC32#"
PROPERTY_TRANSACTION_CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS = "CHECK_IMMUNITY_TIME_IN_SECONDS"
PROPERTY_INSTANCE_ID = "INSTANCE_ID"
PROPERTY_POP_CK = "POP_CK"
PROPERTY_POP_NEXT_OFFSET = "POP_NEXT_OFFSET"  # trocket's own, in records of check points
PROPERTY_FIRST_POP_TIME = "1ST_POP_TIME"
PROPERTY_ORIGIN_GROUP = "ORIGIN_GROUP"
PROPERTY_CORRELATION_ID = "CORRELATION_ID"
PROPERTY_MESSAGE_REPLY_TO_CLIENT = "REPLY_TO_CLIENT"
PROPERTY_MESSAGE_TTL = "TTL"
PROPERTY_MESSAGE_TYPE = "MSG_TYPE"
PROPERTY_REPLY_MESSAGE_ARRIVE_TIME = "ARRIVE_TIME"
PROPERTY_PUSH_REPLY_TIME = "PUSH_REPLY_TIME"
PROPERTY_DLQ_ORIGIN_TOPIC = "DLQ_ORIGIN_TOPIC"
PROPERTY_DLQ_ORIGIN_MESSAGE_ID = "DLQ_ORIGIN_MESSAGE_ID"

SYSTEM_PROPERTIES: Final = frozenset(
    value
    for name, value in dict(globals()).items()
    if name.startswith("PROPERTY_") and isinstance(value, str)
)
"""Property names that are reserved for RocketMQ: user properties cannot have them.

Source: RocketMQ 5.3.3 MessageConst.STRING_HASH_SET, Message.putUserProperty.
"""

KEY_SEPARATOR = " "
"""Between the keys of KEYS."""

# The names as bytes, for `find_property` in records that are not decoded.
DELAY_NAME = PROPERTY_DELAY_TIME_LEVEL.encode()
INNER_BASE_NAME = PROPERTY_INNER_BASE.encode()
INNER_MULTI_DISPATCH_NAME = PROPERTY_INNER_MULTI_DISPATCH.encode()
INNER_NUM_NAME = PROPERTY_INNER_NUM.encode()
KEYS_NAME = PROPERTY_KEYS.encode()
PRODUCER_GROUP_NAME = PROPERTY_PRODUCER_GROUP.encode()
REAL_QUEUE_ID_NAME = PROPERTY_REAL_QUEUE_ID.encode()
REAL_TOPIC_NAME = PROPERTY_REAL_TOPIC.encode()
TAGS_NAME = PROPERTY_TAGS.encode()
TIMER_OUT_NAME = PROPERTY_TIMER_OUT_MS.encode()
TRANSACTION_PREPARED_NAME = PROPERTY_TRANSACTION_PREPARED.encode()
UNIQUE_KEY_NAME = PROPERTY_UNIQUE_KEY.encode()
CRC32_NAME = PROPERTY_CRC32.encode()

# How a property begins in a record's bytes, for searches in records that are not decoded.
KEYS_HEAD = f"{PROPERTY_KEYS}\x01".encode()
TAGS_HEAD = f"{PROPERTY_TAGS}\x01".encode()
WAIT_HEAD = f"{PROPERTY_WAIT_STORE_MSG_OK}\x01".encode()
WAIT_OFF = WAIT_HEAD + b"false"
"""The property of a message whose sender does not wait for the disk."""
DELAY_HEAD = f"{PROPERTY_DELAY_TIME_LEVEL}\x01".encode()
MSG_REGION_HEAD = f"{PROPERTY_MSG_REGION}\x01".encode()
UNIQUE_KEY_HEAD = f"{PROPERTY_UNIQUE_KEY}\x01".encode()


def split_keys(text: str | None) -> list[str]:
    """The keys of the property KEYS.

    Only a blank separates them: a key may have any other white space.

    Args:
      text: the property's value; None: the message has none.

    Source: MessageConst.KEY_SEPARATOR, IndexService.buildIndex.
    """
    return [key for key in (text or "").split(KEY_SEPARATOR) if key]


class IllegalPropertyError(ValueError):
    """A property cannot be written: its text would read back as another one."""


def properties_to_string(properties: Mapping[str, str]) -> str:
    """The properties as one string, in the mapping's order, 0x02 at the end.

    Args:
      properties: names not empty and without 0x01 or 0x02, values without 0x02. An empty value is
        written, but readers drop it (Apache's and ours).

    Raises:
      IllegalPropertyError: a name or value that would read back as something else.
    """
    text = "".join([f"{name}\x01{value}\x02" for name, value in properties.items()])
    if text.count("\x02") != len(properties) or text.count("\x01") != len(properties):
        _refuse_separators(properties)
    if "" in properties:
        raise IllegalPropertyError("a property without a name")
    return text


def _refuse_separators(properties: Mapping[str, str]) -> None:
    for name, value in properties.items():
        if "\x01" in name or "\x02" in name or "\x02" in value:
            raise IllegalPropertyError(f"a separator inside property {name!r}")


def properties_to_bytes(properties: Mapping[str, str]) -> bytes:
    """`properties_to_string` in UTF-8; a lone surrogate becomes `?`, as in Java.

    Raises:
      IllegalPropertyError: as `properties_to_string`.
    """
    return properties_to_string(properties).encode("utf-8", "replace")


def properties_from_string(text: str) -> dict[str, str]:
    """The properties in a string; what is not `name 0x01 value` with both not empty is dropped.

    A value may hold 0x01. A name given twice has its last value.
    """
    properties: dict[str, str] = {}
    for item in text.split("\x02"):
        name, _, value = item.partition("\x01")
        if name and value:
            properties[name] = value
    return properties


def properties_from_bytes(raw: bytes | bytearray | memoryview) -> dict[str, str]:
    """`properties_from_string` of UTF-8; bytes that are not become U+FFFD, as in Java."""
    return properties_from_string(str(raw, "utf-8", "replace"))


def change_properties(
    raw: bytes, changed: Mapping[str, str], removed: tuple[str, ...] = ()
) -> bytes:
    """Encoded properties with some of them changed, without parsing the others.

    Args:
      raw: encoded properties.
      changed: names and their new values; they stand at the end.
      removed: names that are to be there no more.

    Raises:
      IllegalPropertyError: as `properties_to_string`.
    """
    tokens = tuple(name.encode() + b"\x01" for name in (*changed, *removed))
    for token in tokens:
        if token in raw:
            raw = b"\x02".join([p for p in raw.split(b"\x02") if not p.startswith(tokens)])
            break
    if raw and raw[-1] != 2:
        raw += b"\x02"
    return raw + properties_to_bytes(changed)


# The names that are looked for per message, as they stand after another property.
_TOKENS = {
    name.encode(): b"\x02%s\x01" % name.encode()
    for name in (
        PROPERTY_KEYS,
        PROPERTY_TAGS,
        PROPERTY_UNIQUE_KEY,
        PROPERTY_DELAY_TIME_LEVEL,
        PROPERTY_TRANSACTION_PREPARED,
        PROPERTY_WAIT_STORE_MSG_OK,
        PROPERTY_INNER_MULTI_DISPATCH,
        PROPERTY_TIMER_DELAY_SEC,
        PROPERTY_TIMER_DELIVER_MS,
        PROPERTY_TIMER_DELAY_MS,
        PROPERTY_REAL_TOPIC,
        PROPERTY_REAL_QUEUE_ID,
        PROPERTY_PRODUCER_GROUP,
    )
}


def pure_find_property(raw: bytes, name: bytes) -> bytes | None:
    """One property's value without parsing the others: the per-message form.

    Args:
      raw: encoded properties.
      name: the property's name, such as `b"TAGS"`; not empty, without 0x01 or 0x02.

    Returns: the value, not empty; None where `properties_from_bytes` would not have the name.
    """
    token = _TOKENS.get(name) or b"\x02%s\x01" % name
    found = raw.rfind(token)
    while found >= 0:
        begin = found + len(token)
        end = raw.find(b"\x02", begin)
        value = raw[begin:end] if end >= 0 else raw[begin:]
        if value:
            return value
        # Given twice, the last counts; but one without a value counts as not given.
        found = raw.rfind(token, 0, begin - 1)
    if raw.startswith(token[1:]):
        begin = len(token) - 1
        end = raw.find(b"\x02", begin)
        return (raw[begin:end] if end >= 0 else raw[begin:]) or None
    return None


find_property: Final[Callable[[bytes, bytes], bytes | None]] = (
    pure_find_property if extension is None else extension.find_property
)
"""`pure_find_property`, or the C extension's."""
