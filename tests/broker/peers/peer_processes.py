"""The peers of a broker process: each is a process, and a stand-in takes its place."""

from __future__ import annotations

import os
import re
import signal
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from trocket.interop.apache import broker_conf_text
from trocket.interop.ports import free_broker_port, free_port
from trocket.interop.process import LineProcess
from trocket.interop.trocket_peer import COMMAND

from ...attacks.raw_client import RawClient
from .process_promises import Way
from .stand_in import HOST, StandIn

START_TIMEOUT_S = 60.0
"""For the parts that are not measured, while several brokers start."""
PAUSE_S = 0.05
REGISTER_BROKER, REGISTER_FILTER_SERVER, GET_ROUTE = 103, 301, 105
REPORT = struct.pack(">q", 0)
"""What a slave sends first: it has the log up to 0."""
SMALL_FILES: dict[str, object] = {
    "mappedFileSizeCommitLog": 4 << 20, "mappedFileSizeConsumeQueue": 20_000,
    "maxHashSlotNum": 1_000, "maxIndexNum": 4_000,
}  # fmt: skip
"""A file is given its whole size on the disk at once, and tens of brokers run here."""
SLAVE: dict[str, object] = {"brokerRole": "SLAVE", "brokerId": 1, "slaveReadEnable": True}
_CHILD = re.compile(r"filter server (\d+) started")


def launch(folder: Path, program: str, name: str, keys: dict[str, object]) -> LineProcess:
    """Start a server with a configuration file of these keys."""
    (folder / f"{name}.conf").write_text(broker_conf_text(keys))
    return LineProcess(
        [*COMMAND, program, "-c", str(folder / f"{name}.conf")],
        folder=folder,
        name=name,
        environment={"PYTHONUNBUFFERED": "1"},
    )


def wait_booted(process: LineProcess) -> str:
    """The line with which a server reports that it has started."""
    return process.wait_line(lambda line: "boot success" in line, timeout_s=START_TIMEOUT_S)


def until(what: str, is_so: Callable[[], bool], *, timeout_s: float = START_TIMEOUT_S) -> None:
    """Look until something is so; an OSError means that it is not. Raises: AssertionError."""
    end_s, pause = time.monotonic() + timeout_s, threading.Event()
    while True:
        with suppress(OSError):
            if is_so():
                return
        assert time.monotonic() < end_s, f"not within {timeout_s} s: {what}"
        pause.wait(PAUSE_S)


def reached(port: int, *, timeout_s: float, answer_s: float = START_TIMEOUT_S) -> RawClient:
    """A client of a server that may still start. Raises: AssertionError: not in time."""
    found: list[RawClient] = []

    def connect() -> bool:
        found.append(RawClient(f"{HOST}:{port}", timeout_s=answer_s))
        return True

    until(f"port {port} is reached", connect, timeout_s=timeout_s)
    return found[0]


def has_message(port: int, topic: str, body: bytes) -> bool:
    """Whether queue 0 of a topic has it."""
    with RawClient(f"{HOST}:{port}", timeout_s=START_TIMEOUT_S) as client:
        return body in client.pull_all(topic, 0)[1].values()


@dataclass
class Site:
    """Where the broker under test is.

    Attributes:
      folder: of all files.
      broker_name: of the broker and its peers.
      namesrv_port: of its name server.
      port: its own; the HA port is one higher.
    """

    folder: Path
    broker_name: str
    namesrv_port: int
    port: int = field(default_factory=free_broker_port)

    def keys(self, store: str, port: int, **more: object) -> dict[str, object]:
        """The configuration of a broker at a port, with its data in a folder of that name."""
        return {
            "brokerName": self.broker_name, "brokerIP1": HOST, "bindAddress": HOST,
            "listenPort": port, "storePathRootDir": self.folder / store,
            "namesrvAddr": f"{HOST}:{self.namesrv_port}", "registerNameServerPeriod": 10_000,
            **SMALL_FILES, **more,
        }  # fmt: skip


class PeerProcess:
    """A server beside the broker under test. Its user closes it.

    Args:
      program: of `trocket`.
      keys: its configuration.
      listens: its ports.
      calls: the ports that it is connected to as a client, and what it sends there first.
    """

    def __init__(
        self,
        site: Site,
        program: str,
        keys: dict[str, object],
        *,
        listens: list[int] | None = None,
        calls: dict[int, bytes] | None = None,
    ) -> None:
        self.site = site
        self.listens = listens or []
        self._program, self._keys, self._calls = program, keys, calls
        self._process: LineProcess | None = None
        self._stand_in: StandIn | None = None
        self.known: RawClient | None = None

    def start(self) -> None:
        """Start it, and wait until it is complete."""
        self._process = launch(self.site.folder, self._program, f"peer-{self._program}", self._keys)
        self.booted(wait_booted(self._process))

    def booted(self, line: str) -> None:
        """It has reported that it has started."""

    def misbehave(self, way: Way) -> None:
        """Misbehave from now on."""
        assert self._process is not None
        if way is Way.STOPPED:
            os.kill(self._process.pid, signal.SIGSTOP)
            return
        self._process.kill()
        self._process = None
        if way is not Way.REFUSE:
            self._stand_in = StandIn(way, listens=self.listens, calls=self._calls)
        self.make_known()

    def wait_met(self) -> None:
        """Wait until the broker under test has met the stand-in, if there is one."""
        if self._stand_in is not None:
            assert self._stand_in.met.wait(START_TIMEOUT_S), "the stand-in is not asked"

    def make_known(self) -> None:
        """Let others keep the address of what is not there any more; kept while `known` is open."""

    def subject_is_starting(self) -> None:
        """The broker under test is being started beside the peer that misbehaves."""

    def behave(self) -> None:
        """Behave well again."""
        self._clear()
        if self._process is None:
            self.start()
        else:
            os.kill(self._process.pid, signal.SIGCONT)

    def close(self) -> None:
        """End everything."""
        self._clear()
        if self._process is not None:
            self._process.kill()

    def _clear(self) -> None:
        if self._stand_in is not None:
            self._stand_in.close()
        if self.known is not None:
            self.known.__exit__()
        self._stand_in = self.known = None


def name_server(site: Site) -> PeerProcess:
    """The only name server of the broker under test."""
    keys: dict[str, object] = {"listenPort": site.namesrv_port, "bindAddress": HOST}
    return PeerProcess(site, "namesrv", keys, listens=[site.namesrv_port])


class MasterProcess(PeerProcess):
    """The master of the broker under test; a name server knows it while it misbehaves."""

    def __init__(self, site: Site) -> None:
        self.port = free_broker_port()
        keys = site.keys("peer", self.port, brokerRole="ASYNC_MASTER", brokerId=0)
        super().__init__(site, "broker", keys, listens=[self.port, self.port + 1])

    def make_known(self) -> None:
        self.known = RawClient(f"{HOST}:{self.site.namesrv_port}")
        fields = {
            "brokerAddr": f"{HOST}:{self.port}", "haServerAddr": f"{HOST}:{self.port + 1}",
            "brokerName": self.site.broker_name, "brokerId": "0", "clusterName": "DefaultCluster",
        }  # fmt: skip
        answer, _ = self.known.ask(REGISTER_BROKER, fields)
        assert answer["code"] == 0, answer


class SlaveProcess(PeerProcess):
    """The slave of the broker under test."""

    def __init__(self, site: Site) -> None:
        self.port = free_broker_port()
        keys = site.keys("peer", self.port, **SLAVE)
        super().__init__(site, "broker", keys, calls={site.port + 1: REPORT, site.port: b""})


class FilterServerProcess(PeerProcess):
    """A filter server that an operator started beside the broker under test."""

    def __init__(self, site: Site) -> None:
        keys: dict[str, object] = {
            "connectWhichBroker": f"{HOST}:{site.port}", "filterServerIP": HOST,
            "bindAddress": HOST, **UPLOADS,
        }  # fmt: skip
        super().__init__(site, "filtersrv", keys, calls={site.port: b""})

    def booted(self, line: str) -> None:
        self.listens = [int(line.rpartition(":")[2])]

    def make_known(self) -> None:
        self.known = reached(self.site.port, timeout_s=START_TIMEOUT_S)
        address = {"filterServerAddr": f"{HOST}:{self.listens[0]}"}
        answer, _ = self.known.ask(REGISTER_FILTER_SERVER, address)
        assert answer["code"] == 0, answer

    def subject_is_starting(self) -> None:
        if self.known is not None:
            self.known.__exit__()
            self.make_known()


class FilterServerChild(PeerProcess):
    """A filter server that the broker under test started."""

    def __init__(self, site: Site) -> None:
        super().__init__(site, "filtersrv", {})
        self._seen = 0

    def start(self) -> None:
        self._next_pid()

    def _next_pid(self) -> int:
        """The process id of the child of the broker that was started last."""
        until("a filter server is started", lambda: len(self._pids()) > self._seen)
        self._seen = len(self._pids())
        return self._pids()[-1]

    def _pids(self) -> list[int]:
        text = (self.site.folder / "broker.err").read_text()
        return [int(found) for found in _CHILD.findall(text)]

    def misbehave(self, way: Way) -> None:
        assert way is Way.STOPPED
        os.kill(self._pids()[-1], signal.SIGSTOP)

    def subject_is_starting(self) -> None:
        gone = self._pids()[self._seen - 1]
        assert not Path(f"/proc/{gone}").exists(), "a filter server outlives its broker"
        os.kill(self._next_pid(), signal.SIGSTOP)

    def behave(self) -> None:
        os.kill(self._pids()[-1], signal.SIGCONT)

    def close(self) -> None:
        """Nothing: the broker ends it."""


UPLOADS: dict[str, object] = {"pythonFilterEnable": True, "filterUploadGroups": "*"}


def filter_server(site: Site, way: Way) -> PeerProcess:
    """A child of the broker where a signal stops it; elsewhere the broker would start another."""
    return FilterServerChild(site) if way is Way.STOPPED else FilterServerProcess(site)


def free_namesrv_port() -> int:
    """A port for a name server."""
    return free_port()
