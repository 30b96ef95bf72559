"""A whole broker inside a test: memory disk, memory streams, virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import trio
import trio.testing

from trocket.broker.assembly import MakePart
from trocket.broker.controller import BrokerController
from trocket.broker.filter_servers.filter_server_keeper import open_filter_server
from trocket.broker.part import USUAL_TERMS, StoreTerms
from trocket.broker.settings.config import BrokerConfig
from trocket.common.child import OpenProcess
from trocket.common.clock import Clock
from trocket.disk.memory_disk import MemoryDisk
from trocket.native import Extension, extension
from trocket.remoting.client import RemotingClient
from trocket.store.config import MessageStoreConfig

from .client import Client
from .clock import START_MS, TrioClock


class Broker:
    """A running broker and how to reach it."""

    def __init__(self, controller: BrokerController, nursery: trio.Nursery) -> None:
        self.controller = controller
        self._nursery = nursery

    async def connect(self, *, lockstep: bool = False, address: str = "127.0.0.1:0") -> Client:
        make = trio.testing.lockstep_stream_pair if lockstep else trio.testing.memory_stream_pair
        near, far = make()
        assert self.controller.server is not None
        self._nursery.start_soon(self.controller.server.serve_stream, near, address)
        await trio.testing.wait_all_tasks_blocked()
        return Client(far)


def put_record(
    broker: Broker, topic: str, properties: str, body: bytes, *, queue_id: int = 0
) -> int:
    """Store a record that no client may send, as an older store may hold it.

    Returns: its queue offset.
    """
    store = broker.controller.store
    store.begin_burst()
    refusal, _, queue_offset = store.put_message(
        topic, queue_id, body, properties.encode(), born_timestamp_ms=START_MS,
        born_host=bytes([192, 0, 2, 9, 0, 0, 0x9C, 0x40]), store_host=bytes(8), tags_code=0,
    )  # fmt: skip
    assert refusal is None, refusal
    store.on_visible(store.commit())
    return queue_offset


@asynccontextmanager
async def embedded_broker(
    disk: MemoryDisk | None = None,
    *,
    clock: Clock | None = None,
    client: RemotingClient | None = None,
    open_process: OpenProcess = open_filter_server,
    random: Random | None = None,
    native: Extension | None = extension,
    config_path: str = "",
    is_registered: bool = True,
    more_parts: Sequence[MakePart] = (),
    terms: StoreTerms = USUAL_TERMS,
    **options: Any,
) -> AsyncIterator[Broker]:
    """Run a broker until the block ends.

    Args:
      disk: with what an earlier one left; None: empty.
      client: calls the name servers.
      open_process: starts a filter server.
      native: the C extension; None: pure Python.
      config_path: the file of the broker's configuration; "": none.
      is_registered: begin the block when it is registered; False: when it serves.
      more_parts: create parts that are not the package's.
      terms: of its store, in controller mode.
      options: fields of BrokerConfig and MessageStoreConfig.
    """
    store_options: dict[str, Any] = {
        "mapped_file_size_commit_log": 256 * 1024,
        "max_hash_slot_num": 100,
        "max_index_num": 400,
        "store_path_root_dir": "/store",
    }
    broker_options: dict[str, Any] = {
        "broker_name": "b", "broker_ip1": "127.0.0.1", "broker_ip2": "127.0.0.1",
    }  # fmt: skip
    for name, value in options.items():
        known = name in BrokerConfig.__dataclass_fields__
        (broker_options if known else store_options)[name] = value
    controller = BrokerController(
        BrokerConfig(**broker_options),
        MessageStoreConfig(**store_options),
        clock=clock or TrioClock(),
        disk=disk if disk is not None else MemoryDisk(),
        listeners=[],
        client=client,
        open_process=open_process,
        random=random,
        native=native,
        config_path=config_path,
        more_parts=more_parts,
        terms=terms,
    )
    async with trio.open_nursery() as nursery:
        if is_registered:
            await nursery.start(controller.run)
        else:
            nursery.start_soon(controller.run)
            await trio.testing.wait_all_tasks_blocked()
        async with trio.open_nursery() as connections:
            yield Broker(controller, connections)
            connections.cancel_scope.cancel()
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def broker_and_client(
    disk: MemoryDisk | None = None, **options: Any
) -> AsyncIterator[tuple[Broker, Client]]:
    """Run a broker and connect to it; see `embedded_broker`."""
    async with embedded_broker(disk, **options) as broker:
        yield broker, await broker.connect()


@asynccontextmanager
async def broker_client(disk: MemoryDisk | None = None, **options: Any) -> AsyncIterator[Client]:
    """A client of a broker that runs until the block ends; see `embedded_broker`."""
    async with broker_and_client(disk, **options) as (_, client):
        yield client
