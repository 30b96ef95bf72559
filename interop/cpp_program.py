"""The virtual environment of the C++ client's Python wheel, and the scenario program run in it.

The wheel is installed from PyPI into a separate environment, `cpp-wheel` of the cache folder: it
shares no package with trocket.
"""

from __future__ import annotations

import platform
import sys
from pathlib import Path

from .process import PeerError
from .wheel_environment import wheel_python

CPP_WHEEL = "rocketmq==0.4.4"
CPP_PROGRAM = Path(__file__).resolve().parent / "clients" / "cpp" / "scenarios.py"


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
    reason = missing_for_cpp()
    if reason is not None:
        raise PeerError(reason)
    return wheel_python("cpp-wheel", CPP_WHEEL, "rocketmq.client")
