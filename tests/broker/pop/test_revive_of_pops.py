"""Popped messages that are not acknowledged, from the pop to the next delivery."""

from __future__ import annotations

import pytest
import trio

from trocket.remoting.message import Message
from trocket.remoting.message_codec import encode_batch

from ...kit import embedded_broker, send_fields, topic_fields
from .consumer import Got, Receipt, consumer, messages_of, seconds

INVISIBLE_MS = 10_000
LATEST_S = INVISIBLE_MS / 1000 + 2
RETRY = "%RETRY%G_T"

UPDATE_AND_CREATE_TOPIC, SEND_BATCH = 17, 320


def bodies(got: list[Got]) -> list[bytes]:
    return [each.message.body for each in got]


@pytest.mark.slow
@pytest.mark.parametrize("merges", [True, False])
async def test_a_waiting_pop_gets_what_was_not_acknowledged(merges, autojump_clock) -> None:
    async with embedded_broker(enable_pop_buffer_merge=merges) as broker:
        group = await consumer(broker)
        await group.send(3)
        got = await group.pop(invisibleTime=INVISIBLE_MS)
        await group.ack(got[1])
        popped_s = trio.current_time()
        answer = await group.ask_pop(pollTime=15_000)
        waited_s = trio.current_time() - popped_s
        assert INVISIBLE_MS / 1000 <= waited_s <= LATEST_S
        again = messages_of(answer)
        again += await group.pop() if len(again) < 2 else []
        assert bodies(again) == [b"0", b"2"]
        assert [each.message.reconsume_times for each in again] == [1, 1]
        for each in again:
            assert (await group.ack(each)).code == 0
        await seconds(90)
        group = await consumer(broker)
        assert (await group.ask_pop()).code == 210
        assert group.end(RETRY) == 2


@pytest.mark.slow
async def test_a_message_comes_again_and_again_until_it_is_acknowledged(autojump_clock) -> None:
    async with embedded_broker() as broker:
        group = await consumer(broker)
        await group.send(1)
        for times in range(4):
            (got,) = await group.pop(invisibleTime=INVISIBLE_MS)
            assert got.message.reconsume_times == times
            assert (await group.ask_pop()).code == 210
            await seconds(LATEST_S)
        (got,) = await group.pop()
        await group.ack(got)
        await seconds(70)
        assert (await (await consumer(broker)).ask_pop()).code == 210


async def test_a_changed_time_counts_from_the_change(autojump_clock) -> None:
    async with embedded_broker() as broker:
        group = await consumer(broker)
        await group.send(2)
        got = await group.pop(invisibleTime=INVISIBLE_MS)
        await seconds(5)
        await group.change(got[0], 20_000, suspend="true")
        await group.change(got[1], 1_000)
        await seconds(3)
        (soon,) = await group.pop()
        assert (soon.message.body, soon.message.reconsume_times) == (b"1", 1)
        await group.ack(soon)
        await seconds(14)
        assert (await group.ask_pop()).code == 210
        await seconds(5)
        (late,) = await group.pop()
        assert (late.message.body, late.message.reconsume_times) == (b"0", 0)


@pytest.mark.parametrize("merges", [True, False])
async def test_changes_within_a_millisecond_lose_nothing(merges, autojump_clock) -> None:
    """The acks of an earlier check point must not be those of the next one."""
    async with embedded_broker(enable_pop_buffer_merge=merges) as broker:
        group = await consumer(broker)
        await group.send(1)
        (got,) = await group.pop(invisibleTime=INVISIBLE_MS)
        for _ in range(3):
            answer = await group.change(got, INVISIBLE_MS)
            assert answer.code == 0
            receipt = Receipt.from_text(got.receipt)
            receipt = receipt._replace(
                start_offset=receipt.offset,
                pop_time=int(answer.ext_fields["popTime"]),
                invisible_time=int(answer.ext_fields["invisibleTime"]),
            )
            got = Got(got.message, receipt.to_text())
        await seconds(LATEST_S)
        (again,) = await group.pop()
        assert again.message.body == b"0"


async def test_the_messages_of_a_batch_come_again_one_by_one(autojump_clock) -> None:
    """A retry topic has no queues of batches."""
    async with embedded_broker() as broker:
        group = await consumer(broker)
        attributes = {"attributes": "+queue.type=BatchCQ"}
        created = await group.client.ask(UPDATE_AND_CREATE_TOPIC, topic_fields() | attributes)
        assert created.code == 0, created.remark
        batch = encode_batch([Message("T", b"a", 1, {"TAGS": "x"}), Message("T", b"b", 2)])
        fields = send_fields("T", m="true", i="UNIQ_KEY\1AB\2")
        assert (await group.client.ask(SEND_BATCH, fields, batch)).code == 0
        assert len(await group.pop(invisibleTime=INVISIBLE_MS)) == 1
        await seconds(LATEST_S)
        first, second = [each.message for each in await group.pop()]
    assert (first.body, first.flag, first.tags) == (b"a", 1, "x")
    assert (second.body, second.flag, second.sys_flag) == (b"b", 2, 0)
    assert [each.reconsume_times for each in (first, second)] == [1, 1]
