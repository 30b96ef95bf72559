"""Brokers that register with the same name and id from different addresses.

The route table holds one address for each name and id, so the last registration wins: two such
brokers replace each other every 30 seconds, and messages are split between them. RocketMQ's name
server does the same without a word.

Pure: times are monotonic milliseconds in arguments; connections are compared by identity.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from .limits import BROKERS_MAX
from .registration import BROKER_CHANNEL_EXPIRED_MS

ADDRESSES_MAX: Final = 4
"""Addresses that are kept for a name and id: enough to name the brokers, and a bound on what
strangers can store."""

Identity = tuple[str, int]
"""A broker's name and id."""


class _Claim(NamedTuple):
    """The last registration of an identity from one address."""

    channel: object
    last_ms: int


class DuplicateBrokers:
    """The identities that several connected brokers have registered lately."""

    def __init__(self) -> None:
        self._claims: dict[Identity, dict[str, _Claim]] = {}

    def replaced(
        self, identity: Identity, address: str, channel: object, *, old: str, old_channel: object,
        now_ms: int,
    ) -> bool:  # fmt: skip
        """Record that a registration took the place of a connected broker at another address.

        Returns: whether the address is new among the duplicates of this identity.
        """
        claims = self._claims.get(identity)
        if claims is None:
            if len(self._claims) >= BROKERS_MAX:
                del self._claims[next(iter(self._claims))]
            claims = self._claims[identity] = {old: _Claim(old_channel, now_ms)}
        is_new = address not in claims
        claims.pop(address, None)
        claims[address] = _Claim(channel, now_ms)
        while len(claims) > ADDRESSES_MAX:
            del claims[next(iter(claims))]
        return is_new

    def renewed(self, identity: Identity, address: str, channel: object, now_ms: int) -> None:
        """Record a registration that replaced no other."""
        claims = self._claims.get(identity)
        if claims is not None and address in claims:
            claims[address] = _Claim(channel, now_ms)

    def channel_closed(self, channel: object) -> None:
        """Forget the registrations that came on a closed connection."""
        self._keep(lambda _, claim: claim.channel is not channel)

    def unregistered(self, address: str) -> None:
        """Forget the registrations of a broker that has left."""
        self._keep(lambda each, _: each != address)

    def expire(self, now_ms: int) -> None:
        """Forget the registrations that were not renewed."""
        self._keep(lambda _, claim: claim.last_ms + BROKER_CHANNEL_EXPIRED_MS >= now_ms)

    def _keep(self, is_kept: Callable[[str, _Claim], bool]) -> None:
        for identity, claims in list(self._claims.items()):
            kept = {address: claim for address, claim in claims.items() if is_kept(address, claim)}
            if len(kept) > 1:
                self._claims[identity] = kept
            else:
                del self._claims[identity]

    def warning(self, identity: Identity) -> str:
        """What an operator should know about an identity; "": it has no duplicates."""
        claims = self._claims.get(identity)
        if claims is None:
            return ""
        name, broker_id = identity
        return (
            f"broker {name} id {broker_id} is registered by several brokers, at "
            f"{' and '.join(sorted(claims))}: each registration replaces the other one, and "
            "messages are split between them. Give each its own brokerName (a slave its own "
            "brokerId), or stop one"
        )

    def warnings(self) -> list[str]:
        """The warnings of all identities that have duplicates."""
        return [self.warning(identity) for identity in sorted(self._claims)]
