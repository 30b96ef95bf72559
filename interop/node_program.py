"""The scenario program of RocketMQ's gRPC client for Node.js, and the packages that it needs.

The packages lie in `node` of the cache folder; interop/clients/node_grpc/package-lock.json pins
their versions.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path

from .cache import CACHE_FOLDER
from .process import PeerError

NODE_FOLDER = Path(__file__).resolve().parent / "clients" / "node_grpc"
PACKAGES = ("package.json", "package-lock.json")
PROGRAM = "scenarios.js"
INSTALL_TIMEOUT_S = 300.0


def missing_for_node() -> str | None:
    """Why Node.js programs cannot run here, or None."""
    if shutil.which("node") and shutil.which("npm"):
        return None
    return "no node or npm in PATH (Node.js 16.19 or newer is needed)"


def node_command(*arguments: str) -> list[str]:
    """The command that runs the program, with packages that are installed when they are missing.

    Raises: PeerError: Node.js is missing, or npm failed (the message has its last lines).
    """
    return ["node", str(node_modules().parent / PROGRAM), *arguments]


def node_modules() -> Path:
    """The folder node_modules of the locked packages, installed when it is missing.

    The program lies beside it: Node.js looks for packages in the folders of the file.

    Raises: PeerError: as `node_command`.
    """
    reason = missing_for_node()
    if reason is not None:
        raise PeerError(reason)
    files = [NODE_FOLDER / name for name in (*PACKAGES, PROGRAM)]
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]
    place = CACHE_FOLDER / "node" / f"scenarios-{digest}"
    if not place.is_dir():
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent, prefix=".install-") as scratch:
            fresh = Path(scratch) / place.name
            fresh.mkdir()
            for file in files:
                shutil.copy(file, fresh)
            _install(fresh)
            if not place.is_dir():  # another process may have been faster
                fresh.rename(place)
    return place / "node_modules"


def _install(folder: Path) -> None:
    # No package here needs a script to be installed.
    command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    try:
        result = subprocess.run(
            command,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=INSTALL_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PeerError(f"{' '.join(command)}: {error}") from error
    if result.returncode != 0:
        last = "\n".join((result.stdout + result.stderr).splitlines()[-20:])
        raise PeerError(f"{' '.join(command)} ended with {result.returncode}\n{last}")
