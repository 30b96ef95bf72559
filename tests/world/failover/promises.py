"""What a set of brokers promises, checked at each step of its brokers.

The log that was confirmed, by any of them, is kept here; each broker's confirmed part, and each
later master's log, must be the same bytes. A broken promise ends the run from outside: inside of a
broker an error is logged, and its task goes on.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import trio

from trocket.broker.controller import BrokerController
from trocket.controller.broker_set import BrokerSet
from trocket.store.writing.in_sync_acks import InSyncAcks

from ..broken import Broken
from ..cluster.machines import FILE_SIZE
from .machines import SetMachine

if TYPE_CHECKING:
    from .world import SetCluster

ELECTED_WITHIN_S = 30
"""Virtual seconds in which a master is elected, if a majority of the state and one in-sync member
live and reach each other."""

HARMLESS = frozenset({"reset", "one-byte segments", "two leaders"})
"""Faults in which no master is elected as long as the present one lives."""

WELL_S = 5.0
"""A broker that was well for so long has sent heartbeats."""

HEARS_WITHIN_S = 6.0
"""A master that an operator has deposed confirms no longer without all-ack: heartbeats keep its
lease, 2.25 s, until it asks for the set, every 2 s, which may wait for its answer."""

BY_HAND = frozenset({"elect", "ten elections"})
"""Faults that depose a master that is heard."""

CROSSED_WITHIN_S = 3.0
"""Any other master has no lease any more when another one is elected; but where its first heartbeat
after a silence and its question cross the election, it is heard, and named once more. It asks again
within 2 s."""


class Watch:
    """What is known of the set's log and its masters.

    Attributes:
      log: all that was confirmed, from physical offset 0 on; under all-ack it never changes.
      masters: name of the machine by epoch.
      confirmed_by: how far masters have confirmed, by epoch.
      elected_s: when each epoch was stored by the controllers.
      unwell_s: when each machine was last seen to be down, or standing still.
    """

    def __init__(self, cluster: SetCluster) -> None:
        self.log = bytearray()
        self.masters: dict[int, str] = {}
        self.confirmed_by: dict[int, int] = {}
        self.elected_s: dict[int, float] = {}
        self._cluster = cluster
        self.unwell_s: dict[str, float] = {}
        self._broken: Broken | None = None
        self._ended = trio.Event()

    def fail(self, promise: str, text: str) -> None:
        """A promise is broken."""
        if self._broken is None:
            self._broken = Broken(promise, text)
            self._cluster.note(f"broken: {self._broken}")
            self._ended.set()

    async def run(self) -> None:
        """Raises: Broken: once a promise is broken."""
        await self._ended.wait()
        assert self._broken is not None
        raise self._broken

    # ---- elections -----------------------------------------------------------------------

    def stored(self, after: BrokerSet | None) -> None:
        """The controllers have stored a set."""
        if after is None or after.master_id is None or after.master_epoch in self.elected_s:
            return
        now_s = trio.current_time()
        self.elected_s[after.master_epoch] = now_s
        before = self.masters.get(after.master_epoch - 1)
        is_harmless = HARMLESS.issuperset(self._cluster.plan.faults)
        if before and is_harmless and now_s - self.unwell_s.get(before, 0.0) > WELL_S:
            self.fail("needless", f"{before} lives, and another master is elected")

    # ---- the log -------------------------------------------------------------------------

    def opened(self, machine: SetMachine, broker: BrokerController) -> None:
        """A broker has loaded its data in a role."""
        member = broker.member
        assert member is not None
        acks, epoch = member.in_sync, member.epoch
        role = "master" if isinstance(acks, InSyncAcks) else "slave"
        end = broker.store.max_physical_offset
        confirmed = broker.store.durability.confirm_offset
        self._cluster.note(
            f"{machine.name} opens as {role} of epoch {epoch}, log to {end}, confirmed {confirmed}"
        )
        begins_epoch = role == "master" and epoch > max(self.masters, default=0)
        self._cluster.opened(machine, begins_epoch=begins_epoch)
        if isinstance(acks, InSyncAcks):
            first = self.masters.setdefault(epoch, machine.name)
            if first != machine.name:
                self.fail("one master", f"{first} and {machine.name} are masters of epoch {epoch}")
            if self._cluster.plan.all_ack:
                self._check_master(machine, epoch)
        assert acks is not None
        if self._cluster.plan.all_ack:
            self._confirmed(machine, broker, 0, confirmed)
        before = acks.on_confirmed

        def on_confirmed(offset: int) -> None:
            nonlocal confirmed
            if machine.process.is_alive:
                if self._cluster.plan.all_ack:
                    self._confirmed(machine, broker, confirmed, offset)
                elif isinstance(acks, InSyncAcks):
                    self._check_lease(machine, epoch)
            confirmed = offset
            before(offset)

        acks.on_confirmed = on_confirmed

    def _check_lease(self, machine: SetMachine, epoch: int) -> None:
        """A deposed master confirms no longer than its lease, and the question for the set."""
        deposed_s = min(
            (at_s for number, at_s in self.elected_s.items() if number > epoch),
            default=math.inf,
        )
        late_s = trio.current_time() - deposed_s
        is_by_hand = not BY_HAND.isdisjoint(self._cluster.plan.faults)
        if late_s > (HEARS_WITHIN_S if is_by_hand else CROSSED_WITHIN_S):
            self.fail("lease", f"{machine.name} confirms {late_s:.2f} s after its deposition")

    def _check_master(self, machine: SetMachine, epoch: int) -> None:
        """Each confirmed message is in every later master."""
        ends = [end for number, end in self.confirmed_by.items() if number < epoch]
        end = max(ends, default=0)
        if log_of(machine, 0, end) != self.log[:end]:
            at = difference(log_of(machine, 0, end), self.log[:end])
            self.fail(
                "later masters",
                f"{machine.name}, master of epoch {epoch}, lacks what was confirmed from {at} to "
                f"{end}",
            )

    def _confirmed(
        self, machine: SetMachine, broker: BrokerController, start: int, end: int
    ) -> None:
        """A broker's confirm offset has moved."""
        found = log_of(machine, start, end)
        known = bytes(self.log[start:end])
        if len(found) < end - start:
            self.fail(
                "confirmed", f"{machine.name} has {len(found)} bytes from {start} on, to {end}"
            )
            return
        if found[: len(known)] != known:
            at = start + difference(found, known)
            self.fail("equal logs", f"{machine.name} has other confirmed bytes at {at}")
            return
        member = broker.member
        assert member is not None
        if not isinstance(member.in_sync, InSyncAcks):
            if end > len(self.log):
                self.fail("confirmed", f"{machine.name} shows {end}, confirmed is {len(self.log)}")
            return
        self.log += found[len(known) :]
        epoch = member.epoch
        self.confirmed_by[epoch] = max(self.confirmed_by.get(epoch, 0), end)
        for number, name in self.masters.items():
            if number > epoch and len(known) < end - start:
                later = self._cluster.machine_named(name)
                if log_of(later, start, end) != found:
                    self.fail(
                        "later masters",
                        f"{machine.name} confirms {start} to {end} in epoch {epoch}, which "
                        f"{name}, master of epoch {number}, has not",
                    )

    def answered(self, place: int, body: bytes, number: int) -> None:
        """SEND_OK: the message is confirmed."""
        size = int.from_bytes(self.log[place : place + 4], "big")
        if body not in self.log[place : place + size]:
            self.fail("N1", f"m{number} at {place} is answered, and not confirmed")

    # ---- progress ------------------------------------------------------------------------

    async def look_for_elections(self) -> None:
        """A master is elected whenever one can be."""
        could_s = 0
        while True:
            await trio.sleep(1)
            for each in self._cluster.brokers:
                if not self._cluster.works(each):
                    self.unwell_s[each.name] = trio.current_time()
            if self._cluster.has_master() or not self._cluster.could_elect():
                could_s = 0
                continue
            could_s += 1
            if could_s > ELECTED_WITHIN_S:
                self.fail("progress", f"no master for {could_s} s: {self._cluster.state()}")


def log_of(machine: SetMachine, start: int, end: int) -> bytes:
    """Bytes of a log, as far as there are."""
    found = bytearray()
    while start < end:
        size = min(end, start - start % FILE_SIZE + FILE_SIZE) - start
        part = machine.log_bytes(start, size, durable=False)
        found += part
        if len(part) < size:
            break
        start += size
    return bytes(found)


def difference(one: bytes, other: bytes | bytearray) -> int:
    """Where they begin to differ."""
    for index, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return index
    return min(len(one), len(other))
