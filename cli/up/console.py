"""The console of `trocket up --console`: a child process beside the broker."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import trio

from ...common import process
from ...remoting.tls_options import VARIABLES
from .errors import ConsoleError

if TYPE_CHECKING:
    from ...remoting.signature import Credentials
    from ...remoting.tls_config import TlsConfig

START_S: Final = 30.0
"""How long it may take to say its address: it takes a second, and more on a busy machine."""
STOP_GRACE_S: Final = 5.0
"""From SIGTERM to SIGKILL: it ends within 2 s, however many pages are open."""
ADDRESS_SIZE_MAX: Final = 4_096


class ConsoleChild:
    """A console in a child process, which writes its log to this one's standard error.

    Args:
      port: where it listens on loopback; 0: any free port.
      tls: of the servers, where they serve only TLS; None: requests are plain.
    """

    def __init__(self, port: int, tls: TlsConfig | None) -> None:
        self._port = port
        self._tls = tls
        self._process: trio.Process | None = None
        self._is_stopping = False

    async def start(self, namesrv: str, account: Credentials | None) -> str:
        """Start it; returns the address to open, with its token.

        Args:
          namesrv: `host:port` of the name server.
          account: with which it signs its requests; None: it does not.

        Raises: ConsoleError: it ended, or did not say its address in time; its log has the reason.
        """
        words = ("console", "--url", namesrv, "--port", str(self._port), "--exit-with-parent")
        self._process = await trio.lowlevel.open_process(
            [sys.executable, "-m", "trocket.cli.main", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env={**os.environ, **environment_of(account, self._tls)},
            start_new_session=True,  # Ctrl-C must reach this process only, which stops it
        )
        line = b""
        with trio.move_on_after(START_S):
            line = await self._first_line()
        if not line.endswith(b"\n"):
            raise ConsoleError("the console did not start; see the lines before")
        return line.decode("utf-8", "replace").strip()

    async def watch(self) -> None:
        """Report if it ends; the broker goes on without it."""
        assert self._process is not None
        status = await self._process.wait()
        if not self._is_stopping:
            process.logger.error("the console has ended: exit status %s", status)

    async def stop(self) -> None:
        """Stop it with SIGTERM, after STOP_GRACE_S with SIGKILL."""
        self._is_stopping = True
        child = self._process
        if child is None:
            return
        child.terminate()
        with trio.move_on_after(STOP_GRACE_S):
            await child.wait()
        if child.returncode is None:
            child.kill()
            await child.wait()

    async def _first_line(self) -> bytes:
        assert self._process is not None
        assert self._process.stdout is not None
        line = b""
        while not line.endswith(b"\n") and len(line) < ADDRESS_SIZE_MAX:
            data = await self._process.stdout.receive_some(ADDRESS_SIZE_MAX)
            if not data:
                break
            line += data
        return line


def environment_of(account: Credentials | None, tls: TlsConfig | None) -> dict[str, str]:
    """The variables by which a console reaches servers of this machine. Pure.

    They are no arguments, since every user of a machine sees those of every process.

    Args:
      account: with which it signs; None: it does not.
      tls: of the servers, where they serve only TLS; None: requests are plain.
    """
    found = {}
    if account is not None:
        found["ROCKETMQ_ACCESS_KEY"] = account.access_key
        found["ROCKETMQ_SECRET_KEY"] = account.secret_key
    if tls is not None:
        values = {
            "enabled": "true",
            "cert_file": tls.client_cert_path,
            "key_file": tls.client_key_path,
            "key_password": tls.client_key_password,
            # As the self-check: the servers are started by the same process.
            "verify": "false",
            "check_hostname": "false",
        }
        found |= {VARIABLES[name]: value for name, value in values.items() if value}
    return found
