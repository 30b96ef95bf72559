"""`trocket up -p`: what a start would use and say, and whether it would be refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trocket.cli.main import main
from trocket.common.config import parse_properties

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def sections(text: str) -> dict[str, dict[str, str]]:
    """The keys below each heading."""
    found: dict[str, dict[str, str]] = {}
    for part in text.split("# the configuration of ")[1:]:
        name, _, lines = part.partition("\n")
        found[name] = {entry.key: entry.value for entry in parse_properties(lines, path="")}
    return found


def test_it_prints_both_servers_and_starts_nothing(
    home: Path, tmp_path: Path, capsys: Capture
) -> None:
    conf, namesrv = tmp_path / "broker.conf", tmp_path / "namesrv.conf"
    conf.write_text("brokerName=shop\nserverWorkerThreads=8\ntls.server.mode=enforcing\n")
    namesrv.write_text("listenPort=9999\nserverWorkerThreads=8\n")
    files = ["-c", str(conf), "--namesrv-config", str(namesrv)]
    assert main(["up", "-p", "--home", str(home), "--broker-port", "11911", *files]) == 0
    printed = capsys.readouterr()
    found = sections(printed.out)
    assert list(found) == ["the name server", "the broker"]
    assert found["the name server"]["listenPort"] == "9999"
    assert found["the broker"]["brokerName"] == "shop"
    assert found["the broker"]["listenPort"] == "11911"
    assert found["the broker"]["storePathRootDir"] == str(home / "store")
    assert found["the broker"]["tls.server.mode"] == "enforcing"
    for file in (conf, namesrv):
        assert f"warning: {file}" in printed.err
    assert not home.exists()


def test_it_prints_each_of_several_brokers(home: Path, tmp_path: Path, capsys: Capture) -> None:
    own = tmp_path / "b.conf"
    own.write_text("maxMessageSize=70000\nserverWorkerThreads=8\n")
    words = ["--masters", "2", "--broker-config", f"broker-b={own}"]
    assert main(["up", "-p", "--home", str(home), *words]) == 0
    printed = capsys.readouterr()
    found = sections(printed.out)
    assert list(found) == ["the name server", "broker-a", "broker-b"]
    assert found["broker-a"]["listenPort"] == "10911"
    assert found["broker-b"]["listenPort"] == "10921"
    assert found["broker-a"]["maxMessageSize"] != found["broker-b"]["maxMessageSize"] == "70000"
    assert f"warning: {own}" in printed.err
    assert not home.exists()


@pytest.mark.slow
def test_all_that_would_refuse_a_start_is_said_at_once_with_status_1(
    home: Path, tmp_path: Path, capsys: Capture
) -> None:
    conf, namesrv = tmp_path / "broker.conf", tmp_path / "namesrv.conf"
    conf.write_text(
        "listenPort=x\nbrokerNmae=b\nmetricsTlsEnable=true\ntls.server.mode=disabled\n"
        "tls.server.certPath=/missing\n"
    )
    namesrv.write_text("kvConfigPth=/x\nlogLevels=z\n")
    files = ["-c", str(conf), "--namesrv-config", str(namesrv)]
    words = ["up", "--home", str(home), "--metrics-port", "70000", *files]
    assert main([*words, "-p"]) == 1
    checked = capsys.readouterr()
    assert checked.out == ""
    for text in (
        f"{conf}, line 1: listenPort must be",
        f"{conf}, line 2: unknown key 'brokerNmae'",
        f"{conf}, line 3: metricsTlsEnable=true needs tls.server.mode=permissive",
        f"{namesrv}, line 1: unknown key 'kvConfigPth'",
        f"{namesrv}, line 2: logLevels",
        "--metrics-port 70000: not a usable port",
    ):
        assert text in checked.err, text
    assert main(words) == 2
    assert capsys.readouterr().err == checked.err


def test_files_of_single_brokers_are_checked_with_the_common_one(
    home: Path, tmp_path: Path, capsys: Capture
) -> None:
    common, own, other = tmp_path / "all.conf", tmp_path / "a.conf", tmp_path / "b.conf"
    common.write_text("listenPort=x\n")
    own.write_text("brokerId=7\n")
    other.write_text("tls.server.keyPath=/missing.key\ntls.server.certPath=/missing.pem\n")
    words = ["--broker-config", f"broker-a={own}", "--broker-config", f"broker-b={other}"]
    words += ["--broker-config", "broker-c"]
    files = ["-c", str(common), *words]
    assert main(["up", "-p", "--masters", "2", "--home", str(home), *files]) == 1
    errors = capsys.readouterr().err
    for text in (
        f"{common}, line 1: listenPort must be",
        f"{own}, line 1: brokerId: with several brokers",
        "/missing.",
        "--broker-config broker-c: write NAME=FILE",
    ):
        assert text in errors, text


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--host", "0.0.0.0"], "without accounts, everyone"),
        (["--memory", "--home", "x"], "--memory keeps no files"),
        (["--memory", "--masters", "2"], "--memory is for one broker"),
        (["--slaves", "99"], "brokers are too many"),
        (["-c", "/missing/broker.conf"], "cannot be read"),
    ],
)
def test_flags_that_refuse_a_start_give_status_1(
    words: list[str], reason: str, capsys: Capture
) -> None:
    assert main(["up", "-p", *words]) == 1
    assert reason in capsys.readouterr().err
    assert main(["up", *words]) == 2
    assert reason in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--memory", "--home", "x"], "--memory keeps no files: give it without --home"),
        (["--memory", "-c", "nowhere.conf"], "nowhere.conf: cannot be read: "),
        (["--memory", "--host", "0.0.0.0"], "without accounts, everyone"),
        (["--memory", "--broker-port", "2", "--namesrv-port", "70000"], "--broker-port 2: not a"),
    ],
)
def test_with_json_each_refusal_is_an_object(words: list[str], text: str, capsys: Capture) -> None:
    assert main(["up", "--json", *words]) == 2
    printed = capsys.readouterr()
    errors = [json.loads(line)["error"] for line in printed.err.splitlines()]
    assert printed.out == ""
    assert any(text in error for error in errors)
    assert main(["up", *words]) == 2
    assert capsys.readouterr().err.startswith("trocket up: ")
