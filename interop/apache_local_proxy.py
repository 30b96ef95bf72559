"""Apache's broker with its proxy in one process (`proxyMode` LOCAL), from the official jars.

Source of the keys: org.apache.rocketmq.proxy.config.ProxyConfig and ProxyStartup of 5.5.0.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from .apache import NO_TLS, ApacheCluster
from .apache_proxy import STARTUP
from .maven import JAVA_BROKER, JAVA_OPENS, fetch_jars
from .ports import free_port
from .process import LineProcess, PeerError

START_TIMEOUT_S: Final = 120.0


def proxy_keys_with_tls(folder: Path) -> dict[str, object]:
    """Keys of the proxy for the files that `trocket tls init` made in a folder."""
    return {
        "tlsTestModeEnable": False,
        "tlsCertPath": str(folder / "server" / "server.crt"),
        "tlsKeyPath": str(folder / "server" / "server.key"),
    }


class ApacheLocalProxy(ApacheCluster):
    """A name server, and a broker that serves gRPC by the proxy in its process.

    Args:
      version, folder, broker_java, broker_keys, is_measured: see `ApacheCluster`.
      proxy_keys: added to rmq-proxy.json, such as `proxy_keys_with_tls`; without those it takes no
        TLS unless it is measured.
    Raises: PeerError: the jars cannot be fetched.
    """

    def __init__(
        self,
        version: str,
        folder: Path,
        *,
        broker_java: tuple[str, ...] = JAVA_BROKER,
        broker_keys: Mapping[str, object] | None = None,
        proxy_keys: Mapping[str, object] = MappingProxyType({}),
        is_measured: bool = True,
    ) -> None:
        super().__init__(
            version,
            folder,
            broker_java=broker_java,
            broker_keys=broker_keys,
            is_measured=is_measured,
        )
        self._no_tls = () if is_measured or "tlsCertPath" in proxy_keys else (NO_TLS,)
        self._proxy_jars = fetch_jars(version, "proxy")
        self._grpc_port = free_port()
        keys = {
            "rocketMQClusterName": "DefaultCluster",
            "proxyMode": "LOCAL",
            "namesrvAddr": self.namesrv_address,
            "grpcServerPort": self._grpc_port,
            "remotingListenPort": free_port(),
            **proxy_keys,
        }
        path = folder / "conf" / "rmq-proxy.json"
        path.write_text(json.dumps(keys, indent=1), encoding="utf-8")

    @property
    def grpc_address(self) -> str:
        """HOST:PORT for clients that speak gRPC."""
        return f"127.0.0.1:{self._grpc_port}"

    def _launch(self, name: str) -> None:
        if name != "broker":
            super()._launch(name)
            return
        conf = self.folder / "conf"
        command = ["java", *self._java[name], *JAVA_OPENS, f"-Duser.home={self.folder}"]
        command += self._no_tls
        command += ["-cp", f"{self._proxy_jars}/*", STARTUP, "-pm", "LOCAL"]
        command += ["-bc", str(conf / "broker.conf"), "-pc", str(conf / "rmq-proxy.json")]
        home = {"ROCKETMQ_HOME": str(self.folder), "RMQ_PROXY_HOME": str(self.folder)}
        process = LineProcess(command, folder=self.folder, name=name, environment=home)
        try:
            process.wait_line(
                lambda line: "startup successfully" in line, timeout_s=START_TIMEOUT_S
            )
        except PeerError:
            process.kill()
            raise
        self._running[name] = process
