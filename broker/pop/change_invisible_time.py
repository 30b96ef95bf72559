"""Changes of the invisible time of a popped message: CHANGE_MESSAGE_INVISIBLETIME 200053.

The message gets a new check point, which is stored with the turn, and is acknowledged for the old
one.

Java counterpart: broker/processor/ChangeInvisibleTimeProcessor.java of 5.5.0.
"""

from __future__ import annotations

from typing import Final, NamedTuple

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
from .pop_checks import read_receipt, refuse_lite, refuse_long_time, refuse_no_queue
from .services import PopServices

# Renewals: the last receipt that each message with a changed invisible time got.
#
# A client writes receipts itself, from parts of answers, so a receipt can be forged, and each
# change of an invisible time stores a check point that may become a copy of the message. So a
# message whose time was changed is renewed by its last receipt only, until some time after that is
# over.
#
# Pure: the time is an argument.
#
# Java counterpart: none: Apache's broker stores a check point for any receipt.

RENEWALS_MAX: Final = 50_000
"""Messages that are remembered, some 15 MB; the oldest is forgotten for another. Who renews more
messages than that stores no more copies than messages."""

KEPT_MS: Final = 60_000
"""How long a receipt is remembered after its time: by then its message has been revived, and an
offset that was reset is popped with receipts that the buffer knows."""


class CheckPointId(NamedTuple):
    """The parts of a receipt by which the acknowledgement of its check point is found."""

    start_offset: int
    pop_time: int
    invisible_time: int
    revive_queue_id: int
    broker_name: str

    @classmethod
    def of(cls, receipt: Receipt) -> CheckPointId:
        return cls(
            receipt.start_offset,
            receipt.pop_time,
            receipt.invisible_time,
            receipt.revive_queue_id,
            receipt.broker_name,
        )


class Renewals:
    """The last receipts by message. Not thread-safe: used from the broker's one trio run."""

    def __init__(self) -> None:
        # With the receipt by which each was got.
        self._last: dict[tuple[OrderKey, int], tuple[CheckPointId, CheckPointId]] = {}

    def __len__(self) -> int:
        return len(self._last)

    def allows(self, queue: OrderKey, receipt: Receipt, now_ms: int) -> bool:
        """Whether a message may be renewed by a receipt: by its last one."""
        known = self._last.get((queue, receipt.offset))
        if known is None:
            return True
        last = known[0]
        is_kept = now_ms <= last.pop_time + last.invisible_time + KEPT_MS
        return not is_kept or last == CheckPointId.of(receipt)

    def repeated(self, queue: OrderKey, receipt: Receipt, now_ms: int) -> CheckPointId | None:
        """What an earlier request with a receipt gave its message, if that is still in force: the
        request came twice. None: it did not."""
        last, former = self._last.get((queue, receipt.offset), (None, None))
        if last is None or former != CheckPointId.of(receipt):
            return None
        return last if now_ms <= last.pop_time + last.invisible_time else None

    def note(self, queue: OrderKey, receipt: Receipt, former: Receipt) -> None:
        """Remember the receipt that a message has got, and by which one."""
        key = queue, receipt.offset
        self._last.pop(key, None)
        if len(self._last) >= RENEWALS_MAX:
            del self._last[next(iter(self._last))]
        self._last[key] = CheckPointId.of(receipt), CheckPointId.of(former)


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
        pop: PopServices,
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

        Raises: RequestRefused: with Apache's codes and remarks; SYSTEM_ERROR if the receipt cannot
          be read, or the new check point not be stored; INVALID_PARAMETER if the time is too long.
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

        Raises: RequestRefused: SYSTEM_ERROR if it is not stored.
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
        # The receipt that the client gets, by which it renews or acknowledges next.
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
