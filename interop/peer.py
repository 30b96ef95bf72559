"""The interface of a cluster under test: a name server with one broker; the base of local ones."""

from __future__ import annotations

import abc
import os
import signal
import ssl
from pathlib import Path
from typing import Protocol

from .ports import free_broker_port, free_port
from .wire import TlsAddress


class Cluster(Protocol):
    """One name server and one broker on the loopback address, in separate processes.

    Created stopped; `start` and `start_broker` return when clients can send. Ports and folders stay
    the same over restarts. Not thread-safe.
    """

    label: str
    """Its name in reports: "trocket" or "apache-5.5.0"."""

    @property
    def namesrv_address(self) -> str:
        """HOST:PORT of the name server."""

    @property
    def broker_address(self) -> str:
        """HOST:PORT of the broker."""

    @property
    def pids(self) -> list[int]:
        """All processes, the broker's first."""

    def start(self) -> None:
        """Start what does not run and wait until it is ready. Raises PeerError."""

    def start_broker(self) -> None:
        """Start the broker again after `stop_broker` or `kill_broker`. Raises PeerError."""

    def stop_broker(self) -> None:
        """Stop the broker gracefully (SIGTERM) and wait. Raises PeerError."""

    def kill_broker(self) -> None:
        """Kill the broker (SIGKILL) and wait until it is gone."""

    def close(self) -> None:
        """Stop everything that runs."""


class Part(Protocol):
    """A started name server, broker or filter server: a process or a container."""

    @property
    def pid(self) -> int:
        """Its process id on this machine."""

    def stop(self, *, timeout_s: float) -> int:
        """Stop it by SIGTERM and wait; the exit code. Raises PeerError."""

    def kill(self) -> None:
        """Kill it with SIGKILL and wait."""


class LocalCluster(abc.ABC):
    """A `Cluster` on free ports of this machine.

    Args:
      label: its name in reports.
      folder: holds all files of this run.
      stop_timeout_s: how long a part may take to end after SIGTERM.
      context: the servers take TLS only: of connections of the harness to them; None: plain ones.
    """

    PARTS = ("broker", "namesrv", "filtersrv")
    """The names of the parts, the broker's first."""

    def __init__(
        self,
        label: str,
        folder: Path,
        *,
        stop_timeout_s: float,
        context: ssl.SSLContext | None = None,
    ) -> None:
        self.label = label
        self.folder = folder
        self._stop_timeout_s = stop_timeout_s
        self._context = context
        self._namesrv_port = free_port()
        self._broker_port = free_broker_port()
        self._running: dict[str, Part] = {}

    @property
    def namesrv_address(self) -> str:
        """HOST:PORT of the name server."""
        return self._address(self._namesrv_port)

    @property
    def broker_address(self) -> str:
        """HOST:PORT of the broker."""
        return self._address(self._broker_port)

    def _address(self, port: int) -> str:
        address = f"127.0.0.1:{port}"
        return address if self._context is None else TlsAddress.of(address, self._context)

    @property
    def pids(self) -> list[int]:
        """The processes that were started, the broker's first."""
        return [self._running[name].pid for name in self.PARTS if name in self._running]

    @abc.abstractmethod
    def _launch(self, name: str) -> None:
        """Start one part, add it to `_running`, and wait until it is ready. Raises PeerError."""

    def start(self) -> None:
        """Start the name server, then the broker, and wait for both.

        Raises: PeerError: one of them ended, or was not ready in time.
        """
        self.start_namesrv()
        self.start_broker()

    def start_namesrv(self) -> None:
        """Start the name server. Raises: PeerError: as `start`."""
        if "namesrv" not in self._running:
            self._launch("namesrv")

    def start_broker(self) -> None:
        """Start the broker. Raises: PeerError: as `start`."""
        if "broker" not in self._running:
            self._launch("broker")

    def stop_namesrv(self) -> None:
        """Stop the name server by SIGTERM. Raises: PeerError: as `stop_broker`."""
        self._stop("namesrv")

    def stop_broker(self) -> None:
        """Stop the broker by SIGTERM.

        Raises: PeerError: it did not end in time, or our broker's exit code is not 0.
        """
        self._stop("broker")

    def kill_broker(self) -> None:
        self._kill("broker")

    def freeze_broker(self) -> None:
        """Freeze the running broker (SIGSTOP): it keeps its connections and does nothing."""
        os.kill(self._running["broker"].pid, signal.SIGSTOP)

    def thaw_broker(self) -> None:
        """Let a frozen broker go on (SIGCONT)."""
        os.kill(self._running["broker"].pid, signal.SIGCONT)

    def close(self) -> None:
        """Kill all parts; use `stop_broker` before if the broker must flush."""
        self.kill_broker()
        for name in list(self._running):
            self._kill(name)

    def _stop(self, name: str) -> None:
        part = self._running.pop(name, None)
        if part is not None:
            part.stop(timeout_s=self._stop_timeout_s)

    def _kill(self, name: str) -> None:
        part = self._running.pop(name, None)
        if part is not None:
            part.kill()
