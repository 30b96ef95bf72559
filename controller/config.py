"""The controller's keys of controller.conf: RocketMQ's names in snake_case, its types and defaults.

Pure: the environment is an argument.

Java counterpart: common/ControllerConfig.java, controller/ControllerStartup.java and
remoting/netty/NettyServerConfig.java of 5.5.0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final, NamedTuple

from ..auth.server_config import SERVER_CHECKS, ServerConfig, read_server_config
from ..common.config import Bounds, ConfigError, Entry, KnownKey, is_address, setting
from ..common.known_keys import read_keys

PEERS_MAX: Final = 16
"""Controllers of a group; three or five are usual."""


class Peer(NamedTuple):
    """A controller of the group.

    Attributes:
      name: its controllerDLegerSelfId.
      address: `host:port` at which brokers reach it.
    """

    name: str
    address: str


@dataclass(slots=True)
class ControllerConfig(ServerConfig):
    """The controller's configuration. Times are milliseconds unless the name says otherwise.

    Attributes:
      listen_port: port to listen on; 0 = a free one. With controllerDLegerPeers it is the port of
        this controller's entry there, as with RocketMQ.
      controller_d_leger_group: name of the group of controllers, in answers and in etcd.
      controller_d_leger_peers: all controllers of the group, `n0-host:port;n1-host:port`. They do
        not speak with each other; brokers learn of them. "": this one only.
      controller_d_leger_self_id: this controller's name in the list.
      controller_store_path: folder of the state and of accounts.
      scan_not_active_broker_interval: between checks for sets without a master; a broker's end is
        noticed at once all the same.
      enable_elect_unclean_master: whether a broker that is not in sync may become master if no
        other one is alive. Confirmed messages are lost then.
      notify_broker_role_changed: whether brokers are notified of a new master; else they learn of
        it by asking, after 5 s.
      etcd_endpoints: not a key of RocketMQ. The state is in etcd, not in a file, where this is set:
        `http://host:2379;http://host:2379`, all members of the cluster.
      etcd_user, etcd_password: not keys of RocketMQ. An etcd user with the right to read and write
        below etcdPrefix; "": etcd has no accounts.
      etcd_prefix: not a key of RocketMQ. What the names of all keys in etcd begin with.
      etcd_trust_cert_path: not a key of RocketMQ. The certificates that `https` endpoints are
        checked by, PEM; "": the system's.
      etcd_cert_path, etcd_key_path: not keys of RocketMQ. This client's certificate and its key,
        PEM; "": it has none.
    """

    node_type: ClassVar[str] = "controller"

    listen_port: int = setting(19_876, minimum=0, maximum=65_535, clamp=None)
    controller_d_leger_group: str = "group1"
    controller_d_leger_peers: str = ""
    controller_d_leger_self_id: str = "n0"
    controller_store_path: str = setting(
        str(Path.home() / "controller"), guarded="is a path of files"
    )
    config_store_path: str = setting(
        str(Path.home() / "controller" / "controller.properties"), guarded="is a path of files"
    )
    scan_not_active_broker_interval: int = setting(5_000, minimum=1, live=Bounds(100, 60_000))
    enable_elect_unclean_master: bool = setting(False, live=True)
    notify_broker_role_changed: bool = setting(True, live=True)
    etcd_endpoints: str = setting("", guarded="decides where the state is")
    etcd_user: str = setting("", guarded="decides where the state is")
    etcd_password: str = setting("", guarded="decides where the state is", secret=True)
    etcd_prefix: str = setting("/trocket/controller/", guarded="decides where the state is")
    etcd_trust_cert_path: str = setting("", guarded="is a path of files")
    etcd_cert_path: str = setting("", guarded="is a path of files")
    etcd_key_path: str = setting("", guarded="is a path of files")

    @property
    def peers(self) -> tuple[Peer, ...]:
        """The controllers of the group, in the order given; empty: there is one, without a list.

        Raises: ConfigError: controllerDLegerPeers is malformed.
        """
        peers = []
        for part in filter(None, map(str.strip, self.controller_d_leger_peers.split(";"))):
            name, _, address = part.partition("-")
            if not name or not is_address(address):
                raise ConfigError(
                    f"controllerDLegerPeers: {part!r} is not name-host:port; several look like "
                    "n0-192.168.0.1:9878;n1-192.168.0.2:9878"
                )
            peers.append(Peer(name, address))
        if len({peer.name for peer in peers}) < len(peers) or len(peers) > PEERS_MAX:
            raise ConfigError(
                f"controllerDLegerPeers: a name is there twice, or there are over {PEERS_MAX}"
            )
        return tuple(peers)

    @property
    def own_peer(self) -> Peer | None:
        """This controller's entry in the list; None: there is no list.

        Raises: ConfigError: the list lacks it.
        """
        peers = self.peers
        for peer in peers:
            if peer.name == self.controller_d_leger_self_id:
                return peer
        if not peers:
            return None
        raise ConfigError(
            f"controllerDLegerSelfId: {self.controller_d_leger_self_id!r} is none of the names in "
            "controllerDLegerPeers"
        )

    @property
    def own_port(self) -> int:
        """The port to listen on."""
        peer = self.own_peer
        return self.listen_port if peer is None else int(peer.address.rpartition(":")[2])

    @property
    def endpoints(self) -> tuple[str, ...]:
        """The members of etcd's cluster; empty: the state is in a file.

        Raises: ConfigError: etcdEndpoints is malformed.
        """
        found = []
        for part in filter(None, map(str.strip, self.etcd_endpoints.split(";"))):
            scheme, _, address = part.rstrip("/").partition("://")
            if scheme not in ("http", "https") or "@" in address or not is_address(address):
                raise ConfigError(
                    f"etcdEndpoints: {part!r} is not http://host:port or https://host:port; "
                    "several look like http://192.168.0.1:2379;http://192.168.0.2:2379"
                )
            found.append(part.rstrip("/"))
        if len({part.partition("://")[0] for part in found}) > 1:
            raise ConfigError("etcdEndpoints: all or none must be https")
        return tuple(dict.fromkeys(found))


def known_keys() -> Mapping[str, KnownKey]:
    """Every key that RocketMQ reads from a controller.conf, supported or not."""
    return read_keys("netty", "controller")


def check_values(config: ControllerConfig) -> None:
    """Check strings with a form of their own, and keys that need others.

    Raises: ConfigError: at the start, or at a change while the controller runs.
    """
    for check in VALUE_CHECKS:
        check(config)


def _check_group(config: ControllerConfig) -> None:
    peer, endpoints = config.own_peer, config.endpoints
    if endpoints and peer is None:
        raise ConfigError(
            "etcdEndpoints needs controllerDLegerPeers and controllerDLegerSelfId: the address at "
            "which brokers reach this controller, such as n0-192.168.0.1:9878"
        )
    if len(config.peers) > 1 and not endpoints:
        raise ConfigError(
            "controllerDLegerPeers: several controllers need etcdEndpoints; a state in a file is "
            "for one controller"
        )


def _check_etcd(config: ControllerConfig) -> None:
    if bool(config.etcd_user) != bool(config.etcd_password):
        raise ConfigError("etcdUser and etcdPassword belong together")
    if bool(config.etcd_cert_path) != bool(config.etcd_key_path):
        raise ConfigError("etcdCertPath and etcdKeyPath belong together")


VALUE_CHECKS: Final[tuple[Callable[[ControllerConfig], None], ...]] = (
    *SERVER_CHECKS,
    _check_group,
    _check_etcd,
)
"""Each raises ConfigError; those of the start and of a change while the controller runs."""


def read_controller_config(
    entries: list[Entry], defaults: ControllerConfig, *, path: str = ""
) -> tuple[ControllerConfig, list[str]]:
    """The configuration of a controller.conf, and its warnings, one line each.

    Args:
      entries: the file's, from `parse_properties`. `tls.*` is left to `remoting/tls_settings.py`.
      defaults: used for keys that the file does not set.
      path: for messages; changed settings are written back to it, as with RocketMQ.
    Raises: ConfigError: unknown key or bad value.
    """
    return read_server_config(
        entries, defaults, known_keys, VALUE_CHECKS, path=path, server="a controller"
    )
