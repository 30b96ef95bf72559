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

NAME_SHOWN_MAX: Final = 80
"""Characters of a refused name that are repeated in an error."""

_FORBIDDEN: Final = frozenset("/\\\"'<>&;`$")
_FORBIDDEN_IN_SERVER_NAMES: Final = frozenset("\\<>&;`$")


def why_no_name(name: str) -> str | None:
    """The reason why a string is not allowed as the name of a cluster, broker or topic; None: it
    is.

    Wider than the rule for a user's topic (`%`, `|`, letters, digits, `_`, `-`), because a broker
    registers a topic with its name, and brokers have host names: `broker.example.com`. Queues of
    such topics are folders, so no name is a path.

    Args:
      name: any string, from the wire or a configuration.
    """
    why = why_no_server_name(name)
    if why is not None:
        return why
    if name in (".", ".."):
        return "is the name of a folder"
    if " " in name:
        return "has a blank"
    marks = sorted(_FORBIDDEN.intersection(name))
    return f"has {marks[0]}" if marks else None


def is_name(name: str) -> bool:
    """Whether a string is allowed as the name of a cluster, broker or topic: see `why_no_name`."""
    return why_no_name(name) is None


def why_no_server_name(name: str) -> str | None:
    """The reason why the name server registers no broker or cluster of a name; None: it does.

    Wider than `why_no_name`: RocketMQ's name server takes any string.

    Args:
      name: from the wire.
    """
    if not name.strip():
        return "is blank"
    if len(name) > NAME_SIZE_MAX:
        return f"has {len(name)} characters: {NAME_SIZE_MAX} are allowed"
    if not name.isprintable():
        return "has a character that cannot be printed"
    marks = sorted(_FORBIDDEN_IN_SERVER_NAMES.intersection(name))
    return f"has {marks[0]}, which a shell would read as a command" if marks else None


def check_server_name(what: str, name: str) -> None:
    """Refuse the name of a broker or a cluster that is not allowed.

    Args:
      what: the kind of name, for the remark.
      name: any string from the wire.
    Raises: RequestRefused: SYSTEM_ERROR, see `why_no_server_name`.
    """
    why = why_no_server_name(name)
    if why is not None:
        raise RequestRefused(
            ResponseCode.SYSTEM_ERROR, f"illegal {what}: {name[:NAME_SHOWN_MAX]!r} {why}"
        )


def is_address(address: str) -> bool:
    """Whether a string has the form `host:port`.

    Args:
      address: any string from the wire; an IPv6 host with or without brackets.
    Returns: True for a host that is a name by `is_name`, and a port in 1..65535.
    """
    host, colon, port = address.rpartition(":")
    return (
        colon == ":"
        and is_name(host)
        and port.isascii()
        and port.isdigit()
        # Before `int`, which takes long for thousands of digits.
        and len(port) <= 5
        and 0 < int(port) <= 65_535
    )


def check_name(what: str, name: str) -> None:
    """Refuse an illegal name.

    Args:
      what: the kind of name, for the remark.
      name: any string from the wire.
    Raises: RequestRefused: SYSTEM_ERROR when `is_name` is False.
    """
    if not is_name(name):
        reason = f"illegal {what}: {name[:NAME_SHOWN_MAX]!r}"
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, reason)


def check_address(what: str, address: str) -> None:
    """Refuse a string that is not an address.

    Args:
      what: the kind of address, for the remark.
      address: any string from the wire.
    Raises: RequestRefused: SYSTEM_ERROR when `is_address` is False.
    """
    if not is_address(address):
        reason = f"illegal {what}: {address[:NAME_SHOWN_MAX]!r} is not host:port"
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, reason)
