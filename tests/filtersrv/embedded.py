"""A filter server inside a test, beside an embedded broker: memory streams, virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import trio
import trio.testing

from trocket.filtersrv.config import FiltersrvConfig
from trocket.filtersrv.controller import FiltersrvController
from trocket.filtersrv.filters import Filter

from ..kit import Broker, Client


class FilterServer:
    """A running filter server, how to reach it, and its connections to the broker."""

    def __init__(self, controller: FiltersrvController, nursery: trio.Nursery) -> None:
        self.controller = controller
        self.to_broker: list[trio.abc.Stream] = []
        self._nursery = nursery

    async def connect(self) -> Client:
        near, far = trio.testing.memory_stream_pair()
        self._nursery.start_soon(self.controller.server.serve_stream, near)
        await trio.testing.wait_all_tasks_blocked()
        return Client(far)


@asynccontextmanager
async def filter_server(
    broker: Broker, configured: Mapping[str, Filter] | None = None, **options: Any
) -> AsyncIterator[FilterServer]:
    """Run a filter server until the block ends.

    Args:
      broker: that it pulls from.
      configured: the operator's filters.
      options: fields of FiltersrvConfig.
    """
    config = FiltersrvConfig(
        connect_which_broker="127.0.0.1:10911",
        filter_server_ip="127.0.0.1",
        listen_port=40_747,
        **options,
    )
    async with trio.open_nursery() as nursery:

        async def open_stream(host: str, port: int) -> trio.abc.Stream:
            assert f"{host}:{port}" == config.connect_which_broker
            assert broker.controller.server is not None
            near, far = trio.testing.memory_stream_pair()
            nursery.start_soon(broker.controller.server.serve_stream, near)
            server.to_broker.append(far)
            return far

        controller = FiltersrvController(
            config, configured or {}, open_stream=open_stream, listeners=[]
        )
        server = FilterServer(controller, nursery)
        await nursery.start(controller.run)
        yield server
        nursery.cancel_scope.cancel()
