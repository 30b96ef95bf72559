"""Pops: POP_MESSAGE 200050, messages that only one consumer of a group gets for a while.

A pop reads the queues of the topic, and before or after them those of the group's retry topic. What
it gives becomes one check point for each queue, which waits in the buffer (`pop/buffer.py`) or is
stored with the turn. A pop that finds nothing waits (`pop/hold.py`).

Nothing can come between the read of a queue and its check point, because a pop is one plain call;
Apache's broker locks the queue, and skips one that is locked.

Java counterpart: broker/processor/PopMessageProcessor.java of 5.5.0.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Final, NamedTuple

import msgspec

from ...common.sql92.expression import Expression
from ...common.topic_names import RETRY_TOPIC_PREFIX
from ...disk.errors import StoreError
from ...remoting.answer_template import AnswerTemplate
from ...remoting.bodies import SubscriptionGroupConfig, TopicConfig
from ...remoting.channel import Channel, Processor
from ...remoting.codec import RemotingCommand, encode
from ...remoting.errors import RemotingError, RequestRefused
from ...remoting.headers import PopMessageRequestHeader, decode
from ...remoting.receipt import ORDER_REVIVE_QUEUE, TopicForm, encode_order_counts
from ...remoting.request_codes import RequestCode
from ...remoting.response_codes import ResponseCode
from ...store.message_store import MessageStore
from ...store.reading.message_reader import GetMessageResult
from ...store.reading.record_filter import RecordFilter
from ...store.status import GetMessageStatus
from ..messages.admission import may_commit_offset, own_offsets
from ..messages.message_priority import pops_by_priority, queues_to_read
from ..puts.send_turn import SendTurn
from ..settings.config import BrokerConfig
from ..stats.broker_stats_manager import BrokerStatsManager
from ..tables.consumer_offset_manager import ConsumerOffsetManager, key_of
from ..tables.topic_config_manager import TopicConfigManager
from ..waiting.pull import FILTER_TIME_MAX_S, Selector
from .buffer import Buffered, PopOrder
from .check_point import CheckPoint
from .pop_checks import PopChecks, possible_time
from .popped import Popped, as_of_topic, diffs_of
from .services import PopServices
from .waiting_requests import Polling, polling_key

logger = logging.getLogger(__name__)

_NORMAL: Final = TopicForm.NORMAL.value
_FOUND: Final = GetMessageStatus.FOUND
_SKIPS: Final = frozenset(
    {
        GetMessageStatus.NO_MATCHED_MESSAGE,
        GetMessageStatus.OFFSET_FOUND_NULL,
        GetMessageStatus.MESSAGE_WAS_REMOVING,
        GetMessageStatus.OFFSET_TOO_SMALL,
    }
)
"""Outcomes after which the next pop begins at another offset."""
_BAD: Final = frozenset(
    {
        GetMessageStatus.OFFSET_TOO_SMALL,
        GetMessageStatus.OFFSET_OVERFLOW_BADLY,
        GetMessageStatus.OFFSET_FOUND_NULL,
    }
)
"""Outcomes of an offset at which there is no message; it is corrected once."""

_NAMES: Final = (
    "popTime",
    "invisibleTime",
    "reviveQid",
    "restNum",
    "startOffsetInfo",
    "msgOffsetInfo",
)
_TEMPLATE: Final = AnswerTemplate(_NAMES, remark=_FOUND.name)
_RANDOM_MAX: Final = 100

QUEUES_MAX: Final = 4_096
"""Queues of a topic that one pop reads, which blocks the loop for 1 us each; the pops of a topic
with more begin anywhere, so that together they read all. RocketMQ reads all."""


class Asked(NamedTuple):
    """A pop that passed its checks.

    Attributes:
      count_max: messages wanted.
      pop_time: ms since 1970.
      revive_queue_id: queue of the revive topic for its check points.
      selector: the filter; None: all messages.
      end_s: when a scan for matching messages ends, by the monotonic clock.
    """

    header: PopMessageRequestHeader
    count_max: int
    pop_time: int
    revive_queue_id: int
    selector: Selector | None
    channel: Channel
    end_s: float


class PopMessageProcessor:
    """Serves pops, at once or after they have waited.

    Args:
      store: already loaded.
      pop: the parts of pop consumption.
      topics, offsets: the broker's tables.
      random: chooses the first queue, and when a retry topic comes first.
      stats: counts the messages.
      monotonic_s: the clock for scans.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        turn: SendTurn,
        pop: PopServices,
        checks: PopChecks,
        *,
        topics: TopicConfigManager,
        offsets: ConsumerOffsetManager,
        random: Random,
        stats: BrokerStatsManager,
        monotonic_s: Callable[[], float],
    ) -> None:
        self._config = config
        self._store = store
        self._turn = turn
        self._pop = pop
        self._buffer = pop.buffer
        self._positions = pop.positions
        self._offsets = offsets
        self._topic_table = topics.topic_config_table
        self._random = random
        self._stats = stats
        self._wall_ms = store.clock.wall_ms
        self._monotonic_s = monotonic_s
        self._checks = checks
        self._count = 0
        self.processors: dict[RequestCode, Processor] = {
            RequestCode.POP_MESSAGE: self.pop_message,
        }
        pop.hold.serve = self.pop_message

    def pop_message(self, request: RemotingCommand, channel: Channel) -> None:
        """Serve a pop; the answer is written to the channel, now or later.

        Raises: RequestRefused: with Apache's codes and remarks; or NO_PERMISSION if the group is
          the broker's own.
        """
        header = decode(PopMessageRequestHeader, request.ext_fields)
        invisible_time = possible_time(header.invisible_time, self._store.config)
        if invisible_time != header.invisible_time:
            header = msgspec.structs.replace(header, invisible_time=invisible_time)
        now_ms = self._wall_ms()
        clients_ms = self._pop.hold.clients_ms()
        born_time = header.born_time
        # Put into the request, too, because a pop that waits is decoded again when it is woken.
        if born_time == 0:
            born_time = clients_ms
            request.ext_fields = {**request.ext_fields, "bornTime": str(born_time)}
        group = header.consumer_group
        topic, config = self._checks.check(header, clients_ms - born_time, channel)
        if not may_commit_offset(group):
            raise RequestRefused(ResponseCode.NO_PERMISSION, own_offsets(group))
        selector = self._checks.selector(header.topic, group, header.exp_type, header.exp)
        self._checks.note(header, now_ms)
        if header.order:
            self._pop.orders.check(header.topic, header.attempt_id)
            revive_queue_id = ORDER_REVIVE_QUEUE
        else:
            # By turns, so that the revive queues have equally many records.
            revive_queue_id = self._count % self._config.revive_queue_num
            self._count += 1
        asked = Asked(
            header,
            header.max_msg_nums,
            now_ms,
            revive_queue_id,
            selector,
            channel,
            self._monotonic_s() + FILTER_TIME_MAX_S,
        )
        popped = Popped()
        self._pop_all(asked, topic, config, popped)
        if popped.count:
            self._answer(request, asked, popped)
        elif popped.trouble:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, popped.trouble)
        else:
            self._wait(request, asked, born_time, popped)

    # ---- queues ----------------------------------------------------------------------------

    def _pop_all(
        self,
        asked: Asked,
        topic: TopicConfig,
        group: SubscriptionGroupConfig,
        popped: Popped,
    ) -> None:
        """Pop from the topic, and, but in order, from the retry topic before or after it."""
        config, header = self._config, asked.header
        number = self._random.randrange(_RANDOM_MAX)
        first, retry_percent = number, config.pop_from_retry_probability
        if topic.attributes and not header.order and pops_by_priority(topic, group, number):
            first, retry_percent = 0, config.pop_from_retry_probability_for_priority
        retry_first = number < retry_percent
        retries: list[TopicConfig] = []
        if not header.order:
            names = self._pop.retry_topics.read_names(header.topic, header.consumer_group)
            retries = [
                retry
                # Both forms of a retry topic may have messages; by turns, so that neither starves.
                for name in names[:: -1 if number % 2 == 0 else 1]
                if (retry := self._topic_table.get(name)) is not None
            ]
        if retry_first:
            self._pop_retries(asked, retries, first, popped)
        if header.queue_id < 0:
            self._pop_topic(asked, topic, first, popped)
        else:
            key = key_of(header.topic, header.consumer_group)
            self._pop_queue(asked, header.topic, key, header.queue_id, popped)
        if not retry_first and popped.count < asked.count_max:
            self._pop_retries(asked, retries, first, popped)

    def _pop_retries(
        self, asked: Asked, retries: list[TopicConfig], first: int, popped: Popped
    ) -> None:
        """Pop from the first of the group's retry topics that has messages.

        From one only, because an answer may name each queue once; and Apache's broker, which looks
        at one only, leaves the messages of the other to a later pop, even if they woke this one.
        """
        before = popped.count
        for retry in retries:
            self._pop_topic(asked, retry, first, popped)
            if popped.count > before:
                return

    def _pop_topic(self, asked: Asked, topic: TopicConfig, first: int, popped: Popped) -> None:
        """Pop from all queues of a topic.

        Args:
          first: see `queues_to_read`.
        """
        count, name = topic.read_queue_nums, topic.topic_name
        key = key_of(name, asked.header.consumer_group)
        if count > QUEUES_MAX:
            first = self._random.randrange(count)
        ascending = self._config.priority_order_asc
        for queue_id in queues_to_read(count, first, is_ascending=ascending)[:QUEUES_MAX]:
            self._pop_queue(asked, name, key, queue_id, popped)

    def _pop_queue(
        self, asked: Asked, topic: str, offset_key: str, queue_id: int, popped: Popped
    ) -> None:
        """Pop from one queue what the answer has room for.

        Args:
          offset_key: of topic and group in the table of offsets.
        """
        header, buffer = asked.header, self._buffer
        order = buffer.find(topic, header.consumer_group, queue_id)
        offset = self._positions.next(offset_key, topic, queue_id, order, header.init_mode)
        if self._store.reader.ends_at(topic, queue_id, offset):
            return  # nearly always, of the retry topic
        if order is None:
            order = buffer.order(topic, header.consumer_group, queue_id)
        order.used_ms = asked.pop_time
        if header.order and self._pop.orders.is_blocked(
            *order.key, header.attempt_id, header.invisible_time
        ):
            return
        room = asked.count_max - popped.count
        if room <= 0 or self._is_full(order) or self._is_over(asked):
            popped.rest += max(self._store.max_offset(topic, queue_id) - offset, 0)
            return
        try:
            result = self._get(asked, topic, queue_id, offset, room)
            if result.status in _BAD:
                offset = self._correct(order, offset, result)
                result = self._get(asked, topic, queue_id, offset, room)
        except StoreError as error:
            self._note_trouble(asked, order, error, popped)
            return
        popped.rest += max(result.max_offset - result.next_begin_offset, 0)
        if result.status is _FOUND:
            self._take(asked, order, offset, result, popped)
        elif result.status in _SKIPS and result.next_begin_offset > offset:
            buffer.skip(order, result.next_begin_offset)
            popped.has_skipped = True

    def _note_trouble(
        self, asked: Asked, order: PopOrder, error: Exception, popped: Popped
    ) -> None:
        topic, _, queue_id = order.key
        popped.trouble = str(error)
        logger.error(
            "%(peer)s: a pop of %(topic)s queue %(queue_id)d failed: %(error)s. Other queues are "
            "popped",
            {
                "peer": asked.channel.remote_address,
                "topic": topic,
                "queue_id": queue_id,
                "error": error,
            },
        )

    def _is_full(self, order: PopOrder) -> bool:
        """Whether too many messages of the queue are not acknowledged."""
        config = self._config
        return (
            config.enable_pop_message_threshold
            and order.in_flight > config.pop_inflight_message_threshold
        )

    def _get(
        self, asked: Asked, topic: str, queue_id: int, offset: int, count: int
    ) -> GetMessageResult:
        """Read from the store. Raises: StoreError: a record or file cannot be read."""
        selector = asked.selector
        if selector is None:  # nearly always
            return self._store.get_message(topic, queue_id, offset, count)
        if isinstance(selector, Expression):
            record_filter = RecordFilter(selector.matches, partial(self._is_over, asked))
            return self._store.get_message(
                topic, queue_id, offset, count, record_filter=record_filter
            )
        return self._store.get_message(topic, queue_id, offset, count, tags_codes=selector)

    def _is_over(self, asked: Asked) -> bool:
        """Whether a pop with a filter has scanned long enough; the next pop continues there."""
        return asked.selector is not None and self._monotonic_s() > asked.end_s

    def _correct(self, order: PopOrder, offset: int, result: GetMessageResult) -> int:
        """Begin elsewhere, because there is no message at the offset; return where."""
        corrected = result.next_begin_offset
        topic, group, queue_id = order.key
        logger.warning(
            "group %(group)s pops %(topic)s queue %(queue_id)d from %(corrected)d on: no "
            "message is at %(queue_offset)d (%(status)s)",
            {
                "group": group,
                "topic": topic,
                "queue_id": queue_id,
                "corrected": corrected,
                "queue_offset": offset,
                "status": result.status.name,
            },
        )
        if corrected < offset:  # the queue is not the one that was popped
            self._buffer.restart(order)
            self._offsets.commit_by_key(order.offset_key, queue_id, corrected)
        else:
            self._buffer.skip(order, corrected)
        return corrected

    def _take(
        self, asked: Asked, order: PopOrder, offset: int, result: GetMessageResult, popped: Popped
    ) -> None:
        """Make the messages of one queue a check point, and add them to the answer."""
        header = asked.header
        topic, group, queue_id = order.key
        next_offset = result.next_begin_offset
        plain = topic not in self._store.queue_store.batch_topics
        check_point = CheckPoint(
            topic=topic,
            group=group,
            queue_id=queue_id,
            start_offset=offset,
            pop_time=asked.pop_time,
            invisible_time=header.invisible_time,
            broker_name=self._config.broker_name,
            diffs=diffs_of(result.buffers, offset, result.count, next_offset, plain=plain),
        )
        revive_queue_id = asked.revive_queue_id
        buffers: Sequence[bytes | memoryview] = result.buffers
        size, form = result.size, _NORMAL
        if topic.startswith(RETRY_TOPIC_PREFIX):
            form = TopicForm.of(topic).value
            is_retry = topic != header.topic
            # Clients look for the topic that they asked for, so copies from the retry topic get its
            # name.
            if is_retry and not self._config.pop_response_return_actual_retry_topic:
                try:
                    buffers = as_of_topic(buffers, header.topic, check_point, revive_queue_id)
                except RemotingError as error:
                    self._note_trouble(asked, order, error, popped)
                    return
                size = sum(map(len, buffers))
        if header.order:
            popped.order_counts.append(self._pop.orders.popped(check_point, header.attempt_id))
        # Without its check point stored or buffered, a message that is given out could be lost.
        elif not self._keep(asked, order, check_point, next_offset, popped):
            popped.rest += result.count
            return
        self._stats.count_get(order.offset_key, result.count, result.size)
        popped.add(check_point, form, buffers, size)

    def _keep(
        self,
        asked: Asked,
        order: PopOrder,
        check_point: CheckPoint,
        next_offset: int,
        popped: Popped,
    ) -> bool:
        """Put a check point into the buffer, or append its record; False: it cannot be stored."""
        buffer = self._buffer
        if (
            buffer.may_wait(order, check_point, asked.pop_time)
            and buffer.add(order, check_point, next_offset, asked.revive_queue_id) is not None
        ):
            return True
        trouble = self._store_now(asked, order, check_point, next_offset)
        popped.trouble = trouble or popped.trouble
        # Then the answer waits for the turn, which writes the record.
        popped.is_stored |= not trouble
        return not trouble

    def _store_now(
        self, asked: Asked, order: PopOrder, check_point: CheckPoint, next_offset: int
    ) -> str:
        """Append a check point's record to the turn; return why it is not stored, "": it is."""
        try:
            self._turn.begin(asked.channel)
        except RequestRefused as busy:
            return busy.remark
        buffer = self._buffer
        # Without a pop in memory only, all that is before this one is in the log.
        is_next_known = self._pop.puts.are_acks_durable and not buffer
        refusal = self._pop.puts.put_check_point(
            check_point, asked.revive_queue_id, next_offset if is_next_known else -1
        )
        if refusal is not None:
            return refusal.remark or refusal.status.name
        entry = buffer.add_stored(order, check_point, next_offset, asked.revive_queue_id)
        self._turn.when_written(partial(self._written, entry))
        return ""

    def _written(self, entry: Buffered, is_stored: bool) -> None:
        if is_stored:
            self._buffer.was_written(entry, self._store.max_physical_offset)
        else:
            self._buffer.was_not_written(entry, self._wall_ms())

    # ---- answers ---------------------------------------------------------------------------

    def _answer(self, request: RemotingCommand, asked: Asked, popped: Popped) -> None:
        header = asked.header
        values = (
            b"%d" % asked.pop_time,
            b"%d" % header.invisible_time,
            b"%d" % asked.revive_queue_id,
            b"%d" % popped.rest,
            ";".join(popped.starts).encode("ascii"),
            ";".join(popped.offsets).encode("ascii"),
        )
        # The usual answer is filled into a template; this one waits for the turn, or has more
        # fields.
        if popped.is_stored or header.order:
            fields = {name: str(value, "ascii") for name, value in zip(_NAMES, values, strict=True)}
            if header.order:
                fields["orderCountInfo"] = encode_order_counts(popped.order_counts)
            body = b"".join(popped.buffers)
            answer = request.answer(ResponseCode.SUCCESS, _FOUND.name, fields, body)
            if popped.is_stored:
                self._turn.answer(request, answer, False)
            else:
                asked.channel.write(encode(answer))
        else:
            head = _TEMPLATE.encode_all(request.opaque, request.serialize_type, values, popped.size)
            asked.channel.write([head, *popped.buffers], len(head) + popped.size)
        # There is more than this answer has: another waiting pop can be served at once.
        if popped.rest > 0:
            self._pop.hold.notify(header.topic, header.consumer_group, header.queue_id)

    def _wait(self, request: RemotingCommand, asked: Asked, born_time: int, popped: Popped) -> None:
        """Hold a pop that found nothing, or answer it."""
        header = asked.header
        hold = self._pop.hold
        polling = hold.pops.hold(
            request,
            asked.channel,
            polling_key(header.topic, header.consumer_group, header.queue_id),
            wait_ms=hold.wait_ms(born_time, header.poll_time),
            selector=asked.selector,
        )
        # Without progress the next pop would find nothing either, and wake another for ever.
        if popped.rest > 0 and popped.has_skipped:
            self._pop.hold.notify(header.topic, header.consumer_group, header.queue_id)
        if polling is Polling.WAITS:
            return
        code = ResponseCode.POLLING_FULL
        if polling is Polling.TIMEOUT:
            code = ResponseCode.POLLING_TIMEOUT
        fields = {
            "popTime": str(asked.pop_time),
            "invisibleTime": str(header.invisible_time),
            "reviveQid": str(asked.revive_queue_id),
            "restNum": str(popped.rest),
            "startOffsetInfo": "",
            "msgOffsetInfo": "",
            **({"orderCountInfo": ""} if header.order else {}),
        }
        self._stats.count_misses(1)
        remark = GetMessageStatus.NO_MESSAGE_IN_QUEUE.name
        asked.channel.write(encode(request.answer(code, remark, fields)))
