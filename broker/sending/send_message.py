"""Sends: SEND_MESSAGE 10, SEND_MESSAGE_V2 310.

The hot path. A send is checked and appended by one plain function; its answer is built at once but
kept by the turn (`send_turn.py`) until the store has written everything that the turn appended, so
no answer leaves before its message is in the file.

`_send_special` handles messages that are stored elsewhere first (delayed ones in
SCHEDULE_TOPIC_XXXX or rmq_sys_wheel_timer, half messages, and retries that become dead letters),
and those with a priority.

Java counterpart: broker/processor/SendMessageProcessor.java, AbstractSendMessageProcessor.java of
5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ...common.java_hash import tags_code
from ...common.message_properties import (
    MSG_REGION_HEAD,
    PROPERTY_DELAY_TIME_LEVEL,
    TAGS_HEAD,
    TAGS_NAME,
    TRANSACTION_PREPARED_NAME,
    UNIQUE_KEY_HEAD,
    UNIQUE_KEY_NAME,
    WAIT_OFF,
    find_property,
)
from ...common.topic_names import (
    DLQ_TOPIC_PREFIX,
    RETRY_TOPIC_PREFIX,
    SYSTEM_TOPIC_PREFIX,
    TIMER_TOPIC,
)
from ...native.path_counts import PathCounts
from ...remoting.channel import Channel, Processor
from ...remoting.codec import RemotingCommand
from ...remoting.errors import RequestRefused
from ...remoting.headers import read_number
from ...remoting.message_id import encode_offset_id
from ...remoting.number_fields import RECONSUME_TIMES_MAX
from ...remoting.recall_handle import recall_handle
from ...remoting.request_codes import RequestCode
from ...remoting.response_codes import FAQ_HELP, ResponseCode
from ...remoting.sys_flag import (
    TRANSACTION_NOT_TYPE,
    reset_transaction_value,
)
from ...store.message_store import MessageStore
from ...store.status import PutMessageStatus, PutRefusal
from ..messages.admission import admitted, is_special
from ..messages.half_messages import half_message
from ..messages.inner_message import InnerMessage, WaitingRefused, delay_level
from ..messages.message_priority import PRIORITY_HEAD, place_by_priority
from ..puts.added_properties import AddedProperties
from ..puts.turn_puts import Place
from ..settings.config import BrokerConfig
from ..static_topics.static_topic import StaticTopicProcessor, is_physical
from ..tables.subscription_group_manager import SubscriptionGroupManager
from ..transactions.send_half import HalfPuts, UsualHalves
from .send_numbers import (
    BORN_DIGITS,
    LETTER_NAMES,
    QUEUE_IDS,
    WORD_NAMES,
    SendNames,
    is_batch,
    read_numbers,
)
from .send_topics import DLQ_QUEUE_COUNT, WORD_CODES, SendTopics, bad_header
from .usual_delays import UsualDelays

_USUAL_TEXTS = ("0", "0", "0", "false")


class SendMessageProcessor:
    """Checks and appends sends, and has the turn answer them.

    Args:
      store: already loaded.
      halves: appends half messages; with the puts of all others, and the turn.
      topics: finds or creates topics.
      added: the properties that the broker adds to each message.
      is_ordered: returns whether a group consumes in order, that is, a client of it holds locks.
      static: rewrites sends to static topics.
      send_batch: serves the sends that say that their body is a batch.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        halves: HalfPuts,
        topics: SendTopics,
        added: AddedProperties,
        *,
        groups: SubscriptionGroupManager,
        is_ordered: Callable[[str], bool],
        static: StaticTopicProcessor,
        send_batch: Processor,
    ) -> None:
        self._config = config
        self._store = store
        self._halves = halves
        self._puts = halves.puts
        self._turn = halves.puts.turn
        self._topics = topics
        self._added = added
        self._groups = groups
        self._is_ordered = is_ordered
        self._static = static
        self._send_batch = send_batch
        self._send_usual_half = UsualHalves(config, store, halves, added).send
        levels = halves.puts.inner.levels
        self._send_usual_delay = UsualDelays(store, self._turn, levels, added).send
        self._counts = PathCounts() if store.runs is None else store.runs.sends
        # Copies for `_send`, which reads them for every message.
        self._topic_table = topics.table
        self._checked_topics = topics.checked
        self._store_host = halves.puts.turn.store_host
        self.settings_changed()
        self.processors: dict[RequestCode, Processor] = {
            RequestCode.SEND_MESSAGE: self.send_message,
            RequestCode.SEND_MESSAGE_V2: self.send_message_v2,
            RequestCode.SEND_BATCH_MESSAGE: self.send_batch_message,
        }

    def settings_changed(self) -> None:
        """Copy what `_send` reads for every message; call it after that of the other parts."""
        self._is_read_only = self._topics.is_read_only
        self._message_size_max = self._store.config.max_message_size
        self._added_first, self._added_after = self._added.first, self._added.after

    def send_message(self, request: RemotingCommand, channel: Channel) -> None:
        """Serve a send whose header names are words."""
        self._send(request, channel, WORD_NAMES)

    def send_message_v2(self, request: RemotingCommand, channel: Channel) -> None:
        """Serve a send whose header names are letters."""
        self._send(request, channel, LETTER_NAMES)

    def send_batch_message(self, request: RemotingCommand, channel: Channel) -> None:
        """Serve a send that most often says that its body is a batch."""
        if is_batch(request.ext_fields, LETTER_NAMES):
            self._send_batch(request, channel)
        else:
            self._send(request, channel, LETTER_NAMES)

    def _send(self, request: RemotingCommand, channel: Channel, names: SendNames) -> None:
        turn = self._turn
        if channel is not turn.channel:  # saves a call
            turn.begin(channel)
        fields = request.ext_fields
        n_topic, n_queue, n_sys_flag, n_born, n_flag, n_properties, n_reconsume, n_batch = names
        # In nearly all sends the numbers are these strings; others are parsed one by one.
        try:
            topic = fields[n_topic]
            queue_id = QUEUE_IDS.get(fields[n_queue])
            born = fields[n_born]
            texts = (
                fields[n_flag], fields[n_sys_flag], fields.get(n_reconsume) or "0",
                fields.get(n_batch) or "false",
            )  # fmt: skip
            if (
                queue_id is not None
                and texts == _USUAL_TEXTS
                and len(born) == BORN_DIGITS
                and born.isascii()
                and born.isdecimal()
            ):
                born_ms = int(born)
                flag = sys_flag = reconsume = 0
            elif is_batch(fields, names):
                self._send_batch(request, channel)
                return
            else:
                queue_id, born_ms, flag, sys_flag, reconsume = read_numbers(fields, names)
        except KeyError as error:
            raise bad_header(request, error) from error
        config = self._topic_table.get(topic)
        if (
            config is None or self._is_read_only or topic in self._checked_topics
            or (topic[0] == "r" and topic.startswith(SYSTEM_TOPIC_PREFIX))
        ):  # fmt: skip
            if topic in self._static.topics and self._send_static(request, channel, names):
                return
            config = self._topics.check(request, topic, channel)
        if not 0 <= queue_id < config.write_queue_nums:
            queue_id = self._topics.other_queue(config, queue_id, channel)
        properties = fields.get(n_properties, "").encode("utf-8", "replace")
        has_key = UNIQUE_KEY_HEAD in properties
        if topic[0] == "%" or is_special(properties, has_key):
            message = InnerMessage(
                topic, queue_id, request.body, properties, born_ms, channel.remote_host,
                self._store_host, flag, sys_flag, reconsume,
            )  # fmt: skip
            self._send_special(request, message, channel, config.write_queue_nums)
            return
        tags = _tags_of(properties) if TAGS_HEAD in properties else 0
        waits = WAIT_OFF not in properties
        if has_key and MSG_REGION_HEAD not in properties:
            # 4.9 sends no separator after the last property.
            properties += self._added_first if properties[-1] == 2 else self._added_after
        else:
            properties = self._added.merge_into(properties, self._store.wall_time_ms)
        body = request.body
        if len(body) > self._message_size_max:
            raise self._turn.refusal(PutRefusal(PutMessageStatus.MESSAGE_ILLEGAL))
        refusal, physical_offset, queue_offset = self._store.put_message(
            topic, queue_id, body, properties, born_timestamp_ms=born_ms,
            born_host=channel.remote_host, store_host=self._store_host, tags_code=tags,
            flag=flag, sys_flag=sys_flag, reconsume_times=reconsume,
        )  # fmt: skip
        if refusal is not None:
            raise self._turn.refusal(refusal)
        turn.accept(request, queue_id, physical_offset, queue_offset, waits)
        self._counts.left += 1

    def _send_static(self, request: RemotingCommand, channel: Channel, names: SendNames) -> bool:
        """Serve a send to a logic queue; False: it is to a physical one, as most sends."""
        fields = request.ext_fields
        if is_physical(fields):
            return False
        send = partial(self._send, channel=channel, names=names)
        self._static.send(request, fields[names.topic], names.queue_id, self._turn, send)
        return True

    def _send_special(
        self, request: RemotingCommand, message: InnerMessage, channel: Channel, queue_count: int
    ) -> None:
        """Store a send that may have a priority, be delayed or of a transaction, or go to a group's
        retry topic.
        """
        if PRIORITY_HEAD in message.properties:
            message.queue_id, message.properties = place_by_priority(
                message.properties, message.queue_id, queue_count
            )
        if self._send_usual_delay(request, message) or self._send_usual_half(request, message):
            return
        # As in Apache's broker the answer has the requested queue, or that of the priority, but the
        # offsets at which the message is stored.
        queue_id = message.queue_id
        message.properties = admitted(message.properties)
        message.properties = self._added.merge_into(message.properties, self._store.wall_time_ms)
        if find_property(message.properties, TRANSACTION_PREPARED_NAME) == b"true" and not (
            message.reconsume_times > 0 and _has_delay_level(message.properties)
        ):
            self._send_half(request, message)
            return
        # Clients before 4.6.1 keep the bits in a retried message; they would hide it.
        message.sys_flag = reset_transaction_value(message.sys_flag, TRANSACTION_NOT_TYPE)
        if message.topic.startswith(RETRY_TOPIC_PREFIX) and self._is_dead(
            request, message, channel
        ):
            message.topic = DLQ_TOPIC_PREFIX + message.topic.removeprefix(RETRY_TOPIC_PREFIX)
            message.queue_id = 0
            self._topics.of_group(message.topic, DLQ_QUEUE_COUNT)
            message.change_properties({PROPERTY_DELAY_TIME_LEVEL: "-1"})
        waits = WAIT_OFF not in message.properties
        message = self._puts.waiting(message)
        if message.topic == TIMER_TOPIC:
            # The handle first, because its error must not refuse a message that is stored.
            handle = recall_handle(message.properties, self._config.broker_name)
            fields = self._place_fields(queue_id, self._puts.put(message))
            self._turn.answer_send(request, fields | {"recallHandle": handle}, waits)
        else:
            self._turn.accept(request, queue_id, *self._puts.put(message), waits)

    def _send_half(self, request: RemotingCommand, message: InnerMessage) -> None:
        """Store a half message; the answer has its unique key, too."""
        if self._config.reject_transaction_message:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION,
                f"the broker[{self._config.broker_ip1}] sending transaction message is forbidden",
            )
        topic, queue_id = message.topic, message.queue_id
        message = half_message(message)
        try:
            self._puts.inner.refuse_half_too_large(message, topic)
        except WaitingRefused as error:
            raise self._turn.refusal(PutRefusal(error.status, error.remark)) from error
        fields = self._place_fields(queue_id, self._halves.put(message))
        unique_key = find_property(message.properties, UNIQUE_KEY_NAME) or b""
        fields["transactionId"] = unique_key.decode("utf-8", "replace")
        self._turn.answer_send(request, fields, WAIT_OFF not in message.properties)

    def _place_fields(self, queue_id: int, place: Place) -> dict[str, str]:
        return {
            "msgId": encode_offset_id(self._store_host, place.physical_offset),
            "queueId": str(queue_id),
            "queueOffset": str(place.queue_offset),
        }

    def _is_dead(self, request: RemotingCommand, message: InnerMessage, channel: Channel) -> bool:
        """Whether a message that a client sends to a retry topic becomes a dead letter.

        Raises: RequestRefused: the group does not exist.
        Source: SendMessageProcessor.handleRetryAndDLQ.
        """
        group_name = message.topic.removeprefix(RETRY_TOPIC_PREFIX)
        group = self._groups.find(group_name, channel.remote_address)
        if group is None:
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group not exist, {group_name} {FAQ_HELP}",
            )
        self._groups.require_saved(group_name)
        name = "maxReconsumeTimes" if request.code in WORD_CODES else "l"
        text = request.ext_fields.get(name)
        times_max = group.retry_max_times
        if text is not None:
            times_max = read_number(name, RECONSUME_TIMES_MAX, text)
        # A client sends there if sending back failed. An orderly consumer, which holds locks, sends
        # there only messages that it gives up.
        return message.reconsume_times > times_max or self._is_ordered(group_name)


def _tags_of(properties: bytes) -> int:
    raw = find_property(properties, TAGS_NAME)
    return tags_code(raw.decode("utf-8", "replace")) if raw else 0


def _has_delay_level(properties: bytes) -> bool:
    try:
        return delay_level(properties) > 0
    except ValueError as error:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, str(error)) from error
