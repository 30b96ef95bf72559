"""Metrics and health of a name server: brokers, topics, requests, and what was removed."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing
from prometheus_client.parser import text_string_to_metric_families

from trocket.common.config import ConfigError, parse_properties
from trocket.common.metrics_keys import MetricsExporterType
from trocket.disk.memory_disk import MemoryDisk
from trocket.namesrv.config import NamesrvConfig, read_namesrv_config
from trocket.namesrv.controller import NamesrvController
from trocket.remoting.acceptor import open_listener

from .builders import CLUSTER, address
from .test_controller import NamesrvClient, TrioClock
from .test_processors import TOPICS


async def get(port: int, path: str) -> tuple[int, bytes]:
    """Status and body of an answer."""
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    async with stream:
        await stream.send_all(
            f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode()
        )
        data = b"".join([part async for part in stream])
    head, _, body = data.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


async def samples(port: int) -> dict[tuple[str, ...], float]:
    """Values by the metric's name and the values of its labels but the common ones."""
    status, body = await get(port, "/metrics")
    assert status == 200
    found = {}
    for family in text_string_to_metric_families(body.decode()):
        for sample in family.samples:
            labels = [
                value for name, value in sample.labels.items() if not name.startswith("node_")
            ]
            found[sample.name, *labels] = sample.value
    return found


@asynccontextmanager
async def name_server(**options: Any) -> AsyncIterator[tuple[NamesrvController, int]]:
    """A running name server, and the port of its metrics."""
    config = NamesrvConfig(metrics_exporter_type=MetricsExporterType.PROM, **options)
    with open_listener("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        made = NamesrvController(
            config, clock=TrioClock(), disk=MemoryDisk(), listeners=[], metrics_listener=listener
        )
        async with trio.open_nursery() as nursery:
            await nursery.start(made.run)
            yield made, port
            nursery.cancel_scope.cancel()


@asynccontextmanager
async def connected(made: NamesrvController) -> AsyncIterator[NamesrvClient]:
    """A connection of a broker, which ends with the block."""
    near, far = trio.testing.memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(made.server.serve_stream, near)
        async with far:
            yield NamesrvClient(far)


async def test_a_name_server_shows_its_brokers_topics_and_requests() -> None:
    async with name_server() as (made, port):
        before = await samples(port)
        assert before["trocket_namesrv_topics",] == 0
        assert before["trocket_namesrv_ready",] == 1
        assert before["trocket_connections",] == 0
        async with connected(made) as peer:
            await peer.register("a")
            await peer.register("a", broker_id=1)
            await peer.route_code()
            after = await samples(port)
        assert after["trocket_namesrv_clusters",] == 1
        assert after["trocket_namesrv_brokers", CLUSTER, "master"] == 1
        assert after["trocket_namesrv_brokers", CLUSTER, "slave"] == 1
        assert after["trocket_namesrv_topics",] == len(TOPICS)
        assert after["trocket_namesrv_requests_total", "register_broker"] == 2
        assert after["trocket_namesrv_requests_total", "get_routeinfo_by_topic"] == 1
        assert 0 <= after["trocket_namesrv_broker_silence_seconds", CLUSTER, address("a")] < 60
        assert after["trocket_connections",] == 1


async def test_brokers_that_went_are_counted_by_the_reason() -> None:
    async with name_server() as (made, port):
        async with connected(made) as peer:
            await peer.register("a")
            made.routes.expire(now_ms=10**12)
            await peer.register("b")
        await trio.testing.wait_all_tasks_blocked()
        after = await samples(port)
        assert after["trocket_namesrv_brokers_removed_total", "silent"] == 1
        assert after["trocket_namesrv_brokers_removed_total", "connection_closed"] == 1
        assert after["trocket_namesrv_brokers_removed_total", "unregistered"] == 0
        assert after["trocket_namesrv_clusters",] == 0


async def test_a_name_server_that_waits_for_brokers_is_alive_and_not_ready() -> None:
    async with name_server(need_wait_for_service=True, wait_seconds_for_service=45) as (_, port):
        assert (await get(port, "/health/live"))[0] == 200
        status, body = await get(port, "/health/ready")
        assert status == 503
        assert "needWaitForService" in json.loads(body)["missing"][0]
        assert (await samples(port))["trocket_namesrv_ready",] == 0
    async with name_server() as (_, port):
        assert await get(port, "/health/ready") == (200, b'{"status": "ready", "missing": []}\n')
        assert (await get(port, "/other"))[0] == 404


async def test_without_the_key_no_port_is_opened() -> None:
    made = NamesrvController(
        NamesrvConfig(metrics_prom_exporter_port=1),
        clock=TrioClock(),
        disk=MemoryDisk(),
        listeners=[],
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(made.run)
        nursery.cancel_scope.cancel()


async def test_a_taken_port_for_metrics_stops_the_start_with_its_key() -> None:
    with open_listener("127.0.0.1", 0) as taken:
        config = NamesrvConfig(
            bind_address="127.0.0.1",
            listen_port=0,
            metrics_exporter_type=MetricsExporterType.PROM,
            metrics_prom_exporter_port=taken.getsockname()[1],
        )
        made = NamesrvController(config, clock=TrioClock(), disk=MemoryDisk())
        with pytest.raises(OSError, match="metricsPromExporterPort"):
            await made.run()


def read(text: str) -> tuple[NamesrvConfig, list[str]]:
    return read_namesrv_config(parse_properties(text), NamesrvConfig())


def test_the_keys_of_metrics_are_read_and_a_way_that_is_not_there_is_a_warning() -> None:
    config, warnings = read("metricsExporterType=PROM\nmetricsLabel=zone:a")
    assert warnings == []
    assert config.metrics_labels["zone"] == "a"
    assert "only with PROM" in read("metricsExporterType=LOG")[1][0]
    assert "sends them nowhere" in read("metricsGrpcExporterTarget=c:4317")[1][0]
    with pytest.raises(ConfigError, match="metricsLabel"):
        read("metricsLabel=node_id:x")
