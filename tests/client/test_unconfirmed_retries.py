"""Messages that fail while their broker's slaves do not confirm anything."""

from __future__ import annotations

import pytest
import trio

from trocket import ConsumeFromWhere, PushConsumer
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.request_codes import RequestCode
from trocket.remoting.response_codes import ResponseCode

from .outages import know, pulled, stored
from .scripted_broker import URL, refusal, scripted

DEADLINE_S = 60.0


@pytest.mark.parametrize(
    ("status", "is_kept"),
    [
        (ResponseCode.SUCCESS, False),
        # As by RocketMQ's clients: that broker has it, as safely as it is set up now.
        (ResponseCode.FLUSH_DISK_TIMEOUT, False),
        (ResponseCode.SLAVE_NOT_AVAILABLE, False),
        # Another master may be elected without it.
        (ResponseCode.FLUSH_SLAVE_TIMEOUT, True),
    ],
)
async def test_a_retry_that_may_be_cut_is_kept_by_the_consumer(
    status: ResponseCode, is_kept: bool, autojump_clock: trio.testing.MockClock
) -> None:
    def unconfirmed(request: RemotingCommand) -> RemotingCommand:
        answer = stored(request)
        answer.code = status
        return answer

    def once(request: RemotingCommand) -> RemotingCommand | None:
        return pulled(request) if request.ext_fields["topic"] == "T" else None

    async with scripted(["a"], topics=["T", "%RETRY%g"]) as brokers:
        brokers.queue_count = 1
        brokers.answer(RequestCode.QUERY_CONSUMER_OFFSET, refusal(ResponseCode.QUERY_NOT_FOUND))
        brokers.answer(RequestCode.UPDATE_CONSUMER_OFFSET, RemotingCommand(ResponseCode.SUCCESS))
        brokers.answer(RequestCode.PULL_MESSAGE, once)
        brokers.answer(
            RequestCode.CONSUMER_SEND_MSG_BACK, refusal(ResponseCode.FLUSH_SLAVE_TIMEOUT)
        )
        brokers.answer(RequestCode.SEND_MESSAGE_V2, unconfirmed)
        consumer = PushConsumer(
            URL,
            group="g",
            subscriptions={"T": "*"},
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            dial=brokers.dial,
        )
        know(brokers, consumer.client.client_id)
        async with consumer:
            with trio.fail_after(DEADLINE_S):
                message = await consumer.receive()
            await message.retry()
            with trio.move_on_after(DEADLINE_S):
                again = await consumer.receive()
                assert (again.queue, again.queue_offset) == (message.queue, message.queue_offset)
                assert is_kept
            await consumer.commit()
        commits = [
            fields["commitOffset"]
            for fields in brokers.fields(RequestCode.UPDATE_CONSUMER_OFFSET)
            if fields["topic"] == "T"
        ]
        assert ("1" in commits) is not is_kept
