"""The simulated cluster: two name servers, a master, slaves, four clients; one seed, one run.

A run has four parts. Everything starts. Clients work while faults happen. Then everything heals,
and an operator does what docs/ha.md tells him to do with what the brokers' logs say. Then all that
is there is held against all that was promised.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, NamedTuple, TypeVar

import trio

from trocket.remoting.message import MessageExt
from trocket.remoting.message_codec import decode_record
from trocket.store.config import BrokerRole, FlushDiskType
from trocket.store.message_store import MessageStore

from ..broken import Broken
from ..clock import WorldClock
from ..store.checks import read_queue
from . import process
from .clients import Consumer, Producer
from .machines import BrokerMachine, Machine, NamesrvMachine
from .network import Network
from .oracle import QUEUES, TOPIC, Oracle, Sent

MODES = ("M0", "M1", "M2", "M3")
WORKLOADS = {
    "plain": (6, 1, 0, 0),
    "bursts": (2, 6, 0, 0),
    "batches": (2, 1, 6, 0),
    "delays": (3, 1, 0, 3),
    "mixed": (3, 2, 2, 1),
}
"""Weights of: one message, some at a time, a batch, one with a delay."""

TOPOLOGIES: dict[str, dict[str, Any]] = {
    "two slaves": {"slaves": 2},
    "one slave": {"slaves": 1},
    "two slaves in sync": {"slaves": 2, "in_sync_replicas": 3},
    "a slave comes late": {"slaves": 2, "late": True},
    "small frames": {"slaves": 2, "ha_transfer_batch_size": 100},
    "flow control": {
        "slaves": 2, "ha_flow_control_enable": True, "max_ha_transfer_byte_in_second": 3000,
    },
}  # fmt: skip


PATIENCE_S = 200
"""Virtual seconds that no run takes unless something waits for ever."""


class Plan(NamedTuple):
    """What a seed stands for.

    Attributes:
      mode: M0 to M3, see docs/ha.md.
      topology: one of `TOPOLOGIES`.
      workload: weights, see `WORKLOADS`.
      faults: their names, in the order in which they begin.
      sends: of each producer.
      pause_s: between two of them, at most.
    """

    mode: str
    topology: str
    workload_name: str
    faults: list[str]
    sends: int
    pause_s: float

    @property
    def workload(self) -> tuple[int, ...]:
        return WORKLOADS[self.workload_name]

    @property
    def is_sync_master(self) -> bool:
        return self.mode in ("M2", "M3")

    @property
    def is_sync_flush(self) -> bool:
        return self.mode in ("M1", "M3")


class Run(NamedTuple):
    """One finished run.

    Attributes:
      problem: the promise that is broken; "": none.
      faults: how often each happened.
      answers: of sends, by code.
      notes: its history.
    """

    seed: int
    plan: Plan
    problem: str
    faults: Counter[str]
    answers: Counter[int]
    notes: list[str]

    @property
    def trace(self) -> str:
        """The same for the same run."""
        return hashlib.sha256("\n".join([*self.notes, self.problem]).encode()).hexdigest()


class Cluster:
    """All machines, and what is known of them.

    Attributes:
      wounds: how often any broker lost bytes that it had, or changed its role.
      master: the machine that is the master, or is to be.
      replaced: addresses of masters that were, and are not.
      are_slaves_astray: a slave may show what its master does not have.
      may_part: something happened after which a broker may have what the master has not.
      hides_messages: a broker that has started shows less than it has, until it is confirmed.
      notes: the history.
    """

    new_producer = Producer
    new_consumer = Consumer
    hides_messages = False

    def __init__(self, seed: int, plan: Plan, nursery: trio.Nursery) -> None:
        self.seed = seed
        self.plan = plan
        self.nursery = nursery
        self.clock = WorldClock(trio.lowlevel.current_clock())
        self.oracle = Oracle()
        self.network = Network(self.random("network"))
        self.notes: list[str] = []
        self.answers: Counter[int] = Counter()
        self.hits: Counter[str] = Counter()
        self.wounds = 0
        self.replaced: set[str] = set()
        self.are_slaves_astray = False
        self.may_part = False
        self.namesrvs = [
            NamesrvMachine(self.network, nursery, f"n{number}", f"10.0.0.{number}")
            for number in (1, 2)
        ]
        self.producers = [
            self.new_producer(self, f"p{n}", f"10.0.2.{n}", self.random(f"p{n}")) for n in (1, 2)
        ]
        self.consumers = [
            self.new_consumer(self, f"c{n + 1}", f"10.0.2.{n + 3}", self.random(f"c{n}"), [n])
            for n in range(QUEUES)
        ]
        self._add_brokers()

    def _add_brokers(self) -> None:
        slaves = TOPOLOGIES[self.plan.topology]["slaves"]
        self.brokers = [self._new_broker(number) for number in range(1 + slaves)]
        self.master = self.brokers[0]

    def random(self, name: str) -> Random:
        """A separate source of random numbers, so that one part's draws do not change another's."""
        return Random(f"{self.seed} {name}")

    def _new_broker(self, number: int) -> BrokerMachine:
        plan = self.plan
        flush = FlushDiskType.SYNC_FLUSH if plan.is_sync_flush else FlushDiskType.ASYNC_FLUSH
        more = {k: v for k, v in TOPOLOGIES[plan.topology].items() if k not in ("slaves", "late")}
        names = ";".join(each.address for each in self.namesrvs)
        return BrokerMachine(
            self.network,
            self.nursery,
            f"b{number}",
            f"10.0.1.{number}",
            role=BrokerRole.SLAVE if number else self.master_role,
            broker_id=number,
            options={"flush_disk_type": flush, "namesrv_addr": names, **more},
            random=self.random(f"broker {number}"),
        )

    @property
    def master_role(self) -> BrokerRole:
        """As what a master starts."""
        return BrokerRole.SYNC_MASTER if self.plan.is_sync_master else BrokerRole.ASYNC_MASTER

    @property
    def forward_ms(self) -> int:
        """By how much clocks of brokers were set forward, all together."""
        return sum(broker.clock.forward_ms for broker in self.brokers)

    def not_before_ms(self, delay_ms: int) -> int:
        """When a message that is sent now may be there, less all of `forward_ms`.

        Another broker may become the master, whose clock is ahead of this one's.
        """
        wrong = [broker.clock.wrong_ms for broker in self.brokers]
        return self.now_ms + delay_ms - (max(wrong) - min(wrong)) + self.forward_ms

    @property
    def machines(self) -> list[Machine]:
        """All but the clients'."""
        return [*self.namesrvs, *self.brokers]

    @property
    def slaves(self) -> list[BrokerMachine]:
        """All brokers but the master."""
        return [each for each in self.brokers if each is not self.master]

    @property
    def now_ms(self) -> int:
        """What time it is, by no machine's clock."""
        return self.clock.now_ms

    def lead_astray(self) -> None:
        """From now on a slave may have what the master has not."""
        self.are_slaves_astray = self.may_part = True

    def note(self, text: str) -> None:
        """A line of the history."""
        self.notes.append(f"{trio.current_time():10.4f} {text}")

    def machine_at(self, address: str) -> BrokerMachine:
        """The broker with an address."""
        return next(each for each in self.brokers if each.address == address)

    # ---- what is promised at once --------------------------------------------------------

    def check_replicas(self, sent: Sent, physical_offset: int, address: str) -> None:
        """SEND_OK: where the mode says that the message is by now, it is. Called when it came, if
        nothing was lost since it was asked for."""
        plan = self.plan
        master = self.machine_at(address)
        if address in self.oracle.losers or not (plan.is_sync_flush or plan.is_sync_master):
            return
        durable = plan.is_sync_flush
        head = master.log_bytes(physical_offset, 4, durable=False)
        size = int.from_bytes(head, "big")
        record = master.log_bytes(physical_offset, size, durable=False)
        if not record or sent.body not in record:
            raise Broken("N1", f"m{sent.number} is not at {physical_offset} of {master.name}")
        if durable and master.log_bytes(physical_offset, size, durable=True) != record:
            raise Broken("N1", f"m{sent.number} is not on {master.name}'s device")
        if plan.is_sync_master:
            have = [
                each.name
                for each in self.brokers
                if each is not master
                and each.log_bytes(physical_offset, size, durable=durable) == record
            ]
            needed = max(1, TOPOLOGIES[plan.topology].get("in_sync_replicas", 1) - 1)
            if len(have) < needed:
                where = "on the devices" if durable else "in the files"
                raise Broken("N1", f"m{sent.number} is {where} of {have}, {needed} are promised")

    # ---- what is there -------------------------------------------------------------------

    def queues_of(self, store: MessageStore) -> list[list[MessageExt]]:
        """All messages of the topic that a store has."""
        found = []
        for queue_id in range(QUEUES):
            low, high = store.min_offset(TOPIC, queue_id), store.max_offset(TOPIC, queue_id)
            content = read_queue(store, (TOPIC, queue_id), low, high)
            messages = []
            position = 0
            while position < len(content):
                messages.append(decode_record(content, position))
                position += messages[-1].store_size
            found.append(messages)
        return found


C = TypeVar("C", bound=Cluster)


async def live(cluster: Cluster) -> None:
    """The whole run."""
    from .checks import verify
    from .cluster_operator import heal, start_all
    from .faults import happen

    async with trio.open_nursery() as nursery:
        nursery.start_soon(cluster.network.run)
        nursery.start_soon(end_of_patience)
        for peer in (*cluster.producers, *cluster.consumers):
            await nursery.start(peer.client.run)
        await start_all(cluster)
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
        for machine in cluster.brokers:
            machine.die()  # another clean stop would show nothing new
        nursery.cancel_scope.cancel()


async def end_of_patience() -> None:
    """End a run that waits for ever."""
    await trio.sleep(PATIENCE_S)
    raise Broken("progress", f"the run has not come to its end in {PATIENCE_S} s")


async def let_go(cluster: Cluster) -> None:
    """When the run ends early, processes that stand still must end, too."""
    try:
        await trio.sleep_forever()
    finally:
        for machine in cluster.machines:
            machine.process.go_on()


def play(seed: int, plan: Plan | None = None) -> Run:
    """One run."""
    from .faults import plan_of

    return play_plan(seed, plan or plan_of(seed), Cluster, live)


def play_plan(
    seed: int,
    plan: Any,
    make: Callable[[int, Any, trio.Nursery], C],
    live: Callable[[C], Awaitable[None]],
) -> Run:
    """One run of a plan.

    Args:
      make: the cluster.
      live: the whole run.
    """
    clusters: list[C] = []

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            clusters.append(make(seed, plan, nursery))
            nursery.start_soon(let_go, clusters[0])
            await live(clusters[0])
            nursery.cancel_scope.cancel()

    problem = ""
    try:
        process.run(main, f"{seed} trio")
    except Broken as broken:
        problem = str(broken)
    cluster = clusters[0]
    return Run(seed, plan, problem, cluster.hits, cluster.answers, cluster.notes)
