"""`trocket up --console`: a console beside the broker, which ends with it."""

from __future__ import annotations

import signal
import socket
import urllib.error
import urllib.request
from collections.abc import Callable
from http.cookiejar import CookieJar
from pathlib import Path

import pytest

from trocket.cli import console_extra
from trocket.cli.main import main

from ..kit.waiting import wait_until
from .conftest import Command

pytestmark = pytest.mark.slow

FREE_PORTS = ("--namesrv-port", "0", "--broker-port", "0")
ACCOUNT = 'initAuthenticationUser={"username":"admin","password":"admin-secret"}\n'
Start = Callable[..., Command]


def up(start: Start, home: Path, *more: str) -> Command:
    words = ("up", "--home", str(home), *FREE_PORTS, "--json", "--console", "--console-port", "0")
    return start(*words, *more)


def overview(address: str) -> str:
    """The first page of a console, after its token was used."""
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
    with opener.open(address, timeout=30) as answer:
        assert answer.url.endswith("/overview")
        return str(answer.read().decode())


def is_served(address: str) -> bool:
    try:
        urllib.request.urlopen(address.partition("?")[0], timeout=30).close()
    except (urllib.error.URLError, ConnectionError):
        return False
    return True


@pytest.mark.parametrize("several", [(), ("--masters", "2")], ids=["one", "several"])
def test_its_address_is_printed_and_it_ends_with_the_broker(
    start: Start, home: Path, several: tuple[str, ...]
) -> None:
    command = up(start, home, *several, *(() if several else ("--metrics-port", "0")))
    address = command.ready()["console"]
    assert address.startswith("http://127.0.0.1:")
    name = "broker-a" if several else "DefaultCluster"
    assert name in overview(address)
    status, _, error = command.end(signal.SIGTERM)
    assert (status, error) == (0, "")
    assert not is_served(address)


def test_a_page_that_is_followed_does_not_keep_it(start: Start, home: Path) -> None:
    command = up(start, home, "--metrics-port", "0")
    address = command.ready()["console"]
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
    opener.open(address, timeout=30).close()
    stream = address.partition("login")[0] + "overview.events"
    with opener.open(stream, timeout=30) as events:
        while not events.readline().startswith(b"data: "):
            pass
        status, _, error = command.end(signal.SIGTERM)
    assert (status, error) == (0, "")


def test_it_ends_when_the_broker_is_killed(start: Start, home: Path) -> None:
    command = up(start, home, "--metrics-port", "0")
    address = command.ready()["console"]
    assert is_served(address)
    command.process.kill()
    wait_until(lambda: not is_served(address), "the end of the console")


def test_it_signs_its_requests_where_accounts_are_asked_for(
    start: Start, home: Path, tmp_path: Path
) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(f"authenticationEnabled=true\nauthorizationEnabled=true\n{ACCOUNT}")
    command = up(start, home, "--metrics-port", "0", "-c", str(conf))
    address = command.ready()["console"]
    assert "DefaultCluster" in overview(address)


def test_a_port_in_use_is_said(start: Start, home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = up(start, home, "--metrics-port", "0", "--console-port", str(port))
        status, out, error = command.end()
    assert (status, out) == (1, "")
    assert f"cannot listen on 127.0.0.1:{port}" in error
    assert "the console did not start" in error
    assert "Traceback" not in error


def test_missing_packages_are_named_before_anything_starts(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(console_extra, "_PACKAGES", ("no_such_package",))
    assert main(["up", "--home", str(home), "--console"]) == 1
    assert "pip install 'trocket[console]'" in capsys.readouterr().err
    assert not home.exists()
