"""Certificates that change while a server runs, and several of them on one port."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
import trio.testing
from cryptography import x509

from trocket.common.config import ConfigError
from trocket.remoting import tls_context, tls_server
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.tls_config import ClientAuth, TlsConfig
from trocket.remoting.tls_context import sni_files
from trocket.remoting.tls_server import ServerTls

from .test_connection import ECHO, FarEnd
from .tls_support import NAME, OTHERS, OURS, Certificates, Listening, client_context, listening

RENEWED = "new connections get the changed certificates"
CHECK_S = 0.3
KEPT = "so new connections still get the former certificate"


@pytest.fixture(autouse=True)
def _lines(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(tls_server, "CHECK_INTERVAL_S", 0.02)


def replace(source: str, target: str) -> None:
    Path(source).replace(target)


def move(paths: tuple[str, str], folder: Path, names: tuple[str, str]) -> None:
    """Move a certificate and its key into a folder, which is made."""
    folder.mkdir(parents=True)
    for path, name in zip(paths, names, strict=True):
        Path(path).rename(folder / name)


async def serial_number(server: Listening, name: str = NAME) -> int:
    """The number of the certificate that a new connection gets, which is served."""
    peer = await server.secure(name=name)
    assert await peer.ask(RemotingCommand(ECHO)) is not None
    der = peer.stream.getpeercert(binary_form=True)  # type: ignore[attr-defined]
    return x509.load_der_x509_certificate(der).serial_number


def number_in(path: str | Path) -> int:
    return x509.load_pem_x509_certificate(Path(path).read_bytes()).serial_number


async def looks(caplog: pytest.LogCaptureFixture, text: str, count: int = 1) -> None:
    """Wait for a line of the log, `count` times."""
    with trio.fail_after(10):
        while caplog.text.count(text) < count:  # noqa: ASYNC110 - of a thread
            await trio.sleep(0.005)


async def several_looks() -> None:
    """Give the server the time to do what it must not do."""
    await trio.sleep(10 * tls_server.CHECK_INTERVAL_S)


@pytest.mark.slow
async def test_a_renewed_certificate_is_for_new_connections(
    files: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    config = files.server()
    async with listening(config) as server:
        old = await server.secure()
        before = await serial_number(server)
        assert before == number_in(config.server_cert_path)
        files.write()
        await looks(caplog, RENEWED)
        assert await serial_number(server) == number_in(config.server_cert_path) != before
        assert await old.ask(RemotingCommand(ECHO)) is not None
        count = caplog.text.count(RENEWED)
        os.utime(config.server_cert_path)
        await several_looks()
        assert caplog.text.count(RENEWED) == count == 1


def _half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:100])


def _gone(path: Path) -> None:
    path.unlink()


def _empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.slow
@pytest.mark.parametrize("spoil", [_half, _gone, _empty])
@pytest.mark.parametrize("which", ["server_cert_path", "server_key_path"])
async def test_files_that_cannot_be_used_leave_the_former_certificate(
    files: Certificates,
    caplog: pytest.LogCaptureFixture,
    spoil: Callable[[Path], None],
    which: str,
) -> None:
    config = files.server()
    async with listening(config) as server:
        before = await serial_number(server)
        spoil(Path(getattr(config, which)))
        await looks(caplog, KEPT)
        await several_looks()
        assert await serial_number(server) == before
        assert caplog.text.count(KEPT) == 1
        files.write()
        await looks(caplog, RENEWED)
        assert await serial_number(server) == number_in(config.server_cert_path)


@pytest.mark.slow
async def test_a_pair_that_is_written_one_after_the_other_causes_no_error(
    files: Certificates, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_server, "CHECK_INTERVAL_S", CHECK_S)
    config = files.server()
    async with listening(config) as server:
        cert_path, key_path = files.write("next")
        replace(cert_path, config.server_cert_path)
        await trio.sleep(1.5 * CHECK_S)
        replace(key_path, config.server_key_path)
        await looks(caplog, RENEWED)
        assert await serial_number(server) == number_in(config.server_cert_path)
        assert KEPT not in caplog.text


async def test_authorities_alone_may_change(
    files: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    config = files.server(
        need_client_auth=ClientAuth.require,
        auth_client=True,
        server_trust_cert_path=files.trust(OURS),
    )
    ours, others = (client_context(own=each.issue_cert("client")) for each in (OURS, OTHERS))
    async with listening(config) as server:
        assert await server.serves(server.secure(ours))
        assert not await server.serves(server.secure(others))
        files.trust(OTHERS)
        await looks(caplog, RENEWED)
        assert not await server.serves(server.secure(ours))
        assert await server.serves(server.secure(others))


@asynccontextmanager
async def asking(ask: Callable[[], object]) -> AsyncIterator[None]:
    """Call an async function again and again while the block runs."""

    async def again() -> None:
        while True:
            await ask()  # type: ignore[misc]

    async with trio.open_nursery() as nursery:
        nursery.start_soon(again)
        yield
        nursery.cancel_scope.cancel()


@pytest.mark.slow
async def test_no_request_fails_while_certificates_are_renewed(
    files: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    config = files.server()
    answers = {"old": 0, "new": 0}

    async def ask(kind: str, peer: FarEnd) -> None:
        answer = await peer.ask(RemotingCommand(ECHO, body=bytes(20_000)))
        assert answer is not None
        answers[kind] += 1

    async def connect(server: Listening) -> None:
        peer = await server.secure()
        await ask("new", peer)
        await trio.aclose_forcefully(peer.stream)

    async with listening(config) as server:
        old = await server.secure()
        async with asking(lambda: ask("old", old)), asking(lambda: connect(server)):
            for count in range(1, 11):
                files.write()
                await looks(caplog, RENEWED, count)
            with trio.fail_after(60):
                while min(answers.values()) <= 10:
                    await trio.lowlevel.checkpoint()


async def test_clients_get_the_certificate_of_the_name_they_ask_for(
    files: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    numbers: dict[str, int] = {}
    for folder, names in (
        ("mq.example.org", ("fullchain.pem", "privkey.pem")),
        ("*.example.net", ("tls.crt", "tls.key")),
    ):
        move(files.write("issued", identity=folder), files.folder / "sni" / folder, names)
        numbers[folder] = number_in(files.folder / "sni" / folder / names[0])
    config = files.server(server_sni_path=str(files.folder / "sni"))
    default = number_in(config.server_cert_path)
    async with listening(config) as server:
        assert await serial_number(server, "mq.example.org") == numbers["mq.example.org"]
        assert await serial_number(server, "MQ.example.org") == numbers["mq.example.org"]
        assert await serial_number(server, "a.example.net") == numbers["*.example.net"]
        assert await serial_number(server, "example.net") == default
        assert await serial_number(server, "127.0.0.1") == default
        paths = files.write("issued", identity="new.example.org")
        move(paths, files.folder / "sni" / "new.example.org", ("tls.crt", "tls.key"))
        await looks(caplog, RENEWED)
        assert await serial_number(server, "new.example.org") not in {default, *numbers.values()}


async def test_many_names_are_not_looked_at_in_the_event_loop(
    files: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = []

    def noted(config: TlsConfig) -> dict[str, tuple[str, str]]:
        threads.append(threading.current_thread())
        return sni_files(config)

    (files.folder / "sni").mkdir()
    config = files.server(server_sni_path=str(files.folder / "sni"))
    async with listening(config):
        monkeypatch.setattr(tls_context, "sni_files", noted)
        with trio.fail_after(60):
            while len(threads) < 3:
                await trio.lowlevel.checkpoint()
    assert threading.current_thread() not in threads


def test_a_folder_without_both_files_is_refused_at_the_start(files: Certificates) -> None:
    (files.folder / "sni" / "mq.example.org").mkdir(parents=True)
    config = files.server(server_sni_path=str(files.folder / "sni"))
    with pytest.raises(ConfigError, match=r"sni/mq.example.org has neither fullchain.pem with"):
        ServerTls(config)
