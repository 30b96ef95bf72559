"""Changes of the invisible time of a popped message: CHANGE_MESSAGE_INVISIBLETIME 200053.

The message gets a new check point, which is stored with the turn, and is acknowledged for the old
one.

Java counterpart: broker/processor/ChangeInvisibleTimeProcessor.java of 5.5.0.
"""

from __future__ import annotations

from typing import Final

import msgspec

from ...remoting.channel import Channel, Processor
from ...remoting.codec import RemotingCommand, encode
from ...remoting.errors import RequestRefused
from ...remoting.headers import ChangeInvisibleTimeRequestHeader, decode, encode_header
from ...remoting.receipt import Receipt
from ...remoting.request_codes import RequestCode
from ...remoting.response_codes import NOT_SET, ResponseCode
from ...store.message_store import MessageStore
from ..puts.send_turn import SendTurn
from ..tables.topic_config_manager import TopicConfigManager
from .acks import Acks
from .buffer import OrderKey
from .check_point import CheckPoint
from .parts import Pop
from .pop_checks import read_receipt, refuse_lite, refuse_long_time, refuse_no_queue
from .renewals import CheckPointId, Renewals

CLOCK_STEP_MAX_MS: Final = 1_000
"""How much earlier than the last pop the wall clock may be, without a change of the clock."""


class ChangeInvisibleTimeProcessor:
    """Serves changes of invisible times.

    Args:
      store: already loaded.
      pop: the parts of pop consumption.
    """

    def __init__(
        self,
        store: MessageStore,
        turn: SendTurn,
        pop: Pop,
        topics: TopicConfigManager,
    ) -> None:
        self._store = store
        self._topic_table = topics.topic_config_table
        self._wall_ms = store.clock.wall_ms
        self._acks = Acks(pop.buffer, pop.puts, turn, pop.revive)
        self._turn = turn
        self._orders = pop.orders
        self._renewals = Renewals()
        self.processors: dict[RequestCode, Processor] = {
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME: self.change,
        }

    def change(self, request: RemotingCommand, channel: Channel) -> None:
        """Serve a change; the answer, with the parts of the new receipt, leaves with the turn.

        Raises: RequestRefused: with Apache's codes and remarks; SYSTEM_ERROR: the receipt cannot be
          read, or the new check point not be stored; INVALID_PARAMETER: the time is too long.
        """
        header = decode(ChangeInvisibleTimeRequestHeader, request.ext_fields)
        if header.invisible_time < 0:  # the message comes again at once, as with RocketMQ
            header = msgspec.structs.replace(header, invisible_time=0)
        topic, queue_id, offset = header.topic, header.queue_id, header.offset
        refuse_no_queue(self._topic_table, topic, queue_id, channel)
        refuse_lite(header.lite_topic)
        store = self._store
        if not store.min_offset(topic, queue_id) <= offset < store.max_offset(topic, queue_id):
            raise RequestRefused(ResponseCode.NO_MESSAGE, NOT_SET)
        receipt = read_receipt(header.extra_info)
        refuse_long_time(header.invisible_time, store.config)
        if receipt.in_order:
            changed = self._orders.change_invisible_time(
                topic,
                header.consumer_group,
                queue_id,
                offset,
                pop_time=receipt.pop_time,
                invisible_time=header.invisible_time,
            )
            fields = encode_header(changed)
            channel.write(encode(request.answer(ResponseCode.SUCCESS, NOT_SET, fields)))
            return
        reason = self._acks.refusal(receipt)
        if reason:
            raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, reason)
        queue = OrderKey(topic, header.consumer_group, queue_id)
        asked = receipt._replace(offset=offset)
        known = self._renewals.repeated(queue, asked, self._wall_ms())
        if known is None:
            self._refuse_unknown(queue, asked)
        self._turn.begin(channel)
        if known is None:
            known = self._renew(queue, asked, header)
        fields = {
            "popTime": str(known.pop_time),
            "invisibleTime": str(known.invisible_time),
            "reviveQid": str(known.revive_queue_id),
        }
        self._turn.answer(request, request.answer(ResponseCode.SUCCESS, NOT_SET, fields), True)

    def _renew(
        self, queue: OrderKey, receipt: Receipt, header: ChangeInvisibleTimeRequestHeader
    ) -> CheckPointId:
        """Store a new check point, and return it.

        Raises: RequestRefused: SYSTEM_ERROR: it is not stored.
        """
        now_ms = _later(self._wall_ms(), receipt.pop_time)
        renewed = CheckPoint(
            *queue,
            receipt.offset,
            now_ms,
            header.invisible_time,
            receipt.broker_name,
            range(1),
            suspend=bool(header.suspend),
        )
        refusal = self._acks.renew(renewed, receipt)
        if refusal is not None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, refusal.remark or refusal.status.name)
        last = receipt._replace(
            start_offset=receipt.offset, pop_time=now_ms, invisible_time=header.invisible_time
        )
        self._renewals.note(queue, last, receipt)
        return CheckPointId.of(last)

    def _refuse_unknown(self, queue: OrderKey, receipt: Receipt) -> None:
        """Refuse a receipt that is over, or is not the last one of its message.

        Raises: RequestRefused: MESSAGE_ILLEGAL.
        """
        # Each accepted receipt stores a check point, and each check point becomes a copy of the
        # message.
        now_ms = self._wall_ms()
        if now_ms > receipt.revive_time + CLOCK_STEP_MAX_MS:
            reason = (
                f"the receipt is over since {now_ms - receipt.revive_time} ms, so the message "
                "is given out again"
            )
            raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, reason)
        if self._acks.find(queue, receipt) is not None:
            return
        if not self._renewals.allows(queue, receipt, now_ms):
            reason = "the invisible time was changed before: use the receipt of that answer"
            raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, reason)


def _later(now_ms: int, pop_time: int) -> int:
    """The pop time of a new check point: the wall clock, but after that of the old one.

    A check point is identified by its pop time and first offset. If they were those of the old one,
    its acknowledgement would be that of both, and the message be lost.
    """
    return pop_time + 1 if 0 <= pop_time - now_ms < CLOCK_STEP_MAX_MS else now_ms
