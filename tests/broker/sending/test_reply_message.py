"""Replies to requests: pushed to the requester, stored, and refused if it is not connected."""

from __future__ import annotations

import pytest
import trio

from trocket.common.message_properties import properties_from_bytes
from trocket.remoting.bodies import HeartbeatData, ProducerData
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.message_codec import decode_messages

from ...kit import START_MS, broker_client, embedded_broker, long_names, pull_fields, send_fields

PULL, HEARTBEAT, REPLY, REPLY_V2, PUSHED = 11, 34, 324, 325, 326
REPLY_TOPIC = "DefaultCluster_REPLY_TOPIC"
PROPERTIES = "CORRELATION_ID\1c1\2REPLY_TO_CLIENT\1asker@1\2UNIQ_KEY\1A\2"


async def asker(broker):
    client = await broker.connect()
    beat = HeartbeatData(
        client_id="asker@1", producer_data_set=[ProducerData(group_name="CLIENT_INNER_PRODUCER")]
    )
    assert (await client.ask(HEARTBEAT, {}, beat.to_body())).code == 0
    return client


async def serve(client, code, seen):
    """Answer what the broker pushes, until cancelled."""
    while True:
        command = await client.asked()
        seen.append(command)
        await client.reply(command.answer(code, None))


@pytest.mark.parametrize("code", [REPLY, REPLY_V2])
async def test_a_reply_comes_to_who_asked_and_is_stored(code, autojump_clock):
    seen: list[RemotingCommand] = []
    async with embedded_broker() as broker, trio.open_nursery() as nursery:
        nursery.start_soon(serve, await asker(broker), 0, seen)
        client = await broker.connect()
        fields = send_fields(REPLY_TOPIC, i=PROPERTIES)
        answer = await client.ask(code, long_names(fields) if code == REPLY else fields, b"pong")
        assert (answer.code, answer.remark) == (0, None)
        assert answer.ext_fields["queueOffset"] == "0"
        assert len(answer.ext_fields["msgId"]) == 32
        found = await client.ask(PULL, pull_fields(REPLY_TOPIC, sysFlag=4))
        nursery.cancel_scope.cancel()
    (pushed,) = seen
    assert (pushed.code, pushed.body) == (PUSHED, b"pong")
    assert pushed.ext_fields["topic"] == REPLY_TOPIC
    assert pushed.ext_fields["storeHost"] == "127.0.0.1:10911"
    assert ":" in pushed.ext_fields["bornHost"]
    assert pushed.ext_fields["storeTimestamp"] == str(START_MS)
    properties = properties_from_bytes(pushed.ext_fields["properties"].encode())
    assert properties["CORRELATION_ID"] == "c1"
    assert properties["PUSH_REPLY_TIME"] == str(START_MS)
    assert (properties["MSG_REGION"], properties["TRACE_ON"]) == ("DefaultRegion", "true")
    assert pushed.ext_fields.keys().isdisjoint({"bname", "batch"})  # Apache hands on neither
    (message,) = decode_messages(found.body)
    assert (message.body, message.properties["CORRELATION_ID"]) == (b"pong", "c1")


async def test_replies_are_not_stored_where_the_file_says_so(autojump_clock):
    async with (
        embedded_broker(store_reply_message_enable=False) as broker,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(serve, await asker(broker), 0, [])
        client = await broker.connect()
        answer = await client.ask(REPLY_V2, send_fields(REPLY_TOPIC, i=PROPERTIES), b"pong")
        assert (answer.code, answer.ext_fields["msgId"]) == (0, "0")
        assert broker.controller.store.max_offset(REPLY_TOPIC, 0) == 0
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("properties", "remark"),
    [
        ("REPLY_TO_CLIENT\1nobody\2", "push reply message fail, channel of <nobody> not found."),
        ("", "reply message properties[REPLY_TO_CLIENT] is null"),
    ],
)
async def test_a_reply_without_a_requester_is_refused(properties, remark, autojump_clock):
    async with broker_client() as client:
        answer = await client.ask(REPLY_V2, send_fields(REPLY_TOPIC, i=properties), b"pong")
        assert (answer.code, answer.remark) == (1, remark)
        # It is stored all the same, and the answer says where.
        assert (len(answer.ext_fields["msgId"]), answer.ext_fields["queueOffset"]) == (32, "0")


async def test_who_asked_may_refuse_the_reply_or_not_answer(autojump_clock):
    async with embedded_broker() as broker:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve, await asker(broker), 1, [])
            client = await broker.connect()
            fields = send_fields(REPLY_TOPIC, i=PROPERTIES)
            answer = await client.ask(REPLY_V2, fields, b"pong")
            assert (answer.code, answer.remark) == (1, "push reply message to asker@1fail.")
            nursery.cancel_scope.cancel()
        start_s = trio.current_time()
        answer = await client.ask(REPLY_V2, fields, b"pong")
        assert answer.code == 1
        assert answer.remark.startswith("push reply message to asker@1fail.")
        assert trio.current_time() - start_s == pytest.approx(10, abs=0.1)


async def test_a_reply_to_a_topic_that_is_not_there_is_refused(autojump_clock):
    async with broker_client(auto_create_topic_enable=False) as client:
        answer = await client.ask(REPLY_V2, send_fields("Nowhere", i=PROPERTIES), b"pong")
        assert answer.code == 17
