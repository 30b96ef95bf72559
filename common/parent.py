"""The process that started this one, and its end: for servers that tests start.

A runner that is killed cannot stop what it started. Linux offers PR_SET_PDEATHSIG for that, but it
sends its signal when the *thread* that started the process ends, which in Java is long before the
process does. So the process itself is watched.
"""

from __future__ import annotations

import os
from typing import Final

LOOK_S: Final = 0.5
"""Seconds between two looks at the parent's id, where the system has no descriptors of processes
(Linux has, from 5.3 on)."""

STARTED_BY: Final = os.getppid()
"""The id of the parent at the import of this module, which is early in the process."""


def has_ended() -> bool:
    """Whether the process that started this one has ended."""
    return os.getppid() != STARTED_BY


async def wait_for_its_end() -> None:
    """Return when the process that started this one has ended, however it ended."""
    import trio

    try:
        descriptor = os.pidfd_open(STARTED_BY)
    except ProcessLookupError:
        return
    except (AttributeError, OSError):
        descriptor = -1
    try:
        while os.getppid() == STARTED_BY:
            if descriptor < 0:
                await trio.sleep(LOOK_S)
            else:
                await trio.lowlevel.wait_readable(descriptor)
    finally:
        if descriptor >= 0:
            os.close(descriptor)
