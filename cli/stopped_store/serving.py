"""A stopped store served to clients of this process: no port, one thread.

A client connects by its option `dial`, to the addresses that the broker and a name server would
have. The servers' code runs under trio in a thread; a connection is a pair of sockets.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import anyio.abc
import trio
from anyio.from_thread import BlockingPortal, start_blocking_portal

from ...broker.assembly import request_table
from ...broker.cluster.registration_request import BrokerIdentity, part_size, register_requests
from ...broker.controller import BrokerController
from ...common.clock import SystemClock
from ...common.steps import at_once
from ...disk.memory_disk import MemoryDisk
from ...namesrv.config import NamesrvConfig
from ...namesrv.controller import NamesrvController
from ...namesrv.processors.broker import registration_in_steps
from ...remoting.bodies import KVTable
from ...remoting.channel import Processor
from ...remoting.cluster_url import URL_SCHEME
from ...remoting.headers import RegisterBrokerRequestHeader
from ...remoting.headers import decode as decode_header
from ...remoting.hosts import join_address
from ...remoting.loop_monitor import LoopMonitor
from ...remoting.request_codes import RequestCode
from ...remoting.server import RemotingServer
from ...store.offline.findings import Finding
from .files import Conf, OpenedFiles, opened_files
from .memory_index import complete
from .paired_stream import PairedStream
from .requests import OF_BROKER, OF_NAME_SERVER, checked, edited, plain_pull, readable

NAME_SERVER: Final = "127.0.0.1:9876"
"""The address of the name server, which only `dial` knows."""
SETTINGS_OF_FILES: Final = frozenset(
    {
        b"brokerClusterName",
        b"brokerName",
        b"mappedFileSizeCommitLog",
        b"mappedFileSizeConsumeQueue",
        b"storePathCommitLog",
        b"storePathRootDir",
    }
)
"""Settings that show in the files; without its broker.conf nothing more is known."""
INDEX_IS_BEHIND: Final = (
    "the index is being completed in memory, and until then messages would be missed by their "
    "keys: ask again in a while"
)
VERSIONS: Final = ("brokerVersion", "brokerVersionDesc")
"""What runtime information says of the program that answers, and not of the broker."""


class _Unwatched(LoopMonitor):
    """A monitor that notes nothing: the clients of this loop are one console."""

    def served(self, *args: Any, **options: Any) -> None:
        """See LoopMonitor."""


class StoppedStore:
    """A store that is open, and answers.

    Attributes:
      root: its folder.
      url: for a client with the option `dial`.
      findings: see OpenedFiles.
      is_clean: see OpenedFiles.
    """

    def __init__(self, files: OpenedFiles, portal: BlockingPortal) -> None:
        self.root: str = files.layout.root
        self.url: str = URL_SCHEME + NAME_SERVER
        self.findings: tuple[Finding, ...] = files.findings
        self.is_clean: bool = files.is_clean
        self._portal = portal
        portal.start_task_soon(complete, files.controller.store.index)
        self._lock = Path(self.root) / "lock"
        self._lock_at_start = self._lock_identity()
        files.controller.turn.monitor = _Unwatched()
        self._servers = {
            NAME_SERVER: self._name_server(files.controller),
            files.controller.broker_addr: self._broker(files),
        }

    async def dial(self, host: str, port: int) -> anyio.abc.ByteStream:
        """Connect; for the option `dial` of a client.

        Raises: ConnectionRefusedError: the store's broker did not have this address.
        """
        server = self._servers.get(join_address(host, port))
        if server is None:
            raise ConnectionRefusedError(
                errno.ECONNREFUSED, f"{os.strerror(errno.ECONNREFUSED)}: not the store's broker"
            )
        near, far = socket.socketpair()
        self._portal.start_task_soon(_serve, server, far)
        return PairedStream(near)

    def problem(self) -> str:
        """Why what is read may be wrong, in words; "": it is right.

        The lock holds off every broker but one: that of Apache, where there was no lock file, which
        is not made here. Its broker makes one.
        """
        if self._lock_identity() == self._lock_at_start:
            return ""
        return (
            f"a broker has opened {self.root} since this console was started, so what is read may "
            "be wrong: ask that broker, or start the console again when it is stopped"
        )

    def _lock_identity(self) -> tuple[int, int] | None:
        try:
            found = self._lock.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _broker(self, files: OpenedFiles) -> RemotingServer:
        controller, index = files.controller, files.controller.store.index

        def index_problem() -> str:
            return INDEX_IS_BEHIND if index.is_behind else ""

        table = request_table(controller.parts)
        controller.turn.on_end = table.turn.end_turn
        processors: dict[int, Processor] = dict(table.processors)
        for code in (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE):
            processors[code] = plain_pull(processors[code])
        by_key = processors[RequestCode.QUERY_MESSAGE]
        processors[RequestCode.QUERY_MESSAGE] = checked(by_key, index_problem)
        runtime_info = processors[RequestCode.GET_BROKER_RUNTIME_INFO]
        processors[RequestCode.GET_BROKER_RUNTIME_INFO] = edited(runtime_info, without_versions)
        if not files.has_conf:
            config = processors[RequestCode.GET_BROKER_CONFIG]
            processors[RequestCode.GET_BROKER_CONFIG] = edited(config, known_settings)
        served = readable(processors, OF_BROKER, self.problem)
        return RemotingServer(served, turn=controller.turn)

    def _name_server(self, controller: BrokerController) -> RemotingServer:
        namesrv = NamesrvController(
            NamesrvConfig(),
            clock=SystemClock(),
            disk=MemoryDisk(),
            turn=controller.turn,
            listeners=[],
        )
        _register(controller, namesrv)
        served = readable(namesrv.server.processors, OF_NAME_SERVER, self.problem)
        return RemotingServer(served, turn=controller.turn)


@contextmanager
def opened_store(root: str, conf: Conf | None = None) -> Iterator[StoppedStore]:
    """Open a stopped store, and serve it until the block ends.

    Args:
      root: storePathRootDir.

    Raises: as `opened_files`.
    """
    with opened_files(root, conf) as files, start_blocking_portal("trio") as portal:
        try:
            yield StoppedStore(files, portal)
        finally:
            portal.call(portal.stop, True)


async def _serve(server: RemotingServer, sock: socket.socket) -> None:
    """Serve one connection until its client closes it."""
    sock.setblocking(False)
    stream = trio.SocketStream(trio.socket.from_stdlib_socket(sock))
    await server.serve_stream(stream)


def _register(controller: BrokerController, namesrv: NamesrvController) -> None:
    """Register the broker's topics as it would do itself."""
    tables, address = controller.parts.tables, controller.parts.foundation.address
    identity = BrokerIdentity(
        controller.config,
        controller.broker_addr,
        address.ha_server_addr(),
        (),
        tables.mappings.topic_queue_mapping_table,
    )
    topics = list(tables.topics.topic_config_table.values())
    size = part_size(controller.config, len(topics))
    for request in register_requests(identity, topics, tables.topics.data_version, size=size):
        header = decode_header(RegisterBrokerRequestHeader, request.ext_fields)
        registration = at_once(registration_in_steps(request, header))
        at_once(namesrv.routes.register_broker_in_steps(registration, channel=controller, now_ms=0))


def without_versions(body: bytes) -> bytes:
    """Runtime information without the version of the program that answers."""
    table = KVTable.from_body(body).table
    return KVTable(table={key: table[key] for key in table if key not in VERSIONS}).to_body()


def known_settings(body: bytes) -> bytes:
    """The lines of a broker's settings that its files show."""
    lines = body.splitlines(keepends=True)
    return b"".join(each for each in lines if each.partition(b"=")[0] in SETTINGS_OF_FILES)
