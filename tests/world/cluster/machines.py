"""Machines of the simulated cluster: brokers and name servers that die and come back."""

from __future__ import annotations

from random import Random
from typing import Any

import trio

from trocket.broker.controller import BrokerController
from trocket.broker.replication.replication import MasterSide, SlaveSide
from trocket.broker.settings.config import BrokerConfig
from trocket.common.config import ConfigError
from trocket.disk.errors import StoreError
from trocket.namesrv.config import NamesrvConfig
from trocket.namesrv.controller import NamesrvController
from trocket.remoting.turn import Turn
from trocket.store.config import BrokerRole, FlushDiskType, MessageStoreConfig
from trocket.store.ha.slave import FollowerState
from trocket.store.message_store import MessageStore

from ...trio_order import first_of
from ..clock import WorldClock
from ..machine_disk import ROOT, MachineDisk, SlowThread
from .network import LOG, REMOTING, Endpoint, EndpointStream, Listener, Network, NetworkClient
from .process import RUNNING, Process

NAMESRV_PORT, BROKER_PORT = 9876, 10911
FILE_SIZE = 4096
"""Bytes of a commit log file: a dozen messages, so that a short run sees many ends of files."""

REFUSALS_TO_START = (StoreError, ConfigError)


class Machine:
    """What all machines have in common.

    Attributes:
      process: the one that runs, or ran last.
      lock: held while it is started or ended.
      wounds: how often it lost bytes that it had: with the power, its disk, or by decay.
    """

    port: int

    def __init__(self, network: Network, nursery: trio.Nursery, name: str, host: str) -> None:
        self.name = name
        self.host = host
        self.clock = WorldClock(trio.lowlevel.current_clock())
        self.lock = trio.Lock()
        self.wounds = 0
        self.process = Process(name, host)
        self.process.is_alive = False
        self.process.ended.set()
        self.network = network
        self._nursery = nursery

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def is_up(self) -> bool:
        """Whether its program runs."""
        return self.process.is_alive and not self.process.ended.is_set()

    async def start(self) -> None:
        """Start the program. Raises: StoreError: it does not start."""
        assert not self.is_up
        self.network.dark.discard(self.host)
        self.network.look_again()
        self.process = process = Process(self.name, self.host)
        await self._nursery.start(self._run_as, process)

    async def _run_as(self, process: Process, *, task_status: trio.TaskStatus[None]) -> None:
        RUNNING.set(process)  # for this task, and all that it starts
        await self._run(process, task_status=task_status)

    async def stop(self) -> None:
        """End the program in good order."""
        process = self.process
        process.go_on()
        self._unlisten()
        process.scope.cancel()
        await process.ended.wait()
        process.is_alive = False
        self.network.process_ended(process, silently=False)

    def _gone(self, *, silently: bool) -> None:
        """The program is dead: nothing it sends arrives."""
        process = self.process
        if process.is_alive:
            process.is_alive = False
            process.go_on()
            self._unlisten()
            if silently:
                self.network.dark.add(self.host)
            self.network.process_ended(process, silently=silently)

    def _unlisten(self) -> None:
        for address in [key for key in self.network.listeners if key[0] == self.host]:
            del self.network.listeners[address]

    async def _run(self, process: Process, *, task_status: trio.TaskStatus[None]) -> None:
        raise NotImplementedError


class NamesrvMachine(Machine):
    """A name server: all it knows is in memory."""

    port = NAMESRV_PORT

    async def _run(self, process: Process, *, task_status: trio.TaskStatus[None]) -> None:
        turn = Turn()
        controller = NamesrvController(
            NamesrvConfig(), clock=self.clock, disk=MachineDisk.empty(), turn=turn, listeners=[]
        )

        def serve(endpoint: Endpoint) -> None:
            process.start_soon(controller.server.serve_transport, endpoint)

        try:
            with process.scope:
                async with trio.open_nursery() as nursery:
                    await nursery.start(controller.run)
                    async with trio.open_nursery() as process.nursery:
                        listener = Listener(process, turn, REMOTING, serve)
                        self.network.listeners[self.host, self.port] = listener
                        task_status.started()
                        await trio.sleep_forever()
        finally:
            process.ended.set()

    async def kill(self, *, power: bool = False) -> None:
        """Kill it; its memory is gone."""
        self._gone(silently=power)
        self.process.scope.cancel()
        await self.process.ended.wait()


class DiskMachine(Machine):
    """A machine with a disk.

    Args:
      random: of what its program leaves to chance.

    Attributes:
      disk: what the next start finds, or the running program has.
    """

    def __init__(
        self, network: Network, nursery: trio.Nursery, name: str, host: str, random: Random
    ) -> None:
        super().__init__(network, nursery, name, host)
        self.disk = MachineDisk.empty()
        self._dies_with_power = False
        self._random = random

    def _die(self) -> None:
        """The moment of its death; `finish` clears away."""
        self._gone(silently=self._dies_with_power)
        self.process.scope.cancel()

    def die_after(self, writes: int, *, power: bool = False) -> None:
        """Let it die before the n-th write to its disk from now."""
        self._dies_with_power = power
        self.disk.die_after(writes)

    def die(self, *, power: bool = False) -> None:
        """Let it die now, if it has not."""
        self._dies_with_power = power or self._dies_with_power
        self.disk.die()

    async def finish(self, power: str | None, random: Random) -> None:
        """Once it is dead: what a start finds is on its disk.

        Args:
          power: the kind of image that a power cut leaves; None: a kill.
        """
        self.die(power=power is not None)
        self.process.scope.cancel()
        await self.process.ended.wait()
        self._dies_with_power = False
        self.disk = self.disk.after_crash(power, random)
        if power is not None:
            self.wounds += 1

    def wipe(self) -> None:
        """Empty its store, as an operator does; it does not run."""
        assert not self.is_up
        self.disk = MachineDisk.empty()
        self.wounds += 1

    async def try_start(self) -> str:
        """Start it; why it does not run then, "": it does."""
        try:
            await self.start()
        except BaseExceptionGroup as group:
            errors, others = group.split(REFUSALS_TO_START)
            if others is not None or errors is None:
                raise
            return str(first_of(errors))
        except REFUSALS_TO_START as error:
            return str(error)
        except RuntimeError:  # trio's word for a task that ended while it was being started
            if self.disk.left is None:
                raise
            return "it died while it started"
        return ""


class BrokerMachine(DiskMachine):
    """A broker and its disk.

    Args:
      options: fields of both configurations, but for the role.
      random: of what the broker leaves to chance.

    Attributes:
      role, broker_id: with which it starts.
      controller: of the process that runs, or ran last.
    """

    port = BROKER_PORT

    def __init__(
        self,
        network: Network,
        nursery: trio.Nursery,
        name: str,
        host: str,
        *,
        role: BrokerRole,
        broker_id: int,
        options: dict[str, Any],
        random: Random,
    ) -> None:
        super().__init__(network, nursery, name, host, random)
        self.role = role
        self.broker_id = broker_id
        self.options = options
        self.controller: BrokerController

    @property
    def is_slave(self) -> bool:
        """Whether it is started as one."""
        return self.role is BrokerRole.SLAVE

    @property
    def store(self) -> MessageStore:
        """Its store."""
        return self.controller.store

    @property
    def following(self) -> FollowerState:
        """Where this slave is."""
        side = self.controller.replication
        assert isinstance(side, SlaveSide)
        return side._ha.state()

    def is_followed_by(self, slave: BrokerMachine) -> bool:
        """Whether this master knows of a connected slave."""
        side = self.controller.replication
        assert isinstance(side, MasterSide)
        return any(each.address.startswith(f"{slave.host}:") for each in side.ha.state().slaves)

    @property
    def is_sync_flush(self) -> bool:
        """Whether what it says is on the device is meant so."""
        return self.options["flush_disk_type"] is FlushDiskType.SYNC_FLUSH

    def configs(self) -> tuple[BrokerConfig, MessageStoreConfig]:
        """Both configurations, as its files have them."""
        broker: dict[str, Any] = {
            "broker_name": "b",
            "broker_ip1": self.host,
            "broker_ip2": self.host,
            "broker_id": self.broker_id,
            "register_name_server_period": 10_000,
            "register_broker_timeout_mills": 2_000,
            "slave_sync_interval": 3_000,
            "slave_read_enable": True,
        }
        store: dict[str, Any] = {
            "broker_role": self.role,
            "store_path_root_dir": ROOT,
            "mapped_file_size_commit_log": FILE_SIZE,
            "mapped_file_size_consume_queue": 20 * 10,
            "mapper_file_size_batch_consume_queue": 46 * 10,
            "max_hash_slot_num": 20,
            "max_index_num": 60,
            "slave_timeout": 1_500,
            "ha_send_heartbeat_interval": 2_000,
            "ha_housekeeping_interval": 5_000,
            # Else nothing protects a record's head and properties from decay, as in Apache's.
            "enabled_append_prop_crc": True,
            # Every hour may be the one in which what is expired goes.
            "delete_when": ";".join(map(str, range(24))),
            "clean_resource_interval": 3_000,
            # Space alone is no reason to delete, but where a fault says so.
            "clean_file_forcibly_enable": False,
        }
        for name, value in self.options.items():
            (broker if name in BrokerConfig.__dataclass_fields__ else store)[name] = value
        return BrokerConfig(**broker), MessageStoreConfig(**store)

    def _new_controller(self, process: Process, turn: Turn) -> BrokerController:
        return BrokerController(
            *self.configs(),
            clock=self.clock,
            disk=self.disk,
            turn=turn,
            listeners=[],
            random=self._random,
            client=NetworkClient(self.network, process, turn),
            ha_connect=lambda address: self.network.connect_log(process, address),
        )

    async def _run(self, process: Process, *, task_status: trio.TaskStatus[None]) -> None:
        turn = Turn()
        disk = self.disk
        controller = self._new_controller(process, turn)
        self._make_fsync_slow(controller.store, disk)
        self.controller = controller

        def die() -> None:
            controller._close = lambda: None  # type: ignore[method-assign] # as a killed process
            self._die()

        if disk.left is None:
            disk.on_death = die
        try:
            with process.scope:
                async with trio.open_nursery() as nursery:
                    await nursery.start(controller.run)
                    async with trio.open_nursery() as process.nursery:
                        if process.is_alive:
                            self._listen(process, controller, turn)
                        task_status.started()
                        await trio.sleep_forever()
        finally:
            self._unlisten_of(process)
            process.ended.set()

    def _make_fsync_slow(self, store: MessageStore, disk: MachineDisk) -> None:
        """Have a slow fsync take virtual time, in what stands for the flusher's thread."""
        flusher = store.flusher
        flush = flusher.flush_in_thread
        flusher._thread = SlowThread(disk)  # type: ignore[assignment]

        async def flush_slowly(*, threaded: bool) -> None:
            await flush(threaded=threaded or disk.sync_s > 0)

        flusher.flush_in_thread = flush_slowly  # type: ignore[method-assign]

    def _listen(self, process: Process, controller: BrokerController, turn: Turn) -> None:
        server, side = controller.server, controller.replication
        assert server is not None

        def serve(endpoint: Endpoint) -> None:
            process.start_soon(server.serve_transport, endpoint)

        listeners = self.network.listeners
        listeners[self.host, self.port] = Listener(process, turn, REMOTING, serve)
        if isinstance(side, MasterSide):

            def serve_log(endpoint: Endpoint) -> None:
                stream = EndpointStream(endpoint)
                process.start_soon(side.ha.serve_stream, stream, endpoint.remote_address)

            listeners[self.host, self.port + 1] = Listener(process, None, LOG, serve_log)

    def _unlisten_of(self, process: Process) -> None:
        listeners = self.network.listeners
        for address in [key for key, each in listeners.items() if each.process is process]:
            del listeners[address]

    # ---- what its disk has ---------------------------------------------------------------

    def log_bytes(self, physical_offset: int, size: int, *, durable: bool) -> bytes:
        """Bytes of its log, in its files or on its device."""
        base = physical_offset - physical_offset % FILE_SIZE
        path = f"{ROOT}/commitlog/{base:020d}"
        return self.disk.read(path, physical_offset - base, size, durable=durable)
