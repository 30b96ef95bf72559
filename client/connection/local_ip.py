"""This machine's address, which is part of client ids and message ids.

Java counterpart: NetworkUtil.getLocalAddress.
"""

from __future__ import annotations

import socket


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
