"""Apache's proxy in cluster mode, run from the official jars, in front of a cluster of the harness.

It serves 5.x clients by gRPC, and clients of the remoting protocol, for which it is the name server
and every broker. Source of the keys: org.apache.rocketmq.proxy.config.ProxyConfig of 5.5.0.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from . import class_archive
from .accounts import acl_2_keys
from .apache import NO_TLS
from .maven import JAVA_BROKER, JAVA_OPENS, fetch_jars
from .peer import Cluster
from .ports import free_port
from .process import LineProcess, PeerError
from .wire import Keys

VERSION: Final = "5.5.0"
CLUSTER_NAME: Final = "DefaultCluster"
START_TIMEOUT_S: Final = 120.0
_OF_PROXY: Final = "org.apache.rocketmq.proxy.auth"
STARTUP: Final = "org.apache.rocketmq.proxy.ProxyStartup"


def keys_with_accounts(account: Keys) -> dict[str, object]:
    """Keys that make the proxy check its clients by the brokers' users and policies."""
    return {
        **acl_2_keys(account),
        "enableAclRpcHookForClusterMode": True,
        "authenticationMetadataProvider": f"{_OF_PROXY}.ProxyAuthenticationMetadataProvider",
        "authorizationMetadataProvider": f"{_OF_PROXY}.ProxyAuthorizationMetadataProvider",
    }


class ApacheProxy:
    """A `peer.Cluster` as clients of the proxy see it.

    The cluster belongs to the caller, and is running before the proxy starts: the proxy ends at
    once if no broker of `CLUSTER_NAME` can get its topic.

    Args:
      cluster: what it stands in front of.
      folder: for its configuration and logs.
      version: of rocketmq-proxy.
      keys: added to rmq-proxy.json.
      account: a super account of the cluster, with which the proxy asks for the accounts of its
        clients; None: the cluster has no accounts.
    Raises: PeerError: the jars cannot be fetched.
    """

    def __init__(
        self,
        cluster: Cluster,
        folder: Path,
        *,
        version: str = VERSION,
        keys: Mapping[str, object] = MappingProxyType({}),
        account: Keys | None = None,
    ) -> None:
        self.label = cluster.label
        self._cluster = cluster
        self._folder = folder
        self._jars = fetch_jars(version, "proxy")
        self._grpc_port = free_port()
        self._remoting_port = free_port()
        self._process: LineProcess | None = None
        conf = folder / "conf"
        conf.mkdir(parents=True, exist_ok=True)
        all_keys: dict[str, object] = {
            "rocketMQClusterName": CLUSTER_NAME,
            "proxyMode": "CLUSTER",
            "namesrvAddr": cluster.namesrv_address,
            "localServeAddr": "127.0.0.1",
            "grpcServerPort": self._grpc_port,
            "remotingListenPort": self._remoting_port,
            # As far as a proxy on another machine: 20 s is longer than a scenario.
            "transactionHeartbeatPeriodSecond": 2,
            # Clients that close wait for their receives, by default for 20 s.
            "grpcClientConsumerMaxLongPollingTimeoutMillis": 2_000,
            **keys,
        }
        if account is not None:
            all_keys |= keys_with_accounts(account)
        (conf / "rmq-proxy.json").write_text(json.dumps(all_keys, indent=1), encoding="utf-8")

    @property
    def grpc_address(self) -> str:
        """HOST:PORT for clients that speak gRPC."""
        return f"127.0.0.1:{self._grpc_port}"

    @property
    def namesrv_address(self) -> str:
        """HOST:PORT of its remoting port, which clients of that protocol use as name server."""
        return f"127.0.0.1:{self._remoting_port}"

    @property
    def broker_address(self) -> str:
        """HOST:PORT of the broker behind it, for what only a broker can be asked."""
        return self._cluster.broker_address

    @property
    def pids(self) -> list[int]:
        """The broker's process first, the proxy's last."""
        own = [] if self._process is None else [self._process.pid]
        return [*self._cluster.pids, *own]

    def start(self) -> None:
        """Start the proxy and wait until it serves both ports.

        Raises: PeerError: it ended, or did not report success in time.
        """
        if self._process is not None:
            return
        # Without TLS: it makes two RSA keys at its start otherwise.
        command = ["java", *JAVA_BROKER, *JAVA_OPENS, f"-Duser.home={self._folder}", NO_TLS]
        command += ["-cp", f"{self._jars}/*", STARTUP]
        command += ["-pc", str(self._folder / "conf" / "rmq-proxy.json")]
        command = class_archive.with_archive(command)
        home = {"ROCKETMQ_HOME": str(self._folder), "RMQ_PROXY_HOME": str(self._folder)}
        process = LineProcess(command, folder=self._folder, name="proxy", environment=home)
        self._process = process
        try:
            process.wait_line(
                lambda line: "startup successfully" in line, timeout_s=START_TIMEOUT_S
            )
        except PeerError:
            self.close()
            raise
        class_archive.dump(command, process.pid)

    def start_broker(self) -> None:
        """Start the broker behind it. Raises: PeerError: as the cluster's."""
        self._cluster.start_broker()

    def stop_broker(self) -> None:
        """Stop the broker behind it by SIGTERM. Raises: PeerError: as the cluster's."""
        self._cluster.stop_broker()

    def kill_broker(self) -> None:
        self._cluster.kill_broker()

    def close(self) -> None:
        """Kill the proxy, and leave the cluster as it is."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
