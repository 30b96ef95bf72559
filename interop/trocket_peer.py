"""Our servers as processes: `trocket up`, a separate name server and broker, or a filter server.

The filter server may belong to an Apache broker. A broker also starts filter servers itself, by its
key `filterServerNums`.
"""

from __future__ import annotations

import ssl
import sys
from collections.abc import Mapping
from pathlib import Path

from .apache import broker_conf_text
from .peer import LocalCluster
from .process import LineProcess, PeerError

COMMAND = (sys.executable, "-m", "trocket.cli.main")
FREE_METRICS_PORT = ("--metrics-port", "0")
START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 30.0
UNBUFFERED = {"PYTHONUNBUFFERED": "1"}
"""Keeps Python from buffering the awaited line when stdout is a pipe."""


class OurProcess(LineProcess):
    """A trocket process, which must end with exit code 0 on SIGTERM."""

    def stop(self, *, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Stop it by SIGTERM and return 0.

        Raises: PeerError: it did not end within `timeout_s`, or ended with another code.
        """
        code = super().stop(timeout_s=timeout_s)
        if code != 0:
            raise PeerError(f"{self.name} ended with {code}\n{self.tail()}")
        return code


class TrocketCluster(LocalCluster):
    """`trocket up`: name server and broker in one process (see `peer.Cluster`).

    Stopping or killing the broker therefore ends the name server, too.

    Args:
      folder: holds all files of this run: the logs and, in `home`, the data.
      options: further options of `trocket up`.
      command: the words before `up`, such as the interpreter of another checkout.
      environment: variables added to the environment of this process.
    """

    def __init__(
        self,
        folder: Path,
        *,
        options: tuple[str, ...] = FREE_METRICS_PORT,
        command: tuple[str, ...] = COMMAND,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__("trocket", folder, stop_timeout_s=STOP_TIMEOUT_S)
        self._command = command
        self._options = options
        self._environment = {**UNBUFFERED, **(environment or {})}

    def start(self) -> None:
        """The same as `start_broker`."""
        self.start_broker()

    def _launch(self, name: str) -> None:
        command = [*self._command, "up", "--home", str(self.folder / "home"), "--host", "127.0.0.1"]
        command += ["--namesrv-port", str(self._namesrv_port)]
        command += ["--broker-port", str(self._broker_port), *self._options]
        process = self._running[name] = OurProcess(
            command, folder=self.folder, name="up", environment=self._environment
        )
        process.wait_line(lambda line: line.startswith("ready"), timeout_s=START_TIMEOUT_S)


class TrocketBroker(LocalCluster):
    """`trocket broker` without a name server, on a data folder that may exist already.

    Args:
      folder: for its configuration and logs.
      broker_keys: added to broker.conf, over what is set here; None removes a key.
      command: the words before `broker -c FILE`, such as a program that limits memory.
      context: see LocalCluster.
      start_timeout_s: for a start; a large folder on a busy machine takes longer than usual ones.
    """

    def __init__(
        self,
        folder: Path,
        *,
        store: Path,
        broker_keys: Mapping[str, object] | None = None,
        command: tuple[str, ...] = COMMAND,
        context: ssl.SSLContext | None = None,
        start_timeout_s: float = START_TIMEOUT_S,
    ) -> None:
        super().__init__("trocket", folder, stop_timeout_s=STOP_TIMEOUT_S, context=context)
        self._command = command
        self._start_timeout_s = start_timeout_s
        folder.mkdir(parents=True, exist_ok=True)
        keys: dict[str, object] = {
            "brokerName": "broker-a",
            "brokerIP1": "127.0.0.1",
            "bindAddress": "127.0.0.1",
            "listenPort": self._broker_port,
            "storePathRootDir": store,
            **self._more_keys(),
            **(broker_keys or {}),
        }
        (folder / "broker.conf").write_text(broker_conf_text(keys))

    def _more_keys(self) -> dict[str, object]:
        """Further keys of broker.conf, set by subclasses."""
        return {}

    def start(self) -> None:
        """The same as `start_broker`."""
        self.start_broker()

    def _launch(self, name: str) -> None:
        """Start a part and wait until it reports that it has booted.

        Raises: PeerError: it ended, or did not report so in time.
        """
        command = [*self._command, name, "-c", str(self.folder / f"{name}.conf")]
        process = self._running[name] = OurProcess(
            command, folder=self.folder, name=name, environment=UNBUFFERED
        )
        process.wait_line(lambda line: "boot success" in line, timeout_s=self._start_timeout_s)


class TrocketPair(TrocketBroker):
    """`trocket namesrv` and `trocket broker` as separate processes (see `peer.Cluster`).

    Args:
      folder: holds all files of this run.
      broker_keys: added to broker.conf; None removes a key.
      namesrv_keys: added to namesrv.conf.
      context: see LocalCluster.
    """

    def __init__(
        self,
        folder: Path,
        *,
        broker_keys: Mapping[str, object] | None = None,
        namesrv_keys: Mapping[str, object] | None = None,
        context: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(folder, store=folder / "store", broker_keys=broker_keys, context=context)
        listen = {
            "listenPort": self._namesrv_port,
            "bindAddress": "127.0.0.1",
            **(namesrv_keys or {}),
        }
        (folder / "namesrv.conf").write_text(broker_conf_text(listen))

    def _more_keys(self) -> dict[str, object]:
        return {"namesrvAddr": self.namesrv_address}

    def start(self) -> None:
        """Start the name server, then the broker, and wait for both.

        Raises: PeerError: one of them did not report success.
        """
        self.start_namesrv()
        self.start_broker()


class TrocketFilterServer:
    """`trocket filtersrv` for a broker, which may be Apache's up to 4.8.

    Each start uses another port, as with RocketMQ.

    Args:
      folder: holds all files of this run.
      broker_address: HOST:PORT of the broker.
      keys: added to filtersrv.conf; None removes a key.
    """

    def __init__(
        self, folder: Path, *, broker_address: str, keys: Mapping[str, object] | None = None
    ) -> None:
        self.folder = folder
        self._process: OurProcess | None = None
        self._address = ""
        folder.mkdir(parents=True, exist_ok=True)
        all_keys: dict[str, object] = {
            "connectWhichBroker": broker_address,
            "filterServerIP": "127.0.0.1",
            "bindAddress": "127.0.0.1",
            **(keys or {}),
        }
        (folder / "filtersrv.conf").write_text(broker_conf_text(all_keys))

    @property
    def address(self) -> str:
        """HOST:PORT that the broker gives to consumers; "" before the first start."""
        return self._address

    @property
    def pids(self) -> list[int]:
        """Its process if it was started, without the workers that run filters."""
        return [] if self._process is None else [self._process.pid]

    def start(self) -> None:
        """Start it and wait until it reports that it has booted; it is registered then.

        Raises: PeerError: it ended, or did not report so in 30 s.
        """
        if self._process is not None:
            return
        command = [*COMMAND, "filtersrv", "-c", str(self.folder / "filtersrv.conf")]
        process = OurProcess(command, folder=self.folder, name="filtersrv", environment=UNBUFFERED)
        self._process = process
        line = process.wait_line(lambda line: "boot success" in line, timeout_s=START_TIMEOUT_S)
        self._address = line.rpartition(" ")[2]

    def stop(self) -> None:
        """Stop it by SIGTERM.

        Raises: PeerError: it did not end in time, or not with exit code 0.
        """
        process, self._process = self._process, None
        if process is not None:
            process.stop()

    def kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
