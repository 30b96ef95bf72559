"""A running name server: connections, virtual time, files, and once real TCP."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import memory_stream_pair, wait_all_tasks_blocked

from trocket.common.clock import SystemClock
from trocket.disk.errors import CorruptRecordError
from trocket.disk.json_config import unsealed
from trocket.disk.memory_disk import MemoryDisk
from trocket.disk.os_disk import OsDisk
from trocket.namesrv.config import NamesrvConfig
from trocket.namesrv.controller import NamesrvController
from trocket.remoting.client import RemotingClient
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.server import RemotingServer, open_listener

from ..kit.client import Client
from .test_processors import TOPICS, register_body, register_fields


class TrioClock(SystemClock):
    """The clock of the trio run, which is virtual under `autojump_clock`."""

    def monotonic_s(self):
        return trio.current_time()


class NamesrvClient:
    """One connection to a name server, over memory."""

    def __init__(self, stream):
        self.stream = stream
        self._client = Client(stream)

    async def ask(self, code, body=b"", **fields):
        """The answer; None when the connection is closed instead."""
        try:
            return await self._client.ask(code, fields, body)
        except (trio.BrokenResourceError, trio.EndOfChannel):
            return None

    async def register(self, name="a", broker_id=0, **more):
        body = register_body(*TOPICS).to_body()
        answer = await self.ask(103, body, **register_fields(name, broker_id, **more))
        assert answer.code == 0

    async def route_code(self):
        return (await self.ask(105, topic="T")).code


@asynccontextmanager
async def running(config=None, disk=None):
    config = config or NamesrvConfig(kv_config_path="/n/kv.json", config_store_path="/n/n.conf")
    controller = NamesrvController(
        config, clock=TrioClock(), disk=disk or MemoryDisk(), listeners=[]
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(controller.run)

        async def connect():
            ours, theirs = memory_stream_pair()
            nursery.start_soon(controller.server.serve_stream, theirs)
            return NamesrvClient(ours)

        yield controller, connect
        nursery.cancel_scope.cancel()


async def test_a_silent_broker_is_gone_after_120_seconds_and_at_most_5_more(autojump_clock):
    async with running() as (_, connect):
        broker, client = await connect(), await connect()
        await broker.register()
        # Registered in the last moment before its connection would be idle for 120 s.
        await trio.sleep(100)
        body = register_body(*TOPICS).to_body()
        await broker.ask(322, body, **register_fields())
        assert await client.route_code() == 0
        for _ in range(12):
            # Other traffic on its connection is no heartbeat.
            await trio.sleep(10)
            await broker.ask(206)
            await client.ask(206)
        assert await client.route_code() == 0
        await trio.sleep(5.1)
        assert await client.route_code() == 17
        assert await broker.ask(206) is None


async def test_a_heartbeat_every_30_seconds_keeps_a_broker(autojump_clock):
    async with running() as (_, connect):
        broker, client = await connect(), await connect()
        await broker.register()
        for _ in range(12):
            await trio.sleep(30)
            await broker.ask(904, **register_fields())
            assert await client.route_code() == 0


async def test_a_broker_goes_at_once_when_its_connection_closes():
    async with running() as (_, connect):
        broker, client = await connect(), await connect()
        await broker.register()
        assert await client.route_code() == 0
        await broker.stream.aclose()
        await wait_all_tasks_blocked()
        assert await client.route_code() == 17


async def test_a_scan_interval_set_while_running_counts_from_the_next_scan(autojump_clock):
    async with running() as (_, connect):
        broker, client = await connect(), await connect()
        await broker.register(heartbeatTimeoutMillis="1000")
        assert (await client.ask(318, b"scanNotActiveBrokerInterval=60000")).code == 0
        await trio.sleep(5.5)
        assert await client.route_code() == 17
        broker = await connect()  # the other connection was closed
        await broker.register(heartbeatTimeoutMillis="1000")
        await trio.sleep(50)
        assert await client.route_code() == 0
        await trio.sleep(10)
        assert await client.route_code() == 17


async def test_kv_items_and_settings_survive_a_restart(autojump_clock):
    disk = MemoryDisk()
    disk.make_folder("/n")
    file = disk.open("/n/n.conf", create=True)
    file.pwrite(b"# mine\nlistenPort=1\n", 0)
    file.close()
    async with running(disk=disk) as (_, connect):
        peer = await connect()
        assert (await peer.ask(100, namespace="NS", key="k", value="v")).code == 0
        assert (await peer.ask(318, b"enableTopicList=false")).code == 0
        assert (await peer.ask(318, b"orderMessageEnable=true")).code == 0
    async with running(disk=disk) as (_, connect):
        peer = await connect()
        assert (await peer.ask(101, namespace="NS", key="k")).ext_fields == {"value": "v"}
    file = disk.open("/n/n.conf")
    assert file.pread(file.size(), 0) == (
        b"# mine\nlistenPort=1\nenableTopicList=false\norderMessageEnable=true\n"
    )


async def test_a_damaged_kv_file_stops_the_start_with_its_name():
    disk = MemoryDisk()
    disk.make_folder("/n")
    file = disk.open("/n/kv.json", create=True)
    file.pwrite(b'{"configTable"', 0)
    file.close()
    config = NamesrvConfig(kv_config_path="/n/kv.json")
    controller = NamesrvController(config, clock=TrioClock(), disk=disk, listeners=[])
    with pytest.raises(CorruptRecordError, match=r"/n/kv\.json"):
        await controller.run()


async def test_a_taken_port_stops_the_start_with_its_address():
    with open_listener("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        config = NamesrvConfig(listen_port=port, bind_address="127.0.0.1")
        controller = NamesrvController(config, clock=TrioClock(), disk=MemoryDisk())
        with pytest.raises(OSError, match=f"127.0.0.1:{port}"):
            await controller.run()


async def test_over_tcp_brokers_are_notified_of_another_smallest_id(tmp_path):
    received = []
    got_it = trio.Event()

    def on_notification(request, _channel):
        received.append(request.ext_fields)
        got_it.set()

    config = NamesrvConfig(
        listen_port=0,
        bind_address="127.0.0.1",
        kv_config_path=str(tmp_path / "deep" / "kv.json"),
        config_store_path=str(tmp_path / "n.conf"),
        notify_min_broker_id_changed=True,
    )
    controller = NamesrvController(config, clock=SystemClock(), disk=OsDisk())
    slave = RemotingServer({905: on_notification})
    listener = open_listener("127.0.0.1", 0)
    slave_addr = f"127.0.0.1:{listener.getsockname()[1]}"
    client = RemotingClient()
    body = register_body(*TOPICS).to_body()
    async with trio.open_nursery() as nursery:
        await nursery.start(controller.run)
        await nursery.start(client.run)
        await nursery.start(slave.serve, [listener])
        (address,) = controller.listen_addresses
        with trio.fail_after(10):
            for broker_id, addr in ((1, slave_addr), (0, "127.0.0.1:1")):
                fields = register_fields("a", broker_id, brokerAddr=addr, enableActingMaster="true")
                request = RemotingCommand(103, ext_fields=fields, body=body)
                assert (await client.call(address, request, 5)).code == 0
            await got_it.wait()
            put = {"namespace": "NS", "key": "k", "value": "v"}
            assert (await client.call(address, RemotingCommand(100, ext_fields=put), 5)).code == 0
        nursery.cancel_scope.cancel()
    assert received == [
        {"minBrokerId": "0", "minBrokerAddr": "127.0.0.1:1", "haBrokerAddr": "a-0:10912"}
    ]
    saved = (tmp_path / "deep" / "kv.json").read_bytes()
    assert unsealed(saved) == (b'{"configTable":{"NS":{"k":"v"}}}', True)
    host, _, port = address.partition(":")
    with pytest.raises(OSError, match="all attempts to connect"):
        await trio.open_tcp_stream(host, int(port))
