"""The simulated state of three controllers: a store as etcd, in virtual time.

Requests take time on their way there and back; one that gets no answer in time may have been done,
or may be done later. All state is in one place, so it is never torn: consensus is the store's.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final, TypeVar

import trio

from trocket.controller.broker_set import BrokerSet
from trocket.controller.file_store import FileStore
from trocket.controller.state_store import (
    NO_REVISION,
    NOTHING,
    Candidate,
    ConflictError,
    Lease,
    LeaseLostError,
    StateError,
    Stored,
    UnavailableError,
)

from ..cluster.network import Network
from ..machine_disk import MachineDisk

TTL_S: Final = 3.0
"""How long a controller leads without a renewal."""

RENEWAL_S: Final = 1.0
TIMEOUT_S: Final = 0.3
"""For the answer to one request, as of the store in etcd."""

T = TypeVar("T")


class StateGroup:
    """What all controllers share.

    Args:
      network: its events carry requests and answers.
      random: how long they take.

    Attributes:
      has_quorum: else no request is done.
      cut: names of machines that do not reach it.
      slow_s: what each way takes longer, at most.
      loses: the share of answers that are lost.
      on_swap: called with each set that is stored.
      owner: leads until `until_s`, the virtual time at which another one may.
      term: higher with each owner.
    """

    def __init__(self, network: Network, random: Random) -> None:
        self.has_quorum = True
        self.cut: set[str] = set()
        self.slow_s = 0.0
        self.loses = 0.0
        self.on_swap: Callable[[BrokerSet | None], None] = lambda _: None
        self.sets: dict[str, Stored] = {}
        self.term = 0
        self.owner: Candidate | None = None
        self.until_s = 0.0
        self.changed = trio.Event()
        self.network = network
        self._random = random
        self._revision = NO_REVISION

    def delay_s(self) -> float:
        """How long one way takes."""
        return round(self._random.random() * (0.004 + self.slow_s), 4)

    def loses_answer(self) -> bool:
        """Whether the next answer is lost."""
        return self._random.random() < self.loses

    def reaches(self, machine: str) -> bool:
        """Whether a machine's requests are done."""
        return self.has_quorum and machine not in self.cut

    def heal(self) -> None:
        """All is well."""
        self.has_quorum, self.slow_s, self.loses = True, 0.0, 0.0
        self.cut.clear()

    # ---- what is done at one moment ------------------------------------------------------

    def holder(self) -> Candidate | None:
        """Who leads now."""
        return self.owner if trio.current_time() < self.until_s else None

    def acquire(self, candidate: Candidate) -> int | None:
        """The new term; None: another one leads."""
        if self.holder() is not None:
            return None
        self.term += 1
        self.owner, self.until_s = candidate, trio.current_time() + TTL_S
        self._note_change()
        return self.term

    def renew(self, term: int) -> None:
        """Lead on. Raises: LeaseLostError."""
        self._check(term)
        self.until_s = trio.current_time() + TTL_S

    def release(self, term: int) -> None:
        """Lead no longer."""
        if term == self.term and self.owner is not None:
            self.owner = None
            self._note_change()

    def swap(self, term: int, name: str, revision: int, after: BrokerSet | None) -> int:
        """See `StateStore`."""
        self._check(term)
        if revision != self.sets.get(name, NOTHING).revision:
            raise ConflictError(f"the set {name} was changed meanwhile")
        return self.put(name, after)

    def put(self, name: str, after: BrokerSet | None) -> int:
        """Store a set, whatever was there."""
        self._revision += 1
        if after is None:
            self.sets.pop(name, None)
            self.on_swap(None)
            return NO_REVISION
        self.sets[name] = Stored(after, self._revision)
        self.on_swap(after)
        return self._revision

    def _check(self, term: int) -> None:
        if term != self.term or self.holder() is None:
            raise LeaseLostError("another controller leads, or may lead")

    def _note_change(self) -> None:
        changed, self.changed = self.changed, trio.Event()
        changed.set()


class WatchedFileStore(FileStore):
    """The state of one controller, in its file."""

    def __init__(
        self, on_swap: Callable[[BrokerSet | None], None], _: str, disk: MachineDisk, folder: str
    ) -> None:
        super().__init__(disk, folder)
        self._on_swap = on_swap
        self._machine = disk

    async def swap(self, lease: Lease, name: str, revision: int, after: BrokerSet | None) -> int:
        made = await super().swap(lease, name, revision, after)
        if self._machine.left is None:  # else its process has died, and wrote in vain
            self._on_swap(after)
        return made


class GroupStore:
    """The `StateStore` of one of several controllers."""

    renewal_s: Final = RENEWAL_S

    def __init__(self, group: StateGroup, machine: str, *_: object) -> None:
        self._group = group
        self._machine = machine

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        task_status.started()
        await trio.sleep_forever()

    async def _ask(self, act: Callable[[], T]) -> T:
        """What is done at the store. Raises: StateError: as `act`, or there was no answer."""
        group = self._group
        answered = trio.Event()
        done: list[T] = []
        failures: list[StateError] = []

        def arrive() -> None:
            if not group.reaches(self._machine):
                return
            try:
                done.append(act())
            except StateError as error:
                failures.append(error)
            if not group.loses_answer():
                group.network.after(group.delay_s(), answered.set)

        group.network.after(group.delay_s(), arrive)
        with trio.move_on_after(TIMEOUT_S):
            await answered.wait()
        if not answered.is_set():
            raise UnavailableError("the store does not answer")
        if failures:
            raise failures[0]
        return done[0]

    async def acquire(self, candidate: Candidate) -> Lease | None:
        sent_s = trio.current_time()
        term = await self._ask(lambda: self._group.acquire(candidate))
        return None if term is None else Lease(term, sent_s + TTL_S)

    async def renew(self, lease: Lease) -> Lease:
        sent_s = trio.current_time()
        await self._ask(lambda: self._group.renew(lease.term))
        return lease._replace(until_s=sent_s + TTL_S)

    async def release(self, lease: Lease) -> None:
        await self._ask(lambda: self._group.release(lease.term))

    async def leader(self) -> Candidate | None:
        return await self._ask(self._group.holder)

    async def wait_for_change(self) -> None:
        group = self._group
        with trio.move_on_at(max(group.until_s, trio.current_time() + 0.05)):
            await group.changed.wait()

    async def read(self) -> dict[str, Stored]:
        return await self._ask(lambda: dict(self._group.sets))

    async def read_set(self, name: str) -> Stored:
        return await self._ask(lambda: self._group.sets.get(name, NOTHING))

    async def swap(self, lease: Lease, name: str, revision: int, after: BrokerSet | None) -> int:
        return await self._ask(lambda: self._group.swap(lease.term, name, revision, after))
