"""Machines of the simulated set: brokers in controller mode, and controllers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import trio

from trocket.broker.controller import BrokerController
from trocket.broker.failover.replicas_manager import ReplicasManager
from trocket.broker.failover.roles import Role
from trocket.broker.failover.set_broker import SetBroker
from trocket.broker.replication.replication import MasterSide
from trocket.controller.broker_set import BrokerSet
from trocket.controller.config import ControllerConfig
from trocket.controller.probe import ATTEMPT_TIMEOUT_S, PAUSES_S
from trocket.controller.server import ControllerServer
from trocket.controller.state_store import NOTHING, StateStore
from trocket.remoting.tls_settings import new_tls
from trocket.remoting.turn import Turn
from trocket.store.config import BrokerRole

from ..cluster.machines import REFUSALS_TO_START, BrokerMachine, DiskMachine
from ..cluster.network import (
    LOG,
    REMOTING,
    Endpoint,
    EndpointStream,
    Listener,
    Network,
    NetworkClient,
)
from ..cluster.process import Process
from ..machine_disk import DEVICE, MachineDisk

CONTROLLER_PORT = 9878
SET = "b"
_TLS = new_tls()


class SetMachine(BrokerMachine):
    """A broker of the set, and its disk.

    Args:
      options: as of `BrokerMachine`.
      on_open: called with each broker that has loaded its data, before it serves.

    Attributes:
      program: the one that runs, or ran last.
      inner: the broker that has loaded its data last.
    """

    def __init__(
        self,
        network: Network,
        nursery: trio.Nursery,
        name: str,
        host: str,
        *,
        options: dict[str, Any],
        random: Random,
        on_open: Callable[[SetMachine, BrokerController], None],
    ) -> None:
        super().__init__(
            network, nursery, name, host, role=BrokerRole.SLAVE, broker_id=0, options=options,
            random=random,
        )  # fmt: skip
        self.program: SetBroker
        self.inner: BrokerController
        self.on_open = on_open
        self._waiting: list[Endpoint] = []
        self._serve: Callable[[Endpoint], None] = self._waiting.append

    @property
    def manager(self) -> ReplicasManager:
        """What knows its place in the set."""
        return self.program.manager

    @property
    def serving(self) -> BrokerController | None:
        """The broker of its present role; None: it is being opened, or does not run."""
        return self.program.broker if self.is_up else None

    @property
    def controller(self) -> BrokerController:  # type: ignore[override]
        """The broker that has loaded its data last."""
        return self.inner

    def is_master_of(self, epoch: int) -> bool:
        """Whether it serves as the master of an epoch."""
        place = self.manager.place
        return self.serving is not None and (place.role, place.epoch) == (Role.MASTER, epoch)

    async def _run(self, process: Process, *, task_status: trio.TaskStatus[None]) -> None:
        turn, has_started = Turn(), False
        if self.disk.left is None:
            self.disk.on_death = self._die
        self._waiting.clear()
        self._serve = self._waiting.append
        listener = Listener(process, None, REMOTING, lambda endpoint: self._serve(endpoint))
        try:
            broker, store = self.configs()
            self.program = SetBroker(
                broker,
                store,
                clock=self.clock,
                disk=self.disk,
                tls=_TLS,
                listeners=[],
                client=NetworkClient(self.network, process, turn),
                make=partial(_InnerBroker, self, process),
            )
            with process.scope:
                async with trio.open_nursery() as nursery:
                    # Its sockets listen while its data is opened, in each role.
                    self.network.listeners[self.host, self.port] = listener
                    await nursery.start(self.program.run)
                    has_started = True
                    task_status.started()
                    await trio.sleep_forever()
        except* REFUSALS_TO_START:
            # It says why in its log, and ends.
            self._gone(silently=False)
            if not has_started:
                raise
        finally:
            self._unlisten_of(process)
            process.ended.set()

    def serve_by(
        self, process: Process, broker: BrokerController, connections: trio.Nursery
    ) -> None:
        """Serve connections by the broker of the present role, those that wait first."""
        server, side = broker.server, broker.replication
        assert server is not None
        process.nursery = connections

        def serve(endpoint: Endpoint) -> None:
            endpoint.turn = broker.turn
            process.start_soon(server.serve_transport, endpoint)

        self._serve = serve
        waiting, self._waiting = self._waiting, []
        for endpoint in waiting:
            if not endpoint.is_closed:
                serve(endpoint)
        if isinstance(side, MasterSide):

            def serve_log(endpoint: Endpoint) -> None:
                stream = EndpointStream(endpoint)
                process.start_soon(side.ha.serve_stream, stream, endpoint.remote_address)

            log = Listener(process, None, LOG, serve_log)
            self.network.listeners[self.host, self.port + 1] = log

    def serve_no_more(self, process: Process) -> None:
        """Have connections wait for the broker of the next role."""
        self._serve = self._waiting.append
        log = self.network.listeners.get((self.host, self.port + 1))
        if log is not None and log.process is process:
            del self.network.listeners[self.host, self.port + 1]


class _InnerBroker(BrokerController):
    """The broker of one role, in the world's network."""

    def __init__(self, machine: SetMachine, process: Process, *arguments: Any, **more: Any) -> None:
        self._machine = machine
        self._process = process
        turn = Turn()
        more |= {
            "listeners": [],
            "turn": turn,
            "random": machine._random,
            "client": NetworkClient(machine.network, process, turn),
            "ha_connect": partial(machine.network.connect_log, process),
        }
        super().__init__(*arguments, **more)
        machine._make_fsync_slow(self.store, machine.disk)

    def load(self) -> None:
        super().load()
        if self._process.is_alive:
            self._machine.inner = self
            self._machine.on_open(self._machine, self)

    async def _serve(self, *arguments: Any) -> None:
        async with trio.open_nursery() as connections:
            if self._process.is_alive:
                self._machine.serve_by(self._process, self, connections)
            try:
                await super()._serve(*arguments)
            finally:
                self._machine.serve_no_more(self._process)

    def _close(self) -> None:
        if self._process.is_alive:  # else as a killed process
            super()._close()


class ControllerMachine(DiskMachine):
    """A controller and its disk.

    Args:
      peers: of controllerDLegerPeers; "": it is alone.
      store: makes its view of the state, for its name, its disk and its folder.

    Attributes:
      server: the one that runs, or ran last.
    """

    port = CONTROLLER_PORT

    def __init__(
        self,
        network: Network,
        nursery: trio.Nursery,
        name: str,
        host: str,
        *,
        random: Random,
        peers: str = "",
        store: Callable[[str, MachineDisk, str], StateStore],
    ) -> None:
        super().__init__(network, nursery, name, host, random)
        self.server: ControllerServer
        self._peers = peers
        self._store = store

    @property
    def leads(self) -> bool:
        """Whether it believes that it leads."""
        return self.is_up and self.server.leadership.leader is not None

    def stored_set(self) -> BrokerSet | None:
        """What its file has; for a controller alone that runs."""
        sets = getattr(self.server.store, "_sets", {})
        found: BrokerSet | None = sets.get(SET, NOTHING).broker_set
        return found

    async def _run(self, process: Process, *, task_status: trio.TaskStatus[None]) -> None:
        turn, has_started = Turn(), False
        if self.disk.left is None:
            self.disk.on_death = self._die
        config = ControllerConfig(
            controller_d_leger_peers=self._peers,
            controller_d_leger_self_id=self.name,
            controller_store_path=f"{DEVICE}/controller",
            config_store_path=f"{DEVICE}/controller/controller.properties",
            scan_not_active_broker_interval=1_000,
            allow_remote_administration=True,
        )
        self.server = server = ControllerServer(
            config,
            clock=self.clock,
            disk=self.disk,
            store=self._store(self.name, self.disk, f"{DEVICE}/controller"),
            turn=turn,
            listeners=[],
            tls=_TLS,
            client=NetworkClient(self.network, process, turn),
            is_gone=partial(self._is_gone, process),
        )

        def serve(endpoint: Endpoint) -> None:
            process.start_soon(server.server.serve_transport, endpoint)

        try:
            with process.scope:
                async with trio.open_nursery() as nursery:
                    await nursery.start(server.run)
                    async with trio.open_nursery() as process.nursery:
                        if process.is_alive:
                            listener = Listener(process, turn, REMOTING, serve)
                            self.network.listeners[self.host, self.port] = listener
                        has_started = True
                        task_status.started()
                        await trio.sleep_forever()
        except* REFUSALS_TO_START:
            self._gone(silently=False)
            if not has_started:
                raise
        finally:
            for address in [
                key for key, each in self.network.listeners.items() if each.process is process
            ]:
                del self.network.listeners[address]
            process.ended.set()

    async def _is_gone(self, process: Process, address: str) -> bool:
        """As `is_refused` of the controller's probe, in this network."""
        host, _, port = address.rpartition(":")
        for pause_s in PAUSES_S:
            await trio.sleep(pause_s)
            with trio.move_on_after(ATTEMPT_TIMEOUT_S):
                try:
                    endpoint = await self.network.connect(process, host, int(port))
                except ConnectionRefusedError:
                    return True
                except OSError:
                    continue
                endpoint.close()
        return False
