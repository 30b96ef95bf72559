"""Builds the program in interop/clients/go, which plays the scenarios as users of the Go client.

It lies in `go` of the cache folder. go.mod names version 2.1.2 of the client and wants Go 1.19,
Debian 12's.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from .cache import CACHE_FOLDER
from .process import PeerError

GO_FOLDER = Path(__file__).resolve().parent / "clients" / "go"
BUILD_TIMEOUT_S = 600.0
GO_ENVIRONMENT = {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": "-buildvcs=false"}
"""For every build: without cgo no C compiler is needed."""
USUAL_PLACE = "/usr/local/go/bin"
"""Where Go's own archive goes, which is not always in PATH."""


def go_tool() -> str | None:
    """The path of `go`, or None."""
    return shutil.which("go") or shutil.which("go", path=USUAL_PLACE)


def build_go() -> Path:
    """The built program, built when its sources changed.

    Raises: PeerError: there is no Go, or it failed (its last lines are in the text).
    """
    tool = go_tool()
    if tool is None:
        raise PeerError("no go in PATH (Go 1.19 or newer is needed)")
    sources = sorted([*GO_FOLDER.glob("*.go"), *GO_FOLDER.glob("go.*")])
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:12]
    program = CACHE_FOLDER / "go" / f"scenarios-{digest}"
    if not program.is_file():
        program.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=program.parent, prefix=".build-") as scratch:
            fresh = Path(scratch) / program.name
            _run_go([tool, "build", "-mod=readonly", "-o", str(fresh), "."])
            fresh.replace(program)
    return program


def _run_go(command: list[str]) -> None:
    try:
        result = subprocess.run(
            command,
            cwd=GO_FOLDER,
            env={**os.environ, **GO_ENVIRONMENT},
            capture_output=True,
            text=True,
            timeout=BUILD_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PeerError(f"building {GO_FOLDER}: {error}") from error
    if result.returncode != 0:
        last = "\n".join((result.stdout + result.stderr).splitlines()[-20:])
        raise PeerError(f"building {GO_FOLDER}: go ended with {result.returncode}\n{last}")
