"""A server with TLS on its port: it serves the right connections, in the same way as plain ones."""

from __future__ import annotations

import socket
import ssl
from datetime import UTC, datetime

import pytest
import trio

from trocket.remoting.codec import RemotingCommand, encode
from trocket.remoting.tls_config import ClientAuth, TlsConfig, TlsMode
from trocket.remoting.tls_server import FAILED, WRONG_KIND

from .test_connection import ECHO
from .tls_support import NAME, OTHERS, OURS, Certificates, client_context, listening

MIB = 1024 * 1024


def mutual(files: Certificates, auth: ClientAuth = ClientAuth.require) -> TlsConfig:
    """The settings of a server that asks for certificates of OURS."""
    return files.server(
        need_client_auth=auth, auth_client=True, server_trust_cert_path=files.trust()
    )


async def test_both_kinds_are_served_on_one_port(files: Certificates) -> None:
    async with listening(files.server()) as server:
        for peer in (await server.plain(), await server.secure()):
            for size in (0, 10, 3 * MIB):
                body = bytes(range(256)) * (size // 256)
                answer = await peer.ask(RemotingCommand(ECHO, body=body, opaque=size))
                assert answer is not None
                assert (answer.opaque, answer.body) == (size, body)
        assert len(server.server.channels) == 2


async def test_a_certificate_is_made_where_none_is_configured() -> None:
    async with listening(TlsConfig()) as server:
        assert await server.serves(server.secure(client_context(None)))


@pytest.mark.parametrize(
    ("mode", "is_secure", "says"),
    [
        (TlsMode.disabled, True, "it speaks TLS, and tls.server.mode is disabled here"),
        (TlsMode.enforcing, False, "it does not speak TLS, which tls.server.mode=enforcing"),
    ],
)
async def test_the_wrong_kind_is_closed_with_a_line(
    files: Certificates,
    caplog: pytest.LogCaptureFixture,
    mode: TlsMode,
    is_secure: bool,
    says: str,
) -> None:
    async with listening(files.server(mode=mode)) as server:
        connect = (server.secure, server.plain)
        right, wrong = connect if mode is TlsMode.enforcing else connect[::-1]
        for _ in range(3):
            assert not await server.serves(wrong())
        assert says in caplog.text
        assert len(caplog.records) == 1
        assert server.server.refusals.counts == {WRONG_KIND: 3}
        assert await server.serves(right())


@pytest.mark.parametrize("auth", [ClientAuth.require, ClientAuth.optional])
async def test_certificates_of_clients_are_verified(
    files: Certificates, caplog: pytest.LogCaptureFixture, auth: ClientAuth
) -> None:
    expired = datetime(2021, 1, 1, tzinfo=UTC)
    wrong = [
        (OTHERS.issue_cert("client"), "tls.server.trustCertPath does not trust its certificate"),
        (
            OURS.issue_cert("c", not_before=datetime(2020, 1, 1, tzinfo=UTC), not_after=expired),
            "certificate has expired",
        ),
    ]
    async with listening(mutual(files, auth)) as server:
        assert await server.serves(server.secure(client_context(own=OURS.issue_cert("client"))))
        for certificate, says in wrong:
            assert not await server.serves(server.secure(client_context(own=certificate)))
            assert says in caplog.text
        assert await server.serves(server.secure()) is (auth is ClientAuth.optional)
        assert ("it sent no certificate" in caplog.text) is (auth is ClientAuth.require)
        assert server.server.refusals.counts == {FAILED: 3 if auth is ClientAuth.require else 2}


def test_a_client_that_does_not_trust_the_server_is_named(
    files: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    """trio's stream ends without an alert, OpenSSL's own says why."""

    def shake(port: int) -> None:
        with (
            socket.create_connection(("127.0.0.1", port)) as plain,
            pytest.raises(ssl.SSLCertVerificationError),
        ):
            client_context(OTHERS).wrap_socket(plain, server_hostname=NAME)

    async def scenario() -> None:
        async with listening(files.server()) as server:
            await trio.to_thread.run_sync(shake, server.port)
            assert not await server.serves(server.secure(client_context(OTHERS)))
            assert await server.serves(server.secure())

    trio.run(scenario)
    assert "it does not trust the certificate of this side (unknown ca)" in caplog.text
    assert "it ended the connection; it may not trust the certificate" in caplog.text


async def test_a_burst_behind_the_handshake_is_served(files: Certificates) -> None:
    """The first requests arrive together with the client's last message of the handshake."""
    async with listening(files.server()) as server:
        peer = await server.secure()
        requests = [RemotingCommand(ECHO, opaque=n) for n in range(100)]
        await peer.stream.send_all(b"".join(map(encode, requests)))
        answers = [await peer.receive() for _ in range(100)]
        assert [answer and answer.opaque for answer in answers] == list(range(100))
        assert server.service.turns < 100
