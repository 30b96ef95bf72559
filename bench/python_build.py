"""The Python that runs our broker: its version, how it was built, and the C extension.

Run as a program in the broker's environment, it prints one line of JSON: `TROCKET_PURE` and
`PYTHON…` variables then affect it as they affect the broker.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import platform
import shlex
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import asdict, dataclass

TIMEOUT_S = 30.0

OPTIMIZATIONS = ("--enable-optimizations", "--with-lto")
"""Options of CPython's `configure` that change its speed; the first is PGO."""


@dataclass(frozen=True)
class PythonBuild:
    """What is needed to judge a figure that was taken with a Python.

    Attributes:
      version: "CPython 3.11.7".
      build: see `build_text`.
      compiler: "GCC 12.2.0".
      extension: the C extension of trocket, or its absence.
    """

    version: str
    build: str
    compiler: str
    extension: str

    def __str__(self) -> str:
        return f"{self.version} ({self.build}, {self.compiler}), {self.extension}"


def this_python() -> PythonBuild:
    """The running interpreter."""
    return PythonBuild(
        version=f"{platform.python_implementation()} {platform.python_version()}",
        build=build_text(
            str(sysconfig.get_config_var("CONFIG_ARGS") or ""),
            is_free_threaded=bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
        ),
        compiler=platform.python_compiler(),
        extension=extension_text(),
    )


def build_text(configure_arguments: str, *, is_free_threaded: bool = False) -> str:
    """The options of a build that change its speed, as they were given to `configure`.

    A distribution may optimize in its makefile instead, as Debian does; that is not recorded.

    Args:
      configure_arguments: the variable CONFIG_ARGS of `sysconfig`; "" where it is unknown.
    """
    if not configure_arguments:
        return "configured with unknown options"
    given = {word.partition("=")[0] for word in shlex.split(configure_arguments)}
    found = [option for option in OPTIMIZATIONS if option in given]
    missing = [option for option in OPTIMIZATIONS if option not in given]
    parts = [f"configured with {' and '.join(found)}"] if found else []
    parts += [f"configured without {' and '.join(missing)}"] if missing else []
    parts += ["free-threaded"] if is_free_threaded else []
    return ", ".join(parts)


def extension_text() -> str:
    """What runs the hot path in this environment: the C extension or pure Python, and why.

    The only place of the benches that knows about the extension.
    """
    if importlib.util.find_spec("trocket.native") is None:
        return "pure Python"
    return str(importlib.import_module("trocket.native").choice.description)


def broker_python(environment: Mapping[str, str]) -> PythonBuild:
    """The Python of a broker that is started by this interpreter with further variables.

    Raises: subprocess.SubprocessError: it cannot be run.
    """
    printed = subprocess.run(
        [sys.executable, "-m", "trocket.bench.python_build"],
        env={**os.environ, **environment},
        capture_output=True,
        check=True,
        timeout=TIMEOUT_S,
    ).stdout
    return PythonBuild(**json.loads(printed))


if __name__ == "__main__":
    print(json.dumps(asdict(this_python())))
