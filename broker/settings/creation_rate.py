"""CreationRate: how many topics or groups clients may create by using a new name.

Any name in a send or heartbeat creates a topic or a group, and each is saved, registered and kept
for ever. So creations have a rate, for one address and for all: an address that creates thousands
is refused for a while, and the places that are left are not gone within seconds.

Pure: the clock is an argument.

Java counterpart: none; RocketMQ creates as many as are named.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from ...common.networks import is_exempt, owner_of, parse_networks
from ...remoting.hosts import host_of

MINUTE_S: Final = 60.0

ADDRESSES_MAX: Final = 10_000
"""Addresses that are counted at a time; when there are more, those that created nothing for a
minute are forgotten, and then all."""


class Rates(NamedTuple):
    """The creations of a minute that are allowed, and the keys that say so."""

    per_address: int
    per_address_key: str
    in_all: int
    in_all_key: str


class _Bucket:
    """Creations that are allowed now: at most those of a minute, filled up steadily."""

    __slots__ = ("at_s", "left")

    def __init__(self, left: float, at_s: float) -> None:
        self.left = left
        self.at_s = at_s

    def fill(self, per_minute: int, now_s: float) -> float:
        """Fill up to `now_s`; return what is left."""
        self.left = min(per_minute, self.left + (now_s - self.at_s) * per_minute / MINUTE_S)
        self.at_s = now_s
        return self.left


class CreationRate:
    """The creations of one kind.

    Args:
      rates: returns the limits as they are now.
      exempt_addresses: addresses and networks without a limit of their own, `;`-separated.
      now_s: a monotonic clock, seconds.
    Raises: ValueError: `exempt_addresses` is not such a list.
    """

    def __init__(
        self, rates: Callable[[], Rates], exempt_addresses: str, now_s: Callable[[], float]
    ) -> None:
        self._rates = rates
        self._exempt = parse_networks(exempt_addresses)
        self._now_s = now_s
        self._all = _Bucket(rates().in_all, now_s())
        self._of: dict[str, _Bucket] = {}

    def take(self, remote_address: str) -> str | None:
        """Count a creation; returns the key of the limit that forbids it, None: it is allowed.

        Args:
          remote_address: "ip:port" of the client; "": the broker itself, which is always allowed.
        """
        if not remote_address:
            return None
        rates, now_s = self._rates(), self._now_s()
        if self._all.fill(rates.in_all, now_s) < 1:
            return rates.in_all_key
        host = host_of(remote_address)
        if not is_exempt(host, self._exempt):
            bucket = self._bucket(owner_of(host), rates, now_s)
            if bucket.fill(rates.per_address, now_s) < 1:
                return rates.per_address_key
            bucket.left -= 1
        self._all.left -= 1
        return None

    def _bucket(self, key: str, rates: Rates, now_s: float) -> _Bucket:
        bucket = self._of.get(key)
        if bucket is None:
            if len(self._of) >= ADDRESSES_MAX:
                self._of = {
                    one: each for one, each in self._of.items() if now_s - each.at_s < MINUTE_S
                }
                if len(self._of) >= ADDRESSES_MAX:
                    self._of.clear()
            bucket = self._of[key] = _Bucket(rates.per_address, now_s)
        return bucket
