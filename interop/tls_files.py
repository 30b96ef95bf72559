"""The files of TLS for servers and clients of a test: what `trocket tls init` makes.

Apache's servers and clients read the `tls.properties` that it writes; ours read the same.

Java counterpart: the system properties of remoting/netty/TlsSystemConfig.java.
"""

from __future__ import annotations

import ssl
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from .process import PeerError

COMMAND = (sys.executable, "-m", "trocket.cli.main", "tls")
INIT_TIMEOUT_S = 60.0
ENFORCING = "enforcing"
PERMISSIVE = "permissive"


@dataclass(frozen=True)
class ServerTls:
    """TLS of a cluster's servers.

    Attributes:
      folder: the authority's, as `trocket tls init` makes it.
      mode: tls.server.mode: "enforcing" or "permissive".
    """

    folder: Path
    mode: str

    @property
    def java_options(self) -> tuple[str, ...]:
        """For the JVM of Apache's servers; the broker connects to its name server by TLS, too."""
        return (f"-Dtls.server.mode={self.mode}", *_java_options(self.folder / "server"))

    @property
    def keys(self) -> dict[str, object]:
        """The same for the configuration files of our servers."""
        return {
            "tls.server.mode": self.mode,
            "tlsConfigFile": self.folder / "server" / "tls.properties",
            "tls.enable": True,
        }

    @property
    def context(self) -> ssl.SSLContext | None:
        """For the harness's own connections to the servers; None: they may be plain."""
        return ClientTls(self.folder).context if self.mode == ENFORCING else None


@dataclass(frozen=True)
class ClientTls:
    """TLS of a client.

    Attributes:
      shows_certificate: the client's own certificate is given, too.
      verifies: the server's certificate is checked.
    """

    folder: Path
    shows_certificate: bool = True
    verifies: bool = True

    @property
    def java_options(self) -> tuple[str, ...]:
        """For the JVM of a client of Apache's.

        Its tls.properties has the client's certificate also where no server asks for it. A client
        that verifies nothing has no such file, as after `setUseTLS(true)` alone.
        """
        if not self.verifies:
            return ("-Dtls.enable=true", f"-Dtls.config.file={self.folder / 'none'}")
        return _java_options(self.folder / "client")

    def url(self, namesrv_address: str) -> str:
        own = self.folder / "client"
        values = {
            "tls_ca": own / "ca.crt" if self.verifies else None,
            "tls_verify": None if self.verifies else "false",
            "tls_cert": own / "client.crt" if self.shows_certificate else None,
            "tls_key": own / "client.key" if self.shows_certificate else None,
        }
        query = "&".join(f"{key}={value}" for key, value in values.items() if value is not None)
        return f"rocketmq://{namesrv_address}?{query}"

    @property
    def context(self) -> ssl.SSLContext:
        """For Python's own sockets; with the client's certificate."""
        own = self.folder / "client"
        context = ssl.create_default_context(cafile=str(own / "ca.crt"))
        context.load_cert_chain(own / "client.crt", own / "client.key")
        return context


def make_files(folder: Path, client_auth: str) -> None:
    """Make an authority and its certificates by `trocket tls init`.

    Args:
      folder: must not exist.
      client_auth: none, optional or require.

    Raises: PeerError: the command failed.
    """
    command = [*COMMAND, "init", str(folder), "--client-auth", client_auth]
    run_tls(command)


def renew_files(folder: Path) -> None:
    """Renew the certificates by `trocket tls renew`. Raises: PeerError: the command failed."""
    run_tls([*COMMAND, "renew", "--dir", str(folder)])


def run_tls(command: list[str]) -> None:
    """Run a command of `trocket tls`. Raises: PeerError: it failed."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=INIT_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PeerError(f"{' '.join(command)}: {error}") from error
    if done.returncode != 0:
        raise PeerError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr.strip()}")


def _java_options(folder: Path) -> tuple[str, ...]:
    return "-Dtls.enable=true", f"-Dtls.config.file={folder / 'tls.properties'}"
