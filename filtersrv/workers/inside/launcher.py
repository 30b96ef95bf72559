"""The launcher of a worker: it enables the protections, reports them, and runs the filter.

A filter in Python runs in this process; for Java, the process executes a JVM. The pipes are moved
away from the standard descriptors, to which a filter may write. That output is read only after the
worker has died; what does not fit into the pipe is dropped, so that writers never block.
"""

from __future__ import annotations

import ctypes
import os
import sys

from . import frames, libc, seccomp
from .protections import Protections, Settings

TYPE_CHECKING = False  # see frames
if TYPE_CHECKING:
    from typing import BinaryIO

STDERR, REQUESTS, ANSWERS = 2, 3, 4
"""The descriptors of the pipes; `Worker.java` has them too."""


def main() -> None:
    """Read START, enable the protections, answer READY, and serve."""
    move_pipes()
    # Unbuffered: only START may be read from the pipe, because a JVM reads the rest.
    with open(REQUESTS, "rb", buffering=0, closefd=False) as requests:
        settings = read_settings(requests)
    if settings.program:
        become_program(settings)
    else:
        run_python(settings)


def move_pipes() -> None:
    """Move the pipes of requests and answers from 0 and 1, where filters might read or write."""
    os.dup2(0, REQUESTS)
    os.dup2(1, ANSWERS)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.set_blocking(STDERR, False)
    os.dup2(STDERR, 1)


def read_settings(requests: BinaryIO) -> Settings:
    """Read START from the pipe. Raises: EOFError: the filter server has ended."""
    kind, _, size = frames.HEAD.unpack(_read_exactly(requests, frames.HEAD.size))
    if kind != frames.START or size > frames.SETTINGS_BYTES_MAX:
        raise EOFError("no START")
    return Settings(frames.unpack_settings(_read_exactly(requests, size)))


def _read_exactly(stream: BinaryIO, size: int) -> bytes:
    content = b""
    while len(content) < size:
        more = stream.read(size - len(content))
        if not more:
            raise EOFError
        content += more
    return content


def report(protections: Protections) -> bytes:
    """The READY frame: a line for each protection, `+name: details` or `-name: reason`."""
    lines = [f"+{name}: {what}" for name, what in protections.in_force.items()]
    lines += [f"-{name}: {why}" for name, why in protections.lacking.items()]
    return frames.text_frame(frames.READY, 0, "\n".join(lines))


def become_program(settings: Settings) -> None:
    """Execute another program in this process."""
    arguments = (ctypes.c_char_p * (len(settings.program) + 1))(
        *[os.fsencode(each) for each in settings.program], None
    )
    environment = (ctypes.c_char_p * 1)(None)
    opened = os.open(settings.program[0], os.O_PATH | os.O_CLOEXEC)
    protections = Protections(settings)
    protections.enter((opened, ctypes.addressof(arguments)))
    os.write(ANSWERS, report(protections))
    column = seccomp.MACHINES[os.uname().machine][1]
    libc.call(
        "syscall",
        seccomp.EXECVEAT[column],
        opened,
        b"",
        ctypes.byref(arguments),
        ctypes.byref(environment),
        seccomp.AT_EMPTY_PATH,
    )


def run_python(settings: Settings) -> None:
    """Serve requests; printed output is discarded."""
    from .python_filter import describe, serve

    null = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")
    sys.stdout = sys.__stdout__ = sys.stderr = sys.__stderr__ = null  # type: ignore[misc]
    protections = Protections(settings)
    protections.enter(None)
    os.write(ANSWERS, report(protections))
    try:
        serve(REQUESTS, ANSWERS)
    except BaseException as error:  # noqa: BLE001 - reported by stderr
        os.write(STDERR, describe(error).encode("utf-8", "replace"))
    finally:
        os._exit(1)  # without waiting for threads of the filter
