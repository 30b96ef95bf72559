"""Ports that stay reserved while a broker is down.

A broker must restart on the same port, but while it is stopped, another process could get the port.
So each port is also bound by a socket that does not listen: connections are refused meanwhile, and
no other process gets the port.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from dataclasses import dataclass

from ..broker.settings.listening import FREE_PORT_TRIES, VIP_PORT_STEP


@dataclass
class Ports:
    """The ports of one embedded broker.

    Attributes:
      namesrv: port of the name server.
      broker: port of the broker; its VIP port is two below.
    """

    namesrv: int
    broker: int
    _holders: list[socket.socket]

    def close(self) -> None:
        """Release the ports."""
        for holder in self._holders:
            holder.close()


def hold_ports(
    host: str, *, namesrv: int = 0, broker: int = 0, broker_host: str | None = None
) -> Ports:
    """Reserve ports.

    Args:
      host: address on which the servers will listen.
      broker_host: the broker's, if it is another one.
      namesrv, broker: port of each server; 0: a free one.

    Raises: OSError: there is no free port, or a given port is in use. (On systems that do not
      report that here, the servers report it.)
    """
    holders: list[socket.socket] = []
    try:
        holders.append(_hold(host, namesrv))
        holders += _hold_pair(host if broker_host is None else broker_host, broker)
    except OSError:
        for holder in holders:
            holder.close()
        raise
    taken = [holder.getsockname()[1] for holder in holders]
    ports = Ports(taken[0], taken[1], holders)
    if not _LISTENS_BESIDE:
        ports.close()
    return ports


def _hold_pair(host: str, port: int) -> list[socket.socket]:
    """Bind the broker's port and its VIP port; for port 0 a free pair."""
    for tries_left in reversed(range(1 if port else FREE_PORT_TRIES)):
        first = _hold(host, port)
        try:
            vip_port = first.getsockname()[1] - VIP_PORT_STEP
            return [first, _hold(host, vip_port, alone=not port)]
        except OSError:
            first.close()
            if not tries_left:
                raise
    raise AssertionError("the last try raises")


def _hold(host: str, port: int, *, alone: bool = False) -> socket.socket:
    """Bind a port; `alone` excludes ports that another process has reserved in this way."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    holder = socket.socket(family, socket.SOCK_STREAM)
    try:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, not alone)
        holder.bind((host, port))
        # Both sockets need it, so that a server can listen on the port as well.
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    except OSError as error:
        holder.close()
        text = f"cannot listen on {host}:{port} ({error.strerror})"
        raise OSError(error.errno, f"{text}: choose another port, or 0 for a free one") from error
    return holder


def _listens_beside() -> bool:
    """Whether a socket can listen on a port that another one has bound, as on Linux."""
    with socket.socket() as holder, socket.socket() as listener:
        for sock in (holder, listener):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        with suppress(OSError):
            listener.bind(holder.getsockname())
            listener.listen(1)
            return True
    return False


_LISTENS_BESIDE = _listens_beside()
