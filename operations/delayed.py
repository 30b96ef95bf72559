"""Delayed messages that wait on brokers: those with a due time, and those with a level."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio
import msgspec

from ..client import ClientError, RouteNotFoundError
from ..client.admin.asking import ask_all, queues_of
from ..client.admin.looking import PULL_COUNT, first_offset_at, look
from ..client.admin.topics import is_own_topic
from ..client.messages.message import ReceivedMessage
from ..common import message_properties as names
from ..common.delay_levels import MESSAGE_DELAY_LEVEL, delay_levels_ms
from ..common.topic_names import SCHEDULE_TOPIC, TIMER_TOPIC
from ..remoting.bodies import MessageQueue
from ..remoting.recall_handle import recall_handle
from .message_life.copies import due_ms
from .message_search.criteria import Mask, unmasked

if TYPE_CHECKING:
    from ..client import Admin
    from ..remoting.message import MessageExt

SCANNED_MAX: Final = 512
"""Records of a queue that are read, with their bodies: 16 pulls."""
PULLS_MAX: Final = 24
"""Pulls of a broker, all queues together: opening a page costs a broker 40 requests at most."""
TIMER_DELAY_MAX_MS: Final = 3 * 86_400_000
"""The longest delay of a timer message. RocketMQ: timerMaxDelaySec."""
DEADLINE_S: Final = 5.0
"""How long all queues together may take."""
_REVIVE_PREFIX: Final = "rmq_sys_REVIVE_LOG_"


class DelayedMessage(msgspec.Struct, frozen=True, rename="camel"):
    """A message that is not delivered yet.

    Attributes:
      place: `broker:queue:offset` in the topic where it waits.
      message_id: that of its producer.
      topic: where it is delivered; a retry topic: it waits for another try of a group.
      tag, keys: as its producer set them.
      stored_ms, due_ms: ms since 1970.
      recall_handle: for its recall; "": brokers cannot recall it, because it has a delay level, or
        no id of its producer.
      is_recalled: a recall waits beside it, which deletes it when it is due.
    """

    place: str
    message_id: str
    topic: str
    tag: str
    keys: tuple[str, ...]
    stored_ms: int
    due_ms: int
    recall_handle: str
    is_recalled: bool


class DelayedMessages(msgspec.Struct, frozen=True, rename="camel"):
    """Messages that wait, by due time.

    Attributes:
      left_out: records that were too many to be read, so messages may be missing.
      is_late: the deadline passed before everything was read.
      error: what did not answer; "": everything did.
    """

    messages: tuple[DelayedMessage, ...]
    left_out: int
    is_late: bool
    error: str


class _Scan:
    """What was read so far."""

    def __init__(self, admin: Admin, topic: str | None, mask: Mask) -> None:
        self._admin = admin
        self._mask = mask
        self._topic = topic
        self._now_ms = admin.client.wall_ms()
        self._delays: dict[str, list[int]] = {}
        self._found: dict[tuple[str, str, str], DelayedMessage] = {}
        self._recalled: set[str] = set()
        self._pulls: Counter[str] = Counter()
        self.waiting: dict[MessageQueue, tuple[int, int]] = {}
        self.left_out = 0

    async def learn_delays(self, broker_name: str) -> None:
        """Ask a broker for the delays of its levels. Raises: ClientError."""
        config = await self._admin.broker_config(broker_name)
        try:
            delays = delay_levels_ms(config.get("messageDelayLevel", MESSAGE_DELAY_LEVEL))
        except ValueError:
            return
        if delays:
            self._delays[broker_name] = delays

    async def survey(self, topic: str, broker_name: str) -> None:
        """Ask a broker which queues of a topic have messages that may wait. Raises: ClientError."""
        for each in await self._admin.topic_offsets(broker_name, topic):
            queue = MessageQueue(topic, broker_name, each.queue_id)
            if each.last_store_ms and each.last_store_ms > self._now_ms - self._longest(queue):
                self.waiting[queue] = each.begin, each.end

    def _longest(self, queue: MessageQueue) -> int:
        """The longest delay in a queue, in ms."""
        if queue.topic != SCHEDULE_TOPIC:
            return TIMER_DELAY_MAX_MS
        delays = self._delays_of(queue.broker_name)
        return delays[min(queue.queue_id, len(delays) - 1)]

    async def read(self, queue: MessageQueue) -> None:
        """Read what waits in a queue. Raises: ClientError."""
        client = self._admin.client
        offset, end = self.waiting[queue]
        if end - offset > PULL_COUNT:
            since_ms = max(self._now_ms - self._longest(queue), 0)
            offset = await first_offset_at(client, queue, since_ms)
        # The newest records: of two copies of a message, the newer one is that which waits.
        if end - offset > SCANNED_MAX:
            self.left_out += end - SCANNED_MAX - offset
            offset = end - SCANNED_MAX
        while offset < end:
            if self._pulls[queue.broker_name] == PULLS_MAX:
                self.left_out += end - offset
                return
            self._pulls[queue.broker_name] += 1
            result = await look(client, queue, offset, PULL_COUNT)
            for each in result.messages:
                self._take(queue, each)
            if result.next_begin_offset <= offset:
                break  # a queue that a broker cannot read on
            offset = result.next_begin_offset

    def messages(self) -> tuple[DelayedMessage, ...]:
        """What was found, by due time."""
        found = (
            msgspec.structs.replace(each, is_recalled=self._is_recalled(each))
            for each in self._found.values()
        )
        return tuple(sorted(found, key=lambda each: (each.due_ms, each.place)))

    def _delays_of(self, broker_name: str) -> list[int]:
        return self._delays.get(broker_name) or delay_levels_ms(MESSAGE_DELAY_LEVEL)

    def _take(self, queue: MessageQueue, ext: MessageExt) -> None:
        deleted = ext.properties.get(names.PROPERTY_TIMER_DEL_UNIQKEY)
        if deleted is not None:
            # Later brokers write `topic+id`. Source: TimerMessageStore.buildDeleteKey of 5.5.0.
            self._recalled.add(deleted.rpartition("+")[2])
            return
        message = self._message(queue, ext)
        if message is None or self._topic not in (None, message.topic):
            return
        key = message.message_id, message.topic, queue.broker_name
        self._found[key] = message

    def _message(self, queue: MessageQueue, ext: MessageExt) -> DelayedMessage | None:
        """The message of a record; None: it does not wait, or is a broker's own."""
        received = ReceivedMessage(ext, queue, ext.topic)
        due = due_ms(received, self._delays_of(queue.broker_name))
        full = ext.properties.get(names.PROPERTY_REAL_TOPIC, "")
        if due is None or due <= self._now_ms or not full:
            return None
        if is_own_topic(full) or full.startswith(_REVIVE_PREFIX):
            return None
        handle = ""
        if queue.topic == TIMER_TOPIC and ext.unique_key:
            handle = recall_handle(ext.properties_bytes, queue.broker_name)
        seen = self._mask(received)
        return DelayedMessage(
            place=f"{queue.broker_name}:{queue.queue_id}:{ext.queue_offset}",
            message_id=received.message_id,
            topic=self._admin.client.without_namespace(full),
            tag=seen.tags or "",
            keys=seen.keys,
            stored_ms=ext.store_timestamp_ms,
            due_ms=due,
            recall_handle=handle,
            is_recalled=False,
        )

    def _is_recalled(self, message: DelayedMessage) -> bool:
        return bool(message.recall_handle) and message.message_id in self._recalled


async def delayed_messages(
    admin: Admin, topic: str | None = None, *, mask: Mask = unmasked
) -> DelayedMessages:
    """Messages that wait for their time.

    Args:
      topic: where they are delivered; None: any.
      mask: takes away what may not be seen.

    Raises: ConnectError: no name server answers.
    """
    scan = _Scan(admin, topic, mask)
    on_broker: set[tuple[str, str]] = set()
    for each in (TIMER_TOPIC, SCHEDULE_TOPIC):
        try:
            queues = queues_of(each, await admin.client.route(each, is_fresh=True))
            on_broker |= {(each, queue.broker_name) for queue in queues}
        except RouteNotFoundError:
            continue  # brokers of 4.x have no timers
    errors: dict[str, ClientError] = {}
    with anyio.move_on_after(DEADLINE_S) as scope:
        brokers: dict[str, Callable[[], Awaitable[None]]] = {
            name: partial(scan.learn_delays, name)
            for name in sorted({name for _, name in on_broker})
        }
        errors.update((await ask_all(brokers)).errors)
        surveys: dict[tuple[str, str], Callable[[], Awaitable[None]]] = {
            each: partial(scan.survey, *each) for each in sorted(on_broker)
        }
        failed = (await ask_all(surveys)).errors
        errors.update({name: error for (_, name), error in failed.items()})
        calls: dict[MessageQueue, Callable[[], Awaitable[None]]] = {
            queue: partial(scan.read, queue) for queue in scan.waiting
        }
        answers = await ask_all(calls)
        errors.update({queue.broker_name: error for queue, error in answers.errors.items()})
    return DelayedMessages(
        scan.messages(),
        scan.left_out,
        scope.cancelled_caught,
        "; ".join(f"{name}: {error}" for name, error in sorted(errors.items())),
    )
