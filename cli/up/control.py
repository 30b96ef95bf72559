"""The control port of `trocket up --test-clock`, and the clock and the disk that it commands."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from ...common import process
from ...remoting.hosts import join_address
from ...testing.clock import TravelClock
from ...testing.control.server import ControlServer, open_control_listener
from ...testing.disks import EmbeddedDisk, EmbeddedFolderDisk, EmbeddedMemoryDisk
from ...testing.driving import Driver
from .test_clock import mark

if TYPE_CHECKING:
    from ...broker.controller import BrokerController
    from ...common.clock import WallTimeMs
    from ...namesrv.controller import NamesrvController
    from ...remoting.turn import Turn


class Control:
    """The control port of one name server and one broker.

    Lifecycle: `drive` before the servers are made, `serve` when they run.

    Args:
      port: on loopback; 0: any free one.
      folders: of the data, which are marked as those of such a run; empty: it is in memory.

    Attributes:
      url: where it serves, `http://127.0.0.1:PORT`; "" before that.
    """

    def __init__(self, port: int, folders: Sequence[Path]) -> None:
        self.url = ""
        self._port = port
        self._folders = folders
        self._clock = TravelClock()
        self._driver: Driver | None = None

    def drive(self, turn: Turn) -> tuple[TravelClock, EmbeddedDisk]:
        """The clock and the disk for the servers whose turn this is.

        Raises: OSError: a folder cannot be marked.
        """
        mark(self._folders)
        disk: EmbeddedDisk = EmbeddedFolderDisk() if self._folders else EmbeddedMemoryDisk()
        self._driver = Driver(self._clock, disk, turn, lambda function: function())
        return self._clock, disk

    def clients_ms(self) -> WallTimeMs:
        """The time of day of clients, which no test advances: ms since 1970 UTC."""
        return self._clock.clients_ms()

    async def serve(
        self,
        namesrv: NamesrvController,
        broker: BrokerController,
        namesrv_address: str,
        *,
        task_status: trio.TaskStatus[None],
    ) -> None:
        """Serve until cancelled; both servers run.

        Raises: OSError: the port is in use.
        """
        assert self._driver is not None, "drive() was not called"
        addresses = {"namesrv": namesrv_address, "broker": broker.broker_addr}
        with open_control_listener(self._port) as listener:
            host, port = listener.getsockname()[:2]
            self.url = f"http://{join_address(host, port)}"
            server = ControlServer(self._driver, addresses)
            async with trio.open_nursery() as nursery:
                self._driver.drive_namesrv(namesrv, nursery)
                self._driver.drive_broker(broker, nursery)
                nursery.start_soon(server.serve, listener)
                task_status.started()
                process.logger.warning(
                    "a test commands the time of this broker at %(url)s", {"url": self.url}
                )
                try:
                    await trio.sleep_forever()
                finally:
                    self._driver.hurry()
