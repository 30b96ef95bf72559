"""Runs one of the small programs in interop/clients/java/src to the line that ends it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from .maven import JAVA_OPENS, JAVA_SMALL, compile_java
from .process import LineProcess

JAVA_42_SHARES = tuple(
    f"{name}.java"
    for name in (
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
"""What of src the client of 4.2.0 can be compiled with; what differs is in src-4.2."""


def java_command(
    version: str, program: str, *arguments: str, folder: Path, options: tuple[str, ...] = ()
) -> list[str]:
    """The command that runs a program, compiled when it changed; arguments as for `run_java`."""
    command = ["java", *JAVA_SMALL, *JAVA_OPENS, f"-Duser.home={folder}", *options]
    if version.startswith("4.2."):
        classes = compile_java(version, folder="src-4.2", also=JAVA_42_SHARES)
    else:
        classes = compile_java(version)
    return [*command, "-cp", classes, program, *arguments]


def run_java(
    version: str,
    program: str,
    *arguments: str,
    folder: Path,
    timeout_s: float,
    is_done: Callable[[str, list[str]], bool],
    options: tuple[str, ...] = (),
) -> list[str]:
    """What a program printed until it was done; it is killed then.

    Args:
      version: of rocketmq-client.
      folder: for its logs.
      is_done: asked with each line and all lines until then.
      options: of the JVM.
    Raises: PeerError: it ended, or was not done in time.
    """
    command = java_command(version, program, *arguments, folder=folder, options=options)
    lines: list[str] = []
    name = f"{program.lower()}-{version}"
    client = LineProcess(command, folder=folder, name=name, on_line=lines.append)
    try:
        client.wait_line(lambda line: is_done(line, lines), timeout_s=timeout_s)
    finally:
        client.kill()
    return lines
