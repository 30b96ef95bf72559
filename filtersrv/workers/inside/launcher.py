"""A worker's first program: it locks itself in, says how well, and then runs or becomes the filter.

A filter in Python is run by this process; a JVM takes its place. The pipes are moved away from the
standard descriptors, which anything may write to: what is written there is looked at only when the
worker has died, and what does not fit that pipe is dropped, so that nobody waits for a reader.
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

COMPLAINTS, REQUESTS, ANSWERS = 2, 3, 4
"""`Worker.java` has the pipes' numbers too."""


def main() -> None:
    """Read START, get ready, answer READY, and serve."""
    move_pipes()
    # Not a byte more than START may be taken out of the pipe: a JVM reads the rest.
    with open(REQUESTS, "rb", buffering=0, closefd=False) as requests:
        settings = read_settings(requests)
    if settings.program:
        become_program(settings)
    else:
        run_python(settings)


def move_pipes() -> None:
    """Requests and answers, which are 0 and 1, to where nobody writes by mistake."""
    os.dup2(0, REQUESTS)
    os.dup2(1, ANSWERS)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.set_blocking(COMPLAINTS, False)
    os.dup2(COMPLAINTS, 1)


def read_settings(requests: BinaryIO) -> Settings:
    """Take START from the pipe. Raises: EOFError: the filter server has ended."""
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
    """READY: a line for each protection, `+name: what` in force, or `-name: why` not."""
    lines = [f"+{name}: {what}" for name, what in protections.in_force.items()]
    lines += [f"-{name}: {why}" for name, why in protections.lacking.items()]
    return frames.text_frame(frames.READY, 0, "\n".join(lines))


def become_program(settings: Settings) -> None:
    """Go on as another program, in the same process."""
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
    """Serve, with what is printed going nowhere."""
    from .python_filter import describe, serve

    nowhere = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")
    sys.stdout = sys.__stdout__ = sys.stderr = sys.__stderr__ = nowhere  # type: ignore[misc]
    protections = Protections(settings)
    protections.enter(None)
    os.write(ANSWERS, report(protections))
    try:
        serve(REQUESTS, ANSWERS)
    except BaseException as error:  # noqa: BLE001 - nobody else is told
        os.write(COMPLAINTS, describe(error).encode("utf-8", "replace"))
    finally:
        os._exit(1)  # threads of the filter do not hold us up, nor a closed descriptor
