"""Pulling from the queues of a push consumer, against scripted brokers."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from trocket import MessageModel, PushConsumer
from trocket.remoting.bodies import LockBatchResponseBody
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.request_codes import RequestCode
from trocket.remoting.response_codes import ResponseCode

from .outages import know
from .scripted_broker import URL, refusal, scripted

no_locks = RemotingCommand(ResponseCode.SUCCESS, body=LockBatchResponseBody().to_body())
offset_5 = RemotingCommand(ResponseCode.SUCCESS, {"offset": "5"})


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


@pytest.mark.parametrize("is_orderly", [False, True])
async def test_routes_are_asked_again_if_a_master_ends_before_its_queues_begin(
    is_orderly: bool, autojump_clock: trio.testing.MockClock
) -> None:
    """Another master, or a slave, may serve them; the set of the other queues is well."""
    code = RequestCode.LOCK_BATCH_MQ if is_orderly else RequestCode.QUERY_CONSUMER_OFFSET
    async with scripted(("b", "well")) as brokers:
        brokers.answer(RequestCode.LOCK_BATCH_MQ, no_locks)
        brokers.answer(RequestCode.QUERY_CONSUMER_OFFSET, offset_5)

        def die(request: RemotingCommand) -> RemotingCommand:
            brokers.down.add("b")
            raise ConnectionResetError

        usual = no_locks if is_orderly else offset_5
        brokers.answer(code, *[die] * (2 if is_orderly else 8), usual)
        consumer = PushConsumer(
            URL,
            group="G",
            subscriptions={"T": "*"},
            is_orderly=is_orderly,
            dial=brokers.dial,
        )
        know(brokers, consumer.client.client_id)
        async with consumer:
            with trio.move_on_after(20):
                await consumer.receive()
        asked = brokers.log.count(("ns1", RequestCode.GET_ROUTEINFO_BY_TOPIC))
        assert 2 * 15 <= asked <= 2 * 25  # of the topic and the group's retry topic
