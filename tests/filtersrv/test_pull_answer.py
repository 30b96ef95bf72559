"""Pull answers for consumers, made of a broker's answer."""

from __future__ import annotations

import zlib
from dataclasses import replace

import pytest

from trocket.filtersrv.processors import read_messages, write_messages
from trocket.remoting.body_compression import CompressionType, compress
from trocket.remoting.errors import RemoteProtocolError
from trocket.remoting.message_codec import decode_messages, with_property_crc

from .messages import record

COMPRESS_FROM = 8_192


def passed_on(body, wanted):
    stored, seen = read_messages(body)
    encoded = write_messages(
        stored, seen, wanted,
        min_offset=0, max_offset=7, compress_from=COMPRESS_FROM, compression_level=5,
    )  # fmt: skip
    return decode_messages(encoded, inflate=False, check_crc=True)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_what_matches_is_passed_on_with_the_offsets_added(host):
    properties = {"KEYS": "key5", "TAGS": "odd", "number": "5"}
    body = b"".join(
        record(b"body%d" % n, properties=properties, offset=n, host=host) for n in range(3)
    )
    (found,) = passed_on(body, [False, True, False])
    (_, before, _) = decode_messages(body)
    assert found.properties == properties | {"MIN_OFFSET": "0", "MAX_OFFSET": "7"}
    changed = {"properties_bytes": b"", "store_size": 0}
    assert replace(found, **changed) == replace(before, **changed)


def test_nothing_that_matches_is_nothing():
    assert passed_on(record(), [False]) == []
    assert passed_on(b"", []) == []


def test_a_large_body_is_compressed():
    plain = b"0123456789" * 900
    (found,) = passed_on(record(plain), [True])
    assert found.sys_flag == CompressionType.ZLIB.sys_flag
    assert zlib.decompress(found.body) == plain
    assert found.body_crc == zlib.crc32(found.body) & 0x7FFFFFFF


def test_a_small_body_is_not_compressed_even_if_it_was():
    plain = b"0123456789" * 500
    for kind in CompressionType:
        (found,) = passed_on(record(compress(plain, kind), sys_flag=kind.sys_flag), [True])
        assert found.body == plain
        assert not found.sys_flag & 1


def test_a_filter_sees_inflated_bodies_and_a_large_one_stays_as_it_was():
    plain = b"0123456789" * 900
    kept = compress(plain, CompressionType.LZ4)
    body = record(kept, sys_flag=CompressionType.LZ4.sys_flag)
    _, seen = read_messages(body)
    assert seen[0].body == plain
    (found,) = passed_on(body, [True])
    assert (found.body, found.sys_flag) == (kept, CompressionType.LZ4.sys_flag)


def test_a_checksum_of_the_stored_record_is_left_out():
    (found,) = passed_on(with_property_crc(record(properties={"a": "b"})), [True])
    assert found.properties == {"a": "b", "MIN_OFFSET": "0", "MAX_OFFSET": "7"}


def test_properties_that_are_full_stay_as_they_are():
    properties = {"a": "x" * 32_760}
    (found,) = passed_on(record(properties=properties), [True])
    assert found.properties == properties


def test_a_body_that_is_not_what_it_says_is_refused():
    with pytest.raises(RemoteProtocolError):
        read_messages(record(b"plain", sys_flag=CompressionType.ZLIB.sys_flag))
    with pytest.raises(RemoteProtocolError):
        read_messages(record()[:-1])
