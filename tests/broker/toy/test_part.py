"""A new subsystem is a folder with a part (`part.py`, beside this) and one line of the assembly."""

from __future__ import annotations

from trocket.broker.metrics.service import MetricsService
from trocket.disk.memory_disk import MemoryDisk
from trocket.remoting.request_codes import RequestCode
from trocket.remoting.response_codes import ResponseCode

from ...kit import Broker, embedded_broker, topic_fields
from .part import FILE, GREET, GREETINGS, Greetings

MORE = (Greetings,)
"""The one line."""


async def greet(broker: Broker, topic: str = "T") -> int:
    client = await broker.connect()
    answer = await client.ask(GREET, {"topic": topic})
    assert answer.code == ResponseCode.SUCCESS
    return int(answer.ext_fields["count"])


async def test_a_part_serves_its_requests_and_keeps_its_state_over_a_restart():
    disk = MemoryDisk()
    async with embedded_broker(disk, more_parts=MORE) as broker:
        assert [await greet(broker), await greet(broker)] == [1, 2]
    assert disk.exists(f"/store/config/{FILE}")
    async with embedded_broker(disk, more_parts=MORE) as broker:
        assert await greet(broker) == 3


async def test_a_part_has_metrics():
    async with embedded_broker(more_parts=MORE) as broker:
        await greet(broker)
        parts = broker.controller.parts
        samples = await MetricsService(parts, lambda: None).collect()
        assert samples.families[GREETINGS] == {("T",): 1}


async def test_a_part_forgets_a_deleted_topic():
    async with embedded_broker(more_parts=MORE) as broker:
        client = await broker.connect()
        await client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_fields())
        await greet(broker)
        await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
        assert await greet(broker) == 1


async def test_a_code_without_a_part_is_not_supported():
    async with embedded_broker() as broker:
        client = await broker.connect()
        answer = await client.ask(GREET, {"topic": "T"})
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
