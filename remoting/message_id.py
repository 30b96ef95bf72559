"""The two ids of a message: the broker's (offset id) and the producer's (unique id).

Java counterpart: `MessageDecoder.createMessageId`/`decodeMessageId` and `MessageClientIDSetter` of
RocketMQ 5.3.3. Pure: the time, the address and the process id are arguments.

Offset id: store host (IP, 4-byte port) and physical offset, 16 or 28 bytes in upper-case hex.
Unique id: IP, process id, a number that distinguishes processes of one machine (Java: the class
loader's hash), ms since the start of the month, a counter; 16 or 28 bytes in upper-case hex.
"""

from __future__ import annotations

import ipaddress
import struct
from datetime import datetime, tzinfo
from typing import Final, NamedTuple

from .errors import LocalProtocolError, RemoteProtocolError
from .schema import I32, I64, U16, U32, Layout, bytes_of


def _offset_id(ip_size: int) -> Layout:
    return Layout(ip=bytes_of(ip_size), port=I32, physical_offset=I64)


def _unique_id(ip_size: int) -> Layout:
    return Layout(
        ip=bytes_of(ip_size),
        pid=U16,
        loader_hash=U32,
        month_span_ms=U32,
        counter=U16,
    )


OFFSET_ID_V4: Final = _offset_id(4)
OFFSET_ID_V6: Final = _offset_id(16)
UNIQUE_ID_V4: Final = _unique_id(4)
UNIQUE_ID_V6: Final = _unique_id(16)

_OFFSET_IDS = {s.size: s for s in (OFFSET_ID_V4.struct(), OFFSET_ID_V6.struct())}
_UNIQUE_IDS = {s.size: s for s in (UNIQUE_ID_V4.struct(), UNIQUE_ID_V6.struct())}
assert _OFFSET_IDS.keys() == _UNIQUE_IDS.keys() == {16, 28}


class OffsetId(NamedTuple):
    """The parts of an offset id: the broker's address and the physical offset."""

    ip: str
    port: int
    physical_offset: int


class UniqueId(NamedTuple):
    """The parts of a unique id: its generator, and the ms since the start of the month."""

    ip: str
    pid: int
    loader_hash: int
    month_span_ms: int
    counter: int


def encode_offset_id(store_host: bytes, physical_offset: int) -> str:
    """The broker's id of a message: 32 hex digits, 56 with an IPv6 store host.

    Args:
      store_host: 8 or 20 bytes (`hosts.host_bytes`).
      physical_offset: bytes from the start of the commit log, 0 … 2^63 - 1.

    Raises:
      LocalProtocolError: the host or the offset does not fit.
    """
    if len(store_host) not in (8, 20) or not 0 <= physical_offset < 1 << 63:
        raise LocalProtocolError(f"not a host and offset: {store_host!r}, {physical_offset}")
    return f"{store_host.hex().upper()}{physical_offset:016X}"


def decode_offset_id(text: str) -> OffsetId:
    """The inverse of `encode_offset_id`; lower-case digits are accepted, too.

    Raises:
      RemoteProtocolError: not 32 or 56 hex digits.
    """
    layout, raw = _unhex(text, _OFFSET_IDS)
    ip, port, physical_offset = layout.unpack(raw)
    return OffsetId(_ip_text(ip), port, physical_offset)


def decode_unique_id(text: str) -> UniqueId:
    """Decode a unique id of a Java client or of `UniqueIdGenerator`.

    Raises:
      RemoteProtocolError: not 32 or 56 hex digits. (Other clients have ids of other forms.)
    """
    layout, raw = _unhex(text, _UNIQUE_IDS)
    ip, pid, loader_hash, span_ms, counter = layout.unpack(raw)
    return UniqueId(_ip_text(ip), pid, loader_hash, span_ms, counter)


def unique_id_time_ms(text: str, now_ms: int, timezone: tzinfo | None = None) -> int:
    """The approximate time of a unique id: in this month, or in the last one if that is past now.

    Args:
      text: the id.
      now_ms: ms since 1970.
      timezone: the generator's; None: this machine's.

    Raises:
      RemoteProtocolError: as `decode_unique_id`.

    Source: RocketMQ 5.3.3 common/message/MessageClientIDSetter.java getNearlyTimeFromID.
    """
    span_ms = decode_unique_id(text).month_span_ms
    begin_ms = month_bounds_ms(now_ms, timezone)[0]
    if begin_ms + span_ms >= now_ms:
        begin_ms = month_bounds_ms(begin_ms - 1, timezone)[0]
    return begin_ms + span_ms


CALENDAR_CYCLE_MS: Final = 146_097 * 86_400_000
"""After 400 years the Gregorian calendar repeats, days of the week included."""


def month_bounds_ms(now_ms: int, timezone: tzinfo | None = None) -> tuple[int, int]:
    """The start of the month of `now_ms`, and of the next month, in ms since 1970.

    Args:
      now_ms: any number; times outside of 1970 to 2369 are mapped into these 400 years, because
        `datetime` raises ValueError for years beyond 9999.
      timezone: None: this machine's.
    """
    cycles, now_ms = divmod(now_ms, CALENDAR_CYCLE_MS)
    now = datetime.fromtimestamp(now_ms / 1000, timezone)
    begin = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0, fold=0)
    year, month = divmod(now.year * 12 + now.month, 12)
    following = begin.replace(year=year, month=month + 1)
    shift_ms = cycles * CALENDAR_CYCLE_MS
    return int(begin.timestamp() * 1000) + shift_ms, int(following.timestamp() * 1000) + shift_ms


class UniqueIdGenerator:
    """Generates the unique keys of one process; one per process, not thread-safe.

    At most 65,536 ids of one generator within a millisecond are distinct, and ids repeat in another
    month only if the process still runs then with the same counter and millisecond.

    Args:
      ip: the machine's address as 4 or 16 bytes.
      pid: the process id; its low 16 bits are used.
      loader_hash: any 32-bit number that distinguishes generators of one pid.
      timezone: defines the start of months; None: this machine's.

    Raises:
      LocalProtocolError: `ip` has another size.

    Source: RocketMQ 5.3.3 common/message/MessageClientIDSetter.java createUniqID.
    """

    def __init__(
        self, ip: bytes, pid: int, loader_hash: int, timezone: tzinfo | None = None
    ) -> None:
        if len(ip) not in (4, 16):
            raise LocalProtocolError(f"an address of {len(ip)} bytes")
        self._prefix = f"{ip.hex().upper()}{pid & 0xFFFF:04X}{loader_hash & 0xFFFFFFFF:08X}"
        self._timezone = timezone
        self._begin_ms = self._end_ms = 0
        # The time of `_start`, which most ids share with the one before.
        self._now_ms: int | None = None
        self._start = ""
        self._counter = 0

    def next_id(self, now_ms: int) -> str:
        """A new id.

        Args:
          now_ms: ms since 1970; if the clock is set back to an earlier month, the start of the
            known month is used.
        """
        if now_ms != self._now_ms:
            if now_ms >= self._end_ms:
                self._begin_ms, self._end_ms = month_bounds_ms(now_ms, self._timezone)
            self._now_ms = now_ms
            self._start = f"{self._prefix}{max(now_ms - self._begin_ms, 0):08X}"
        counter = self._counter
        self._counter = counter + 1 & 0xFFFF
        return f"{self._start}{counter:04X}"


def _unhex(text: str, layouts: dict[int, struct.Struct]) -> tuple[struct.Struct, bytes]:
    try:
        raw = bytes.fromhex(text)
    except ValueError:
        raw = b""
    layout = layouts.get(len(raw))
    if layout is None or len(text) != 2 * len(raw):
        raise RemoteProtocolError(f"not a message id: {text[:64]!r}")
    return layout, raw


def _ip_text(packed: bytes) -> str:
    return str(ipaddress.ip_address(packed))
