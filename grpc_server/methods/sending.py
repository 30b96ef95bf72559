"""SendMessage and RecallMessage.

A send becomes the request that RocketMQ's other clients send, so the broker's rules for it are the
same.

Source: proxy/grpc/v2/producer/SendMessageActivity.java, RecallMessageActivity.java of 5.5.0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from ...common.java_hash import java_hash_code
from ...common.message_properties import (
    PROPERTY_SHARDING_KEY,
    PROPERTY_UNIQUE_KEY,
    IllegalPropertyError,
    properties_to_bytes,
)
from ...common.topic_names import DLQ_TOPIC_PREFIX, RETRY_TOPIC_PREFIX
from ...grpc_protocol.enums import Code, MessageType
from ...grpc_protocol.fields import milliseconds
from ...native import extension
from ...remoting.bodies import TopicConfig
from ...remoting.codec import RemotingCommand
from ...remoting.errors import LocalProtocolError
from ...remoting.headers import encode_header
from ...remoting.headers.message import RecallMessageRequestHeader
from ...remoting.message import Message
from ...remoting.message_batch import encode_batch
from ...remoting.message_id import decode_offset_id
from ...remoting.number_fields import INT64, TIME_MS, parse_integer
from ...remoting.recall_handle import RecallHandle
from ...remoting.request_codes import RequestCode
from ...remoting.response_codes import ResponseCode
from ...remoting.send_template import SendPayload
from ..exchange import Exchange
from ..link import NoAnswer, Why
from ..messages import send_properties, sys_flag_of, type_of
from ..refused import Refused, refusal_of
from ..rules import check_topic, topic_of
from ..service import OnBroker
from .routes import found_topic, types_of, writes_of
from .transactions import transaction_id

_read_send = None if extension is None else extension.grpc_send

_NOT_SAFE: Final[Mapping[int, Code]] = {
    ResponseCode.FLUSH_DISK_TIMEOUT: Code.MASTER_PERSISTENCE_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: Code.SLAVE_PERSISTENCE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: Code.HA_NOT_AVAILABLE,
}
"""A message is stored, but not as safely as the broker is to store it."""


_SUCCESS: Final = int(ResponseCode.SUCCESS)
_UNUSUAL: Final = frozenset({"transactionId", "recallHandle"})
"""Fields of the answer to a message of a transaction, and to one that can be recalled."""

OFFSET_DIGITS_MAX: Final = 18


class _Send(NamedTuple):
    """A message, or a batch, on its way to a broker.

    Attributes:
      group: the message group that it keeps its order with; None: it has none.
      message_ids: of its messages.
    """

    topic: str
    group: str | None
    payload: SendPayload
    message_ids: list[str]


def send_message(exchange: Exchange, request: Any) -> None:
    """Store the messages of a request, all of one topic."""
    sent = list(request.messages)
    if not sent:
        raise Refused(Code.MESSAGE_CORRUPTED, "no message to send")
    first = sent[0].topic
    topic = topic_of(first)
    on_brokers = found_topic(exchange, topic)
    service = exchange.service
    now_ms, rules = service.now_ms(), service.rules
    properties: list[dict[str, str]] = []
    sys_flag = 0
    for message in sent:
        if message is not sent[0] and message.topic != first:
            raise Refused(Code.MESSAGE_CORRUPTED, "topic in message is not same")
        system = message.system_properties
        _check_body(message.body, rules.max_message_size)
        if not properties:
            sys_flag = sys_flag_of(system)
        properties.append(send_properties(message, system, topic, rules, now_ms))
        _check_type(on_brokers[0].config, topic, type_of(system))
    group = properties[0].get(PROPERTY_SHARDING_KEY) if len(sent) == 1 else None
    try:
        if len(sent) == 1:
            content = properties_to_bytes(properties[0]), sent[0].body
        else:
            batch = [
                Message(topic, message.body, properties=each)
                for message, each in zip(sent, properties, strict=True)
            ]
            content = b"", encode_batch(batch)
    except (IllegalPropertyError, LocalProtocolError) as error:
        raise Refused(Code.ILLEGAL_MESSAGE_PROPERTY_KEY, str(error)) from error
    born_ms = _born_ms(sent[0].system_properties, now_ms)
    payload = SendPayload(*content, sys_flag, born_ms, is_batch=len(sent) > 1)
    message_ids = [each[PROPERTY_UNIQUE_KEY] for each in properties]
    _store(exchange, _Send(topic, group, payload, message_ids), on_brokers)


def send_usual(exchange: Exchange, data: bytes) -> bool:
    """Store the message of an encoded request, if it is as most are; whether it was.

    `send_message` does the same for all requests, in several times the time.
    """
    service = exchange.service
    rules = service.rules
    read = _read_send(data, rules.send_limits) if _read_send is not None else None
    if read is None:
        return False
    topic, type_, sys_flag, message_id, group, properties, body, born_ms = read
    check_topic(topic)
    on_brokers = found_topic(exchange, topic)
    _check_body(body, rules.max_message_size)
    _check_type(on_brokers[0].config, topic, type_)
    payload = SendPayload(properties, body, sys_flag, born_ms or service.now_ms())
    _store(exchange, _Send(topic, group, payload, [message_id]), on_brokers)
    return True


def _store(exchange: Exchange, send: _Send, on_brokers: Sequence[OnBroker]) -> None:
    """Ask a broker to store a message or a batch."""
    broker, queue_id = _queue(exchange, on_brokers, send)
    template = exchange.service.send_templates.of(
        send.topic, exchange.client.language, exchange.credentials
    )
    link = exchange.client.links.to(broker)
    opaque = link.next_opaque()
    try:
        frame = template.encode(send.payload, queue_id, None, opaque)
    except LocalProtocolError as error:
        raise Refused(Code.MESSAGE_PROPERTIES_TOO_LARGE, str(error)) from error
    then = partial(exchange.guard, _sent, exchange, send, broker)
    link.send(opaque, frame, then, exchange.call.timeout_s if link.has_deadlines else None)


def _born_ms(system: Any, now_ms: int) -> int:
    """When the message was made, by its client's clock, if it says so; ms since 1970."""
    if system.HasField("born_timestamp"):
        born_ms = milliseconds(system.born_timestamp)
        if born_ms > 0 and TIME_MS.has(born_ms):
            return born_ms
    return now_ms


def _check_type(config: TopicConfig, topic: str, found: int) -> None:
    """Refuse a message whose type the topic does not take.

    Source: processor/validator/DefaultTopicMessageTypeValidator.java.
    """
    taken = types_of(config)
    if found in taken or topic.startswith((RETRY_TOPIC_PREFIX, DLQ_TOPIC_PREFIX)):
        return
    expected, *more = taken
    if more:  # a topic of several types takes any, also those that its route does not have
        return
    raise Refused(
        Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
        f"TopicMessageType validate failed, the expected type is {expected.name}, "
        f"but actual type is {MessageType(found).name}",
    )


def _check_body(body: bytes, size_max: int) -> None:
    if not body:
        raise Refused(Code.MESSAGE_BODY_EMPTY, "message body cannot be empty")
    if len(body) > size_max:
        text = f"message body cannot exceed the max {size_max}"
        raise Refused(Code.MESSAGE_BODY_TOO_LARGE, text)


def _queue(exchange: Exchange, on_brokers: Sequence[OnBroker], send: _Send) -> tuple[str, int]:
    """The broker and queue of a send: by the message group, or one after the other."""
    group = send.group
    if len(on_brokers) == 1:
        count = writes_of(on_brokers[0].config)
    else:
        if group is None:
            on_brokers = _answering(exchange, on_brokers)
        count = sum([writes_of(config) for _, config in on_brokers])
    if not count:
        raise Refused(Code.FORBIDDEN, "no writable queue")
    if group is None:
        left = next(exchange.service.numbers) % count
    else:
        left = consistent_hash(java_hash_code(group), count)
    for each in on_brokers:
        count = writes_of(each.config)
        if left < count:
            break
        left -= count
    return each.broker, left


def _answering(exchange: Exchange, on_brokers: Sequence[OnBroker]) -> Sequence[OnBroker]:
    """Those on brokers that answer; all, if none does."""
    avoids = exchange.service.backend.avoids
    writable = [
        each for each in on_brokers if writes_of(each.config) and each.broker not in exchange.failed
    ]
    return [each for each in writable if not avoids(each.broker)] or writable or on_brokers


_MULTIPLIER: Final = 2_862_933_555_777_941_757
_MASK: Final = (1 << 64) - 1


def consistent_hash(key: int, count: int) -> int:
    """A number below `count`, which stays the same for most keys when `count` grows by one.

    All producers of a message group must choose as Apache's proxy does, or it is not in order.

    Args:
      key: a Java int, as a signed number.
    Source: Lamping and Veach, "A Fast, Minimal Memory, Consistent Hash Algorithm"; Guava's
      Hashing.consistentHash.
    """
    state, found, candidate = key & _MASK, 0, 0
    while candidate < count:
        found = candidate
        state = (state * _MULTIPLIER + 1) & _MASK
        candidate = int((found + 1) / (((state >> 33) + 1) / (1 << 31)))
    return found


def _sent(exchange: Exchange, send: _Send, broker: str, answer: RemotingCommand) -> None:
    """Answer a send as the broker has."""
    service, fields, message_ids = exchange.service, answer.ext_fields, send.message_ids
    if answer.code == _SUCCESS and len(message_ids) == 1 and _UNUSUAL.isdisjoint(fields):
        number = fields.get("queueOffset", "")
        if number.isascii() and number.isdecimal() and len(number) <= OFFSET_DIGITS_MAX:
            exchange.answer_encoded(service.send_answers.encode_one(message_ids[0], int(number)))
            return
    code = _NOT_SAFE.get(answer.code)
    if answer.code != ResponseCode.SUCCESS and code is None:
        if isinstance(answer, NoAnswer) and _may_go_elsewhere(exchange, send, broker, answer):
            _store(exchange, send, exchange.service.backend.topic(send.topic))
            return
        raise refusal_of(answer)
    if code is not None:
        text = f"send message failed, sendStatus={ResponseCode(answer.code).name}"
        entry = service.messages.SendResultEntry(status=exchange.status(code, text))
        status = exchange.status(code)
        exchange.answer(exchange.method.answer(status=status, entries=[entry] * len(message_ids)))
        return
    offset = parse_integer(fields.get("queueOffset", ""))
    if offset is None or not INT64.has(offset):
        raise Refused(Code.INTERNAL_SERVER_ERROR, "the broker's answer has no queue offset")
    # The proxy gives each message a transaction's id: its own.
    transaction = message_ids[0] if len(message_ids) == 1 else ""
    if "transactionId" in fields:
        half = decode_offset_id(fields.get("msgId", ""))
        transaction = transaction_id(broker, half.physical_offset, offset)
    exchange.answer_encoded(
        service.send_answers.encode(
            message_ids, offset, transaction, fields.get("recallHandle", "")
        )
    )


def _may_go_elsewhere(exchange: Exchange, send: _Send, broker: str, answer: NoAnswer) -> bool:
    """Whether a send that a broker did not answer is sent to another one: as RocketMQ's clients of
    remoting do, it may be stored twice then, but not one of a message group, which has its order.
    """
    if answer.why not in (Why.UNREACHABLE, Why.LOST) or exchange.call.is_answered:
        return False
    if send.group is not None:
        return False
    exchange.failed = (*exchange.failed, broker)
    on_brokers = exchange.service.backend.topic(send.topic)
    return any(writes_of(each.config) and each.broker not in exchange.failed for each in on_brokers)


def status_of_all(exchange: Exchange, codes: Counter[int]) -> Any:
    """The status of an answer whose entries have these codes, each with its count."""
    if len(codes) == 1:
        (code,) = codes
        return exchange.status(Code(code))
    return exchange.status(Code.MULTIPLE_RESULTS)


def recall_message(exchange: Exchange, request: Any) -> None:
    """Take back a message that is not delivered yet.

    Source: processor/ProducerProcessor.java.
    """
    topic = topic_of(request.topic)
    for on_broker in exchange.service.backend.topic(topic)[:1]:
        _check_type(on_broker.config, topic, MessageType.DELAY)
    try:
        handle = RecallHandle.from_text(request.recall_handle)
    except ValueError as error:
        raise Refused(Code.INTERNAL_SERVER_ERROR, str(error)) from error
    header = RecallMessageRequestHeader(
        producer_group=topic, topic=topic, recall_handle=request.recall_handle
    )

    def recalled(answer: RemotingCommand) -> None:
        exchange.succeed(message_id=answer.ext_fields.get("msgId", ""))

    exchange.ask_for_success(
        handle.broker_name, RequestCode.RECALL_MESSAGE, encode_header(header), recalled
    )
