"""The limits of connections that every server has: keys of broker, name server and filter server.

None of them is a key of RocketMQ, whose servers accept connections until descriptors run out, and
requests until the heap is full. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from .config import Bounds, ConfigError, setting
from .java_integers import INT32_MAX
from .networks import parse_networks

NEVER_IDLE: Final = Bounds(INT32_MAX, INT32_MAX)
"""The seconds that stand for 0 and less of `serverChannelMaxIdleTimeSeconds`, with which Netty's
IdleStateHandler never closes a connection."""


BUDGET_MIN: Final = 64 * 1024 * 1024
"""The smallest `remotingBytesMax`: its share for incomplete frames then holds one of 16 MiB."""


@dataclass
class ConnectionPolicy:
    """Keys that limit what connections may take from a server.

    Without slots, so that a configuration may have it as a second base class.

    Attributes:
      connections_max: connections at a time; further ones are closed. A client has one to each
        broker and one to a name server; each takes some 9 KB and a descriptor.
      connections_per_address_max: the same for one address (IPv6: one network of 64 bits). Half of
        all by default: thousands of clients behind one router are normal, and one address must not
        take the places of all others.
      limit_exempt_addresses: addresses and networks, `;`-separated, that limits "per address" do
        not concern: this machine's own by default, where many programs share one address.
      requests_in_flight_max: requests of one connection that wait for another server, the disk or
        a thread; more are refused with SYSTEM_BUSY. RocketMQ bounds them by the queues of its
        executors (10,000 for admin).
      requests_in_flight_per_address_max: the same for all connections of one address.
      unread_answers_max: bytes of answers that one client has not read, above which it is closed.
        Above 4 MiB its requests are no longer read. 64 MiB hold the answers to pulls that were
        held before and are woken together.
      unread_answers_timeout_seconds: a client that takes less than 64 KiB of its answers in this
        time is closed. A paused virtual machine may need some seconds.
      remoting_bytes_max: bytes that all connections together may hold of incomplete frames, held
        requests, unread answers and a broker's subscriptions (`remoting/memory_budget.py`); None: a
        quarter of the memory, at most 1 GiB. RocketMQ has the limits of its JVM.
    """

    connections_max: int = setting(10_000, minimum=1, live=True)
    connections_per_address_max: int = setting(5_000, minimum=1, live=True)
    limit_exempt_addresses: str = setting("127.0.0.0/8;::1", guarded="decides whom limits concern")
    requests_in_flight_max: int = setting(10_000, minimum=1, live=True)
    requests_in_flight_per_address_max: int = setting(50_000, minimum=1, live=True)
    unread_answers_max: int = setting(64 * 1024 * 1024, minimum=1024 * 1024, live=True)
    unread_answers_timeout_seconds: int = setting(60, minimum=1, live=True)
    remoting_bytes_max: int | None = setting(None, minimum=BUDGET_MIN)

    def check_exempt_addresses(self) -> None:
        """Raises: ConfigError: limitExemptAddresses is not a list of addresses and networks."""
        try:
            parse_networks(self.limit_exempt_addresses)
        except ValueError as error:
            raise ConfigError(
                f"limitExemptAddresses: {error}; several look like 127.0.0.0/8;10.0.0.7"
            ) from error
