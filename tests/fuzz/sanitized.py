"""The C extension built with address and undefined-behaviour sanitizers, and how to run with it.

`python -m tests.fuzz.sanitized FOLDER COMMAND ...` builds it in FOLDER and runs a command with it:

    python -m tests.fuzz.sanitized /tmp/asan .venv/bin/pytest -q tests/native tests/remoting

The command's Python finds a `sitecustomize.py` in FOLDER, which loads this build under the
extension's name before anything imports it. The tree and its own build are not touched.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Final

from trocket.native.sources import sources_crc

SOURCES: Final = Path(__file__).resolve().parent.parent.parent / "native"
FLAGS: Final = (
    "-shared", "-fPIC", "-g", "-O1", "-std=c11", "-Wall", "-Wextra", "-Wconversion", "-Werror",
    "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer",
    "-fvisibility=hidden",
)  # fmt: skip

_LOAD: Final = """\
import importlib.util
import sys

NAME = "trocket.native._native"
spec = importlib.util.spec_from_file_location(NAME, {path!r})
sys.modules[NAME] = module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
"""


class CannotSanitizeError(Exception):
    """There is no C compiler, or it has no sanitizers."""


def compiler() -> list[str]:
    """The C compiler as a command."""
    return shlex.split(os.environ.get("CC", "")) or ["cc"]


def build(folder: Path) -> dict[str, str]:
    """Build into `folder`.

    Returns: the environment in which Python loads this build.
    Raises: CannotSanitizeError. subprocess.CalledProcessError: a source does not compile.
    """
    runtime = _runtime("libasan.so")
    folder.mkdir(parents=True, exist_ok=True)
    built = folder / "_native.so"
    subprocess.run(
        [
            *compiler(), *FLAGS, f"-DTROCKET_SOURCES_CRC={sources_crc(SOURCES)}",
            # As a system's header: warnings are for our sources.
            f"-isystem{sysconfig.get_path('include')}",
            *map(str, sorted(SOURCES.glob("*.c"))), "-o", str(built),
        ],
        check=True,
    )  # fmt: skip
    (folder / "sitecustomize.py").write_text(_LOAD.format(path=str(built)), encoding="utf-8")
    return os.environ | {
        "LD_PRELOAD": str(runtime),
        # Python frees little at its exit. Longer stacks cost nothing until something is found.
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1:allocator_may_return_null=1",
        "UBSAN_OPTIONS": "print_stacktrace=1:abort_on_error=1",
        # Each object is a separate block, so that a read or write past its end is seen.
        "PYTHONMALLOC": "malloc",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")])),
        "PYTHONHASHSEED": "0",
        "TROCKET_PURE": "",
    }


def _runtime(name: str) -> Path:
    """The sanitizer's library, which must be loaded first."""
    try:
        done = subprocess.run(
            [*compiler(), f"-print-file-name={name}"], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise CannotSanitizeError(f"no C compiler: {error}") from error
    path = Path(done.stdout.strip())
    if not path.is_absolute():  # a compiler that does not know a file answers with its name
        raise CannotSanitizeError(f"the C compiler has no {name}")
    return path


if __name__ == "__main__":
    environment = build(Path(sys.argv[1]).resolve())
    sys.exit(subprocess.run(sys.argv[2:], env=environment, check=False).returncode)
