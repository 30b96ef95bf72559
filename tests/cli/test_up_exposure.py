"""`trocket up` opens ports to other machines only with `--insecure`."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from trocket.broker.settings.config import BrokerConfig
from trocket.cli.main import main
from trocket.cli.up.exposure import ExposedError, check, warnings
from trocket.common.metrics_keys import MetricsExporterType
from trocket.common.terminal import red
from trocket.namesrv.config import NamesrvConfig

from .conftest import Command

Capture = pytest.CaptureFixture[str]
Start = Callable[..., Command]
HERE = "127.0.0.1"
ALL = "0.0.0.0"


def configs(
    namesrv: str = HERE, broker: str = HERE, *, metrics: str = "", allows: bool = False
) -> tuple[NamesrvConfig, BrokerConfig]:
    return (
        NamesrvConfig(bind_address=namesrv, allow_remote_administration=allows),
        BrokerConfig(
            bind_address=broker,
            metrics_exporter_type=MetricsExporterType.PROM,
            metrics_prom_exporter_host=metrics,
            allow_remote_administration=allows,
        ),
    )


def test_servers_of_this_machine_only_need_no_flag() -> None:
    check(*configs())
    assert warnings(*configs()) == []


@pytest.mark.parametrize(
    ("servers", "ports"),
    [
        (configs(ALL, ALL), ("name server  0.0.0.0:9876", "broker       0.0.0.0:10911", "5557")),
        (configs(ALL), ("name server  0.0.0.0:9876",)),
        (configs(HERE, "192.0.2.7"), ("broker       192.0.2.7:10911", "192.0.2.7:5557")),
        (configs(HERE, "::", metrics="::1"), ("broker       [::]:10911",)),
    ],
)
def test_each_open_port_is_named_with_what_it_allows(
    servers: tuple[NamesrvConfig, BrokerConfig], ports: tuple[str, ...]
) -> None:
    with pytest.raises(ExposedError) as raised:
        check(*servers)
    first, *lines = str(raised.value).splitlines()
    assert "without accounts" in first
    rows = [line for line in lines if line.startswith("  ")]
    assert len(rows) == len(ports)
    for row, port in zip(rows, ports, strict=True):
        assert port in row
    assert "--insecure" in lines[-1]
    assert "allowRemoteAdministration=false" in lines[-2]
    assert 1 <= len(warnings(*servers)) <= 2


def test_with_accounts_at_the_broker_no_flag_is_needed() -> None:
    namesrv, broker = configs(ALL, ALL)
    broker.authentication_enabled = True
    check(namesrv, broker)
    (line,) = warnings(namesrv, broker)
    assert line.startswith("this name server has no accounts")
    namesrv.authentication_enabled = True
    assert warnings(namesrv, broker) == []


def test_it_says_when_others_may_administer_it() -> None:
    with pytest.raises(ExposedError, match="They may delete topics and change settings, too"):
        check(*configs(ALL, ALL, allows=True))


def test_without_the_flag_nothing_starts(capsys: Capture, tmp_path: Path) -> None:
    assert main(["up", "--home", str(tmp_path / "home"), "--host", ALL]) == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert error.startswith("trocket up: without accounts, everyone")
    assert "\x1b" not in error, "red is for terminals"
    assert not (tmp_path / "home").exists()


def test_a_file_that_opens_a_port_needs_the_flag_too(capsys: Capture, tmp_path: Path) -> None:
    config = tmp_path / "broker.conf"
    config.write_text(f"bindAddress={ALL}\n")
    assert main(["up", "--memory", "-c", str(config)]) == 2
    assert "broker       0.0.0.0:10911" in capsys.readouterr().err
    assert main(["up", "--masters", "2", "--home", str(tmp_path), "-c", str(config)]) == 2
    assert "broker       0.0.0.0:10911" in capsys.readouterr().err


@pytest.mark.slow
def test_with_the_flag_it_starts_and_the_log_says_what_is_open(start: Start) -> None:
    ports = ("--namesrv-port", "0", "--broker-port", "0", "--metrics-port", "0")
    command = start("up", "--memory", "--json", "--host", ALL, "--insecure", *ports)
    command.ready()
    status, _, error = command.end(signal.SIGTERM)
    assert status == 0
    for server in ("name server", "broker"):
        assert f"this {server} has no accounts and listens on 0.0.0.0" in error


class _Terminal:
    def __init__(self, *, is_terminal: bool) -> None:
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


def test_red_is_for_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    terminal, pipe = _Terminal(is_terminal=True), _Terminal(is_terminal=False)
    assert red("x", terminal) == "\x1b[31mx\x1b[0m"  # type: ignore[arg-type]
    assert red("x", pipe) == "x"  # type: ignore[arg-type]
    monkeypatch.setenv("NO_COLOR", "1")
    assert red("x", terminal) == "x"  # type: ignore[arg-type]
