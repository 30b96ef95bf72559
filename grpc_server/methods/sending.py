"""SendMessage and RecallMessage.

A send becomes the request that RocketMQ's other clients send, so the broker's rules for it are the
same.

Source: proxy/grpc/v2/producer/SendMessageActivity.java, RecallMessageActivity.java of 5.5.0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from ...common.java_hash import java_hash_code
from ...common.message_properties import (
    PROPERTY_SHARDING_KEY,
    PROPERTY_UNIQUE_KEY,
    IllegalPropertyError,
    properties_to_string,
)
from ...common.topic_names import DLQ_TOPIC_PREFIX, RETRY_TOPIC_PREFIX
from ...grpc_protocol.enums import Code, MessageType
from ...remoting.bodies import TopicConfig
from ...remoting.bodies.topic import PERM_WRITE
from ...remoting.codec import RemotingCommand
from ...remoting.errors import LocalProtocolError
from ...remoting.headers import encode_header
from ...remoting.headers.message import RecallMessageRequestHeader
from ...remoting.message import Message
from ...remoting.message_batch import encode_batch
from ...remoting.message_id import decode_offset_id
from ...remoting.number_fields import INT64, parse_integer
from ...remoting.recall_handle import RecallHandle
from ...remoting.request_codes import RequestCode
from ...remoting.response_codes import ResponseCode
from ..exchange import Exchange
from ..messages import send_properties, sys_flag_of, type_of
from ..refused import Refused, refusal_of
from ..rules import topic_of
from .routes import topic_config, types_of
from .transactions import transaction_id

_OF_BATCH: Final = {"c": "TBW102", "d": "4", "m": "true"}
"""Fields of a batch; brokers read the first two of batches in any case."""

_NOT_SAFE: Final[Mapping[int, Code]] = {
    ResponseCode.FLUSH_DISK_TIMEOUT: Code.MASTER_PERSISTENCE_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: Code.SLAVE_PERSISTENCE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: Code.HA_NOT_AVAILABLE,
}
"""A message is stored, but not as safely as the broker is to store it."""


def send_message(exchange: Exchange, request: Any) -> None:
    """Store the messages of a request, all of one topic."""
    sent = list(request.messages)
    if not sent:
        raise Refused(Code.MESSAGE_CORRUPTED, "no message to send")
    first = sent[0].topic
    topic = topic_of(first)
    config = topic_config(exchange, topic)
    service = exchange.service
    now_ms, rules = service.now_ms(), service.rules
    properties: list[dict[str, str]] = []
    sys_flag = 0
    for message in sent:
        if message is not sent[0] and message.topic != first:
            raise Refused(Code.MESSAGE_CORRUPTED, "topic in message is not same")
        system = message.system_properties
        _check_type(config, topic, system)
        _check_body(message.body, rules.max_message_size)
        if not properties:
            sys_flag = sys_flag_of(system)
        properties.append(send_properties(message, system, topic, rules, now_ms))
    # The topic is there: what a send may say for its creation is left out.
    fields = {
        "a": topic,
        "b": topic,
        "e": str(_queue_id(exchange, config, topic, properties)),
        "f": str(sys_flag),
        "g": str(now_ms),
        "h": "0",
        "i": "",
        "j": "0",
    }
    then = partial(_sent, exchange, [each[PROPERTY_UNIQUE_KEY] for each in properties])
    try:
        if len(sent) == 1:
            fields["i"] = properties_to_string(properties[0])
            exchange.ask(RequestCode.SEND_MESSAGE_V2, fields, then, sent[0].body)
            return
        fields |= _OF_BATCH
        batch = [
            Message(topic, message.body, properties=each)
            for message, each in zip(sent, properties, strict=True)
        ]
        body = encode_batch(batch)
    except (IllegalPropertyError, LocalProtocolError) as error:
        raise Refused(Code.ILLEGAL_MESSAGE_PROPERTY_KEY, str(error)) from error
    exchange.ask(RequestCode.SEND_BATCH_MESSAGE, fields, then, body)


def _check_type(config: TopicConfig, topic: str, system: Any) -> None:
    """Refuse a message whose type the topic does not take.

    Source: processor/validator/DefaultTopicMessageTypeValidator.java.
    """
    if topic.startswith((RETRY_TOPIC_PREFIX, DLQ_TOPIC_PREFIX)):
        return
    taken, found = types_of(config), type_of(system)
    if found not in taken:
        expected = taken[0] if len(taken) == 1 else MessageType.NORMAL
        raise Refused(
            Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
            f"TopicMessageType validate failed, the expected type is {expected.name}, "
            f"but actual type is {found.name}",
        )


def _check_body(body: bytes, size_max: int) -> None:
    if not body:
        raise Refused(Code.MESSAGE_BODY_EMPTY, "message body cannot be empty")
    if len(body) > size_max:
        text = f"message body cannot exceed the max {size_max}"
        raise Refused(Code.MESSAGE_BODY_TOO_LARGE, text)


def _queue_id(
    exchange: Exchange, config: TopicConfig, topic: str, properties: list[dict[str, str]]
) -> int:
    """The queue of a send: by the message group, or one after the other."""
    count = config.write_queue_nums if config.perm & PERM_WRITE else 0
    if not count:
        raise Refused(Code.FORBIDDEN, f"no writable queue of the topic {topic}")
    group = properties[0].get(PROPERTY_SHARDING_KEY)
    if group is not None and len(properties) == 1:
        return consistent_hash(java_hash_code(group), count)
    return next(exchange.service.numbers) % count


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


def _sent(exchange: Exchange, message_ids: list[str], answer: RemotingCommand) -> None:
    """Answer a send as the broker has."""
    code = _NOT_SAFE.get(answer.code)
    if answer.code != ResponseCode.SUCCESS and code is None:
        raise refusal_of(answer)
    service = exchange.service
    if code is not None:
        text = f"send message failed, sendStatus={ResponseCode(answer.code).name}"
        entry = service.messages.SendResultEntry(status=exchange.status(code, text))
        status = exchange.status(code)
        exchange.answer(exchange.method.answer(status=status, entries=[entry] * len(message_ids)))
        return
    fields = answer.ext_fields
    offset = parse_integer(fields.get("queueOffset", ""))
    if offset is None or not INT64.has(offset):
        raise Refused(Code.INTERNAL_SERVER_ERROR, "the broker's answer has no queue offset")
    transaction = ""
    if "transactionId" in fields:
        half = decode_offset_id(fields.get("msgId", ""))
        transaction = transaction_id(service.broker_name, half.physical_offset, offset)
    exchange.answer_encoded(
        service.send_answers.encode(
            message_ids, offset, transaction, fields.get("recallHandle", "")
        )
    )


def status_of_all(exchange: Exchange, codes: Counter[int]) -> Any:
    """The status of an answer whose entries have these codes, each with its count."""
    if len(codes) == 1:
        (code,) = codes
        return exchange.status(Code(code))
    return exchange.status(Code.MULTIPLE_RESULTS)


def recall_message(exchange: Exchange, request: Any) -> None:
    """Take back a message that is not delivered yet."""
    topic = topic_of(request.topic)
    try:
        RecallHandle.from_text(request.recall_handle)
    except ValueError as error:
        raise Refused(Code.BAD_REQUEST, str(error)) from error
    header = RecallMessageRequestHeader(
        producer_group=topic, topic=topic, recall_handle=request.recall_handle
    )

    def recalled(answer: RemotingCommand) -> None:
        exchange.succeed(message_id=answer.ext_fields.get("msgId", ""))

    exchange.ask_for_success(RequestCode.RECALL_MESSAGE, encode_header(header), recalled)
