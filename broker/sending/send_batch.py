"""Sends of several messages at once: SEND_BATCH_MESSAGE 320, SEND_MESSAGE 10 and SEND_MESSAGE_V2
310 whose header says that the body is a batch. The header decides, not the code.

Java counterpart: broker/processor/SendMessageProcessor.java sendBatchMessage of 5.3.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ...common.message_properties import UNIQUE_KEY_NAME, WAIT_OFF, find_property
from ...common.topic_names import RETRY_TOPIC_PREFIX
from ...native import extension
from ...remoting.channel import Channel
from ...remoting.codec import RemotingCommand, SerializeType
from ...remoting.errors import RemoteProtocolError, RequestRefused
from ...remoting.headers import SendMessageRequestHeader, decode, decode_send_message_v2
from ...remoting.message_batch import encode_entry, iter_batch, refuse_long_batch
from ...remoting.request_codes import RequestCode
from ...remoting.response_codes import ResponseCode
from ...store.message_store import MessageStore
from ...store.status import PutMessageStatus, PutRefusal
from ..messages.admission import admitted, may_break_batch_rules, refused_in_batch
from ..puts.added_properties import AddedProperties
from ..puts.send_turn import SendTurn
from ..settings.attributes import BATCH_CQ, QUEUE_TYPE
from ..static_topics.static_topic import StaticTopicProcessor, is_physical
from .send_numbers import LETTER_NAMES, WORD_NAMES, refuse_hidden
from .send_topics import SendTopics


class SendBatchProcessor:
    """Stores batches, each completely or not at all.

    Args:
      store: already loaded.
      topics: finds or creates the topic.
      added: the properties that the broker adds to each message.
      static: rewrites sends to static topics.
    """

    def __init__(
        self,
        store: MessageStore,
        turn: SendTurn,
        topics: SendTopics,
        added: AddedProperties,
        static: StaticTopicProcessor,
    ) -> None:
        self._static = static
        self._store = store
        self._turn = turn
        self._topics = topics
        self._added = added
        self._id_prefix = turn.store_host.hex().upper().encode()
        self._ids_of = batch_ids if extension is None else extension.batch_ids

    def send_batch_message(self, request: RemotingCommand, channel: Channel) -> None:
        """Serve a send of several messages for one topic and queue, whatever its code.

        Raises: RequestRefused: the batch, or one of its messages, is not allowed or was not stored.
        Source: SendMessageProcessor.sendBatchMessage.
        """
        turn = self._turn
        turn.begin(channel)
        has_words = request.code == RequestCode.SEND_MESSAGE
        names = WORD_NAMES if has_words else LETTER_NAMES
        if has_words:
            header = decode(SendMessageRequestHeader, request.ext_fields)
        else:
            header = decode_send_message_v2(request.ext_fields)
        topic = header.topic
        if topic in self._static.topics and not is_physical(request.ext_fields):
            send = partial(self.send_batch_message, channel=channel)
            self._static.send(request, topic, names.queue_id, turn, send)
            return
        refuse_hidden(header.sys_flag, b"")
        if topic.startswith(RETRY_TOPIC_PREFIX):
            raise RequestRefused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"batch request does not support retry group {topic}",
            )
        config = self._topics.of_send(request, topic, channel)
        queue_id = header.queue_id
        if not 0 <= queue_id < config.write_queue_nums:
            queue_id = self._topics.other_queue(config, queue_id, channel)
        if len(request.body) > self._store.config.max_message_size:
            raise turn.refusal(PutRefusal(PutMessageStatus.MESSAGE_ILLEGAL))
        properties = (header.properties or "").encode("utf-8", "replace")
        added, unique_key = self._added.first, None
        if config.attributes.get(QUEUE_TYPE) == BATCH_CQ:
            # The batch is one record, an inner batch, if the producer gave it a unique key.
            properties = admitted(properties)
            _refuse_in_batch(properties)
            unique_key = find_property(properties, UNIQUE_KEY_NAME)
            if unique_key is not None:
                added = self._added.append_to(properties)
        try:
            too_long = refuse_long_batch(request.body)
            if too_long is not None:
                raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, f"batch body: {too_long}")
            body = _admitted(request.body)
            refusal, offsets, queue_offset = self._store.put_batch(
                topic,
                queue_id,
                body,
                added,
                born_timestamp_ms=header.born_timestamp,
                born_host=channel.remote_host,
                store_host=turn.store_host,
                flag=header.flag,
                sys_flag=header.sys_flag,
                reconsume_times=header.reconsume_times or 0,
            )
            if refusal is not None:
                list(iter_batch(body))  # raises a better error if the batch is malformed
                raise turn.refusal(refusal)
        except RemoteProtocolError as error:
            raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, f"batch body: {error}") from error
        ids, waits = self._ids_of(self._id_prefix, offsets), WAIT_OFF not in properties
        if unique_key is None and request.serialize_type == SerializeType.JSON:
            turn.accept_batch(request, queue_id, ids, queue_offset, waits)
            return
        fields = {"msgId": ids, "queueId": str(queue_id), "queueOffset": str(queue_offset)}
        if unique_key is not None:  # for 5.x producers: the batch is one message with one key
            fields["batchUniqId"] = str(unique_key, "utf-8", "replace")
        turn.answer_send(request, fields, waits)


def batch_ids(prefix: bytes, offsets: Sequence[int]) -> str:
    """The ids of a batch's messages for its answer; see `message_id.encode_offset_id`.

    Args:
      prefix: the store host in hexadecimal digits.
      offsets: physical offsets.
    """
    one = prefix.decode() + "%016X"  # the prefix has no percent sign
    return ",".join([one] * len(offsets)) % tuple(offsets)


def _admitted(body: bytes) -> bytes:
    """The body of a batch without properties that only a broker sets.

    Raises:
      RequestRefused: REQUEST_CODE_NOT_SUPPORTED if a message asks for a later delivery.
      RemoteProtocolError: as `iter_batch`.
    """
    # A search in the bytes: nearly all batches have none of these properties.
    if not may_break_batch_rules(body):
        return body
    parts, is_changed = [], False
    for flag, inner, own in iter_batch(body):
        kept = admitted(own)
        _refuse_in_batch(kept)
        is_changed |= kept is not own
        parts.append(encode_entry(flag, inner, kept))
    return b"".join(parts) if is_changed else body


def _refuse_in_batch(properties: bytes) -> None:
    """Refuse a later delivery, which a batch cannot have.

    Raises: RequestRefused: REQUEST_CODE_NOT_SUPPORTED, see `admission.refused_in_batch`.
    """
    name = refused_in_batch(properties)
    if name is not None:
        raise RequestRefused(
            ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
            f"the property {name} is not supported in a batch",
        )
