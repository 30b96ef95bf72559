"""Client ids: `ip@instance`, the same for all servers.

Brokers distinguish the members of a group by it, so no two clients may have the same id.

Java counterpart: ClientConfig.buildMQClientId, changeInstanceNameToPID of RocketMQ 5.3.3,
NetworkUtil.getLocalAddress.
"""

from __future__ import annotations

import socket
from typing import Final

STREAM: Final = "STREAM"
"""Suffix for clients that request streaming (pull consumers). Source: RequestType.STREAM."""


def build_client_id(
    ip: str, instance_name: str, *, unit_name: str | None = None, is_stream: bool = False
) -> str:
    """Build the client id: `ip@instance[@unit][@STREAM]`.

    Args:
      ip: address of this machine, as text.
      instance_name: name given by the user, or `default_instance_name`.
      unit_name: name of the client's unit; None or blank: none.
      is_stream: the client requests streaming.

    Raises: ValueError: the address or the instance name is blank.
    """
    for what, text in (("ip", ip), ("instance name", instance_name)):
        if not text.strip():
            raise ValueError(f"the {what} of a client id is blank")
    parts = [ip, instance_name]
    if unit_name and unit_name.strip():
        parts.append(unit_name)
    if is_stream:
        parts.append(STREAM)
    return "@".join(parts)


def default_instance_name(pid: int, nano_time: int) -> str:
    """The instance name if none, or "DEFAULT", is given: `pid#nano_time`.

    Args:
      pid: id of this process.
      nano_time: nanoseconds of any clock; distinguishes the clients of one process.

    Source: ClientConfig.changeInstanceNameToPID.
    """
    return f"{pid}#{nano_time}"


def local_ip(server: str) -> str:
    """This machine's address as the name server would see it; no packet is sent."""
    host, _, port = server.rpartition(":")
    try:
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_DGRAM)
        family, kind, protocol, _, address = found[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except OSError:
        return "127.0.0.1"
