"""The control port of `trocket up --test-clock`, and the clock and the disk that it commands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from ...broker.settings.listening import listeners_of
from ...common import process
from ...remoting.hosts import join_address
from ...remoting.server import open_listener
from ...remoting.turn import Turn
from ...testing.clock import TravelClock
from ...testing.control.restarts import Restarts
from ...testing.control.server import ControlServer, open_control_listener
from ...testing.disks import EmbeddedDisk, EmbeddedFolderDisk, EmbeddedMemoryDisk
from ...testing.driving import Driver
from ...testing.ports import hold_ports
from ...testing.recording.taps import tapped_listeners
from .test_clock import mark

if TYPE_CHECKING:
    import socket

    from ...broker.controller import BrokerController
    from ...broker.settings.config import BrokerConfig
    from ...common.clock import WallTimeMs
    from ...namesrv.config import NamesrvConfig
    from ...namesrv.controller import NamesrvController


class Control:
    """The control port of one name server and one broker.

    Lifecycle: `held_ports` around all starts of the servers, `drive` at each of them, `serve` once,
    when they run.

    Args:
      port: on loopback; 0: any free one.
      folders: of the data, which are marked as those of such a run; empty: it is in memory.

    Attributes:
      url: where it serves, `http://127.0.0.1:PORT`; "" before that.
      clock, turn: of the servers.
      restarts: what has the servers end and start again.
    """

    def __init__(self, port: int, folders: Sequence[Path]) -> None:
        self.url = ""
        self.clock, self.turn = TravelClock(), Turn()
        self._port = port
        self._folders = folders
        disk: EmbeddedDisk = EmbeddedFolderDisk() if folders else EmbeddedMemoryDisk()
        self._driver = Driver(self.clock, disk, self.turn, lambda function: function())
        self.restarts = Restarts(self._driver)

    @property
    def disk(self) -> EmbeddedDisk:
        """The disk of the servers; another one after a crash."""
        return self._driver.disk

    def clients_ms(self) -> WallTimeMs:
        """The time of day of clients, which no test advances: ms since 1970 UTC."""
        return self.clock.clients_ms()

    @contextmanager
    def held_ports(self, namesrv: NamesrvConfig, broker: BrokerConfig) -> Iterator[None]:
        """Mark the folders, and keep the ports of both for all starts; 0 becomes a free one.

        Raises: OSError: a folder cannot be marked, or a port is in use.
        """
        mark(self._folders)
        ports = hold_ports(
            namesrv.bind_address,
            namesrv=namesrv.listen_port,
            broker=broker.listen_port,
            broker_host=broker.bind_address,
        )
        namesrv.listen_port, broker.listen_port = ports.namesrv, ports.broker
        try:
            yield
        finally:
            ports.close()

    def namesrv_listeners(self, config: NamesrvConfig) -> Sequence[socket.socket]:
        """The name server's sockets, whose traffic the port can record.

        Raises: OSError: an address is in use.
        """
        listener = open_listener(config.bind_address, config.listen_port)
        return tapped_listeners([listener], self._driver.tape)

    def broker_listeners(self, config: BrokerConfig) -> Sequence[socket.socket]:
        """The same for the broker."""
        return tapped_listeners(listeners_of(config), self._driver.tape)

    def drive(
        self,
        namesrv: tuple[NamesrvController, trio.Nursery],
        broker: tuple[BrokerController, trio.Nursery],
    ) -> None:
        """Command these servers, each with the nursery in which it runs."""
        self._driver.drive_namesrv(*namesrv)
        self._driver.drive_broker(*broker)
        self.restarts.serving()

    def hurry(self) -> None:
        """Have no fsync take long, so that the broker can end."""
        self._driver.hurry()

    async def serve(self, addresses: dict[str, str], *, task_status: trio.TaskStatus[None]) -> None:
        """Serve until cancelled.

        Args:
          addresses: `host:port` of both servers, by "namesrv" and "broker".

        Raises: OSError: the port is in use.
        """
        with open_control_listener(self._port) as listener:
            host, port = listener.getsockname()[:2]
            self.url = f"http://{join_address(host, port)}"
            task_status.started()
            process.logger.warning(
                "a test commands the time of this broker at %(url)s", {"url": self.url}
            )
            await ControlServer(self._driver, addresses, self.restarts).serve(listener)
