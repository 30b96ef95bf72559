"""The builds of the scenario programs of the Go clients, interop/clients/go and go_grpc.

The binaries lie in `go` of the cache folder. Of the remoting client go.mod pins the released
version 2.1.2, next.mod a later one, which has TLS; both need Go 1.19, the version of Debian 12. The
gRPC client needs Go 1.24.
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
GO_GRPC_FOLDER = GO_FOLDER.with_name("go_grpc")
GO_MISSING = "no go in PATH (Go 1.19 or newer is needed, 1.24 for the gRPC client)"
BUILD_TIMEOUT_S = 600.0
GO_ENVIRONMENT = {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": "-buildvcs=false"}
"""Environment of every build; without cgo no C compiler is needed."""
MODULE = ("mod", "sum")
"""Ends of the names of a module's files."""
DEFAULT_INSTALL = "/usr/local/go/bin"
"""Where Go's archive is usually unpacked, which is not always in PATH."""


def go_tool() -> str | None:
    """The path of `go`, or None."""
    return shutil.which("go") or shutil.which("go", path=DEFAULT_INSTALL)


def build_go(*, is_next: bool = False) -> Path:
    """The path of the remoting client's program, built again when its sources changed.

    Args:
      is_next: with the client of next.mod.

    Raises: PeerError: Go is missing, or the build failed (the message has its last lines).
    """
    return _build(GO_FOLDER, "next" if is_next else "go")


def build_go_grpc() -> Path:
    """The path of the gRPC client's program; see `build_go`."""
    return _build(GO_GRPC_FOLDER, "go")


def _build(folder: Path, module: str) -> Path:
    """The path of a folder's program, with the packages that MODULE.mod and MODULE.sum pin."""
    tool = go_tool()
    if tool is None:
        raise PeerError(GO_MISSING)
    sources = [*sorted(folder.glob("*.go")), *(folder / f"{module}.{end}" for end in MODULE)]
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:12]
    program = CACHE_FOLDER / "go" / f"scenarios-{digest}"
    if not program.is_file():
        program.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=program.parent, prefix=".build-") as scratch:
            fresh = Path(scratch) / program.name
            options = [f"-modfile={module}.mod", "-tags", module]
            _run_go([tool, "build", "-mod=readonly", *options, "-o", str(fresh), "."], folder)
            fresh.replace(program)
    return program


def _run_go(command: list[str], folder: Path) -> None:
    try:
        result = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, **GO_ENVIRONMENT},
            capture_output=True,
            text=True,
            timeout=BUILD_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PeerError(f"building {folder}: {error}") from error
    if result.returncode != 0:
        last = "\n".join((result.stdout + result.stderr).splitlines()[-20:])
        raise PeerError(f"building {folder}: go ended with {result.returncode}\n{last}")
