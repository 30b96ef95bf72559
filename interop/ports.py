"""Free ports on the loopback address, for processes that are told where to listen."""

from __future__ import annotations

import contextlib
import socket

from .process import PeerError

ATTEMPTS_MAX = 100


def free_port(*, offsets: tuple[int, ...] = (0,)) -> int:
    """A port P for which P + offset is free for each of `offsets` (all were bound a moment ago).

    A broker takes more than one: its VIP port P - 2 and, with Apache 4.9, its HA port P + 1.

    Raises: PeerError: none was found in 100 attempts.
    """
    for _ in range(ATTEMPTS_MAX):
        with contextlib.ExitStack() as stack:
            base = _bind(stack, 0)
            assert base is not None
            wanted = [base + offset for offset in offsets if offset != 0]
            if all(0 < port < 65536 and _bind(stack, port) is not None for port in wanted):
                return base
    raise PeerError(f"no free port with offsets {offsets} in {ATTEMPTS_MAX} attempts")


def _bind(stack: contextlib.ExitStack, port: int) -> int | None:
    listener = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
    try:
        listener.bind(("127.0.0.1", port))
    except OSError:
        return None
    chosen = listener.getsockname()[1]
    assert isinstance(chosen, int)
    return chosen


def free_broker_port() -> int:
    """A port for a broker: its VIP port (P - 2) and its HA port (P + 1) are free too.

    Raises: PeerError: none was found.
    """
    return free_port(offsets=(0, -2, 1))
