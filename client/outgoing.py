"""What a send is made of: the message as it travels, whatever the queue.

Java counterpart: DefaultMQProducerImpl.sendKernelImpl, MessageBatch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from ..common import message_properties as names
from ..common.topic_names import AUTO_CREATE_TOPIC
from ..remoting.bodies import MessageQueue
from ..remoting.codec import RemotingCommand
from ..remoting.compression import CompressionType, compress
from ..remoting.errors import LocalProtocolError, MissingPackageError
from ..remoting.message import Message as WireMessage
from ..remoting.message_batch import encode_batch
from ..remoting.sys_flag import TRANSACTION_PREPARED_TYPE
from .client import Client
from .core.send_header import SendTemplate
from .core.topics import check_body, check_properties_size, check_send_topic
from .errors import BadAnswerError, ConfigurationError, MessageRefusedError
from .message import Message, SendResult, is_bare, wire_properties
from .send_options import STORED, ProducerConfig


class Outgoing(msgspec.Struct):
    """A message or a batch, ready to be sent.

    Attributes:
      message: as the program gave it; a batch's first.
      topic: with namespace.
      message_id: its unique key; a batch's: all, joined by commas.
      properties: encoded.
      body: as it is stored: compressed if `sys_flag` says so.
      born_timestamp_ms: ms since 1970.
      reconsume_times, max_reconsume_times: of a message that goes to a retry topic.
    """

    message: Message
    topic: str
    template: SendTemplate
    message_id: str
    properties: bytes
    body: bytes
    sys_flag: int
    is_batch: bool
    born_timestamp_ms: int
    reconsume_times: int = 0
    max_reconsume_times: int | None = None

    def encode(self, queue: MessageQueue, opaque: int, *, oneway: bool = False) -> bytes:
        """The whole request.

        Raises: MessageRefusedError: something is too long.
        """
        try:
            return self.template.encode(
                opaque,
                queue.queue_id,
                self.sys_flag,
                self.born_timestamp_ms,
                self.message.flag,
                self.properties,
                self.body,
                self.is_batch,
                queue.broker_name,
                self.reconsume_times,
                self.max_reconsume_times,
                oneway,
            )
        except LocalProtocolError as error:
            raise MessageRefusedError(str(error)) from error

    def result(self, answer: RemotingCommand, queue: MessageQueue) -> SendResult:
        """What the broker's answer says, its code being one of STORED.

        Raises: BadAnswerError.
        """
        # By hand, not by a header object, which costs three times as much: it runs per message.
        find = answer.ext_fields.get
        try:
            queue_id = int(answer.ext_fields["queueId"])
            queue_offset = int(answer.ext_fields["queueOffset"])
            offset_message_id = answer.ext_fields["msgId"]
        except (KeyError, ValueError) as error:
            raise BadAnswerError(
                queue.broker_name, f"a send's answer with a bad or missing field: {error}"
            ) from error
        if queue_id != queue.queue_id:
            queue = MessageQueue(queue.topic, queue.broker_name, queue_id)
        message_id = self.message_id
        if self.is_batch:
            message_id = find("batchUniqId") or message_id
        return SendResult(
            STORED[answer.code],
            message_id,
            queue,
            queue_offset,
            offset_message_id,
            find("transactionId"),
            find("recallHandle"),
            find("MSG_REGION"),
        )


class Packer:
    """Makes what a producer sends.

    Args:
      client: gives ids, times, namespace and credentials; need not be open.
      group: the producer's, with namespace.
      config: the producer's.

    Raises: ConfigurationError: a package is missing for the compression that is configured.
    """

    def __init__(self, client: Client, group: str, config: ProducerConfig) -> None:
        self._client = client
        self._group = group
        self._config = config
        self._templates: dict[str, tuple[str, SendTemplate]] = {}
        if config.compression is not CompressionType.ZLIB:
            try:
                compress(b"", config.compression)
            except MissingPackageError as error:
                raise ConfigurationError(str(error)) from error

    @property
    def topics(self) -> list[str]:
        """The topics that something was made for, with namespace."""
        return [topic for topic, _ in self._templates.values()]

    def message(
        self,
        message: Message,
        more: Mapping[str, str] | None = None,
        *,
        is_system_topic: bool = False,
    ) -> Outgoing:
        """A message by itself.

        Args:
          more: RocketMQ's own properties beside the unique key.
          is_system_topic: the topic is one that programs may not send to.

        Raises: MessageRefusedError: no broker would take it.
        """
        topic, template = self._template(message.topic, is_system_topic)
        body = self._body(message)
        sys_flag = 0
        if len(body) > self._config.compress_over:
            body = compress(body, self._config.compression, self._config.compression_level)
            sys_flag = self._config.compression.sys_flag
        message_id = self._client.next_unique_id()
        if more is None and is_bare(message):
            properties = _BARE_PROPERTIES % message_id.encode()
        else:
            own = {names.PROPERTY_UNIQUE_KEY: message_id}
            if more:
                own.update(more)
                if more.get(names.PROPERTY_TRANSACTION_PREPARED) == "true":
                    sys_flag |= TRANSACTION_PREPARED_TYPE
            properties = _encoded(wire_properties(message, own))
        return Outgoing(
            message,
            topic,
            template,
            message_id,
            properties,
            body,
            sys_flag,
            False,
            self._client.wall_ms(),
        )

    def batch(self, messages: Sequence[Message]) -> Outgoing:
        """Messages of one topic in one request.

        Raises: MessageRefusedError: none, of several topics, delayed, or too large together.
        """
        if not messages:
            raise MessageRefusedError("a batch without messages")
        first = messages[0]
        topic, template = self._template(first.topic, False)
        entries: list[WireMessage] = []
        ids: list[str] = []
        size = 0
        for message in messages:
            _check_entry(message, first)
            body = self._body(message)
            size += len(body)
            message_id = self._client.next_unique_id()
            ids.append(message_id)
            properties = wire_properties(message, {names.PROPERTY_UNIQUE_KEY: message_id})
            entries.append(WireMessage(topic, body, message.flag, properties))
        if size > self._config.message_size_max:
            raise MessageRefusedError(
                f"a batch of {size} bytes; {self._config.message_size_max} are allowed. Split it"
            )
        try:
            packed = encode_batch(entries)
        except LocalProtocolError as error:
            raise MessageRefusedError(str(error)) from error
        wait = {names.PROPERTY_WAIT_STORE_MSG_OK: "true" if first.wait_store_ok else "false"}
        return Outgoing(
            first,
            topic,
            template,
            ",".join(ids),
            _encoded(wait),
            packed,
            0,
            True,
            self._client.wall_ms(),
        )

    def again(
        self,
        message: Message,
        properties: Mapping[str, str],
        *,
        reconsume_times: int,
        max_reconsume_times: int,
    ) -> Outgoing:
        """What was a message before, with all its properties, for a retry topic.

        Args:
          message: its topic with namespace, its body bytes; of the rest only the flag counts.
          reconsume_times: how often it was consumed.
          max_reconsume_times: how often it may be.

        Raises: MessageRefusedError: a property that cannot be.
        """
        return Outgoing(
            message,
            message.topic,
            self._new_template(message.topic),
            properties.get(names.PROPERTY_UNIQUE_KEY, ""),
            _encoded(properties),
            message.body,
            0,
            False,
            self._client.wall_ms(),
            reconsume_times,
            max_reconsume_times,
        )

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
            credentials=self._client.credentials,
        )

    def _body(self, message: Message) -> bytes:
        body = message.body
        if isinstance(body, str):
            body = body.encode()
        elif not isinstance(body, bytes):
            if self._config.serializer is not None:
                body = self._config.serializer(body)
            elif isinstance(body, bytearray | memoryview):
                body = bytes(body)
        if not isinstance(body, bytes):
            raise MessageRefusedError(
                f"a body of type {type(body).__name__}; it is bytes or str, or give the producer a"
                " serializer"
            )
        try:
            check_body(message.topic, body, self._config.message_size_max)
        except ValueError as error:
            raise MessageRefusedError(str(error)) from None
        return body


_BARE_PROPERTIES: Final = names.properties_to_bytes(
    {names.PROPERTY_WAIT_STORE_MSG_OK: "true", names.PROPERTY_UNIQUE_KEY: "%b"}
)
"""The properties of a message that has none of its own, around its unique key."""


def _check_entry(message: Message, first: Message) -> None:
    if message.topic != first.topic:
        raise MessageRefusedError(
            f"a batch is for one topic; this one is for {first.topic} and {message.topic}"
        )
    if message.delay_level or message.delay_s or message.deliver_at_ms:
        raise MessageRefusedError("a batch takes no delayed messages; send them one by one")
    if message.wait_store_ok != first.wait_store_ok:
        raise MessageRefusedError("all messages of a batch have one wait_store_ok")


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
