"""A client that makes the table of messages in order grow, or skips messages of its group."""

from __future__ import annotations

from typing import Final

import pytest

from trocket.remoting.receipt import ORDER_REVIVE_QUEUE, Receipt, TopicForm
from trocket.remoting.response_codes import ResponseCode

from ..broker.pop.consumer import ACK, CHANGE, POP, Consumer, consumer, pop_fields
from ..kit import START_MS, embedded_broker

ORDER: Final = {"order": "true"}
GREATEST: Final = (1 << 63) - 1


async def pop_one(group: Consumer) -> Receipt:
    fields = pop_fields("T", 0, maxMsgNums=1) | ORDER
    answer = await group.client.ask(POP, fields)
    assert answer.code == 0, answer.remark
    times = int(answer.ext_fields["popTime"]), int(answer.ext_fields["invisibleTime"])
    offset = int(answer.ext_fields["msgOffsetInfo"].split(" ")[2])
    return Receipt(offset, *times, ORDER_REVIVE_QUEUE, TopicForm.NORMAL, "b", 0, offset)


def of_message(receipt: Receipt, offset: int, **more: object) -> dict[str, object]:
    fields: dict[str, object] = {
        "consumerGroup": "G", "topic": "T", "queueId": 0, "extraInfo": receipt.to_text(),
        "offset": offset,
    }  # fmt: skip
    return fields | more


async def test_long_attempt_ids_are_refused_and_not_kept(autojump_clock):
    async with embedded_broker() as broker:
        group = await consumer(broker)
        await group.send(1)
        for size in (257, 32_767, 200_000):
            fields = pop_fields("T", 0, attemptId="x" * size) | ORDER
            answer = await group.client.ask(POP, fields)
            assert answer.code == ResponseCode.INVALID_PARAMETER
        assert broker.controller.parts.pop.services.orders.table.count == 0
        await pop_one(group)


@pytest.mark.slow
async def test_changes_of_other_messages_are_not_kept(autojump_clock):
    async with embedded_broker() as broker:
        group = await consumer(broker)
        await group.send(1_000)
        receipt = await pop_one(group)
        table = broker.controller.parts.pop.services.orders.table
        size = len(table.encode())
        for offset in range(1, 1_000):
            answer = await group.client.ask(
                CHANGE, of_message(receipt, offset, invisibleTime=60_000)
            )
            assert answer.code == 0
        assert len(table.encode()) == size


async def test_numbers_at_the_ends_of_javas_long_change_nothing(autojump_clock):
    async with embedded_broker() as broker:
        group = await consumer(broker)
        await group.send(2)
        receipt = await pop_one(group)
        table = broker.controller.parts.pop.services.orders.table
        text = table.encode()
        for time in (-GREATEST - 1, -1, 0, GREATEST):
            for forged in (receipt._replace(pop_time=time), receipt._replace(start_offset=time)):
                for offset in (0, 1):
                    if forged.pop_time == receipt.pop_time:
                        continue
                    assert (await group.client.ask(ACK, of_message(forged, offset))).code == 0
                    change = of_message(forged, offset, invisibleTime=60_000)
                    answer = await group.client.ask(CHANGE, change)
                    assert -(1 << 63) <= int(answer.ext_fields["invisibleTime"]) <= GREATEST
        assert table.encode() == text
        assert group.committed() == 0


async def test_no_forged_receipt_skips_messages_of_a_queue_that_nobody_popped(autojump_clock):
    async with embedded_broker() as broker:
        group = await consumer(broker)
        await group.send(10)
        forged = Receipt(0, START_MS, 60_000, ORDER_REVIVE_QUEUE, TopicForm.NORMAL, "b", 0, 0)
        for offset in range(10):
            assert (await group.client.ask(ACK, of_message(forged, offset))).code == 0
        assert group.committed() == -1
        assert (await pop_one(group)).offset == 0
