"""Standard error of the JVM that a job starts, without tracebacks of a run that went well.

When a query ends, Spark closes the connections of its Python workers, and PySpark's daemon prints a
traceback for each worker that still flushes. No setting of Spark reaches the daemons that plan a
stream, so the lines are left out where the JVM passes them on.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Iterable, Iterator
from typing import Final

FIRST: Final = "Traceback (most recent call last):"
LOST: Final = re.compile(r"(BrokenPipeError|ConnectionResetError): ")
DAEMON_FRAME: Final = re.compile(r'  File ".*[/\\]pyspark[/\\]daemon\.py", ')
THREAD: Final = "standard error of Java"
LINES_MAX: Final = 200
"""Lines of a traceback that are kept back until its end shows what it is."""


def without_lost_workers(lines: Iterable[str]) -> Iterator[str]:
    """The lines, less tracebacks of the daemon whose worker lost its connection.

    Args:
      lines: with their line ends.
    """
    held: list[str] = []
    for line in lines:
        if not held and line.rstrip() != FIRST:
            yield line
            continue
        held.append(line)
        is_inside = len(held) == 1 or line.startswith(" ")
        if is_inside and len(held) < LINES_MAX:
            continue
        frames = [each for each in held if each.startswith('  File "')]
        is_lost = frames and all(map(DAEMON_FRAME.match, frames)) and LOST.match(line)
        if not is_lost:
            yield from held
        held = []
    yield from held


@contextlib.contextmanager
def filtered() -> Iterator[None]:
    """Have processes that start in the block write their standard error through the filter."""
    reading, writing = os.pipe()
    own = os.dup(2)
    os.dup2(writing, 2)
    os.close(writing)
    thread = threading.Thread(target=_forward, args=(reading, own), name=THREAD, daemon=True)
    thread.start()
    try:
        yield
    finally:
        os.dup2(own, 2)


def _forward(reading: int, target: int) -> None:
    """Pass lines on until the last process that holds the pipe has ended."""
    with os.fdopen(reading, encoding="utf-8", errors="replace", newline="\n") as lines:
        for line in without_lost_workers(lines):
            with contextlib.suppress(OSError):  # a terminal that is gone
                os.write(target, line.encode("utf-8", "replace"))
