"""The JDK, and the worker's own Java classes, which it compiles.

The compiled classes are cached in a folder, so that only the first worker has to wait for them.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import trio

from ..filters import FilterError

CACHE_VARIABLE: Final = "TROCKET_FILTERSRV_CACHE"
"""Environment variable for the cache folder, which needs about 30 KB."""

SOURCES: Final = Path(__file__).parent / "java"

COMPILE_TIMEOUT_S: Final = 120.0
"""Time limit of compiling the worker's classes, which takes a second on an idle machine."""

OUTPUT_LENGTH_MAX: Final = 500
"""Largest number of characters of javac's output in an error message."""


@dataclass(frozen=True, slots=True)
class Jdk:
    """A Java development kit.

    Attributes:
      home: its folder, without symbolic links.
      folders: that folder, and the targets of links in it (Debian keeps parts of it in /etc).
    """

    home: Path
    folders: tuple[str, ...]


def find_jdk() -> Jdk:
    """Find the JDK of JAVA_HOME, or the one whose javac is in PATH.

    Raises: FilterError: there is no JDK.
    """
    named = os.environ.get("JAVA_HOME")
    found = shutil.which("javac", path=f"{named}/bin" if named else None)
    if found is None:
        where = f"JAVA_HOME ({named})" if named else "PATH"
        raise FilterError(f"classes in Java need a JDK, 11 or newer: no javac in {where}")
    home = Path(found).resolve().parent.parent
    if not ((home / "bin" / "java").is_file() and (home / "lib" / "modules").is_file()):
        raise FilterError(
            f"classes in Java need a JDK, 11 or newer: {home} is not a JDK; set JAVA_HOME"
        )
    return Jdk(home, (str(home), *_link_targets(home)))


def _link_targets(home: Path) -> list[str]:
    targets: set[str] = set()
    for part in ("conf", "lib"):
        for folder, folders, files in os.walk(home / part):
            links = [Path(folder, name) for name in (*folders, *files)]
            targets.update(str(link.resolve()) for link in links if link.is_symlink())
        targets.add(str((home / part).resolve()))
    return sorted(target for target in targets if not Path(target).is_relative_to(home))


def _cache_folder() -> Path:
    named = os.environ.get(CACHE_VARIABLE)
    if named:
        return Path(named)
    if os.geteuid() == 0:
        # Not root's home, which a worker could not read after it has switched to another user.
        return Path("/var/cache/trocket/filtersrv")
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(caches) / "trocket" / "filtersrv"


async def our_classes(jdk: Jdk) -> Path:
    """The folder of the worker's own classes; they are compiled if this JDK has not done so yet.

    Raises: FilterError: javac failed, or other users could have changed the classes.
    """
    sources = sorted(SOURCES.rglob("*.java"))
    digest = hashlib.sha256(str(jdk.home).encode())
    for source in (jdk.home / "release", *sources):
        digest.update(source.read_bytes())
    try:
        cache = _cache_folder()
        cache.mkdir(mode=0o755, parents=True, exist_ok=True)
        _check_owner(cache)
        classes = cache / f"classes-{digest.hexdigest()[:16]}"
        if not classes.is_dir():
            await _compile(jdk, sources, classes)
        _check_owner(classes)
    except OSError as error:
        raise FilterError(f"the worker's own classes: {error}") from error
    return classes


def _check_owner(folder: Path) -> None:
    status = folder.stat()
    if status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise FilterError(
            f"{folder} can be changed by other users: correct its owner and permissions"
        )


async def _compile(jdk: Jdk, sources: list[Path], classes: Path) -> None:
    # Compiled into a temporary folder and renamed, so that the final folder is always complete.
    with tempfile.TemporaryDirectory(dir=classes.parent) as scratch:
        fresh = Path(scratch) / "classes"
        fresh.mkdir()
        command = [str(jdk.home / "bin" / "javac"), "-nowarn", "-proc:none", "-d", str(fresh)]
        with trio.move_on_after(COMPILE_TIMEOUT_S) as scope:
            done = await trio.run_process(
                [*command, *map(str, sources)],
                check=False,
                capture_stdout=True,
                capture_stderr=True,
            )
        if scope.cancelled_caught or done.returncode != 0:
            output = b"it took too long" if scope.cancelled_caught else done.stderr + done.stdout
            text = output.decode("utf-8", "replace")[:OUTPUT_LENGTH_MAX]
            raise FilterError(f"the worker's own classes: {command[0]} failed: {text}")
        _publish(fresh, classes)


def _publish(fresh: Path, classes: Path) -> None:
    """Make the folder readable for workers, whatever the umask, and rename it."""
    for path in (fresh, *fresh.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    try:
        fresh.rename(classes)
    except OSError:
        if not classes.is_dir():  # otherwise another process was quicker
            raise
