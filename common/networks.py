"""Lists of addresses and networks in configuration values. Pure."""

from __future__ import annotations

import ipaddress
from typing import Final

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address

OWN_NETWORK_BITS: Final = 64
"""Bits of the part of an IPv6 address that names a site's network; the rest is the host's choice,
so one host may have 2^64 addresses. Source: RFC 4291, 2.5.4."""


def parse_networks(text: str) -> tuple[Network, ...]:
    """The addresses and networks of a list such as `10.0.0.7;192.168.0.0/16;fd00::/8`.

    Raises: ValueError: a part is neither; the message names it.
    """
    parts = [part.strip() for part in text.split(";")]
    return tuple(_network(part) for part in parts if part)


def _network(text: str) -> Network:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise ValueError(f"{text!r} is neither an address nor a network") from None


def parse_host(host: str) -> Address:
    """An address without its zone; an IPv4 address mapped into IPv6 becomes the IPv4 one.

    Raises: ValueError: it is no address.
    """
    address = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def is_in(host: str, networks: tuple[Network, ...]) -> bool:
    """Whether one of the networks has an address.

    Raises: ValueError: `host` is no address.
    """
    address = parse_host(host)
    return any(address in network for network in networks)


def is_exempt(host: str, networks: tuple[Network, ...]) -> bool:
    """Whether limits "per address" leave a host out: one of the networks, and a string that is no
    address, such as a stream of a test or of this process."""
    try:
        return is_in(host, networks)
    except ValueError:
        return True


def owner_of(host: str) -> str:
    """The part of an address that its owner cannot choose: IPv4 as it is, IPv6 the network of 64
    bits. A string that is no address is returned as it is."""
    if ":" not in host:
        return host
    try:
        address = parse_host(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    return str(ipaddress.ip_network((address, OWN_NETWORK_BITS), strict=False))
