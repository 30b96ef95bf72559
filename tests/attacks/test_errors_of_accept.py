"""An error of accept() that accept(2) says to treat like EAGAIN ended the broker.

Any firewall rule or network trouble at the moment of a connect was enough (EPERM, EPROTO, ...).
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from pathlib import Path

import pytest
import trio

from trocket.remoting.server import RemotingServer, open_listener
from trocket.store.config import BrokerRole
from trocket.store.ha.master import HaMaster
from trocket.store.message_store import MessageStore

from ..kit.client import Client
from ..store.ha.support import fill
from ..store.support import open_store

ECHO = 999

OF_CONNECTIONS = (
    "ECONNABORTED", "EPROTO", "ENETDOWN", "EPERM", "ENOPROTOOPT", "EHOSTDOWN", "ENONET",
    "EHOSTUNREACH", "EOPNOTSUPP", "ENETUNREACH",
)  # fmt: skip
OF_RESOURCES = ("EMFILE", "ENFILE", "ENOBUFS", "ENOMEM")
OF_LISTENER = ("EBADF", "EINVAL", "ENOTSOCK")


class FailingListener(socket.socket):
    """A listening socket whose next accepts fail."""

    failures: list[int]

    def accept(self) -> tuple[socket.socket, object]:
        if self.failures:
            number = self.failures.pop(0)
            if number == errno.EBADF:
                os.close(self.fileno())
            elif number == errno.ENOTSOCK:
                with Path(os.devnull).open("rb") as other:
                    os.dup2(other.fileno(), self.fileno())
            raise OSError(number, os.strerror(number))
        return super().accept()


def failing_listener(*names: str) -> FailingListener:
    listener = FailingListener(fileno=open_listener("127.0.0.1", 0).detach())
    listener.setblocking(False)
    listener.failures = [getattr(errno, name) for name in names if hasattr(errno, name)]
    return listener


async def asked(address: tuple[str, int]) -> int:
    """The code of a new client's answer; it connects again while the listener is opened anew."""
    while True:
        try:
            stream = await trio.open_tcp_stream(*address)
        except OSError:
            await trio.lowlevel.checkpoint()
            continue
        async with stream:
            try:
                return (await Client(stream).ask(ECHO, {})).code
            except (trio.BrokenResourceError, trio.EndOfChannel):
                continue


async def is_served(listener: FailingListener, *, clients: int = 1) -> None:
    address = listener.getsockname()
    server = RemotingServer({ECHO: lambda request, _: request.answer(0)})
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            await nursery.start(server.serve, [listener])
            for _ in range(clients):
                assert await asked(address) == 0
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize("name", OF_CONNECTIONS)
async def test_an_error_of_one_connection_costs_nothing(name: str) -> None:
    await is_served(failing_listener(name))


async def test_all_errors_of_connections_one_after_the_other() -> None:
    await is_served(failing_listener(*OF_CONNECTIONS), clients=3)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*OF_RESOURCES, "EXFULL"])
async def test_without_descriptors_clients_wait(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """EXFULL: an errno that accept(2) does not name."""
    await is_served(failing_listener(name))
    assert "New clients wait" in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize("name", OF_LISTENER)
async def test_a_broken_listener_is_opened_anew(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    listener = failing_listener(name)
    port = listener.getsockname()[1]
    await is_served(listener)
    assert f"the listening socket of 127.0.0.1:{port} is broken" in caplog.text
    assert f"listening on 127.0.0.1:{port} again" in caplog.text


@pytest.mark.slow
async def test_a_master_goes_on_taking_slaves() -> None:
    store: MessageStore = open_store(broker_role=BrokerRole.ASYNC_MASTER)
    fill(store, 3)
    listener = failing_listener(*OF_CONNECTIONS, "EMFILE", "EINVAL")
    address = listener.getsockname()
    master = HaMaster(store)
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            await nursery.start(master.serve, [listener])
            while not await is_sent_the_log(address):
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
    store.close()


async def is_sent_the_log(address: tuple[str, int]) -> bool:
    """Whether a master sends a new slave what it has."""
    try:
        async with await trio.open_tcp_stream(*address) as stream:
            await stream.send_all(struct.pack(">q", 0))
            return bool(await stream.receive_some())
    except (OSError, trio.BrokenResourceError):
        return False
