"""The versions of everything that took part in a run, for its report."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence

from .. import __version__
from .go_program import go_tool
from .peers import parse_peer
from .report.cells import Cell

TIMEOUT_S = 20.0


def collect_versions(brokers: Iterable[str], cells: Iterable[Cell]) -> dict[str, str]:
    """Versions by name: trocket, the tools, the brokers, and the clients that have cells."""
    versions = {"trocket": __version__, "python": platform.python_version()}
    java = _tool_version(["java", "-version"], r'version "([^"]+)"')
    if java:
        versions["java"] = java
    go = go_tool()
    go_version = _tool_version([go, "version"], r"go(\d[^ ]*)") if go else ""
    if go_version:
        versions["go"] = go_version
    node = _tool_version(["node", "--version"], r"v(\d[^\s]*)")
    if node:
        versions["node"] = node
    for kind in ("apache", "docker"):
        found = [peer.version for peer in map(parse_peer, brokers) if peer.kind == kind]
        if found:
            versions[f"{kind} brokers"] = ", ".join(found)
    clients: dict[str, list[str]] = {}
    for client in dict.fromkeys(cell.client for cell in cells):
        parts = re.fullmatch(r"(.+?)-([0-9][0-9.-]*)", client)
        if parts:
            clients.setdefault(parts[1], []).append(parts[2])
    for name, found in clients.items():
        versions[f"{name} client" if name in ("java", "go") else name] = ", ".join(found)
    return versions


def _tool_version(command: Sequence[str], pattern: str) -> str:
    """The version that a tool prints; empty if it is missing or prints something else."""
    if shutil.which(command[0]) is None:
        return ""
    try:
        done = subprocess.run(
            list(command), capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = re.search(pattern, done.stdout + done.stderr)
    return found[1] if found else ""
