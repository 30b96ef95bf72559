"""What building the C extension needs of a machine."""

from __future__ import annotations

import shlex
import shutil
import sysconfig
from pathlib import Path


def missing_to_build() -> str:
    """What is missing here; "": nothing."""
    command = shlex.split(sysconfig.get_config_var("CC") or "cc")
    if shutil.which(command[0]) is None:
        return f"no C compiler: {command[0]}"
    header = Path(sysconfig.get_path("include"), "Python.h")
    return "" if header.exists() else f"no headers of Python: {header}"
