"""Formats of the store's binary files.

Java counterparts (5.3.3): store/ConsumeQueue.java, ConsumeQueueExt.java,
queue/BatchConsumeQueue.java, store/index/IndexHeader.java and IndexFile.java,
store/StoreCheckpoint.java. Everything is big-endian. The stored message is also the body of a
pull's answer, so it is declared in `remoting/message_codec.py`. Pages: docs/formats/*.md.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from ..remoting.schema import I16, I32, I64, U32, Layout, bytes_of

CONSUME_QUEUE_UNIT = Layout(
    physical_offset=I64,
    size=I32,
    tags_code=I64,
)
UNIT: Final = CONSUME_QUEUE_UNIT.struct()
UNIT_SIZE: Final = 20
UNIT_PLACE: Final = CONSUME_QUEUE_UNIT.struct(until="size")
"""The first fields of a unit: physical offset and size of its message."""

Unit: TypeAlias = tuple[int, int, int]
"""The fields of a unit: physical_offset, size, tags_code."""

Key: TypeAlias = tuple[str, int]
"""The name of a queue: (topic, queue id)."""

PRE_BLANK_SIZE: Final = 0x7FFFFFFF
"""`size` of a unit that only fills the room before a queue's first offset."""

BATCH_CONSUME_QUEUE_UNIT = Layout(
    physical_offset=I64,
    size=I32,
    tags_code=I64,
    store_timestamp_ms=I64,
    base_offset=I64,
    batch_size=I16,
    compacted_offset=I32,
    reserved=I32,
)
BATCH_UNIT: Final = BATCH_CONSUME_QUEUE_UNIT.struct()
BATCH_UNIT_SIZE: Final = 46

EXT_UNIT_HEADER = Layout(
    size=I16,
    tags_code=I64,
    store_timestamp_ms=I64,
    bit_map_size=I16,
)
EXT_HEAD: Final = EXT_UNIT_HEADER.struct()
EXT_HEAD_SIZE: Final = 20
EXT_END: Final = b"\xff\xff"
"""In place of a unit's size: no more units in this file."""

INDEX_HEADER = Layout(
    begin_timestamp_ms=I64,
    end_timestamp_ms=I64,
    begin_physical_offset=I64,
    end_physical_offset=I64,
    hash_slot_count=I32,
    index_count=I32,
)
INDEX_HEAD: Final = INDEX_HEADER.struct()
INDEX_HEADER_SIZE: Final = 40

INDEX_SLOT = Layout(index=I32)
SLOT: Final = INDEX_SLOT.struct()
SLOT_SIZE: Final = 4

INDEX_ENTRY = Layout(
    key_hash=I32,
    physical_offset=I64,
    time_difference_s=I32,
    previous_index=I32,
)
ENTRY: Final = INDEX_ENTRY.struct()
ENTRY_SIZE: Final = 20

CHECKPOINT = Layout(
    physic_msg_timestamp_ms=I64,
    logics_msg_timestamp_ms=I64,
    index_msg_timestamp_ms=I64,
    master_flushed_offset=I64,
    confirm_physical_offset=I64,
)
CHECKPOINT_HEAD: Final = CHECKPOINT.struct()
CHECKPOINT_FILE_SIZE: Final = 4096

CHECKPOINT_EXTENSION = Layout(
    magic=bytes_of(8),
    dispatched_offset=I64,
    physic_msg_timestamp_ms=I64,
    logics_msg_timestamp_ms=I64,
    crc32=U32,
)
"""Ours, in the part of the page that Apache leaves 0: up to which byte of the log records and queue
units are known to be on the device. It counts only while both timestamps equal Apache's fields, so
a page that Apache wrote after us is never misread."""
EXTENSION: Final = CHECKPOINT_EXTENSION.struct()
EXTENSION_POSITION: Final = 64
EXTENSION_MAGIC: Final = b"trocket1"

INDEX_PROGRESS = Layout(
    magic=bytes_of(8),
    physic_msg_timestamp_ms=I64,
    logics_msg_timestamp_ms=I64,
    file_name=I64,
    begin_timestamp_ms=I64,
    end_timestamp_ms=I64,
    begin_physical_offset=I64,
    end_physical_offset=I64,
    hash_slot_count=I32,
    index_count=I32,
    indexed_offset=I64,
    file_count=I32,
    files_crc32=U32,
    crc32=U32,
)
"""Ours too: the index file that is being filled, as far as its entries are on the device, and up to
which byte of the log the index is whole. It counts as CHECKPOINT_EXTENSION does."""
INDEX_PROGRESS_HEAD: Final = INDEX_PROGRESS.struct()
INDEX_PROGRESS_POSITION: Final = 128
INDEX_PROGRESS_MAGIC: Final = b"trockidx"

INDEX_FILE_MARK = Layout(file_name=I64, header_crc32=U32)
"""One finished index file before the one that is being filled; `file_count` of them, oldest first,
covered by `files_crc32`."""
FILE_MARK: Final = INDEX_FILE_MARK.struct()
FILE_MARKS_POSITION: Final = 256
FILE_MARKS_COUNT_MAX: Final = (CHECKPOINT_FILE_SIZE - FILE_MARKS_POSITION) // 12

TIMER_CHECKPOINT = Layout(
    read_time_ms=I64,
    log_flush_position=I64,
    queue_offset=I64,
    master_queue_offset=I64,
    state_version=I64,
    timestamp_ms=I64,
    counter=I64,
)
TIMER_HEAD: Final = TIMER_CHECKPOINT.struct()
TIMER_FILE_SIZE: Final = 4096

TIMER_PROGRESS = Layout(
    magic=bytes_of(8),
    read_time_ms=I64,
    queue_offset=I64,
    read_offset=I64,
    crc32=U32,
)
"""Ours, where Apache leaves 0: up to which queue offset timer messages were read. It counts only
while the two fields before are Apache's."""
TIMER_PROGRESS_HEAD: Final = TIMER_PROGRESS.struct()
TIMER_PROGRESS_POSITION: Final = 128
TIMER_PROGRESS_MAGIC: Final = b"trockTMR"

assert UNIT.size == UNIT_SIZE
assert BATCH_UNIT.size == BATCH_UNIT_SIZE
assert EXT_HEAD.size == EXT_HEAD_SIZE
assert INDEX_HEAD.size == INDEX_HEADER_SIZE
assert SLOT_SIZE
assert ENTRY.size == ENTRY_SIZE
assert CHECKPOINT_HEAD.size == 40
assert EXTENSION.size == 36
assert INDEX_PROGRESS_HEAD.size == 92
assert FILE_MARK.size == 12
assert TIMER_HEAD.size == 56
assert TIMER_PROGRESS_HEAD.size == 36
assert EXTENSION_POSITION + EXTENSION.size <= INDEX_PROGRESS_POSITION
assert INDEX_PROGRESS_POSITION + INDEX_PROGRESS_HEAD.size <= FILE_MARKS_POSITION
