"""The files of deploy/ as the tests read them: settings, YAML, and words of commands."""

from __future__ import annotations

import io
import json
import re
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import yaml

from trocket.cli.main import main
from trocket.cli.servers import SERVERS, program_of
from trocket.common.command_line import parse_usual

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
CONTAINERFILE = DEPLOY / "container" / "Containerfile"

DATA = "/var/lib/trocket"
"""What a container, a pod and a unit may write."""

KINDS = ("namesrv", "broker", "controller")

EXPECTED = ("has no accounts and listens on 0.0.0.0", "no name server is configured")
"""Warnings that a server's own file cannot avoid: docs/deploy.md says what to do about the first;
the second is for the environment."""


def documents(path: Path) -> list[dict[str, Any]]:
    """The documents of a file of YAML."""
    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


def settings_of(text: str) -> dict[str, str]:
    """The keys of a server's file."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


def configuration(kind: str) -> dict[str, str]:
    """The keys of a server's file in deploy/conf."""
    return settings_of((DEPLOY / "conf" / f"{kind}.conf").read_text(encoding="ascii"))


def check_settings(kind: str, path: Path) -> None:
    """A server would start with a file, and has no warnings but the expected ones."""
    error = io.StringIO()
    with redirect_stderr(error), redirect_stdout(io.StringIO()):
        status = main([kind, "-c", str(path), "-p"])
    assert status == 0, error.getvalue()
    lines = error.getvalue().splitlines()
    assert [line for line in lines if not any(text in line for text in EXPECTED)] == []


def check_server_words(words: list[str]) -> str:
    """The command line of a server is right; returns which server it is."""
    server = SERVERS[words[0]]
    options = parse_usual(program_of(server), words[1:])
    assert options is not None, words
    assert options.config_file == f"/etc/trocket/{words[0]}.conf"
    return words[0]


def instruction(name: str) -> list[str]:
    """The words of the last instruction of the Containerfile that has a list in JSON."""
    text = CONTAINERFILE.read_text(encoding="utf-8")
    found = re.findall(rf"^{name}\b[^\[]*(\[.*\])$", text, re.MULTILINE)
    words: list[str] = json.loads(found[-1])
    return words
