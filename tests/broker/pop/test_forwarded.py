"""A popped message that a client sends on: its receipt stays behind."""

from __future__ import annotations

import pytest

from trocket.native import extension
from trocket.remoting.message import Message
from trocket.remoting.message_batch import encode_batch
from trocket.remoting.message_codec import decode_messages

from ...kit import broker_client, pull_fields, send_fields

SEND, SEND_V1_BATCH, PULL = 310, 320, 11
RECEIPT = "0 1700000000000 60000 1 0 other-broker 0 0"


@pytest.mark.parametrize("native", [extension, None], ids=["as built", "pure"])
@pytest.mark.parametrize("first", ["POP_CK", "UNIQ_KEY"])
async def test_a_message_is_stored_without_the_receipt_of_another_broker(native, first):
    own = {"UNIQ_KEY": "K", "TAGS": "a", "POP_CK": RECEIPT, "colour": "red"}
    own = {first: own[first]} | own
    text = "".join(f"{name}\x01{value}\x02" for name, value in own.items())
    async with broker_client(native=native) as client:
        for _ in range(2):  # the first one makes the queue, and is never part of a run
            assert (await client.ask(SEND, send_fields(i=text), b"single")).code == 0
        batch = encode_batch([Message("T", b"in a batch", properties=own)] * 2)
        assert (await client.ask(SEND_V1_BATCH, send_fields(i="", m="true"), batch)).code == 0
        answer = await client.ask(PULL, pull_fields(sysFlag=4))
    messages = decode_messages(answer.body)
    assert [message.body for message in messages] == [b"single"] * 2 + [b"in a batch"] * 2
    for message in messages:
        assert "POP_CK" not in message.properties
        assert (message.unique_key, message.tags, message.properties["colour"]) == ("K", "a", "red")
