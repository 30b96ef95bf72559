"""The control port itself: what it answers, what it refuses, and beside which data it runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trocket import __version__
from trocket.cli.main import main
from trocket.cli.up.test_clock import MARKER

from .blocking_client import Client
from .controlled import Refused, controlled


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory):
    with controlled(tmp_path_factory.mktemp("up")) as running:
        yield running


def test_it_says_where_the_servers_are(broker) -> None:
    assert broker.ask("GET", "/") == {
        "trocket": __version__,
        "addresses": {"namesrv": broker.namesrv, "broker": broker.broker},
    }
    assert broker.control.startswith("http://127.0.0.1:")


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "text"),
    [
        ("GET", "/nothing", None, 404, "there is no /nothing; there are /, /time"),
        ("GET", "/advance", None, 405, "/advance takes POST, not GET"),
        ("DELETE", "/faults/x", None, 404, "there is no /faults/x"),
        ("POST", "/advance", b'{"ms": -1}', 400, ">= 0"),
        ("POST", "/advance", b'{"ms": 315360000001}', 400, "<= 315360000000"),
        ("POST", "/advance", b'{"ms": 1.5}', 400, "Expected `int`"),
        ("POST", "/advance", b'{"ms": 1, "s": 2}', 400, "unknown field `s`"),
        ("POST", "/advance", b"", 400, "missing required field `ms`"),
        ("POST", "/advance", b"ms=5", 400, "JSON is malformed"),
        ("POST", "/freeze", b"[]", 400, "Expected `object`"),
        ("POST", "/advance", b" " * 65_537, 413, "more than 65536 bytes"),
    ],
)
def test_what_is_refused(
    broker, method: str, path: str, body: bytes | None, status: int, text: str
) -> None:
    with pytest.raises(Refused, match=text) as refused:
        broker.send(method, path, body)
    assert refused.value.status == status


def test_no_page_of_a_browser_is_served(broker) -> None:
    with pytest.raises(Refused) as refused:
        broker.send("POST", "/freeze", None, {"Origin": "http://example.org"})
    assert refused.value.status == 403
    assert broker.ask("GET", "/time")["frozen"] is False


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--control-port", "1"), "add --test-clock"),
        (("--test-clock", "--masters", "2"), "--test-clock is for one broker"),
        (("--test-clock", "--control-port", "70000"), "--control-port 70000: not a usable port"),
    ],
)
def test_flags_that_contradict_each_other(
    words: tuple[str, ...], text: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    home = () if "--test-clock" in words else ("--home", str(tmp_path / "home"))
    assert main(["up", *home, *words]) == 2
    assert text in capsys.readouterr().err


def test_a_folder_with_real_data_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "store").mkdir()
    assert main(["up", "--test-clock", "--home", str(tmp_path)]) == 2
    assert "no run with --test-clock made" in capsys.readouterr().err
    assert not (tmp_path / MARKER).exists()


def test_a_folder_of_a_test_is_used_again_but_not_with_the_real_clock(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home, first, second = tmp_path / "home", tmp_path / "1", tmp_path / "2"
    first.mkdir()
    second.mkdir()
    with controlled(first, "--home", str(home)) as broker, Client(broker.broker) as client:
        assert client.send("T", b"kept").code == 0
    with controlled(second, "--home", str(home)) as broker, Client(broker.broker) as client:
        assert client.pull("T") == [b"kept"]
    assert (home / MARKER).exists()
    assert main(["up", "--home", str(home)]) == 2
    assert "whose times are not real" in capsys.readouterr().err


def test_a_throwaway_folder_is_gone_at_the_end(tmp_path: Path) -> None:
    with controlled(tmp_path) as broker:
        home = Path(broker.facts["home"])
        assert (home / MARKER).exists()
    assert not home.exists()
    # The file is still there, for a program that reads it late.
    assert json.loads((tmp_path / "ready.json").read_text())["control"] == broker.control
