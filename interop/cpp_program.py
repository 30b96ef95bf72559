"""The virtual environment of the C++ client's Python wheel, and the scenario program run in it.

The wheel is installed from PyPI into a separate environment, `cpp-wheel` of the cache folder: it
shares no package with trocket.
"""

from __future__ import annotations

import platform
import subprocess
import sys
import venv
from pathlib import Path

from .cache import CACHE_FOLDER
from .process import PeerError

CPP_WHEEL = "rocketmq==0.4.4"
CPP_PROGRAM = Path(__file__).resolve().parent / "clients" / "cpp" / "scenarios.py"
INSTALL_TIMEOUT_S = 300.0
CHECK_TIMEOUT_S = 30.0


def missing_for_cpp() -> str | None:
    """Why the wheel cannot run here, or None; PyPI has it for x86-64 Linux and macOS."""
    machine = platform.machine()
    if sys.platform not in ("linux", "darwin") or machine not in ("x86_64", "AMD64"):
        return f"{CPP_WHEEL} has no wheel for {sys.platform} on {machine}"
    return None


def cpp_python() -> Path:
    """The interpreter of the wheel's environment, which is created when it is missing.

    Raises: PeerError: the wheel cannot be installed, or cannot be imported.
    """
    folder = CACHE_FOLDER / "cpp-wheel"
    python = folder / "bin" / "python"
    if (folder / "ready").is_file():
        return python
    reason = missing_for_cpp()
    if reason is not None:
        raise PeerError(reason)
    try:
        venv.create(folder, with_pip=True, clear=True)
        _run([str(python), "-m", "pip", "install", "-q", CPP_WHEEL], INSTALL_TIMEOUT_S)
        _run([str(python), "-c", "import rocketmq.client"], CHECK_TIMEOUT_S)
    except (OSError, subprocess.SubprocessError) as error:
        raise PeerError(f"{CPP_WHEEL} cannot be installed into {folder}: {error}") from error
    (folder / "ready").touch()
    return python


def _run(command: list[str], timeout_s: float) -> None:
    result = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    if result.returncode != 0:
        last = "\n".join((result.stdout + result.stderr).splitlines()[-10:])
        raise PeerError(f"{' '.join(command)} ended with {result.returncode}\n{last}")
