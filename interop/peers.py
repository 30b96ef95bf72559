"""Which clusters the harness can ask, each under one name, and how to make one.

    trocket              our own `trocket up`
    apache-5.5.0 ...     Apache's name server and broker from the official jars, and the filter
                         server with 4.2.0, the last version that has one
    docker-5.3.3 ...     the same from the official images
    rocketmq://HOST:PORT a cluster that somebody else runs, by its name server

The names in `PEERS` are those that are tried; of any other version the jars or the image are
fetched in the same way.
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
from .trocket_peer import TrocketCluster
from .wire import WireClient

APACHE_VERSIONS = ("5.5.0", "5.3.3", "4.9.7", "4.8.0", "4.2.0")
"""Those that the tests start, newest first."""
DOCKER_VERSIONS = ("5.3.3", "4.9.7")

EXTERNAL_SCHEME = "rocketmq://"
NAMESRV_PORT = 9876
GET_BROKER_CLUSTER_INFO = 106
ANSWER_TIMEOUT_S = 5.0

PATIENT = MappingProxyType(
    {"mappedFileSizeCommitLog": 64 << 20, "waitTimeMillsInSendQueue": 10_000}
)
"""Keys of Apache's brokers: on a busy machine they refuse what waited 200 ms, and drop it if it was
oneway; and a commit log of 1 GiB takes long to make."""

_VERSION = re.compile(r"\d+\.\d+\.\d+")
_ADDRESS = re.compile(r"(?P<host>[^\s/:?#@]+)(?::(?P<port>\d{1,5}))?/?")


@dataclass(frozen=True, slots=True)
class Peer:
    """One kind of cluster.

    Attributes:
      name: "apache-5.5.0".
      kind: "trocket", "apache", "docker" or "external".
      version: of its name server and broker; "" for an external cluster.
      about: for a list of peers, one line.
    """

    name: str
    kind: str
    version: str
    about: str


def parse_peer(name: str) -> Peer:
    """The peer of one name, whether it can run here or not.

    Raises: PeerError: there is no such peer; it says which there are.
    """
    if name == "trocket":
        return Peer(name, "trocket", __version__, "this trocket's own name server and broker")
    if name.startswith(EXTERNAL_SCHEME):
        _external_address(name)
        return Peer(name, "external", "", "a cluster that somebody else runs")
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
"""The names of all peers that are tried."""


def peer_version(name: str) -> str:
    """The version of a peer's broker; "" for an external cluster. Raises: PeerError: no such."""
    return parse_peer(name).version


def check_peer(name: str) -> str | None:
    """Why a peer cannot run here ("no java in PATH"), or None when it can.

    An external cluster and the Docker engine are asked whether they answer.

    Raises: PeerError: there is no such peer.
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
      folder: everything of this run; of its own, made when it is missing.
      keys: of broker.conf, over what is set here; None takes a key out. An external cluster keeps
        those of its owner. `filterServerNums` makes 4.2.0 run with one filter server.
    Raises: PeerError: there is no such peer, its jars cannot be fetched, or no engine answers.
    """
    peer = parse_peer(name)
    if peer.kind == "external":
        return ExternalCluster(name)
    folder.mkdir(parents=True, exist_ok=True)
    if peer.kind == "apache":
        broker_keys = {**PATIENT, **keys}
        filter_server = False
        if has_filter_server(peer.version):
            # The broker would look for a shell script to start them with.
            filter_server = bool(broker_keys.pop("filterServerNums", 0))
        return ApacheCluster(
            peer.version, folder, broker_keys=broker_keys, filter_server=filter_server
        )
    if peer.kind == "docker":
        return DockerCluster(peer.version, folder, broker_keys={**PATIENT, **keys})
    options: tuple[str, ...] = ()
    if keys:
        conf = folder / "broker.conf"
        conf.write_text(broker_conf_text(keys), encoding="utf-8")
        options = ("-c", str(conf))
    return TrocketCluster(folder, options=options)


class ExternalCluster:
    """A cluster that somebody else runs (see `peer.Cluster`): asked, never started nor stopped.

    Its one broker is the first master by name.

    Args:
      url: rocketmq://HOST:PORT of its name server; without a port, 9876.
    Raises: PeerError: it is no such URL.
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
        """HOST:PORT of the broker. Raises: PeerError: the name server does not tell."""
        if self._broker_address is None:
            self._broker_address = self._ask_broker_address()
        return self._broker_address

    @property
    def pids(self) -> list[int]:
        """None of its processes is ours."""
        return []

    def start(self) -> None:
        """Look whether it answers. Raises: PeerError: it does not, and is not ours to start."""
        try:
            self._broker_address = self._ask_broker_address()
            WireClient(self._broker_address, timeout_s=ANSWER_TIMEOUT_S).close()
        except PeerError as error:
            raise PeerError(f"{self.label} is not ours to start: {error}") from error

    def start_broker(self) -> None:
        """The same as `start`. Raises: PeerError: it does not answer."""
        self.start()

    def stop_broker(self) -> None:
        """Raises: PeerError: always, for the cluster is not ours."""
        self._refuse("stop")

    def kill_broker(self) -> None:
        """Raises: PeerError: always, for the cluster is not ours."""
        self._refuse("kill")

    def close(self) -> None:
        """Nothing: it goes on without us."""

    def _refuse(self, what: str) -> NoReturn:
        raise PeerError(f"{self.label} is not ours to {what}; use a peer that the harness starts")

    def _ask_broker_address(self) -> str:
        with WireClient(self._namesrv_address, timeout_s=ANSWER_TIMEOUT_S) as client:
            body = client.call(GET_BROKER_CLUSTER_INFO, {}).checked().body
        try:
            brokers = ClusterInfo.from_body(body).broker_addr_table
        except RemoteProtocolError as error:
            raise PeerError(
                f"{self._namesrv_address} does not tell its brokers: {error}"
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
