"""Names and addresses that come from the wire: which texts may be one.

Pure. Servers pass on to others what peers tell them (brokers, filter servers), so nothing gets into
a table that would be more than a name wherever it is written: in a log, a path or a command.
"""

from __future__ import annotations

from typing import Final

from .errors import RequestRefused
from .response_codes import ResponseCode

NAME_SIZE_MAX: Final = 255
"""Characters of a name. RocketMQ: 127 for a topic, 255 for a retry topic and for a group."""

FILTER_SERVERS_MAX: Final = 64
"""Filter servers of one broker; RocketMQ's `filterServerNums` is seldom above 4."""

_FORBIDDEN: Final = frozenset("/\\\"'<>&;`$")


def is_name(name: str) -> bool:
    """Whether a cluster, broker or topic may be called so.

    Wider than the rule for a user's topic (`%`, `|`, letters, digits, `_`, `-`), since a broker
    registers a topic named after itself, and brokers are named after hosts: `broker.example.com`.

    Args:
      name: any text from the wire.
    Returns: True for 1 to NAME_SIZE_MAX printable characters without blanks, quotes, slashes,
      and shell marks, and neither "." nor "..".
    """
    return (
        0 < len(name) <= NAME_SIZE_MAX
        and name.isprintable()
        and " " not in name
        and name not in (".", "..")
        and _FORBIDDEN.isdisjoint(name)
    )


def is_address(address: str) -> bool:
    """Whether a text has the form `host:port`.

    Args:
      address: any text from the wire; an IPv6 host with or without brackets.
    Returns: True for a host that is a name by `is_name`, and a port in 1..65535.
    """
    host, colon, port = address.rpartition(":")
    return (
        colon == ":"
        and is_name(host)
        and port.isascii()
        and port.isdigit()
        and len(port) <= 5
        and 0 < int(port) <= 65_535
    )


def check_name(what: str, name: str) -> None:
    """Refuse a name that is none.

    Args:
      what: what it names, for the remark.
      name: any text from the wire.
    Raises: RequestRefused: SYSTEM_ERROR when `is_name` is False.
    """
    if not is_name(name):
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"illegal {what}: {name[:80]!r}")


def check_address(what: str, address: str) -> None:
    """Refuse an address that is none.

    Args:
      what: whose address it is, for the remark.
      address: any text from the wire.
    Raises: RequestRefused: SYSTEM_ERROR when `is_address` is False.
    """
    if not is_address(address):
        reason = f"illegal {what}: {address[:80]!r} is not host:port"
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, reason)
