"""`trocket tls`, and the flags of TLS of the commands that use a cluster."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from trocket.common.config import parse_properties


@pytest.fixture
def folder(run: Run, tmp_path: Path) -> Path:
    """An authority's folder."""
    found = tmp_path / "tls"
    assert run("tls", "init", str(found), "--host", "mq.example.org").status == 0
    return found


def shown(run: Run, path: Path, *flags: str) -> Any:
    return json.loads(run("tls", "show", str(path), "--json", *flags).out)[0]


def test_init_makes_what_each_machine_needs(run: Run, folder: Path) -> None:
    for kind in ("server", "client"):
        own = {path.name for path in (folder / kind).iterdir()}
        assert own == {"ca.crt", f"{kind}.crt", f"{kind}.key", "tls.properties"}
        key = folder / kind / f"{kind}.key"
        assert key.stat().st_mode & 0o777 == 0o600
        assert key.read_text().startswith("-----BEGIN PRIVATE KEY-----")  # PKCS#8
        found = shown(run, folder / kind / f"{kind}.crt", "--ca", str(folder / "ca.crt"))
        assert found["problems"] == []
        assert kind in found["uses"]
    assert (folder / "ca.key").stat().st_mode & 0o777 == 0o600
    names = shown(run, folder / "server" / "server.crt")["names"]
    assert {"mq.example.org", "localhost", "127.0.0.1", "::1"} <= set(names)


def test_the_properties_name_the_files(folder: Path) -> None:
    text = (folder / "server" / "tls.properties").read_text()
    found = {entry.key: entry.value for entry in parse_properties(text)}
    for key, value in found.items():
        if key.endswith("Path"):
            assert Path(value).is_absolute()
            assert Path(value).exists(), key
    assert found["tls.test.mode.enable"] == "false"
    assert found["tls.server.need.client.auth"] == "optional"
    client = (folder / "client" / "tls.properties").read_text()
    assert "tls.server" not in client
    assert "tls.client.authServer=true" in client


@pytest.mark.parametrize("mode", ["none", "optional", "require"])
def test_client_auth_is_written(run: Run, tmp_path: Path, mode: str) -> None:
    assert run("tls", "init", str(tmp_path / "t"), "--client-auth", mode).status == 0
    text = (tmp_path / "t" / "server" / "tls.properties").read_text()
    assert f"tls.server.need.client.auth={mode}\n" in text
    assert f"tls.server.authClient={'false' if mode == 'none' else 'true'}\n" in text


def test_init_overwrites_nothing_without_force(run: Run, folder: Path) -> None:
    before = (folder / "ca.crt").read_bytes()
    ended = run("tls", "init", str(folder))
    assert ended.status == 2
    assert "ca.crt exists: give another folder, or --force" in ended.err
    assert (folder / "ca.crt").read_bytes() == before
    assert run("tls", "init", str(folder), "--force").status == 0
    assert (folder / "ca.crt").read_bytes() != before


def test_renew_changes_certificate_and_key_and_keeps_the_names(run: Run, folder: Path) -> None:
    paths = [folder / "server" / name for name in ("server.crt", "server.key")]
    before = [path.read_bytes() for path in paths]
    was = shown(run, paths[0])
    kept = [(folder / "server" / name).read_bytes() for name in ("ca.crt", "tls.properties")]
    made = run("tls", "renew", "--dir", str(folder), "--json").json
    assert len(made["files"]) == 4
    assert [a != b for a, b in zip(before, [path.read_bytes() for path in paths], strict=True)] == [
        True,
        True,
    ]
    assert kept == [(folder / "server" / n).read_bytes() for n in ("ca.crt", "tls.properties")]
    now = shown(run, paths[0], "--ca", str(folder / "ca.crt"))
    assert (now["names"], now["problems"]) == (was["names"], [])
    assert now["serial"] != was["serial"]
    ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(*paths)


def test_issue_makes_one_more(run: Run, folder: Path) -> None:
    where = ("--dir", str(folder))
    assert run("tls", "issue", "broker-b", "--host", "10.0.0.8", *where).status == 0
    assert run("tls", "issue", "billing", *where).status == 0
    found = shown(run, folder / "broker-b" / "broker-b.crt", "--ca", str(folder / "ca.crt"))
    assert (found["names"], found["problems"]) == (["10.0.0.8"], [])
    assert shown(run, folder / "billing" / "billing.crt")["uses"] == ["client"]
    again = run("tls", "issue", "billing", *where)
    assert (again.status, "give another name, or --force" in again.err) == (2, True)


def test_wrong_use_is_one_line(run: Run, tmp_path: Path) -> None:
    ended = run("tls", "renew", "--dir", str(tmp_path))
    assert ended.status == 2
    assert "make one by `trocket tls init" in ended.err
    assert "neither a host's name" in run("tls", "init", str(tmp_path), "--host", "a b").err
    assert "is not one of none" in run("tls", "init", str(tmp_path), "--client-auth", "yes").err
    assert "neither a file nor HOST:PORT" in run("tls", "show", "nowhere").err
    (tmp_path / "x").write_text("no certificate")
    assert "has no certificate in PEM" in run("tls", "show", str(tmp_path / "x")).err


def test_a_certificate_of_another_authority_is_wrong(
    run: Run, folder: Path, tmp_path: Path
) -> None:
    run("tls", "init", str(tmp_path / "other"))
    other = str(tmp_path / "other" / "ca.crt")
    ended = run("tls", "show", str(folder / "server" / "server.crt"), "--ca", other)
    assert ended.status == 1
    assert "not signed by the authority" in ended.err


class Server:
    """A server whose handshakes succeed; it closes each connection then."""

    def __init__(self, folder: Path, client_ca: Path | None = None) -> None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(folder / "server" / "server.crt", folder / "server" / "server.key")
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self._context = context
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                plain, _ = self._socket.accept()
            except OSError:
                return
            try:
                self._context.wrap_socket(plain, server_side=True).close()
            except OSError:
                plain.close()

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()


@pytest.fixture
def server(folder: Path) -> Iterator[Server]:
    made = Server(folder)
    yield made
    made.close()


def test_the_certificate_of_a_server_is_shown(run: Run, folder: Path, server: Server) -> None:
    ended = run("tls", "show", server.address, "--ca", str(folder / "ca.crt"), "--json")
    assert ended.status == 0, ended.err
    assert json.loads(ended.out)[0]["subject"] == "CN=server,O=trocket"


def test_a_plain_server_has_none(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as plain:
        thread = threading.Thread(target=lambda: plain.accept()[0].close())
        thread.start()
        ended = run("tls", "show", f"127.0.0.1:{plain.getsockname()[1]}")
        thread.join()
    assert ended.status == 1
    assert "is tls.server.mode disabled there?" in ended.err


# The flags


@pytest.mark.slow
def test_the_flags_reach_the_client(
    run: Run, folder: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = folder / "client" / "client.crt"  # signed nothing
    wrong = run("topic", "list", "--url", server.address, "--tls-ca", str(other))
    assert wrong.status == 1
    assert f"not signed by an authority in {other}" in wrong.err
    url = f"rocketmq://{server.address}?tls_ca={other}"
    assert "not signed" in run("topic", "list", "--url", url).err
    monkeypatch.setenv("ROCKETMQ_TLS_CA", str(other))
    assert "not signed" in run("topic", "list", "--url", server.address).err
    # The handshake succeeds, and the server closes.
    for flags in (["--tls-ca", str(folder / "ca.crt")], ["--tls-no-verify"]):
        ended = run("topic", "list", "--url", server.address, *flags)
        assert (ended.status, "not signed" in ended.err) == (1, False), ended.err
    assert "/none of TLS: No such file" in run("topic", "list", "--tls-ca", "/none").err
    monkeypatch.setenv("ROCKETMQ_TLS", "maybe")
    ended = run("topic", "list")
    assert (ended.status, "ROCKETMQ_TLS='maybe' is neither" in ended.err) == (2, True)


def test_commands_that_ask_no_server_have_no_flags_of_tls(run: Run) -> None:
    assert "--tls-ca" not in run("profile", "add", "--help").out
    for words in (["send"], ["doctor"], ["cluster"], ["top"], ["broker", "stats"]):
        assert "--tls-ca" in run(*words, "--help").out
