"""This machine: its name and its address, for a configuration that names neither.

A shell around two system calls; nothing is sent.

Java counterpart: common/utils/NetworkUtil.java, BrokerIdentity.java.
"""

from __future__ import annotations

import socket

_ELSEWHERE = ("192.0.2.1", 9)
"""An address of a network that exists only in documentation (RFC 5737), so never our own."""


def host_name() -> str:
    """This machine's name; "" if it has none."""
    return socket.gethostname()


def local_address() -> str:
    """The IPv4 address that this machine would send from, or 127.0.0.1.

    RocketMQ takes the first address of a network card that is not private, otherwise the last one;
    on machines with several (containers, VPN) that is often not the one clients reach. Here the
    routing table decides. Where that is wrong too, set brokerIP1.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_ELSEWHERE)  # a datagram socket: looks up the route, sends nothing
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])
