"""Pops, acknowledgements, invisible times and dead letters.

Source: ConsumerImpl.java of rocketmq-clients 5.2; proxy/grpc/v2/consumer of RocketMQ 5.5.0.
"""

from __future__ import annotations

import logging
import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from ...common import message_properties as names
from ...grpc_protocol.enums import ClientType, Code
from ...grpc_protocol.fields import milliseconds, set_resource, set_time
from ...remoting.bodies import BatchAckMessageRequestBody
from ...remoting.codec import RemotingCommand
from ...remoting.errors import LocalProtocolError, RemoteProtocolError
from ...remoting.headers.base import decode, encode_header
from ...remoting.headers.consumer import ConsumerSendMsgBackRequestHeader
from ...remoting.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)
from ...remoting.number_fields import INT64, parse_integer
from ...remoting.receipt import Receipt, TopicForm
from ...remoting.response_codes import ResponseCode
from .asks import Ask
from .client_profile import Profile, set_filter
from .codes import Refused, answer_of, is_ok
from .deliveries import Deliveries, Delivery
from .messages import Corrupted, Place, record_of
from .sends import read_status

logger = logging.getLogger(__name__)

POLL_S_MIN: Final = 5.0
"""Servers wait at least as long for a message.
Source: grpcClientConsumerMinLongPollingTimeoutMillis."""

DEADLINE_MARGIN_S: Final = 10.0
"""Time that a server has beyond its wait: a deadline below the wait is refused."""

QUIET_S: Final = 1.0
"""Time that a server has beyond a wait of less than POLL_S_MIN. A receive is given up then; one
that the server has answered meanwhile leaves its messages invisible until their time is over."""

RECEIPT: Final = "extraInfo"
"""The field of CONSUMER_SEND_MSG_BACK with the receipt of a message that was popped."""

GONE: Final = "the receipt has expired, or its message is settled"


# ---- receive -----------------------------------------------------------------------------


def pop_message(profile: Profile, address: str, command: RemotingCommand) -> Ask:
    """POP_MESSAGE becomes ReceiveMessage."""
    header = decode(PopMessageRequestHeader, command.ext_fields)
    member = profile.consumer(header.consumer_group)
    if member.given is None:
        why = member.refusal or "it has not answered them yet"
        text = f"the server has not taken the settings of {header.consumer_group}: {why}"
        raise Refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, text)
    poll_s = header.poll_time / 1000
    # In order, a message is handled before the next one is received, or the next one would be in
    # the consumer's hands when that one fails.
    in_turn = member.is_fifo and member.kind is ClientType.PUSH_CONSUMER
    request = profile.messages.ReceiveMessageRequest(
        batch_size=1 if in_turn else header.max_msg_nums,
        attempt_id=header.attempt_id or str(uuid.uuid4()),
    )
    set_resource(request.group, header.consumer_group)
    _set_queue(profile, request.message_queue, header)
    set_filter(request.filter_expression, header.exp_type, header.exp)
    set_time(request.invisible_duration, header.invisible_time)
    set_time(request.long_polling_timeout, header.poll_time)
    request.invisible_duration.SetInParent()
    request.long_polling_timeout.SetInParent()
    return Ask(
        "ReceiveMessage",
        request,
        partial(_read_pop, profile, command, header),
        member,
        timeout_s=max(poll_s, POLL_S_MIN) + DEADLINE_MARGIN_S,
        quiet_s=poll_s + QUIET_S if poll_s < POLL_S_MIN else None,
    )


def _set_queue(profile: Profile, queue: Any, header: PopMessageRequestHeader) -> None:
    name = header.broker_name or ""
    known = profile.queues.get((header.topic, name))
    if known is not None:
        queue.CopyFrom(known)
    else:
        queue.broker.name = name
    set_resource(queue.topic, header.topic)
    queue.id = header.queue_id


def _read_pop(
    profile: Profile,
    command: RemotingCommand,
    header: PopMessageRequestHeader,
    answers: Sequence[Any],
) -> RemotingCommand:
    status, messages, pop_ms = None, [], profile.wall_ms()
    for answer in answers:
        match answer.WhichOneof("content"):
            case "status":
                status = answer.status
            case "message":
                messages.append(answer.message)
            case "delivery_timestamp":
                given_ms = milliseconds(answer.delivery_timestamp)
                pop_ms = given_ms if 0 < given_ms < 1 << 53 else pop_ms
            case _:
                pass
    if not messages:
        if status is None:
            return command.answer(ResponseCode.SYSTEM_ERROR, "the answer has no status")
        if status.code == Code.TOO_MANY_REQUESTS:
            return command.answer(ResponseCode.POLLING_FULL)
        if is_ok(status):
            return command.answer(ResponseCode.POLLING_TIMEOUT)
        return answer_of(command, status)
    records = _Records(profile, header, pop_ms)
    body = b"".join(filter(None, map(records.record, messages)))
    if not body:
        return command.answer(ResponseCode.POLLING_TIMEOUT)
    fields = PopMessageResponseHeader(
        pop_time=pop_ms, invisible_time=header.invisible_time, revive_qid=0, rest_num=0
    )
    return command.answer(ext_fields=encode_header(fields), body=body)


class _Records:
    """Makes the records of one answer's messages, each with its receipt."""

    def __init__(self, profile: Profile, header: PopMessageRequestHeader, pop_ms: int) -> None:
        self._profile = profile
        self._header = header
        self._pop_ms = pop_ms
        self._now_ms = profile.wall_ms()
        self._given: set[tuple[TopicForm, int, int]] = set()

    def record(self, message: Any) -> bytes | None:
        """The record of a message; None: it is left out, and delivered again."""
        system, header = message.system_properties, self._header
        handle = system.receipt_handle
        parsed, physical_offset = _parsed(handle)
        retried = TopicForm.RETRY_V2 if system.delivery_attempt > 1 else TopicForm.NORMAL
        form = retried if parsed is None else parsed.form
        place = (form, system.queue_id, system.queue_offset)
        if not handle or place in self._given:
            logger.warning(
                "left out a message of %s without a receipt that no other has", header.topic
            )
            return None
        self._given.add(place)
        invisible_ms = header.invisible_time
        if system.HasField("invisible_duration"):
            given_ms = milliseconds(system.invisible_duration)
            invisible_ms = given_ms if 0 < given_ms < 1 << 40 else invisible_ms
        delivery = Delivery(
            header.topic,
            system.message_id,
            handle,
            max(system.delivery_attempt, 1),
            self._now_ms + invisible_ms,
        )
        number = self._profile.deliveries.add(delivery, self._now_ms)
        receipt = Receipt(
            system.queue_offset,
            self._pop_ms,
            invisible_ms,
            number,
            form,
            header.broker_name or "",
            system.queue_id,
            system.queue_offset,
        )
        more = {names.PROPERTY_POP_CK: receipt.to_text()}
        try:
            return record_of(message, Place(header.topic, physical_offset, more))
        except (Corrupted, LocalProtocolError) as error:
            logger.warning(
                "message %s of %s is left out, and delivered again: %s",
                system.message_id,
                header.topic,
                error,
            )
            self._profile.deliveries.remove(number)
            return None


def _parsed(handle: str) -> tuple[Receipt | None, int]:
    """The receipt in a handle of RocketMQ's proxy, and its place in the commit log."""
    try:
        receipt = Receipt.from_text(handle)
    except RemoteProtocolError:
        return None, 0
    last = parse_integer(handle.rpartition(" ")[2])
    has_offset = handle.count(" ") == 8 and last is not None and INT64.has(last) and last >= 0
    return receipt, last if has_offset and last is not None else 0


# ---- what becomes of received messages ---------------------------------------------------


def _numbered(deliveries: Deliveries, receipt_text: str) -> tuple[int, Delivery]:
    """The delivery that a receipt names. Raises: Refused: there is none (any more)."""
    try:
        number = Receipt.from_text(receipt_text).revive_queue_id
    except RemoteProtocolError as error:
        raise Refused(ResponseCode.NO_MESSAGE, str(error)) from error
    delivery = deliveries.find(number)
    if delivery is None:
        raise Refused(ResponseCode.NO_MESSAGE, GONE)
    return number, delivery


def ack_message(profile: Profile, address: str, command: RemotingCommand) -> Ask:
    """ACK_MESSAGE becomes AckMessage."""
    header = decode(AckMessageRequestHeader, command.ext_fields)
    number, delivery = _numbered(profile.deliveries, header.extra_info)
    if delivery.is_buried:
        profile.deliveries.remove(number)
        raise Refused(ResponseCode.SUCCESS, "")
    asked = {number: delivery}
    return _ack(profile, command, header.consumer_group, delivery.topic, asked, is_batch=False)


def ack_messages(profile: Profile, address: str, command: RemotingCommand) -> list[Ask]:
    """BATCH_ACK_MESSAGE becomes AckMessage, one for each topic and group."""
    body = BatchAckMessageRequestBody.from_body(command.body)
    by_topic: dict[tuple[str, str], dict[int, Delivery]] = defaultdict(dict)
    for each in body.acks or ():
        delivery = profile.deliveries.find(each.revive_queue_id)
        if delivery is not None and delivery.is_buried:
            profile.deliveries.remove(each.revive_queue_id)
        elif delivery is not None:  # otherwise it has expired, which brokers pass over
            by_topic[each.group, delivery.topic][each.revive_queue_id] = delivery
    if not by_topic:
        raise Refused(ResponseCode.SUCCESS, "")
    return [
        _ack(profile, command, group, topic, asked, is_batch=True)
        for (group, topic), asked in by_topic.items()
    ]


def _ack(
    profile: Profile,
    command: RemotingCommand,
    group: str,
    topic: str,
    asked: Mapping[int, Delivery],
    *,
    is_batch: bool,
) -> Ask:
    request = profile.messages.AckMessageRequest()
    set_resource(request.group, group)
    set_resource(request.topic, topic)
    for delivery in asked.values():
        request.entries.add(message_id=delivery.message_id, receipt_handle=delivery.handle)

    def read(answers: Sequence[Any]) -> RemotingCommand:
        (answer,) = answers
        failed = None if is_ok(answer.status) else answer.status
        codes = {each.receipt_handle: each.status for each in answer.entries}
        refused = []
        for number, delivery in asked.items():
            status = codes.get(delivery.handle, failed)
            if status is None or is_ok(status):
                profile.deliveries.remove(number)
            elif not is_batch or status.code != Code.INVALID_RECEIPT_HANDLE:
                refused.append(status)
        return answer_of(command, refused[0]) if refused else command.answer()

    return Ask("AckMessage", request, read, profile.consumer(group))


def change_invisible(profile: Profile, address: str, command: RemotingCommand) -> Ask:
    """CHANGE_MESSAGE_INVISIBLETIME becomes ChangeInvisibleDuration."""
    header = decode(ChangeInvisibleTimeRequestHeader, command.ext_fields)
    number, delivery = _numbered(profile.deliveries, header.extra_info)
    request = profile.messages.ChangeInvisibleDurationRequest(
        receipt_handle=delivery.handle, message_id=delivery.message_id
    )
    set_resource(request.group, header.consumer_group)
    set_resource(request.topic, delivery.topic)
    set_time(request.invisible_duration, header.invisible_time)
    request.invisible_duration.SetInParent()
    if header.suspend:
        request.suspend = True

    def read(answers: Sequence[Any]) -> RemotingCommand:
        (answer,) = answers
        if not is_ok(answer.status):
            return answer_of(command, answer.status)
        now_ms = profile.wall_ms()
        changed = delivery._replace(
            handle=answer.receipt_handle or delivery.handle,
            until_ms=now_ms + header.invisible_time,
        )
        profile.deliveries.replace(number, changed)
        fields = ChangeInvisibleTimeResponseHeader(
            pop_time=now_ms, invisible_time=header.invisible_time, revive_qid=number
        )
        return command.answer(ext_fields=encode_header(fields))

    member = profile.consumer(header.consumer_group)
    return Ask("ChangeInvisibleDuration", request, read, member)


def bury(profile: Profile, address: str, command: RemotingCommand) -> Ask:
    """CONSUMER_SEND_MSG_BACK of a popped message becomes ForwardMessageToDeadLetterQueue."""
    header = decode(ConsumerSendMsgBackRequestHeader, command.ext_fields)
    number, delivery = _numbered(profile.deliveries, command.ext_fields.get(RECEIPT, ""))
    request = profile.messages.ForwardMessageToDeadLetterQueueRequest(
        receipt_handle=delivery.handle,
        message_id=delivery.message_id,
        delivery_attempt=delivery.attempt,
        max_delivery_attempts=max(header.max_reconsume_times or 0, 0) + 1,
    )
    set_resource(request.group, header.group)
    set_resource(request.topic, delivery.topic)

    def read(answers: Sequence[Any]) -> RemotingCommand:
        if is_ok(answers[0].status):
            profile.deliveries.replace(number, delivery._replace(is_buried=True))
        return read_status(command, answers)

    member = profile.consumer(header.group)
    return Ask("ForwardMessageToDeadLetterQueue", request, read, member)
