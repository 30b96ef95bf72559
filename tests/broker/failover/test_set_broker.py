"""Brokers of a set in one process: a controller over TCP, stores in memory, roles that change."""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

import pytest
import trio

from trocket.broker.controller import BrokerController
from trocket.broker.failover import set_broker
from trocket.broker.failover.roles import Role
from trocket.broker.failover.set_broker import SetBroker
from trocket.broker.settings.config import BrokerConfig
from trocket.broker.settings.listening import listen
from trocket.common.clock import SystemClock
from trocket.controller.config import ControllerConfig
from trocket.controller.server import ControllerServer
from trocket.disk.errors import StoreError
from trocket.disk.memory_disk import MemoryDisk
from trocket.remoting.bodies import EpochEntryCache, SubscriptionGroupConfig, SyncStateSet
from trocket.remoting.client import RemotingClient
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.headers import (
    ElectMasterRequestHeader,
    NotifyBrokerRoleChangedRequestHeader,
    encode_header,
)
from trocket.remoting.message_codec import decode_record
from trocket.remoting.request_codes import RequestCode
from trocket.remoting.response_codes import ResponseCode
from trocket.remoting.server import open_listener
from trocket.store.config import MessageStoreConfig

from ...kit import send_fields, topic_fields
from ...world.store.checks import read_queue
from ..sending.test_send_back import back_fields

NAME, TOPIC, GROUP = "broker-a", "Orders", "billing"
DEADLINE_S = 60.0
QUICK = {
    "broker_heartbeat_interval": 50,
    "controller_heart_beat_timeout_mills": 1_000,
    "sync_broker_metadata_period": 200,
    "sync_controller_metadata_period": 200,
    "check_sync_state_set_period": 50,
}


@pytest.fixture(autouse=True)
def _stores_are_opened_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(set_broker, "REOPEN_AFTER_S", 0.2)


class Member:
    """A broker of the set that can be stopped and started; its disk stays."""

    def __init__(self, cluster: Cluster, number: int) -> None:
        self.disk = MemoryDisk()
        self._cluster = cluster
        self._number = number
        self._scope = trio.CancelScope()
        self._ended = trio.Event()
        self.broker: SetBroker

    async def start(self) -> None:
        listeners = listen("127.0.0.1", 0)
        self.broker = SetBroker(
            BrokerConfig(
                broker_name=NAME,
                broker_ip1="127.0.0.1",
                bind_address="127.0.0.1",
                enable_controller_mode=True,
                controller_addr=self._cluster.controller,
                **QUICK,  # type: ignore[arg-type]
            ),
            MessageStoreConfig(
                store_path_root_dir="/store",
                mapped_file_size_commit_log=64 * 1024,
                max_hash_slot_num=100,
                max_index_num=400,
                ha_send_heartbeat_interval=500,
                slave_timeout=500,
            ),
            clock=SystemClock(),
            disk=self.disk,
            listeners=listeners,
        )
        self._scope, self._ended = trio.CancelScope(), trio.Event()
        await self._cluster.nursery.start(self._run)

    async def _run(self, *, task_status: trio.TaskStatus[None]) -> None:
        with self._scope:
            await self.broker.run(task_status=task_status)
        self._ended.set()

    async def stop(self) -> None:
        self._scope.cancel()
        await self._ended.wait()

    @property
    def role(self) -> Role:
        return self.broker.manager.place.role

    @property
    def serving(self) -> BrokerController | None:
        """The broker of the present role, once it has loaded its data."""
        return self.broker.broker

    @property
    def log_end(self) -> int:
        return -1 if self.serving is None else self.serving.store.max_physical_offset

    @property
    def confirmed(self) -> int:
        return -1 if self.serving is None else self.serving.store.durability.confirm_offset


class Cluster:
    """A controller, two brokers, and a client that calls them."""

    def __init__(self, nursery: trio.Nursery, client: RemotingClient) -> None:
        self.nursery = nursery
        self.client = client
        self.controller = ""
        self.first, self.second = Member(self, 1), Member(self, 2)
        self._controller_disk = MemoryDisk()
        self._controller_scope = trio.CancelScope()
        self._controller_ended = trio.Event()

    async def start_controller(self) -> None:
        """Start it, on the port that it had before."""
        port = int(self.controller.rpartition(":")[2] or 0)
        server = ControllerServer(
            ControllerConfig(
                controller_store_path="/c",
                config_store_path="/c/controller.conf",
                scan_not_active_broker_interval=100,
            ),
            clock=SystemClock(),
            disk=self._controller_disk,
            listeners=[open_listener("127.0.0.1", port)],
        )
        self._controller_scope, self._controller_ended = trio.CancelScope(), trio.Event()

        async def run(*, task_status: trio.TaskStatus[None]) -> None:
            with self._controller_scope:
                await server.run(task_status=task_status)
            self._controller_ended.set()

        await self.nursery.start(run)
        self.controller = server.listen_addresses[0]

    async def stop_controller(self) -> None:
        self._controller_scope.cancel()
        await self._controller_ended.wait()

    async def call(
        self, address: str, code: int, fields: Mapping[str, object], body: bytes = b""
    ) -> RemotingCommand:
        texts = {name: str(value) for name, value in fields.items()}
        return await self.client.call(address, RemotingCommand(code, texts, body), 5.0)

    async def send(self, member: Member, body: bytes) -> int:
        """The code of the answer to a send."""
        address = member.broker.broker_addr
        return (
            await self.call(address, RequestCode.SEND_MESSAGE_V2, send_fields(TOPIC), body)
        ).code

    async def send_back(self, member: Member) -> int:
        """The code of the answer to a consumer that sends the first message back."""
        assert member.serving is not None
        store = member.serving.store
        message = decode_record(read_queue(store, (TOPIC, 0), 0, 1))
        group = SubscriptionGroupConfig(group_name=GROUP)
        address = member.broker.broker_addr
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        await self.call(address, code, {}, group.to_body())
        fields = back_fields(message, group=GROUP)
        return (await self.call(address, RequestCode.CONSUMER_SEND_MSG_BACK, fields)).code

    async def pair(self) -> None:
        """Start both, the first as the master, with both in sync."""
        await self.first.start()
        await until(lambda: self.first.role is Role.MASTER and self.first.serving is not None)
        await self.second.start()
        await until(self.is_whole)
        answer = await self.call(
            self.first.broker.broker_addr,
            RequestCode.UPDATE_AND_CREATE_TOPIC,
            topic_fields(TOPIC, 1),
        )
        assert answer.code == ResponseCode.SUCCESS

    def is_whole(self) -> bool:
        """Whether both are in sync."""
        members = (self.first, self.second)
        return any(
            each.serving is not None
            and each.role is Role.MASTER
            and each.serving.member is not None
            and getattr(each.serving.member.in_sync, "accepted", ()) == {1, 2}
            for each in members
        )


def bodies(member: Member) -> list[bytes]:
    """The bodies of all messages that a consumer can see at a broker, each once.

    A send that was answered by a time-out may be stored, and `until_answered` sends again.
    """
    if member.serving is None:
        return []
    store = member.serving.store
    content = read_queue(store, (TOPIC, 0), 0, store.max_offset(TOPIC, 0))
    found, position = [], 0
    while position < len(content):
        message = decode_record(content, position)
        found.append(message.body)
        position += message.store_size
    return list(dict.fromkeys(found))


def log_bytes(member: Member) -> bytes:
    assert member.serving is not None
    store = member.serving.store
    return bytes(store.log.read(0, store.max_physical_offset) or b"")


async def until(condition: Callable[[], bool]) -> None:
    with trio.fail_after(DEADLINE_S):
        while not condition():  # noqa: ASYNC110 - any condition
            await trio.sleep(0.01)


async def until_answered(ask: Callable[[], Awaitable[int]], wanted: int) -> None:
    with trio.fail_after(DEADLINE_S):
        while True:
            try:
                if await ask() == wanted:
                    return
            except Exception:  # noqa: BLE001 - it is being opened
                pass
            await trio.sleep(0.05)


@asynccontextmanager
async def cluster() -> AsyncIterator[Cluster]:
    async with trio.open_nursery() as nursery:
        client = RemotingClient()
        await nursery.start(client.run)
        world = Cluster(nursery, client)
        await world.start_controller()
        yield world
        nursery.cancel_scope.cancel()


async def test_the_slave_takes_the_place_of_a_master_that_stops_and_leads_it_when_it_returns() -> (
    None
):
    async with cluster() as world:
        await world.pair()
        assert await world.send(world.first, b"one") == ResponseCode.SUCCESS
        await world.first.stop()
        await until_answered(lambda: world.send(world.second, b"two"), ResponseCode.SUCCESS)
        await world.first.start()
        await until(lambda: world.first.role is Role.SLAVE and world.is_whole())
        await until(lambda: world.first.log_end == world.second.log_end > 0)
        answer = await world.call(
            world.first.broker.broker_addr, RequestCode.GET_BROKER_EPOCH_CACHE, {"brokerName": NAME}
        )
        found = EpochEntryCache.from_body(answer.body)
        assert (found.broker_id, [entry.epoch for entry in found.epoch_list]) == (1, [1, 2])
        assert found.max_offset == world.first.log_end


async def test_a_designated_master_takes_over_from_one_that_is_alive() -> None:
    async with cluster() as world:
        await world.pair()
        header = ElectMasterRequestHeader(
            cluster_name="DefaultCluster", broker_name=NAME, broker_id=2, designate_elect=True
        )
        answer = await world.call(
            world.controller, RequestCode.CONTROLLER_ELECT_MASTER, encode_header(header)
        )
        assert answer.code == ResponseCode.SUCCESS
        await until(lambda: world.second.role is Role.MASTER and world.first.role is Role.SLAVE)
        await until_answered(lambda: world.send(world.second, b"two"), ResponseCode.SUCCESS)
        await until_answered(lambda: world.send(world.first, b"x"), ResponseCode.SYSTEM_BUSY)
        await until(world.is_whole)


async def test_what_was_not_confirmed_is_cut_from_a_returning_master() -> None:
    async with cluster() as world:
        await world.pair()
        assert await world.send(world.first, b"confirmed") == ResponseCode.SUCCESS
        await until(lambda: world.second.confirmed == world.first.log_end)
        # Without a controller the set stays as it is, so nothing is confirmed without the second.
        await world.stop_controller()
        await world.second.stop()
        assert await world.send(world.first, b"lost") == ResponseCode.FLUSH_SLAVE_TIMEOUT
        # A consumer commits past a message that it has sent back, so it must know, too.
        assert await world.send_back(world.first) == ResponseCode.FLUSH_SLAVE_TIMEOUT
        assert world.first.confirmed < world.first.log_end
        assert bodies(world.first) == [b"confirmed"]
        await world.first.stop()
        await world.start_controller()
        await world.second.start()
        await until_answered(lambda: world.send(world.second, b"new"), ResponseCode.SUCCESS)
        await world.first.start()
        await until(lambda: world.first.role is Role.SLAVE and world.is_whole())
        await until(lambda: bodies(world.first) == bodies(world.second) == [b"confirmed", b"new"])
        assert log_bytes(world.first) == log_bytes(world.second)


async def test_the_present_master_goes_on_without_a_controller() -> None:
    async with cluster() as world:
        await world.pair()
        await world.stop_controller()
        with trio.move_on_after(3 * QUICK["controller_heart_beat_timeout_mills"] / 1000):
            while True:
                assert await world.send(world.first, b"one") == ResponseCode.SUCCESS
                await trio.sleep(0.1)
        assert (world.first.role, world.second.role) == (Role.MASTER, Role.SLAVE)


def no_room(operation: str, path: str) -> OSError | None:
    """The fault of a disk that has no room for a byte of the log."""
    if operation == "pwrite" and "/commitlog/" in path:
        return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return None


async def test_a_master_whose_disk_fails_gives_way_and_follows_once_it_works() -> None:
    async with cluster() as world:
        await world.pair()
        assert await world.send(world.first, b"one") == ResponseCode.SUCCESS
        world.first.disk.fault = no_room
        assert await world.send(world.first, b"refused") == ResponseCode.SERVICE_NOT_AVAILABLE
        await until_answered(lambda: world.send(world.second, b"two"), ResponseCode.SUCCESS)
        world.first.disk.fault = None
        await until(lambda: world.first.role is Role.SLAVE and world.is_whole())
        await until(lambda: bodies(world.first) == bodies(world.second) == [b"one", b"two"])
        assert log_bytes(world.first) == log_bytes(world.second)


async def test_a_lone_master_whose_disk_failed_goes_on_once_it_works() -> None:
    async with cluster() as world:
        await world.pair()
        await world.second.stop()
        await until_answered(lambda: world.send(world.first, b"one"), ResponseCode.SUCCESS)
        world.first.disk.fault = no_room
        assert await world.send(world.first, b"refused") == ResponseCode.SERVICE_NOT_AVAILABLE
        world.first.disk.fault = None
        await until_answered(lambda: world.send(world.first, b"two"), ResponseCode.SUCCESS)
        assert bodies(world.first)[-1:] == [b"two"]
        assert b"refused" not in bodies(world.first)


async def test_a_slave_whose_disk_failed_follows_once_it_works() -> None:
    async with cluster() as world:
        await world.pair()
        world.second.disk.fault = no_room
        await until_answered(lambda: world.send(world.first, b"one"), ResponseCode.SUCCESS)
        world.second.disk.fault = None
        await until(lambda: world.second.log_end == world.first.log_end and world.is_whole())
        await until(lambda: bodies(world.second) == bodies(world.first))


class _FullDisk:
    """The fault of a disk on which nothing is written; it counts the openings of the store."""

    def __init__(self) -> None:
        self.openings = 0

    def __call__(self, operation: str, path: str) -> OSError | None:
        self.openings += operation == "make_folder" and path == "/store"
        if operation in {"pwrite", "allocate", "rename", "make_folder"}:
            return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return None


async def is_refused(address: str) -> bool:
    """Whether a connection to `address` is closed at once."""
    host, _, port = address.rpartition(":")
    try:
        async with await trio.open_tcp_stream(host, int(port)) as stream:
            return await stream.receive_some() == b""
    except OSError:
        return True


@pytest.mark.parametrize("name", ["first", "second"])
async def test_a_broker_that_cannot_be_opened_again_is_opened_once_it_can(name: str) -> None:
    async with cluster() as world:
        await world.pair()
        await until_answered(lambda: world.send(world.first, b"one"), ResponseCode.SUCCESS)
        failing = getattr(world, name)
        address = failing.broker.broker_addr
        full = failing.disk.fault = _FullDisk()
        # The store of a slave fails by what its master sends it.
        await world.send(world.first, b"either")
        await until(lambda: full.openings >= 3)
        with trio.fail_after(DEADLINE_S):
            assert await is_refused(address)
        other = world.second if name == "first" else world.first
        await until_answered(lambda: world.send(other, b"two"), ResponseCode.SUCCESS)
        failing.disk.fault = None
        await until(lambda: failing.role is Role.SLAVE and world.is_whole())
        await until(lambda: bodies(world.first) == bodies(world.second))
        assert {b"one", b"two"} <= {*bodies(world.first)}


async def test_a_broker_that_cannot_be_opened_at_its_start_ends() -> None:
    async with cluster() as world:
        world.first.disk.fault = _FullDisk()
        with pytest.RaisesGroup(StoreError, flatten_subgroups=True, allow_unwrapped=True):
            await world.first.start()


async def test_a_notification_is_only_a_hint() -> None:
    async with cluster() as world:
        await world.pair()
        header = NotifyBrokerRoleChangedRequestHeader(
            master_address="10.9.9.9:1",
            master_broker_id=9,
            master_epoch=99,
            sync_state_set_epoch=99,
        )
        answer = await world.call(
            world.first.broker.broker_addr,
            RequestCode.NOTIFY_BROKER_ROLE_CHANGED,
            encode_header(header),
            SyncStateSet(sync_state_set={9}, sync_state_set_epoch=99).to_body(),
        )
        assert answer.code == ResponseCode.SUCCESS
        assert await world.send(world.first, b"one") == ResponseCode.SUCCESS
        assert (world.first.role, world.second.role) == (Role.MASTER, Role.SLAVE)
