"""The broker's side of a set, against a controller in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import memory_stream_pair

from trocket.broker.failover.controllers import Controllers
from trocket.broker.failover.identity import Application, IdentityFiles
from trocket.broker.failover.in_sync_duty import InSyncDuty
from trocket.broker.failover.replicas_manager import LogState, ReplicasManager
from trocket.broker.failover.roles import Follower, Place, Role, SetView
from trocket.broker.settings.config import BrokerConfig
from trocket.disk.memory_disk import MemoryDisk
from trocket.remoting.client import RemotingClient
from trocket.store.config import MessageStoreConfig
from trocket.store.writing.in_sync_acks import InSyncAcks

from ...controller.harness import CLUSTER, SET, World, address_of, running, until
from ...kit.clock import TrioClock

CONTROLLER = "10.0.9.1:9878"
SILENT = "10.0.9.2:9878"


class Broker:
    """A broker that has a manager and no data.

    Attributes:
      places: those that the manager has given it, in order.
      log: what its heartbeats say.
      is_cut_off: no controller can be reached.
    """

    def __init__(
        self,
        world: World,
        number: int,
        disk: MemoryDisk,
        *,
        epoch: int = 0,
        may_have_lost: bool = False,
        **keys: object,
    ) -> None:
        self.world = world
        self.places: list[Place] = []
        self.log = LogState(-1, 0, 0)
        self.is_cut_off = False
        self.followers: dict[int, Follower] = {}
        self.acks: InSyncAcks | None = None
        self.lease_count = 0
        self._streams: list[trio.abc.Stream] = []
        self.clock = TrioClock()
        self.client = RemotingClient(open_stream=self._open)
        self.address = address_of(number)
        config = BrokerConfig(
            broker_cluster_name=CLUSTER,
            broker_name=SET,
            controller_addr=f"{SILENT};{CONTROLLER}",
            **keys,  # type: ignore[arg-type]
        )
        self.files = IdentityFiles(disk, "/store/brokerIdentity", CLUSTER, SET)
        self.manager = ReplicasManager(
            config,
            Controllers(self.client, config.controller_addresses),
            self.files,
            address=self.address,
            clock=self.clock,
            log_state=lambda: self.log,
            on_place=self._placed,
            on_lease=self._leased,
            first_epoch=epoch,
            may_have_lost=may_have_lost,
        )

    async def _open(self, host: str, port: int) -> trio.abc.Stream:
        if f"{host}:{port}" == SILENT:
            await trio.sleep_forever()
        if self.is_cut_off:
            raise ConnectionRefusedError(host)
        ours, theirs = memory_stream_pair()
        serve = self.world.server.server.serve_stream
        self.world.nursery.start_soon(serve, theirs, self.address, CONTROLLER)
        self._streams.append(ours)
        return ours

    def _leased(self) -> None:
        self.lease_count += 1

    def _placed(self, place: Place, view: SetView | None) -> None:
        self.places.append(place)
        if place.role is not Role.MASTER or view is None:
            return
        own_id = self.manager.controller_id or 0
        self.acks = InSyncAcks(
            MessageStoreConfig(), self.clock, own_id, view.in_sync, set_epoch=view.in_sync_epoch
        )
        self.acks.reach(100)
        self.manager.duty = InSyncDuty(
            self.acks,
            lambda: self.followers,
            own_id=own_id,
            master_epoch=place.epoch,
            epoch_start=0,
            behind_max_s=15.0,
            now_s=trio.current_time,
        )

    async def cut_off(self) -> None:
        """End its connections to controllers, and let it open no others."""
        self.is_cut_off = True
        for stream in self._streams:
            await trio.aclose_forcefully(stream)

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(self.client.run)
            await self.manager.run()

    @property
    def roles(self) -> list[tuple[Role, int]]:
        return [(place.role, place.epoch) for place in self.places]


@asynccontextmanager
async def serving(*brokers: Broker) -> AsyncIterator[None]:
    async with trio.open_nursery() as nursery:
        for broker in brokers:
            nursery.start_soon(broker.run)
        yield
        nursery.cancel_scope.cancel()


async def test_two_brokers_get_numbers_and_roles_though_one_controller_hangs(
    autojump_clock: object,
) -> None:
    async with running() as world:
        first, second = (Broker(world, number, MemoryDisk()) for number in (1, 2))
        async with serving(first):
            await until(lambda: first.roles == [(Role.MASTER, 1)])
            async with serving(second):
                await until(lambda: second.roles == [(Role.SLAVE, 1)])
                assert (first.manager.controller_id, second.manager.controller_id) == (1, 2)
                assert second.places[0].master_address == first.address
                assert (first.files.controller_id(), second.files.controller_id()) == (1, 2)


async def test_an_application_whose_answer_was_lost_is_repeated(autojump_clock: object) -> None:
    async with running() as world:
        earlier = world.connect(1)
        await earlier.apply(registerCheckCode="the code")
        disk = MemoryDisk()
        broker = Broker(world, 1, disk)
        broker.files.note_application(Application(1, "the code"))
        async with serving(broker):
            await until(lambda: broker.manager.controller_id == 1)


async def test_a_number_that_another_broker_got_first_is_not_taken(autojump_clock: object) -> None:
    async with running() as world:
        await world.connect(1).apply()
        broker = Broker(world, 2, MemoryDisk())
        broker.files.note_application(Application(1, "another code"))
        async with serving(broker):
            await until(lambda: broker.manager.controller_id == 2)
            assert broker.files.application() is None


async def test_a_caught_up_slave_joins_the_set_and_a_lost_one_leaves_it(
    autojump_clock: object,
) -> None:
    async with running() as world:
        first, second = (Broker(world, number, MemoryDisk()) for number in (1, 2))
        async with serving(first):
            await until(lambda: first.acks is not None)
            async with serving(second):
                await until(lambda: second.manager.controller_id == 2)
                acks = first.acks
                assert acks is not None
                first.followers[2] = Follower(100, 0.0)
                await until(lambda: acks.accepted == {1, 2})
                first.followers.clear()
                await until(lambda: acks.accepted == {1})


async def test_an_unanswered_request_counts_until_the_controller_has_said_more(
    autojump_clock: object,
) -> None:
    """F1: the answer may be lost after the controller has accepted the set."""
    async with running() as world:
        first, second = (Broker(world, number, MemoryDisk()) for number in (1, 2))
        async with serving(first):
            await until(lambda: first.acks is not None)
            async with serving(second):
                await until(lambda: second.manager.controller_id == 2)
                acks = first.acks
                assert acks is not None
                await first.cut_off()
                first.followers[2] = Follower(100, 0.0)
                await until(lambda: acks.required == {2})
                await trio.sleep(8)
                assert (acks.accepted, acks.required) == ({1}, {2})


async def test_the_master_of_an_older_epoch_is_not_followed_back(autojump_clock: object) -> None:
    async with running() as world:
        disk = MemoryDisk()
        broker = Broker(world, 1, disk)
        broker.manager.place = Place(Role.WAITING, 7)
        async with serving(broker):
            await trio.sleep(60)
            assert broker.places == []


async def test_a_master_that_is_cut_off_loses_its_lease_and_gets_it_back(
    autojump_clock: object,
) -> None:
    async with running() as world:
        broker = Broker(world, 1, MemoryDisk(), controller_heart_beat_timeout_mills=10_000)
        async with serving(broker):
            await until(lambda: broker.roles == [(Role.MASTER, 1)] and broker.manager.lease.holds)
            await broker.cut_off()
            await trio.sleep(5)
            assert broker.manager.lease.holds
            await trio.sleep(4)
            assert not broker.manager.lease.holds
            renewals = broker.lease_count
            broker.is_cut_off = False
            await until(lambda: broker.manager.lease.holds)
            assert broker.lease_count == renewals + 1


@pytest.mark.parametrize("silent_s", [3.0, 30.0])
async def test_brokers_wait_for_a_controller_that_comes_late(
    silent_s: float, autojump_clock: object
) -> None:
    async with running() as world:
        broker = Broker(world, 1, MemoryDisk())
        broker.is_cut_off = True
        async with serving(broker):
            await trio.sleep(silent_s)
            assert broker.places == []
            broker.is_cut_off = False
            await until(lambda: broker.roles == [(Role.MASTER, 1)])


async def test_a_master_that_may_lack_messages_lets_another_member_be_elected(
    autojump_clock: object,
) -> None:
    async with running() as world, trio.open_nursery() as nursery:
        disk = MemoryDisk()
        first, second = Broker(world, 1, disk), Broker(world, 2, MemoryDisk())
        async with serving(first):
            await until(lambda: first.acks is not None)
            nursery.start_soon(second.run)
            await until(lambda: second.manager.controller_id == 2)
            acks = first.acks
            assert acks is not None
            first.followers[2] = Follower(100, 0.0)
            await until(lambda: acks.accepted == {1, 2})
        # The controller has not noticed that its machine was off.
        again = Broker(world, 1, disk, epoch=1, may_have_lost=True)
        async with serving(again):
            await until(lambda: second.roles[-1:] == [(Role.MASTER, 2)])
            await until(lambda: again.roles == [(Role.SLAVE, 2)])
        nursery.cancel_scope.cancel()


async def test_a_lone_master_that_may_lack_messages_goes_on(autojump_clock: object) -> None:
    async with running() as world:
        disk = MemoryDisk()
        broker = Broker(world, 1, disk)
        async with serving(broker):
            await until(lambda: broker.roles == [(Role.MASTER, 1)])
        again = Broker(world, 1, disk, epoch=1, may_have_lost=True)
        async with serving(again):
            await until(lambda: again.roles == [(Role.MASTER, 1)])
