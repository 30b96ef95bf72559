"""The user of a TCP port that cannot be listened on: a process, a connection, or unknown.

Linux lists its sockets in /proc/net/tcp and tcp6 (proc(5)). Elsewhere, or where they cannot be
read, a connection is tried: one that succeeds proves a listener, and one that fails proves nothing,
because a listener's backlog may be full, or it may listen on another address.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Final, NamedTuple

from .hosts import join_address

PROBE_S: Final = 0.2
"""How long a listener of this machine may take to accept."""

TABLES: Final = ("/proc/net/tcp", "/proc/net/tcp6")

_LISTENS: Final = "0A"
_CLOSED_BY_US: Final = "06"
"""TIME_WAIT, which keeps no port from a listener with SO_REUSEADDR."""

_Address = IPv4Address | IPv6Address


class UsedPort(NamedTuple):
    """A socket that has a local port.

    Attributes:
      remote: the address of its peer, `host:port`; "": it listens.
    """

    local: _Address
    remote: str


def who_has(host: str, port: int, tables: Iterable[str] = TABLES) -> str:
    """What keeps a listener from an address, and what to do, in words.

    Args:
      host: an IPv4 or IPv6 address of this machine; "": all of IPv4.
      port: 1 to 65,535.
      tables: files in the format of proc(5).
    """
    try:
        wanted = ip_address(host.partition("%")[0] or "0.0.0.0")
        lines = [line for table in tables for line in _lines_of(table)]
    except (OSError, ValueError):  # no table, or a name instead of an address
        return _by_probe(host, port)
    users = [user for user in users_of(port, lines) if _overlap(user.local, wanted)]
    # The nearest is named: of the same version of IP, since an IPv6 listener may take IPv4 or not.
    users.sort(key=lambda user: (bool(user.remote), user.local.version != wanted.version))
    if not users:
        return (
            "the system lists no connection and no listening socket with this port, so a process "
            "has bound it without listening, or just ended; choose another port, or try again"
        )
    user = users[0]
    local = join_address(str(user.local), port)
    if not user.remote:
        where = "there" if user.local == wanted else f"on {local}, which includes this address"
        if user.local != wanted and not user.local.is_unspecified:
            where = f"on {local}, and a listener on all addresses excludes it"
        return f"a process listens {where}; choose another port, or stop that process"
    return (
        f"no process listens there: it is the local end {local} of a connection to {user.remote}; "
        "choose another port, or try again when that connection has ended"
    )


def users_of(port: int, lines: Iterable[str]) -> Iterator[UsedPort]:
    """The sockets with this local port that can keep a listener from it.

    Args:
      lines: of /proc/net/tcp and tcp6; the headings are skipped.
    """
    for line in lines:
        words = line.split()
        if len(words) < 4 or not words[1].endswith(f":{port:04X}") or words[3] == _CLOSED_BY_US:
            continue
        remote, _, remote_port = words[2].partition(":")
        is_listening = words[3] == _LISTENS
        peer = "" if is_listening else join_address(str(_address(remote)), int(remote_port, 16))
        yield UsedPort(_address(words[1].partition(":")[0]), peer)


def _lines_of(table: str) -> list[str]:
    """Raises: OSError: it cannot be read; a missing table of IPv6 is no error."""
    try:
        return Path(table).read_text(encoding="ascii", errors="replace").splitlines()
    except FileNotFoundError:
        if table.endswith("6"):
            return []
        raise


def _address(digits: str) -> _Address:
    """An address of the tables: words of 32 bits, each in the machine's order of bytes."""
    words = [int(digits[at : at + 8], 16) for at in range(0, len(digits), 8)]
    found = ip_address(b"".join(word.to_bytes(4, sys.byteorder) for word in words))
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return mapped or found


def _overlap(one: _Address, other: _Address) -> bool:
    """Whether sockets with these addresses can exclude each other."""
    if one.version == other.version:
        return one == other or one.is_unspecified or other.is_unspecified
    # `::` may take IPv4, too.
    six = one if one.version == 6 else other
    return six.is_unspecified


def _by_probe(host: str, port: int) -> str:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    nearest = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.settimeout(PROBE_S)
        if probe.connect_ex((nearest, port)) == 0:
            return "a process listens there; choose another port, or stop that process"
    return (
        "what has it cannot be known here: a listener that accepts nothing or listens on another "
        "address of this machine, or the local end of a connection; choose another port"
    )
