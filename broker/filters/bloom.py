"""The Bloom filter of consume queue extensions: the groups whose SQL filters match a message.

Each group and topic has a few bit positions; a message's bit map has those of the groups whose
filter was true when it was stored. A pull may then skip a message without reading it.

The positions and the bits are part of RocketMQ's files (consumerFilter.json, consumequeue_ext), so
they are computed as RocketMQ does, bit for bit.

Java counterpart: filter/util/BloomFilter.java, BloomFilterData.java, BitsArray.java of 5.3.3, and
murmur3_128 of Guava. Pure.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

DEFAULT_ERROR_RATE_PERCENT: Final = 20
DEFAULT_EXPECTED_COUNT: Final = 32
"""RocketMQ's `maxErrorRateOfBloomFilter` and `expectConsumerNumUseFilter`."""

_UINT64: Final = 0xFFFF_FFFF_FFFF_FFFF
_UINT32: Final = 0xFFFF_FFFF
_INT32_SIGN: Final = 0x8000_0000
_C1: Final = 0x87C3_7B91_1142_53D5
_C2: Final = 0x4CF5_AD43_2745_937F
_BLOCK: Final = struct.Struct("<QQ")


def _rotate(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & _UINT64


def _mix_first(value: int) -> int:
    return _rotate(value * _C1 & _UINT64, 31) * _C2 & _UINT64


def _mix_second(value: int) -> int:
    return _rotate(value * _C2 & _UINT64, 33) * _C1 & _UINT64


def _finish(value: int) -> int:
    value = (value ^ value >> 33) * 0xFF51_AFD7_ED55_8CCD & _UINT64
    value = (value ^ value >> 33) * 0xC4CE_B9FE_1A85_EC53 & _UINT64
    return value ^ value >> 33


def murmur3_128_low(data: bytes) -> int:
    """The first 64 bits of MurmurHash3 x64 128 with seed 0, as Guava's `asLong`.

    Returns: 0 … 2^64 - 1.
    Source: Austin Appleby's MurmurHash3_x64_128, in the public domain.
    """
    first = second = 0
    whole = len(data) - len(data) % _BLOCK.size
    for low, high in _BLOCK.iter_unpack(data[:whole]):
        first = (_rotate(first ^ _mix_first(low), 27) + second) * 5 + 0x52DC_E729 & _UINT64
        second = (_rotate(second ^ _mix_second(high), 31) + first) * 5 + 0x3849_5AB5 & _UINT64
    low, high = _BLOCK.unpack(data[whole:].ljust(_BLOCK.size, b"\0"))
    first ^= _mix_first(low) ^ len(data)
    second ^= _mix_second(high) ^ len(data)
    first = first + second & _UINT64
    second = second + first & _UINT64
    return _finish(first) + _finish(second) & _UINT64


@dataclass(frozen=True, slots=True)
class BloomFilter:
    """The size of a Bloom filter and the number of bits per entry; immutable.

    Attributes:
      hash_count: bits of each string; RocketMQ's k.
      bit_count: bits in all, a multiple of 8; RocketMQ's m and `bitNum`.
    """

    hash_count: int
    bit_count: int

    @classmethod
    def create(
        cls,
        error_rate_percent: int = DEFAULT_ERROR_RATE_PERCENT,
        expected_count: int = DEFAULT_EXPECTED_COUNT,
    ) -> BloomFilter:
        """The filter for an error rate of 1 … 99 percent at an expected number of strings, 1 or
        more.

        Raises: ValueError: an argument is out of its range.
        """
        if not 1 <= error_rate_percent < 100:
            raise ValueError(f"an error rate of {error_rate_percent} percent is not in 1 to 99")
        if expected_count < 1:
            raise ValueError(f"an expected count of {expected_count} is below 1")
        error_rate = error_rate_percent / 100
        hash_count = math.ceil(math.log(error_rate) / math.log(0.5))
        # In RocketMQ's order of operations: a difference in the last bit changes the rounding.
        log2_of_inverse = math.log(1 / error_rate) / math.log(2)
        bits = math.ceil(expected_count * log2_of_inverse * (math.log(math.e) / math.log(2)))
        return cls(hash_count, 8 * math.ceil(bits / 8))

    def generate(self, text: str) -> tuple[int, ...]:
        """The bit positions of a string, such as `group#topic`; one may be there twice."""
        hash64 = murmur3_128_low(text.encode("utf-8", "replace"))
        low, high = hash64 & _UINT32, hash64 >> 32
        positions = []
        for number in range(1, self.hash_count + 1):
            combined = (low + number * high) & _UINT32
            if combined & _INT32_SIGN:
                combined ^= _UINT32
            positions.append(combined % self.bit_count)
        return tuple(positions)

    def new_bits(self) -> bytearray:
        """A bit map with no bit set."""
        return bytearray(self.bit_count // 8)

    def hash_to(self, positions: Sequence[int], bits: bytearray) -> None:
        """Set the bits at these positions.

        Args:
          positions: each below `bit_count`.
          bits: changed; bit n is bit n % 8 of byte n // 8.
        Raises: ValueError: the bit map has another size.
        """
        self._check(bits)
        for position in positions:
            bits[position >> 3] |= 1 << (position & 7)

    def is_hit(self, positions: Sequence[int], bits: bytes | bytearray | memoryview) -> bool:
        """Whether all of these bits are set; if not, the text was certainly not added.

        Raises: ValueError: the bit map has another size.
        """
        self._check(bits)
        return all(bits[position >> 3] >> (position & 7) & 1 for position in positions)

    def _check(self, bits: bytes | bytearray | memoryview) -> None:
        if len(bits) * 8 != self.bit_count:
            raise ValueError(f"a bit map of {len(bits) * 8} bits, expected {self.bit_count}")
