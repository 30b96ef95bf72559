"""Leader: the sets of brokers while this controller leads, their heartbeats and elections.

A shell around `state_machine.py`. A change of a set is decided, stored by compare-and-swap, and
only then answered and made known. Changes of one set come one after the other, those of different
sets beside each other.

Source: ControllerManager, ReplicasInfoManager and DefaultBrokerHeartbeatManager of RocketMQ 5.5.0.
Differences: an election is a condition that is checked again until it is met, not an event; the end
of a connection elects only if the broker refuses a new one.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, Protocol

import trio

from ..common.supervision import FailureLog, Supervisor, contained
from ..remoting.errors import RequestRefused
from ..remoting.response_codes import ResponseCode
from .broker_set import BrokerSet
from .live_table import Heartbeat, LiveTable, Member
from .state_machine import (
    SETS_MAX,
    Change,
    Decision,
    Reply,
    Situation,
    elect_for_lost,
    needs_election,
)
from .state_store import (
    NOTHING,
    ConflictError,
    Lease,
    LeaseLostError,
    StateError,
    StateStore,
    Stored,
)
from .turns import Turns

logger = logging.getLogger(__name__)

WAIT_S: Final = 5.0
"""How long a request waits for others about the same set. Source: ControllerRequestProcessor's
WAIT_TIMEOUT_OUT; clients give up after 3 s."""

TRIES: Final = 3
"""Of a change whose set was changed by another writer meanwhile: an operator, as there is only one
leader."""

TICK_S: Final = 0.5
"""The longest sleep of the check for elections, by which a pause of this process is noticed."""

LATE_S: Final = 0.1
"""A sleep that took this much longer was a pause: heartbeats may be waiting to be read."""

LONG_S: Final = 1.0
"""A pause that the operator reads of. A busy machine has shorter ones all the time."""

RETRY_S: Final = 1.0
"""Before an election that could not be stored is tried again."""

PROBES_MAX: Final = 128
"""Brokers that are dialled at a time; a machine that goes down with all its brokers has fewer."""


class Elections(Protocol):
    """The settings of elections, read at each use."""

    enable_elect_unclean_master: bool
    scan_not_active_broker_interval: int


class Leader:
    """See the module. Owner: the server's task that leads; `run` must be running.

    Args:
      sets: all that are stored.
      now_s: monotonic time; the lease and heartbeats count by it.
      notify: sends 1008 for a set to its living members, given by their addresses; never waits.
      is_refused: dials a broker; see `probe.py`.

    Attributes:
      lease: replaced at each renewal.
      deposed: set when the store has said that another controller leads.
      elections: number of masters elected since this controller leads.
    """

    def __init__(
        self,
        config: Elections,
        store: StateStore,
        lease: Lease,
        sets: Mapping[str, Stored],
        *,
        now_s: Callable[[], float],
        notify: Callable[[BrokerSet, Iterable[str]], None],
        is_refused: Callable[[str], Awaitable[bool]],
    ) -> None:
        self.lease = lease
        self.deposed = trio.Event()
        self.live = LiveTable()
        self.elections = 0
        self._config = config
        self._store = store
        self._sets = dict(sets)
        self._unsure: set[str] = set()
        self._turns = Turns(WAIT_S)
        self._now_s = now_s
        self._notify = notify
        self._is_refused = is_refused
        self._wanted = trio.Event()
        self._asleep_until_s = 0.0
        self._probes = trio.CapacityLimiter(PROBES_MAX)
        self._nursery: trio.Nursery | None = None
        self._failures = FailureLog(logger)
        self.live.expect((each for each in self.sets()), now_s())

    @property
    def is_leading(self) -> bool:
        """Whether no other controller can lead yet."""
        return self._now_s() < self.lease.until_s and not self.deposed.is_set()

    def sets(self) -> list[BrokerSet]:
        """All sets, as they are stored."""
        return [each.broker_set for each in self._sets.values() if each.broker_set is not None]

    def set_of(self, name: str) -> BrokerSet | None:
        """The set of a broker name; None: there is none."""
        return self._sets.get(name, NOTHING).broker_set

    def alive(self, broker_set: BrokerSet) -> frozenset[int]:
        """The ids of the living members."""
        return frozenset(self.live.alive(broker_set, self._now_s()))

    def situation(self, broker_set: BrokerSet | None, *, has_room: bool = True) -> Situation:
        """What is known of a set now."""
        alive = self.live.alive(broker_set, self._now_s())
        return Situation(
            broker_set, alive, self._config.enable_elect_unclean_master, has_room=has_room
        )

    def _has_room(self, name: str) -> bool:
        """Whether a set may be stored; those that are about to be stored count."""
        return name in self._sets or len(self._sets.keys() | self._turns.names) <= SETS_MAX

    # Changes

    async def change(self, change: Change) -> Reply:
        """Decide a request and store what follows from it.

        Raises: RequestRefused: SYSTEM_ERROR: it could not be stored, or it is not known whether it
          was; CONTROLLER_NOT_LEADER: another controller leads.
        """
        try:
            return (await self._change(change)).reply
        except trio.TooSlowError as error:
            remark = f"other requests about the set {change.name[:80]} take too long"
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, remark) from error
        except LeaseLostError as error:
            raise RequestRefused(ResponseCode.CONTROLLER_NOT_LEADER, str(error)) from error
        except StateError as error:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, str(error)) from error

    async def _change(self, change: Change) -> Decision:
        """Raises: StateError; trio.TooSlowError."""
        async with self._turns.of(change.name):
            for left in reversed(range(TRIES)):
                if not self.is_leading:
                    raise LeaseLostError("this controller does not lead any more")
                stored = await self._fresh(change.name)
                has_room = self._has_room(change.name)
                decision = change.decide(self.situation(stored.broker_set, has_room=has_room))
                if decision.after is stored.broker_set:
                    return decision
                try:
                    await self._save(change.name, stored, decision)
                except ConflictError:
                    if not left:
                        raise
                else:
                    return decision
        raise ConflictError(f"the set {change.name} changes all the time")

    async def _fresh(self, name: str) -> Stored:
        """The set as it is stored; read again after a write that may have failed."""
        if name in self._unsure:
            self._replace(name, await self._store.read_set(name))
            self._unsure.discard(name)
        return self._sets.get(name, NOTHING)

    async def _save(self, name: str, stored: Stored, decision: Decision) -> None:
        after = decision.after
        self._unsure.add(name)  # until the store has answered
        # What is stored must be known here, even if the request's connection ends meanwhile.
        with trio.CancelScope(shield=True):
            try:
                revision = await self._store.swap(self.lease, name, stored.revision, after)
            except LeaseLostError:
                self.deposed.set()
                raise
        self._unsure.discard(name)
        self._replace(name, Stored(after, revision))
        self._log(name, stored.broker_set, after)
        if decision.is_election and after is not None:
            self.elections += 1
            members = self.live.alive(after, self._now_s())
            addresses = (after.replicas[each].address for each in sorted(members))
            self._notify(after, [each for each in addresses if each])
        if after is not None and needs_election(self.situation(after)):
            self.wake()

    def _replace(self, name: str, stored: Stored) -> None:
        if stored.broker_set is None:
            self._sets.pop(name, None)
        else:
            self._sets[name] = stored
        self.live.keep(stored.broker_set, name)

    def _log(self, name: str, before: BrokerSet | None, after: BrokerSet | None) -> None:
        if after is None:
            logger.info("the set %(set)s is forgotten", {"set": name})
        elif before is None:
            logger.info("the set %(set)s has its first broker", {"set": name})
        elif after.master_id is None and before.master_id is not None:
            logger.error(
                "the set %(set)s has no master: of its in-sync brokers %(in_sync)s none is alive. "
                "Start one of them; any other would lack confirmed messages",
                {"set": name, "in_sync": sorted(after.in_sync)},
            )
        elif after.master_epoch != before.master_epoch:
            logger.warning(
                "the set %(set)s has a new master: %(id)s at %(address)s, epoch %(epoch)d",
                {
                    "set": name,
                    "id": after.master_id,
                    "address": after.master_address,
                    "epoch": after.master_epoch,
                },
            )
        elif after.in_sync != before.in_sync:
            logger.info(
                "the in-sync brokers of the set %(set)s are %(in_sync)s, epoch %(epoch)d",
                {"set": name, "in_sync": sorted(after.in_sync), "epoch": after.in_sync_epoch},
            )

    # Heartbeats

    def heartbeat(self, member: Member, heartbeat: Heartbeat) -> bool:
        """Record a heartbeat.

        Returns: False: no set has such a member; it must register first.
        """
        known = self.set_of(member.broker_name)
        if (
            known is None
            or known.cluster_name != member.cluster_name
            or member.broker_id not in known.replicas
        ):
            return False
        if self.live.beat(member, heartbeat, self._now_s()) < self._asleep_until_s:
            self.wake()  # its time-out is shorter than it was
        now = self.situation(known)
        if needs_election(now) and elect_for_lost(now).after is not known:
            self.wake()
        return True

    def connection_closed(self, connection: object) -> None:
        """Find out whether the brokers whose heartbeats came on a connection are gone."""
        if self._nursery is None:
            return
        for member in self.live.members_of(connection):
            self._nursery.start_soon(self._probe, member, connection)

    async def _probe(self, member: Member, connection: object) -> None:
        known = self.set_of(member.broker_name)
        replica = None if known is None else known.replicas.get(member.broker_id)
        if replica is None or not replica.address:
            return
        meaning = "The broker counts as alive until its heartbeats have been missing long enough"
        with contained(self._failures, f"dialling {replica.address}", meaning):
            async with self._probes:
                is_refused = await self._is_refused(replica.address)
            last = self.live.last(member)
            if is_refused and last is not None and last.connection is connection:
                logger.warning(
                    "the broker %(id)d of the set %(set)s at %(address)s is gone: the connection "
                    "of its heartbeats ended, and it refuses new ones",
                    {
                        "id": member.broker_id,
                        "set": member.broker_name,
                        "address": replica.address,
                    },
                )
                self.live.forget(member)
                self.wake()

    # Elections

    def wake(self) -> None:
        """Have the sets checked for lost masters now."""
        self._wanted.set()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Watch the brokers and elect masters until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            try:
                Supervisor(nursery, logger).start_soon("the elections", self._elect_always)
                task_status.started()
                await trio.sleep_forever()
            finally:
                self._nursery = None

    async def _elect_always(self) -> None:
        while True:
            self._wanted = trio.Event()
            for member in self.live.expire(self._now_s()):
                logger.warning(
                    "the broker %(id)d of the set %(set)s sends no heartbeats any more",
                    {"id": member.broker_id, "set": member.broker_name},
                )
            is_done = not self.is_leading or await self._elect_all()
            interval_s = self._config.scan_not_active_broker_interval / 1_000
            await self._sleep(interval_s if is_done else min(interval_s, RETRY_S))

    async def _sleep(self, interval_s: float) -> None:
        """Sleep until the next check, a member's expiry, or `wake`."""
        end_s = self._now_s() + interval_s
        expiry_s = self.live.next_expiry_s()
        if expiry_s is not None:
            end_s = min(end_s, expiry_s)
        self._asleep_until_s = end_s
        while not self._wanted.is_set() and (now_s := self._now_s()) < end_s:
            wake_s = min(now_s + TICK_S, end_s)
            with trio.move_on_after(wake_s - now_s):
                await self._wanted.wait()
            late_s = self._now_s() - wake_s
            if late_s > LATE_S:
                logger.log(
                    logging.WARNING if late_s > LONG_S else logging.DEBUG,
                    "this process stood still for %(seconds).1f s; that time does not count for "
                    "the brokers",
                    {"seconds": late_s},
                )
                self.live.allow(late_s + TICK_S)

    async def _elect_all(self) -> bool:
        """Elect masters for all sets that have lost theirs.

        Returns: False: an election could not be stored.
        """
        failed: list[str] = []
        async with trio.open_nursery() as nursery:
            for name in sorted(self._unsure):
                nursery.start_soon(self._read_again, name, failed)
        names = [each.broker_name for each in self.sets() if needs_election(self.situation(each))]
        async with trio.open_nursery() as nursery:
            for name in names:
                nursery.start_soon(self._elect, name, failed)
        return not failed

    async def _read_again(self, name: str, failed: list[str]) -> None:
        """Learn whether a write without an answer was done: brokers are answered from what is
        known here, and would ask for nothing else."""
        meaning = "The set is read again"
        with contained(self._failures, f"reading the set {name}", meaning):
            try:
                async with self._turns.of(name):
                    await self._fresh(name)
            except (StateError, trio.TooSlowError):
                failed.append(name)

    async def _elect(self, name: str, failed: list[str]) -> None:
        is_done = False
        with contained(self._failures, f"the election of {name}", "It is tried again"):
            try:
                await self._change(Change(name, elect_for_lost))
                is_done = True
            except (StateError, trio.TooSlowError) as error:
                logger.error(
                    "the election of a master for the set %(set)s could not be stored: %(error)s. "
                    "It is tried again",
                    {"set": name, "error": str(error) or "other requests take too long"},
                )
        if not is_done:
            failed.append(name)
