"""Making what a producer sends: checked, compressed, properties as bytes.

Java counterpart: DefaultMQProducerImpl.sendKernelImpl, tryToCompressMessage; MessageBatch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ..common import message_properties as names
from ..common.topic_names import AUTO_CREATE_TOPIC
from ..remoting.compression import CompressionType, compress
from ..remoting.errors import LocalProtocolError, MissingPackageError
from ..remoting.message import Message as WireMessage
from ..remoting.message_batch import encode_batch
from ..remoting.sys_flag import TRANSACTION_PREPARED_TYPE
from .client import Client
from .core.outgoing import Outgoing
from .core.send_header import SendPayload, SendTemplate
from .core.topics import check_body, check_properties_size, check_send_topic
from .errors import ConfigurationError, MessageRefusedError
from .message import Message, is_bare, wire_properties
from .send_options import ProducerConfig


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
        now_ms = self._client.wall_ms()
        message_id = self._client.next_unique_id(now_ms)
        if more is None and is_bare(message):
            properties = _BARE_PROPERTIES % message_id.encode()
        else:
            own = {names.PROPERTY_UNIQUE_KEY: message_id}
            if more:
                own.update(more)
                if more.get(names.PROPERTY_TRANSACTION_PREPARED) == "true":
                    sys_flag |= TRANSACTION_PREPARED_TYPE
            properties = _encoded(wire_properties(message, own))
        payload = SendPayload(properties, body, sys_flag, now_ms, message.flag)
        return Outgoing(message, topic, message_id, template, payload)

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
        payload = SendPayload(
            _encoded(wait), packed, 0, self._client.wall_ms(), first.flag, is_batch=True
        )
        return Outgoing(first, topic, ",".join(ids), template, payload)

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
        return Outgoing(message, message.topic, message_id, template, payload)

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
"""The properties of a message that has no others, around its unique key."""


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
