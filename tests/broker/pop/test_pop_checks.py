"""What is refused to pops, acknowledgements and changes: RocketMQ's codes and remarks."""

from __future__ import annotations

import base64
import errno
import json

import pytest
import trio
import trio.testing

from trocket.disk.memory_disk import MemoryDisk
from trocket.remoting.message_codec import decode_messages
from trocket.remoting.receipt import Receipt

from ...kit import START_MS, embedded_broker
from .consumer import ACK, BATCH_ACK, CHANGE, PEEK, POP, consumer, pop_fields

FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
ILLEGAL = "queueId[4] is illegal, topic:[T] topicConfig.readQueueNums:[4]"
BIG = 2**63
NOTIFICATION, POLLING_INFO = 200054, 200055


@pytest.mark.parametrize(
    ("options", "fields", "code", "remark"),
    [
        (
            {},
            {"bornTime": START_MS - 1_501, "pollTime": 1_000},
            210,
            "the broker[127.0.0.1] pop message is timeout too much",
        ),
        (
            {"broker_permission": 2},
            {},
            16,
            "the broker[127.0.0.1] pop message is forbidden",
        ),
        (
            {},
            {"maxMsgNums": 33},
            29,
            "the broker[127.0.0.1] pop message's num is greater than 32",
        ),
        (
            {"timer_wheel_enable": False},
            {},
            1,
            "the broker[127.0.0.1] pop message is forbidden because timerWheelEnable is false",
        ),
        ({}, {"topic": "Unknown"}, 17, f"topic[Unknown] not exist, apply first please! {FAQ}"),
        (
            {},
            {"queueId": 4},
            29,
            f"{ILLEGAL} consumer:[/127.0.0.1:0]",
        ),
        (
            {"auto_create_subscription_group": False},
            {},
            26,
            f"subscription group [G] does not exist, {FAQ}",
        ),
        (
            {},
            {"consumerGroup": "CID_RMQ_SYS_TRANS"},
            16,
            "the offsets of the group[CID_RMQ_SYS_TRANS] are the broker's own",
        ),
        (
            {"enable_property_filter": True},
            {"expType": "SQL92", "exp": "a >"},
            23,
            "parse the consumer's subscription failed",
        ),
        (
            {},
            {"expType": "Other", "exp": "a"},
            23,
            "parse the consumer's subscription failed",
        ),
        (
            {},
            {"expType": "SQL92", "exp": "a >"},
            23,
            "parse the consumer's subscription failed",
        ),
        ({}, {"exp": "a" * 40_000}, 23, "parse the consumer's subscription failed"),
    ],
)
async def test_a_pop_is_refused(options, fields, code, remark, autojump_clock) -> None:
    async with embedded_broker(**options) as broker:
        group = await consumer(broker)
        broker.controller.topics.create_topic_in_send_message("T", "TBW102", "", 4)
        answer = await group.ask_pop(**fields)
        assert (answer.code, answer.remark) == (code, remark)


async def test_a_pop_by_an_expression_needs_no_key_of_the_broker(autojump_clock) -> None:
    """As Apache's: consumers behind its proxy pop, and filter by SQL92 at any broker."""
    async with embedded_broker(enable_property_filter=False) as broker:
        group = await consumer(broker)
        for value in ("1", "2"):
            await group.send(i=f"a\x01{value}\x02")
        answer = await group.ask_pop(expType="SQL92", exp="a > 1")
        assert [message.properties["a"] for message in decode_messages(answer.body)] == ["2"]


@pytest.mark.parametrize(
    ("asked", "used"), [(259_200_001, 259_200_000), (2**63 - 1, 259_200_000), (-1, 0)]
)
async def test_an_invisible_time_that_no_record_can_wait_for_is_the_nearest_one(
    asked, used, autojump_clock
) -> None:
    async with embedded_broker() as broker:
        group = await consumer(broker)
        await group.send()
        answer = await group.ask_pop(invisibleTime=asked)
        assert (answer.code, answer.ext_fields["invisibleTime"]) == (0, str(used))


POP_NUMBERS = ["queueId", "maxMsgNums", "invisibleTime", "pollTime", "bornTime", "initMode"]


@pytest.mark.parametrize(
    ("code", "names"),
    [
        (POP, POP_NUMBERS),
        (PEEK, ["queueId", "maxMsgNums"]),
        (NOTIFICATION, ["queueId", "pollTime", "bornTime"]),
        (POLLING_INFO, ["queueId"]),
    ],
)
async def test_a_number_of_a_pop_that_is_missing_is_zero(code, names, autojump_clock) -> None:
    """Java's fields begin as 0, and Apache's broker serves what a client leaves out."""
    async with embedded_broker() as broker:
        group = await consumer(broker)
        await group.send()
        for name in names:
            answers = []
            for change in ({}, {name: 0}):
                fields = pop_fields() | change
                if not change:
                    del fields[name]
                fields["consumerGroup"] = f"{name}-{len(answers)}"
                answers.append(await group.client.ask(code, fields))
            missing, zero = answers
            assert (missing.code, missing.remark) == (zero.code, zero.remark), name
            assert missing.code in (0, 19, 210), name


async def test_a_change_to_less_than_no_time_gives_the_message_back_at_once(autojump_clock) -> None:
    async with embedded_broker() as broker:
        group = await consumer(broker)
        await group.send()
        (got,) = await group.pop()
        answer = await group.change(got, -5)
        assert (answer.code, answer.ext_fields["invisibleTime"]) == (0, "0")
        await trio.sleep(5)
        (again,) = await group.pop()
        assert again.message.body == got.message.body


async def test_a_topic_that_may_not_be_read_is_refused(autojump_clock) -> None:
    async with embedded_broker() as broker:
        group = await consumer(broker)
        broker.controller.topics.create_topic_in_send_message_back("T", queue_count=1, perm=2)
        answer = await group.ask_pop()
        assert (answer.code, answer.remark) == (16, "the topic[T] peeking message is forbidden")
        answer = await group.client.ask(PEEK, pop_fields())
        assert (answer.code, answer.remark) == (16, "the topic[T] peeking message is forbidden")


async def test_a_pop_that_finds_nothing_and_does_not_wait(autojump_clock) -> None:
    async with embedded_broker() as broker:
        group = await consumer(broker)
        await group.send()
        await group.pop()
        answer = await group.ask_pop()
        assert (answer.code, answer.remark) == (210, "NO_MESSAGE_IN_QUEUE")
        assert answer.ext_fields["restNum"] == "0"
        assert answer.ext_fields["startOffsetInfo"] == ""


RECEIPT = Receipt.from_text(f"0 {START_MS} 60000 1 0 b 0 0")


def ack_fields(receipt: str, **more: object) -> dict[str, object]:
    return {
        "consumerGroup": "G", "topic": "T", "queueId": 0, "extraInfo": receipt, "offset": 0,
        "invisibleTime": 1_000,
    } | more  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("code", [ACK, CHANGE])
@pytest.mark.parametrize(
    ("fields", "expected", "remark"),
    [
        ({"topic": "Unknown"}, 17, f"topic[Unknown] not exist, apply first please! {FAQ}"),
        ({"queueId": -1}, 13, "queueId[-1] is illegal, topic:[T] topicConfig.readQueueNums:[4] "),
        ({"queueId": 4}, 13, "queueId[4] is illegal, topic:[T] topicConfig.readQueueNums:[4] "),
        ({"offset": -1}, 208, ""),
        ({"offset": 3}, 208, ""),
        ({"offset": BIG - 1}, 208, ""),
        ({"offset": BIG}, 1, "<offset>"),
        ({"queueId": 2**31}, 1, "<queueId>"),
        ({"extraInfo": ""}, 1, "receipt of 1 fields"),
        ({"extraInfo": "x " * 20}, 1, ""),
        ({"extraInfo": f"{BIG} 1 1 1 0 b 0 0"}, 1, "not an integer"),
        ({"extraInfo": f"-1 {START_MS} 1 1 0 b 0 0"}, 13, "negative or too large"),
        ({"extraInfo": f"0 {BIG - 1} {BIG - 1} 1 0 b 0 0"}, 13, "negative or too large"),
        ({"extraInfo": f"0 {START_MS} 1 8 0 b 0 0"}, 13, "queue 8 of the revive topic"),
        ({"extraInfo": f"0 {START_MS} 1 -1 0 b 0 0"}, 13, "queue -1 of the revive topic"),
        ({"extraInfo": f"0 {START_MS} 1 1 7 b 0 0"}, 1, "of the form '7'"),
        ({"liteTopic": "x"}, 29, "group type or bind topic not match."),
    ],
)
async def test_a_receipt_is_refused(code, fields, expected, remark, autojump_clock) -> None:
    async with embedded_broker() as broker:
        group = await consumer(broker)
        await group.send(2)
        answer = await group.client.ask(code, ack_fields(RECEIPT.to_text(), **fields))
        assert answer.code == expected
        assert remark in (answer.remark or "")
        assert group.waiting() == []


async def test_an_illegal_offset_is_named_with_those_of_the_queue(autojump_clock) -> None:
    async with embedded_broker() as broker:
        group = await consumer(broker)
        await group.send(2)
        answer = await group.client.ask(ACK, ack_fields(RECEIPT.to_text(), offset=3))
        assert answer.remark == "offset is illegal, key:T@0, commit:3, store:0~2"


async def test_a_record_that_would_wait_too_long_is_refused(autojump_clock) -> None:
    async with embedded_broker() as broker:
        group = await consumer(broker)
        await group.send(2)
        late = f"0 {START_MS} 999999999999 1 0 b 0 0"
        answer = await group.client.ask(ACK, ack_fields(late))
        assert answer.code == 13
        answer = await group.client.ask(CHANGE, ack_fields(RECEIPT.to_text(), invisibleTime=BIG))
        assert answer.code == 1
        fields = ack_fields(RECEIPT.to_text(), invisibleTime=259_200_001)
        assert (await group.client.ask(CHANGE, fields)).code == 29
        assert group.waiting() == []


async def test_a_group_whose_name_cannot_be_stored_is_refused(autojump_clock) -> None:
    async with embedded_broker() as broker:
        group = await consumer(broker)
        await group.send(2)
        fields = ack_fields(RECEIPT.to_text(), consumerGroup="a\x01b\x02c")
        assert (await group.client.ask(ACK, fields)).code == 13
        fields["consumerGroup"] = "g" * 40_000
        assert (await group.client.ask(ACK, fields)).code == 13


def batch(**more: object) -> bytes:
    entry = {
        "c": "G", "t": "T", "r": "0", "so": 0, "q": 0, "rq": 1, "pt": START_MS, "it": 60_000,
        "b": "AQ==",
    } | more  # fmt: skip
    return json.dumps({"brokerName": "b", "acks": [entry]}).encode()


@pytest.mark.parametrize("body", [b"", b"{}", b'{"acks":[]}', b'{"acks":null}'])
async def test_a_batch_without_acknowledgements_is_refused(body, autojump_clock) -> None:
    async with embedded_broker() as broker:
        group = await consumer(broker)
        answer = await group.client.ask(BATCH_ACK, {}, body)
        assert (answer.code, answer.remark) == (208, None)


@pytest.mark.parametrize(
    ("entry", "code"),
    [
        ({"b": "%%%"}, 1),
        ({"b": "A" * 5}, 1),
        ({"b": base64.b64encode(bytes(20_000)).decode()}, 29),
        ({"so": "x"}, 1),
        ({"so": BIG}, 1),
        ({"b": "/////w8="}, 0),
        ({"r": "9"}, 0),
        ({"t": "Unknown"}, 0),
        ({"q": -1}, 0),
        ({"q": 4}, 0),
        ({"rq": 8}, 0),
        ({"rq": -1}, 0),
        ({"so": -1}, 0),
        ({"pt": -1}, 0),
        ({"so": 100}, 0),
        ({"b": ""}, 0),
    ],
)
async def test_a_wrong_entry_of_a_batch_stores_nothing(entry, code, autojump_clock) -> None:
    async with embedded_broker() as broker:
        group = await consumer(broker)
        await group.send(2)
        answer = await group.client.ask(BATCH_ACK, {}, batch(**entry))
        assert answer.code == code
        assert group.waiting() == []


async def test_a_batch_of_an_unknown_pop_is_stored(autojump_clock) -> None:
    async with embedded_broker() as broker:
        group = await consumer(broker)
        await group.send(2)
        assert (await group.client.ask(BATCH_ACK, {}, batch(b="Aw=="))).code == 0
        assert group.waiting() == ["bAck"]


async def test_too_many_pops_in_one_batch_are_refused(autojump_clock) -> None:
    async with embedded_broker() as broker:
        group = await consumer(broker)
        await group.send(2)
        body = json.loads(batch())
        body["acks"] *= 1_025
        answer = await group.client.ask(BATCH_ACK, {}, json.dumps(body).encode())
        assert answer.code == 29


@pytest.mark.slow
async def test_another_client_is_served_while_many_acknowledgements_are_stored(
    autojump_clock,
) -> None:
    disk, answered = MemoryDisk(), []
    async with embedded_broker(disk) as broker, trio.open_nursery() as nursery:
        group, other = await consumer(broker), await consumer(broker)
        await group.send(2)
        body = json.loads(batch())
        entries = [body["acks"][0] | {"pt": START_MS + number} for number in range(1_024)]
        first_written = trio.Event()

        async def send() -> None:
            await first_written.wait()
            await other.send(1)
            answered.append("send")

        nursery.start_soon(send)
        await trio.testing.wait_all_tasks_blocked()
        disk.fault = lambda operation, path: first_written.set()
        text = json.dumps(body | {"acks": entries}).encode()
        assert (await group.client.ask(BATCH_ACK, {}, text)).code == 0
        answered.append("batch")
        assert group.waiting() == ["ack"] * 1_024
    assert answered == ["send", "batch"]


@pytest.mark.slow
async def test_many_acknowledgements_are_refused_if_some_of_them_cannot_be_stored(
    autojump_clock,
) -> None:
    disk, writes = MemoryDisk(), []

    def fail_once(operation: str, path: str) -> OSError | None:
        if operation == "pwrite" and "commitlog" in path:
            writes.append(path)
            if len(writes) == 3:
                return OSError(errno.EIO, "broken")
        return None

    async with embedded_broker(disk) as broker:
        group = await consumer(broker)
        await group.send(2)
        body = json.loads(batch())
        entries = [body["acks"][0] | {"pt": START_MS + number} for number in range(1_024)]
        disk.fault = fail_once
        text = json.dumps(body | {"acks": entries}).encode()
        assert (await group.client.ask(BATCH_ACK, {}, text)).code != 0
        disk.fault = None


async def test_too_long_bit_sets_in_one_batch_are_refused(autojump_clock) -> None:
    async with embedded_broker() as broker:
        group = await consumer(broker)
        await group.send(2)
        body = json.loads(batch(b="A" * 16 * 1024))
        for count, code in ((32, 0), (33, 29)):
            text = json.dumps(body | {"acks": body["acks"] * count})
            answer = await group.client.ask(BATCH_ACK, {}, text.encode())
            assert answer.code == code


@pytest.mark.parametrize(
    "field",
    ["queueId", "maxMsgNums", "invisibleTime", "pollTime", "bornTime", "initMode"],
)
@pytest.mark.parametrize("number", [-(2**63) - 1, -(2**63), -1, 0, 2**31, 2**63 - 1, 2**63, "x"])
async def test_no_number_of_a_pop_breaks_the_broker(field, number, autojump_clock) -> None:
    async with embedded_broker() as broker:
        group = await consumer(broker)
        await group.send(2)
        answer = await group.ask_pop(**{field: number})
        assert answer.code in {0, 1, 29, 210}
        assert "error" not in (answer.remark or "").lower()
        # Whatever it was, others are served.
        other = await group.ask_pop(consumerGroup="H")
        assert other.code == 0
