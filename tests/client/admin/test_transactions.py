"""Checking transactions again that a broker gave up."""

from __future__ import annotations

import pytest

from trocket.client import Admin, ConfigurationError, NotFoundError, ReceivedMessage, ServerError
from trocket.client.admin.looking import look
from trocket.common.topic_names import TRANS_CHECK_MAX_TIME_TOPIC
from trocket.remoting.bodies import MessageQueue

from .conftest import Do, send


def test_only_what_was_given_up_is_checked_again(do: Do) -> None:
    async def verb(admin: Admin) -> None:
        await admin.create_topic("T", 1)
        (sent,) = await send(admin, "T", "x")
        message = await admin.message(sent.offset_message_id)
        with pytest.raises(ConfigurationError, match="'T' is not TRANS_CHECK_MAX_TIME_TOPIC"):
            await admin.resume_check(message)
        (ext,) = (await look(admin.client, sent.queue, 0, 1)).messages

        def at(broker_name: str) -> ReceivedMessage:
            """The message as if it had been given up."""
            queue = MessageQueue(TRANS_CHECK_MAX_TIME_TOPIC, broker_name, 0)
            return ReceivedMessage(ext, queue, "T")

        with pytest.raises(ServerError, match="The message lies in T"):
            await admin.resume_check(at(sent.queue.broker_name))
        with pytest.raises(NotFoundError, match="broker-x"):
            await admin.resume_check(at("broker-x"))

    do(verb)
