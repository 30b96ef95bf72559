"""Which messages a pop gives: queues, retry topics, filters, first offsets, resets."""

from __future__ import annotations

import pytest

from trocket.remoting.message_codec import decode_messages
from trocket.remoting.receipt import Receipt

from ...kit import START_MS, embedded_broker, put_record
from .consumer import PEEK, Consumer, consumer, pop_fields, seconds

V1, V2 = "%RETRY%G_T", "%RETRY%G+T"


def retried(group: Consumer, topic: str = V1, body: bytes = b"again", **more: str) -> None:
    """A message in a retry topic, as the revive service stores it."""
    broker = group.broker
    broker.controller.topics.create_topic_in_send_message_back(topic, queue_count=1)
    properties = {"UNIQ_KEY": "0123456789ABCDEF", **more}
    text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
    put_record(broker, topic, text, body)


async def test_a_pop_of_all_queues_begins_anywhere_and_takes_from_each(autojump_clock) -> None:
    async with embedded_broker() as broker:
        group = await consumer(broker)
        for queue_id in range(4):
            await group.send(3, queue_id)
        got = await group.pop(maxMsgNums=12)
        assert sorted((g.message.queue_id, g.message.queue_offset) for g in got) == [
            (queue_id, offset) for queue_id in range(4) for offset in range(3)
        ]
        for each in got:
            assert (await group.ack(each)).code == 0
        assert [group.committed(queue_id=queue_id) for queue_id in range(4)] == [3] * 4


async def test_the_rest_is_counted(autojump_clock) -> None:
    async with embedded_broker() as broker:
        group = await consumer(broker)
        for queue_id in range(4):
            await group.send(3, queue_id)
        answer = await group.ask_pop(maxMsgNums=2)
        assert answer.ext_fields["restNum"] == "10"


async def test_a_pop_reads_the_retry_topic_and_names_the_topic_that_was_asked(
    autojump_clock,
) -> None:
    async with embedded_broker() as broker:
        group = await consumer(broker)
        await group.send(1)
        retried(group)
        answer = await group.ask_pop()
        fields = answer.ext_fields
        assert sorted(fields["startOffsetInfo"].split(";")) == ["0 0 0", "1 0 0"]
        assert sorted(fields["msgOffsetInfo"].split(";")) == ["0 0 0", "1 0 0"]
        messages = {message.body: message for message in decode_messages(answer.body)}
        assert {message.topic for message in messages.values()} == {"T"}
        assert "POP_CK" not in messages[b"0"].properties
        receipt = Receipt.from_text(messages[b"again"].properties["POP_CK"])
        assert receipt == Receipt(0, START_MS, 60_000, 0, "1", "b", 0, 0)
        got = await group.pop(consumerGroup="G2")
        assert [each.message.body for each in got] == [b"0"]


async def test_messages_of_the_retry_topic_are_acknowledged_there(autojump_clock) -> None:
    async with embedded_broker() as broker:
        group = await consumer(broker)
        await group.send(1)
        await group.pop()
        retried(group)
        (got,) = await group.pop()
        assert (await group.ack(got)).code == 0
        assert group.committed(V1) == 1


async def test_a_receipt_that_a_message_has_already_stays(autojump_clock) -> None:
    async with embedded_broker() as broker:
        group = await consumer(broker)
        await group.send(1)
        await group.pop()
        retried(group, POP_CK="0 1 2 3 1 b 0 0")
        (got,) = await group.pop()
        assert got.receipt == "0 1 2 3 1 b 0 0"


async def test_a_message_without_room_for_a_receipt_is_given_without(autojump_clock) -> None:
    async with embedded_broker() as broker:
        group = await consumer(broker)
        await group.send(1)
        await group.pop()
        retried(group, LONG="x" * 32_700)
        answer = await group.ask_pop()
        (message,) = decode_messages(answer.body)
        assert "POP_CK" not in message.properties
        assert (message.topic, message.body) == ("T", b"again")


async def test_the_retry_topic_itself_may_be_shown(autojump_clock) -> None:
    async with embedded_broker(pop_response_return_actual_retry_topic=True) as broker:
        group = await consumer(broker)
        await group.send(1)
        await group.pop()
        retried(group)
        (got,) = await group.pop()
        assert got.message.topic == V1
        assert "POP_CK" not in got.message.properties


async def test_both_forms_of_the_retry_topic_are_read_in_turn(autojump_clock) -> None:
    async with embedded_broker(enable_retry_topic_v2=True) as broker:
        group = await consumer(broker)
        await group.send(1)
        await group.pop()
        retried(group, V1, b"old")
        retried(group, V2, b"new")
        found = {}
        for _ in range(40):
            answer = await group.ask_pop()
            if answer.code == 0:
                (entry,) = answer.ext_fields["startOffsetInfo"].split(";")
                found[decode_messages(answer.body)[0].body] = entry
        assert found == {b"old": "1 0 0", b"new": "2 0 0"}


async def test_the_old_form_is_not_read_where_a_key_says_so(autojump_clock) -> None:
    keys = {"enable_retry_topic_v2": True, "retrieve_message_from_pop_retry_topic_v1": False}
    async with embedded_broker(**keys) as broker:
        group = await consumer(broker)
        await group.send(1)
        await group.pop()
        retried(group, V1)
        for _ in range(20):
            assert (await group.ask_pop()).code == 210


async def test_what_the_new_form_has_is_read_after_it_was_switched_off(autojump_clock) -> None:
    async with embedded_broker(enable_retry_topic_v2=True) as broker:
        group = await consumer(broker)
        await group.send(1)
        await group.pop(invisibleTime=5_000)
        await seconds(8)
        assert len(await group.pop(invisibleTime=5_000)) == 1
        assert broker.controller.store.max_offset(V2, 0) == 1
        broker.controller.config.enable_retry_topic_v2 = False
        await seconds(8)
        answer = await group.ask_pop()
        assert answer.ext_fields["msgOffsetInfo"] == "2 0 1"


@pytest.mark.parametrize(("probability", "first"), [(100, b"again"), (0, b"0")])
async def test_the_retry_topic_comes_first_or_last(probability, first, autojump_clock) -> None:
    async with embedded_broker(pop_from_retry_probability=probability) as broker:
        group = await consumer(broker)
        await group.send(1)
        retried(group)
        (got,) = await group.pop(maxMsgNums=1)
        assert got.message.body == first


async def test_tags_are_filtered_and_what_is_skipped_is_passed(autojump_clock) -> None:
    async with embedded_broker() as broker:
        group = await consumer(broker)
        for tag in "ABABB":
            await group.send(1, i=f"UNIQ_KEY\x010123456789ABCDEF\x02TAGS\x01{tag}\x02")
        answer = await group.ask_pop(exp="A", expType="TAG")
        assert answer.ext_fields["msgOffsetInfo"] == "0 0 0,2"
        got = await group.pop(exp="B", consumerGroup="H")
        assert [each.message.queue_offset for each in got] == [1, 3, 4]
        assert (await group.ask_pop(exp="A")).code == 210
        assert group.committed() == 0  # behind the two that are not acknowledged
        # A group that wants nothing of this passes everything.
        assert (await group.ask_pop(exp="C", consumerGroup="I")).code == 210
        assert broker.controller.offsets.query_offset("I", "T", 0) == 5


async def test_messages_that_a_filter_chose_are_acknowledged_in_a_batch(autojump_clock) -> None:
    async with embedded_broker() as broker:
        group = await consumer(broker)
        for tag in "ABA":
            await group.send(1, i=f"UNIQ_KEY\x010123456789ABCDEF\x02TAGS\x01{tag}\x02")
        got = await group.pop(exp="A")
        assert (await group.ack_batch(got)).code == 0
        assert group.committed() == 3


@pytest.mark.parametrize("pulls_may", [True, False])
async def test_expressions_filter_whether_pulls_may_have_them_or_not(
    pulls_may, autojump_clock
) -> None:
    async with embedded_broker(enable_property_filter=pulls_may) as broker:
        group = await consumer(broker)
        for number in range(4):
            await group.send(1, i=f"UNIQ_KEY\x010123456789ABCDEF\x02a\x01{number}\x02")
        answer = await group.ask_pop(exp="a > 1", expType="SQL92")
        assert answer.ext_fields["msgOffsetInfo"] == "0 0 2,3"


async def test_a_new_group_begins_at_the_first_message(autojump_clock) -> None:
    async with embedded_broker() as broker:
        group = await consumer(broker)
        await group.send(3)
        assert len(await group.pop()) == 3


async def test_or_at_the_last_one_unless_all_are_in_memory(autojump_clock) -> None:
    async with embedded_broker(init_pop_offset_by_check_msg_in_mem=False) as broker:
        group = await consumer(broker)
        await group.send(3)
        (got,) = await group.pop(initMode=1)
        assert got.message.queue_offset == 2
    async with embedded_broker() as broker:
        group = await consumer(broker)
        await group.send(3)
        assert len(await group.pop(initMode=1)) == 3


async def test_a_reset_offset_is_where_the_next_pop_begins(autojump_clock) -> None:
    async with embedded_broker() as broker:
        group = await consumer(broker)
        await group.send(3)
        old = await group.pop()
        broker.controller.offsets.assign_reset_offset("G", "T", 0, 1)
        await seconds(1)
        new = await group.pop()
        assert [each.message.queue_offset for each in new] == [1, 2]
        for each in old:
            assert (await group.ack(each)).code == 0
        assert group.committed() == 1
        for each in new:
            assert (await group.ack(each)).code == 0
        assert group.committed() == 3


async def test_an_offset_past_the_end_goes_back(autojump_clock) -> None:
    async with embedded_broker() as broker:
        group = await consumer(broker)
        await group.send(3)
        broker.controller.offsets.commit_offset("G", "T", 0, 100)
        assert (await group.ask_pop()).code == 210
        assert group.committed() == 3
        await group.send(1)
        assert len(await group.pop()) == 1


async def test_too_many_messages_in_flight_stop_a_queue(autojump_clock) -> None:
    keys = {"enable_pop_message_threshold": True, "pop_inflight_message_threshold": 2}
    async with embedded_broker(**keys) as broker:
        group = await consumer(broker)
        await group.send(6)
        got = await group.pop(maxMsgNums=3)
        answer = await group.ask_pop()
        assert (answer.code, answer.ext_fields["restNum"]) == (210, "3")
        for each in got:
            await group.ack(each)
        assert len(await group.pop()) == 3


async def test_a_peek_pops_nothing(autojump_clock) -> None:
    async with embedded_broker() as broker:
        group = await consumer(broker)
        await group.send(3)
        for _ in range(2):
            answer = await group.client.ask(PEEK, pop_fields(maxMsgNums=2))
            assert (answer.code, answer.remark) == (0, "FOUND")
            assert len(decode_messages(answer.body)) == 2
            assert group.committed() == -1
        await group.pop()
        answer = await group.client.ask(PEEK, pop_fields())
        assert (answer.code, answer.remark) == (19, "NO_MESSAGE_IN_QUEUE")


async def test_a_deleted_topic_is_popped_anew(autojump_clock) -> None:
    async with embedded_broker() as broker:
        group = await consumer(broker)
        await group.send(3)
        await group.pop()
        assert (await group.client.ask(215, {"topic": "T"})).code == 0
        await group.send(2)
        assert len(await group.pop()) == 2
