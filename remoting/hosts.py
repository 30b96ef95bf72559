"""Host addresses in records and message ids: IP bytes and a 4-byte port.

Java counterpart: `MessageExt.socketAddress2ByteBuffer` of RocketMQ 5.3.3. Pure.
"""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from typing import Final

from .errors import LocalProtocolError, RemoteProtocolError
from .schema import I32, Layout, bytes_of

HOST_V4: Final = Layout(ip=bytes_of(4), port=I32)
HOST_V6: Final = Layout(ip=bytes_of(16), port=I32)
_V4 = HOST_V4.struct()
_V6 = HOST_V6.struct()
HOST_SIZE_V4 = 8
HOST_SIZE_V6 = 20
assert (_V4.size, _V6.size) == (HOST_SIZE_V4, HOST_SIZE_V6)

HOST_CACHE_COUNT_MAX = 4096
"""Cached addresses; some 200 bytes each."""


@lru_cache(maxsize=HOST_CACHE_COUNT_MAX)
def host_bytes(ip: str, port: int) -> bytes:
    """Encode an address for a record.

    Args:
      ip: an IPv4 or IPv6 address (not a name); a zone such as `%eth0` is dropped, and an IPv4
        address mapped into IPv6 becomes the IPv4 one, as in Java.
      port: int32; 0 to 65535 in practice.

    Returns: 8 bytes for IPv4, 20 for IPv6.

    Raises:
      LocalProtocolError: `ip` is not an address, or the port does not fit.
    """
    try:
        address = ipaddress.ip_address(ip)
        if isinstance(address, ipaddress.IPv6Address):
            mapped = address.ipv4_mapped
            if mapped is None:
                return _V6.pack(address.packed, _port(port))
            address = mapped
        return _V4.pack(address.packed, _port(port))
    except ValueError as error:
        raise LocalProtocolError(f"not an IP address and port: {ip!r}, {port}") from error


def _port(port: int) -> int:
    if not -(1 << 31) <= port < 1 << 31:
        raise ValueError("the port does not fit 32 bits")
    return port


def host_parts(host: bytes) -> tuple[str, int]:
    """The IP address (text) and port of a record's host field.

    Raises:
      RemoteProtocolError: neither 8 nor 20 bytes.
    """
    if len(host) == HOST_SIZE_V4:
        packed, port = _V4.unpack(host)
        return str(ipaddress.IPv4Address(packed)), port
    if len(host) == HOST_SIZE_V6:
        packed, port = _V6.unpack(host)
        address = ipaddress.IPv6Address(packed)
        return str(address.ipv4_mapped or address), port
    raise RemoteProtocolError(f"a host of {len(host)} bytes")


@lru_cache(maxsize=HOST_CACHE_COUNT_MAX)
def host_text(host: bytes) -> str:
    """`ip:port`, or `[ip]:port` with an IPv6 address.

    Raises:
      RemoteProtocolError: neither 8 nor 20 bytes.
    """
    ip, port = host_parts(host)
    return f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"


def join_address(host: str, port: int) -> str:
    """`host:port`, an IPv6 host in brackets."""
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"


def host_of(address: str) -> str:
    """The host of a `host:port`, without brackets; "" if there is none."""
    return address.rpartition(":")[0].strip("[]")
