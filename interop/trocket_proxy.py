"""`trocket proxy` as a process, in front of a cluster of the harness."""

from __future__ import annotations

import json
from pathlib import Path

from .accounts import acl_2_keys
from .peer import Cluster
from .ports import free_port
from .process import PeerError
from .trocket_peer import COMMAND, START_TIMEOUT_S, UNBUFFERED, OurProcess
from .wire import Keys


class TrocketProxy:
    """Serves gRPC clients. The cluster belongs to the caller, and is running before it starts.

    Args:
      cluster: what it stands in front of.
      folder: for its configuration and logs.
      account: a super account of the cluster; None: the cluster has no accounts.
    """

    def __init__(self, cluster: Cluster, folder: Path, *, account: Keys | None = None) -> None:
        self._folder = folder
        self._port = free_port()
        self._process: OurProcess | None = None
        folder.mkdir(parents=True, exist_ok=True)
        keys: dict[str, object] = {
            "namesrvAddr": cluster.namesrv_address,
            "bindAddress": "127.0.0.1",
            "grpcServerPort": self._port,
        }
        if account is not None:
            signed = acl_2_keys(account)
            names = ("authenticationEnabled", "innerClientAuthenticationCredentials")
            keys |= {name: signed[name] for name in names}
        (folder / "rmq-proxy.json").write_text(json.dumps(keys, indent=1), encoding="utf-8")

    @property
    def grpc_address(self) -> str:
        """HOST:PORT for clients."""
        return f"127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        """Of the running process."""
        if self._process is None:
            raise PeerError("the proxy does not run")
        return self._process.pid

    def start(self) -> None:
        """Start it. Raises: PeerError: it ended, or was not ready in time."""
        command = [*COMMAND, "proxy", "--config", str(self._folder / "rmq-proxy.json")]
        process = OurProcess(command, folder=self._folder, name="proxy", environment=UNBUFFERED)
        self._process = process
        try:
            process.wait_line(
                lambda line: "startup successfully" in line, timeout_s=START_TIMEOUT_S
            )
        except PeerError:
            self.close()
            raise

    def stop(self) -> None:
        """Stop it by SIGTERM. Raises: PeerError: it did not end, or not with 0."""
        process, self._process = self._process, None
        if process is not None:
            process.stop()

    def close(self) -> None:
        """Kill it, and leave the cluster as it is."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
