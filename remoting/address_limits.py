"""AddressLimits: the connections of a server, and their waiting requests, by address.

Pure: `ConnectionPolicy` has the limits; what exceeds them is noted in `Refusals`.

Java counterpart: none.
"""

from __future__ import annotations

import sys

from ..common.connection_policy import ConnectionPolicy
from ..common.networks import is_exempt, owner_of, parse_networks
from .hosts import host_of
from .refusals import Refusals


class PeerAddress:
    """What all connections of one address have together.

    Attributes:
      connections: open ones.
      in_flight: requests that wait for their answers.
      is_exempt: limits "per address" do not concern it.
    """

    __slots__ = ("connections", "in_flight", "is_exempt", "key")

    def __init__(self, key: str, *, is_exempt: bool = True) -> None:
        self.key = key
        self.connections = 0
        self.in_flight = 0
        self.is_exempt = is_exempt


class AddressLimits:
    """The addresses that are connected to one server.

    Args:
      policy: the limits; read at each use, so changes take effect at once.
      refusals: takes what is refused.

    Attributes:
      places: connections that the process has descriptors for.
    Raises: ValueError: limitExemptAddresses is not a list of addresses and networks.
    """

    def __init__(self, policy: ConnectionPolicy, refusals: Refusals) -> None:
        self._policy = policy
        self.places = sys.maxsize
        self._refusals = refusals
        self._exempt = parse_networks(policy.limit_exempt_addresses)
        self._addresses: dict[str, PeerAddress] = {}
        # Those that lost their connections while requests were waiting.
        self._left: dict[PeerAddress, None] = {}
        self._count = 0

    @property
    def is_crowded(self) -> bool:
        """Whether nine tenths of all places are taken."""
        return self._count * 10 > self.connections_max * 9

    @property
    def connections_max(self) -> int:
        """Connections at a time: connectionsMax, or fewer where descriptors are few."""
        return min(self._policy.connections_max, self.places)

    @property
    def connections_per_address_max(self) -> int:
        """The same for one address, which must leave places for others: half of few."""
        return min(self._policy.connections_per_address_max, max(self.places // 2, 1))

    def admit(self, remote_address: str) -> PeerAddress | None:
        """Count a new connection; None: it must be closed.

        Args:
          remote_address: "ip:port", IPv6 in brackets.
        """
        if self._count >= self.connections_max:
            what = f"the connection is refused, because {self._count} are open"
            self._refusals.note("connectionsMax", remote_address, what)
            return None
        host = host_of(remote_address)
        key = owner_of(host)
        address = self._addresses.get(key)
        if address is None:
            address = PeerAddress(key, is_exempt=is_exempt(host, self._exempt))
        elif address.connections >= self.connections_per_address_max and not address.is_exempt:
            what = (
                f"the connection is refused, because {address.connections} of this address are open"
            )
            self._refusals.note("connectionsPerAddressMax", remote_address, what)
            return None
        # Only now: an address that is refused must not grow the table.
        self._addresses[key] = address
        address.connections += 1
        self._count += 1
        return address

    def leave(self, address: PeerAddress) -> None:
        """Stop counting a connection that `admit` counted."""
        self._count -= 1
        address.connections -= 1
        if not address.connections:
            if address.in_flight:
                # Kept until its requests end, or a client could evade their limit by connecting
                # anew.
                self._left[address] = None
            else:
                self._forget(address)

    def forget_finished(self) -> None:
        """Forget addresses whose connections closed before their requests ended."""
        for address in list(self._left):
            if address.connections:  # it has connected again
                del self._left[address]
            elif not address.in_flight:
                self._forget(address)

    def _forget(self, address: PeerAddress) -> None:
        """Forget an address without connections and without waiting requests.

        It must not be left to be forgotten once more: it may be connected anew by then.
        """
        self._left.pop(address, None)
        self._addresses.pop(address.key, None)
