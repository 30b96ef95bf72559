"""Free ports on the loopback address, for servers that are started with a given port.

They lie below the ephemeral range (from 32768 on Linux, from 49152 elsewhere): a broker that is
restarted minutes later must find its port free. One process returns each port only once, and no
other process of this user returns it meanwhile: a port is a byte of one file, on which the process
has a lock until it ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import random
import socket
from pathlib import Path

from .process import PeerError

ATTEMPTS_MAX = 1000
FIRST, LAST = 15_000, 32_000

_random = random.SystemRandom()  # other processes search for ports at the same time
_given: set[int] = set()


def free_port(*, offsets: tuple[int, ...] = (0,)) -> int:
    """A port P such that P and P + offset, for each of `offsets`, could just be bound.

    A broker uses more than one: its VIP port P - 2 and, with Apache 4.9, its HA port P + 1.

    Raises: PeerError: none was found in 1,000 attempts.
    """
    for _ in range(ATTEMPTS_MAX):
        base = _random.randint(FIRST, LAST)
        wanted = {base, *(base + offset for offset in offsets)}
        if wanted & _given:
            continue
        with contextlib.ExitStack() as stack:
            if all(_can_bind(stack, port) for port in wanted) and all(map(_reserve, wanted)):
                _given.update(wanted)
                return base
    raise PeerError(f"no free port with offsets {offsets} in {ATTEMPTS_MAX} attempts")


@functools.cache
def _locks() -> int:
    """The file of the locks, open once: to close a second descriptor would end all of them."""
    path = Path(f"/tmp/trocket-ports-{os.getuid()}")  # not TMPDIR: it is for all processes
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def _reserve(port: int) -> bool:
    """Lock the byte of a port; false: another process has it."""
    try:
        fcntl.lockf(_locks(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except (BlockingIOError, PermissionError):
        return False
    return True


def _can_bind(stack: contextlib.ExitStack, port: int) -> bool:
    listener = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
    # As servers do: a port with connections in TIME_WAIT counts as free.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
    except OSError:
        return False
    return True


def free_broker_port() -> int:
    """A port P for a broker whose VIP port (P - 2) and HA port (P + 1) are free, too.

    Raises: PeerError: none was found.
    """
    return free_port(offsets=(0, -2, 1))
