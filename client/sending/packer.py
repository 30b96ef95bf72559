"""Preparation of messages for sends: checks, compression, encoding of properties, dead letters.

Java counterpart: DefaultMQProducerImpl.sendKernelImpl, tryToCompressMessage; MessageBatch;
DLQMessageController of the dashboard.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf

from ...common import message_properties as names
from ...common.topic_names import AUTO_CREATE_TOPIC, normal_topic
from ...remoting.body_compression import CompressionType, compress
from ...remoting.errors import LocalProtocolError, MissingPackageError
from ...remoting.message_batch import encode_entry
from ...remoting.send_template import SendPayload, SendTemplate
from ...remoting.sys_flag import TRANSACTION_PREPARED_TYPE
from ..checks.message_check import check_delay_level
from ..connection.client import Client
from ..core.sends import BatchEntry, PreparedSend
from ..core.topics import check_body, check_properties_size, check_send_topic
from ..errors import ConfigurationError, MessageRefusedError
from ..messages.message import Message, ReceivedMessage, is_bare, wire_properties
from ..messages.sendable import check_batch, check_sendable, wrong_body
from ..options.send_options import ProducerConfig


class Packer:
    """Prepares the messages of one producer.

    Args:
      client: provides ids, times, namespace and credentials; it need not be open.
      group: name of the producer's group, with namespace.
      config: configuration of the producer.

    Raises: ConfigurationError: the configured compression needs a package that is missing.
    """

    def __init__(self, client: Client, group: str, config: ProducerConfig) -> None:
        self._client = client
        self._group = group
        self._config = config
        self._templates: dict[str, tuple[str, SendTemplate]] = {}
        # Clients of gRPC send bodies as they are, and not all of them read compressed ones.
        self._compress_over = inf if client.grpc else config.compress_over
        if config.compression is not CompressionType.ZLIB:
            try:
                compress(b"", config.compression)
            except MissingPackageError as error:
                raise ConfigurationError(str(error)) from error

    @property
    def topics(self) -> list[str]:
        """The topics that messages were prepared for, with namespace."""
        return [topic for topic, _ in self._templates.values()]

    def message(
        self,
        message: Message,
        more: Mapping[str, str] | None = None,
        *,
        is_system_topic: bool = False,
    ) -> PreparedSend:
        """Prepare a single message.

        Args:
          message: the message.
          more: properties of RocketMQ to add, besides the unique key.
          is_system_topic: allow a topic that programs may not send to.

        Raises: MessageRefusedError: no broker would accept it.
        """
        if message.__class__ is not Message:
            check_sendable(message)
        topic, template = self._template(message.topic, is_system_topic)
        body = self._body(message)
        sys_flag = 0
        if len(body) > self._compress_over:
            body = compress(body, self._config.compression, self._config.compression_level)
            sys_flag = self._config.compression.sys_flag
        if message.flag:
            self._refuse_by_grpc("flag", "give it as one of the properties")
        now_ms = self._client.wall_ms()
        message_id = self._client.next_unique_id(now_ms)
        if more is None and is_bare(message):
            properties = _BARE_START + message_id.encode() + _BARE_END
        else:
            if message.delay_level:
                check_delay_level(message.delay_level, self._config.delay_level_max)
                self._refuse_by_grpc("delay_level", "give delay_s or deliver_at_ms")
            own = {names.PROPERTY_UNIQUE_KEY: message_id}
            if more:
                own.update(more)
                if more.get(names.PROPERTY_TRANSACTION_PREPARED) == "true":
                    sys_flag |= TRANSACTION_PREPARED_TYPE
            properties = _encoded(wire_properties(message, own))
        payload = SendPayload(properties, body, sys_flag, now_ms, message.flag)
        return PreparedSend(message, topic, message_id, template, payload)

    def _refuse_by_grpc(self, field: str, instead: str) -> None:
        if self._client.grpc is not None:
            raise MessageRefusedError(f"a message has no {field} by gRPC: {instead}")

    def batch(self, messages: Sequence[Message]) -> PreparedSend:
        """Prepare messages of one topic for one request.

        Raises: MessageRefusedError: there are no messages, they have several topics, one is
          delayed, or they are too large together.
        """
        check_batch(messages)
        if not messages:
            raise MessageRefusedError("the batch is empty: give at least one message")
        first = messages[0]
        self._template(first.topic, False)
        entries: list[BatchEntry] = []
        for message in messages:
            _check_entry(message, first)
            entries.append(self.entry(message))
        return self.join(entries)

    def entry(self, message: Message) -> BatchEntry:
        """Prepare a message for `join`.

        Raises: MessageRefusedError: no broker would accept it.
        """
        if message.__class__ is not Message:
            check_sendable(message)
        if message.flag:
            self._refuse_by_grpc("flag", "give it as one of the properties")
        self._template(message.topic, False)
        body = self._body(message)
        message_id = self._client.next_unique_id()
        if is_bare(message):
            properties = _BARE_START + message_id.encode() + _BARE_END
        else:
            properties = _encoded(wire_properties(message, {names.PROPERTY_UNIQUE_KEY: message_id}))
        try:
            encoded = encode_entry(message.flag, body, properties)
        except LocalProtocolError as error:
            raise MessageRefusedError(str(error)) from error
        return BatchEntry(message, message_id, len(body), encoded)

    def join(self, entries: Sequence[BatchEntry]) -> PreparedSend:
        """Prepare entries with one topic and one `wait_store_ok` for one request.

        Raises: MessageRefusedError: they are too large together.
        """
        first = entries[0].message
        topic, template = self._template(first.topic, False)
        size = sum([entry.size for entry in entries])
        if size > self._config.message_size_max:
            raise MessageRefusedError(
                f"the batch has {size} bytes, at most {self._config.message_size_max} are allowed:"
                " split it"
            )
        packed = b"".join([entry.encoded for entry in entries])
        wait = {names.PROPERTY_WAIT_STORE_MSG_OK: "true" if first.wait_store_ok else "false"}
        payload = SendPayload(
            _encoded(wait), packed, 0, self._client.wall_ms(), first.flag, is_batch=True
        )
        ids = ",".join([entry.message_id for entry in entries])
        return PreparedSend(first, topic, ids, template, payload, entries)

    def again(
        self,
        message: Message,
        properties: Mapping[str, str],
        *,
        reconsume_times: int,
        max_reconsume_times: int,
    ) -> PreparedSend:
        """Prepare a consumed message for a retry topic.

        Args:
          message: its topic has the namespace and its body is bytes; only the flag is used besides.
          properties: all properties of the consumed message.
          reconsume_times: number of times that it was consumed.
          max_reconsume_times: number of times that it may be consumed.

        Raises: MessageRefusedError: a property is invalid.
        """
        payload = SendPayload(
            _encoded(properties),
            message.body,
            0,
            self._client.wall_ms(),
            message.flag,
            reconsume_times=reconsume_times,
            max_reconsume_times=max_reconsume_times,
        )
        message_id = properties.get(names.PROPERTY_UNIQUE_KEY, "")
        template = self._new_template(message.topic)
        return PreparedSend(message, message.topic, message_id, template, payload)

    def _template(self, name: str, is_system_topic: bool) -> tuple[str, SendTemplate]:
        known = self._templates.get(name)
        if known is None:
            if not is_system_topic:
                try:
                    check_send_topic(name)
                except ValueError as error:
                    raise MessageRefusedError(str(error)) from None
            topic = self._client.with_namespace(name)
            known = self._templates[name] = (topic, self._new_template(topic))
        return known

    def _new_template(self, topic: str) -> SendTemplate:
        return SendTemplate(
            topic,
            self._group,
            AUTO_CREATE_TOPIC,
            self._config.default_topic_queue_nums,
            credentials=None if self._client.grpc else self._client.credentials,
        )

    def _body(self, message: Message) -> bytes:
        body = message.body
        if type(body) is bytes and 0 < len(body) <= self._config.message_size_max:
            return body  # as nearly all are
        if isinstance(body, str):
            body = body.encode()
        elif not isinstance(body, bytes):
            if self._config.serializer is not None:
                body = self._config.serializer(body)
                if isinstance(body, str):
                    body = body.encode()
            elif isinstance(body, bytearray | memoryview):
                body = bytes(body)
        if not isinstance(body, bytes):
            raise wrong_body(message.body, body, self._config.serializer is not None)
        try:
            check_body(message.topic, body, self._config.message_size_max)
        except ValueError as error:
            raise MessageRefusedError(str(error)) from None
        return body


_BARE_START, _BARE_END = names.properties_to_bytes(
    {names.PROPERTY_WAIT_STORE_MSG_OK: "true", names.PROPERTY_UNIQUE_KEY: "%b"}
).split(b"%b")
"""The encoded properties of a message that has no others, before and after its unique key."""


def _check_entry(message: Message, first: Message) -> None:
    if message.topic != first.topic:
        raise MessageRefusedError(
            f"the batch has messages for {first.topic} and {message.topic}: send one batch for"
            " each topic"
        )
    if message.delay_level or message.delay_s or message.deliver_at_ms:
        raise MessageRefusedError("a batch cannot have delayed messages: send them one by one")
    if message.wait_store_ok != first.wait_store_ok:
        raise MessageRefusedError("all messages of a batch must have the same wait_store_ok")


def _encoded(properties: Mapping[str, str]) -> bytes:
    try:
        encoded = names.properties_to_bytes(properties)
    except (names.IllegalPropertyError, TypeError) as error:
        raise MessageRefusedError(f"the message's properties: {error}") from error
    try:
        check_properties_size(len(encoded))
    except ValueError as error:
        raise MessageRefusedError(str(error)) from None
    return encoded


def revive(
    dead_letter: ReceivedMessage, without_namespace: Callable[[str], str]
) -> tuple[Message, dict[str, str]]:
    """The message that sends a dead letter to its original topic again.

    It has the body, tag, keys, flag, sharding key and the program's properties, and no delay.

    Args:
      dead_letter: a message of a dead-letter topic.
      without_namespace: a topic as the program knows it.

    Returns: the message, and RocketMQ's properties that name its origin.
    Raises: MessageRefusedError: no property has its original topic, so it is no dead letter.
    """
    properties = dead_letter.properties
    # Brokers of 4.x and trocket's write the first one, later ones of Apache both.
    topic = properties.get(names.PROPERTY_RETRY_TOPIC) or properties.get(
        names.PROPERTY_DLQ_ORIGIN_TOPIC
    )
    if topic is None:
        raise MessageRefusedError(
            f"message {dead_letter.message_id} does not name its original topic: it is no dead"
            " letter"
        )
    # A popped message was in the group's retry topic of its topic.
    topic = normal_topic(topic, properties.get(names.PROPERTY_ORIGIN_GROUP, ""))
    message = dead_letter.copy_to(without_namespace(topic))
    origin = {
        names.PROPERTY_DLQ_ORIGIN_TOPIC: topic,
        names.PROPERTY_DLQ_ORIGIN_MESSAGE_ID: dead_letter.message_id,
    }
    return message, origin
