"""Leadership: the task by which one of several controllers leads.

The lease ends by the monotonic clock, counted from before each renewal was sent, so a controller
has stopped answering before the store can give the lease to another one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

import trio

from ..disk.errors import StoreError
from .leader import Leader
from .state_store import (
    Candidate,
    Lease,
    LeaseLostError,
    StateError,
    StateStore,
    Stored,
    UnavailableError,
)

logger = logging.getLogger(__name__)

RETRY_S: Final = 0.5
"""Before the store is asked again after it did not answer."""

LOOK_S: Final = 5.0
"""The longest wait for a change of the leader: a watch may have been lost."""

RELEASE_S: Final = 1.0
"""For giving the lease back at the end; else the others wait until it has ended."""


class Leadership:
    """See the module.

    Args:
      candidate: this controller, as the others name it.
      new_leader: makes the leader of a lease and of the stored sets.

    Attributes:
      leader: None: this controller does not lead.
      known_leader: the controller that leads, as far as is known.
      has_asked: the store has answered who leads since the start.
    """

    def __init__(
        self,
        store: StateStore,
        candidate: Candidate,
        *,
        now_s: Callable[[], float],
        new_leader: Callable[[Lease, Mapping[str, Stored]], Leader],
    ) -> None:
        self.leader: Leader | None = None
        self.known_leader: Candidate | None = None
        self.has_asked = trio.Event()
        self._store = store
        self._candidate = candidate
        self._now_s = now_s
        self._new_leader = new_leader
        self._logged = ""

    async def run(self) -> None:
        """Lead when no other controller does, until cancelled."""
        while True:
            try:
                lease = await self._store.acquire(self._candidate)
                if lease is None:
                    await self._follow()
                else:
                    await self._lead(lease)
                self._logged = ""
            except (StateError, StoreError) as error:
                self._log(error)
                await trio.sleep(RETRY_S)

    def _log(self, error: Exception) -> None:
        if str(error) != self._logged:
            logger.error(
                "the controllers' state cannot be used: %(error)s. No master is elected "
                "meanwhile; it is tried again",
                {"error": error},
            )
        self._logged = str(error)

    async def _follow(self) -> None:
        self.known_leader = await self._store.leader()
        self.has_asked.set()
        with trio.move_on_after(LOOK_S):
            await self._store.wait_for_change()

    async def _lead(self, lease: Lease) -> None:
        try:
            sets = await self._store.read()
            leader = self._new_leader(lease, sets)
            logger.info(
                "this controller leads, term %(term)d: %(sets)d sets of brokers",
                {"term": lease.term, "sets": len(sets)},
            )
            async with trio.open_nursery() as nursery:
                await nursery.start(leader.run)
                self.leader, self.known_leader = leader, self._candidate
                self.has_asked.set()
                await self._renew(leader)
                nursery.cancel_scope.cancel()
            logger.warning("this controller does not lead any more")
        finally:
            self.leader = self.known_leader = None
            with trio.move_on_after(RELEASE_S, shield=True):
                await self._release(lease)

    async def _renew(self, leader: Leader) -> None:
        """Renew the lease until it is lost."""
        pause_s = self._store.renewal_s
        while leader.is_leading:
            left_s = leader.lease.until_s - self._now_s()
            with trio.move_on_after(min(pause_s, left_s)):
                await leader.deposed.wait()
            try:
                leader.lease = await self._store.renew(leader.lease)
                pause_s = self._store.renewal_s
            except UnavailableError as error:
                self._log(error)
                pause_s = min(RETRY_S, pause_s)
            except LeaseLostError:
                return

    async def _release(self, lease: Lease) -> None:
        try:
            await self._store.release(lease)
        except StateError as error:
            logger.info("the lease could not be given back: %(error)s", {"error": error})
