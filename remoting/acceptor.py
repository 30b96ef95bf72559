"""Acceptor: takes connections from one listening socket, whatever accept(2) answers.

Three kinds of errors, see `kind_of`:

- An error of one connection, which accept(2) hands on from the network, costs that connection.
- Out of descriptors or memory: connections wait in the kernel's backlog for a moment.
- A broken listener (closed, or not listening any more): the same address is listened on anew, as
  often as it takes. The connections that are open are served meanwhile.

Java counterpart: Netty's AbstractNioMessageChannel, which goes on after every IOException but that
of a closed channel.
"""

from __future__ import annotations

import enum
import errno
import logging
import socket
from collections.abc import Callable, Mapping
from typing import Final

import trio

from ..common.supervision import FailureLog

logger = logging.getLogger(__name__)

BACKLOG = 1024
"""Connections that the kernel holds for us. RocketMQ: serverSocketBacklog 1024."""

PAUSE_S: Final = 0.1
"""Before the next attempt when descriptors or memory have run out."""

REOPEN_PAUSE_S_MAX: Final = 5.0
"""Between two attempts to listen anew the pause doubles from `PAUSE_S` to this."""


class AcceptError(enum.Enum):
    """What an error of accept(2) is about."""

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
    """What an error of accept(2), or of waiting for it, is about.

    An error that accept(2) does not name counts as want of resources: trying again after a pause
    is right for a lasting error and for a passing one. A ValueError is a closed socket's.
    """
    if isinstance(error, ValueError):
        return AcceptError.LISTENER
    number = error.errno if isinstance(error, OSError) else None
    return _KIND_OF.get(number or 0, AcceptError.RESOURCES)


def open_listener(host: str, port: int) -> socket.socket:
    """A listening socket.

    Args:
      host: an address of this machine, IPv4 or IPv6; "" or "0.0.0.0" for all of IPv4.
      port: 0 to 65,535; 0 takes a free one.

    Raises: OSError: the address is taken or not ours; the text names it.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(BACKLOG)
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        where = f"{host or '0.0.0.0'}:{port}"
        hint = ""
        if error.errno == errno.EADDRINUSE:
            hint = ": another process listens there; choose another port, or stop that process"
        raise OSError(error.errno, f"cannot listen on {where} ({error.strerror}){hint}") from error
    return sock


class Acceptor:
    """Accepts on one address until cancelled, then closes its socket.

    Args:
      listener: listens, non-blocking; from `open_listener`.
      take: is given each connected socket, which it owns then, and the peer's address.
      reopen: opens a listener on a host and port anew.
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
        except OSError:  # closed before it was served: there is no address to listen on anew
            self._host, self._port = "", -1

    async def run(self) -> None:
        """Accept until cancelled."""
        try:
            while True:
                try:
                    await trio.lowlevel.wait_readable(self._listener)
                    sock, address = self._listener.accept()
                except (BlockingIOError, InterruptedError):
                    continue
                except Exception as error:  # noqa: BLE001 - of a listener, too, others are served
                    await self._recover(error)
                    continue
                self._reopen_pause_s, self._logged = PAUSE_S, None
                try:
                    self._take(sock, address)
                except Exception as error:  # noqa: BLE001 - our bug: others are served on
                    sock.close()
                    meaning = "That connection is closed; others are accepted"
                    self._failures.note("taking a connection", meaning, error)
        finally:
            self._listener.close()

    async def _recover(self, error: Exception) -> None:
        """Wait as long as the error asks for, and listen anew where that is needed."""
        kind, where = kind_of(error), f"{self._host}:{self._port}"
        is_new = self._logged is not kind
        if kind is AcceptError.CONNECTION:
            logger.debug("a connection to %s was lost while it was accepted: %s", where, error)
            await trio.lowlevel.checkpoint()
            return
        self._logged = kind
        if kind is AcceptError.RESOURCES:
            if is_new:
                logger.error(
                    "cannot accept a connection on %s: %s. New clients wait, those that are "
                    "connected are served on. Where files are too many, raise the limit "
                    "(ulimit -n) or end clients",
                    where, error,
                )  # fmt: skip
            await trio.sleep(PAUSE_S)
            return
        if is_new:
            logger.error(
                "the listening socket of %s is broken: %s. No client can connect there until it "
                "is opened anew, which is tried now and then; those that are connected are "
                "served on",
                where, error,
            )  # fmt: skip
        await trio.sleep(self._reopen_pause_s)
        self._reopen_pause_s = min(2 * self._reopen_pause_s, REOPEN_PAUSE_S_MAX)
        self._open_anew(error, is_new)

    def _open_anew(self, error: Exception, is_new: bool) -> None:
        if self._port < 0:
            return
        if isinstance(error, OSError) and error.errno == errno.EINVAL:
            self._listener.close()
        else:
            # The number may be another file's by now: it must not be closed.
            self._listener.detach()
        try:
            self._listener = self._reopen(self._host, self._port)
        except OSError as second:
            logger.log(
                logging.ERROR if is_new else logging.DEBUG,
                "%s:%d is not listened on: %s", self._host, self._port, second,
            )  # fmt: skip
        else:
            self._logged = None
            logger.warning("%s:%d is listened on again", self._host, self._port)
