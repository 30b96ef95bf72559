"""Certificates in files, and a server that listens with them, for tests of TLS."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import trio
import trustme

from trocket.remoting.codec import RemotingCommand
from trocket.remoting.connection import ConnectionLimits
from trocket.remoting.server import RemotingServer, open_listener
from trocket.remoting.tls_config import TlsConfig
from trocket.remoting.tls_server import ServerTls
from trocket.remoting.turn import Turn

from .test_connection import ECHO, FarEnd, Service

OURS, OTHERS = trustme.CA(), trustme.CA()
NAME = "broker-a.example.org"


@dataclass
class Certificates:
    """Certificates, keys and authorities in the files of a folder."""

    folder: Path

    def write(
        self,
        name: str = "server",
        authority: trustme.CA = OURS,
        *,
        identity: str = NAME,
        not_after: datetime | None = None,
    ) -> tuple[str, str]:
        """Issue a certificate; the paths of it and of its key."""
        issued = authority.issue_cert(
            identity,
            "127.0.0.1",
            not_before=datetime(2020, 1, 1, tzinfo=UTC) if not_after else None,
            not_after=not_after,
        )
        cert_path, key_path = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
        cert_path.write_bytes(chain)
        issued.private_key_pem.write_to_path(str(key_path))
        key_path.chmod(0o600)
        return str(cert_path), str(key_path)

    def trust(self, authority: trustme.CA = OURS, name: str = "ca") -> str:
        """Write the certificate of an authority; its path."""
        path = self.folder / f"{name}.pem"
        authority.cert_pem.write_to_path(str(path))
        return str(path)

    def server(self, authority: trustme.CA = OURS, **more: object) -> TlsConfig:
        """The settings of a server with a certificate."""
        cert_path, key_path = self.write("server", authority)
        return TlsConfig(server_cert_path=cert_path, server_key_path=key_path, **more)  # type: ignore[arg-type]


def client_context(
    trusts: trustme.CA | None = OURS, own: trustme.LeafCert | None = None
) -> ssl.SSLContext:
    """A client's context.

    Args:
      trusts: None: any certificate is accepted.
      own: the client's certificate.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    if trusts is None:
        context.verify_mode = ssl.CERT_NONE
    else:
        trusts.configure_trust(context)
    if own is not None:
        own.configure_cert(context)
    return context


@dataclass
class Listening:
    """A server that listens on a port of this machine."""

    server: RemotingServer
    service: Service
    port: int
    streams: list[trio.SocketStream] = field(default_factory=list)

    async def connect(self) -> trio.SocketStream:
        """A connection, on which nothing is sent."""
        self.streams.append(await trio.open_tcp_stream("127.0.0.1", self.port))
        return self.streams[-1]

    async def plain(self) -> FarEnd:
        """A connection without TLS."""
        return FarEnd(await self.connect())

    async def secure(self, context: ssl.SSLContext | None = None, name: str = NAME) -> FarEnd:
        """A connection by TLS; the handshake is complete."""
        secure = trio.SSLStream(
            await self.connect(),
            context or client_context(),
            server_hostname=name,
            https_compatible=True,
        )
        await secure.do_handshake()
        return FarEnd(secure)

    async def serves(self, peer: Awaitable[FarEnd]) -> bool:
        """Whether a new connection is served; otherwise the server closes it."""
        try:
            return await (await peer).ask(RemotingCommand(ECHO)) is not None
        except trio.BrokenResourceError:
            return False


@asynccontextmanager
async def listening(
    config: TlsConfig | None,
    *,
    service: Service | None = None,
    limits: ConnectionLimits | None = None,
) -> AsyncIterator[Listening]:
    """Serve on a free port until the block ends.

    Args:
      config: None: the server knows no TLS.
    """
    service = service or Service()
    server = RemotingServer(
        service.processors(),
        turn=Turn(service.end_turn),
        on_channel_closed=service.closed.append,
        limits=limits,
        tls=ServerTls(config) if config else None,
    )
    listener = open_listener("127.0.0.1", 0)
    async with trio.open_nursery() as nursery:
        await nursery.start(server.serve, [listener])
        running = Listening(server, service, listener.getsockname()[1])
        try:
            yield running
        finally:
            for stream in running.streams:
                await trio.aclose_forcefully(stream)
            nursery.cancel_scope.cancel()
