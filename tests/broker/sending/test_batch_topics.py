"""Topics of batches (`queue.type=BatchCQ`) through a whole broker."""

from __future__ import annotations

from typing import Any

from trocket.disk.memory_disk import MemoryDisk
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.message import Message
from trocket.remoting.message_codec import decode_messages, encode_batch, iter_batch
from trocket.remoting.request_codes import RequestCode
from trocket.remoting.sys_flag import INNER_BATCH, NEED_UNWRAP

from ...kit import Client, broker_client, embedded_broker, pull_fields, send_fields, topic_fields

TOPIC = topic_fields(attributes="+queue.type=BatchCQ")


async def create(client: Client) -> None:
    answer = await client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, TOPIC)
    assert answer.code == 0, answer.remark


async def send_batch(client: Client, *bodies: bytes, **more: Any) -> RemotingCommand:
    body = encode_batch([Message("T", text) for text in bodies])
    return await client.ask(RequestCode.SEND_BATCH_MESSAGE, send_fields(m="true", **more), body)


async def pulled(client: Client, offset: int) -> tuple[list[Any], int]:
    fields = pull_fields("T", 0, sysFlag=4, queueOffset=offset)
    answer = await client.ask(RequestCode.PULL_MESSAGE, fields)
    assert answer.code == 0, answer.remark
    return decode_messages(answer.body), int(answer.ext_fields["nextBeginOffset"])


async def test_a_batch_is_stored_as_one_message_and_answered_with_its_key() -> None:
    async with broker_client() as client:
        await create(client)
        first = await send_batch(client, b"a", b"b", b"c", i="UNIQ_KEY\1AB\2WAIT\1true")
        single = await client.ask(RequestCode.SEND_MESSAGE_V2, send_fields(), b"d")
        second = await send_batch(client, b"e", h=7)
        messages, next_offset = await pulled(client, 0)
        inside, after = await pulled(client, 2)
    assert first.ext_fields["batchUniqId"] == "AB"
    assert "," not in first.ext_fields["msgId"]
    offsets = [answer.ext_fields["queueOffset"] for answer in (first, single, second)]
    assert offsets == ["0", "3", "4"]
    assert "batchUniqId" not in single.ext_fields
    assert (next_offset, after) == (5, 5)
    assert [message.body for message in inside] == [message.body for message in messages]
    assert [m.sys_flag for m in messages] == [INNER_BATCH | NEED_UNWRAP, 0, 192]
    assert [body for _, body, _ in iter_batch(messages[0].body)] == [b"a", b"b", b"c"]
    assert messages[0].properties["WAIT"] == "true"
    assert messages[0].properties["MSG_REGION"] == "DefaultRegion"
    assert messages[2].flag == 7


async def test_an_old_producers_batch_without_a_key_is_stored_as_its_messages() -> None:
    async with broker_client() as client:
        await create(client)
        answer = await send_batch(client, b"a", b"b", i="WAIT\1true")
        messages, next_offset = await pulled(client, 0)
    assert "batchUniqId" not in answer.ext_fields
    assert answer.ext_fields["msgId"].count(",") == 1
    assert [message.body for message in messages] == [b"a", b"b"]
    assert next_offset == 2


async def test_the_kind_of_a_topic_outlives_the_broker_even_without_messages() -> None:
    disk = MemoryDisk()
    async with embedded_broker(disk) as broker:
        await create(await broker.connect())
    for offset in (0, 2):
        async with broker_client(disk) as client:
            answer = await send_batch(client, b"a", b"b")
            messages, _ = await pulled(client, 0)
        assert answer.ext_fields["queueOffset"] == str(offset)
        assert [message.queue_offset for message in messages] == list(range(0, offset + 1, 2))
    assert disk.list("/store/batchconsumequeue") == ["T"]
    assert disk.list("/store/consumequeue") == []


async def test_a_topic_made_again_may_be_of_the_other_kind() -> None:
    async with broker_client() as client:
        await create(client)
        await send_batch(client, b"a", b"b")
        await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
        plain = TOPIC | {"attributes": ""}
        await client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, plain)
        answer = await send_batch(client, b"c", b"d")
        messages, _ = await pulled(client, 0)
    assert answer.ext_fields["queueOffset"] == "0"
    assert [message.body for message in messages] == [b"c", b"d"]


async def test_an_inner_batch_for_a_plain_topic_is_refused() -> None:
    async with broker_client() as client:
        fields = send_fields(f=INNER_BATCH | NEED_UNWRAP, i="UNIQ_KEY\1AB\2INNER_NUM\0012\2")
        answer = await client.ask(RequestCode.SEND_MESSAGE_V2, fields, b"x")
    assert answer.code == 13


async def test_the_minimum_offset_of_an_empty_queue_of_batches_is_minus_one() -> None:
    queue = {"topic": "T", "queueId": "0"}
    async with broker_client() as client:
        await create(client)
        empty = await client.ask(RequestCode.GET_MIN_OFFSET, queue)
        await send_batch(client, b"a", b"b")
        filled = await client.ask(RequestCode.GET_MIN_OFFSET, queue)
        plain = await client.ask(RequestCode.GET_MIN_OFFSET, queue | {"topic": "BenchmarkTest"})
    offsets = [answer.ext_fields["offset"] for answer in (empty, filled, plain)]
    assert offsets == ["-1", "0", "0"]
