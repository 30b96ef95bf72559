"""One-shot runs of the Java programs in interop/clients/java/src."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from . import class_archive
from .maven import JAVA_OPENS, JAVA_SMALL, compile_java
from .process import LineProcess

SHARED_WITH_JAVA_42 = tuple(
    f"{name}.java"
    for name in (
        "AccountScenarios",
        "Features",
        "GroupScenarios",
        "Inbox",
        "Json",
        "LaterScenarios",
        "Points",
        "PullScenarios",
        "PushScenarios",
        "Scenarios",
        "SendScenarios",
        "Stage",
        "Through",
    )
)
"""Files of src that compile with the client of 4.2.0; the others have a version in src-4.2."""


def java_command(
    version: str, program: str, *arguments: str, folder: Path, options: tuple[str, ...] = ()
) -> list[str]:
    """The command that runs a program, compiled if it changed; arguments as for `run_java`."""
    command = ["java", *JAVA_SMALL, *JAVA_OPENS, f"-Duser.home={folder}", *options]
    if version.startswith("4.2."):
        classes = compile_java(version, folder="src-4.2", also=SHARED_WITH_JAVA_42)
    else:
        classes = compile_java(version)
    return class_archive.with_archive([*command, "-cp", classes, program, *arguments])


def grpc_command(version: str, *arguments: str, folder: Path) -> list[str]:
    """The command that runs GrpcScenarios, compiled if it changed.

    Args:
      version: of rocketmq-client-java.
      folder: for its logs.
    Raises: PeerError: as `maven.compile_java`.
    """
    classes = compile_java(version, folder="grpc", also=("Json.java",), jar_set="grpc")
    command = ["java", *JAVA_SMALL, f"-Duser.home={folder}", "-cp", classes, "GrpcScenarios"]
    return class_archive.with_archive([*command, *arguments])


def grpc_load_command(version: str, *arguments: str, folder: Path) -> list[str]:
    """The command that runs GrpcLoad; see `grpc_command`. It has a heap for a load."""
    classes = compile_java(version, folder="grpc", also=("Json.java",), jar_set="grpc")
    return ["java", "-Xmx512m", f"-Duser.home={folder}", "-cp", classes, "GrpcLoad", *arguments]


def run_java(
    version: str,
    program: str,
    *arguments: str,
    folder: Path,
    timeout_s: float,
    is_done: Callable[[str, list[str]], bool],
    options: tuple[str, ...] = (),
) -> list[str]:
    """Run a program until it is done, kill it, and return the lines it printed.

    Args:
      version: of rocketmq-client.
      folder: for its logs.
      is_done: called with each line and all lines so far.
    Raises: PeerError: the program ended early, or was not done in time.
    """
    command = java_command(version, program, *arguments, folder=folder, options=options)
    lines: list[str] = []
    name = f"{program.lower()}-{version}"
    client = LineProcess(command, folder=folder, name=name, on_line=lines.append)
    try:
        client.wait_line(lambda line: is_done(line, lines), timeout_s=timeout_s)
        class_archive.dump(command, client.pid)
    finally:
        client.kill()
    return lines
