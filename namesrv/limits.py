"""How much a name server keeps, and which names it takes.

Any peer that reaches the port may register a broker or put a KV item (there is no access control
here yet), so every table has a named end. RocketMQ's name server has none: it grows until its
heap is full.
"""

from __future__ import annotations

from ..remoting.errors import RequestRefused
from ..remoting.response_codes import ResponseCode

BROKERS_MAX = 4_096
"""Broker addresses. The largest clusters that RocketMQ's users write of have some hundred."""

TOPICS_MAX = 500_000
"""Topics, retry topics included. About 0.5 KB each: 250 MB when full."""

QUEUE_DATA_MAX = 2_000_000
"""Pairs of topic and broker name."""

FILTER_SERVERS_MAX = 64
"""Filter servers of one broker; RocketMQ's `filterServerNums` is seldom above 4."""

QUEUE_MAPPINGS_MAX = 10_000
"""Pairs of static topic and broker name."""

QUEUE_MAPPING_SIZE_MAX = 64 * 1024
"""Bytes of one mapping as JSON: some thousand queues."""

HEARTBEAT_TIMEOUT_MS_MIN = 1_000
HEARTBEAT_TIMEOUT_MS_MAX = 24 * 60 * 60 * 1_000
"""What a broker may ask for as its own time-out; others are brought into this range."""

KV_ITEMS_MAX = 100_000
"""KV items over all namespaces: one for each ordered topic."""

KV_NAMESPACES_MAX = 1_024
"""KV namespaces. RocketMQ's own tools use four."""

KV_VALUE_SIZE_MAX = 64 * 1024
"""Characters of one KV value. An order configuration takes about 20 for each broker."""

NAME_SIZE_MAX = 255
"""Characters of a name. RocketMQ: 127 for a topic, 255 for a retry topic and for a group."""

KV_NAME_SIZE_MAX = 1_024
"""Characters of a KV namespace or key."""

_FORBIDDEN = frozenset("/\\\"'<>&;`$")


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
