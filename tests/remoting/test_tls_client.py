"""Connections that a server opens by TLS to other servers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest
import trio

from trocket.remoting.client import RemotingClient
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.errors import RemotingConnectError
from trocket.remoting.tls_client import ClientTls
from trocket.remoting.tls_config import ClientAuth, TlsConfig, TlsMode

from .test_connection import ECHO
from .tls_support import OTHERS, OURS, Certificates, Listening, listening

TIMEOUT_S = 5.0


@asynccontextmanager
async def calling(config: TlsConfig) -> AsyncIterator[RemotingClient]:
    client = RemotingClient(tls=ClientTls(config))
    async with trio.open_nursery() as nursery:
        await nursery.start(client.run)
        yield client
        nursery.cancel_scope.cancel()


async def ask(client: RemotingClient, server: Listening, host: str = "127.0.0.1") -> None:
    answer = await client.call(f"{host}:{server.port}", RemotingCommand(ECHO), TIMEOUT_S)
    assert answer.code == 0


async def problem(config: TlsConfig, server: Listening, host: str = "127.0.0.1") -> str:
    """The error of a call."""
    async with calling(config) as client:
        with pytest.raises(RemotingConnectError) as caught:
            await ask(client, server, host)
    return str(caught.value)


async def test_any_certificate_is_accepted_unless_the_settings_say_otherwise(
    files: Certificates,
) -> None:
    async with listening(files.server(OTHERS)) as server, calling(TlsConfig()) as client:
        await ask(client, server)


async def test_certificates_of_servers_are_verified(files: Certificates) -> None:
    config = TlsConfig(auth_server=True, client_trust_cert_path=files.trust())
    async with listening(files.server()) as server, calling(config) as client:
        await ask(client, server)
    async with listening(files.server(OTHERS)) as server:
        text = await problem(config, server)
        assert f"cannot connect to 127.0.0.1:{server.port}: TLS: tls.client.trustCertPath" in text
        assert "does not trust its certificate" in text
    expired = files.server()
    files.write("server", not_after=datetime(2021, 1, 1, tzinfo=UTC))
    async with listening(expired) as server:
        assert "certificate has expired" in await problem(config, server)


async def test_names_in_certificates_are_compared_if_the_settings_say_so(
    files: Certificates,
) -> None:
    config = TlsConfig(auth_server=True, client_trust_cert_path=files.trust(), check_hostname=True)
    async with listening(files.server()) as server:
        async with calling(config) as client:
            await ask(client, server)
        assert "Hostname mismatch" in await problem(config, server, "localhost")
        config.check_hostname = False
        async with calling(config) as client:
            await ask(client, server, "localhost")


async def test_servers_get_a_certificate_if_they_ask(files: Certificates) -> None:
    server_config = files.server(
        need_client_auth=ClientAuth.require, auth_client=True, server_trust_cert_path=files.trust()
    )
    cert_path, key_path = files.write("client")
    own = TlsConfig(client_cert_path=cert_path, client_key_path=key_path)
    async with listening(server_config) as server:
        async with calling(own) as client:
            await ask(client, server)
        async with calling(TlsConfig()) as client:
            with pytest.raises(RemotingConnectError, match=r"(?i)certificate.required"):
                await ask(client, server)


async def test_a_plain_server_is_no_tls_server(files: Certificates) -> None:
    async with listening(TlsConfig(mode=TlsMode.disabled)) as server:
        text = await problem(TlsConfig(), server)
        assert "TLS: it ended the connection" in text


async def test_changed_files_count_for_new_connections(files: Certificates) -> None:
    config = TlsConfig(auth_server=True, client_trust_cert_path=files.trust(OTHERS))
    async with listening(files.server()) as server, calling(config) as client:
        with pytest.raises(RemotingConnectError):
            await ask(client, server)
        files.trust(OURS)
        await ask(client, server)
        (files.folder / "ca.pem").write_text("no PEM")
        await ask(client, server)  # the open connection stays
        (await client.channel(f"127.0.0.1:{server.port}")).close()
        with pytest.raises(RemotingConnectError, match="it has no certificate in PEM form"):
            await ask(client, server)
