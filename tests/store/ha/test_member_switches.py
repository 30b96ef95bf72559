"""A set whose master changes again and again: confirmed messages stay, and logs become the same.

The test is the controller and the owner of the stores: it elects members of the in-sync set, closes
and opens stores, and cuts their logs where they ask for it.
"""

from __future__ import annotations

import random
from functools import partial

import pytest
import trio
import trio.testing

from trocket.disk.memory_disk import MemoryDisk
from trocket.store.config import BrokerRole
from trocket.store.ha.epochs import EpochFile
from trocket.store.ha.master import HaMaster
from trocket.store.ha.member import SetMember
from trocket.store.ha.slave import HaSlave
from trocket.store.message_store import MessageStore
from trocket.store.services import run_services
from trocket.store.status import PutMessageStatus
from trocket.store.writing.in_sync_acks import ConfirmedCopy, InSyncAcks

from ...kit import TrioClock
from ..support import ROOT, put, small_config
from .support import ADDRESS, Network, log_bytes
from .test_member_replication import until

MEMBERS = (1, 2, 3)
SEEDS = 15


class Broker:
    """One member: its disk, and, while it runs, its store."""

    def __init__(self, number, nursery, network):
        self.number = number
        self.disk = MemoryDisk(journalled=True)
        self.store = None
        self.cut_at = None
        self.ha = None
        self._nursery = nursery
        self._network = network
        self._scope = trio.CancelScope()

    async def start(self, epoch, *, is_master):
        """Open the store in a role; cut if that was asked for."""
        role = BrokerRole.SYNC_MASTER if is_master else BrokerRole.SLAVE
        config = small_config(broker_role=role)
        clock = TrioClock()
        self.acks = ConfirmedCopy()
        if is_master:
            self.acks = InSyncAcks(config, clock, self.number, frozenset([self.number]))
        self.store = MessageStore(
            config, clock=clock, disk=self.disk, memory_bytes=1 << 30, in_sync=self.acks
        )
        self.store.load(self.cut_at)
        end = self.store.max_physical_offset
        file = EpochFile(self.disk, f"{ROOT}/epochFileCheckpoint")
        file.load()
        if self.cut_at is not None:
            assert end <= self.cut_at
            file.save(file.epochs.cut(end))
        self.cut_at = None
        if is_master:
            file.save(file.epochs.append(epoch, end))
        self.member = SetMember(self.number, epoch, file, on_cut=self._note_cut)
        await self._nursery.start(self._run, is_master)

    def _note_cut(self, point):
        self.cut_at = point

    async def _run(self, is_master, *, task_status):
        with trio.CancelScope() as self._scope:
            async with trio.open_nursery() as nursery:
                await nursery.start(run_services, self.store)
                if is_master:
                    self.ha = self._network.master = HaMaster(self.store, self.member)
                    await nursery.start(self.ha.serve)
                else:
                    self.ha = HaSlave(self.store, connect=self._network.connect, member=self.member)
                    self.ha.set_master(ADDRESS)
                    nursery.start_soon(self.ha.run)
                task_status.started()
                await trio.sleep_forever()

    async def stop(self, *, kill):
        """End the process, or close the store."""
        if self.store is None:
            return
        if self._network.master is self.ha:
            self._network.master = None
        if kill:
            self.disk.process_death()
        self._scope.cancel()
        await trio.testing.wait_all_tasks_blocked()
        if not kill:
            self.store.close()
        self.store = None


class ElectedSet:
    """The members, and what was confirmed."""

    def __init__(self, seed, nursery):
        self.random = random.Random(seed)
        self.network = Network(nursery)
        self.brokers = {number: Broker(number, nursery, self.network) for number in MEMBERS}
        self.in_sync = frozenset([1])
        self.epoch = 0
        self.confirmed = {}
        self.sent = 0
        self.cuts = 0

    async def elect(self):
        """Close all that run, and open them again under another master of the in-sync set."""
        chance = self.random
        for broker in self.brokers.values():
            await broker.stop(kill=chance.random() < 0.5)
        self.network.cut()
        self.epoch += 1
        self.master = self.brokers[chance.choice(sorted(self.in_sync))]
        self.in_sync = frozenset([self.master.number])
        self.master.cut_at = None  # it was asked by a master that is none any more
        await self.master.start(self.epoch, is_master=True)
        for broker in self.brokers.values():
            if broker is not self.master and chance.random() < 0.8:
                await broker.start(self.epoch, is_master=False)

    def send(self, count):
        """Send to the master; what is confirmed is noted when it is."""
        for _ in range(count):
            self.sent += 1
            body = b"%d %d" % (self.epoch, self.sent) + bytes(self.random.randrange(400))
            store = self.master.store
            refusal, offset, _ = put(store, body, topic="T", queue_id=self.sent % 2)
            assert refusal is None
            store.commit()
            store.when_replicated(offset, partial(self._answered, offset, body))

    def _answered(self, offset, body, status):
        if status is PutMessageStatus.PUT_OK:
            self.confirmed[offset] = body

    async def settle(self):
        """Let slaves follow, cut them where they ask, and let them join the set."""
        for _ in range(8):
            await trio.sleep(0.5)
            for broker in self.brokers.values():
                if broker.store is not None and broker.cut_at is not None:
                    self.cuts += 1
                    await broker.stop(kill=self.random.random() < 0.5)
                    await broker.start(self.epoch, is_master=False)
        self._let_join()
        await trio.sleep(0.5)

    def _let_join(self):
        acks, start = self.master.acks, self.master.member.epochs.epochs[-1].start
        join_from = max(start, acks.confirm_offset)
        joined = {
            state.controller_id
            for state in self.master.ha.state().slaves
            if state.ack_offset >= join_from
        }
        members = self.in_sync | joined
        if members != self.in_sync:
            acks.count_too(members)
            acks.accept(members, acks.set_epoch + 1)
            self.in_sync = members

    async def play(self, rounds):
        """Elect, send, let slaves join, send, part the slaves, send."""
        for _ in range(rounds):
            await self.elect()
            for act in (self.settle, self.part):
                self.send(self.random.choice([0, 0, 1, 3, 60]))
                if self.random.random() < 0.7:
                    await act()
        await self.elect()
        for broker in self.brokers.values():
            if broker.store is None:
                await broker.start(self.epoch, is_master=False)
        await self.settle()
        self.send(1)

    async def part(self):
        """Let no slave reach the master for a while; it confirms what its set has."""
        ha, self.network.master = self.network.master, None
        self.network.cut()
        self.send(self.random.choice([0, 1, 5]))
        await trio.sleep(0.5)
        if self.random.random() < 0.5:
            self.network.master = ha

    def check(self):
        """Raise AssertionError unless all members have the same, and all that was confirmed."""
        stores = [broker.store for broker in self.brokers.values()]
        logs = [log_bytes(store) for store in stores]
        for broker, log in zip(self.brokers.values(), logs, strict=True):
            assert log == logs[0], broker.number
            epochs = broker.member.epochs.epochs
            assert epochs == self.master.member.epochs.epochs
            assert epochs[-1].start <= broker.store.max_physical_offset
        size = 64 * 1024
        for offset, body in self.confirmed.items():
            record = logs[0][offset - offset % size][offset % size :][: 200 + len(body)]
            assert body in record, offset


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_confirmed_messages_outlive_every_change_of_the_master(autojump_clock, seed):
    async with trio.open_nursery() as nursery:
        brokers = ElectedSet(seed, nursery)
        await brokers.play(6)
        end = brokers.master.store.max_physical_offset
        for broker in brokers.brokers.values():
            await until(lambda store=broker.store: store.max_physical_offset == end, 60)
        brokers.check()
        nursery.cancel_scope.cancel()
