"""Validation of names and addresses from the wire.

Pure. Servers pass on names from peers (brokers, filter servers), so no table may contain a name
that has a special meaning in a log, a path or a command.
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
    """Whether a text is allowed as the name of a cluster, broker or topic.

    Wider than the rule for a user's topic (`%`, `|`, letters, digits, `_`, `-`), because a broker
    registers a topic with its name, and brokers have host names: `broker.example.com`.

    Args:
      name: any text from the wire.
    Returns: True for 1 to NAME_SIZE_MAX printable characters without spaces, quotes, slashes,
      and shell metacharacters, and neither "." nor "..".
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
    """Refuse an illegal name.

    Args:
      what: the kind of name, for the remark.
      name: any text from the wire.
    Raises: RequestRefused: SYSTEM_ERROR when `is_name` is False.
    """
    if not is_name(name):
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"illegal {what}: {name[:80]!r}")


def check_address(what: str, address: str) -> None:
    """Refuse a text that is not an address.

    Args:
      what: the kind of address, for the remark.
      address: any text from the wire.
    Raises: RequestRefused: SYSTEM_ERROR when `is_address` is False.
    """
    if not is_address(address):
        reason = f"illegal {what}: {address[:80]!r} is not host:port"
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, reason)
