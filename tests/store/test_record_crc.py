"""The checksum over a whole record: who gets one, and what came with the message."""

from __future__ import annotations

import pytest

from trocket.common.message_properties import properties_from_bytes
from trocket.disk.memory_disk import MemoryDisk
from trocket.remoting.message import Message
from trocket.remoting.message_codec import check_record_crc, decode_messages, encode_batch
from trocket.store.status import PutMessageStatus

from .support import HOST, bodies, open_store, put, send

STALE = b"__CRC32#\x011234567890\x02"


def stored(store, queue_offset=0):
    """(CRC right?, properties) of a message."""
    (buffer,) = store.get_message("T", 0, queue_offset, 1).buffers
    (message,) = decode_messages(buffer, check_crc=True)
    return check_record_crc(buffer, 0, len(buffer)), message.properties_bytes


@pytest.mark.parametrize("properties", [b"", b"a\x01b\x02", b"a\x01b"])
def test_with_the_key_every_record_ends_in_its_checksum(properties):
    store = open_store(enabled_append_prop_crc=True)
    send(store, properties=properties)
    right, kept = stored(store)
    assert right is True
    assert kept[:-20].rstrip(b"\x02") == properties.rstrip(b"\x02")


def test_without_it_only_properties_with_a_nul_byte_get_one():
    store = open_store()
    send(store, properties=b"a\x01b\x02")
    send(store, properties=b"a\x01\0\x02")
    assert stored(store) == (None, b"a\x01b\x02")
    right, kept = stored(store, 1)
    assert right is True
    assert kept.startswith(b"a\x01\0\x02")


@pytest.mark.parametrize("every", [False, True])
def test_a_checksum_that_came_with_the_message_is_not_kept(every):
    store = open_store(enabled_append_prop_crc=every)
    send(store, properties=b"a\x01b\x02" + STALE)
    right, kept = stored(store)
    assert right is (True if every else None)
    assert kept[: len(b"a\x01b\x02")] == b"a\x01b\x02"
    assert STALE not in kept


def test_a_message_with_a_nul_byte_in_its_properties_survives_a_kill():
    disk = MemoryDisk()
    store = open_store(disk)
    send(store, b"1", properties=b"a\x01\0\x02")
    send(store, b"2", properties=STALE)
    disk.process_death()
    assert bodies(open_store(disk)) == [b"1", b"2"]


def test_each_message_of_a_batch_has_its_own():
    store = open_store(enabled_append_prop_crc=True)
    properties = {"__CRC32#": "1234567890"}
    batch = encode_batch([Message("T", b"1"), Message("T", b"2", properties=properties)])
    refusal, offsets, _ = store.put_batch(
        "T", 0, batch, b"X\x01y\x02", born_timestamp_ms=1, born_host=HOST, store_host=HOST
    )
    assert (refusal, len(offsets)) == (None, 2)
    store.commit()
    for number in range(2):
        right, kept = stored(store, number)
        assert right is True
        assert properties_from_bytes(kept[:-20]) == {"X": "y"}


def test_properties_that_fit_only_without_a_checksum_are_refused():
    longest = b"a\x01" + b"x" * 32_764 + b"\x02"
    assert put(open_store(), properties=longest)[0] is None
    store = open_store(enabled_append_prop_crc=True)
    assert put(store, properties=longest)[0].status is PutMessageStatus.PROPERTIES_SIZE_EXCEEDED
    assert put(store)[0] is None
