"""The simulated set: brokers in controller mode, controllers, name servers, clients; one seed, one
run.

A run has four parts, as of the cluster, but no operator: machines that died are started again, and
the rest is the controllers'.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple, cast

import trio

from trocket.controller.broker_set import BrokerSet
from trocket.controller.state_store import NOTHING
from trocket.store.config import FlushDiskType

from ..broken import Broken
from ..cluster.clients import ClusterClient
from ..cluster.cluster import WORKLOADS, Cluster, Run, end_of_patience, play_plan
from ..cluster.machines import BrokerMachine, DiskMachine, Machine
from ..cluster.oracle import Sent
from .clients import SetConsumer, SetProducer
from .machines import CONTROLLER_PORT, SET, ControllerMachine, SetMachine
from .promises import Watch
from .state_group import GroupStore, StateGroup, WatchedFileStore

HEALED_WITHIN_S = 60.0
"""The election, the reopening, the catching up, and what was half open."""

QUICK: dict[str, Any] = {
    "enable_controller_mode": True,
    "broker_heartbeat_interval": 1_000,
    "controller_heart_beat_timeout_mills": 3_000,
    "sync_broker_metadata_period": 2_000,
    "sync_controller_metadata_period": 3_000,
    "ha_max_time_slave_not_catchup": 5_000,
}


class SetPlan(NamedTuple):
    """What a seed stands for.

    Attributes:
      brokers, controllers: how many.
      all_ack: allAckInSyncStateSet.
      is_sync_flush: flushDiskType.
      workload_name, faults, sends, pause_s: as of the cluster's `Plan`.
    """

    brokers: int
    controllers: int
    all_ack: bool
    is_sync_flush: bool
    workload_name: str
    faults: list[str]
    sends: int
    pause_s: float
    is_sync_master: bool = True

    @property
    def workload(self) -> tuple[int, ...]:
        return WORKLOADS[self.workload_name]

    @property
    def mode(self) -> str:
        acks = "all-ack" if self.all_ack else "lease"
        return f"{acks} {'SYNC_FLUSH' if self.is_sync_flush else 'ASYNC_FLUSH'}"

    @property
    def topology(self) -> str:
        return f"{self.brokers} brokers {self.controllers} controllers"


class SetCluster(Cluster):
    """All machines of a set, and what is known of them.

    Attributes:
      watch: the promises of the set.
      group: the state of three controllers.
      operator: asks for elections.
    """

    plan: SetPlan  # type: ignore[assignment]
    brokers: list[SetMachine]  # type: ignore[assignment]
    hides_messages = True
    new_producer = SetProducer
    new_consumer = SetConsumer

    def _add_brokers(self) -> None:
        plan = self.plan
        self.watch = Watch(self)
        self.group = StateGroup(self.network, self.random("state"))
        self.group.on_swap = self.watch.stored
        self.operator = ClusterClient(self, "operator", "10.0.2.9", self.random("operator"))
        flush = FlushDiskType.SYNC_FLUSH if plan.is_sync_flush else FlushDiskType.ASYNC_FLUSH
        hosts = [f"10.0.4.{number + 1}" for number in range(plan.controllers)]
        addresses = [f"{host}:{CONTROLLER_PORT}" for host in hosts]
        options = QUICK | {
            "flush_disk_type": flush,
            "namesrv_addr": ";".join(each.address for each in self.namesrvs),
            "controller_addr": ";".join(addresses),
            "all_ack_in_sync_state_set": plan.all_ack,
        }
        self.brokers = [
            SetMachine(
                self.network,
                self.nursery,
                f"b{number}",
                f"10.0.1.{number}",
                options=options,
                random=self.random(f"broker {number}"),
                on_open=self.watch.opened,
            )
            for number in range(plan.brokers)
        ]
        peers = ";".join(f"k{number}-{each}" for number, each in enumerate(addresses))
        is_group = plan.controllers > 1
        self.controllers = [
            ControllerMachine(
                self.network,
                self.nursery,
                f"k{number}",
                host,
                random=self.random(f"controller {number}"),
                peers=peers if is_group else "",
                store=partial(GroupStore, self.group)
                if is_group
                else partial(WatchedFileStore, self.watch.stored),
            )
            for number, host in enumerate(hosts)
        ]

    # ---- what is there now ---------------------------------------------------------------

    @property
    def machines(self) -> list[Machine]:
        return [*self.namesrvs, *self.brokers, *self.controllers]

    @property
    def disk_machines(self) -> list[DiskMachine]:
        """Those with a disk."""
        return [*self.brokers, *self.controllers]

    @property
    def master(self) -> SetMachine:  # type: ignore[override]
        """The master of the newest epoch, as far as a broker knows; else the first broker."""
        masters = self.watch.masters
        return self.machine_named(masters[max(masters)]) if masters else self.brokers[0]

    @property
    def slaves(self) -> list[BrokerMachine]:
        return [each for each in self.brokers if each is not self.master]

    def machine_named(self, name: str) -> SetMachine:
        """The broker with a name."""
        return next(each for each in self.brokers if each.name == name)

    def opened(self, machine: SetMachine, *, begins_epoch: bool) -> None:
        """A broker has loaded its data."""
        self.oracle.repeats += 1
        if begins_epoch and not self.plan.all_ack:
            # The new master may lack what the one before has confirmed, and what that still
            # confirms counts for nothing.
            oracle = self.oracle
            oracle.epoch += 1
            oracle.promises.clear()
            oracle.seen.clear()
            oracle.delayed.clear()
            oracle.consumed.clear()
            oracle._last.clear()
            oracle.losers = {each.address for each in self.brokers if each is not machine}

    def stored_set(self) -> BrokerSet | None:
        """The set as the controllers' state has it; None: that cannot be known."""
        if self.plan.controllers > 1:
            return self.group.sets.get(SET, NOTHING).broker_set
        alone = self.controllers[0]
        return alone.stored_set() if alone.is_up else None

    def member(self, number: int) -> SetMachine | None:
        """The broker with a permanent id."""
        for each in self.brokers:
            if hasattr(each, "program") and each.manager.controller_id == number:
                return each
        return None

    def has_master(self) -> bool:
        """Whether the elected master serves."""
        known = self.stored_set()
        if known is None or known.master_id is None:
            return False
        machine = self.member(known.master_id)
        return machine is not None and machine.is_master_of(known.master_epoch)

    def could_elect(self) -> bool:
        """Whether a majority of the state and a member of the in-sync set live, and reach each
        other."""
        known = self.stored_set()
        if known is None or not known.in_sync:
            return False
        controllers = [each for each in self.controllers if self.works(each)]
        if self.plan.controllers > 1:
            controllers = [each for each in controllers if self.group.reaches(each.name)]
            if len(controllers) < len(self.controllers):
                return False  # another one may lead, which cannot be reached
        members = [self.member(number) for number in sorted(known.in_sync)]
        return bool(controllers) and any(
            each is not None
            and self.works(each)
            and all(self._reach(each, controller) for controller in controllers)
            for each in members
        )

    def works(self, machine: DiskMachine) -> bool:
        """Whether a machine's program runs, and its disk is well."""
        disk = machine.disk
        is_well = disk.faults is None and disk.sync_s == 0
        return machine.is_up and not machine.process.is_stopped and is_well

    def _reach(self, one: Machine, other: Machine) -> bool:
        network = self.network
        return not (
            network._is_blocked(one.name, other.name, "remoting")
            or network._is_blocked(other.name, one.name, "remoting")
        )

    def state(self) -> str:
        """For people."""
        places = {}
        for each in self.brokers:
            store = each.serving.store if hasattr(each, "program") and each.serving else None
            log = (store.max_physical_offset, store.durability.confirm_offset) if store else None
            place = each.manager.place if hasattr(each, "program") else None
            places[each.name] = (each.is_up, place, log)
        return f"{self.stored_set()} {places}"

    def check_replicas(self, sent: Sent, physical_offset: int, address: str) -> None:
        """See `Cluster`."""
        if self.plan.all_ack:
            self.watch.answered(physical_offset, sent.body, sent.number)


async def live(cluster: SetCluster) -> None:
    """The whole run."""
    from .checks import heal, verify
    from .faults import happen

    async with trio.open_nursery() as nursery:
        nursery.start_soon(cluster.network.run)
        nursery.start_soon(end_of_patience)
        nursery.start_soon(cluster.watch.run)
        for peer in (*cluster.producers, *cluster.consumers, cluster.operator):
            await nursery.start(peer.client.run)
        await _start_all(cluster)
        nursery.start_soon(cluster.watch.look_for_elections)
        async with trio.open_nursery() as consuming:
            for consumer in cluster.consumers:
                consuming.start_soon(consumer.run)
            async with trio.open_nursery() as working:
                for producer in cluster.producers:
                    working.start_soon(producer.run, cluster.plan.sends, cluster.plan.pause_s)
                working.start_soon(happen, cluster)
            consuming.cancel_scope.cancel()
        await heal(cluster)
        await verify(cluster)
        cluster.note("all is well")
        for machine in cluster.disk_machines:
            machine.die()  # another clean stop would show nothing new
        nursery.cancel_scope.cancel()


async def _start_all(cluster: SetCluster) -> None:
    """Start everything for the first time, and wait for a whole set."""
    for machine in [*cluster.namesrvs, *cluster.controllers, *cluster.brokers]:
        await machine.start()
    with trio.move_on_after(HEALED_WITHIN_S):
        while True:
            known = cluster.stored_set()
            if cluster.has_master() and known and len(known.in_sync) == len(cluster.brokers):
                return
            await trio.sleep(0.25)
    raise Broken("progress", f"the set is not whole after its start: {cluster.state()}")


def play(seed: int, plan: SetPlan | None = None) -> Run:
    """One run."""
    from .faults import plan_of

    return play_plan(seed, plan or plan_of(seed), cast("Any", SetCluster), live)
