"""The clusters that the harness can test, each under one name, and their construction.

    trocket              our own `trocket up`
    apache-5.5.0 ...     Apache's name server and broker from the official jars, and the filter
                         server with 4.2.0, the last version that has one
    docker-5.3.3 ...     the same from the official images
    rocketmq://HOST:PORT an external cluster, given by its name server

The names in `PEERS` are tested; the jars or the image of any other version are fetched in the same
way.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import NoReturn

from .. import __version__
from ..remoting.bodies.route import ClusterInfo
from ..remoting.errors import RemoteProtocolError
from .apache import ApacheCluster, broker_conf_text, has_filter_server
from .docker_peer import DockerCluster, open_engine
from .maven import has_jars, missing_tool
from .peer import Cluster
from .process import PeerError
from .trocket_peer import FREE_METRICS_PORT, TrocketCluster
from .wire import WireClient

APACHE_VERSIONS = ("5.5.0", "5.3.3", "4.9.7", "4.8.0", "4.2.0")
"""The versions that the tests start, newest first."""
DOCKER_VERSIONS = ("5.3.3", "4.9.7")

EXTERNAL_SCHEME = "rocketmq://"
NAMESRV_PORT = 9876
GET_BROKER_CLUSTER_INFO = 106
ANSWER_TIMEOUT_S = 5.0

PATIENT = MappingProxyType(
    {"mappedFileSizeCommitLog": 64 << 20, "waitTimeMillsInSendQueue": 10_000}
)
"""Keys for Apache's brokers: on a busy machine they refuse requests that waited 200 ms, and drop
oneway ones; and allocating log files of 1 GiB takes long."""

_VERSION = re.compile(r"\d+\.\d+\.\d+")
_ADDRESS = re.compile(r"(?P<host>[^\s/:?#@]+)(?::(?P<port>\d{1,5}))?/?")


@dataclass(frozen=True, slots=True)
class Peer:
    """One kind of cluster.

    Attributes:
      name: "apache-5.5.0".
      kind: "trocket", "apache", "docker" or "external".
      version: of its name server and broker; "" for an external cluster.
      about: one line for a list of peers.
    """

    name: str
    kind: str
    version: str
    about: str


def parse_peer(name: str) -> Peer:
    """The peer with this name, whether or not it can run here.

    Raises: PeerError: the name is unknown; the message lists the known ones.
    """
    if name == "trocket":
        return Peer(name, "trocket", __version__, "this trocket's own name server and broker")
    if name.startswith(EXTERNAL_SCHEME):
        _external_address(name)
        return Peer(name, "external", "", "a cluster not run by the harness")
    kind, _, version = name.partition("-")
    if kind in ("apache", "docker") and _VERSION.fullmatch(version):
        source = "the official jars" if kind == "apache" else f"the image apache/rocketmq:{version}"
        return Peer(name, kind, version, f"Apache's name server and broker from {source}")
    raise PeerError(
        f"there is no peer {name!r}; there are {', '.join(PEERS)}, other versions of Apache's,"
        f" and {EXTERNAL_SCHEME}HOST:PORT of a name server"
    )


PEERS = (
    "trocket",
    *(f"apache-{version}" for version in APACHE_VERSIONS),
    *(f"docker-{version}" for version in DOCKER_VERSIONS),
)
"""The names of all peers that are tested."""


def peer_version(name: str) -> str:
    """The version of a peer's broker; "" if external. Raises: PeerError: the name is unknown."""
    return parse_peer(name).version


def check_peer(name: str) -> str | None:
    """Why a peer cannot run here ("no java in PATH"), or None if it can.

    Connects to an external cluster or the Docker engine to see whether it answers.

    Raises: PeerError: the name is unknown.
    """
    peer = parse_peer(name)
    if peer.kind == "apache":
        if has_jars(peer.version, "server"):
            return None if shutil.which("java") else "no java in PATH (Java 17 is needed)"
        return missing_tool()
    try:
        if peer.kind == "docker":
            open_engine().close()
        if peer.kind == "external":
            ExternalCluster(name).start()
    except PeerError as error:
        return str(error)
    return None


def open_cluster(
    name: str, folder: Path, keys: Mapping[str, object] = MappingProxyType({})
) -> Cluster:
    """A stopped cluster of one kind.

    Args:
      name: one of `PEERS`, another version, or the URL of an external cluster.
      folder: holds all files of this run and of no other; created if missing.
      keys: for broker.conf, over what is set here; None removes a key. Ignored for an external
        cluster. `filterServerNums` makes 4.2.0 run with one filter server.
    Raises: PeerError: the name is unknown, its jars cannot be fetched, or no engine answers.
    """
    peer = parse_peer(name)
    if peer.kind == "external":
        return ExternalCluster(name)
    folder.mkdir(parents=True, exist_ok=True)
    if peer.kind == "apache":
        broker_keys = {**PATIENT, **keys}
        filter_server = False
        if has_filter_server(peer.version):
            # The broker would start filter servers by a shell script, which the jars lack.
            filter_server = bool(broker_keys.pop("filterServerNums", 0))
        return ApacheCluster(
            peer.version, folder, broker_keys=broker_keys, filter_server=filter_server
        )
    if peer.kind == "docker":
        return DockerCluster(peer.version, folder, broker_keys={**PATIENT, **keys})
    options: tuple[str, ...] = FREE_METRICS_PORT
    if keys:
        conf = folder / "broker.conf"
        conf.write_text(broker_conf_text(keys), encoding="utf-8")
        options += ("-c", str(conf))
    return TrocketCluster(folder, options=options)


class ExternalCluster:
    """A `peer.Cluster` not run by the harness, which never starts nor stops it.

    Its broker is the first master by name.

    Args:
      url: rocketmq://HOST:PORT of its name server; the default port is 9876.
    Raises: PeerError: the URL is malformed.
    """

    def __init__(self, url: str) -> None:
        self.label = url
        self._namesrv_address = _external_address(url)
        self._broker_address: str | None = None

    @property
    def namesrv_address(self) -> str:
        """HOST:PORT of the name server."""
        return self._namesrv_address

    @property
    def broker_address(self) -> str:
        """HOST:PORT of the broker. Raises: PeerError: the name server did not return it."""
        if self._broker_address is None:
            self._broker_address = self._ask_broker_address()
        return self._broker_address

    @property
    def pids(self) -> list[int]:
        """Empty: its processes are unknown."""
        return []

    def start(self) -> None:
        """Check that it answers. Raises: PeerError: it does not; the harness cannot start it."""
        try:
            self._broker_address = self._ask_broker_address()
            WireClient(self._broker_address, timeout_s=ANSWER_TIMEOUT_S).close()
        except PeerError as error:
            raise PeerError(
                f"{self.label} does not answer, and the harness cannot start it: {error}"
            ) from error

    def start_broker(self) -> None:
        """Check that it answers, as `start` does. Raises: PeerError: it does not."""
        self.start()

    def stop_broker(self) -> None:
        """Raises: PeerError: always; the harness does not run this cluster."""
        self._refuse("stop")

    def kill_broker(self) -> None:
        """Raises: PeerError: always; the harness does not run this cluster."""
        self._refuse("kill")

    def close(self) -> None:
        """Do nothing: the cluster keeps running."""

    def _refuse(self, what: str) -> NoReturn:
        raise PeerError(
            f"the harness does not run {self.label} and cannot {what} it;"
            " use a peer that the harness starts"
        )

    def _ask_broker_address(self) -> str:
        with WireClient(self._namesrv_address, timeout_s=ANSWER_TIMEOUT_S) as client:
            body = client.call(GET_BROKER_CLUSTER_INFO, {}).checked().body
        try:
            brokers = ClusterInfo.from_body(body).broker_addr_table
        except RemoteProtocolError as error:
            raise PeerError(
                f"{self._namesrv_address} returned no valid list of brokers: {error}"
            ) from error
        for broker_name in sorted(brokers):
            if 0 in brokers[broker_name].broker_addrs:
                return brokers[broker_name].broker_addrs[0]
        raise PeerError(f"{self._namesrv_address} knows no master")


def _external_address(url: str) -> str:
    found = _ADDRESS.fullmatch(url.removeprefix(EXTERNAL_SCHEME))
    port = int(found["port"] or NAMESRV_PORT) if found else 0
    if found is None or not 0 < port < 65_536:
        raise PeerError(f"{url!r} is no {EXTERNAL_SCHEME}HOST:PORT of a name server")
    return f"{found['host']}:{port}"
