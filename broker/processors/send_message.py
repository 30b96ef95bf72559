"""Sends: SEND_MESSAGE 10, SEND_MESSAGE_V2 310, SEND_BATCH_MESSAGE 320.

The path that every message passes. A send is checked and appended by one plain function; its
answer is built at once but kept back until the end of the turn, when the store has written
everything that the turn appended (and, under SYNC_FLUSH, until fsync returned): an answer never
leaves before its bytes are in the file.

A delayed message waits in SCHEDULE_TOPIC_XXXX or rmq_sys_wheel_timer, one for a retry topic that
was tried too often goes to the dead letters, a transaction's message waits for its end:
`_send_special`.

Java counterpart: broker/processor/SendMessageProcessor.java, AbstractSendMessageProcessor.java of
5.3.3.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from random import Random
from typing import Final

from ...common.java_hash import tags_code
from ...common.message_properties import (
    find_property,
    properties_from_bytes,
    properties_to_bytes,
)
from ...common.topic_names import (
    DLQ_TOPIC_PREFIX,
    RETRY_TOPIC_PREFIX,
    SYSTEM_TOPIC_PREFIX,
    TIMER_TOPIC,
)
from ...common.topic_validator import refuse_topic
from ...remoting.bodies import TopicConfig
from ...remoting.channel import Channel, Processor
from ...remoting.codec import RemotingCommand
from ...remoting.errors import RemoteProtocolError, RequestRefused
from ...remoting.headers import (
    SendMessageRequestHeader,
    decode,
    decode_send_message_v2,
    read_number,
)
from ...remoting.message_batch import iter_batch, refuse_long_batch
from ...remoting.message_codec import PROPERTIES_SIZE_MAX
from ...remoting.message_id import UniqueIdGenerator, encode_offset_id
from ...remoting.numbers import (
    RECONSUME_TIMES_MAX,
    WANTED_QUEUE_COUNT,
)
from ...remoting.recall_handle import recall_handle
from ...remoting.request_codes import RequestCode
from ...remoting.response_codes import FAQ_HELP, ResponseCode
from ...remoting.sys_flag import (
    TRANSACTION_NOT_TYPE,
    reset_transaction_value,
)
from ...store.message_store import MessageStore
from ...store.status import PutMessageStatus
from ..admission import (
    CLOSED_TOPICS,
    admitted,
    is_special,
    may_break_batch_rules,
    refused_in_batch,
)
from ..attributes import BATCH_CQ, QUEUE_TYPE
from ..config import BrokerConfig
from ..inner_message import InnerMessage, InnerPuts, WaitingRefused, delay_level
from ..subscription_group_manager import SubscriptionGroupManager
from ..topic_config_manager import TopicConfigManager
from ..topic_queues import any_queue
from ..transaction_service import TransactionService
from ..transactions import half_message
from .send_numbers import BORN_DIGITS, QUEUE_IDS, read_numbers, refuse_hidden
from .send_turn import SendTurn

logger = logging.getLogger(__name__)

_PERM_WRITE: Final = 2
_PERM_RW: Final = 6
_PUT_OK = PutMessageStatus.PUT_OK
_V1_NAMES = (
    "topic", "queueId", "sysFlag", "bornTimestamp", "flag", "properties", "reconsumeTimes",
)  # fmt: skip
_V2_NAMES = ("b", "e", "f", "g", "h", "i", "j")
_WORD_CODES: Final = frozenset({RequestCode.SEND_MESSAGE, RequestCode.SEND_REPLY_MESSAGE})
"""Sends whose header names are words and not letters."""
_ZERO_TEXTS = ("0", "0", "0")


class SendMessageProcessor(SendTurn):
    """Checks, appends and answers sends.

    Concurrency: all of it runs inside turns; `end_turn` must be called at the end of every turn,
    before the answers leave.

    Args:
      config: the broker's.
      store: already loaded.
      topics: creates a topic on its first send where that is allowed.
      store_host: address that goes into records and message ids, as `host_bytes` packs it.
      on_messages: called with the queues that have new messages, in the turn that made them
        visible.
      unique_ids: makes the unique key of a message that came without.
      random: picks the queue where the producer left it to the broker.
      inner: appends what may have to wait.
      groups: the consumer groups.
      is_ordered: whether a group consumes in order: somebody holds locks of it.
      transactions: is told of half messages, and of each turn's commit.

    Attributes:
      store_host: as above.
      kinds: of the broker's topics.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        topics: TopicConfigManager,
        store_host: bytes,
        on_messages: Callable[[Collection[tuple[str, int]]], None],
        unique_ids: UniqueIdGenerator,
        random: Random,
        *,
        inner: InnerPuts,
        groups: SubscriptionGroupManager,
        is_ordered: Callable[[str], bool],
        transactions: TransactionService,
    ) -> None:
        trace_on = "true" if config.trace_on else "false"
        super().__init__(
            store,
            transactions,
            on_messages,
            store_host=store_host,
            constants={"MSG_REGION": config.region_id, "TRACE_ON": trace_on},
            held_max=config.send_thread_pool_queue_capacity,
        )
        self._config = config
        self._topics = topics
        self._topic_table = topics.topic_config_table
        self.store_host = self._store_host = store_host
        self._inner = inner
        self.kinds = inner.kinds
        self._groups = groups
        self._is_ordered = is_ordered
        self._is_read_only = not config.broker_permission & _PERM_WRITE
        # 5.x adds these to every record; clients read CLUSTER for request-reply, the others for
        # traces. Source: AbstractSendMessageProcessor.buildMsgContext, SendMessageProcessor.
        self._added_properties = {
            "MSG_REGION": config.region_id,
            "TRACE_ON": trace_on,
            "CLUSTER": config.broker_cluster_name,
        }
        self._added = properties_to_bytes(self._added_properties)
        self._added_after = b"\2" + self._added
        self._random = random
        self._unique_ids = unique_ids
        self.processors: dict[RequestCode, Processor] = {
            RequestCode.SEND_MESSAGE: self.send_message,
            RequestCode.SEND_MESSAGE_V2: self.send_message_v2,
            RequestCode.SEND_BATCH_MESSAGE: self.send_batch_message,
        }

    def send_message(self, request: RemotingCommand, channel: Channel) -> None:
        """Serve a send whose header names are words."""
        self._send(request, channel, _V1_NAMES)

    def send_message_v2(self, request: RemotingCommand, channel: Channel) -> None:
        """Serve a send whose header names are letters."""
        self._send(request, channel, _V2_NAMES)

    def _send(self, request: RemotingCommand, channel: Channel, names: tuple[str, ...]) -> None:
        store = self._store
        if channel is not self._channel:
            self._begin(channel)
        fields = request.ext_fields
        n_topic, n_queue, n_sys_flag, n_born, n_flag, n_properties, n_reconsume = names
        try:
            topic = fields[n_topic]
            queue_id = QUEUE_IDS.get(fields[n_queue])
            born = fields[n_born]
            numbers = (fields[n_flag], fields[n_sys_flag], fields.get(n_reconsume) or "0")
            if (
                queue_id is not None
                and numbers == _ZERO_TEXTS
                and len(born) == BORN_DIGITS
                and born.isascii()
                and born.isdecimal()
            ):
                born_ms = int(born)
                flag = sys_flag = reconsume = 0
            else:
                queue_id, born_ms, flag, sys_flag, reconsume = read_numbers(fields, names)
        except KeyError as error:
            raise _bad_header(request, error) from error
        config = self._topic_table.get(topic)
        if (
            config is None or self._is_read_only or topic in CLOSED_TOPICS
            or (topic[0] == "r" and topic.startswith(SYSTEM_TOPIC_PREFIX))
        ):  # fmt: skip
            config = self.check_topic(request, topic, channel)
        if not 0 <= queue_id < config.write_queue_nums:
            queue_id = self.other_queue(config, queue_id, channel)
        properties = fields.get(n_properties, "").encode("utf-8", "replace")
        has_key = b"UNIQ_KEY\1" in properties
        if topic[0] == "%" or is_special(properties, has_key):
            message = InnerMessage(
                topic, queue_id, request.body, admitted(properties), born_ms, channel.remote_host,
                self._store_host, flag, sys_flag, reconsume,
            )  # fmt: skip
            self._send_special(request, message)
            return
        tags = _tags_of(properties) if b"TAGS\1" in properties else 0
        waits = b"WAIT\1false" not in properties
        if has_key and b"MSG_REGION\1" not in properties:
            # 4.9 leaves the last separator out.
            properties += self._added if properties[-1] == 2 else self._added_after
        else:
            properties = self._merge_properties(properties)
        body = request.body
        if len(body) > self._message_size_max or len(properties) > PROPERTIES_SIZE_MAX:
            raise self._refusal(PutMessageStatus.MESSAGE_ILLEGAL)
        status, physical_offset, queue_offset = store.put_message(
            topic,
            queue_id,
            body,
            properties,
            born_timestamp_ms=born_ms,
            born_host=channel.remote_host,
            store_host=self._store_host,
            tags_code=tags,
            flag=flag,
            sys_flag=sys_flag,
            reconsume_times=reconsume,
        )
        if status is not _PUT_OK:
            raise self._refusal(status)
        self._accept(request, queue_id, physical_offset, queue_offset, waits)

    def _send_special(self, request: RemotingCommand, message: InnerMessage) -> None:
        """A send that may be stored elsewhere: delayed, or for a group's retry topic.

        Its answer names the queue that was asked for, as Apache's does, and the place where the
        message is.
        """
        queue_id = message.queue_id
        message.properties = self._merge_properties(message.properties)
        if find_property(message.properties, b"TRAN_MSG") == b"true" and not (
            message.reconsume_times > 0 and _has_delay_level(message.properties)
        ):
            self._send_half(request, message)
            return
        # Clients before 4.6.1 leave the bits in a message that is tried again; they would hide it.
        message.sys_flag = reset_transaction_value(message.sys_flag, TRANSACTION_NOT_TYPE)
        if message.topic.startswith(RETRY_TOPIC_PREFIX) and self._is_dead(request, message):
            message.topic = DLQ_TOPIC_PREFIX + message.topic.removeprefix(RETRY_TOPIC_PREFIX)
            message.queue_id = 0
            dead = self._topics.create_topic_in_send_message_back(message.topic, queue_count=1)
            if dead is None:
                reason = self._topics.refuse_new(message.topic)
                raise RequestRefused(
                    ResponseCode.SYSTEM_ERROR, reason or f"topic[{message.topic}] not exist"
                )
            message.change_properties({"DELAY": "-1"})
        waits = b"WAIT\1false" not in message.properties
        message = self._waiting_message(message)
        if message.topic == TIMER_TOPIC:
            handle = recall_handle(message.properties, self._config.broker_name)
            physical_offset, queue_offset = self._put(message)
            fields = self._place(physical_offset, queue_id, queue_offset) | {"recallHandle": handle}
            self._answer_with(request, fields, waits)
            return
        physical_offset, queue_offset = self._put(message)
        self._accept(request, queue_id, physical_offset, queue_offset, waits)

    def _send_half(self, request: RemotingCommand, message: InnerMessage) -> None:
        """A transaction's message; its answer names it by its unique key, too."""
        if self._config.reject_transaction_message:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._config.broker_ip1}] sending transaction message is forbidden",
            )
        topic, queue_id = message.topic, message.queue_id
        message = half_message(message)
        try:
            self._inner.refuse_half_too_large(message, topic)
        except WaitingRefused as error:
            raise self._refusal(error.status) from error
        waits = b"WAIT\1false" not in message.properties
        physical_offset, queue_offset = self._put_half(message)
        unique_key = find_property(message.properties, b"UNIQ_KEY") or b""
        fields = self._place(physical_offset, queue_id, queue_offset)
        fields["transactionId"] = unique_key.decode("utf-8", "replace")
        self._answer_with(request, fields, waits)

    def _place(self, physical_offset: int, queue_id: int, queue_offset: int) -> dict[str, str]:
        return {
            "msgId": encode_offset_id(self.store_host, physical_offset),
            "queueId": str(queue_id),
            "queueOffset": str(queue_offset),
        }

    def _answer_with(self, request: RemotingCommand, fields: dict[str, str], waits: bool) -> None:
        answer = request.answer(ResponseCode.SUCCESS, None, fields | self.answer_constants)
        self._answer_at_end(request, answer, waits)

    def _put_half(self, message: InnerMessage) -> tuple[int, int]:
        if self._transactions.open.is_full:
            raise RequestRefused(
                ResponseCode.SYSTEM_BUSY,
                f"[REJECTREQUEST]system busy, {len(self._transactions.open)} transactions are open",
            )
        physical_offset, queue_offset = self._put(message)
        self._transactions.put_half(queue_offset, message.properties)
        return physical_offset, queue_offset

    def _is_dead(self, request: RemotingCommand, message: InnerMessage) -> bool:
        """Whether a message for a retry topic was tried too often.

        A client sends there itself where sending back failed, and an ordered consumer when it gives
        a message up; the latter holds locks.

        Raises: RequestRefused: there is no such group.
        Source: SendMessageProcessor.handleRetryAndDLQ.
        """
        group_name = message.topic.removeprefix(RETRY_TOPIC_PREFIX)
        group = self._groups.find(group_name)
        if group is None:
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group not exist, {group_name} {FAQ_HELP}",
            )
        self._groups.require_saved(group_name)
        name = "maxReconsumeTimes" if request.code in _WORD_CODES else "l"
        text = request.ext_fields.get(name)
        times_max = group.retry_max_times
        if text is not None:
            times_max = read_number(name, RECONSUME_TIMES_MAX, text)
        return message.reconsume_times > times_max or self._is_ordered(group_name)

    def _waiting_message(self, message: InnerMessage) -> InnerMessage:
        """See `InnerPuts.waiting`.

        Raises: RequestRefused: it must not be stored.
        """
        try:
            return self._inner.waiting(message)
        except ValueError as error:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, str(error)) from error
        except WaitingRefused as error:
            raise self._refusal(error.status) from error

    def _put(self, message: InnerMessage) -> tuple[int, int]:
        """Append one message; (physical_offset, queue_offset).

        Raises: RequestRefused: it was not stored.
        """
        size = len(message.body)
        if size > self._message_size_max or len(message.properties) > PROPERTIES_SIZE_MAX:
            raise self._refusal(PutMessageStatus.MESSAGE_ILLEGAL)
        status, physical_offset, queue_offset = self._inner.put(message)
        if status is not _PUT_OK:
            raise self._refusal(status)
        return physical_offset, queue_offset

    def put_inner(
        self,
        request: RemotingCommand,
        channel: Channel,
        message: InnerMessage,
        fields: dict[str, str] | None = None,
        waits: bool | None = None,
        remark: str | None = None,
    ) -> None:
        """Append a message that another request leads to, and answer it with success when written.

        Args:
          fields, remark: of the answer.
          waits: whether, under SYNC_FLUSH, the answer waits for fsync; None: as the message says.
        Raises: RequestRefused: it was not stored.
        """
        if channel is not self._channel:
            self._begin(channel)
        self._put(self._waiting_message(message))
        if waits is None:
            waits = b"WAIT\1false" not in message.properties
        self._answer_at_end(
            request, request.answer(ResponseCode.SUCCESS, remark, fields or {}), waits
        )

    def put_half(self, request: RemotingCommand, channel: Channel, message: InnerMessage) -> None:
        """As `put_inner`, a half message.

        Raises: RequestRefused: it was not stored.
        """
        if channel is not self._channel:
            self._begin(channel)
        self._put_half(message)
        self._answer_at_end(request, request.answer(ResponseCode.SUCCESS, None), False)

    def other_queue(self, config: TopicConfig, queue_id: int, channel: Channel) -> int:
        """The queue for an id that is not one of the writable ones.

        A negative id leaves it to us; a topic without a queue is then refused. One below the read
        queues is taken, as Apache does: a topic that is being shrunk still has clients with the old
        route.
        """
        if queue_id < 0:
            return any_queue(config, self._random)
        if queue_id >= config.read_queue_nums:
            raise RequestRefused(
                ResponseCode.INVALID_PARAMETER,
                f"request queueId[{queue_id}] is illegal, {config} "
                f"Producer: {channel.remote_address}",
            )
        return queue_id

    def _merge_properties(self, properties: bytes) -> bytes:
        """The properties with what the broker adds; `_send` does the usual case itself."""
        if b"UNIQ_KEY\1" in properties and b"MSG_REGION\1" not in properties:
            return properties + (self._added if properties[-1] == 2 else self._added_after)
        # A message without a unique key, or one that a client sends on.
        merged = properties_from_bytes(properties) | self._added_properties
        if not merged.get("UNIQ_KEY"):
            merged["UNIQ_KEY"] = self._unique_ids.next_id(self._store.now_ms)
        return properties_to_bytes(merged)

    def check_topic(self, request: RemotingCommand, topic: str, channel: Channel) -> TopicConfig:
        """What Apache checks of every send, in its order; creates a topic that may be created.

        Raises:
          RequestRefused: the send is not allowed, or its topic is new and cannot be saved.
          Postponed: the topic is new and being saved.
        Source: AbstractSendMessageProcessor.msgCheck.
        """
        config = self._topic_table.get(topic)
        if self._is_read_only and config is not None and config.order:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._config.broker_ip1}] sending message is forbidden",
            )
        remark = refuse_topic(topic)
        if remark is not None:
            raise RequestRefused(ResponseCode.INVALID_PARAMETER, remark)
        if not self.kinds.may_name(RequestCode(request.code), topic):
            raise RequestRefused(
                ResponseCode.NO_PERMISSION, f"Sending message to topic[{topic}] is forbidden."
            )
        if config is not None:
            return config
        letters = request.code not in _WORD_CODES
        fields = request.ext_fields
        try:
            default_topic = fields["c" if letters else "defaultTopic"]
            name = "d" if letters else "defaultTopicQueueNums"
            queue_nums = read_number(name, WANTED_QUEUE_COUNT, fields[name])
        except KeyError as error:
            raise _bad_header(request, error) from error
        unit = fields.get("k" if letters else "unitMode") == "true"
        retry = topic.startswith(RETRY_TOPIC_PREFIX)
        # TopicSysFlag: bit 0 unit, bit 1 unit subscription.
        sys_flag = (2 if retry else 1) if unit else 0
        config = self._topics.create_topic_in_send_message(
            topic, default_topic, channel.remote_address, queue_nums, sys_flag
        )
        if config is None and retry:
            config = self._topics.create_topic_in_send_message_back(
                topic, queue_count=1, perm=_PERM_RW, sys_flag=sys_flag
            )
        if config is None:
            raise RequestRefused(
                ResponseCode.TOPIC_NOT_EXIST,
                self._topics.refuse_new(topic)
                or f"topic[{topic}] not exist, apply first please!{FAQ_HELP}",
            )
        return config

    def send_batch_message(self, request: RemotingCommand, channel: Channel) -> None:
        """Serve a send of several messages of one topic and queue: all of them or none.

        Source: SendMessageProcessor.sendBatchMessage.
        """
        if channel is not self._channel:
            self._begin(channel)
        header = decode_send_message_v2(request.ext_fields)
        topic = header.topic
        refuse_hidden(header.sys_flag, b"")
        if topic.startswith(RETRY_TOPIC_PREFIX):
            raise RequestRefused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"batch request does not support retry group {topic}",
            )
        config = self._topic_table.get(topic)
        if (
            config is None or self._is_read_only or topic in CLOSED_TOPICS
            or topic.startswith(SYSTEM_TOPIC_PREFIX)
        ):  # fmt: skip
            config = self.check_topic(request, topic, channel)
        queue_id = header.queue_id
        if not 0 <= queue_id < config.write_queue_nums:
            queue_id = self.other_queue(config, queue_id, channel)
        if len(request.body) > self._message_size_max:
            raise self._refusal(PutMessageStatus.MESSAGE_ILLEGAL)
        added, unique_key = self._added, None
        if config.attributes.get(QUEUE_TYPE) == BATCH_CQ:
            # One record of its own, an inner batch, if the producer gave the batch a unique key.
            own = (header.properties or "").encode("utf-8", "replace")
            _refuse_in_batch(own)
            unique_key = find_property(own, b"UNIQ_KEY")
            if unique_key is not None:
                added = own + (self._added if own[-1] == 2 else self._added_after)
        try:
            too_long = refuse_long_batch(request.body)
            if too_long is not None:
                raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, f"batch body: {too_long}")
            if may_break_batch_rules(request.body):
                for _, _, properties in iter_batch(request.body):
                    _refuse_in_batch(properties)
            status, offsets, queue_offset = self._store.put_batch(
                topic,
                queue_id,
                request.body,
                added,
                born_timestamp_ms=header.born_timestamp,
                born_host=channel.remote_host,
                store_host=self._store_host,
                flag=header.flag,
                sys_flag=header.sys_flag,
                reconsume_times=header.reconsume_times or 0,
            )
            if status is not _PUT_OK:
                list(iter_batch(request.body))  # says it if the batch cannot be read
                raise self._refusal(status)
        except RemoteProtocolError as error:
            raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, f"batch body: {error}") from error
        prefix = self._id_prefix.decode("ascii")
        fields = {
            "msgId": ",".join(f"{prefix}{offset:016X}" for offset in offsets),
            "queueId": str(queue_id),
            "queueOffset": str(queue_offset),
        }
        if unique_key is not None:  # tells 5.x producers that it is one message with one key
            fields["batchUniqId"] = str(unique_key, "utf-8", "replace")
        waits = "WAIT\1false" not in (header.properties or "")
        self._answer_with(request, fields, waits)


def _bad_header(request: RemotingCommand, error: Exception) -> RequestRefused:
    """The refusal of a header that cannot be read, with the typed header's own words."""
    if request.code in _WORD_CODES:
        decode(SendMessageRequestHeader, request.ext_fields)
    else:
        decode_send_message_v2(request.ext_fields)
    return RequestRefused(ResponseCode.SYSTEM_ERROR, f"bad send header: {error}")


def _tags_of(properties: bytes) -> int:
    raw = find_property(properties, b"TAGS")
    return tags_code(raw.decode("utf-8", "replace")) if raw else 0


def _refuse_in_batch(properties: bytes) -> None:
    """Refuse what would be stored as a plain message, or what only a broker sets.

    Raises: RequestRefused: REQUEST_CODE_NOT_SUPPORTED, see `admission.refused_in_batch`.
    """
    name = refused_in_batch(properties)
    if name is None:
        return
    what = "transaction messages are" if name == "TRAN_MSG" else f"the property {name} is"
    raise RequestRefused(
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f"{what} not supported in a batch"
    )


def _has_delay_level(properties: bytes) -> bool:
    try:
        return delay_level(properties) > 0
    except ValueError as error:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, str(error)) from error
