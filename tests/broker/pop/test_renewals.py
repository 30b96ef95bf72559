"""Which receipts may change an invisible time."""

from __future__ import annotations

import pytest

from trocket.broker.pop.buffer import OrderKey
from trocket.broker.pop.change_invisible_time import KEPT_MS, RENEWALS_MAX, Renewals
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.receipt import Receipt, TopicForm
from trocket.remoting.request_codes import RequestCode
from trocket.remoting.response_codes import ResponseCode

from ...kit import embedded_broker
from .consumer import consumer, seconds

QUEUE = OrderKey("T", "G", 0)


def receipt_of(offset: int, pop_time: int) -> Receipt:
    return Receipt(offset, pop_time, 1_000, 0, TopicForm("0"), "b", 0, offset)


def test_a_message_is_renewed_by_its_last_receipt_only() -> None:
    renewals = Renewals()
    last, old, other = receipt_of(7, 1_000), receipt_of(7, 100), receipt_of(8, 100)
    assert renewals.allows(QUEUE, old, 1_000)
    renewals.note(QUEUE, last, old)
    assert renewals.allows(QUEUE, last, 1_500)
    assert renewals.allows(QUEUE, other, 1_500)
    for forged in (
        old,
        last._replace(start_offset=6),
        last._replace(invisible_time=2_000),
        last._replace(revive_queue_id=1),
        last._replace(broker_name="c"),
    ):
        assert not renewals.allows(QUEUE, forged, 2_000 + KEPT_MS)
    assert renewals.allows(QUEUE, old, 2_001 + KEPT_MS)


@pytest.mark.slow
def test_a_bounded_number_of_messages_is_remembered() -> None:
    renewals = Renewals()
    for offset in range(RENEWALS_MAX + 1):
        renewals.note(QUEUE, receipt_of(offset, 1), receipt_of(offset, 0))
    assert len(renewals) == RENEWALS_MAX
    assert renewals.allows(QUEUE, receipt_of(0, 9), 2)
    assert not renewals.allows(QUEUE, receipt_of(RENEWALS_MAX, 9), 2)


async def test_forged_receipts_make_one_copy_of_a_message_not_many(autojump_clock) -> None:
    async with embedded_broker() as broker:
        group = await consumer(broker)
        await group.send(1)
        (got,) = await group.pop(invisibleTime=30_000)
        real = Receipt.from_text(got.receipt)
        codes = []
        for number in range(60):
            forged = real._replace(pop_time=real.pop_time - number)
            answer = await group.change(got, 5_000, extraInfo=forged.to_text())
            codes.append(answer.code)
        assert codes == [0] + [ResponseCode.MESSAGE_ILLEGAL] * 59
        await seconds(60)
        assert group.end("%RETRY%G_T") == 1


async def test_requests_that_come_twice_get_the_same_receipt_and_make_no_copy(
    autojump_clock,
) -> None:
    async with embedded_broker() as broker:
        group = await consumer(broker)
        await group.send(1)
        (got,) = await group.pop(invisibleTime=30_000)
        fields = got.ack_fields(invisibleTime=20_000)
        code = RequestCode.CHANGE_MESSAGE_INVISIBLETIME
        texts = {name: str(value) for name, value in fields.items()}
        burst = [RemotingCommand(int(code), texts) for _ in range(20)]
        opaques = [await group.client.send(each) for each in burst]
        answers = [await group.client.answer(each) for each in opaques]
        assert {each.code for each in answers} == {0}
        assert len({each.ext_fields["popTime"] for each in answers}) == 1
        await seconds(60)
        assert group.end("%RETRY%G_T") == 1


async def test_a_receipt_that_is_over_changes_no_invisible_time(autojump_clock) -> None:
    async with embedded_broker() as broker:
        group = await consumer(broker)
        await group.send(1)
        (got,) = await group.pop(invisibleTime=5_000)
        await seconds(20)
        answer = await group.change(got, 60_000)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert "the receipt is over" in answer.remark
        await seconds(100)
        assert group.end("%RETRY%G_T") == 1


@pytest.mark.slow
async def test_a_message_is_renewed_again_and_again_by_the_receipts_of_the_answers(
    autojump_clock,
) -> None:
    async with embedded_broker() as broker:
        group = await consumer(broker)
        await group.send(1)
        (got,) = await group.pop(invisibleTime=10_000)
        receipt = Receipt.from_text(got.receipt)
        for _ in range(5):
            answer = await group.change(got, 10_000, extraInfo=receipt.to_text())
            assert answer.code == 0, answer.remark
            fields = answer.ext_fields
            receipt = receipt._replace(
                start_offset=receipt.offset,
                pop_time=int(fields["popTime"]),
                invisible_time=int(fields["invisibleTime"]),
            )
            await seconds(8)
        assert (await group.ack(got, extraInfo=receipt.to_text())).code == 0
        await seconds(60)
        assert group.end("%RETRY%G_T") == 0
