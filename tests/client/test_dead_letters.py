"""Dead letters that are sent to their topics again, in both loops."""

from __future__ import annotations

import anyio.lowlevel
import pytest

from trocket import (
    Admin,
    ConsumeFromWhere,
    Message,
    MessageRefusedError,
    Producer,
    PushConsumer,
)
from trocket.testing import Broker

from .conftest import Play


@pytest.mark.slow
@pytest.mark.parametrize("namespace", [None, "shop"])
def test_a_dead_letter_goes_to_its_topic_again(
    play: Play, broker: Broker, topic: str, group: str, namespace: str | None
) -> None:
    async def scenario() -> None:
        first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
        async with (
            Producer(broker.url, namespace=namespace) as producer,
            PushConsumer(
                broker.url,
                group=group,
                subscriptions={topic: "*"},
                consume_from_where=first,
                namespace=namespace,
            ) as consumer,
            Admin(producer.client) as admin,
        ):
            sent = Message(
                topic, "one", tags="t", keys=["k", "l"], flag=7, properties={"colour": "red"}
            )
            original = await producer.send(sent)
            message = await consumer.receive()
            await message.retry(-1)
            # The name server learns of the dead-letter topic a moment after it is created.
            while not (found := await admin.dead_letters(group)):
                await anyio.lowlevel.checkpoint()
            (dead,) = found
            result = await producer.resend(dead)
            assert result.message_id != original.message_id
            again = await consumer.receive()
            again.ack()
            assert (again.topic, again.text, again.reconsume_times) == (topic, "one", 0)
            assert (again.tags, again.keys, again.flag) == ("t", ("k", "l"), 7)
            assert again.properties["colour"] == "red"
            assert again.properties["DLQ_ORIGIN_MESSAGE_ID"] == original.message_id
            assert again.properties["DLQ_ORIGIN_TOPIC"].endswith(topic)
            with pytest.raises(MessageRefusedError, match="no dead letter"):
                await producer.resend(message)

    play(scenario)
