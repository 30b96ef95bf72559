"""Batches: what makes a send one is its field, whatever its code and header."""

from __future__ import annotations

import pytest

from trocket.native import extension
from trocket.remoting.message import Message
from trocket.remoting.message_batch import encode_batch
from trocket.remoting.message_codec import decode_messages

from ...kit import (
    START_MS,
    broker_and_client,
    broker_client,
    long_names,
    pull_fields,
    send_fields,
)

SEND, SEND_V2, SEND_BATCH, PULL = 10, 310, 320, 11
BODIES = [b"a", b"b", b"c"]
JSON, BINARY = 0, 1


def batch_of(bodies: list[bytes]) -> bytes:
    return encode_batch(
        [
            Message("T", body, properties={"UNIQ_KEY": f"K{number}"})
            for number, body in enumerate(bodies)
        ]
    )


@pytest.mark.parametrize("native", [extension, None], ids=["as built", "pure"])
@pytest.mark.parametrize("serialize_type", [JSON, BINARY], ids=["JSON", "binary"])
@pytest.mark.parametrize("text", ["true", "TRUE", "True"])
@pytest.mark.parametrize("code", [SEND, SEND_V2, SEND_BATCH])
async def test_a_send_that_says_it_is_a_batch_is_stored_as_its_messages(
    code, text, serialize_type, native
):
    """The C++ client sends batches with code 10."""
    fields = send_fields(m=text, g=START_MS)
    if code == SEND:
        fields = long_names(fields)
    async with broker_client(native=native) as client:
        assert (await client.ask(SEND_V2, send_fields(), b"first")).code == 0
        answer = await client.ask(code, fields, batch_of(BODIES), serialize_type)
        assert (answer.code, answer.ext_fields["msgId"].count(",")) == (0, len(BODIES) - 1)
        pulled = await client.ask(PULL, pull_fields(sysFlag=4))
    messages = decode_messages(pulled.body)
    assert [message.body for message in messages] == [b"first", *BODIES]
    assert [message.unique_key for message in messages[1:]] == ["K0", "K1", "K2"]


@pytest.mark.parametrize("native", [extension, None], ids=["as built", "pure"])
@pytest.mark.parametrize("text", ["false", "", "yes", "1", None])
@pytest.mark.parametrize("code", [SEND_V2, SEND_BATCH])
async def test_any_other_word_is_a_single_message(code, text, native):
    fields = send_fields()
    if text is None:
        del fields["m"]
    else:
        fields["m"] = text
    body = batch_of(BODIES)
    async with broker_client(native=native) as client:
        for _ in range(2):
            assert (await client.ask(code, fields, body)).code == 0
        pulled = await client.ask(PULL, pull_fields(sysFlag=4))
    assert [message.body for message in decode_messages(pulled.body)] == [body] * 2


async def test_a_batch_that_is_malformed_stores_nothing_whatever_its_code():
    async with broker_and_client() as (broker, client):
        answer = await client.ask(SEND_V2, send_fields(m="true"), b"no batch")
        assert (answer.code, "batch body" in answer.remark) == (13, True)
        assert broker.controller.store.max_offset("T", 0) == 0
