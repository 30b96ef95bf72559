"""Redelivery: stores what the due check points of a revive queue need, in one burst of the store.

These are copies of the messages in the group's retry topic, or new check points for messages that
cannot be read now.

Java counterpart: reviveMsgFromCk and reviveRetry of broker/processor/PopReviveService.java of
5.5.0.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from ...common.clock import Clock
from ...common.topic_names import normal_topic
from ...disk.errors import StoreError, StoreIOError
from ...remoting.bodies import TopicConfig
from ...remoting.errors import RemoteProtocolError, RequestRefused
from ...remoting.message import MessageExt
from ...remoting.message_codec import decode_record
from ...remoting.receipt import POP_COUNT_MAX
from ...store.message_store import MessageStore
from ...store.status import PutMessageStatus, PutRefusal
from ..messages.inner_message import TOO_LARGE, InnerMessage, InnerPuts
from ..settings.config import BrokerConfig
from ..stats.pop_counts import PopCounts
from ..tables.subscription_group_manager import SubscriptionGroupManager
from ..tables.topic_config_manager import TopicConfigManager
from .check_point import CheckPoint
from .record_puts import RecordPuts
from .records import Ack
from .retry_topics import PopRetryTopics
from .revive_queue import (
    RE_PUT_DELAYS_S,
    ReviveQueue,
    WaitingPoint,
    put_again,
    retry_message,
    single_messages,
)

logger = logging.getLogger(__name__)

SLICE_COUNT: Final = 64
"""Records read or messages revived before other tasks run: about a millisecond."""

SLICE_BYTES: Final = 1024 * 1024
"""Bytes of the messages that are revived in one slice, unless one is larger."""


class _Refused(StoreIOError):
    """The store accepts no messages now."""


class ReviveSlice:
    """What one burst of the store revives.

    Attributes:
      queue: whose check points these are.
      taken: the check points, and the offsets of their messages that are revived or gone.
      size: bytes of the copies.
      revived, re_puts: numbers of messages.
    """

    def __init__(self, queue: ReviveQueue) -> None:
        self.queue = queue
        self.taken: list[tuple[WaitingPoint, list[int]]] = []
        self.size = self.revived = self.re_puts = 0

    @property
    def used(self) -> int:
        """The number of messages, at least one for each check point."""
        return sum(max(len(closed), 1) for _, closed in self.taken)

    @property
    def is_full(self) -> bool:
        """Whether other tasks should run now."""
        return self.size >= SLICE_BYTES or self.used >= SLICE_COUNT

    def settle(self) -> None:
        """Record that the burst is committed."""
        for point, closed in self.taken:
            for offset in closed:
                point.check_point.ack(offset)
            if point.check_point.is_done:
                self.queue.finish(point)
            else:
                self.queue.put_back(point)

    def undo(self) -> None:
        """Record that nothing was stored."""
        for point, _ in self.taken:
            self.queue.put_back(point)


class Redelivery:
    """Appends what check points need to a burst of the store.

    Args:
      store: has the original messages.
      clock: its wall time.
      topics, groups: the broker's tables.
      puts: appends copies of messages.
      records: appends check points.
      retry_topics: names and creates the retry topics.
      host: gives the broker's address, as `host_bytes` packs it.
      counts: counts the copies.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        *,
        clock: Clock,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        puts: InnerPuts,
        records: RecordPuts,
        retry_topics: PopRetryTopics,
        host: Callable[[], bytes],
        counts: PopCounts | None = None,
    ) -> None:
        self._config = config
        self._store = store
        self._clock = clock
        self._topics = topics
        self._groups = groups
        self._puts = puts
        self._records = records
        self._retry_topics = retry_topics
        self._host = host
        self._counts = counts or PopCounts()

    def put_point(
        self, part: ReviveSlice, check_point: CheckPoint, closed: list[int], queue_id: int
    ) -> None:
        """Append what one check point needs, or as much as fits the slice.

        Args:
          part: gets the numbers.
          check_point: is due.
          closed: gets the queue offsets of the messages that are done.
          queue_id: of the revive queue.
        Raises:
          Postponed: the retry topic is new and being saved.
          StoreError: the store accepts no messages, or the retry topic cannot be saved.
        """
        offsets = check_point.unacked_offsets()
        if self._is_gone(check_point):
            closed.extend(offsets)
            return
        trouble, retry = "", None
        name = check_point.broker_name
        if name != self._config.broker_name:
            trouble = f"they are messages of broker {name}, not of this one"
        else:
            retry = self._retry_topic(check_point)
            if retry is None:
                trouble = "the retry topic may not be created, see topicsMax"
        for offset in offsets:
            # The rest of a large check point waits for the next slice; at least one message is
            # done.
            if part.is_full and closed:
                return
            if retry is not None:
                try:
                    messages = self._messages(check_point, offset)
                except (StoreError, RemoteProtocolError) as error:
                    trouble = str(error)
                else:
                    trouble = ""
                    for message in messages:
                        trouble = self._put_copy(part, check_point, message, retry) or trouble
                    if not trouble:
                        # Stored as a copy. Whatever fails is tried again by a check point of its
                        # own below.
                        closed.append(offset)
                        continue
            self._put_again(part, check_point, offset, queue_id, trouble)
            closed.append(offset)

    def put_done(self, part: ReviveSlice, queue_id: int) -> None:
        """Append that the messages of a slice are done, where acknowledgements are durable.

        A start reads check points again that were decided since the last save of the offsets. It
        must not put a second copy into the retry topic: the first may be acknowledged.

        Args:
          queue_id: of the revive queue.
        """
        if not self._records.are_acks_durable:
            return
        for point, closed in part.taken:
            for begin in range(0, len(closed), POP_COUNT_MAX):
                ack = Ack(point.key, tuple(closed[begin : begin + POP_COUNT_MAX]))
                self._records.put_ack(ack, point.check_point.revive_time, queue_id)

    def _is_gone(self, check_point: CheckPoint) -> bool:
        """Whether the topic or the group was deleted."""
        topic, group = check_point.topic, check_point.group
        if self._topics.select(normal_topic(topic, group)) is None:
            missing = "topic"
        elif (
            self._groups.contains(group)
            or self._config.auto_create_subscription_group
            or not self._config.pop_revive_skip_if_group_absent
        ):
            return False
        else:
            missing = "group"
        logger.warning(
            "popped messages of topic %(topic)s are not delivered to group %(group)s again, "
            "because the %(missing)s was deleted",
            {"topic": topic, "group": group, "missing": missing},
        )
        return True

    def _retry_topic(self, check_point: CheckPoint) -> TopicConfig | None:
        try:
            return self._retry_topics.find_or_create(check_point.topic, check_point.group)
        except RequestRefused as error:
            raise _Refused(check_point.topic, error.remark) from error

    def _messages(self, check_point: CheckPoint, offset: int) -> list[MessageExt]:
        """The message at exactly this offset, or those of the batch there; empty: it is gone.

        Raises: StoreError, RemoteProtocolError: it cannot be read.
        """
        topic, queue_id = check_point.topic, check_point.queue_id
        result = self._store.get_message(topic, queue_id, offset, 1)
        if result.buffers:
            message = decode_record(b"".join(result.buffers))
            # A topic that was deleted and created again has lower offsets: those are other
            # messages.
            if message.queue_offset == offset:
                return single_messages(message)
        logger.warning(
            "message %(queue_offset)d of topic %(topic)s queue %(queue_id)d was popped by group "
            "%(group)s and not acknowledged, and cannot be delivered again, because it was deleted",
            {
                "queue_offset": offset,
                "topic": topic,
                "queue_id": queue_id,
                "group": check_point.group,
            },
        )
        return []

    def _put_copy(
        self, part: ReviveSlice, check_point: CheckPoint, message: MessageExt, retry: TopicConfig
    ) -> str:
        """Append a message to its retry topic; return why that refuses it, "": it does not.

        It may be larger than a maxMessageSize that was lowered since; an administrator can raise it
        again.

        Raises: StoreError: the store accepts no messages.
        """
        queue_id = self._retry_topics.queue_of(retry, check_point.queue_id)
        again = retry_message(message, check_point, retry.topic_name, queue_id, self._host())
        refusal = self._put(again)
        if refusal is not None:
            # Its own properties are so long that there is no room for ours, which clients can do
            # without.
            again.properties = InnerMessage.of(message).properties
            refusal = self._put(again)
        status = PutMessageStatus.PUT_OK if refusal is None else refusal.status
        self._counts.retried(check_point.group, check_point.topic, status)
        if refusal is not None:
            reason = refusal.remark or refusal.status.name
            return f"topic {retry.topic_name} refuses it: {reason}"
        part.revived += 1
        part.size += message.store_size
        return ""

    def _put(self, message: InnerMessage) -> PutRefusal | None:
        """Append a message; returns why it cannot be stored as it is.

        Raises: StoreError: the store accepts no messages now.
        """
        refusal = self._puts.put(message)[0]
        if refusal is not None and refusal.status not in TOO_LARGE:
            raise _Refused(message.topic, refusal.remark or refusal.status.name)
        return refusal

    def _put_again(
        self, part: ReviveSlice, check_point: CheckPoint, offset: int, queue_id: int, trouble: str
    ) -> None:
        """Append a check point by which a message is tried again later.

        Raises: StoreError: the store accepts no messages.
        """
        tries = check_point.re_put_times
        if tries >= len(RE_PUT_DELAYS_S) and self._config.skip_when_ck_re_put_reach_max_times:
            logger.error(
                "message %(queue_offset)d of topic %(topic)s queue %(queue_id)d is given up after "
                "%(tries)d tries to deliver it to group %(group)s again "
                "(skipWhenCKRePutReachMaxTimes): %(trouble)s",
                {
                    "queue_offset": offset,
                    "topic": check_point.topic,
                    "queue_id": check_point.queue_id,
                    "tries": tries,
                    "group": check_point.group,
                    "trouble": trouble,
                },
            )
            return
        again = put_again(check_point, offset, self._clock.wall_ms())
        refusal = self._records.put_check_point(again, queue_id)
        if refusal is not None:
            raise _Refused(check_point.topic, refusal.remark or refusal.status.name)
        part.re_puts += 1
        logger.error(
            "message %(queue_offset)d of topic %(topic)s queue %(queue_id)d cannot be delivered to "
            "group %(group)s again now, the next try follows in %(delay_s)d s: %(trouble)s",
            {
                "queue_offset": offset,
                "topic": check_point.topic,
                "queue_id": check_point.queue_id,
                "group": check_point.group,
                "delay_s": (again.revive_time - self._clock.wall_ms()) // 1000,
                "trouble": trouble,
            },
        )
