"""A pop consumer of a few lines: sends pops and acknowledgements, builds receipts as Java does."""

from __future__ import annotations

import base64
import json
from typing import Any, NamedTuple

import trio

from trocket.remoting.codec import RemotingCommand
from trocket.remoting.message import MessageExt
from trocket.remoting.message_codec import decode_messages, decode_record
from trocket.remoting.receipt import (
    QueueKey,
    Receipt,
    TopicForm,
    decode_offsets,
    decode_start_offsets,
)

from ...kit import Broker, send_fields
from ...kit.client import Client

SEND, POP, ACK, BATCH_ACK, PEEK, CHANGE = 310, 200050, 200051, 200151, 200052, 200053
COMMIT_OFFSET, QUERY_OFFSET = 15, 14
REVIVE = "rmq_sys_REVIVE_LOG_DefaultCluster"
TIMER = "rmq_sys_wheel_timer"


def pop_fields(topic: str = "T", queue_id: int = -1, **more: object) -> dict[str, object]:
    """The header of POP_MESSAGE: everything, from the first message on, without waiting."""
    fields: dict[str, object] = {
        "consumerGroup": "G", "topic": topic, "queueId": queue_id, "maxMsgNums": 32,
        "invisibleTime": 60_000, "pollTime": 0, "bornTime": 0, "initMode": 0,
        "order": "false",
    }  # fmt: skip
    return fields | more


class Got(NamedTuple):
    """A popped message, and its receipt."""

    message: MessageExt
    receipt: str

    def ack_fields(self, **more: object) -> dict[str, object]:
        receipt = Receipt.from_text(self.receipt)
        topic = receipt.form.real_topic("T", "G")
        fields: dict[str, object] = {
            "consumerGroup": "G", "topic": topic, "queueId": receipt.queue_id,
            "extraInfo": self.receipt, "offset": receipt.offset,
        }  # fmt: skip
        return fields | more


def stored_in(broker: Broker, topic: str, queue_id: int = 0) -> list[MessageExt]:
    """All messages of a queue, as the store has them."""
    store, found = broker.controller.store, []
    for offset in range(store.max_offset(topic, queue_id)):
        result = store.get_message(topic, queue_id, offset, 1)
        found.append(decode_record(b"".join(result.buffers)))
    return found


def messages_of(answer: RemotingCommand) -> list[Got]:
    """The messages of an answer with their receipts."""
    fields = answer.ext_fields
    starts = decode_start_offsets(fields["startOffsetInfo"])
    offsets = decode_offsets(fields["msgOffsetInfo"])
    found = []
    for message in decode_messages(answer.body):
        receipt = message.properties.get("POP_CK")
        if receipt is None:
            form = TopicForm.of(message.topic)
            key = QueueKey(form, message.queue_id)
            assert message.queue_offset in offsets[key]
            receipt = Receipt(
                starts[key], int(fields["popTime"]), int(fields["invisibleTime"]),
                int(fields["reviveQid"]), form, "b", message.queue_id, message.queue_offset,
            ).to_text()  # fmt: skip
        found.append(Got(message, receipt))
    return found


class Consumer:
    """A group's consumer on a connection of its own."""

    def __init__(self, broker: Broker, client: Client) -> None:
        self.broker = broker
        self.client = client

    async def send(self, count: int = 1, queue_id: int = 0, **more: object) -> None:
        """Store messages of the topic T: bodies 0, 1, …"""
        for number in range(count):
            fields = send_fields("T", queue_id, **more)
            answer = await self.client.ask(SEND, fields, b"%d" % number)
            assert answer.code == 0, answer.remark

    async def ask_pop(self, **more: Any) -> RemotingCommand:
        return await self.client.ask(POP, pop_fields(**more))

    async def pop(self, **more: object) -> list[Got]:
        """Pop, and expect messages."""
        answer = await self.ask_pop(**more)
        assert answer.code == 0, answer.remark
        return messages_of(answer)

    async def ack(self, got: Got, **more: object) -> RemotingCommand:
        return await self.client.ask(ACK, got.ack_fields(**more))

    async def ack_batch(self, got: list[Got], **more: object) -> RemotingCommand:
        """Acknowledge messages of one pop and one queue."""
        receipts = [Receipt.from_text(each.receipt) for each in got]
        first = receipts[0]
        bits = sum(1 << receipt.offset - first.start_offset for receipt in receipts)
        size = (bits.bit_length() + 7) // 8
        entry: dict[str, Any] = {
            "c": "G", "t": "T", "r": first.form.value, "so": first.start_offset,
            "q": first.queue_id, "rq": first.revive_queue_id, "pt": first.pop_time,
            "it": first.invisible_time,
            "b": base64.b64encode(bits.to_bytes(size, "little")).decode(),
        }  # fmt: skip
        body = {"brokerName": "b", "acks": [entry | more]}
        return await self.client.ask(BATCH_ACK, {}, json.dumps(body).encode())

    async def change(self, got: Got, invisible_time: int, **more: object) -> RemotingCommand:
        fields = got.ack_fields(invisibleTime=invisible_time) | more
        return await self.client.ask(CHANGE, fields)

    def committed(self, topic: str = "T", queue_id: int = 0) -> int:
        return self.broker.controller.offsets.query_offset("G", topic, queue_id)

    def end(self, topic: str, queue_id: int = 0) -> int:
        return self.broker.controller.store.max_offset(topic, queue_id)

    def stored(self, topic: str, queue_id: int = 0) -> list[MessageExt]:
        """All messages of a queue."""
        return stored_in(self.broker, topic, queue_id)

    def waiting(self) -> list[str]:
        """The tags of the records that wait as timer messages."""
        return [message.tags or "" for message in self.stored(TIMER)]


async def consumer(broker: Broker) -> Consumer:
    return Consumer(broker, await broker.connect())


async def seconds(count: float) -> None:
    """Let virtual time pass."""
    await trio.sleep(count)
