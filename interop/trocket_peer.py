"""Our own servers as processes: name server and broker in one (`trocket up`) or each its own, and a
filter server beside a broker of anybody's.

A broker starts filter servers of its own by its key `filterServerNums`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from .apache import broker_conf_text
from .peer import LocalCluster
from .process import LineProcess, PeerError

COMMAND = (sys.executable, "-m", "trocket.cli.main")
START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 30.0
UNBUFFERED = {"PYTHONUNBUFFERED": "1"}
"""The line that is waited for must come when it is printed, into a pipe too."""


class OurProcess(LineProcess):
    """A process of ours, which answers SIGTERM with exit code 0."""

    def stop(self, *, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Stop it by SIGTERM; 0.

        Raises: PeerError: it was still there after `timeout_s`, or ended with another code.
        """
        code = super().stop(timeout_s=timeout_s)
        if code != 0:
            raise PeerError(f"{self.name} ended with {code}\n{self.tail()}")
        return code


class TrocketCluster(LocalCluster):
    """`trocket up`: name server and broker in one process (see `peer.Cluster`).

    Stopping or killing the broker therefore takes the name server along.

    Args:
      folder: everything of this run: the logs and, in `home`, the data.
      options: further options of `trocket up`, before it starts.
      command: what stands before `up`, such as the interpreter of another checkout.
    """

    def __init__(
        self, folder: Path, *, options: tuple[str, ...] = (), command: tuple[str, ...] = COMMAND
    ) -> None:
        super().__init__("trocket", folder, stop_timeout_s=STOP_TIMEOUT_S)
        self._command = command
        self._options = options

    def start(self) -> None:
        """The same as `start_broker`."""
        self.start_broker()

    def _launch(self, name: str) -> None:
        command = [*self._command, "up", "--home", str(self.folder / "home"), "--host", "127.0.0.1"]
        command += ["--namesrv-port", str(self._namesrv_port)]
        command += ["--broker-port", str(self._broker_port), *self._options]
        process = self._running[name] = OurProcess(
            command, folder=self.folder, name="up", environment=UNBUFFERED
        )
        process.wait_line(lambda line: line.startswith("ready"), timeout_s=START_TIMEOUT_S)


class TrocketBroker(LocalCluster):
    """`trocket broker` without a name server, on a data folder that may be there already.

    Args:
      folder: where its configuration and logs go.
      store: the data folder.
      broker_keys: added to broker.conf, over what is set here; None takes a key out.
      command: what stands before `broker -c FILE`, such as a program that limits memory.
    """

    def __init__(
        self,
        folder: Path,
        *,
        store: Path,
        broker_keys: Mapping[str, object] | None = None,
        command: tuple[str, ...] = COMMAND,
    ) -> None:
        super().__init__("trocket", folder, stop_timeout_s=STOP_TIMEOUT_S)
        self._command = command
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
        """Of broker.conf, for what runs beside the broker."""
        return {}

    def start(self) -> None:
        """The same as `start_broker`."""
        self.start_broker()

    def _launch(self, name: str) -> None:
        """Start it and wait until it says that it has booted.

        Raises: PeerError: it ended, or did not say so in 30 s.
        """
        command = [*self._command, name, "-c", str(self.folder / f"{name}.conf")]
        process = self._running[name] = OurProcess(
            command, folder=self.folder, name=name, environment=UNBUFFERED
        )
        process.wait_line(lambda line: "boot success" in line, timeout_s=START_TIMEOUT_S)


class TrocketPair(TrocketBroker):
    """`trocket namesrv` and `trocket broker`, each a process of its own (see `peer.Cluster`).

    Args:
      folder: everything of this run.
      broker_keys: added to broker.conf; None takes a key out.
    """

    def __init__(self, folder: Path, *, broker_keys: Mapping[str, object] | None = None) -> None:
        super().__init__(folder, store=folder / "store", broker_keys=broker_keys)
        listen = {"listenPort": self._namesrv_port, "bindAddress": "127.0.0.1"}
        (folder / "namesrv.conf").write_text(broker_conf_text(listen))

    def _more_keys(self) -> dict[str, object]:
        return {"namesrvAddr": self.namesrv_address}

    def start(self) -> None:
        """Start the name server, then the broker; each is waited for.

        Raises: PeerError: one of them did not report success.
        """
        self.start_namesrv()
        self.start_broker()


class TrocketFilterServer:
    """`trocket filtersrv` beside a broker, which may be Apache's up to 4.8.

    Each start takes another port, as with RocketMQ.

    Args:
      folder: everything of this run.
      broker_address: HOST:PORT of the broker.
      keys: added to filtersrv.conf; None takes a key out.
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
        """HOST:PORT that consumers are told; "" until it was started."""
        return self._address

    @property
    def pids(self) -> list[int]:
        """The one process, when it was started; not those that run filters."""
        return [] if self._process is None else [self._process.pid]

    def start(self) -> None:
        """Start it and wait until it says that it has booted; the broker knows it then.

        Raises: PeerError: it ended, or did not say so in 30 s.
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
        """Kill it with SIGKILL."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
