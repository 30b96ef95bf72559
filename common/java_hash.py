"""Java's `String.hashCode`, and RocketMQ's tag codes and index key hashes.

Java counterpart: `java.lang.String.hashCode` (s[0]*31^(n-1) + … + s[n-1] over UTF-16 units, 32
bits, wrapping), `MessageExtBrokerInner.tagsString2tagsCode`, `IndexFile.indexKeyHashMethod` of
RocketMQ 5.3.3. Pure. The caches only ever save time; each is bounded.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from operator import mul

_CHUNK_UNITS = 64
# _POWERS[n] are the factors of an n-unit string, 31^(n-1) … 31^0, modulo 2^32.
_POWERS = tuple(
    tuple(pow(31, n - 1 - i, 1 << 32) for i in range(n)) for n in range(_CHUNK_UNITS + 1)
)
_POWER = tuple(pow(31, n, 1 << 32) for n in range(_CHUNK_UNITS + 1))
_P2, _P4 = _POWER[2], _POWER[4]

TAG_CACHE_COUNT_MAX = 4096
"""Tags whose code is cached; each at most `_CHUNK_UNITS` characters, so below 1 MB in all."""

HEAD_CACHE_COUNT_MAX = 4096
"""Prefixes of keys whose hash is cached. A producer's unique keys share one for 1 ms."""

# Two ASCII characters -> their hash: 16,384 entries would be 2 MB, so it is filled as they come.
_pairs: dict[str, int] = {}
_heads: dict[str, int] = {}


def java_hash_code(text: str) -> int:
    """`text.hashCode()` as Java computes it.

    Args:
      text: any string; characters beyond U+FFFF count as their two surrogates.

    Returns: -2^31 … 2^31 - 1.
    """
    code = _unsigned_hash(text)
    return code if code < 0x80000000 else code - 0x100000000


def tags_code(tags: str | None) -> int:
    """The number that a consume queue entry keeps for a message's tag.

    Args:
      tags: the TAGS property; None or "": no tag.

    Returns: `hashCode` widened to 64 bits with its sign; 0 without a tag.

    Source: RocketMQ 5.3.3 common/message/MessageExtBrokerInner.java tagsString2tagsCode.
    """
    if not tags:
        return 0
    if len(tags) > _CHUNK_UNITS:
        return java_hash_code(tags)
    return _cached_tags_code(tags)


@lru_cache(maxsize=TAG_CACHE_COUNT_MAX)
def _cached_tags_code(tags: str) -> int:
    return java_hash_code(tags)


def index_key_hash(key: str) -> int:
    """The hash under which the index files keep a key.

    Args:
      key: "topic#key".

    Returns: |hashCode|, 0 … 2^31 - 1; 0 for the one code without a positive twin (-2^31).

    Source: RocketMQ 5.3.3 store/index/IndexFile.java indexKeyHashMethod.
    """
    code = _unsigned_hash(key)
    return code if code < 0x80000000 else (0x100000000 - code) & 0x7FFFFFFF


def hash_prefix(text: str) -> int:
    """The hash of a key's fixed beginning ("topic#"), to be continued by `index_key_hash_after`.

    Returns: `hashCode` as 0 … 2^32 - 1.
    """
    return _unsigned_hash(text)


def hash_continue(prefix_hash: int, key: str) -> int:
    """The hash of prefix + key, from the hash of the prefix.

    Args:
      prefix_hash: what `hash_prefix(prefix)` or this function returned.
      key: the rest of the string.

    Returns: `(prefix + key).hashCode()` as 0 … 2^32 - 1; so it can be continued again.
    """
    length = len(key)
    if length > _CHUNK_UNITS or not key.isascii():
        return _continued(prefix_hash, key)
    return (prefix_hash * _POWER[length] + _short_ascii_hash(key)) & 0xFFFFFFFF


def index_key_hash_after(prefix_hash: int, key: str) -> int:
    """`index_key_hash(prefix + key)` from the hash of the prefix: the per-message form.

    Written for unique keys: 32 or 56 hex digits of which all but the last four stay the same for
    a millisecond. Such a key costs two cache look-ups; any other key is right too, only slower.

    Args:
      prefix_hash: `hash_prefix("topic#")`.
      key: the message's key.

    Returns: 0 … 2^31 - 1.
    """
    length = len(key)
    if length > _CHUNK_UNITS:
        code = _continued(prefix_hash, key)
    else:
        try:
            # A head or a pair is only ever in its cache if it is ASCII.
            code = (
                prefix_hash * _POWER[length]
                + _heads[key[:-4]] * _P4
                + _pairs[key[-4:-2]] * _P2
                + _pairs[key[-2:]]
            ) & 0xFFFFFFFF
        except KeyError:
            code = hash_continue(prefix_hash, key)
    return code if code < 0x80000000 else (0x100000000 - code) & 0x7FFFFFFF


def _short_ascii_hash(key: str) -> int:
    """The hash of an ASCII key of at most `_CHUNK_UNITS` characters, not reduced to 32 bits."""
    if len(key) < 4:
        return sum(map(mul, key.encode(), _POWERS[len(key)]))
    head, middle, last = key[:-4], key[-4:-2], key[-2:]
    head_hash = _heads.get(head)
    if head_hash is None:
        if len(_heads) >= HEAD_CACHE_COUNT_MAX:
            _heads.clear()
        head_hash = _heads[head] = sum(map(mul, head.encode(), _POWERS[len(head)])) & 0xFFFFFFFF
    middle_hash = _pairs.get(middle)
    if middle_hash is None:
        middle_hash = _pairs[middle] = ord(middle[0]) * 31 + ord(middle[1])
    last_hash = _pairs.get(last)
    if last_hash is None:
        last_hash = _pairs[last] = ord(last[0]) * 31 + ord(last[1])
    return head_hash * _P4 + middle_hash * _P2 + last_hash


def _unsigned_hash(text: str) -> int:
    return _continued(0, text)


def _continued(code: int, text: str) -> int:
    units: bytes | tuple[int, ...]
    if text.isascii():
        units = text.encode()
    else:
        raw = text.encode("utf-16-be", "surrogatepass")
        units = struct.unpack(f">{len(raw) // 2}H", raw)
    for start in range(0, len(units), _CHUNK_UNITS):
        chunk = units[start : start + _CHUNK_UNITS]
        count = len(chunk)
        code = (code * _POWER[count] + sum(map(mul, chunk, _POWERS[count]))) & 0xFFFFFFFF
    return code
