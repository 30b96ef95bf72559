"""Floods of pops, acknowledgements, changes and forged receipts: memory and work are bounded."""

from __future__ import annotations

import pytest

from tests.broker.pop.consumer import PEEK, Consumer, consumer, pop_fields, seconds
from tests.kit import TrioClock, embedded_broker
from trocket.broker.pop.pop_message import QUEUES_MAX
from trocket.remoting.receipt import Receipt


def buffered(group: Consumer) -> tuple[int, int]:
    """Check points in memory, and pops whose commit waits."""
    buffer = group.broker.controller.parts.pop.services.buffer
    return len(buffer), buffer.waiting_commits


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
async def test_a_peek_of_a_topic_with_many_queues_reads_a_part(autojump_clock, monkeypatch) -> None:
    async with embedded_broker() as broker:
        group = await consumer(broker)
        broker.controller.topics.create_topic_in_send_message_back(
            "T", queue_count=QUEUES_MAX + 100
        )
        store, read = broker.controller.store, set()
        real = store.get_message

        def noted(topic, queue_id, *more):
            read.add(queue_id)
            return real(topic, queue_id, *more)

        monkeypatch.setattr(store, "get_message", noted)
        assert (await group.client.ask(PEEK, pop_fields())).code == 19
        assert len(read) == QUEUES_MAX
        for _ in range(30):
            await group.client.ask(PEEK, pop_fields())
        assert len(read) == QUEUES_MAX + 100


class SlowReads(TrioClock):
    """A clock by which each read of the store takes some time."""

    read_s = 0.0

    def monotonic_s(self) -> float:
        return super().monotonic_s() + self.read_s


async def test_a_pop_by_tags_of_many_queues_scans_for_a_limited_time(
    autojump_clock, monkeypatch
) -> None:
    clock = SlowReads()
    async with embedded_broker(clock=clock) as broker:
        group = await consumer(broker)
        for queue_id in range(4):
            await group.send(1, queue_id, i="UNIQ_KEY\x010123456789ABCDEF\x02TAGS\x01B\x02")
        store, read = broker.controller.store, []
        real = store.get_message

        def slow(topic, queue_id, *more, **options):
            clock.read_s += 0.006
            read.append(queue_id)
            return real(topic, queue_id, *more, **options)

        monkeypatch.setattr(store, "get_message", slow)
        answer = await group.ask_pop(exp="A", expType="TAG")
        assert (answer.code, answer.ext_fields["restNum"]) == (210, "2")
        assert len(read) == 2
        await group.ask_pop(exp="A", expType="TAG")
        assert sorted(read) == [0, 1, 2, 3]
