"""Sets that break one promise each, as functions of a monkeypatch; the simulation finds them.

F1 to F24 are lessons from RocketMQ's issues (docs/ha.md): each mutant undoes what follows from one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from trocket.broker.failover.controllers import Controllers
from trocket.broker.failover.identity import IdentityFiles
from trocket.broker.failover.lease import Lease
from trocket.broker.failover.set_broker import SetBroker
from trocket.broker.tables.part import Tables
from trocket.controller import rules
from trocket.controller.broker_set import BrokerSet
from trocket.controller.leader import Leader
from trocket.controller.live_table import LiveTable
from trocket.store.ha.epochs import Epochs
from trocket.store.ha.follow_terms import MemberFollowTerms
from trocket.store.ha.send_terms import MemberSendTerms
from trocket.store.status import PutMessageStatus
from trocket.store.writing.dispatcher import Dispatcher
from trocket.store.writing.in_sync_acks import ConfirmedCopy, InSyncAcks

from ..breaks import reported_before_fsync
from ..mutant import Mutant, Patch, nothing
from .world import SetPlan, play

SEEDS = range(40)
"""What a fault meets depends on the seed."""

APART = "{master, clients} | {slaves, controllers}"


class Plans(NamedTuple):
    """A plan, with some seeds.

    Attributes:
      faults, brokers, controllers, all_ack, is_sync_flush, workload, sends: in which the mutant
        shows.
      found_by: the seed that found it when it was written, which is played first.
    """

    faults: list[str]
    brokers: int = 2
    controllers: int = 1
    all_ack: bool = True
    is_sync_flush: bool = False
    workload: str = "bursts"
    sends: int = 15
    found_by: int = SEEDS[0]

    @property
    def scope(self) -> str:
        return "failover"

    def sound(self) -> str:
        return self._play(self.found_by)

    def problems(self) -> Iterator[str]:
        yield from map(self._play, (self.found_by, *SEEDS))

    def _play(self, seed: int) -> str:
        plan = SetPlan(
            self.brokers, self.controllers, self.all_ack, self.is_sync_flush, self.workload,
            self.faults, self.sends, 0.8,
        )  # fmt: skip
        return play(seed, plan).problem


def requested_members_do_not_count(patch: Patch) -> None:
    """While a larger set is on its way to the controller, only the old one counts (F1)."""
    patch.setattr(InSyncAcks, "count_too", nothing)


def set_shrinks_before_the_controller_knows(patch: Patch) -> None:
    """A slave whose connection ends leaves the in-sync set at once (F2)."""
    forget = InSyncAcks.forget

    def broken(self: InSyncAcks, member_id: int) -> None:
        forget(self, member_id)
        self.accepted -= {member_id}
        self.confirm()

    patch.setattr(InSyncAcks, "forget", broken)


def no_lease(patch: Patch) -> None:
    """A deposed master goes on confirming without all-ack (F3)."""
    patch.setattr(SetBroker, "_may_confirm", lambda self: True)


def lease_by_wall_clock(patch: Patch) -> None:
    """The lease is measured by the time of day."""
    init, heard, named = Lease.__init__, Lease.heard, Lease.named

    class Wall:
        def __init__(self, clock: Any) -> None:
            self._clock = clock

        def elapsed_s(self) -> float:
            return int(self._clock.wall_ms()) / 1000

    def broken(self: Lease, clock: Any, duration_s: float) -> None:
        init(self, Wall(clock), duration_s)  # type: ignore[arg-type]

    patch.setattr(Lease, "__init__", broken)
    patch.setattr(Lease, "heard", lambda self, _: heard(self, self._clock.elapsed_s()))
    patch.setattr(Lease, "named", lambda self, _: named(self, self._clock.elapsed_s()))


def heartbeats_begin_a_lease(patch: Patch) -> None:
    """A controller hears a deposed master, which takes that for a lease."""

    def broken(self: Lease, sent_s: float) -> None:
        self._heard_s = max(self._heard_s, sent_s)
        self._extend()

    patch.setattr(Lease, "heard", broken)


def empty_epoch_keeps_its_place(patch: Patch) -> None:
    """An epoch in which nothing was written stays, and the next one at its place is refused; no one
    compares bytes (F7)."""
    append = Epochs.append

    def broken(self: Epochs, number: int, start: int) -> Epochs:
        return self if self and self[-1].start == start else append(self, number, start)

    async def same(self: MemberFollowTerms, point: int) -> int:
        return point

    patch.setattr(Epochs, "append", broken)
    patch.setattr(MemberFollowTerms, "_same_until", same)


def sender_knows_one_epoch(patch: Patch) -> None:
    """A master sends all of its log as that of its first epoch (F8)."""
    frame = MemberSendTerms.frame

    def broken(self: MemberSendTerms, offset: int, size: int) -> tuple[bytes, int]:
        number, start = self._member.epochs.epochs[0]
        from trocket.store.ha.epoch_wire import encode_epoch_header

        frame(self, offset, size)
        confirmed = self._store.durability.confirm_offset
        return encode_epoch_header(offset, size, number, start, confirmed), size

    patch.setattr(MemberSendTerms, "frame", broken)


def next_offset_of_the_confirmed_part(patch: Patch) -> None:
    """Queue offsets go on after the confirmed part of the log (F11)."""
    hide = Dispatcher.hide

    def broken(self: Dispatcher, confirmed: int, queues: Any) -> None:
        known = list(queues)
        hide(self, confirmed, known)
        for queue in known:
            queue.next_offset = queue.committed_offset = queue.max_offset

    patch.setattr(Dispatcher, "hide", broken)


def tables_are_not_loaded(patch: Patch) -> None:
    """A promotion does not load topics and offsets (F12)."""
    patch.setattr(Tables, "load_tables", nothing)
    patch.setattr(Tables, "load", nothing)


def stale_connection_counts(patch: Patch) -> None:
    """The end of any connection of a broker takes it for dead (F14)."""

    async def dead(self: Leader, member: Any, connection: object) -> None:
        self.live.forget(member)
        self.wake()

    patch.setattr(Leader, "_probe", dead)


def leader_gets_no_heartbeats(patch: Patch) -> None:
    """Heartbeats go to the first controller of the configuration only (F15)."""
    patch.setattr(Controllers, "addresses", property(lambda self: set(self._addresses[:1])))


def election_is_an_event(patch: Patch) -> None:
    """An election that failed is not tried again (F16)."""
    elect = Leader._elect
    tried: set[tuple[int, int, str]] = set()

    async def once(self: Leader, name: str, failed: list[str]) -> None:
        known = self.set_of(name)
        key = (id(self), 0 if known is None else known.master_epoch, name)
        if key not in tried:
            tried.add(key)
            await elect(self, name, failed)

    patch.setattr(Leader, "_elect", once)


def no_scan(patch: Patch) -> None:
    """No controller notices that a master's heartbeats are missing (F17)."""

    async def done(self: Leader) -> bool:
        return True

    patch.setattr(Leader, "_elect_all", done)


def identity_is_deleted_first(patch: Patch) -> None:
    """The file of identity is written at each start, and deleted before (F19)."""
    read = IdentityFiles.controller_id

    def broken(self: IdentityFiles) -> int | None:
        found = read(self)
        if found is not None:
            self._disk.unlink(self._path)
            self._disk.sync_folder(self._path.rpartition("/")[0])
            self.settle(found)
        return found

    patch.setattr(IdentityFiles, "controller_id", broken)


def anyone_is_elected(patch: Patch) -> None:
    """A broker that is not in sync is elected."""
    best = rules._best

    def broken(before: Any, alive: Any, among: Any, designated_id: int | None) -> int | None:
        return best(before, alive, before.replicas.keys(), designated_id)

    patch.setattr(rules, "_best", broken)


def no_fencing(patch: Patch) -> None:
    """A deposed master changes the in-sync set."""

    def broken(before: Any, master_id: int, epoch: int, wanted: Any, *more: Any) -> None:
        return None

    patch.setattr(rules, "_refusal_of_set", broken)


def new_leader_expects_no_one(patch: Patch) -> None:
    """A controller that begins to lead takes all brokers for dead (F16)."""
    patch.setattr(LiveTable, "expect", nothing)


def election_without_an_epoch(patch: Patch) -> None:
    """A new master has the epoch of the one before."""
    with_master = BrokerSet.with_master

    def broken(self: BrokerSet, broker_id: int) -> BrokerSet:
        elected = with_master(self, broker_id)
        return msgspec.structs.replace(elected, master_epoch=max(self.master_epoch, 1))

    patch.setattr(BrokerSet, "with_master", broken)


def nothing_is_cut(patch: Patch) -> None:
    """A broker keeps what its new master does not have."""
    patch.setattr(SetBroker, "_cut", nothing)


def answered_before_the_set(patch: Patch) -> None:
    """A send waits for no member of the set."""
    patch.setattr(
        InSyncAcks, "wait", lambda self, offset, callback: callback(PutMessageStatus.PUT_OK)
    )


def shown_before_confirmed(patch: Patch) -> None:
    """A slave shows and counts as confirmed all that it has."""

    def confirmed(self: ConfirmedCopy, offset: int) -> None:
        self._masters = 1 << 40
        self._confirm()

    patch.setattr(ConfirmedCopy, "confirmed", confirmed)


SAFETY = ("later masters", "equal logs", "confirmed", "N1", "N2", "N3", "N5", "one master")
REST = ("progress", "HA", "N6", "N4", "identity", "needless")
ANY = (*SAFETY, *REST, "lease")

MUTANTS = [
    Mutant(
        requested_members_do_not_count,
        Plans(["growth unanswered"], sends=40),
        ANY,
    ),
    Mutant(set_shrinks_before_the_controller_knows, Plans([APART] * 2), ANY),
    Mutant(no_lease, Plans([APART] * 2, all_ack=False, sends=40), ("lease",)),
    Mutant(
        lease_by_wall_clock,
        Plans([APART] * 2 + ["clocks jump"] * 3, all_ack=False, sends=40, found_by=19),
        ("lease",),
    ),
    Mutant(
        heartbeats_begin_a_lease,
        Plans(["SIGSTOP", "controllers' answers lost"] * 2, all_ack=False, sends=40, found_by=27),
        ("lease",),
    ),
    Mutant(empty_epoch_keeps_its_place, Plans(["ten elections", APART, APART], found_by=2), ANY),
    Mutant(sender_knows_one_epoch, Plans(["kill", "elect", "partition HA only"]), ANY),
    Mutant(next_offset_of_the_confirmed_part, Plans(["death in a change of role", "kill"]), ANY),
    Mutant(tables_are_not_loaded, Plans(["kill", "elect"], found_by=27), ANY),
    Mutant(stale_connection_counts, Plans(["reset"] * 4, brokers=3, found_by=2), ("needless",)),
    Mutant(leader_gets_no_heartbeats, Plans(["kill of two"] * 2, controllers=3), ("progress",)),
    Mutant(
        election_is_an_event,
        Plans(["no quorum", "no quorum", "long death"], controllers=3, found_by=15),
        ("progress",),
    ),
    Mutant(no_scan, Plans(["long death"]), ("progress",)),
    Mutant(identity_is_deleted_first, Plans(["crash in recovery"] * 4), ("identity", "progress")),
    Mutant(anyone_is_elected, Plans(["partition HA only", "kill", "kill"], found_by=10), SAFETY),
    Mutant(no_fencing, Plans([APART, "elect", "partition HA only"]), ANY),
    Mutant(new_leader_expects_no_one, Plans(["two leaders"] * 3, controllers=3), ("needless",)),
    Mutant(election_without_an_epoch, Plans(["elect", "kill"]), ANY),
    Mutant(nothing_is_cut, Plans([APART]), ANY),
    Mutant(answered_before_the_set, Plans([APART]), SAFETY),
    Mutant(shown_before_confirmed, Plans(["partition HA only", "kill"], brokers=3), SAFETY),
    Mutant(
        reported_before_fsync,
        Plans(
            ["slow fsync", "slow fsync", "power loss", "power loss"],
            is_sync_flush=True,
            found_by=24,
        ),
        SAFETY,
    ),
]
