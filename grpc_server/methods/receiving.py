"""ReceiveMessage, AckMessage, ChangeInvisibleDuration, ForwardMessageToDeadLetterQueue.

A receive is a pop of the broker, and its receipt handles are the broker's, with the message's place
in the commit log at the end.

Source: proxy/grpc/v2/consumer/*.java, processor/ConsumerProcessor.java, ReceiptHandleProcessor.java
of RocketMQ 5.5.0.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from ...grpc_protocol.enums import Code
from ...remoting.bodies import SubscriptionData
from ...remoting.codec import RemotingCommand
from ...remoting.headers import encode_header
from ...remoting.headers.consumer import ConsumerSendMsgBackRequestHeader
from ...remoting.pop_requests import (
    ANY_QUEUE,
    POP_CODES,
    Place,
    PopAnswer,
    PopOrder,
    Popped,
    Settled,
    ack_header,
    batch_ack_body,
    change_header,
    pop_header,
    read_change,
    read_pop,
    split_batch,
)
from ...remoting.receipt import POP_COUNT_MAX, Receipt
from ...remoting.request_codes import RequestCode
from ...remoting.response_codes import ResponseCode
from ..exchange import Exchange
from ..handle import Handle
from ..messages import received_message
from ..refused import Refused, refusal_of
from ..renewals import MessageKey, Renewed
from ..rules import check_invisible_time, group_of, milliseconds, topic_of
from ..subscriptions import subscription_of
from .routes import topic_config
from .sending import status_of_all

GIVEN_BACK_MS: Final = 1_000
"""The invisible time of messages whose client no longer waits for them."""

FROM_END: Final = 1
"""A group that never consumed begins at the end. Source: ConsumeInitMode.MAX."""

DEAD_LETTER_LEVEL: Final = -1

ENTRIES_MAX: Final = 1_024
"""Entries of one request of acknowledgements."""

NO_TIME: Final = (
    "The deadline time remaining is not enough for polling, please check network condition"
)


# ---- receive -----------------------------------------------------------------------------


def refuse_receive(exchange: Exchange, refused: Refused) -> None:
    """A status, and the time, which ends every answer of a receive."""
    _end_receive(exchange, [_status_part(exchange, refused.code, refused.text)])


def _status_part(exchange: Exchange, code: Code, text: str = "") -> Any:
    return exchange.method.answer(status=exchange.status(code, text))


def _end_receive(exchange: Exchange, parts: list[Any]) -> None:
    last = exchange.method.answer()
    last.delivery_timestamp.FromMilliseconds(exchange.service.now_ms())
    exchange.answer(*parts, last)


def receive_message(exchange: Exchange, request: Any) -> None:
    """Pop messages, now or when some have come."""
    service = exchange.service
    rules = service.rules
    poll_ms = _poll_ms(exchange, request)
    topic, group = topic_of(request.message_queue.topic), group_of(request.group)
    invisible_ms = milliseconds(request.invisible_duration)
    if request.auto_renew:
        invisible_ms = rules.renew_slice_time_millis
    else:
        least_ms = rules.min_invisible_time_mills_for_recv
        check_invisible_time(invisible_ms, least_ms, rules.max_invisible_time_mills)
    subscription = subscription_of(topic, request.filter_expression)
    topic_config(exchange, topic)
    known = service.directory.group(group)
    in_order = known is not None and known.consume_message_orderly
    queue_id = request.message_queue.id if in_order else ANY_QUEUE
    place = Place(topic, service.broker_name, queue_id)
    header = pop_header(
        place,
        group,
        subscription,
        count=max(min(request.batch_size, POP_COUNT_MAX), 1),
        invisible_ms=invisible_ms,
        poll_ms=poll_ms,
        init_mode=FROM_END,
        order=PopOrder(request.attempt_id) if in_order else None,
    )
    receive = _Receive(exchange, place, group, subscription, in_order=in_order)
    receive.renews = request.auto_renew
    opaque = exchange.ask(RequestCode.POP_MESSAGE, encode_header(header), receive.popped)
    if not exchange.call.is_answered:
        exchange.on_cancelled = partial(_give_up, exchange, opaque)


def _give_up(exchange: Exchange, opaque: int) -> None:
    """Have a pop wait no longer, whose client does not."""
    link = exchange.client.link
    if exchange.service.directory.withdraw(link.channel, opaque):
        link.forget(opaque)


def _poll_ms(exchange: Exchange, request: Any) -> int:
    """How long a receive waits for messages."""
    rules, timeout_s = exchange.service.rules, exchange.call.timeout_s
    least_ms = rules.grpc_client_consumer_min_long_polling_timeout_millis
    most_ms = rules.grpc_client_consumer_max_long_polling_timeout_millis
    remaining_ms = math.inf if timeout_s is None else timeout_s * 1000
    if request.HasField("long_polling_timeout"):
        wanted_ms: float = milliseconds(request.long_polling_timeout)
    else:
        settings = exchange.client.settings
        request_ms = 0 if settings is None else milliseconds(settings.request_timeout)
        wanted_ms = remaining_ms - request_ms / 2
    poll_ms = min(max(wanted_ms, least_ms), most_ms)
    if poll_ms <= remaining_ms:
        return int(poll_ms)
    if remaining_ms >= least_ms:
        return int(remaining_ms)
    is_old = exchange.call.metadata.get("x-mq-client-version", "") < "5.0.3"
    raise Refused(Code.BAD_REQUEST if is_old else Code.ILLEGAL_POLLING_TIME, NO_TIME)


class _Receive:
    """A receive that waits for the broker's answer."""

    def __init__(
        self,
        exchange: Exchange,
        place: Place,
        group: str,
        subscription: SubscriptionData,
        *,
        in_order: bool,
    ) -> None:
        self._exchange = exchange
        self._place = place
        self._group = group
        self._subscription = subscription
        self._in_order = in_order
        self.renews = False

    def popped(self, answer: RemotingCommand) -> None:
        """Answer the client, or give back what it no longer waits for."""
        exchange = self._exchange
        if answer.code not in POP_CODES:
            raise refusal_of(answer)
        found = read_pop(
            answer, self._place, self._subscription, in_order=self._in_order, inflate=False
        )
        if exchange.call.is_answered:
            self._give_back(found.messages)
            return
        parts = self._parts(answer, found)
        _end_receive(exchange, parts)

    def _parts(self, answer: RemotingCommand, found: PopAnswer) -> list[Any]:
        exchange = self._exchange
        if answer.code != ResponseCode.SUCCESS:
            if found.is_polling_full:
                return [_status_part(exchange, Code.TOO_MANY_REQUESTS, "polling full")]
            return [_status_part(exchange, Code.MESSAGE_NOT_FOUND, "no new message")]
        parts = [
            exchange.method.answer(message=self._message(each))
            for each in found.messages
            if self._is_wanted(each)
        ]
        if not parts:
            return [_status_part(exchange, Code.MESSAGE_NOT_FOUND, "no match message")]
        return [_status_part(exchange, Code.OK), *parts]

    def _message(self, popped: Popped) -> Any:
        record, receipt = popped.ext, popped.receipt
        message = received_message(
            self._exchange.service.messages,
            record,
            self._place.topic,
            attempt=record.reconsume_times + 1,
            invisible_ms=receipt.invisible_time,
        )
        handle = Handle(receipt, record.physical_offset)
        system = message.system_properties
        system.receipt_handle = handle.to_text()
        if self.renews:
            key = MessageKey(self._group, system.message_id, system.receipt_handle)
            renewed = Renewed(handle, self._exchange.service.now_ms(), self._change)
            self._exchange.client.renewals.add(key, renewed)
        return message

    def _change(
        self, handle: Handle, invisible_ms: int, then: Callable[[Handle | None], None]
    ) -> None:
        """Ask for another invisible time of a message that was received before."""
        header = change_header(handle.receipt, self._place.topic, self._group, invisible_ms)

        def changed(answer: RemotingCommand) -> None:
            if answer.code != ResponseCode.SUCCESS:
                then(None)
            else:
                receipt = read_change(answer, handle.receipt)
                then(Handle(receipt, handle.physical_offset))

        code = RequestCode.CHANGE_MESSAGE_INVISIBLETIME
        command = self._exchange.command(code, encode_header(header))
        self._exchange.client.link.ask(command, changed)

    def _is_wanted(self, popped: Popped) -> bool:
        """Settle a message that the client is not given: of another tag, or tried too often.

        Source: PopMessageResultFilterImpl.java.
        """
        exchange = self._exchange
        if not popped.is_selected:
            header = ack_header(popped.receipt, self._place.topic, self._group)
            exchange.tell(RequestCode.ACK_MESSAGE, encode_header(header))
            return False
        settings = exchange.client.settings
        attempts_max = 0 if settings is None else settings.backoff_policy.max_attempts
        if not attempts_max or popped.ext.reconsume_times < attempts_max:
            return True
        handle = Handle(popped.receipt, popped.ext.physical_offset)
        bury(exchange, handle, self._place.topic, self._group, popped.ext.unique_key or "")
        return False

    def _give_back(self, messages: Any) -> None:
        for popped in messages:
            header = change_header(
                popped.receipt, self._place.topic, self._group, GIVEN_BACK_MS, suspend=True
            )
            self._exchange.tell(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, encode_header(header))


# ---- what becomes of received messages ---------------------------------------------------


class _Acks:
    """The acknowledgements of one request, and the codes of its entries."""

    def __init__(self, exchange: Exchange, request: Any, topic: str, group: str) -> None:
        self._exchange = exchange
        self._entries = request.entries
        self._topic, self._group = topic, group
        self._statuses: list[Any] = [None] * len(request.entries)
        self._open = 0

    def serve(self) -> None:
        """Acknowledge each message; those that were popped without order in one request."""
        now_ms = self._exchange.service.now_ms()
        batch: list[tuple[int, Settled]] = []
        alone: list[tuple[int, Receipt]] = []
        for index, entry in enumerate(self._entries):
            try:
                handle = Handle.from_text(entry.receipt_handle)
                key = MessageKey(self._group, entry.message_id, entry.receipt_handle)
                handle = self._exchange.client.renewals.remove(key) or handle
                handle.check_time(now_ms)
            except Refused as refused:
                self._statuses[index] = self._exchange.status(refused.code, refused.text)
                continue
            receipt = handle.receipt
            settled = Settled(self._topic, receipt)
            if receipt.in_order or not split_batch([settled])[0]:
                alone.append((index, receipt))
            else:
                batch.append((index, settled))
        if len(batch) == 1:
            alone.append((batch[0][0], batch[0][1].receipt))
            batch = []
        self._open = len(alone) + bool(batch)
        for index, receipt in alone:
            header = ack_header(receipt, self._topic, self._group)
            then = partial(self._acked, [index])
            self._exchange.ask(RequestCode.ACK_MESSAGE, encode_header(header), then)
        if batch:
            name = self._exchange.service.broker_name
            body = batch_ack_body(name, self._group, [settled for _, settled in batch])
            then = partial(self._acked, [index for index, _ in batch])
            self._exchange.ask(RequestCode.BATCH_ACK_MESSAGE, {}, then, body)
        if not alone and not batch:
            self._answer()

    def _acked(self, indexes: list[int], answer: RemotingCommand) -> None:
        if answer.code == ResponseCode.SUCCESS:
            status = self._exchange.status()
        else:
            text = "ack failed: status is abnormal"
            status = self._exchange.status(Code.INTERNAL_SERVER_ERROR, answer.remark or text)
        for index in indexes:
            self._statuses[index] = status
        self._open -= 1
        if not self._open:
            self._answer()

    def _answer(self) -> None:
        exchange = self._exchange
        make = exchange.service.messages.AckMessageResultEntry
        entries = [
            make(message_id=entry.message_id, receipt_handle=entry.receipt_handle, status=status)
            for entry, status in zip(self._entries, self._statuses, strict=True)
        ]
        codes = Counter(status.code for status in self._statuses)
        exchange.answer(
            exchange.method.answer(status=status_of_all(exchange, codes), entries=entries)
        )


def ack_message(exchange: Exchange, request: Any) -> None:
    """Acknowledge messages."""
    topic, group = topic_of(request.topic), group_of(request.group)
    if not request.entries:
        raise Refused(Code.INTERNAL_SERVER_ERROR, "ack message result is empty")
    if len(request.entries) > ENTRIES_MAX:
        text = f"{len(request.entries)} entries; at most {ENTRIES_MAX} are taken"
        raise Refused(Code.BAD_REQUEST, text)
    _Acks(exchange, request, topic, group).serve()


def _settled(exchange: Exchange, request: Any, group: str) -> Handle:
    """The newest handle of the message that a request names, which is renewed no longer."""
    given = Handle.from_text(request.receipt_handle)
    key = MessageKey(group, request.message_id, request.receipt_handle)
    return exchange.client.renewals.remove(key) or given


def change_invisible_duration(exchange: Exchange, request: Any) -> None:
    """Change when a message is given to others; its receipt handle changes, too."""
    topic, group = topic_of(request.topic), group_of(request.group)
    invisible_ms = milliseconds(request.invisible_duration)
    check_invisible_time(invisible_ms, 0, exchange.service.rules.max_invisible_time_mills)
    handle = _settled(exchange, request, group)
    handle.check_time(exchange.service.now_ms())
    header = change_header(
        handle.receipt, topic, group, invisible_ms, suspend=bool(request.suspend)
    )

    def changed(answer: RemotingCommand) -> None:
        receipt = read_change(answer, handle.receipt)
        exchange.succeed(receipt_handle=Handle(receipt, handle.physical_offset).to_text())

    code = RequestCode.CHANGE_MESSAGE_INVISIBLETIME
    exchange.ask_for_success(code, encode_header(header), changed)


def forward_to_dead_letter_queue(exchange: Exchange, request: Any) -> None:
    """Make a received message a dead letter."""
    topic, group = topic_of(request.topic), group_of(request.group)
    handle = _settled(exchange, request, group)
    header = _dead_letter_header(handle, topic, group, request.message_id)

    def buried(answer: RemotingCommand) -> None:
        ack = ack_header(handle.receipt, topic, group)
        exchange.tell(RequestCode.ACK_MESSAGE, encode_header(ack))
        exchange.succeed()

    exchange.ask_for_success(RequestCode.CONSUMER_SEND_MSG_BACK, encode_header(header), buried)


def bury(exchange: Exchange, handle: Handle, topic: str, group: str, message_id: str) -> None:
    """Make a popped message a dead letter, whatever becomes of the call."""
    header = _dead_letter_header(handle, topic, group, message_id)

    def buried(answer: RemotingCommand) -> None:
        if answer.code == ResponseCode.SUCCESS:
            ack = ack_header(handle.receipt, topic, group)
            exchange.tell(RequestCode.ACK_MESSAGE, encode_header(ack))

    command = exchange.command(RequestCode.CONSUMER_SEND_MSG_BACK, encode_header(header))
    exchange.client.link.ask(command, buried)


def _dead_letter_header(
    handle: Handle, topic: str, group: str, message_id: str
) -> ConsumerSendMsgBackRequestHeader:
    return ConsumerSendMsgBackRequestHeader(
        offset=handle.physical_offset,
        group=group,
        delay_level=DEAD_LETTER_LEVEL,
        origin_msg_id=message_id,
        origin_topic=handle.receipt.form.real_topic(topic, group),
        max_reconsume_times=0,
    )
