"""Floods of pops, acknowledgements and changes: bounded memory, bounded work, nothing believed."""

from __future__ import annotations

import pytest

from tests.broker.embedded import embedded_broker
from tests.broker.pop.consumer import Consumer, consumer, seconds
from trocket.broker.processors.pop_message import QUEUES_MAX
from trocket.remoting.receipt import Receipt


def buffered(group: Consumer) -> tuple[int, int]:
    """Check points in memory, and pops whose commit waits."""
    buffer = group.broker.controller.parts.pop.buffer
    return len(buffer), buffer.waiting_commits


async def test_pops_that_are_over_at_once_take_no_memory(autojump_clock) -> None:
    async with embedded_broker(mapped_file_size_commit_log=1 << 22) as broker:
        group = await consumer(broker)
        await group.send(300)
        for _ in range(300):
            await group.pop(maxMsgNums=1, invisibleTime=1)
        assert buffered(group)[0] == 0
        await seconds(2)
        assert buffered(group) == (0, 0)
        assert group.committed() == 300


async def test_the_buffer_takes_no_more_than_its_key_says(autojump_clock) -> None:
    keys = {"pop_ck_max_buffer_size": 20, "mapped_file_size_commit_log": 1 << 22}
    async with embedded_broker(**keys) as broker:
        group = await consumer(broker)
        await group.send(100)
        for _ in range(100):
            await group.pop(maxMsgNums=1)
        assert buffered(group)[0] == 20
        await seconds(15)
        assert buffered(group) == (0, 0)


async def test_one_queue_takes_no_more_than_its_key_says(autojump_clock) -> None:
    keys = {"pop_ck_offset_max_queue_size": 10, "mapped_file_size_commit_log": 1 << 22}
    async with embedded_broker(**keys) as broker:
        group = await consumer(broker)
        await group.send(200)
        for _ in range(200):
            await group.pop(maxMsgNums=1)
            await seconds(0.01)
        assert buffered(group)[0] <= 10
        await seconds(2)
        assert group.committed() == 200  # they were stored before their time


async def test_repeated_acknowledgements_leave_one_bit(autojump_clock) -> None:
    async with embedded_broker() as broker:
        group = await consumer(broker)
        await group.send(2)
        got = await group.pop()
        for _ in range(200):
            assert (await group.ack(got[0])).code == 0
            assert (await group.ack_batch(got[:1])).code == 0
        assert group.waiting() == []
        assert buffered(group) == (1, 1)


async def test_repeated_changes_with_the_old_receipt_store_one_check_point(autojump_clock) -> None:
    async with embedded_broker() as broker:
        group = await consumer(broker)
        await group.send(2)
        got = await group.pop()
        for _ in range(50):
            assert (await group.change(got[0], 30_000)).code == 0
        assert group.waiting() == ["ck"]


async def test_a_receipt_names_no_messages_but_those_of_its_pop(autojump_clock) -> None:
    async with embedded_broker() as broker:
        group = await consumer(broker)
        await group.send(4)
        first = await group.pop(maxMsgNums=2)
        await group.pop(maxMsgNums=2)
        # An offset of the other pop: a record, which marks nothing in memory.
        receipt = Receipt.from_text(first[0].receipt)
        forged = first[0].ack_fields(offset=3, extraInfo=receipt._replace(offset=3).to_text())
        assert (await group.client.ask(200051, forged)).code == 0
        await seconds(15)
        assert group.committed() == 4
        assert group.waiting().count("ck") == 2


@pytest.mark.parametrize("queues", [QUEUES_MAX + 100])
async def test_a_topic_with_many_queues_is_popped_in_parts(queues, autojump_clock) -> None:
    async with embedded_broker() as broker:
        group = await consumer(broker)
        broker.controller.topics.create_topic_in_send_message_back("T", queue_count=queues)
        await group.ask_pop()
        offsets = broker.controller.offsets.offset_table["T@G"]
        assert len(offsets) == QUEUES_MAX
        for _ in range(30):
            await group.ask_pop()
        assert len(offsets) == queues
