"""RemoteAddresses: the white lists of ACL 1.0, which tell addresses that need no signature.

The forms, as RocketMQ's plain_acl.yml has them:

    (blank)                        no address
    *   *.*.*.*   *:*:*:*:*:*:*:*  every address
    192.168.0.1   fe80::1          one address
    10.0.0.1,10.0.0.2,fe80::1      several
    10.0.0.{1,2}  fe80::{1,2}      several that differ in the last part
    10.0.1-9.*    10.0.*.*         ranges of parts, all but the first; 1-9 includes both ends
    fe80::1-2f    fe80::1-2f:*     IPv6: a range in the last group, or in the last but one
                                   before a `*`

Pure. Java counterpart: acl/plain/RemoteAddressStrategyFactory.java and acl/common/AclUtils.java of
4.9.7. Stricter than there: Apache's matches only the first part that is a range, and ignores the
parts after it.
"""

from __future__ import annotations

import re
from ipaddress import AddressValueError, IPv4Address, IPv6Address, ip_address
from typing import Final

_EVERY: Final = frozenset({"*", "*.*.*.*", "*:*:*:*:*:*:*:*"})
_V4_PARTS: Final = 4
_V6_GROUPS: Final = 8
_BYTE_MAX: Final = 255
_GROUP_MAX: Final = 0xFFFF
_RANGE: Final = re.compile(r"([0-9A-Fa-f]{1,4})-([0-9A-Fa-f]{1,4})")

Parts = tuple[int, ...]
"""An address: 4 bytes or 8 groups."""

_Ranges = tuple[tuple[int, int], ...]
"""For each part its least and its greatest value."""


class RemoteAddressError(ValueError):
    """Text that is no white list; `str()` is RocketMQ's, with the text."""


class RemoteAddresses:
    """The addresses that one string of a white list names.

    Args:
      text: in one of the forms above; blanks around an address are ignored.

    Attributes:
      is_everyone: whether it names every address.

    Raises: RemoteAddressError: the text is in none of the forms.
    """

    __slots__ = ("_patterns", "is_everyone", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        stripped = text.strip()
        self.is_everyone = stripped in _EVERY
        self._patterns: frozenset[_Ranges] = frozenset()
        if stripped and not self.is_everyone:
            self._patterns = frozenset(_patterns_of(stripped))

    def __contains__(self, address: Parts) -> bool:
        """Whether an address from `parts_of` is one of these; () matches only `is_everyone`."""
        return self.is_everyone or any(_matches(pattern, address) for pattern in self._patterns)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RemoteAddresses) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"RemoteAddresses({self.text!r})"


def parts_of(host: str) -> Parts:
    """The parts of a peer's address; () when it is no IP address, such as a test's memory stream.

    Args:
      host: without a port; IPv6 with or without brackets and zone. An IPv4 address that is mapped
        into IPv6 is taken as IPv4.
    """
    try:
        address = ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return ()
    if isinstance(address, IPv6Address):
        address = address.ipv4_mapped or address
    return _parts(address)


def _parts(address: IPv4Address | IPv6Address) -> Parts:
    packed = address.packed
    if len(packed) == _V4_PARTS:
        return tuple(packed)
    return tuple(high << 8 | low for high, low in zip(packed[::2], packed[1::2], strict=True))


def _matches(pattern: _Ranges, address: Parts) -> bool:
    return len(pattern) == len(address) and all(
        least <= part <= greatest for (least, greatest), part in zip(pattern, address, strict=True)
    )


def _patterns_of(text: str) -> list[_Ranges]:
    if text.endswith("}"):
        head, brace, tail = text.partition("{")
        if not brace or head[-1:] not in (".", ":"):
            raise _no_address(text)
        return [_one(head + part.strip()) for part in tail[:-1].split(",") if part]
    if "," in text:
        return [_one(part.strip()) for part in text.split(",") if part]
    if "*" in text or "-" in text:
        return [_v6_range(text) if ":" in text else _v4_range(text)]
    return [_one(text)]


def _one(text: str) -> _Ranges:
    try:
        address = ip_address(text)
    except ValueError as error:
        raise _no_address(text) from error
    return tuple((part, part) for part in _parts(address))


def _v4_range(text: str) -> _Ranges:
    parts = [part.strip() for part in text.split(".")]
    if len(parts) != _V4_PARTS or not _is_byte(parts[0]):
        raise _no_range(text)
    return tuple(_v4_part(part, text) for part in parts)


def _v4_part(part: str, text: str) -> tuple[int, int]:
    if part == "*":
        return (0, _BYTE_MAX)
    least, minus, greatest = part.partition("-")
    if not minus:
        greatest = least
    if not (_is_byte(least) and _is_byte(greatest) and int(least) <= int(greatest)):
        raise _no_range(text)
    return (int(least), int(greatest))


def _is_byte(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 3 and int(text) <= _BYTE_MAX


def _v6_range(text: str) -> _Ranges:
    """The groups before the ranges, expanded, and one or two ranges."""
    ranges: list[tuple[int, int]] = []
    head = text
    while "*" in head or "-" in head:
        head, colon, last = head.rpartition(":")
        found = _RANGE.fullmatch(last)
        if last == "*" and not ranges:
            ranges.insert(0, (0, _GROUP_MAX))
        elif found and int(found[1], 16) <= int(found[2], 16) and ranges in ([], [(0, _GROUP_MAX)]):
            ranges.insert(0, (int(found[1], 16), int(found[2], 16)))
        else:
            raise _no_range(text)
        if not colon:
            raise _no_range(text)
    try:
        # Zeros in the place of the ranges, so that `::` expands to the groups that are left.
        address = IPv6Address(":".join([head, *("0" for _ in ranges)]))
    except AddressValueError as error:
        raise _no_range(text) from error
    fixed = _parts(address)[: _V6_GROUPS - len(ranges)]
    return (*((group, group) for group in fixed), *ranges)


def _no_address(text: str) -> RemoteAddressError:
    return RemoteAddressError(f"Netaddress examine Exception netaddress is {text}")


def _no_range(text: str) -> RemoteAddressError:
    return RemoteAddressError(f"Netaddress examine scope Exception netaddress is {text}")
