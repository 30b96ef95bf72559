"""The checksum of a whole record; against Apache's bytes in test_message_codec.py."""

from __future__ import annotations

from zlib import crc32

import pytest

from trocket.remoting.message_crc import PROPERTY_CRC_SIZE, check_record_crc, crc_property


def test_the_digits_stand_with_the_last_one_first():
    value = crc32(b"record") & 0x7FFFFFFF
    made = crc_property([b"record"])
    assert len(made) == PROPERTY_CRC_SIZE
    assert made[:9] == b"__CRC32#\x01"
    assert int(made[9:19][::-1]) == value
    assert made[19:] == b"\x02"


def test_pieces_count_as_the_bytes_they_are_together():
    assert crc_property([b"re", memoryview(b"co"), bytearray(b"rd")]) == crc_property([b"record"])


@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview])
def test_a_record_is_checked_where_it_lies(wrap):
    record = b"some record" + crc_property([b"some record"])
    buffer = wrap(b"before" + record + b"behind")
    assert check_record_crc(buffer, 6, len(record)) is True
    assert check_record_crc(buffer, 5, len(record) + 1) is False
    assert check_record_crc(buffer, 6, len(record) + 1) is None


def test_a_changed_digit_is_wrong_and_a_changed_name_is_no_property():
    record = bytearray(b"some record" + crc_property([b"some record"]))
    for position in range(len(record) - 11, len(record)):
        damaged = bytearray(record)
        damaged[position] ^= 1
        assert check_record_crc(damaged, 0, len(damaged)) is False
    record[-20] ^= 1
    assert check_record_crc(record, 0, len(record)) is None


def test_what_is_too_short_for_a_property_has_none():
    assert check_record_crc(crc_property([b""]), 0, 19) is None
