"""Pops and acknowledgements through a whole broker."""

from __future__ import annotations

import pytest

from trocket.disk.memory_disk import MemoryDisk
from trocket.native import extension
from trocket.remoting.message import Message
from trocket.remoting.message_codec import encode_batch
from trocket.remoting.receipt import Receipt

from ...kit import START_MS, TrioClock, embedded_broker, send_fields
from .consumer import REVIVE, TIMER, consumer, seconds, stored_in


async def test_a_pop_gives_messages_with_the_parts_of_their_receipts(autojump_clock) -> None:
    async with embedded_broker() as broker:
        group = await consumer(broker)
        await group.send(3)
        answer = await group.ask_pop(queueId=0)
        assert (answer.code, answer.remark) == (0, "FOUND")
        assert answer.ext_fields == {
            "popTime": str(START_MS),
            "invisibleTime": "60000",
            "reviveQid": "0",
            "restNum": "0",
            "startOffsetInfo": "0 0 0",
            "msgOffsetInfo": "0 0 0,1,2",
        }


STALE = {"POP_CK": "0 1700000000000 60000 0 0 other 0 0", "UNIQ_KEY": "K", "own_name": "x"}


@pytest.mark.parametrize("native", [extension, None])
@pytest.mark.parametrize("kind", ["plain", "delayed", "half", "batch"])
async def test_a_forwarded_message_comes_without_the_receipt_of_the_other_broker(
    kind, native, autojump_clock
):
    more = {"delayed": {"DELAY": "1"}, "half": {"TRAN_MSG": "true", "PGROUP": "PG"}}
    own = STALE | more.get(kind, {})
    async with embedded_broker(native=native) as broker:
        group = await consumer(broker)
        if kind == "batch":
            batch = encode_batch([Message("T", b"x"), Message("T", b"POP_CK\1", properties=own)])
            answer = await group.client.ask(320, send_fields(m="true"), batch)
        else:
            text = "".join(f"{name}\1{value}\2" for name, value in own.items())
            answer = await group.client.ask(310, send_fields(i=text), b"POP_CK\1")
        assert answer.code == 0, answer.remark
        if kind == "half":
            (stored,) = stored_in(broker, "RMQ_SYS_TRANS_HALF_TOPIC")
        else:
            await seconds(2)
            stored = stored_in(broker, "T")[-1]
        assert stored.body == b"POP_CK\1"
        assert "POP_CK" not in stored.properties
        assert stored.properties["own_name"] == "x"


async def test_what_one_consumer_popped_another_does_not_get(autojump_clock) -> None:
    async with embedded_broker() as broker:
        group = await consumer(broker)
        await group.send(5)
        first = await group.pop(maxMsgNums=2)
        second = await group.pop(maxMsgNums=2)
        third = await group.pop()
        offsets = [got.message.queue_offset for got in (*first, *second, *third)]
        assert offsets == [0, 1, 2, 3, 4]
        assert (await group.ask_pop()).code == 210


@pytest.mark.slow
@pytest.mark.parametrize("acknowledges", [True, False])
async def test_pops_outlive_a_lower_number_of_revive_queues(acknowledges, autojump_clock) -> None:
    disk, clock = MemoryDisk(), TrioClock()
    async with embedded_broker(disk, clock=clock, revive_queue_num=2) as broker:
        group = await consumer(broker)
        await group.send(2)
        got = [*await group.pop(maxMsgNums=1), *await group.pop(maxMsgNums=1)]
        assert [Receipt.from_text(each.receipt).revive_queue_id for each in got] == [0, 1]
        await seconds(50)  # both check points wait as timer messages
    async with embedded_broker(disk, clock=clock, revive_queue_num=1) as broker:
        group = await consumer(broker)
        for each in got if acknowledges else ():
            assert (await group.ack(each)).code == 0
        await seconds(15)
        answer = await group.ask_pop()
        assert answer.ext_fields["msgOffsetInfo"] == ("" if acknowledges else "1 0 0,1")


async def test_a_quick_acknowledgement_leaves_no_record(autojump_clock) -> None:
    async with embedded_broker() as broker:
        group = await consumer(broker)
        await group.send(3)
        got = await group.pop()
        for each in got[:2]:
            assert (await group.ack(each)).code == 0
            assert group.committed() == 0
        assert (await group.ack(got[2])).code == 0
        assert group.committed() == 3
        await seconds(120)
        assert (group.end(TIMER), group.end(REVIVE, 1)) == (0, 0)


async def test_a_batch_of_acknowledgements_leaves_no_record(autojump_clock) -> None:
    async with embedded_broker() as broker:
        group = await consumer(broker)
        await group.send(3)
        assert (await group.ack_batch(await group.pop())).code == 0
        assert group.committed() == 3
        assert group.end(TIMER) == 0


async def test_the_committed_offset_follows_the_pops_in_their_order(autojump_clock) -> None:
    async with embedded_broker() as broker:
        group = await consumer(broker)
        await group.send(3)
        first, second, third = [(await group.pop(maxMsgNums=1))[0] for _ in range(3)]
        await group.ack(third)
        await group.ack(second)
        assert group.committed() == 0
        await group.ack(first)
        assert group.committed() == 3


@pytest.mark.slow
async def test_a_slow_pop_is_stored_with_what_is_acknowledged(autojump_clock) -> None:
    async with embedded_broker() as broker:
        group = await consumer(broker)
        await group.send(3)
        got = await group.pop()
        await group.ack(got[1])
        await seconds(9)
        assert group.end(TIMER) == 0
        await seconds(2)
        assert group.waiting() == ["ck", "ack"]
        assert group.committed() == 3
        # Those that come later have records of their own.
        assert (await group.ack(got[0])).code == 0
        assert group.waiting() == ["ck", "ack", "ack"]
        assert (await group.ack_batch(got)).code == 0
        assert group.waiting() == ["ck", "ack", "ack", "bAck"]
        await seconds(60)
        revive_queue = Receipt.from_text(got[0].receipt).revive_queue_id
        assert [message.tags for message in group.stored(REVIVE, revive_queue)] == [
            "ck", "ack", "ack", "bAck",
        ]  # fmt: skip


async def test_without_the_buffer_everything_is_stored_at_once(autojump_clock) -> None:
    async with embedded_broker(enable_pop_buffer_merge=False) as broker:
        group = await consumer(broker)
        await group.send(3)
        got = await group.pop()
        assert group.waiting() == ["ck"]
        await group.ack(got[0])
        assert group.waiting() == ["ck", "ack"]
        await seconds(1)
        assert group.committed() == 3


async def test_a_stop_stores_what_is_not_acknowledged(autojump_clock) -> None:
    async with embedded_broker() as broker:
        group = await consumer(broker)
        await group.send(3)
        got = await group.pop()
        await group.ack(got[1])
        disk = broker.controller.store.disk
    async with embedded_broker(disk) as broker:
        group = await consumer(broker)
        assert group.waiting() == ["ck", "ack"]
        assert group.committed() == 3
        assert (await group.ask_pop()).code == 210


async def test_a_change_of_the_invisible_time_is_a_check_point_of_its_own(autojump_clock) -> None:
    async with embedded_broker() as broker:
        group = await consumer(broker)
        await group.send(2)
        got = await group.pop()
        await seconds(1)
        answer = await group.change(got[0], 10_000)
        assert (answer.code, answer.ext_fields) == (
            0,
            {"popTime": str(START_MS + 1000), "invisibleTime": "10000", "reviveQid": "0"},
        )
        assert group.waiting() == ["ck"]
        await group.ack(got[1])
        await seconds(1)
        assert group.committed() == 2
