"""Pop consumption by the independent client (`wire`): pops, and acks by receipts.

Receipts are put together here as an official client does it, without our own code for them.

Source: RocketMQ 5.5.0 remoting/protocol/header/ExtraInfoUtil.java, client/impl/MQClientAPIImpl.java
processPopResponse.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..common.message_properties import PROPERTY_POP_CK
from ..remoting.message_codec import decode_record
from .process import PeerError
from .wire import SUCCESS, WireClient, split_records

POP_MESSAGE = 200050
ACK_MESSAGE = 200051

POLLING_FULL = 209
POLLING_TIMEOUT = 210
NOTHING = (POLLING_FULL, POLLING_TIMEOUT)
"""Codes of an answer without messages."""

FROM_THE_FIRST = 0
NORMAL = "0"
RETRY_V1 = "1"
"""Forms of topics in receipts."""


@dataclass(frozen=True, slots=True)
class Popped:
    """One delivery of a message.

    Attributes:
      topic: where the message is: the topic, or the group's retry topic.
      receipt: what an ack names.
      reconsume_times: the number of earlier deliveries that count.
    """

    topic: str
    queue_id: int
    queue_offset: int
    body: bytes
    receipt: str
    reconsume_times: int

    @property
    def is_retry(self) -> bool:
        """Whether it was delivered before, and not acknowledged in time."""
        return self.topic.startswith("%RETRY%")


def pop(
    client: WireClient,
    group: str,
    topic: str,
    *,
    now_ms: int,
    count: int = 32,
    invisible_ms: int = 60_000,
    poll_ms: int = 0,
    broker_name: str = "broker-a",
) -> list[Popped]:
    """Pop from all queues of a topic, and its retry topic of the first form.

    Args:
      now_ms: the wall clock, ms since 1970.
      poll_ms: how long the broker waits for messages, ms.
    Returns: what was delivered; nothing if there is none.
    Raises: PeerError: the broker refuses, or the answer does not fit together.
    """
    fields = {
        "consumerGroup": group,
        "topic": topic,
        "queueId": -1,
        "maxMsgNums": count,
        "invisibleTime": invisible_ms,
        "pollTime": poll_ms,
        "bornTime": now_ms,
        "initMode": FROM_THE_FIRST,
        "expType": "TAG",
        "exp": "*",
        "order": False,
    }
    answer = client.call(POP_MESSAGE, fields)
    if answer.code in NOTHING:
        return []
    found = [
        _popped(record, answer.fields, group, topic, broker_name)
        for record in split_records(answer.checked().body)
    ]
    offsets = _entries(answer.fields["msgOffsetInfo"])
    announced = sum(len(text.split(",")) for _, _, text in offsets)
    if announced != len(found):
        raise PeerError(f"{len(found)} messages, but {announced} offsets")
    return found


def _popped(
    record: bytes, fields: Mapping[str, str], group: str, topic: str, broker_name: str
) -> Popped:
    message = decode_record(record)
    receipt = message.properties.get(PROPERTY_POP_CK)
    if receipt is None:
        starts = {
            (form, queue): start for form, queue, start in _entries(fields["startOffsetInfo"])
        }
        queue_id = str(message.queue_id)
        start = starts.get((NORMAL, queue_id))
        if start is None:
            raise PeerError(f"a message of queue {queue_id}, but offsets of {sorted(starts)}")
        times = (fields["popTime"], fields["invisibleTime"], fields["reviveQid"])
        place = (NORMAL, broker_name, queue_id, str(message.queue_offset))
        receipt = " ".join([start, *times, *place])
    is_retry = receipt.split(" ")[4] == RETRY_V1
    return Popped(
        f"%RETRY%{group}_{topic}" if is_retry else topic,
        message.queue_id,
        message.queue_offset,
        message.body,
        receipt,
        message.reconsume_times,
    )


def ack(client: WireClient, group: str, popped: Popped) -> None:
    """Acknowledge a delivery. Raises: PeerError: the broker refuses."""
    fields: Mapping[str, object] = {
        "consumerGroup": group,
        "topic": popped.topic,
        "queueId": popped.queue_id,
        "extraInfo": popped.receipt,
        "offset": popped.queue_offset,
    }
    answer = client.call(ACK_MESSAGE, fields)
    if answer.code != SUCCESS:
        raise PeerError(f"ack of {popped}: {answer.code} {answer.remark}")


def _entries(text: str) -> list[tuple[str, str, str]]:
    """The entries of startOffsetInfo or msgOffsetInfo. Raises: PeerError: one is malformed."""
    found = []
    for entry in text.split(";"):
        parts = entry.split(" ")
        if len(parts) != 3:
            raise PeerError(f"an entry without three parts: {entry!r}")
        found.append((parts[0], parts[1], parts[2]))
    return found
