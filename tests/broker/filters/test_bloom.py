"""The Bloom filter, held to positions that the classes of Apache RocketMQ 5.5.0 gave.

More of them: tests/interop/test_sql92_oracle.py.
"""

from __future__ import annotations

import pytest

from trocket.broker.filters.bloom import BloomFilter, murmur3_128_low

POSITIONS = {
    "group#topic": (79, 21, 21),
    "CID_A#TopicTest": (20, 68, 27),
    "a#b": (101, 103, 59),
    "#": (3, 62, 22),
    "g#é日本\U0001f600": (52, 47, 42),
    "g#\ud800": (72, 101, 93),
    "xxxxxxx#yyyyyyy": (64, 36, 103),
    "xxxxxxxx#yyyyyyyy": (99, 111, 45),
    "consumer-group-1#a-longer-topic-name-than-sixteen-bytes": (75, 47, 58),
}


def test_the_defaults_are_rocketmqs():
    assert BloomFilter.create() == BloomFilter(hash_count=3, bit_count=112)
    assert BloomFilter.create(20, 32) == BloomFilter.create()


@pytest.mark.parametrize(
    ("error_rate_percent", "expected_count", "hash_count", "bit_count"),
    [(1, 1, 7, 16), (10, 128, 4, 616), (50, 32, 1, 48), (99, 1000, 1, 24), (25, 1, 2, 8)],
)
def test_the_size_follows_from_the_error_rate_and_the_count(
    error_rate_percent, expected_count, hash_count, bit_count
):
    made = BloomFilter.create(error_rate_percent, expected_count)
    assert (made.hash_count, made.bit_count) == (hash_count, bit_count)


@pytest.mark.parametrize(("rate", "count"), [(0, 32), (100, 32), (-1, 32), (20, 0), (20, -1)])
def test_a_rate_or_count_out_of_range_is_refused(rate, count):
    with pytest.raises(ValueError, match=r"of -?\d+ (percent is not|is below)"):
        BloomFilter.create(rate, count)


def test_the_hash_is_murmur3():
    # The vectors of the hash's own test suite for 64 bits of x64_128.
    assert murmur3_128_low(b"") == 0
    assert murmur3_128_low(b"hello") == 0xCBD8A7B341BD9B02
    assert murmur3_128_low(b"hello, world") == 0x342FAC623A5EBC8E


@pytest.mark.parametrize("text", POSITIONS, ids=ascii)
def test_positions_are_apaches(text):
    assert BloomFilter.create().generate(text) == POSITIONS[text]


def test_a_text_that_was_added_is_hit_and_others_mostly_not():
    bloom = BloomFilter.create()
    bits = bloom.new_bits()
    assert not bloom.is_hit(bloom.generate("group#topic"), bits)
    bloom.hash_to(bloom.generate("group#topic"), bits)
    assert [n for n in range(bloom.bit_count) if bits[n // 8] >> n % 8 & 1] == [21, 79]
    assert bloom.is_hit(bloom.generate("group#topic"), bytes(bits))
    assert not bloom.is_hit(bloom.generate("CID_A#TopicTest"), memoryview(bits))
    bloom.hash_to(bloom.generate("CID_A#TopicTest"), bits)
    assert bits.hex() == "0000300800000000108000000000"


def test_a_bit_map_of_another_size_is_refused():
    bloom = BloomFilter.create()
    with pytest.raises(ValueError, match="a bit map of 104 bits, expected 112"):
        bloom.hash_to((1, 2, 3), bytearray(13))
    with pytest.raises(ValueError, match="a bit map of 120 bits, expected 112"):
        bloom.is_hit((1, 2, 3), bytes(15))
