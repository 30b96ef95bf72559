"""PopRecords: which popped messages are not acknowledged, from a broker's records of pops.

A broker keeps a check point of each pop, and acknowledgements of its messages, in memory or as
messages: first of rmq_sys_wheel_timer, and from about their due time on of the revive topic.

Source: store/pop/PopCheckPoint.java, AckMsg.java, BatchAckMsg.java of RocketMQ 5.5.0. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ...common import message_properties as names
from ...remoting.bodies import AckBody, BatchAckBody, CheckPointBody
from ...remoting.bodies.pop import ACK_TAG, BATCH_ACK_TAG, CHECK_POINT_TAG
from ...remoting.errors import RemoteProtocolError
from ...remoting.message import MessageExt
from ...remoting.receipt import Receipt, TopicForm

_Key = tuple[str, str, int, int, int]


class Unacked(NamedTuple):
    """A popped message that is not acknowledged.

    Attributes:
      topic: where it is: the topic, or the group's retry topic.
      receipt: its receipt, with queue, offset and times.
      is_stored: whether its check point is stored; false: it is in the broker's memory only.
    """

    topic: str
    receipt: Receipt
    is_stored: bool


class PopRecords:
    """The records of one broker about one group.

    Args:
      group: full name.
    """

    def __init__(self, group: str, broker_name: str) -> None:
        self._group = group
        self._broker_name = broker_name
        self._points: dict[_Key, tuple[CheckPointBody, int, bool]] = {}
        self._acked: dict[_Key, set[int]] = {}
        self._due: set[_Key] = set()  # seen where the broker reads records that are due

    def take(self, message: MessageExt, revive_topic: str) -> None:
        """Process a message of the revive topic or of rmq_sys_wheel_timer; others are ignored."""
        properties = message.properties
        # A waiting timer message says where it will be delivered.
        if properties.get(names.PROPERTY_REAL_TOPIC, message.topic) != revive_topic:
            return
        tag = properties.get(names.PROPERTY_TAGS)
        queue = properties.get(names.PROPERTY_REAL_QUEUE_ID, "")
        queue_id = int(queue) if queue.isdecimal() and len(queue) < 10 else message.queue_id
        try:
            if tag == CHECK_POINT_TAG:
                point = CheckPointBody.from_body(message.body)
                if message.topic == revive_topic:
                    self._due.add(_key(point))
                self.take_check_point(point, queue_id)
            elif tag == ACK_TAG:
                ack = AckBody.from_body(message.body)
                self._take_ack(ack, [ack.ack_offset])
            elif tag == BATCH_ACK_TAG:
                batch = BatchAckBody.from_body(message.body)
                self._take_ack(batch, batch.ack_offsets)
        except RemoteProtocolError:
            pass  # not a record; the broker skips it, too

    def take_check_point(
        self, body: CheckPointBody, revive_queue_id: int, *, is_stored: bool = True
    ) -> None:
        """Process a check point, with its acknowledged messages.

        Args:
          revive_queue_id: queue of the revive topic.
          is_stored: false: it is in the broker's memory only.
        """
        if body.group != self._group:
            return
        key = _key(body)
        acked = self._acked.setdefault(key, set())
        acked.update(
            offset for index, offset in enumerate(body.offsets) if body.bit_map >> index & 1
        )
        known = self._points.get(key)
        if known is None or (is_stored and not known[2]):
            self._points[key] = (body, revive_queue_id, is_stored)

    def _take_ack(self, ack: AckBody, offsets: list[int]) -> None:
        if ack.group == self._group:
            self._acked.setdefault(_key(ack), set()).update(offsets)

    def unacked(self, now_ms: int) -> Iterator[Unacked]:
        """The messages that are not acknowledged, by the time of their pops.

        One whose time is over is left out if its check point is only among the waiting records: it
        is visible again, as the broker has processed that record.

        Args:
          now_ms: ms since 1970.
        """
        for key, (body, revive_queue_id, is_stored) in sorted(
            self._points.items(), key=lambda item: item[1][0].pop_time
        ):
            is_over = body.pop_time + body.invisible_time <= now_ms
            if is_over and is_stored and key not in self._due:
                continue
            acked = self._acked.get(key, ())
            for offset in body.offsets:
                if offset not in acked:
                    receipt = Receipt(
                        body.start_offset,
                        body.pop_time,
                        body.invisible_time,
                        revive_queue_id,
                        TopicForm.of(body.topic),
                        body.broker_name or self._broker_name,
                        body.queue_id,
                        offset,
                    )
                    yield Unacked(body.topic, receipt, is_stored)


def _key(body: CheckPointBody | AckBody) -> _Key:
    """The identity of a check point on one broker, which its acknowledgements repeat."""
    return (body.topic, body.group, body.queue_id, body.start_offset, body.pop_time)
