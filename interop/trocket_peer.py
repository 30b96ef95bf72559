"""Our own servers as processes: name server and broker in one (`trocket up`) or each its own, and a
filter server beside a broker of anybody's.

A broker starts filter servers of its own by its key `filterServerNums`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from .apache import broker_conf_text
from .ports import free_broker_port, free_port
from .process import LineProcess

COMMAND = (sys.executable, "-m", "trocket.cli.main")
START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 30.0


class TrocketCluster:
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
        self.label = "trocket"
        self._command = command
        self.folder = folder
        self._namesrv_port = free_port()
        self._broker_port = free_broker_port()
        self._options = options
        self._process: LineProcess | None = None

    @property
    def namesrv_address(self) -> str:
        """HOST:PORT of the name server."""
        return f"127.0.0.1:{self._namesrv_port}"

    @property
    def broker_address(self) -> str:
        """HOST:PORT of the broker."""
        return f"127.0.0.1:{self._broker_port}"

    @property
    def pids(self) -> list[int]:
        """The one process, when it was started."""
        return [] if self._process is None else [self._process.pid]

    def start(self) -> None:
        """Start `trocket up` and wait for its line that begins with "ready".

        Raises: PeerError: it ended, or did not say so in 30 s.
        """
        if self._process is not None:
            return
        command = [*self._command, "up", "--home", str(self.folder / "home"), "--host", "127.0.0.1"]
        command += ["--namesrv-port", str(self._namesrv_port)]
        command += ["--broker-port", str(self._broker_port), *self._options]
        # Unbuffered: the line must come when it is printed, into a pipe too.
        unbuffered = {"PYTHONUNBUFFERED": "1"}
        process = LineProcess(command, folder=self.folder, name="up", environment=unbuffered)
        self._process = process
        process.wait_line(lambda line: line.startswith("ready"), timeout_s=START_TIMEOUT_S)

    def start_broker(self) -> None:
        """The same as `start`."""
        self.start()

    def stop_broker(self) -> None:
        """Stop the process by SIGTERM.

        Raises: PeerError: it did not end in time, or not with exit code 0.
        """
        process, self._process = self._process, None
        if process is not None:
            process.stop_cleanly(timeout_s=STOP_TIMEOUT_S)

    def kill_broker(self) -> None:
        """Kill the process with SIGKILL."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()

    def close(self) -> None:
        """Stop what runs."""
        self.kill_broker()


class TrocketBroker:
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
        self.label = "trocket"
        self.folder = folder
        self._broker_port = free_broker_port()
        self._command = command
        self._process: LineProcess | None = None
        folder.mkdir(parents=True, exist_ok=True)
        keys: dict[str, object] = {
            "brokerName": "broker-a",
            "brokerIP1": "127.0.0.1",
            "bindAddress": "127.0.0.1",
            "listenPort": self._broker_port,
            "storePathRootDir": store,
            **(broker_keys or {}),
        }
        (folder / "broker.conf").write_text(broker_conf_text(keys))

    @property
    def broker_address(self) -> str:
        """HOST:PORT of the broker."""
        return f"127.0.0.1:{self._broker_port}"

    @property
    def pids(self) -> list[int]:
        """The one process, when it was started."""
        return [] if self._process is None else [self._process.pid]

    def start_broker(self) -> None:
        """Start it and wait until it says that it has booted.

        Raises: PeerError: it ended, or did not say so in 30 s.
        """
        if self._process is not None:
            return
        command = [*self._command, "broker", "-c", str(self.folder / "broker.conf")]
        unbuffered = {"PYTHONUNBUFFERED": "1"}
        process = LineProcess(command, folder=self.folder, name="broker", environment=unbuffered)
        self._process = process
        process.wait_line(lambda line: "boot success" in line, timeout_s=START_TIMEOUT_S)

    def stop_broker(self) -> None:
        """Stop it by SIGTERM.

        Raises: PeerError: it did not end in time, or not with exit code 0.
        """
        process, self._process = self._process, None
        if process is not None:
            process.stop_cleanly(timeout_s=STOP_TIMEOUT_S)

    def kill_broker(self) -> None:
        """Kill it with SIGKILL."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()

    def close(self) -> None:
        """Kill what runs."""
        self.kill_broker()


class TrocketPair(TrocketBroker):
    """`trocket namesrv` and `trocket broker`, each a process of its own (see `peer.Cluster`).

    Args:
      folder: everything of this run.
      broker_keys: added to broker.conf; None takes a key out.
    """

    def __init__(self, folder: Path, *, broker_keys: Mapping[str, object] | None = None) -> None:
        self._namesrv_port = free_port()
        self._namesrv: LineProcess | None = None
        keys = {"namesrvAddr": self.namesrv_address, **(broker_keys or {})}
        super().__init__(folder, store=folder / "store", broker_keys=keys)
        listen = {"listenPort": self._namesrv_port, "bindAddress": "127.0.0.1"}
        (folder / "namesrv.conf").write_text(broker_conf_text(listen))

    @property
    def namesrv_address(self) -> str:
        """HOST:PORT of the name server."""
        return f"127.0.0.1:{self._namesrv_port}"

    @property
    def pids(self) -> list[int]:
        """The broker's and the name server's process, as far as they were started."""
        namesrv = [] if self._namesrv is None else [self._namesrv.pid]
        return [*super().pids, *namesrv]

    def start(self) -> None:
        """Start the name server, then the broker; each is waited for.

        Raises: PeerError: one of them did not report success.
        """
        self.start_namesrv()
        self.start_broker()

    def start_namesrv(self) -> None:
        """Start the name server. Raises: PeerError: it did not report success."""
        if self._namesrv is not None:
            return
        command = [*COMMAND, "namesrv", "-c", str(self.folder / "namesrv.conf")]
        unbuffered = {"PYTHONUNBUFFERED": "1"}
        process = LineProcess(command, folder=self.folder, name="namesrv", environment=unbuffered)
        self._namesrv = process
        process.wait_line(lambda line: "boot success" in line, timeout_s=START_TIMEOUT_S)

    def stop_namesrv(self) -> None:
        """Stop the name server by SIGTERM.

        Raises: PeerError: it did not end in time, or not with exit code 0.
        """
        process, self._namesrv = self._namesrv, None
        if process is not None:
            process.stop_cleanly(timeout_s=STOP_TIMEOUT_S)

    def close(self) -> None:
        """Kill what runs."""
        super().close()
        process, self._namesrv = self._namesrv, None
        if process is not None:
            process.kill()


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
        self._process: LineProcess | None = None
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
        unbuffered = {"PYTHONUNBUFFERED": "1"}
        process = LineProcess(command, folder=self.folder, name="filtersrv", environment=unbuffered)
        self._process = process
        line = process.wait_line(lambda line: "boot success" in line, timeout_s=START_TIMEOUT_S)
        self._address = line.rpartition(" ")[2]

    def stop(self) -> None:
        """Stop it by SIGTERM.

        Raises: PeerError: it did not end in time, or not with exit code 0.
        """
        process, self._process = self._process, None
        if process is not None:
            process.stop_cleanly(timeout_s=STOP_TIMEOUT_S)

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
