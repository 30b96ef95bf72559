"""The client over TLS, before a relay that ends it."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import anyio.abc
import anyio.streams.tls
import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

import trocket.blocking
from trocket import Client, ConfigurationError, ConnectError, TlsOptions
from trocket.remoting.request_codes import RequestCode
from trocket.testing import Broker

from .conftest import Play

AUTHORITY = trustme.CA()
STRANGER = trustme.CA()

ASK = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
SOON_S = 1.0
"""The time limit of requests that are tried until it is over."""


def client_context(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


def server_context(certificate: trustme.LeafCert | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    (certificate or AUTHORITY.issue_cert("127.0.0.1")).configure_cert(context)
    return context


def mutual_context() -> ssl.SSLContext:
    """A server's context that wants a client's certificate."""
    context = server_context()
    context.verify_mode = ssl.CERT_REQUIRED
    AUTHORITY.configure_trust(context)
    return context


@asynccontextmanager
async def relay(
    address: str, context: ssl.SSLContext | None = None, shown: list[str] | None = None
) -> AsyncIterator[int]:
    """A TLS port for a plain one; it closes as Netty does, without a goodbye.

    Args:
      shown: gets the common name of each client's certificate.
    """
    context = context or server_context()
    host, _, port = address.rpartition(":")

    async def copy(source: anyio.abc.ByteStream, target: anyio.abc.ByteStream) -> None:
        try:
            async for data in source:
                await target.send(data)
        except anyio.BrokenResourceError:
            pass

    async def serve(raw: anyio.abc.SocketStream) -> None:
        try:
            near = await anyio.streams.tls.TLSStream.wrap(
                raw, server_side=True, ssl_context=context, standard_compatible=False
            )
        except (anyio.BrokenResourceError, anyio.EndOfStream, ssl.SSLError, OSError):
            await anyio.aclose_forcefully(raw)
            return
        if shown is not None:
            subject = near.extra(anyio.streams.tls.TLSAttribute.peer_certificate)["subject"]
            shown.append(dict(pair for part in subject for pair in part)["commonName"])
        async with (
            near,
            await anyio.connect_tcp(host, int(port)) as far,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(copy, near, far)
            await copy(far, near)
            tasks.cancel_scope.cancel()

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, serve)
        yield listener.extra(anyio.abc.SocketAttribute.local_port)
        tasks.cancel_scope.cancel()


def test_requests_go_through_tls(play: Play, broker: Broker, topic: str) -> None:
    async def scenario() -> None:
        async with (
            relay(broker.namesrv_address) as port,
            Client(f"127.0.0.1:{port}", tls=client_context(AUTHORITY)) as client,
        ):
            answer = await client.request_name_server(
                RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
            )
            assert topic.encode() in answer.body

    play(scenario)


def test_a_server_with_an_untrusted_certificate_is_refused(play: Play, broker: Broker) -> None:
    async def scenario() -> None:
        stranger = client_context(trustme.CA())
        async with (
            relay(broker.namesrv_address) as port,
            Client(f"127.0.0.1:{port}", tls=stranger) as client,
        ):
            with pytest.raises(ConnectError, match=rf"127\.0\.0\.1:{port}.*certificate"):
                await client.request_name_server(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)

    play(scenario)


@pytest.mark.slow
def test_a_plain_server_is_no_tls_server(play: Play) -> None:
    async def serve(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            await stream.receive()  # the handshake, at which a server of RocketMQ closes

    async def scenario() -> None:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        async with listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, serve)
            address = f"127.0.0.1:{listener.extra(anyio.abc.SocketAttribute.local_port)}"
            async with Client(f"rocketmq://{address}?tls=true", timeout_s=SOON_S) as client:
                with pytest.raises(ConnectError, match=f"{address}.*turn TLS on there"):
                    await client.request_name_server(ASK)
            tasks.cancel_scope.cancel()

    play(scenario)


@pytest.mark.slow
def test_a_tls_server_is_no_plain_server(play: Play, broker: Broker) -> None:
    async def scenario() -> None:
        async with (
            relay(broker.namesrv_address) as port,
            Client(f"127.0.0.1:{port}", timeout_s=SOON_S) as client,
        ):
            with pytest.raises(ConnectError, match=r"; it may want TLS \(tls=True"):
                await client.request_name_server(ASK)

    play(scenario)


class Files:
    """Files of the authority, of a client, and of another authority."""

    def __init__(self, folder: Path) -> None:
        self.ca = folder / "ca.crt"
        self.stranger = folder / "stranger.crt"
        self.cert = folder / "client.crt"
        self.key = folder / "client.key"
        AUTHORITY.cert_pem.write_to_path(self.ca)
        STRANGER.cert_pem.write_to_path(self.stranger)
        self.write_client(AUTHORITY)

    def write_client(self, authority: trustme.CA, name: str = "client") -> None:
        made = authority.issue_cert("client.example", common_name=name)
        made.cert_chain_pems[0].write_to_path(self.cert)
        made.private_key_pem.write_to_path(self.key)

    def of_client(self) -> TlsOptions:
        return TlsOptions(ca_file=self.ca, cert_file=self.cert, key_file=self.key)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def test_both_sides_can_have_certificates(play: Play, broker: Broker, files: Files) -> None:
    async def scenario() -> None:
        async with (
            relay(broker.namesrv_address, mutual_context()) as port,
            Client(f"127.0.0.1:{port}", tls=files.of_client()) as client,
        ):
            assert (await client.request_name_server(ASK)).body

    play(scenario)


def test_a_url_can_have_all_files(play: Play, broker: Broker, files: Files) -> None:
    async def scenario() -> None:
        async with relay(broker.namesrv_address, mutual_context()) as port:
            query = f"tls_ca={files.ca}&tls_cert={files.cert}&tls_key={files.key}"
            async with Client(f"rocketmq://127.0.0.1:{port}?{query}") as client:
                assert (await client.request_name_server(ASK)).body

    play(scenario)


def test_a_blocking_client_has_the_same_options(broker: Broker, files: Files) -> None:
    async def scenario() -> None:
        async with relay(broker.namesrv_address, mutual_context()) as port:

            def ask() -> bytes:
                url = f"127.0.0.1:{port}"
                with trocket.blocking.Client(url, tls=files.of_client()) as client:
                    return client.request_name_server(ASK).body

            assert await anyio.to_thread.run_sync(ask)

    anyio.run(scenario)


def test_a_client_that_verifies_nothing_trusts_any_server(play: Play, broker: Broker) -> None:
    async def scenario() -> None:
        foreign = server_context(STRANGER.issue_cert("elsewhere.example"))
        async with (
            relay(broker.namesrv_address, foreign) as port,
            Client(f"127.0.0.1:{port}", tls=TlsOptions(verify=False)) as client,
        ):
            assert (await client.request_name_server(ASK)).body

    play(scenario)


def expired() -> ssl.SSLContext:
    began = datetime(2020, 1, 1, tzinfo=UTC)
    ended = began + timedelta(days=1)
    return server_context(AUTHORITY.issue_cert("127.0.0.1", not_before=began, not_after=ended))


def old_mutual() -> ssl.SSLContext:
    """TLS 1.2, which ends the handshake itself."""
    context = mutual_context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    return context


FAILURES = {
    "another authority": (server_context, "stranger", "not signed by an authority in .*stranger"),
    "expired": (expired, "ca", "has expired: renew it there"),
    "another name": (
        lambda: server_context(AUTHORITY.issue_cert("elsewhere.example")),
        "ca",
        r"does not name 127\.0\.0\.1: make one that does",
    ),
    "no client's certificate": (mutual_context, "ca", "wants a client's certificate: give cert"),
    "none with TLS 1.2": (old_mutual, "ca", "wants a client's certificate"),
}


@pytest.mark.parametrize(("server", "ca", "text"), FAILURES.values(), ids=FAILURES)
def test_a_failure_says_what_to_do(
    play: Play,
    broker: Broker,
    files: Files,
    server: Callable[[], ssl.SSLContext],
    ca: str,
    text: str,
) -> None:
    async def scenario() -> None:
        options = TlsOptions(ca_file=getattr(files, ca))
        async with (
            relay(broker.namesrv_address, server()) as port,
            Client(f"127.0.0.1:{port}", tls=options, wait_for_broker_s=0) as client,
        ):
            with pytest.raises(ConnectError, match=text) as raised:
                await client.request_name_server(ASK)
            assert "\n" not in str(raised.value)

    play(scenario)


@pytest.mark.slow
def test_a_client_of_another_authority_is_refused(play: Play, broker: Broker, files: Files) -> None:
    files.write_client(STRANGER)

    async def scenario() -> None:
        async with (
            relay(broker.namesrv_address, mutual_context()) as port,
            Client(f"127.0.0.1:{port}", tls=files.of_client(), timeout_s=SOON_S) as client,
        ):
            with pytest.raises(ConnectError, match="it may not trust this client's certificate"):
                await client.request_name_server(ASK)

    play(scenario)


def test_a_key_may_have_a_password(play: Play, broker: Broker, files: Files) -> None:
    plain = load_pem_private_key(files.key.read_bytes(), password=None)
    encryption = BestAvailableEncryption(b"swordfish")
    files.key.write_bytes(plain.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption))

    async def scenario() -> None:
        async with relay(broker.namesrv_address, mutual_context()) as port:
            tls = replace(files.of_client(), key_password="swordfish")
            async with Client(f"127.0.0.1:{port}", tls=tls) as client:
                assert (await client.request_name_server(ASK)).body

    play(scenario)
    with pytest.raises(ConfigurationError, match="the key has a password: give key_password"):
        Client("127.0.0.1:9876", tls=files.of_client())
    with pytest.raises(ConfigurationError, match="or key_password is wrong") as raised:
        Client("127.0.0.1:9876", tls=replace(files.of_client(), key_password="other"))
    assert "other" not in str(raised.value)


def test_renewed_files_are_used_for_new_connections(
    play: Play, broker: Broker, files: Files
) -> None:
    async def scenario() -> None:
        shown: list[str] = []
        context = mutual_context()
        async with relay(broker.namesrv_address, context, shown) as port:
            address = f"127.0.0.1:{port}"
            async with Client(address, tls=files.of_client()) as client:
                await client.request_name_server(ASK)
                files.write_client(AUTHORITY, "renewed")
                await client.request_name_server(ASK)
                assert shown == ["client"]  # the open connection stays
                (await client.connection(address)).close("the test closes it")
                await client.request_name_server(ASK)
                assert shown == ["client", "renewed"]

    play(scenario)


def test_files_that_became_unusable_are_not_used(
    play: Play, broker: Broker, files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with relay(broker.namesrv_address, mutual_context()) as port:
            address = f"127.0.0.1:{port}"
            async with Client(address, tls=files.of_client()) as client:
                await client.request_name_server(ASK)
                files.key.write_text("half a key")
                (await client.connection(address)).close("the test closes it")
                assert (await client.request_name_server(ASK)).body

    play(scenario)
    assert str(files.key) in caplog.text
    assert "replace them by good ones" in caplog.text


def unusable(files: Files) -> dict[str, tuple[TlsOptions, str]]:
    other = files.key.with_name("other.key")
    trustme.CA().issue_cert("x").private_key_pem.write_to_path(other)
    return {
        "missing": (TlsOptions(ca_file="/none"), "ca_file /none of TLS: No such file"),
        "no PEM": (TlsOptions(ca_file=files.key), "has no certificate of an authority"),
        "another key": (
            TlsOptions(cert_file=files.cert, key_file=other),
            "the key is another certificate's",
        ),
        "no key": (TlsOptions(cert_file=files.cert), "are no certificate and its key"),
    }


@pytest.mark.parametrize("which", ["missing", "no PEM", "another key", "no key"])
def test_files_that_cannot_be_used_are_named_at_once(files: Files, which: str) -> None:
    options, text = unusable(files)[which]
    with pytest.raises(ConfigurationError, match=text):
        Client("127.0.0.1:9876", tls=options)


def test_options_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ValueError, match="give cert_file, too"):
        TlsOptions(key_file="k")
    with pytest.raises(ValueError, match="no effect with verify=False"):
        TlsOptions(ca_file="c", verify=False)
    with pytest.raises(ConfigurationError, match=r"give TlsOptions\(\.\.\.\)"):
        Client("127.0.0.1:9876", tls="yes")  # type: ignore[arg-type]


def test_a_password_is_not_shown() -> None:
    assert "swordfish" not in repr(TlsOptions(cert_file="c", key_password="swordfish"))
