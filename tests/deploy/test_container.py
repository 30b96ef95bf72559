"""deploy/container without an engine: what its files name is there, and their commands run."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from .files import (
    CONTAINERFILE,
    DATA,
    DEPLOY,
    KINDS,
    ROOT,
    check_server_words,
    check_settings,
    configuration,
    documents,
    instruction,
    settings_of,
)

TEXT: Final = CONTAINERFILE.read_text(encoding="utf-8")

TIMEOUT_S: Final = 60.0
"""For a process to start, to be ready, or to end: the time that files give it to stop."""

PORTS: Final = {"namesrv": ["9876"], "controller": ["9878"], "broker": ["10911", "10909", "10912"]}
"""Those that docs/operations.md has, and a controller's."""


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_takes_its_file(kind: str) -> None:
    check_settings(kind, DEPLOY / "conf" / f"{kind}.conf")


@pytest.mark.parametrize("kind", KINDS)
def test_all_that_a_server_writes_is_in_the_volume(kind: str) -> None:
    paths = [value for value in configuration(kind).values() if value.startswith("/")]
    assert paths
    assert all(path.startswith(f"{DATA}/{kind}") for path in paths)
    assert instruction_of("VOLUME") == [DATA]


def test_health_is_on_a_port_of_each_servers_own() -> None:
    files = [configuration(kind) for kind in KINDS]
    assert {each["metricsExporterType"] for each in files} == {"PROM"}
    assert len({each["metricsPromExporterPort"] for each in files}) == len(files)
    assert f"HEALTH_PORT={configuration('broker')['metricsPromExporterPort']}" in TEXT


def instruction_of(name: str) -> list[str]:
    """The words of the last instruction of a name."""
    found: list[str] = re.findall(rf"^{name} (.+)$", TEXT, re.MULTILINE)
    return found[-1].split()


def test_the_image_runs_a_server_not_as_root_and_exposes_its_ports() -> None:
    assert instruction("ENTRYPOINT") == ["trocket"]
    assert check_server_words(instruction("CMD")) == "broker"
    # Kubernetes compares the number with 0; it knows no names.
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", instruction_of("USER")[0])
    assert instruction_of("STOPSIGNAL") == ["SIGTERM"]
    ports = [port for kind in KINDS for port in PORTS[kind]]
    ports += [configuration(kind)["metricsPromExporterPort"] for kind in KINDS]
    assert sorted(instruction_of("EXPOSE")) == sorted(ports)


def test_what_the_image_copies_is_there_and_not_ignored() -> None:
    copied = re.findall(r"^COPY (?!--from)(\S+) ", TEXT, re.MULTILINE)
    assert copied == [".", "deploy/conf"]
    assert all((ROOT / name).exists() for name in copied)
    assert (ROOT / "deploy" / "requirements.txt").is_file()
    ignored = (CONTAINERFILE.parent / f"{CONTAINERFILE.name}.dockerignore").read_text().split()
    # What pip builds the wheel from.
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    packages = {name.split(".")[-1] for name in project["tool"]["setuptools"]["packages"]}
    assert not {*packages, "deploy", "README.md", "pyproject.toml"}.intersection(ignored)


COMPOSE: Final = documents(DEPLOY / "container" / "compose.yaml")[0]


@pytest.mark.parametrize("name", sorted(COMPOSE["services"]))
def test_a_service_of_compose(name: str) -> None:
    service = COMPOSE["services"][name]
    kind = check_server_words(service["command"])
    assert service["build"]["dockerfile"] == CONTAINERFILE.relative_to(ROOT).as_posix()
    assert (DEPLOY / "container" / service["build"]["context"]).resolve() == ROOT
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    (volume,) = service["volumes"]
    assert volume.split(":")[1] == DATA
    assert volume.split(":")[0] in COMPOSE["volumes"]
    for port in service["ports"]:
        outside, inside = port.rsplit(":", 2)[-2:]
        # Clients connect to the number that the broker registers.
        assert outside == inside
        assert inside in (*PORTS[kind], configuration(kind)["metricsPromExporterPort"])
    health = service.get("environment", {}).get("HEALTH_PORT", "5557")
    assert health == configuration(kind)["metricsPromExporterPort"]


def test_the_brokers_file_in_compose(tmp_path: Path) -> None:
    text = COMPOSE["configs"]["broker"]["content"]
    filled = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)
    assert "$" not in filled
    path = tmp_path / "broker.conf"
    path.write_text(filled, encoding="ascii")
    check_settings("broker", path)
    ours = configuration("broker")
    assert ours.items() <= settings_of(filled).items()
    (config,) = COMPOSE["services"]["broker"]["configs"]
    assert config["target"] == "/etc/trocket/broker.conf"
    address = COMPOSE["services"]["broker"]["environment"]["NAMESRV_ADDR"]
    assert address.split(":")[0] in COMPOSE["services"]


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


class Server:
    """A server with its file of deploy/conf, but for a folder and ports of the test's."""

    def __init__(self, kind: str, folder: Path, **environment: str) -> None:
        self.port, self.health_port = free_port(), free_port()
        keys = {key: value.replace(DATA, str(folder)) for key, value in configuration(kind).items()}
        keys |= {"listenPort": str(self.port), "metricsPromExporterPort": str(self.health_port)}
        keys |= {"bindAddress": "127.0.0.1", "preallocateCommitLog": "false"}
        if kind != "broker":
            del keys["preallocateCommitLog"]
        path = folder / f"{kind}.conf"
        path.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "trocket.cli.main", kind, "-c", str(path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )

    def started(self) -> str:
        """Its line that says so."""
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def health(self) -> int:
        """The exit status of the image's health check."""
        words = instruction("HEALTHCHECK")
        assert words[0] == "python"
        environment = {**os.environ, "HEALTH_PORT": str(self.health_port)}
        words[0] = sys.executable
        done = subprocess.run(words, env=environment, capture_output=True, check=False)
        return done.returncode

    def end(self) -> tuple[int, str]:
        """Stop it as engines do; its exit status and log."""
        self.process.send_signal(getattr(signal, instruction_of("STOPSIGNAL")[0]))
        error = self.process.communicate(timeout=TIMEOUT_S)[1]
        return self.process.returncode, error


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[list[Server]]:
    """Servers that the test adds; those still running are killed at the end."""
    found: list[Server] = []
    yield found
    for server in found:
        server.process.kill()
        server.process.communicate()


@pytest.mark.slow
def test_the_health_check_sees_the_servers_and_their_end(
    tmp_path: Path, servers: list[Server]
) -> None:
    servers += [Server("namesrv", tmp_path), Server("controller", tmp_path)]
    assert all("boot success" in server.started() for server in servers)
    address = f"127.0.0.1:{servers[0].port}"
    servers.append(Server("broker", tmp_path, NAMESRV_ADDR=address))
    assert "boot success" in servers[-1].started()
    for server in servers:
        assert server.health() == 0
    for server in reversed(servers):
        status, log = server.end()
        assert (status, "Traceback" in log) == (0, False), log
        assert server.health() == 1


@pytest.mark.slow
def test_a_broker_that_no_name_server_knows_is_not_healthy(
    tmp_path: Path, servers: list[Server]
) -> None:
    broker = Server("broker", tmp_path, NAMESRV_ADDR=f"127.0.0.1:{free_port()}")
    servers.append(broker)
    assert "boot success" in broker.started()
    assert broker.health() == 1
    assert broker.end()[0] == 0
