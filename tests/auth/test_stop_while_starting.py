"""Servers that are stopped at any moment of their start leave no listener behind."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import pytest
import trio

from trocket.broker.controller import BrokerController
from trocket.broker.settings.config import BrokerConfig
from trocket.common.clock import SystemClock
from trocket.controller.config import ControllerConfig
from trocket.controller.server import ControllerServer
from trocket.disk.memory_disk import MemoryDisk
from trocket.filtersrv.config import FiltersrvConfig
from trocket.filtersrv.controller import FiltersrvController
from trocket.namesrv.config import NamesrvConfig
from trocket.namesrv.controller import NamesrvController
from trocket.proxy.config import ProxyConfig
from trocket.proxy.controller import ProxyController
from trocket.store.config import BrokerRole, MessageStoreConfig

HERE = {"bind_address": "127.0.0.1"}
METRICS = {"metrics_exporter_type": "PROM", "metrics_prom_exporter_port": 0}


def broker() -> Any:
    store = MessageStoreConfig(
        store_path_root_dir="/store",
        broker_role=BrokerRole.SYNC_MASTER,
        mapped_file_size_commit_log=64 * 1024,
        ha_listen_port=0,
        ha_listen_address="127.0.0.1",
        max_hash_slot_num=100,
        max_index_num=400,
    )
    config = BrokerConfig(listen_port=0, broker_ip1="127.0.0.1", **HERE, **METRICS)
    return BrokerController(config, store, clock=SystemClock(), disk=MemoryDisk())


def namesrv() -> Any:
    config = NamesrvConfig(listen_port=0, **HERE, **METRICS)
    return NamesrvController(config, clock=SystemClock(), disk=MemoryDisk())


def controller() -> Any:
    config = ControllerConfig(listen_port=0, controller_store_path="/c", **HERE, **METRICS)
    return ControllerServer(config, clock=SystemClock(), disk=MemoryDisk())


def filtersrv() -> Any:
    return FiltersrvController(
        FiltersrvConfig(listen_port=0, connect_which_broker="127.0.0.1:9", **HERE), {}
    )


def proxy() -> Any:
    return ProxyController(ProxyConfig(grpc_server_port=0, **HERE), now_ms=SystemClock().wall_ms)


class CancelsAt(trio.abc.Instrument):
    """Cancels a scope after a number of steps of tasks."""

    def __init__(self, steps: int, scope: trio.CancelScope) -> None:
        self._left = steps
        self._scope = scope

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self._left -= 1
        if not self._left:
            self._scope.cancel()


@pytest.mark.parametrize("make", [broker, namesrv, controller, filtersrv, proxy])
def test_no_listener_is_left(make: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[socket.socket] = []
    listen = socket.socket.listen

    def recorded(self: socket.socket, *args: int) -> None:
        opened.append(self)
        listen(self, *args)

    monkeypatch.setattr(socket.socket, "listen", recorded)
    has_started = False

    async def run(steps: int) -> None:
        nonlocal has_started
        with trio.fail_after(30), trio.CancelScope() as scope:
            trio.lowlevel.add_instrument(CancelsAt(steps, scope))
            async with trio.open_nursery() as nursery:
                await nursery.start(make().run)
                has_started = True
                scope.cancel()

    steps = 0
    while not has_started:
        steps += 1
        trio.run(run, steps)
        left = [each for each in opened if each.fileno() >= 0]
        assert left == [], steps
        assert steps < 1_000
    assert opened
