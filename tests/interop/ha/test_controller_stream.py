"""The stream of controller mode between a store of ours and brokers of Apache's 5.5.0.

The store runs in this process, without a broker: what a broker does with its role is tested
elsewhere.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from trocket.common.clock import SystemClock
from trocket.interop.controller_mode import (
    APACHE,
    BROKER_NAME,
    CLUSTER,
    FILE_SIZE,
    ControlledSet,
    Mix,
)
from trocket.interop.ports import free_port
from trocket.interop.process import PeerError
from trocket.interop.wire import Outgoing, WireClient
from trocket.store.config import BrokerRole, MessageStoreConfig
from trocket.store.ha.epochs import EpochFile, Epochs, decode_epochs
from trocket.store.ha.master import HaMaster, open_ha_listener
from trocket.store.ha.member import SetMember
from trocket.store.ha.slave import HaSlave
from trocket.store.message_store import MessageStore
from trocket.store.services import run_services
from trocket.store.writing.in_sync_acks import ConfirmedCopy, InSyncAcks

from ...store.ha.support import fill

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("java")]

TOPIC = "Orders"
HA_STATUS = 907
SYNC_TIMEOUT_S = 120.0
JOIN_TIMEOUT_S = 3.0
"""Apache's own slave is first seen after 5 s, as it does not report an empty log at once."""


async def until(what: str, holds: Callable[[], Awaitable[Any] | Any], timeout_s: float) -> Any:
    """Wait until a condition holds, and return its value."""
    with trio.move_on_after(timeout_s):
        while True:
            value = holds()
            if isinstance(value, Awaitable):
                value = await value
            if value:
                return value
            await trio.sleep(0.05)
    pytest.fail(f"not within {timeout_s:g} s: {what}")


def open_store(folder: Path, role: BrokerRole) -> MessageStore:
    folder.mkdir()
    config = MessageStoreConfig(
        store_path_root_dir=str(folder), mapped_file_size_commit_log=FILE_SIZE, broker_role=role
    )
    in_sync: InSyncAcks | ConfirmedCopy = ConfirmedCopy()
    if role is BrokerRole.SYNC_MASTER:
        in_sync = InSyncAcks(config, SystemClock(), 1, frozenset([1, 2]))
    store = MessageStore(config, in_sync=in_sync)
    store.load()
    return store


def assert_same_log(ours: Path, theirs: Path, end: int) -> None:
    for base in range(0, end, FILE_SIZE):
        name = f"commitlog/{base:020d}"
        size = min(FILE_SIZE, end - base)
        assert (ours / name).read_bytes()[:size] == (theirs / name).read_bytes()[:size], name


def slaves_of(address: str) -> list[dict[str, Any]]:
    """What a master says of its slaves."""
    with WireClient(address) as client:
        body = json.loads(client.call(HA_STATUS, {}).checked().body)
    return list(body.get("haConnectionInfo") or [])


def has_an_idle_slave(address: str) -> bool:
    """Whether a slave has reported its empty log; a master has it at -1 when it has connected."""
    return [each["slaveAckOffset"] for each in slaves_of(address)] == [0]


def produce(address: str, count: int) -> None:
    """Send to a master; one that was just started, or elected, may refuse for a while."""
    deadline_s = time.monotonic() + SYNC_TIMEOUT_S
    while True:
        try:
            with WireClient(address) as client:
                client.create_topic(TOPIC, queue_count=2)
                client.send_all(
                    [Outgoing(TOPIC, n % 2, b"%d " % n + bytes(9_000)) for n in range(count)]
                )
                return
        except PeerError:
            if time.monotonic() > deadline_s:
                raise
            threading.Event().wait(0.5)


def log_end(address: str) -> int:
    with WireClient(address) as client:
        return int(json.loads(client.call(HA_STATUS, {}).body)["masterCommitLogMaxOffset"])


def test_our_slave_follows_apaches_master(tmp_path: Path) -> None:
    with ControlledSet(Mix((APACHE,), APACHE), tmp_path) as brokers:
        brokers.start()
        (member,) = brokers.members
        trio.run(_follow_apache, brokers, tmp_path / "ours")
        epochs = decode_epochs((member.store / "epochFileCheckpoint").read_bytes())
        assert decode_epochs((tmp_path / "ours" / "epochFileCheckpoint").read_bytes()) == epochs
        # It was started again, and so elected again.
        assert len(epochs) > 1


async def _follow_apache(brokers: ControlledSet, folder: Path) -> None:
    (master,) = brokers.members
    host, _, port = master.address.partition(":")
    store = open_store(folder, BrokerRole.SLAVE)
    epochs = EpochFile(store.disk, store.config.epoch_file)
    place = SetMember(2, 1, epochs, master_ha_address=f"{host}:{int(port) + 1}")
    slave = HaSlave(store, member=place)
    run = trio.to_thread.run_sync
    async with trio.open_nursery() as nursery:
        await nursery.start(run_services, store)
        nursery.start_soon(slave.run)
        await until(
            "the idle slave is seen",
            partial(run, has_an_idle_slave, master.address),
            JOIN_TIMEOUT_S,
        )
        # More than a file.
        await run(produce, master.address, 2_000)
        await _caught_up(store, master.address)
        await run(master.stop)
        await run(master.start)
        await run(brokers.wait_in_sync, 1)
        await run(produce, master.address, 100)
        await _caught_up(store, master.address)
        nursery.cancel_scope.cancel()
    end = store.max_physical_offset
    assert end > FILE_SIZE
    assert store.durability.confirm_offset == end
    store.close()
    assert_same_log(folder, master.store, end)


async def _caught_up(store: MessageStore, address: str) -> None:
    async def holds() -> bool:
        return await trio.to_thread.run_sync(log_end, address) == store.max_physical_offset

    await until("the slave has the master's log", holds, SYNC_TIMEOUT_S)

    def all_is_confirmed() -> bool:
        return store.durability.confirm_offset == store.max_physical_offset

    await until("the slave knows that it is confirmed", all_is_confirmed, SYNC_TIMEOUT_S)


# ---- the other way around ----------------------------------------------------------------


class StandIn:
    """The master of a set, as far as a controller and a name server know.

    Args:
      address: HOST:PORT, the broker's; nothing listens there.
      ha_address: HOST:PORT, where its log is sent.
    """

    def __init__(self, brokers: ControlledSet, address: str, ha_address: str) -> None:
        self.address = address
        self._names = {"clusterName": CLUSTER, "brokerName": BROKER_NAME}
        self._controller = WireClient(brokers.controller_addresses[0])
        self._namesrv = WireClient(brokers.namesrv_address)
        self._ha_address = ha_address
        self._is_over = threading.Event()
        self._heart = threading.Thread(target=self._beat)

    def register(self) -> int:
        """Become the master; returns its epoch."""
        deadline_s = time.monotonic() + 60
        id_fields = {**self._names, "brokerId": 1, "invokeTime": 1}
        while True:
            try:
                self._call(1012, {})
                break
            except PeerError:  # the controller has no leader yet
                if time.monotonic() > deadline_s:
                    raise
                threading.Event().wait(0.2)
        check = f"{self.address};1"
        self._call(1013, {"appliedBrokerId": 1, "registerCheckCode": check})
        self._call(1003, {**id_fields, "brokerAddress": self.address})
        self._heartbeat()
        answer = self._call(1002, {**id_fields, "designateElect": False})
        self._heart.start()
        self._register_at_name_server()
        return int(answer["masterEpoch"])

    def close(self) -> None:
        self._is_over.set()
        if self._heart.is_alive():
            self._heart.join()
        self._controller.close()
        self._namesrv.close()

    def _call(self, code: int, fields: dict[str, object]) -> dict[str, str]:
        return self._controller.call(code, {**self._names, **fields}).checked().fields

    def _heartbeat(self) -> None:
        fields: dict[str, object] = {
            "brokerAddr": self.address,
            "brokerId": 1,
            "epoch": 1,
            "maxOffset": 0,
            "confirmOffset": 0,
            "heartbeatTimeoutMills": 60_000,
            "electionPriority": 1,
        }
        self._call(904, fields)

    def _beat(self) -> None:
        while not self._is_over.wait(0.5):
            self._heartbeat()

    def _register_at_name_server(self) -> None:
        fields = {
            **self._names,
            "brokerAddr": self.address,
            "haServerAddr": self._ha_address,
            "brokerId": 0,
            "compressed": False,
            "bodyCrc32": 0,
        }
        version = {"counter": 1, "stateVersion": 1, "timestamp": 1}
        wrapper = {"topicConfigTable": {}, "dataVersion": version}
        body = {"topicConfigSerializeWrapper": wrapper, "filterServerList": []}
        self._namesrv.call(103, fields, json.dumps(body).encode()).checked()


@contextmanager
def stand_in(brokers: ControlledSet, ha_address: str) -> Iterator[StandIn]:
    master = StandIn(brokers, f"127.0.0.1:{free_port()}", ha_address)
    try:
        yield master
    finally:
        master.close()


def test_apaches_slave_follows_our_master(tmp_path: Path) -> None:
    with ControlledSet(Mix((APACHE,), APACHE), tmp_path) as brokers:
        brokers.start_namesrv()
        for controller in brokers.controllers:
            controller.start()
        trio.run(_lead_apache, brokers, tmp_path / "ours")


async def _lead_apache(brokers: ControlledSet, folder: Path) -> None:
    (slave,) = brokers.members
    store = open_store(folder, BrokerRole.SYNC_MASTER)
    epochs = EpochFile(store.disk, store.config.epoch_file)
    listener = open_ha_listener(store.config, port=free_port())
    host, port = listener.getsockname()
    run = trio.to_thread.run_sync
    with stand_in(brokers, f"{host}:{port}") as known:
        epoch = await run(known.register)
        epochs.save(Epochs([(epoch, 0)]))
        master = HaMaster(store, SetMember(1, epoch, epochs))
        async with trio.open_nursery() as nursery:
            await nursery.start(run_services, store)
            await nursery.start(master.serve, [listener])
            fill(store, 20_000)
            await run(slave.start)
            await _acknowledged(store, master)
            # Killed, it comes back and goes on.
            await run(slave.kill)
            fill(store, 10, topic="Away")
            await run(slave.start)
            await _acknowledged(store, master)
            # Elected again while it is connected, with messages in each epoch. The controller does
            # not know of these, and a broker never starts with an epoch above the controller's.
            for number in range(epoch + 1, epoch + 4):
                epochs.save(epochs.epochs.append(number, store.max_physical_offset))
                fill(store, 10, topic=f"T{number}")
            await _acknowledged(store, master)
            (seen,) = master.state().slaves
            assert seen.controller_id == 2
            nursery.cancel_scope.cancel()
    end = store.max_physical_offset
    assert decode_epochs((slave.store / "epochFileCheckpoint").read_bytes()) == epochs.epochs
    store.close()
    assert_same_log(folder, slave.store, end)


async def _acknowledged(store: MessageStore, master: HaMaster) -> None:
    def holds() -> bool:
        return [state.ack_offset for state in master.state().slaves] == [store.max_physical_offset]

    await until("Apache's slave has acknowledged the log", holds, SYNC_TIMEOUT_S)
    assert store.durability.confirm_offset == store.max_physical_offset
