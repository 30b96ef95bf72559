"""Acceptor: accepts connections from one listening socket, and recovers from accept(2)'s errors.

Three kinds of errors, see `kind_of`:

- A network error of one connection, reported by accept(2): only that connection is lost.
- Out of descriptors or memory: connections wait in the kernel's backlog for a moment.
- A broken listener (closed, or no longer listening): the address is opened again, with as many
  attempts as needed. Open connections are served meanwhile.

Java counterpart: Netty's AbstractNioMessageChannel, which continues after every IOException except
that of a closed channel.
"""

from __future__ import annotations

import enum
import errno
import logging
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import trio

from ..common.supervision import FailureLog
from .port_in_use import who_has

logger = logging.getLogger(__name__)

BACKLOG = 1024
"""Connections that the kernel holds for us. RocketMQ: serverSocketBacklog 1024."""

PAUSE_S: Final = 0.1
"""The pause when descriptors or memory have run out."""

REOPEN_PAUSE_S_MAX: Final = 5.0
"""The longest pause between two attempts to open a listener; it doubles from `PAUSE_S` on."""


class AcceptError(enum.Enum):
    """The object that an error of accept(2) concerns."""

    CONNECTION = "one connection"
    RESOURCES = "descriptors or memory"
    LISTENER = "the listening socket"


_KINDS: Final[Mapping[AcceptError, tuple[str, ...]]] = {
    AcceptError.CONNECTION: (
        "ECONNABORTED", "EPROTO", "ENETDOWN", "ENOPROTOOPT", "EHOSTDOWN", "ENONET",
        "EHOSTUNREACH", "EOPNOTSUPP", "ENETUNREACH", "EPERM", "ETIMEDOUT", "ECONNRESET",
    ),
    AcceptError.RESOURCES: ("EMFILE", "ENFILE", "ENOBUFS", "ENOMEM"),
    AcceptError.LISTENER: ("EBADF", "EINVAL", "ENOTSOCK", "EFAULT"),
}  # fmt: skip
"""Source: accept(2), "Error handling" (EPERM: firewall rules). macOS has no ENONET."""

_KIND_OF: Final = {
    getattr(errno, name): kind
    for kind, names in _KINDS.items()
    for name in names
    if hasattr(errno, name)
}


def kind_of(error: Exception) -> AcceptError:
    """Classify an error of accept(2), or of waiting for it.

    An error that accept(2) does not document counts as a lack of resources, because a retry after a
    pause suits lasting and passing errors. A ValueError comes from a closed socket.
    """
    if isinstance(error, ValueError):
        return AcceptError.LISTENER
    number = error.errno if isinstance(error, OSError) else None
    return _KIND_OF.get(number or 0, AcceptError.RESOURCES)


def open_listener(host: str, port: int) -> socket.socket:
    """Open a listening socket.

    Args:
      host: an address of this machine, IPv4 or IPv6; "" or "0.0.0.0" for all of IPv4.
      port: 0 to 65,535; 0 takes a free one.

    Raises: OSError: the address is in use or not of this machine; the message names it.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        # Connections of a server that ended just now are in TIME_WAIT, and must not keep it from
        # starting.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(BACKLOG)
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        where = f"{host or '0.0.0.0'}:{port}"
        hint = ""
        if error.errno == errno.EADDRINUSE:
            hint = f": {who_has(host, port)}"
        raise OSError(error.errno, f"cannot listen on {where} ({error.strerror}){hint}") from error
    return sock


@contextmanager
def closed_at_end(listeners: Iterable[socket.socket | None]) -> Iterator[None]:
    """Close listeners at the end of the block.

    Their acceptors do so, too; but a server that ends while it starts has not given them to one.
    """
    try:
        yield
    finally:
        for listener in listeners:
            if listener is not None:
                listener.close()


class Acceptor:
    """Accepts on one address until cancelled, then closes its socket.

    Args:
      listener: a non-blocking listening socket, from `open_listener`.
      take: called with each connected socket, which it then owns, and the peer's address.
      reopen: opens a listener on a host and port again.
    """

    def __init__(
        self,
        listener: socket.socket,
        take: Callable[[socket.socket, object], None],
        *,
        reopen: Callable[[str, int], socket.socket] = open_listener,
    ) -> None:
        self._listener = listener
        self._take = take
        self._reopen = reopen
        self._failures = FailureLog(logger)
        self._reopen_pause_s = PAUSE_S
        self._logged: AcceptError | None = None
        try:
            self._host, self._port = listener.getsockname()[:2]
        except OSError:  # closed before it was served: the address is unknown
            self._host, self._port = "", -1

    async def run(self) -> None:
        """Accept until cancelled."""
        try:
            while True:
                try:
                    await trio.lowlevel.wait_readable(self._listener)
                    # Another process, or a peer that went away again, may leave nothing to accept.
                    sock, address = self._listener.accept()
                except (BlockingIOError, InterruptedError):
                    continue
                except Exception as error:  # noqa: BLE001 - open connections are served anyway
                    await self._recover(error)
                    continue
                # It works again, so the next failure is logged and retried as a new one.
                self._reopen_pause_s, self._logged = PAUSE_S, None
                try:
                    self._take(sock, address)
                except Exception as error:  # noqa: BLE001 - our bug: others are still served
                    sock.close()
                    meaning = "That connection is closed; others are accepted"
                    self._failures.note("accepting a connection", meaning, error)
        finally:
            self._listener.close()

    async def _recover(self, error: Exception) -> None:
        """Pause as the kind of error requires, and reopen a broken listener."""
        kind, where = kind_of(error), f"{self._host}:{self._port}"
        is_new = self._logged is not kind
        if kind is AcceptError.CONNECTION:
            logger.debug(
                "a connection to %(where)s was lost while it was accepted: %(error)s",
                {"where": where, "error": error},
            )
            # No pause, since the next connection has nothing to do with it; but others get their
            # turn.
            await trio.lowlevel.checkpoint()
            return
        self._logged = kind
        if kind is AcceptError.RESOURCES:
            if is_new:
                logger.error(
                    "cannot accept a connection on %(where)s: %(error)s. New clients wait; "
                    "connected clients are still served. If too many files are open, raise the "
                    "limit (ulimit -n) or end clients",
                    {"where": where, "error": error},
                )
            # The socket stays readable, so without a pause this would be a busy loop.
            await trio.sleep(PAUSE_S)
            return
        if is_new:
            logger.error(
                "the listening socket of %(where)s is broken: %(error)s. No client can connect "
                "there until it is opened again, which is retried; connected clients are still "
                "served",
                {"where": where, "error": error},
            )
        await trio.sleep(self._reopen_pause_s)
        self._reopen_pause_s = min(2 * self._reopen_pause_s, REOPEN_PAUSE_S_MAX)
        self._reopen_listener(error, is_new)

    def _reopen_listener(self, error: Exception, is_new: bool) -> None:
        if self._port < 0:
            return
        if isinstance(error, OSError) and error.errno == errno.EINVAL:
            self._listener.close()
        else:
            # The descriptor may belong to another file by now, so it must not be closed.
            self._listener.detach()
        try:
            self._listener = self._reopen(self._host, self._port)
        except OSError as second:
            logger.log(
                logging.ERROR if is_new else logging.DEBUG,
                "cannot listen on %(host)s:%(port)d, trying again: %(error)s",
                {"host": self._host, "port": self._port, "error": second},
            )
        else:
            self._logged = None
            logger.warning(
                "listening on %(host)s:%(port)d again", {"host": self._host, "port": self._port}
            )
