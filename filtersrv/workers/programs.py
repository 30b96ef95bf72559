"""Programs and settings of worker processes: command lines, readable files, limits."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .java import Jdk

LAUNCHER: Final = (
    sys.executable,
    "-I",
    "-S",
    "-E",
    "-B",
    str(Path(__file__).parent / "inside" / "__main__.py"),
)
"""The command line of all workers."""

SYSTEM_LIBRARIES: Final = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache")
"""The files of shared libraries."""

PYTHON_TASKS_MAX: Final = 8
PYTHON_FILES_MAX: Final = 16
JAVA_TASKS_MAX: Final = 40
"""An idle JVM has 13 threads."""
JAVA_FILES_MAX: Final = 32

JAVA_OVERHEAD_MIB: Final = 72
"""Memory of a JVM besides its heap: 30 MiB at the start, the rest for classes and compiled code."""
JAVA_HEAP_MIN_MIB: Final = 8

COMPILER_MEMORY_MIB: Final = 256
"""Memory of javac: it needs 50 MiB for a small class; this is enough for the largest source."""
COMPILER_HEAP_MIB: Final = 112
COMPILER_METASPACE_MIB: Final = 64
WORKER_METASPACE_MIB: Final = 24

JAVA_MAIN: Final = "trocket.filtersrv.Worker"

JAVA_OPTIONS: Final = (
    # Small memory and a fast start.
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
    "-Xms8m",
    "-Xss512k",
    "-XX:CompressedClassSpaceSize=16m",
    "-XX:ReservedCodeCacheSize=16m",
    "-XX:ActiveProcessorCount=1",
    # Isolation: no files, no attaching, no environment.
    "-XX:-UsePerfData",
    "-XX:-UseContainerSupport",
    "-XX:+DisableAttachMechanism",
    "-XX:-CreateCoredumpOnCrash",
    "-XX:-MaxFDLimit",
    "-Xrs",
    # Needed to open the descriptors of the pipes by their numbers.
    "--add-opens=java.base/java.io=ALL-UNNAMED",
    # After an OutOfMemoryError the state of a filter is undefined: end the process.
    "-XX:+ExitOnOutOfMemoryError",
)


@dataclass(frozen=True, slots=True)
class WorkerProgram:
    """The settings of a worker process, sent by START; see `inside.protections.Settings`."""

    memory_mib: int
    tasks_max: int
    files_max: int
    read: Sequence[str]
    execute: Sequence[str] = ()
    arguments: Sequence[str] = ()
    cpu_s: int = 0

    def settings(self) -> Iterator[tuple[str, str]]:
        """The settings for `inside.frames.pack_settings`."""
        yield "parent", str(os.getpid())
        yield "memory", str(self.memory_mib << 20)
        yield "tasks", str(self.tasks_max)
        yield "files", str(self.files_max)
        yield "cpu", str(self.cpu_s)
        for name, values in (
            ("read", self.read),
            ("execute", self.execute),
            ("program", self.arguments),
        ):
            for value in values:
                yield name, value


def python_program(memory_mib: int) -> WorkerProgram:
    """The program that runs a filter in Python. It can read the standard library only."""
    library = {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}
    return WorkerProgram(
        memory_mib=memory_mib,
        tasks_max=PYTHON_TASKS_MAX,
        files_max=PYTHON_FILES_MAX,
        read=[*library, *SYSTEM_LIBRARIES, "/usr/share/zoneinfo"],
    )


def java_program(jdk: Jdk, classes: Path, memory_mib: int) -> WorkerProgram:
    """The program that runs a filter in Java.

    Args:
      classes: folder of the worker's own classes.
      memory_mib: largest size of the memory in MiB, heap included.
    """
    heap = max(memory_mib - JAVA_OVERHEAD_MIB, JAVA_HEAP_MIN_MIB)
    return _jvm(jdk, classes, memory_mib, heap, WORKER_METASPACE_MIB)


def compiler_program(jdk: Jdk, classes: Path, timeout_s: float) -> WorkerProgram:
    """The program that compiles Java; a source can make a compiler use any amount of resources."""
    heap = COMPILER_HEAP_MIB
    return _jvm(jdk, classes, COMPILER_MEMORY_MIB, heap, COMPILER_METASPACE_MIB, int(timeout_s) + 1)


def _jvm(
    jdk: Jdk, classes: Path, memory_mib: int, heap_mib: int, metaspace_mib: int, cpu_s: int = 0
) -> WorkerProgram:
    java = str(jdk.home / "bin" / "java")
    return WorkerProgram(
        memory_mib=memory_mib,
        tasks_max=JAVA_TASKS_MAX,
        files_max=JAVA_FILES_MAX,
        read=[*jdk.folders, str(classes), *SYSTEM_LIBRARIES, "/dev/random", "/dev/urandom"],
        execute=[java, *_loaders()],
        arguments=[
            java,
            f"-Xmx{heap_mib}m",
            f"-XX:MaxMetaspaceSize={metaspace_mib}m",
            *JAVA_OPTIONS,
            "-cp",
            str(classes),
            JAVA_MAIN,
        ],
        cpu_s=cpu_s,
    )


def _loaders() -> list[str]:
    """The dynamic loaders, which the kernel executes together with a program."""
    folders = (Path("/lib"), Path("/lib64"))
    return sorted({str(each.resolve()) for at in folders for each in at.glob("ld-*.so*")})
