"""The in-sync set as its master keeps it: who joins, who leaves, and what is under way.

The set changes only when the controller has said so. While a change is under way, every member of
the old and of the wanted set counts for confirmations; so does one whose request was sent and not
answered, because the controller may still accept it.

Source: AutoSwitchHAService and ReplicasManager.checkSyncStateSetAndDoReport of RocketMQ 5.5.0,
which removes a slave whose connection ends before the controller knows (F2 in docs/ha.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from ...store.writing.in_sync_acks import InSyncAcks
from .roles import Follower, wanted_in_sync

NEAR_S: Final = 0.5
"""Seconds that a slave may be behind to be waited for: under a steady load it would never have all
that is confirmed at the moment of a look."""

HOLD_S: Final = 1.0
"""How long confirmations wait for a slave that is about to join, at most."""

HOLD_AGAIN_S: Final = 10.0
"""Between two such waits, so that a slave that does not catch up costs little."""


class InSyncDuty:
    """The in-sync set of one master in one epoch.

    Args:
      acks: what the members have acknowledged; it is given each change of the set.
      followers: returns the connected slaves, by permanent id.
      own_id: the master's.
      master_epoch: its epoch.
      epoch_start: physical offset at which its epoch begins.
      behind_max_s: see `wanted_in_sync`.
      now_s: a monotonic clock, seconds.

    Attributes:
      master_epoch: see above.
    """

    def __init__(
        self,
        acks: InSyncAcks,
        followers: Callable[[], Mapping[int, Follower]],
        *,
        own_id: int,
        master_epoch: int,
        epoch_start: int,
        behind_max_s: float,
        now_s: Callable[[], float],
    ) -> None:
        self._acks = acks
        self._followers = followers
        self.master_epoch = master_epoch
        self._own_id = own_id
        self._epoch_start = epoch_start
        self._behind_max_s = behind_max_s
        self._unanswered: frozenset[int] = frozenset()
        self._now_s = now_s
        self._hold_until_s = self._hold_again_s = 0.0

    @property
    def epoch(self) -> int:
        """The number of changes of the accepted set so far."""
        return self._acks.set_epoch

    @property
    def is_holding(self) -> bool:
        """Whether confirmations wait for a slave that is about to join."""
        return self._now_s() < self._hold_until_s

    def wanted(self) -> frozenset[int] | None:
        """The set to ask the controller for; None: the present one is right.

        A slave that is nearly there is waited for: its acknowledgements count from now on, so that
        the confirm offset stands still until it has reached it.
        """
        accepted, followers = self._acks.accepted, self._followers()
        wanted = wanted_in_sync(
            accepted,
            followers,
            own_id=self._own_id,
            confirm_offset=self._acks.confirm_offset,
            epoch_start=self._epoch_start,
            behind_max_s=self._behind_max_s,
        )
        if wanted != accepted:
            self._hold_until_s = 0.0
            return wanted
        near = {
            each
            for each, known in followers.items()
            if known.may_join and each not in accepted and known.behind_s <= NEAR_S
        }
        self._hold(frozenset(near))
        return None

    def _hold(self, near: frozenset[int]) -> None:
        now_s = self._now_s()
        if near and now_s >= self._hold_again_s:
            self._hold_until_s, self._hold_again_s = now_s + HOLD_S, now_s + HOLD_AGAIN_S
            self._acks.count_too(self._unanswered | near)
        elif self._hold_until_s and (not near or now_s >= self._hold_until_s):
            self._hold_until_s = 0.0
            self.refused()

    def asked(self, wanted: frozenset[int]) -> None:
        """Count the members of a set from now on; called before the request is sent."""
        self._acks.count_too(self._unanswered | wanted)

    def unanswered(self, wanted: frozenset[int]) -> None:
        """Go on counting them: the controller may have accepted the set, or may still do so."""
        self._unanswered |= wanted

    def refused(self) -> None:
        """Count them no longer, but for those of earlier requests without an answer."""
        self._acks.count_too(self._unanswered)

    def accepted(self, members: frozenset[int], epoch: int) -> None:
        """Take the set that the controller has; an older one than is known is ignored."""
        if epoch > self._acks.set_epoch:
            # A request of an older epoch is refused from now on, so none is under way any more.
            self._unanswered = frozenset()
            self._acks.accept(members | {self._own_id}, epoch)
