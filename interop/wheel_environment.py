"""Virtual environments of clients that are wheels, in the cache folder: they share no package with
trocket."""

from __future__ import annotations

import fcntl
import subprocess
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .cache import CACHE_FOLDER
from .process import PeerError

INSTALL_TIMEOUT_S = 300.0
CHECK_TIMEOUT_S = 30.0


def wheel_python(folder: str, wheel: str, module: str) -> Path:
    """The interpreter of a wheel's environment, which is created when it is missing.

    Args:
      folder: its name in the cache folder.
      wheel: what pip installs, with the version.
      module: what can be imported then.
    Raises: PeerError: the wheel cannot be installed, or cannot be imported.
    """
    place = CACHE_FOLDER / folder
    python = place / "bin" / "python"
    if (place / "ready").is_file():
        return python
    with _alone(place):
        if (place / "ready").is_file():  # another process made it meanwhile
            return python
        try:
            venv.create(place, with_pip=True, clear=True)
            _run([str(python), "-m", "pip", "install", "-q", wheel], INSTALL_TIMEOUT_S)
            _run([str(python), "-c", f"import {module}"], CHECK_TIMEOUT_S)
        except (OSError, subprocess.SubprocessError) as error:
            raise PeerError(f"{wheel} cannot be installed into {place}: {error}") from error
        (place / "ready").touch()
    return python


@contextmanager
def _alone(place: Path) -> Iterator[None]:
    """Keep other processes from the environment. One that installs has time limits, so this waits
    no longer than they are; the lock of one that is killed ends with it."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.with_name(f"{place.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _run(command: list[str], timeout_s: float) -> None:
    result = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    if result.returncode != 0:
        last = "\n".join((result.stdout + result.stderr).splitlines()[-10:])
        raise PeerError(f"{' '.join(command)} ended with {result.returncode}\n{last}")
