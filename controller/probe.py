"""The question whether a broker still listens, asked after the connection of its heartbeats ended.

A process that was killed refuses connections at once. One that is frozen, or on the other side of a
broken network, accepts or says nothing: then only time tells.
"""

from __future__ import annotations

from typing import Final

import trio

from ..remoting.opener import split_address

PAUSES_S: Final = (0.0, 0.1, 0.3, 0.6)
"""Before each attempt. A process that ends closes its sockets one after the other, so the first
attempt may still be accepted."""

ATTEMPT_TIMEOUT_S: Final = 1.0
"""For one attempt: a machine in the same network answers within milliseconds."""


async def is_refused(address: str) -> bool:
    """Whether no process listens at `host:port`; takes at most 5 s.

    Returns: False also if that cannot be known.
    """
    try:
        host, port = split_address(address)
    except ValueError:
        return False
    for pause_s in PAUSES_S:
        await trio.sleep(pause_s)
        with trio.move_on_after(ATTEMPT_TIMEOUT_S):
            if await _refuses(host, port):
                return True
    return False


async def _refuses(host: str, port: int) -> bool:
    try:
        stream = await trio.open_tcp_stream(host, port)
    except OSError as error:
        return _is_refusal(error)
    await trio.aclose_forcefully(stream)
    return False


def _is_refusal(error: BaseException) -> bool:
    """Whether each attempt of `open_tcp_stream` was refused; it tries all addresses of a name."""
    if isinstance(error, ConnectionRefusedError):
        return True
    causes: tuple[BaseException, ...] = ()
    if isinstance(error, BaseExceptionGroup):
        causes = error.exceptions
    elif error.__cause__ is not None:
        causes = (error.__cause__,)
    return bool(causes) and all(map(_is_refusal, causes))
