"""ReceiveMessage, AckMessage, ChangeInvisibleDuration, ForwardMessageToDeadLetterQueue.

A receive is a pop of the broker, and its receipt handles are the broker's, with the message's place
in the commit log at the end.

Source: proxy/grpc/v2/consumer/*.java, processor/ConsumerProcessor.java, ReceiptHandleProcessor.java
of RocketMQ 5.5.0.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from ...grpc_protocol.enums import Code
from ...grpc_protocol.fields import milliseconds, set_time
from ...native import extension
from ...remoting.bodies import SubscriptionData
from ...remoting.codec import RemotingCommand
from ...remoting.errors import RequestRefused
from ...remoting.headers import encode_header
from ...remoting.headers.consumer import ConsumerSendMsgBackRequestHeader
from ...remoting.pop_requests import (
    ANY_QUEUE,
    POP_CODES,
    Place,
    PopAnswer,
    PopOrder,
    Popped,
    ack_header,
    change_header,
    dead_letter_header,
    pop_header,
    read_change,
    read_pop,
)
from ...remoting.receipt import POP_COUNT_MAX, Receipt, TopicForm
from ...remoting.request_codes import RequestCode
from ...remoting.response_codes import ResponseCode
from ..exchange import Exchange
from ..handle import Handle
from ..link import NoAnswer
from ..messages import ReceivedMessages, message_id_of
from ..refused import Refused, refusal_of
from ..renewals import MessageKey, Renewed
from ..rules import check_group, check_invisible_time, check_topic, group_of, topic_of
from ..service import OnBroker
from ..subscriptions import subscription_of
from .routes import found_topic, reads_of
from .sending import status_of_all

GIVEN_BACK_MS: Final = 1_000
"""The invisible time of messages whose client no longer waits for them."""

POP_ANSWER_S: Final = 5.0
"""How long a broker may take for the answer to a pop, besides its wait for messages."""

FROM_END: Final = 1
"""A group that never consumed begins at the end. Source: ConsumeInitMode.MAX."""

ENTRIES_MAX: Final = 1_024
"""Entries of one request of acknowledgements."""

NO_TIME: Final = (
    "The deadline time remaining is not enough for polling, please check network condition"
)


# ---- receive -----------------------------------------------------------------------------


def refuse_receive(exchange: Exchange, refused: Refused) -> None:
    """A status, and the time, which ends every answer of a receive by a known client."""
    if refused.code == Code.CLIENT_ID_REQUIRED:
        exchange.answer_encoded(_status_part(exchange, refused.code, refused.text))
        return
    _end_receive(exchange, [_status_part(exchange, refused.code, refused.text)])


def _status_part(exchange: Exchange, code: Code, text: str = "") -> bytes:
    part: bytes = exchange.method.answer(status=exchange.status(code, text)).SerializeToString()
    return part


def _end_receive(exchange: Exchange, parts: list[bytes]) -> None:
    last = exchange.method.answer()
    set_time(last.delivery_timestamp, exchange.service.now_ms())
    exchange.answer_encoded(*parts, last.SerializeToString())


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
    on_brokers = found_topic(exchange, topic)
    if not any(reads_of(config) for _, config in on_brokers):
        raise Refused(Code.FORBIDDEN, "no readable queue")
    broker = _broker_of(exchange, on_brokers, request.message_queue)
    known = service.backend.group(group)
    in_order = known is not None and known.consume_message_orderly
    queue_id = request.message_queue.id if in_order else ANY_QUEUE
    place = Place(topic, broker, queue_id)
    header = pop_header(
        place,
        group,
        subscription,
        count=max(min(request.batch_size, POP_COUNT_MAX), 1),
        invisible_ms=invisible_ms,
        poll_ms=poll_ms,
        init_mode=FROM_END,
        order=PopOrder(request.attempt_id or None) if in_order else None,
    )
    receive = _Receive(exchange, place, group, subscription, in_order=in_order)
    receive.renews = request.auto_renew
    opaque = exchange.ask(
        broker,
        RequestCode.POP_MESSAGE,
        encode_header(header),
        receive.popped,
        # Longer than the client waits: what comes too late is given back.
        timeout_s=poll_ms / 1000 + POP_ANSWER_S,
    )
    if not exchange.call.is_answered:
        exchange.on_cancelled = partial(exchange.client.links.to(broker).withdraw, opaque)


def _broker_of(exchange: Exchange, on_brokers: Sequence[OnBroker], queue: Any) -> str:
    """The broker of a receive: as its queue says; if it has none of the topic, one after the other.

    Source: ReceiveMessageQueueSelector of ReceiveMessageActivity.java.
    """
    if len(on_brokers) == 1:
        return on_brokers[0].broker
    wanted = queue.broker.name
    names = [each.broker for each in on_brokers if reads_of(each.config)]
    if wanted in names:
        return str(wanted)
    if not names:
        raise Refused(Code.FORBIDDEN, "no readable queue")
    return names[next(exchange.service.numbers) % len(names)]


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

    def _parts(self, answer: RemotingCommand, found: PopAnswer) -> list[bytes]:
        exchange = self._exchange
        if answer.code != ResponseCode.SUCCESS:
            if found.is_polling_full:
                return [_status_part(exchange, Code.TOO_MANY_REQUESTS, "polling full")]
            return [_status_part(exchange, Code.MESSAGE_NOT_FOUND, "no new message")]
        messages = ReceivedMessages(exchange.service.messages, self._place.topic)
        parts = [self._message(messages, each) for each in found.messages if self._is_wanted(each)]
        if not parts:
            return [_status_part(exchange, Code.MESSAGE_NOT_FOUND, "no match message")]
        return [_status_part(exchange, Code.OK), *parts]

    def _message(self, messages: ReceivedMessages, popped: Popped) -> bytes:
        record, receipt = popped.ext, popped.receipt
        handle = Handle(receipt, record.physical_offset)
        text = handle.to_text()
        if self.renews:
            key = MessageKey(self._group, message_id_of(record), text)
            renewed = Renewed(handle, self._exchange.service.now_ms(), self._change)
            self._exchange.client.renewals.add(key, renewed)
        return messages.encode(record, text)

    def _change(
        self, handle: Handle, invisible_ms: int, then: Callable[[Handle | None], None]
    ) -> None:
        """Ask for another invisible time of a message that was received before."""
        header = change_header(handle.receipt, self._place.topic, self._group, invisible_ms)

        def changed(answer: RemotingCommand) -> None:
            if answer.code != ResponseCode.SUCCESS:
                then(None)
                return
            try:
                receipt = read_change(answer, handle.receipt)
            except RequestRefused:  # it has no receipt
                then(None)
            else:
                then(Handle(receipt, handle.physical_offset))

        code = RequestCode.CHANGE_MESSAGE_INVISIBLETIME
        command = self._exchange.command(code, encode_header(header))
        self._exchange.client.links.to(self._place.broker_name).ask(command, changed)

    def _is_wanted(self, popped: Popped) -> bool:
        """Settle a message that the client is not given: of another tag, or tried too often.

        Source: PopMessageResultFilterImpl.java.
        """
        exchange = self._exchange
        if not popped.is_selected:
            header = ack_header(popped.receipt, self._place.topic, self._group)
            exchange.tell(self._place.broker_name, RequestCode.ACK_MESSAGE, encode_header(header))
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
            code = RequestCode.CHANGE_MESSAGE_INVISIBLETIME
            self._exchange.tell(self._place.broker_name, code, encode_header(header))


# ---- what becomes of received messages ---------------------------------------------------


class _Entries:
    """The entries of one request of acknowledgements, and their statuses."""

    def __init__(self, exchange: Exchange, request: Any, topic: str, group: str) -> None:
        self._exchange = exchange
        self._entries = request.entries
        self._topic, self._group = topic, group
        self._statuses: list[Any] = [None] * len(request.entries)
        self._open = len(request.entries)

    def serve(self) -> None:
        """Acknowledge each message."""
        exchange = self._exchange
        now_ms = exchange.service.now_ms()
        for index, entry in enumerate(self._entries):
            try:
                handle = Handle.from_text(entry.receipt_handle)
                key = MessageKey(self._group, entry.message_id, entry.receipt_handle)
                handle = exchange.client.renewals.remove(key) or handle
                handle.check_time(now_ms)
            except Refused as refused:
                self._note(index, exchange.status(refused.code, refused.text))
                continue
            then = partial(self._acked, index)
            exchange.client.acks.add(exchange, self._topic, self._group, handle.receipt, then)

    def _acked(self, index: int, answer: RemotingCommand) -> None:
        self._note(index, _status_of_ack(self._exchange, answer))

    def _note(self, index: int, status: Any) -> None:
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


def _status_of_ack(exchange: Exchange, answer: RemotingCommand) -> Any:
    if answer.code == ResponseCode.SUCCESS:
        return exchange.status()
    refused = _abnormal(answer, "ack failed")
    return exchange.status(Code.INTERNAL_SERVER_ERROR, refused.text)


def ack_message(exchange: Exchange, request: Any) -> None:
    """Acknowledge messages."""
    topic, group = topic_of(request.topic), group_of(request.group)
    if not request.entries:
        raise Refused(Code.INTERNAL_SERVER_ERROR, "ack message result is empty")
    if len(request.entries) > ENTRIES_MAX:
        text = f"{len(request.entries)} entries; at most {ENTRIES_MAX} are taken"
        raise Refused(Code.BAD_REQUEST, text)
    _Entries(exchange, request, topic, group).serve()


_read_ack = None if extension is None else extension.grpc_ack
_write_acked = None if extension is None else extension.grpc_acked
_FORMS: Final = tuple(TopicForm)


def ack_usual(exchange: Exchange, data: bytes) -> bool:
    """Acknowledge the message of an encoded request, if it is as most are; whether it was.

    `ack_message` does the same for all requests.
    """
    read = None if _read_ack is None else _read_ack(data)
    if read is None:
        return False
    group, topic, message_id, text, numbers = read
    start, popped_ms, invisible_ms, revive_queue_id, form, broker, queue_id, offset, _ = numbers
    if form >= len(_FORMS):
        return False
    receipt = Receipt(
        start, popped_ms, invisible_ms, revive_queue_id, _FORMS[form], broker, queue_id, offset
    )
    now_ms = exchange.service.now_ms()
    if popped_ms + invisible_ms <= now_ms:  # unless it was renewed, it is refused
        return False
    check_topic(topic)
    check_group(group)
    renewals = exchange.client.renewals
    if len(renewals):
        newest = renewals.remove(MessageKey(group, message_id, text))
        receipt = receipt if newest is None else newest.receipt
    then = partial(_acked, exchange, message_id, text)
    exchange.client.acks.add(exchange, topic, group, receipt, then)
    return True


def _acked(exchange: Exchange, message_id: str, handle: str, answer: RemotingCommand) -> None:
    """Answer the acknowledgement of one message."""
    service = exchange.service
    if answer.code == ResponseCode.SUCCESS and _write_acked is not None:
        exchange.answer_encoded(_write_acked(service.ok_encoded, message_id, handle))
        return
    status = _status_of_ack(exchange, answer)
    entry = service.messages.AckMessageResultEntry(
        message_id=message_id, receipt_handle=handle, status=status
    )
    of_all = exchange.status(Code(status.code))
    exchange.answer(exchange.method.answer(status=of_all, entries=[entry]))


_NAMED: Final = (ResponseCode.NO_PERMISSION, ResponseCode.SYSTEM_BUSY)
"""Codes of brokers that a client has to know, of requests whose others the proxy puts into one."""


def _abnormal(answer: RemotingCommand, what: str) -> Refused:
    """What a broker's refusal to settle a message says to a client."""
    if answer.code in _NAMED or isinstance(answer, NoAnswer):
        return refusal_of(answer)
    return Refused(Code.INTERNAL_SERVER_ERROR, f"{what}: status is abnormal")


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
        if answer.code != ResponseCode.SUCCESS:
            raise _abnormal(answer, "changeInvisibleDuration failed")
        receipt = read_change(answer, handle.receipt)
        exchange.succeed(receipt_handle=Handle(receipt, handle.physical_offset).to_text())

    code = RequestCode.CHANGE_MESSAGE_INVISIBLETIME
    exchange.ask(handle.receipt.broker_name, code, encode_header(header), changed)


def forward_to_dead_letter_queue(exchange: Exchange, request: Any) -> None:
    """Make a received message a dead letter."""
    topic, group = topic_of(request.topic), group_of(request.group)
    handle = _settled(exchange, request, group)
    broker, code = handle.receipt.broker_name, RequestCode.CONSUMER_SEND_MSG_BACK
    header = _dead_letter_header(handle, topic, group, request.message_id)

    def buried(answer: RemotingCommand) -> None:
        ack = ack_header(handle.receipt, topic, group)
        exchange.tell(broker, RequestCode.ACK_MESSAGE, encode_header(ack))
        exchange.succeed()

    exchange.ask_for_success(broker, code, encode_header(header), buried)


def bury(exchange: Exchange, handle: Handle, topic: str, group: str, message_id: str) -> None:
    """Make a popped message a dead letter, whatever becomes of the call."""
    broker = handle.receipt.broker_name
    header = _dead_letter_header(handle, topic, group, message_id)

    def buried(answer: RemotingCommand) -> None:
        if answer.code == ResponseCode.SUCCESS:
            ack = ack_header(handle.receipt, topic, group)
            exchange.tell(broker, RequestCode.ACK_MESSAGE, encode_header(ack))

    command = exchange.command(RequestCode.CONSUMER_SEND_MSG_BACK, encode_header(header))
    exchange.client.links.to(broker).ask(command, buried)


def _dead_letter_header(
    handle: Handle, topic: str, group: str, message_id: str
) -> ConsumerSendMsgBackRequestHeader:
    return dead_letter_header(
        handle.receipt,
        topic,
        group,
        physical_offset=handle.physical_offset,
        message_id=message_id,
    )
