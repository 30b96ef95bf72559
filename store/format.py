"""Formats of the store's binary files.

Java counterparts (5.3.3): store/ConsumeQueue.java, ConsumeQueueExt.java,
queue/BatchConsumeQueue.java, store/index/IndexHeader.java and IndexFile.java,
store/StoreCheckpoint.java. Everything is big-endian. The stored message is also the body of a
pull's answer, so it is declared in `remoting/message_codec.py`. Pages: docs/formats/*.md.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from construct import Bytes, Int16sb, Int32sb, Int32ub, Int64sb, Struct

from ..remoting.schema import derive_struct

CONSUME_QUEUE_UNIT = Struct(
    "physical_offset" / Int64sb,
    "size" / Int32sb,
    "tags_code" / Int64sb,
)
UNIT: Final = derive_struct(CONSUME_QUEUE_UNIT)
UNIT_SIZE: Final = 20
UNIT_PLACE: Final = derive_struct(CONSUME_QUEUE_UNIT, until="size")
"""The first fields of a unit: physical offset and size of its message."""

Unit: TypeAlias = tuple[int, int, int]
"""The fields of a unit: physical_offset, size, tags_code."""

Key: TypeAlias = tuple[str, int]
"""The name of a queue: (topic, queue id)."""

PRE_BLANK_SIZE: Final = 0x7FFFFFFF
"""`size` of a unit that only fills the room before a queue's first offset."""

BATCH_CONSUME_QUEUE_UNIT = Struct(
    "physical_offset" / Int64sb,
    "size" / Int32sb,
    "tags_code" / Int64sb,
    "store_timestamp_ms" / Int64sb,
    "base_offset" / Int64sb,
    "batch_size" / Int16sb,
    "compacted_offset" / Int32sb,
    "reserved" / Int32sb,
)
BATCH_UNIT: Final = derive_struct(BATCH_CONSUME_QUEUE_UNIT)
BATCH_UNIT_SIZE: Final = 46

EXT_UNIT_HEADER = Struct(
    "size" / Int16sb,
    "tags_code" / Int64sb,
    "store_timestamp_ms" / Int64sb,
    "bit_map_size" / Int16sb,
)
EXT_HEAD: Final = derive_struct(EXT_UNIT_HEADER)
EXT_HEAD_SIZE: Final = 20
EXT_END: Final = b"\xff\xff"
"""In place of a unit's size: no more units in this file."""

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

INDEX_PROGRESS = Struct(
    "magic" / Bytes(8),
    "physic_msg_timestamp_ms" / Int64sb,
    "logics_msg_timestamp_ms" / Int64sb,
    "file_name" / Int64sb,
    "begin_timestamp_ms" / Int64sb,
    "end_timestamp_ms" / Int64sb,
    "begin_physical_offset" / Int64sb,
    "end_physical_offset" / Int64sb,
    "hash_slot_count" / Int32sb,
    "index_count" / Int32sb,
    "indexed_offset" / Int64sb,
    "file_count" / Int32sb,
    "files_crc32" / Int32ub,
    "crc32" / Int32ub,
)
"""Ours too: the index file that is being filled, as far as its entries are on the device, and up to
which byte of the log the index is whole. It counts as CHECKPOINT_EXTENSION does."""
INDEX_PROGRESS_HEAD: Final = derive_struct(INDEX_PROGRESS)
INDEX_PROGRESS_POSITION: Final = 128
INDEX_PROGRESS_MAGIC: Final = b"trockidx"

INDEX_FILE_MARK = Struct("file_name" / Int64sb, "header_crc32" / Int32ub)
"""One finished index file before the one that is being filled; `file_count` of them, oldest first,
covered by `files_crc32`."""
FILE_MARK: Final = derive_struct(INDEX_FILE_MARK)
FILE_MARKS_POSITION: Final = 256
FILE_MARKS_COUNT_MAX: Final = (CHECKPOINT_FILE_SIZE - FILE_MARKS_POSITION) // 12

TIMER_CHECKPOINT = Struct(
    "read_time_ms" / Int64sb,
    "log_flush_position" / Int64sb,
    "queue_offset" / Int64sb,
    "master_queue_offset" / Int64sb,
    "state_version" / Int64sb,
    "timestamp_ms" / Int64sb,
    "counter" / Int64sb,
)
TIMER_HEAD: Final = derive_struct(TIMER_CHECKPOINT)
TIMER_FILE_SIZE: Final = 4096

TIMER_PROGRESS = Struct(
    "magic" / Bytes(8),
    "read_time_ms" / Int64sb,
    "queue_offset" / Int64sb,
    "read_offset" / Int64sb,
    "crc32" / Int32ub,
)
"""Ours, where Apache leaves 0: up to which queue offset timer messages were read. It counts only
while the two fields before are Apache's."""
TIMER_PROGRESS_HEAD: Final = derive_struct(TIMER_PROGRESS)
TIMER_PROGRESS_POSITION: Final = 128
TIMER_PROGRESS_MAGIC: Final = b"trockTMR"

assert CONSUME_QUEUE_UNIT.sizeof() == UNIT_SIZE == UNIT.size
assert BATCH_CONSUME_QUEUE_UNIT.sizeof() == BATCH_UNIT_SIZE == BATCH_UNIT.size
assert EXT_UNIT_HEADER.sizeof() == EXT_HEAD_SIZE == EXT_HEAD.size
assert INDEX_HEADER.sizeof() == INDEX_HEADER_SIZE == INDEX_HEAD.size
assert INDEX_SLOT.sizeof() == SLOT_SIZE
assert INDEX_ENTRY.sizeof() == ENTRY_SIZE == ENTRY.size
assert CHECKPOINT.sizeof() == CHECKPOINT_HEAD.size == 40
assert CHECKPOINT_EXTENSION.sizeof() == EXTENSION.size == 36
assert INDEX_PROGRESS.sizeof() == INDEX_PROGRESS_HEAD.size == 92
assert INDEX_FILE_MARK.sizeof() == FILE_MARK.size == 12
assert TIMER_CHECKPOINT.sizeof() == TIMER_HEAD.size == 56
assert TIMER_PROGRESS.sizeof() == TIMER_PROGRESS_HEAD.size == 36
assert EXTENSION_POSITION + EXTENSION.size <= INDEX_PROGRESS_POSITION
assert INDEX_PROGRESS_POSITION + INDEX_PROGRESS_HEAD.size <= FILE_MARKS_POSITION
