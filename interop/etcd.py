"""A cluster of etcd members as processes, for controllers whose state is there.

The program is `etcd` of the PATH, or of the variable TROCKET_ETCD. With Go it can be built from its
module: `go build go.etcd.io/etcd/server/v3`, in a module that requires it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import ssl
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from .ports import free_port
from .process import LineProcess, PeerError

VARIABLE: Final = "TROCKET_ETCD"
READY_TIMEOUT_S: Final = 30.0
STOP_TIMEOUT_S: Final = 10.0
PAUSE_S: Final = 0.05


def etcd_program() -> str | None:
    """The path of etcd; None: this machine has none."""
    return os.environ.get(VARIABLE) or shutil.which("etcd")


class EtcdMember:
    """A member, stopped at first.

    Attributes:
      name: "e0" and so on.
      url: where clients reach it.
    """

    def __init__(self, number: int, folder: Path, scheme: str) -> None:
        self.name = f"e{number}"
        self.folder = folder
        self.url = f"{scheme}://127.0.0.1:{free_port()}"
        self.peer_url = f"http://127.0.0.1:{free_port()}"
        self._options: list[str] = []
        self._process: LineProcess | None = None

    def configure(self, cluster: str, options: tuple[str, ...]) -> None:
        """Set what all members must know before the first start."""
        self._options = [
            "--name", self.name,
            "--data-dir", str(self.folder / "data"),
            "--listen-client-urls", self.url,
            "--advertise-client-urls", self.url,
            "--listen-peer-urls", self.peer_url,
            "--initial-advertise-peer-urls", self.peer_url,
            "--initial-cluster", cluster,
            *options,
        ]  # fmt: skip

    @property
    def is_running(self) -> bool:
        return self._process is not None

    @property
    def pid(self) -> int:
        """Of the running process. Raises: PeerError: it does not run."""
        if self._process is None:
            raise PeerError(f"{self.name} does not run")
        return self._process.pid

    def start(self) -> None:
        """Start it; it is ready once a majority runs. Raises: PeerError: there is no etcd."""
        program = etcd_program()
        if program is None:
            raise PeerError(f"there is no etcd on the PATH, and {VARIABLE} names none")
        if self._process is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            command = [program, *self._options]
            self._process = LineProcess(command, folder=self.folder, name=self.name)

    def kill(self) -> None:
        """Kill it with SIGKILL, frozen or not."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()

    def freeze(self) -> None:
        """Freeze it (SIGSTOP)."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on (SIGCONT)."""
        os.kill(self.pid, signal.SIGCONT)


class EtcdCluster:
    """Members of one cluster. Use it as a context manager: all processes end with it.

    Args:
      folder: everything of this run.
      count: of members.
      options: further options of etcd, of all members.
      tls: for https; None: http.
    """

    def __init__(
        self,
        folder: Path,
        *,
        count: int = 3,
        options: tuple[str, ...] = (),
        tls: ssl.SSLContext | None = None,
    ) -> None:
        scheme = "http" if tls is None else "https"
        self._tls = tls
        self.members = tuple(
            EtcdMember(number, folder / f"e{number}", scheme) for number in range(count)
        )
        cluster = ",".join(f"{each.name}={each.peer_url}" for each in self.members)
        for each in self.members:
            each.configure(cluster, options)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for member in self.members:
            member.kill()

    @property
    def endpoints(self) -> tuple[str, ...]:
        """The members' URLs."""
        return tuple(member.url for member in self.members)

    def start(self) -> None:
        """Start all members, and wait until they have a leader. Raises: PeerError."""
        for member in self.members:
            member.start()
        self.wait_ready()

    def wait_ready(self) -> None:
        """Wait until the first running member answers. Raises: PeerError."""
        until_s = time.monotonic() + READY_TIMEOUT_S
        never = threading.Event()
        while True:
            try:
                self.call("/v3/kv/range", {"key": "AA=="})
                return
            except PeerError:
                if time.monotonic() > until_s:
                    raise
            never.wait(PAUSE_S)

    def call(self, path: str, body: object) -> dict[str, Any]:
        """Ask the first running member. Raises: PeerError: it refuses, or does not answer."""
        url = next((each.url for each in self.members if each.is_running), "")
        request = urllib.request.Request(url + path, json.dumps(body).encode())
        try:
            with urllib.request.urlopen(request, timeout=5, context=self._tls) as answer:
                found: dict[str, Any] = json.loads(answer.read())
                return found
        except (OSError, urllib.error.URLError, ValueError) as error:
            raise PeerError(f"{url}{path}: {error}") from error

    def leader(self) -> EtcdMember:
        """The member that leads. Raises: PeerError: none does."""
        for member in self.members:
            if member.is_running:
                status = self._status(member)
                if status.get("leader") and status["leader"] == status["header"]["member_id"]:
                    return member
        raise PeerError("no member of etcd leads")

    def _status(self, member: EtcdMember) -> dict[str, Any]:
        request = urllib.request.Request(f"{member.url}/v3/maintenance/status", b"{}")
        try:
            with urllib.request.urlopen(request, timeout=5, context=self._tls) as answer:
                found: dict[str, Any] = json.loads(answer.read())
                return found
        except (OSError, urllib.error.URLError, ValueError):
            return {}
