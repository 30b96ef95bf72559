"""Pops in order through a whole broker."""

from __future__ import annotations

import pytest
import trio

from trocket.broker.pop.order_info import ATTEMPT_ID_LENGTH_MAX
from trocket.common.message_properties import PROPERTY_PRIORITY
from trocket.disk.memory_disk import MemoryDisk
from trocket.remoting.receipt import ORDER_REVIVE_QUEUE, Receipt
from trocket.remoting.response_codes import ResponseCode

from ...kit import START_MS, TrioClock, embedded_broker, put_record, topic_fields
from ..lessons.test_l19_transactions import powerless
from .consumer import POP, REVIVE, TIMER, Consumer, Got, consumer, messages_of, pop_fields

RESET_OFFSET, NOTIFICATION, CREATE_TOPIC, CREATE_GROUP = 222, 200054, 17, 200
INVISIBLE_S = 60
RESET_TO_1 = {
    "topic": "T", "group": "G", "queueId": 0, "offset": 1, "timestamp": -1, "isForce": "true",
}  # fmt: skip


class Ordered(Consumer):
    """A consumer of T/0 that pops in order."""

    async def ask_pop(self, attempt: str | None = None, **more: object):
        fields = pop_fields("T", 0) | {"order": "true"} | more
        if attempt is not None:
            fields["attemptId"] = attempt
        return await self.client.ask(POP, fields)

    async def pop_offsets(self, attempt: str | None = None, **more: object) -> list[int]:
        """The offsets that a pop gives; none: it is blocked, or there is nothing."""
        answer = await self.ask_pop(attempt, **more)
        if answer.code == ResponseCode.POLLING_TIMEOUT:
            return []
        assert answer.code == 0, answer.remark
        return [got.message.queue_offset for got in messages_of(answer)]

    async def is_blocked(self) -> bool:
        return await self.pop_offsets("another") == []

    async def ack_all(self, got: list[Got]) -> None:
        for each in got:
            assert (await self.ack(each)).code == 0


async def ordered(broker) -> Ordered:
    return Ordered(broker, await broker.connect())


async def test_a_pop_in_order_says_so_and_stores_no_check_point(autojump_clock):
    async with embedded_broker() as broker:
        group = await ordered(broker)
        await group.send(3)
        answer = await group.ask_pop(maxMsgNums=2)
        assert (answer.code, answer.remark) == (0, "FOUND")
        assert answer.ext_fields == {
            "popTime": str(START_MS),
            "invisibleTime": "60000",
            "reviveQid": str(ORDER_REVIVE_QUEUE),
            "restNum": "1",
            "startOffsetInfo": "0 0 0",
            "msgOffsetInfo": "0 0 0,1",
            "orderCountInfo": "0 0 0",
        }
        assert group.committed() == 0
        await trio.sleep(100)
        assert (group.end(TIMER), group.end(REVIVE)) == (0, 0)


async def test_nobody_gets_a_message_before_the_earlier_ones_are_acknowledged(autojump_clock):
    async with embedded_broker() as broker:
        group = await ordered(broker)
        await group.send(4)
        first, second = await group.pop(maxMsgNums=2)
        assert await group.is_blocked()
        assert (await group.ack(second)).code == 0
        assert await group.is_blocked()
        assert group.committed() == 0
        assert (await group.ack(first)).code == 0
        assert group.committed() == 2
        assert await group.pop_offsets() == [2, 3]


async def test_each_queue_is_blocked_on_its_own(autojump_clock):
    async with embedded_broker() as broker:
        group = await ordered(broker)
        for queue in (0, 1, 2):
            await group.send(2, queue)
        assert await group.pop_offsets() == [0, 1]
        answer = await group.ask_pop(queueId=-1, maxMsgNums=3)
        queues = {got.message.queue_id for got in messages_of(answer)}
        assert queues == {1, 2}
        counts = answer.ext_fields["orderCountInfo"].split(";")
        assert sorted(counts) == ["0 1 0", "0 2 0"]


async def test_messages_return_in_their_order_and_are_counted(autojump_clock):
    async with embedded_broker() as broker:
        group = await ordered(broker)
        await group.send(3)
        got = await group.pop(maxMsgNums=2)
        assert (await group.ack(got[0])).code == 0
        await trio.sleep(INVISIBLE_S - 0.01)
        assert await group.is_blocked()
        await trio.sleep(0.02)
        answer = await group.ask_pop()
        assert [each.message.queue_offset for each in messages_of(answer)] == [1, 2]
        assert answer.ext_fields["orderCountInfo"] == "0 qo0%1 1;0 0 0"
        assert (await group.ack(got[1])).code == 0  # late: it changes nothing
        assert group.committed() == 1
        await group.ack_all(messages_of(answer))
        assert group.committed() == 3


async def test_a_lost_answer_is_read_again_with_its_attempt_id(autojump_clock):
    async with embedded_broker() as broker:
        group = await ordered(broker)
        await group.send(2)
        assert await group.pop_offsets("a") == [0, 1]
        await trio.sleep(1)
        assert await group.is_blocked()
        answer = await group.ask_pop("a")
        assert [each.message.queue_offset for each in messages_of(answer)] == [0, 1]
        assert answer.ext_fields["orderCountInfo"] == "0 0 0"
        assert answer.ext_fields["popTime"] == str(START_MS + 1_000)


async def test_a_changed_invisible_time_frees_the_queue_earlier_or_later(autojump_clock):
    async with embedded_broker() as broker:
        group = await ordered(broker)
        await group.send(1)
        (got,) = await group.pop()
        await trio.sleep(1)
        answer = await group.change(got, 2 * INVISIBLE_S * 1000)
        assert answer.ext_fields == {
            "popTime": str(START_MS),
            "invisibleTime": str((1 + 2 * INVISIBLE_S) * 1000),
            "reviveQid": str(ORDER_REVIVE_QUEUE),
        }
        await trio.sleep(2 * INVISIBLE_S - 1)
        assert await group.is_blocked()
        assert (await group.change(got, 1)).code == 0
        await trio.sleep(0.01)
        assert await group.pop_offsets() == [0]


async def test_a_change_for_a_consumed_message_is_answered_with_zeros(autojump_clock):
    async with embedded_broker() as broker:
        group = await ordered(broker)
        await group.send(1)
        (got,) = await group.pop()
        await group.ack(got)
        answer = await group.change(got, 1_000)
        assert answer.code == 0
        assert set(answer.ext_fields.values()) == {"0"}


async def test_an_acknowledgement_of_another_message_is_refused(autojump_clock):
    async with embedded_broker() as broker:
        group = await ordered(broker)
        await group.send(3)
        (got,) = await group.pop(maxMsgNums=1)
        answer = await group.ack(got, offset=2)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert answer.remark.startswith("offset is illegal, key:T@G@0, old:0, commit:2, next:-1, ")
        assert group.committed() == 0


async def test_a_batch_of_acknowledgements_moves_the_offset(autojump_clock):
    async with embedded_broker() as broker:
        group = await ordered(broker)
        await group.send(4)
        got = await group.pop(maxMsgNums=3)
        assert (await group.ack_batch([got[0], got[2]])).code == 0
        assert group.committed() == 1
        assert (await group.ack_batch(got)).code == 0
        assert group.committed() == 3
        (last,) = await group.pop()
        assert (await group.ack_batch([last], so=2, b="Aw==")).code == 0  # offsets 2 and 3
        assert group.committed() == 4


async def test_a_batch_with_another_message_is_refused_and_the_rest_counts(autojump_clock):
    async with embedded_broker() as broker:
        group = await ordered(broker)
        await group.send(4)
        got = await group.pop(maxMsgNums=2)
        answer = await group.ack_batch(got, b="BQ==")  # offsets 0 and 2
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert group.committed() == 1


async def waits(broker, **more: object):
    """A pop that waits, and its client."""
    group = await ordered(broker)
    answers: list[object] = []

    async def wait() -> None:
        answers.append(await group.ask_pop(pollTime=100_000, **more))

    return wait, answers


@pytest.mark.parametrize("queue_id", [0, -1])
async def test_the_last_acknowledgement_wakes_a_waiting_pop(autojump_clock, queue_id):
    async with embedded_broker() as broker:
        group = await ordered(broker)
        await group.send(3)
        got = await group.pop(maxMsgNums=2)
        wait, answers = await waits(broker, queueId=queue_id)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.sleep(1)
            await group.ack(got[0])
            await trio.sleep(1)
            assert answers == []
            await group.ack(got[1])
            await trio.sleep(0.1)
            (answer,) = answers
        assert [each.message.queue_offset for each in messages_of(answer)] == [2]


@pytest.mark.parametrize("queue_id", [0, -1])
async def test_the_end_of_the_invisible_time_wakes_a_waiting_pop(autojump_clock, queue_id):
    async with embedded_broker() as broker:
        group = await ordered(broker)
        await group.send(1)
        await group.pop()
        wait, answers = await waits(broker, queueId=queue_id)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.sleep(INVISIBLE_S - 0.1)
            assert answers == []
            await trio.sleep(0.2)
            (answer,) = answers
        assert [each.message.queue_offset for each in messages_of(answer)] == [0]


async def test_a_notification_in_order_tells_of_messages_that_are_free(autojump_clock):
    async with embedded_broker() as broker:
        group = await ordered(broker)
        await group.send(2)
        fields = {
            "consumerGroup": "G", "topic": "T", "queueId": 0, "pollTime": 0, "bornTime": 0,
            "order": "true",
        }  # fmt: skip
        assert (await group.client.ask(NOTIFICATION, fields)).ext_fields["hasMsg"] == "true"
        (got,) = await group.pop(maxMsgNums=1, attempt="a")
        assert (await group.client.ask(NOTIFICATION, fields)).ext_fields["hasMsg"] == "false"
        again = await group.client.ask(NOTIFICATION, fields | {"attemptId": "a"})
        assert again.ext_fields["hasMsg"] == "true"
        await group.ack(got)
        assert (await group.client.ask(NOTIFICATION, fields)).ext_fields["hasMsg"] == "true"


async def test_a_retry_topic_is_never_read_in_order(autojump_clock):
    async with embedded_broker(pop_from_retry_probability=100) as broker:
        group = await consumer(broker)
        await group.send(1)
        assert (
            broker.controller.parts.pop.services.retry_topics.find_or_create("T", "G") is not None
        )
        put_record(broker, "%RETRY%G_T", "", b"again")
        (first,) = await (await ordered(broker)).pop()
        assert first.message.body == b"0"
        (second,) = await group.pop(maxMsgNums=1)
        assert second.message.body == b"again"


async def test_messages_that_the_filter_skips_are_passed(autojump_clock):
    async with embedded_broker() as broker:
        group = await ordered(broker)
        await group.send(2, i="TAGS\1A\2UNIQ_KEY\1A\2")
        assert await group.pop_offsets(expType="TAG", exp="B") == []
        assert group.committed() == 2
        await group.send(1, i="TAGS\1A\2UNIQ_KEY\1A\2")
        await group.send(1, i="TAGS\1B\2UNIQ_KEY\1B\2")
        (got,) = await group.pop(expType="TAG", exp="B")
        assert (got.message.queue_offset, group.committed()) == (3, 2)
        await group.ack(got)
        assert group.committed() == 4


async def test_messages_popped_in_parallel_block_those_in_order_until_stored(autojump_clock):
    """The offset must not pass a check point that is in memory only."""
    disk, clock = MemoryDisk(), TrioClock()
    async with embedded_broker(disk, clock=clock) as broker:
        parallel, group = await consumer(broker), await ordered(broker)
        await group.send(3)
        assert len(await parallel.pop(maxMsgNums=1)) == 1
        assert await group.is_blocked()
        notification = {
            "consumerGroup": "G", "topic": "T", "queueId": 0, "pollTime": 0, "bornTime": 0,
            "order": "true",
        }  # fmt: skip
        answer = await group.client.ask(NOTIFICATION, notification)
        assert answer.ext_fields["hasMsg"] == "false"
        assert group.committed() == 0
        await trio.sleep(20)
        assert await group.pop_offsets() == [1, 2]


async def test_a_long_attempt_id_is_refused(autojump_clock):
    async with embedded_broker() as broker:
        group = await ordered(broker)
        await group.send(1)
        answer = await group.ask_pop("x" * (ATTEMPT_ID_LENGTH_MAX + 1))
        assert answer.code == ResponseCode.INVALID_PARAMETER
        assert answer.remark == "the attemptId has 257 characters, the limit is 256"
        assert await group.pop_offsets("x" * ATTEMPT_ID_LENGTH_MAX) == [0]


async def test_a_reset_clears_the_block_and_begins_there(autojump_clock):
    async with embedded_broker() as broker:
        group = await ordered(broker)
        await group.send(6)
        await group.ack_all(await group.pop(maxMsgNums=4))
        got = await group.pop(maxMsgNums=1)
        answer = await group.client.ask(RESET_OFFSET, RESET_TO_1)
        assert answer.code == 0, answer.remark
        assert (await group.ack(got[0])).code == 0
        assert group.committed() == 1
        await trio.sleep(1)
        assert await group.pop_offsets(maxMsgNums=2) == [1, 2]
        assert (await group.ack(got[0])).code == 0
        assert group.committed() == 1


async def test_a_reset_wakes_a_waiting_pop(autojump_clock):
    async with embedded_broker() as broker:
        group = await ordered(broker)
        await group.send(2)
        await group.pop()
        wait, answers = await waits(broker)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.sleep(1)
            assert (await group.client.ask(RESET_OFFSET, RESET_TO_1)).code == 0
            await trio.sleep(0.1)
            (answer,) = answers
        assert [each.message.queue_offset for each in messages_of(answer)] == [1]


async def test_a_restart_keeps_the_block_attempt_and_counts(autojump_clock):
    disk, clock = MemoryDisk(), TrioClock()
    async with embedded_broker(disk, clock=clock) as broker:
        group = await ordered(broker)
        await group.send(3)
        got = await group.pop(maxMsgNums=2, attempt="a")
        await group.ack(got[0])
    async with embedded_broker(disk, clock=clock) as broker:
        group = await ordered(broker)
        assert await group.is_blocked()
        assert await group.pop_offsets("a", maxMsgNums=1) == [1]
        await trio.sleep(INVISIBLE_S)
        answer = await group.ask_pop()
        assert answer.ext_fields["orderCountInfo"] == "0 qo0%1 1;0 0 0"
        await group.ack_all(messages_of(answer))
        assert group.committed() == 3


@pytest.mark.slow
async def test_a_crash_delivers_again_and_loses_nothing(autojump_clock):
    """Crash images at many moments of a group that consumes in order."""
    clock = TrioClock()
    disk, images = MemoryDisk(journalled=True), []
    async with embedded_broker(disk, clock=clock) as broker:
        group = await ordered(broker)
        acked = 0
        for _ in range(30):
            await group.send(2)
            for got in await group.pop(maxMsgNums=3):
                await group.ack(got)
                acked = got.message.queue_offset + 1
            await trio.sleep(1)
            await group.ask_pop(maxMsgNums=1, invisibleTime=500)  # left to its time
            await trio.sleep(1)
            images.append((acked, powerless(disk)))
    for acked, image in images[::5]:
        async with embedded_broker(image, clock=clock) as broker:
            group = await ordered(broker)
            end = group.end("T")
            await trio.sleep(INVISIBLE_S)
            found: list[int] = []
            while popped := await group.pop_offsets(invisibleTime=1):
                found += popped
                await group.ack_all([])
                broker.controller.offsets.commit_offset("G", "T", 0, popped[-1] + 1)
                await trio.sleep(0.01)
            # All that was not acknowledged and is in the log comes, in its order.
            assert found == list(range(found[0] if found else end, end))
            assert not found or found[0] <= acked


async def test_priorities_are_read_from_the_highest_on(autojump_clock):
    async with embedded_broker() as broker:
        group = await consumer(broker)
        topic = topic_fields("T", 4, attributes="+message.type=PRIORITY")
        assert (await group.client.ask(CREATE_TOPIC, topic)).code == 0
        for priority in (0, 2, 1, 9):
            await group.send(1, i=f"UNIQ_KEY\1{priority}\2{PROPERTY_PRIORITY}\1{priority}\2")
        for queue_id in (3, 2, 1, 0):
            (got,) = await group.pop(maxMsgNums=1)
            assert Receipt.from_text(got.receipt).queue_id == queue_id
