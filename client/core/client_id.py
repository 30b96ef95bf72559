"""A client's id: `ip@instance`, the same towards all servers.

A broker tells the members of a group apart by it, so two clients must never share one.

Java counterpart: ClientConfig.buildMQClientId, changeInstanceNameToPID of RocketMQ 5.3.3. Pure.
"""

from __future__ import annotations

from typing import Final

DEFAULT_INSTANCE_NAME: Final = "DEFAULT"
"""Stands for a name of each process's own. Source: ClientConfig.instanceName."""

STREAM: Final = "STREAM"
"""Marks clients that ask for streaming (pull consumers). Source: RequestType.STREAM."""


def build_client_id(
    ip: str, instance_name: str, *, unit_name: str | None = None, is_stream: bool = False
) -> str:
    """The client id: `ip@instance[@unit][@STREAM]`.

    Args:
      ip: of this machine, as text.
      instance_name: the user's, or `default_instance_name`.
      unit_name: of the unit that the client belongs to; None or blank: none.
      is_stream: the client asks for streaming.
    Raises: ValueError: the ip or the instance name is blank.
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
    """The instance name of a client that was given none, or "DEFAULT": `pid#nano_time`.

    Args:
      pid: of this process.
      nano_time: ns of any clock; tells the clients of one process apart.
    Source: ClientConfig.changeInstanceNameToPID.
    """
    return f"{pid}#{nano_time}"
