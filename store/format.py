"""The store's binary files, declared once.

Java counterparts (5.3.3): store/ConsumeQueue.java, store/index/IndexHeader.java and
IndexFile.java, store/StoreCheckpoint.java. Everything is big-endian. The stored message itself is
also what a pull answers, so it is declared in `remoting/message_codec.py`. Pages:
docs/formats/*.md.
"""

from __future__ import annotations

from typing import Final

from construct import Bytes, Int32sb, Int32ub, Int64sb, Struct

from ..remoting.schema import derive_struct

CONSUME_QUEUE_UNIT = Struct(
    "physical_offset" / Int64sb,
    "size" / Int32sb,
    "tags_code" / Int64sb,
)
UNIT: Final = derive_struct(CONSUME_QUEUE_UNIT)
UNIT_SIZE: Final = 20

PRE_BLANK_SIZE: Final = 0x7FFFFFFF
"""`size` of a unit that only fills the room before a queue's first offset."""

INDEX_HEADER = Struct(
    "begin_timestamp_ms" / Int64sb,
    "end_timestamp_ms" / Int64sb,
    "begin_physical_offset" / Int64sb,
    "end_physical_offset" / Int64sb,
    "hash_slot_count" / Int32sb,
    "index_count" / Int32sb,
)
INDEX_HEAD: Final = derive_struct(INDEX_HEADER)
INDEX_HEADER_SIZE: Final = 40

INDEX_SLOT = Struct("index" / Int32sb)
SLOT: Final = derive_struct(INDEX_SLOT)
SLOT_SIZE: Final = 4

INDEX_ENTRY = Struct(
    "key_hash" / Int32sb,
    "physical_offset" / Int64sb,
    "time_difference_s" / Int32sb,
    "previous_index" / Int32sb,
)
ENTRY: Final = derive_struct(INDEX_ENTRY)
ENTRY_SIZE: Final = 20

CHECKPOINT = Struct(
    "physic_msg_timestamp_ms" / Int64sb,
    "logics_msg_timestamp_ms" / Int64sb,
    "index_msg_timestamp_ms" / Int64sb,
    "master_flushed_offset" / Int64sb,
    "confirm_physical_offset" / Int64sb,
)
CHECKPOINT_HEAD: Final = derive_struct(CHECKPOINT)
CHECKPOINT_FILE_SIZE: Final = 4096

CHECKPOINT_EXTENSION = Struct(
    "magic" / Bytes(8),
    "dispatched_offset" / Int64sb,
    "physic_msg_timestamp_ms" / Int64sb,
    "logics_msg_timestamp_ms" / Int64sb,
    "crc32" / Int32ub,
)
"""Ours, in the part of the page that Apache leaves 0: up to which byte of the log records and queue
units are known to be on the device. It counts only while both timestamps equal Apache's fields, so
a page that Apache wrote after us is never misread."""
EXTENSION: Final = derive_struct(CHECKPOINT_EXTENSION)
EXTENSION_POSITION: Final = 64
EXTENSION_MAGIC: Final = b"trocket1"

assert CONSUME_QUEUE_UNIT.sizeof() == UNIT_SIZE == UNIT.size
assert INDEX_HEADER.sizeof() == INDEX_HEADER_SIZE == INDEX_HEAD.size
assert INDEX_SLOT.sizeof() == SLOT_SIZE
assert INDEX_ENTRY.sizeof() == ENTRY_SIZE == ENTRY.size
assert CHECKPOINT.sizeof() == CHECKPOINT_HEAD.size == 40
assert CHECKPOINT_EXTENSION.sizeof() == EXTENSION.size == 36
