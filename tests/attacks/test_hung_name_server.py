"""A name server that hung kept every new topic and every first heartbeat for 24 s."""

from __future__ import annotations

import logging

import pytest
import trio

from trocket.disk.memory_disk import MemoryDisk

from ..kit import broker_client, embedded_broker, heartbeat, pull_fields, send_fields, topic_fields
from .name_servers import NameServers

SEND, PULL, COMMIT = 310, 11, 15
CREATE_TOPIC, HEART_BEAT, REGISTER, UNREGISTER = 17, 34, 103, 104
CLIENT_TIMEOUT_S = 3
"""How long the official clients wait for the answer to a heartbeat."""
A_SECOND = 1.01

GOOD, BAD = "192.0.2.1", "192.0.2.2"
HOSTS = f"{GOOD}:9876;{BAD}:9876"


async def test_a_broker_starts_while_a_name_server_hangs(autojump_clock):
    async with trio.open_nursery() as nursery:
        servers = NameServers(nursery)
        await servers.start(GOOD)
        await servers.start(BAD)
        servers.hung.add(BAD)
        began_s = trio.current_time()
        async with embedded_broker(client=servers.client(), namesrv_addr=HOSTS):
            assert trio.current_time() - began_s < A_SECOND
            assert "TBW102" in servers.controllers[GOOD].routes.topics
        nursery.cancel_scope.cancel()


async def test_a_topic_and_a_group_are_answered_before_the_client_gives_up(autojump_clock):
    """The first request after it hung is kept for a second, the others not at all."""
    async with trio.open_nursery() as nursery:
        servers = NameServers(nursery)
        await servers.start(GOOD)
        await servers.start(BAD)
        async with broker_client(client=servers.client(), namesrv_addr=HOSTS) as client:
            servers.hung.add(BAD)
            times_s = []
            for number in range(5):
                began_s = trio.current_time()
                with trio.fail_after(CLIENT_TIMEOUT_S):
                    created = await client.ask(CREATE_TOPIC, topic_fields(f"T{number}", 3))
                    beaten = await client.ask(HEART_BEAT, {}, heartbeat(f"g{number}"))
                times_s.append(trio.current_time() - began_s)
                assert created.code == beaten.code == 0
                assert f"T{number}" in servers.controllers[GOOD].routes.topics
                assert f"%RETRY%g{number}" in servers.controllers[GOOD].routes.topics
            assert times_s[0] < A_SECOND
            assert max(times_s[1:]) == 0
        nursery.cancel_scope.cancel()


async def test_the_only_name_server_hangs_and_clients_are_served(autojump_clock):
    async with trio.open_nursery() as nursery:
        servers = NameServers(nursery)
        await servers.start(BAD)
        servers.hung.add(BAD)
        async with broker_client(client=servers.client(), namesrv_addr=f"{BAD}:9876") as client:
            with trio.fail_after(CLIENT_TIMEOUT_S):
                assert (await client.ask(CREATE_TOPIC, topic_fields("T", 3))).code == 0
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("flush_disk_type", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_a_broker_serves_all_that_needs_no_name_server_while_the_only_one_hangs(
    autojump_clock, flush_disk_type
):
    """Sends, new topics and groups, deliveries, and offsets that a kill does not take back."""
    disk = MemoryDisk()
    async with trio.open_nursery() as nursery:
        servers = NameServers(nursery)
        await servers.start(BAD)
        servers.hung.add(BAD)
        began_s = trio.current_time()
        async with broker_client(
            disk,
            client=servers.client(),
            namesrv_addr=f"{BAD}:9876",
            flush_consumer_offset_interval=1000,
            flush_disk_type=flush_disk_type,
            is_registered=False,
        ) as client:
            assert trio.current_time() == began_s
            with trio.fail_after(CLIENT_TIMEOUT_S):
                beaten = await client.ask(HEART_BEAT, {}, heartbeat("CG"))
                delayed = send_fields(i="DELAY\x011\x02UNIQ_KEY\x01A\x02")
                sent = await client.ask(SEND, delayed, b"late")
            assert beaten.code == sent.code == 0
            pulled = await client.ask(PULL, pull_fields(suspendTimeoutMillis=3000))
            assert (pulled.code, trio.current_time() - began_s < 5) == (0, True)
            committed = {"consumerGroup": "CG", "topic": "T", "queueId": 0, "commitOffset": 1}
            assert (await client.ask(COMMIT, committed)).code == 0
            await trio.sleep(1.5)
            assert trio.current_time() - began_s < 10
            killed = disk.copy()
        nursery.cancel_scope.cancel()
    async with embedded_broker(killed) as broker:
        assert broker.controller.offsets.query_offset("CG", "T", 0) == 1


async def test_a_start_waits_for_the_only_name_server(autojump_clock):
    """A busy machine's name server may take seconds; a topic that it does not know is lost."""
    async with trio.open_nursery() as nursery:
        servers = NameServers(nursery)
        await servers.start(GOOD)
        servers.delays_s[GOOD] = 4
        async with embedded_broker(client=servers.client(), namesrv_addr=f"{GOOD}:9876"):
            assert "TBW102" in servers.controllers[GOOD].routes.topics
        nursery.cancel_scope.cancel()


@pytest.mark.slow
async def test_a_name_server_that_wakes_up_learns_what_it_missed(autojump_clock, caplog):
    """The log has one line when it hangs and one when it answers again, none between."""
    caplog.set_level(logging.INFO)
    async with trio.open_nursery() as nursery:
        servers = NameServers(nursery)
        await servers.start(GOOD)
        await servers.start(BAD)
        async with broker_client(client=servers.client(), namesrv_addr=HOSTS) as client:
            servers.hung.add(BAD)
            assert (await client.ask(CREATE_TOPIC, topic_fields("Missed", 3))).code == 0
            await trio.sleep(600)
            assert "Missed" not in servers.controllers[BAD].routes.topics
            servers.hung.clear()
            await trio.sleep(60)
            assert "Missed" in servers.controllers[BAD].routes.topics
        nursery.cancel_scope.cancel()
    lines = [
        record.levelname
        for record in caplog.records
        if f"name server {BAD}:9876" in record.getMessage()
    ]
    assert lines == ["WARNING", "INFO"]


@pytest.mark.parametrize("hung_before", [True, False], ids=["known to hang", "just hung"])
async def test_a_broker_stops_while_a_name_server_hangs(autojump_clock, hung_before):
    async with trio.open_nursery() as nursery:
        servers = NameServers(nursery)
        await servers.start(GOOD)
        await servers.start(BAD)
        async with broker_client(client=servers.client(), namesrv_addr=HOSTS) as client:
            servers.hung.add(BAD)
            if hung_before:
                assert (await client.ask(CREATE_TOPIC, topic_fields("T", 3))).code == 0
            began_s = trio.current_time()
        assert trio.current_time() - began_s < (0.01 if hung_before else A_SECOND)
        assert (GOOD, UNREGISTER) in {request[:2] for request in servers.requests}
        assert "TBW102" not in servers.controllers[GOOD].routes.topics
        nursery.cancel_scope.cancel()
