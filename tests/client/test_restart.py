"""Producers while their broker restarts, in virtual time."""

from __future__ import annotations

import logging
from typing import Any

import anyio.abc
import pytest
import trio
import trio.testing

from trocket import (
    ConnectionChange,
    ConnectionEvent,
    Message,
    Producer,
    PushConsumer,
    SendError,
)
from trocket.remoting.request_codes import RequestCode
from trocket.testing import MemoryBroker

SEND = RequestCode.SEND_MESSAGE_V2


class Network:
    """Connections to a broker, which is away now and then."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker
        self.is_down = False

    async def dial(self, host: str, port: int) -> anyio.abc.ByteStream:
        """Connect, unless the broker is away; its name server is not."""
        address = f"{host}:{port}"
        if self.is_down and address == self._broker.broker_address:
            raise ConnectionRefusedError("refused")
        return await self._broker.dial(host, port)

    async def go_down(self) -> None:
        """Close the connection at the next send, and refuse new ones."""
        self.is_down = True
        self._broker.faults.disconnect(SEND)


@pytest.mark.parametrize("is_pipelined", [False, True])
async def test_sends_outlive_a_restart_of_five_seconds(
    autojump_clock: trio.testing.MockClock, is_pipelined: bool
) -> None:
    async with MemoryBroker() as broker:
        network = Network(broker)
        async with Producer(broker.url, dial=network.dial) as producer:
            await producer.send(Message("T", "before"))
            await network.go_down()
            begun_s = trio.current_time()
            async with trio.open_nursery() as nursery:
                if is_pipelined:
                    nursery.start_soon(producer.send_soon, Message("T", "meanwhile"))
                else:
                    nursery.start_soon(producer.send, Message("T", "meanwhile"))
                await trio.sleep(5)
                network.is_down = False
            await producer.drain()
            assert trio.current_time() - begun_s < 6.5
        assert [message.text for message in await broker.messages("T")] == ["before", "meanwhile"]


async def test_a_send_ends_at_its_time_limit(autojump_clock: trio.testing.MockClock) -> None:
    async with MemoryBroker() as broker:
        network = Network(broker)
        async with Producer(broker.url, dial=network.dial) as producer:
            await producer.send(Message("T", "before"))
            await network.go_down()
            begun_s = trio.current_time()
            with pytest.raises(SendError, match="refused"):
                await producer.send(Message("T", "lost"))
            assert trio.current_time() - begun_s == pytest.approx(10, abs=0.5)
            with pytest.raises(SendError, match="refused"):
                await producer.send(Message("T", "lost"), timeout_s=1)
            assert trio.current_time() - begun_s == pytest.approx(11, abs=1)


@pytest.mark.slow
async def test_an_outage_is_one_event_and_one_line_and_its_end_another(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    events: list[ConnectionEvent] = []
    async with MemoryBroker() as broker:
        network = Network(broker)
        await broker.create_topic("T", queues=8)
        options: Any = {"dial": network.dial, "on_connection": events.append}
        subscriptions = {"T": "*"}
        address = broker.broker_address
        async with PushConsumer(
            broker.url, group="g", subscriptions=subscriptions, **options
        ) as consumer:
            with caplog.at_level(logging.WARNING, logger="trocket.client"):
                network.is_down = True
                broker.faults.disconnect(RequestCode.HEART_BEAT)
                await consumer.client.heartbeat()
                await trio.sleep(60)
                network.is_down = False
                await trio.sleep(60)
    changes = [each.change for each in events if each.address == address]
    assert changes == [ConnectionChange.CONNECTED, ConnectionChange.LOST, ConnectionChange.BACK]
    lines = [
        record.getMessage()
        for record in caplog.records
        if record.name.startswith("trocket.client.")  # a busy machine holds up the event loop
    ]
    assert len(lines) == 2, lines
    assert lines[0].startswith(f"no connection to {address}: ")
    assert "again, after" in lines[1]


async def test_a_callback_that_fails_is_logged(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(event: ConnectionEvent) -> None:
        raise ValueError("of the program")

    async with (
        MemoryBroker() as broker,
        Producer(broker.url, dial=broker.dial, on_connection=fail) as producer,
    ):
        await producer.send(Message("T", "x"))
    assert "on_connection failed" in caplog.text
