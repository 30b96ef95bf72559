"""Name servers in memory, some of which hang, for an embedded broker in virtual time."""

from __future__ import annotations

from typing import Any

import trio
import trio.testing

from trocket.disk.memory_disk import MemoryDisk
from trocket.namesrv.config import NamesrvConfig
from trocket.namesrv.controller import NamesrvController
from trocket.remoting.client import RemotingClient
from trocket.remoting.codec import FrameDecoder

from ..kit import TrioClock


class NameServers:
    """Name servers by host name; all listen on port 9876.

    Args:
      nursery: runs them.

    Attributes:
      hung: hosts whose name server takes connections and requests and answers nothing, as a
        stopped process does.
      delays_s: by host, what a slow name server waits before it reads a request.
      requests: host, code and frame size of each request that came, in their order.
    """

    def __init__(self, nursery: trio.Nursery) -> None:
        self.hung: set[str] = set()
        self.delays_s: dict[str, float] = {}
        self.requests: list[tuple[str, int, int]] = []
        self.controllers: dict[str, NamesrvController] = {}
        self._nursery = nursery

    async def start(self, host: str, **options: Any) -> NamesrvController:
        """Start a name server, or start one anew: it knows nothing then."""
        config = NamesrvConfig(
            kv_config_path=f"/{host}/kv.json", config_store_path=f"/{host}/c", **options
        )
        controller = NamesrvController(config, clock=TrioClock(), disk=MemoryDisk(), listeners=[])
        await self._nursery.start(controller.run)
        self.controllers[host] = controller
        return controller

    def client(self) -> RemotingClient:
        """A client that reaches these name servers."""
        return RemotingClient(open_stream=self._connect)

    async def _connect(self, host: str, port: int) -> trio.abc.Stream:
        assert port == 9876
        client_end, outer = trio.testing.memory_stream_pair()
        inner, server_end = trio.testing.memory_stream_pair()
        self._nursery.start_soon(self.controllers[host].server.serve_stream, server_end)
        self._nursery.start_soon(self._forward, host, outer, inner)
        self._nursery.start_soon(self._copy, inner, outer)
        return client_end

    async def _forward(self, host: str, source: trio.abc.Stream, target: trio.abc.Stream) -> None:
        decoder = FrameDecoder()
        while True:
            data = await _receive(source)
            if not data:
                await target.aclose()
                return
            size = decoder.partial_size + len(data)
            commands = decoder.receive_data(data)
            self.requests += [(host, command.code, size // len(commands)) for command in commands]
            if host not in self.hung:
                await trio.sleep(self.delays_s.get(host, 0))
                try:
                    await target.send_all(data)
                except (trio.BrokenResourceError, trio.ClosedResourceError):
                    await source.aclose()
                    return

    async def _copy(self, source: trio.abc.Stream, target: trio.abc.Stream) -> None:
        while data := await _receive(source):
            try:
                await target.send_all(data)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                break
        await target.aclose()


async def _receive(stream: trio.abc.Stream) -> bytes:
    try:
        return bytes(await stream.receive_some(1024 * 1024))
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        return b""
