"""HeldShares: how many waiting requests belong to each connection and to each group. Pure.

Counting a pull costs more than holding it, so pulls are counted only while their shares are
enforced. Waiting pops are always counted: they are fewer, and cannot be counted later at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TypeVar

from ...remoting.channel import Channel
from ..settings.limits import BrokerLimits

K = TypeVar("K")


class HeldShares:
    """The counts.

    Args:
      held: connection and group of each request that waits now.
      config: has heldPullsPerConnectionMax and heldPullsPerGroupMax.
    """

    def __init__(self, held: Iterable[tuple[Channel, str]], config: BrokerLimits) -> None:
        self._config = config
        self._of_channels: Counter[Channel] = Counter()
        self._of_groups: Counter[str] = Counter()
        for channel, group in held:
            self.add(channel, group)

    def exceeded_by(self, channel: Channel, group: str) -> str:
        """The key of the limit that one more request would exceed; "": it may be held."""
        if self._of_channels[channel] >= self._config.held_pulls_per_connection_max:
            return "heldPullsPerConnectionMax"
        if self._of_groups[group] >= self._config.held_pulls_per_group_max:
            return "heldPullsPerGroupMax"
        return ""

    def add(self, channel: Channel, group: str) -> None:
        """Count a request."""
        self._of_channels[channel] += 1
        self._of_groups[group] += 1

    def remove(self, channel: Channel, group: str) -> None:
        """Stop counting a request."""
        take_one(self._of_channels, channel)
        take_one(self._of_groups, group)


def take_one(counts: Counter[K], key: K) -> None:
    """Count one less, and forget a key whose count is 0."""
    counts[key] -= 1
    if not counts[key]:
        del counts[key]
