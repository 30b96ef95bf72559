"""Archives of loaded classes (class-data sharing), which halve the start of official programs.

A JVM of RocketMQ's loads and verifies some thousand classes before it does anything. The first one
with a class path dumps them to a file of the cache folder; later ones map that file. The JVM
itself ignores an archive that does not fit its version or its jars.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from .cache import CACHE_FOLDER
from .guard import guard, temporary_folder

DUMP_TIMEOUT_S: Final = 120.0
RECORD: Final = "-XX:+RecordDynamicDumpInfo"
QUIET: Final = "-Xlog:cds*=off"
"""Without it the JVM lists on stdout the classes that it does not archive."""


def with_archive(command: Sequence[str], *, cache: Path = CACHE_FOLDER) -> list[str]:
    """A java command that uses the archive of its class path, or can `dump` it.

    Args:
      command: "java", options, "-cp", the class path of jars alone, the main class, arguments.
    """
    path = _archive_path(command, cache)
    if path.is_file():
        return [command[0], QUIET, f"-XX:SharedArchiveFile={path}", *command[1:]]
    # A Java runtime without the tools of the JDK has no jcmd.
    return [command[0], *((QUIET, RECORD) if shutil.which("jcmd") else ()), *command[1:]]


def dump(command: Sequence[str], pid: int, *, cache: Path = CACHE_FOLDER) -> None:
    """Dump the classes of a running JVM unless they are archived; failures leave no archive.

    Args:
      command: as `with_archive` returned it.
    """
    if RECORD not in command:
        return
    plain = [word for word in command if word not in (QUIET, RECORD)]
    dump_file(_archive_path(plain, cache), pid)


def dump_file(path: Path, pid: int) -> None:
    """Dump the classes of a JVM that runs with `RECORD`.

    Nothing is done if there is the file, or another process makes it. A failure leaves no file.
    """
    if path.is_file():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    lock_path = path.with_suffix(".lock")
    with lock_path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        try:
            _dump_locked(path, pid)
        finally:
            lock_path.unlink(missing_ok=True)


def _dump_locked(path: Path, pid: int) -> None:
    with temporary_folder(path.parent) as scratch:
        fresh = scratch / path.name
        try:
            subprocess.run(
                ["jcmd", str(pid), "VM.cds", "dynamic_dump", str(fresh)],
                env={**os.environ, **guard().environment()},
                capture_output=True,
                timeout=DUMP_TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return
        if fresh.is_file():
            fresh.rename(path)


def _archive_path(command: Sequence[str], cache: Path) -> Path:
    """The archive's file, named by the main class, the JVM and the jars of the class path."""
    place = command.index("-cp") + 1
    class_path, main_class = command[place : place + 2]
    jars: list[Path] = []
    for entry in class_path.split(os.pathsep):
        jars += sorted(Path(entry).parent.glob("*.jar")) if entry.endswith("*") else [Path(entry)]
    facts = [class_path, *(word for word in command if word.startswith("-XX:+Use"))]
    name = main_class.rpartition(".")[2]
    return archive_file(name, jars, *facts, java=command[0], cache=cache)


def archive_file(
    name: str, jars: Iterable[Path], *facts: str, java: str = "java", cache: Path = CACHE_FOLDER
) -> Path:
    """The archive's file, named by the JVM, its jars, and what else must be equal.

    Args:
      name: its beginning.
      facts: other strings on which the archive depends, such as the collector.
      java: the JVM's program.
    """
    known = [os.path.realpath(shutil.which(java) or java), *facts]
    for jar in jars:
        stat = jar.stat()
        known.append(f"{jar.name} {stat.st_size} {stat.st_mtime_ns}")
    digest = hashlib.sha256("\n".join(known).encode()).hexdigest()[:12]
    return cache / "archives" / f"{name}-{digest}.jsa"
