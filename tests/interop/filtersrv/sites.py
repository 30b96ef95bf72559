"""A broker with its filter servers, ours or Apache's: who has which, and how they are reached."""

from __future__ import annotations

import subprocess
import sys
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

from trocket.interop import class_archive
from trocket.interop.apache import (
    LOGBACK,
    NO_LOGGER,
    START_TIMEOUT_S,
    STARTUP,
    UPDATE_BROKER_CONFIG,
    ApacheCluster,
    ask_route,
    broker_conf_text,
)
from trocket.interop.maven import JAVA_OPENS, JAVA_SMALL, fetch_jars
from trocket.interop.peers import open_cluster
from trocket.interop.process import LineProcess
from trocket.interop.trocket_peer import TrocketFilterServer, TrocketPair
from trocket.interop.wire import WireClient

from ...kit.waiting import wait_until

REGISTER_MESSAGE_FILTER_CLASS = 302
LAST_WITH_FILTER_SERVER = "4.2.0"
UPLOADS = {"javaFilterEnable": True, "pythonFilterEnable": True, "filterUploadGroups": "*"}
"""Keys of ours, with which everybody may upload, as with Apache's."""
PUT_TIMEOUT_S = 60.0
RECEIVE_BUFFER = "-Dcom.rocketmq.remoting.socket.rcvbuf.size=131072"
"""Apache's filter server asks for 1,024 bytes, with which Linux lets every few pulls wait for 20 s:
the sender's window is below its segment. Source: FiltersrvStartup of 4.2.0; `ss -ti`."""


class ApacheFilterServer:
    """Apache's filter server, 4.2.0, beside a broker of anybody's.

    Args:
      folder: everything of this run.
      namesrv_address, broker_address: where it belongs.
    """

    def __init__(self, folder: Path, *, namesrv_address: str, broker_address: str) -> None:
        self._folder = folder
        self._process: LineProcess | None = None
        conf = folder / "conf"
        conf.mkdir(parents=True)
        text = LOGBACK.format(name="filtersrv", on_console=NO_LOGGER)
        (conf / "logback_filtersrv.xml").write_text(text)
        keys = {
            "namesrvAddr": namesrv_address,
            "connectWhichBroker": broker_address,
            "filterServerIP": "127.0.0.1",
        }
        (conf / "filtersrv.conf").write_text(broker_conf_text(keys))

    @property
    def pids(self) -> list[int]:
        """The one process, when it was started."""
        return [] if self._process is None else [self._process.pid]

    def start(self) -> None:
        """Start it and wait until it says that it has booted. Raises: PeerError: it does not."""
        jars = fetch_jars(LAST_WITH_FILTER_SERVER, "filtersrv")
        command = ["java", *JAVA_SMALL, *JAVA_OPENS, f"-Duser.home={self._folder}"]
        command += [RECEIVE_BUFFER, "-cp", f"{jars}/*", STARTUP["filtersrv"]]
        command += ["-c", str(self._folder / "conf" / "filtersrv.conf")]
        command = class_archive.with_archive(command)
        home = {"ROCKETMQ_HOME": str(self._folder)}
        self._process = LineProcess(
            command, folder=self._folder, name="filtersrv", environment=home
        )
        self._process.wait_line(lambda line: "boot success" in line, timeout_s=START_TIMEOUT_S)
        class_archive.dump(command, self._process.pid)

    def kill(self) -> None:
        """Kill it."""
        if self._process is not None:
            self._process.kill()


class Site:
    """One broker, its name server and its filter servers, started.

    Args:
      cluster: name server and broker, stopped; they end with this.
      servers: filter servers that are started by hand, stopped; likewise.
      kept_count: filter servers that the broker starts itself.
    """

    def __init__(
        self,
        cluster: TrocketPair | ApacheCluster,
        servers: tuple[TrocketFilterServer | ApacheFilterServer, ...] = (),
        *,
        kept_count: int = 0,
    ) -> None:
        self.cluster = cluster
        self.kept_count = kept_count
        self._servers = servers

    @property
    def pids(self) -> list[int]:
        """Name server, broker, and the filter servers that were started by hand."""
        return [*self.cluster.pids, *self.server_pids]

    @property
    def runs_python(self) -> bool:
        """Whether all filter servers are ours."""
        return not any(isinstance(server, ApacheFilterServer) for server in self._servers)

    @property
    def server_pids(self) -> list[int]:
        """The filter servers that were started by hand."""
        return [pid for server in self._servers for pid in server.pids]

    def start(self) -> None:
        """Start all, and wait until routes contain the filter servers."""
        self.cluster.start()
        for server in self._servers:
            server.start()
        wait_until(self.is_whole, timeout_s=START_TIMEOUT_S, what="clients know all filter servers")

    def is_whole(self) -> bool:
        """Whether routes contain all filter servers."""
        if isinstance(self.cluster, ApacheCluster):
            # It tells its name server every 30 s, and when its permission is set.
            with WireClient(self.cluster.broker_address) as wire:
                wire.call(UPDATE_BROKER_CONFIG, {}, b"brokerPermission=6").checked()
        return len(self.filter_servers()) == self.kept_count + len(self._servers)

    def filter_servers(self) -> list[str]:
        """HOST:PORT of the filter servers in the route."""
        route = ask_route(self.cluster.namesrv_address)
        broker = self.cluster.broker_address
        return [] if route is None else route.filter_server_table.get(broker, [])

    def put(self, class_name: str, file: Path, *, group: str, topic: str) -> None:
        """Give all filter servers a class, by `trocket filter put`."""
        command = [sys.executable, "-m", "trocket.cli.main", "filter", "put", class_name, str(file)]
        command += ["--group", group, "--topic", topic, "--timeout", "30"]
        command += ["--url", f"rocketmq://{self.cluster.namesrv_address}"]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=PUT_TIMEOUT_S, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def committed(self, group: str, topic: str, queue_count: int) -> list[int | None]:
        """What a group has committed, by queue."""
        with WireClient(self.cluster.broker_address) as wire:
            return [wire.consumer_offset(group, topic, queue) for queue in range(queue_count)]

    def wait_committed(self, group: str, topic: str, queue_count: int, *, timeout_s: float) -> None:
        """Wait until a group has committed the end of each queue; fails when it does not."""
        ends = self.ends(topic, queue_count)
        wait_until(
            lambda: self.committed(group, topic, queue_count) == ends,
            timeout_s=timeout_s,
            what=f"{group} commits {ends}",
        )

    def ends(self, topic: str, queue_count: int) -> list[int]:
        """The next offset of each queue."""
        with WireClient(self.cluster.broker_address) as wire:
            return [wire.max_offset(topic, queue) for queue in range(queue_count)]

    def close(self) -> None:
        """Kill all."""
        for server in self._servers:
            server.kill()
        self.cluster.close()


def upload(wire: WireClient, class_name: str, source: str, *, group: str, topic: str) -> str:
    """Send a class in Java as a client does (302); "", or why it was refused."""
    body = source.encode()
    fields = {
        "consumerGroup": group,
        "topic": topic,
        "className": class_name,
        "classCRC": zlib.crc32(body) & 0x7FFFFFFF,
    }
    answer = wire.call(REGISTER_MESSAGE_FILTER_CLASS, fields, body)
    return "" if answer.code == 0 else f"{answer.code}: {answer.remark}"


def kept_by_the_broker(folder: Path, *, count: int = 1) -> Site:
    """Our broker, which starts our filter servers."""
    keys = {**UPLOADS, "filterServerNums": count}
    return Site(TrocketPair(folder, broker_keys=keys), kept_count=count)


def two_kept_by_the_broker(folder: Path) -> Site:
    """The same with two of them."""
    return kept_by_the_broker(folder, count=2)


def by_hand(folder: Path, keys: Mapping[str, object] = UPLOADS) -> Site:
    """Our broker, and one of our filter servers with these keys."""
    return _with_ours(TrocketPair(folder), folder, keys)


def ours_at_apaches_broker(folder: Path) -> Site:
    """Apache's broker, and our filter server."""
    return _with_ours(_apache(folder), folder, UPLOADS)


def apaches_at_our_broker(folder: Path) -> Site:
    """Our broker, and Apache's filter server."""
    return _with_apaches(TrocketPair(folder), folder)


def apache_alone(folder: Path) -> Site:
    """Apache's broker and filter server: what they do shows whether the tests are right."""
    return _with_apaches(_apache(folder), folder)


def _apache(folder: Path) -> ApacheCluster:
    cluster = open_cluster(f"apache-{LAST_WITH_FILTER_SERVER}", folder)
    assert isinstance(cluster, ApacheCluster)
    return cluster


def _with_ours(
    cluster: TrocketPair | ApacheCluster, folder: Path, keys: Mapping[str, object]
) -> Site:
    server = TrocketFilterServer(
        folder / "filtersrv", broker_address=cluster.broker_address, keys=keys
    )
    return Site(cluster, (server,))


def _with_apaches(cluster: TrocketPair | ApacheCluster, folder: Path) -> Site:
    server = ApacheFilterServer(
        folder / "filtersrv",
        namesrv_address=cluster.namesrv_address,
        broker_address=cluster.broker_address,
    )
    return Site(cluster, (server,))


OpenSite = Callable[[Path], Site]
