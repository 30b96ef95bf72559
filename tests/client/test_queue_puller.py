"""Pulling from the queues of a push consumer, against scripted brokers."""

from __future__ import annotations

from pathlib import Path

import trio

from trocket import MessageModel, PushConsumer
from trocket.remoting.request_codes import RequestCode
from trocket.remoting.response_codes import ResponseCode

from .scripted_broker import URL, refusal, scripted


async def test_a_broker_that_refuses_the_first_offset_is_asked_once_a_second(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with scripted() as brokers:
        brokers.answer(RequestCode.GET_MAX_OFFSET, refusal(ResponseCode.VERSION_NOT_SUPPORTED))
        consumer = PushConsumer(
            URL,
            group="G",
            subscriptions={"T": "*"},
            message_model=MessageModel.BROADCASTING,
            offset_path=tmp_path / "offsets.json",
            dial=brokers.dial,
        )
        async with consumer:
            with trio.move_on_after(10):
                await consumer.receive()
        asked = len(brokers.requests[RequestCode.GET_MAX_OFFSET])
        assert 4 * 2 <= asked <= 4 * 11
