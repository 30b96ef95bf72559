"""Layouts of a stored record, of the filler at a file's end, and of a batch's entries.

The declarations `RECORD`, `BLANK` and `BATCH_ENTRY`, and the structs derived from them.

A record is `total_size` bytes: a head of fixed fields (88 bytes with two IPv4 hosts; an IPv6 host
is 12 bytes longer and marked in `sys_flag`), the body, a length-prefixed topic (1 byte with magic
V1, 2 bytes with V2, which is used for topics over 127 bytes), and 2-byte-prefixed properties.
`body_crc` is CRC32 & 0x7fffffff of the body as stored, so of the compressed one.

Source: RocketMQ 5.3.3 store/MessageExtEncoder.java, common/message/MessageDecoder.java and
MessageVersion.java; 4.9 is the same without V2. Pure.
"""

from __future__ import annotations

import struct

from .schema import I8, I16, I32, I64, U32, Format, Layout, sized_by
from .sys_flag import BORNHOST_V6, STOREHOSTADDRESS_V6

MAGIC_V1 = 0xDAA320A7 - (1 << 32)
"""Magic of a record whose topic has at most 127 bytes; signed, as the head holds it."""
MAGIC_V2 = 0xDAA320AB - (1 << 32)
"""Magic of a record whose topic length takes two bytes."""
MAGIC_BLANK = 0xCBD43194 - (1 << 32)
"""Magic of the filler at the end of a commit log file: no record starts after it there."""

TOPIC_SIZE_MAX_V1 = 127
TOPIC_SIZE_MAX = 32_767
"""The limit of the V2 layout. A store's limit is far lower, because a topic names a directory."""
PROPERTIES_SIZE_MAX = 32_767
"""The limit of the signed 16-bit length; RocketMQ refuses more, too."""


def _host(flag_bit: int) -> Format:
    return lambda values: "20s" if values["sys_flag"] & flag_bit else "8s"


RECORD = Layout(
    total_size=I32,
    magic=I32,
    body_crc=U32,
    queue_id=I32,
    flag=I32,
    queue_offset=I64,
    physical_offset=I64,
    sys_flag=I32,
    born_timestamp_ms=I64,
    born_host=_host(BORNHOST_V6),
    store_timestamp_ms=I64,
    store_host=_host(STOREHOSTADDRESS_V6),
    reconsume_times=I32,
    prepared_transaction_offset=I64,
    body_length=I32,
    body=sized_by("body_length"),
    topic_length=lambda values: I16 if values["magic"] == MAGIC_V2 else I8,
    topic=sized_by("topic_length"),
    properties_length=I16,
    properties=sized_by("properties_length"),
)
"""A whole record."""

BLANK = Layout(total_size=I32, magic=I32)
"""The filler's head; its size includes the head and all bytes up to the file's end."""

BATCH_ENTRY = Layout(
    total_size=I32,
    magic=I32,
    body_crc=I32,
    flag=I32,
    body_length=I32,
    body=sized_by("body_length"),
    properties_length=I16,
    properties=sized_by("properties_length"),
)
"""One message of a batch's body; magic and CRC are 0 on the wire."""

RECORD_HEADS: tuple[struct.Struct, ...] = tuple(
    RECORD.struct(until="body_length", context={"sys_flag": v6_bits << 4}) for v6_bits in range(4)
)
"""The head's struct by `(sys_flag >> 4) & 3`: total_size … body_length."""
RECORD_HEAD = RECORD_HEADS[0]
"""The head when both hosts are IPv4: `>iiIiiqqiq8sq8siqi`, 88 bytes."""
RECORD_PREFIX = BLANK.struct()
"""total_size, magic: the first fields of every record and blank."""
BATCH_ENTRY_HEAD = BATCH_ENTRY.struct(until="body_length")
"""total_size … body_length of a batch entry, 20 bytes."""
SYS_FLAG_POSITION = RECORD.struct(until="physical_offset").size
"""The position of `sys_flag` in a record; the fields before it have fixed sizes."""

WORD = Layout(value=I32).struct()
"""One signed 32-bit number."""
TOPIC_LENGTH_V1 = Layout(size=I8).struct()
TOPIC_LENGTH_V2 = Layout(size=I16).struct()
PROPERTIES_LENGTH = Layout(size=I16).struct()

RECORD_LENGTHS = struct.Struct(
    f"{RECORD_PREFIX.format}{SYS_FLAG_POSITION - RECORD_PREFIX.size}x"
    f"i{RECORD_HEAD.size - SYS_FLAG_POSITION - 2 * WORD.size}xi"
)
"""total_size, magic, sys_flag and body_length only, in half of RECORD_HEAD's time."""

RECORD_SIZE_MIN = RECORD_HEAD.size + TOPIC_LENGTH_V1.size + PROPERTIES_LENGTH.size
"""91 bytes: no body, no topic, no properties."""

assert RECORD_LENGTHS.size == RECORD_HEAD.size
assert RECORD_HEAD.format == ">iiIiiqqiq8sq8siqi"
assert [head.size for head in RECORD_HEADS] == [88, 100, 100, 112]
assert BATCH_ENTRY_HEAD.size == 20
assert RECORD_SIZE_MIN == 91
