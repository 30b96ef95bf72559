"""Events on brokers: sends, deliveries, filtered messages, retries and dead letters.

Brokers do not report it, so it is seen by looks: a look compares the ends of queues and the offsets
of groups with those of the look before, and reads some of the new messages. What passed between two
looks is counted, and what cannot be known is not said: an offset that has passed a message does not
tell whether the message was consumed or filtered.

A look asks a broker for the progress of all groups, which has the ends of their queues, and for
TOPICS_MAX topics without a group, which take turns; beyond that only where something is new.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import anyio
import msgspec

from ..client.admin.asking import ask_all
from ..client.admin.looking import look
from ..client.admin.topics import is_own_topic
from ..client.core.topics import is_dlq_topic, is_retry_topic
from ..client.errors import ClientError, ConnectError, RouteNotFoundError, ServerError
from ..client.messages.message import ReceivedMessage
from ..common.message_properties import PROPERTY_RETRY_TOPIC
from ..common.texts import one_line
from ..common.topic_names import DLQ_TOPIC_PREFIX, RETRY_TOPIC_PREFIX, is_own_group
from ..remoting.bodies import MessageQueue
from .message_life.refusals import tags_of
from .message_search.criteria import Mask
from .turns import in_turn

if TYPE_CHECKING:
    from ..client import Admin, BrokerConsumeStats, BrokerInfo

TOPICS_MAX: Final = 2
"""Topics without a group that a broker is asked for in a look."""
FIRST_TOPICS_MAX: Final = 30
"""The same in the first look: what comes to the others before their first turn is not seen."""
READS_MAX: Final = 4
"""Queues of a broker of which a look reads new messages."""
READ_COUNT: Final = 8
"""The newest messages of such a queue that are read."""
GROUPS_MAX: Final = 2
"""Groups whose subscriptions a look asks for."""
SUBSCRIPTION_S: Final = 30.0
"""How long a subscription is taken to be as it was: members say it every 30 s."""
TABLES_S: Final = 10.0
"""Seconds between two questions for a broker's topics."""
EVENTS_MAX: Final = 200
"""Events that are kept, the newest."""
TAGS_MAX: Final = 5_000
"""Messages whose tags are remembered, until a group passes them."""
BROKERS_AT_ONCE: Final = 16
BROKER_S: Final = 3.0
"""Seconds for a look at one broker: a good one needs milliseconds."""
LATE: Final = f"it did not answer all within {BROKER_S:g} s, so some events may be missing"


class EventKind(StrEnum):
    """What happened, as far as it is known."""

    SENT = "SENT"
    """A message was stored in its topic."""
    SENT_UNREAD = "SENT_UNREAD"
    """Messages were stored in a topic; they were too many to be read."""
    PULLED = "PULLED"
    """A group asked for what follows these messages: they were delivered, or filtered."""
    PASSED = "PASSED"
    """A group committed an offset behind these messages: consumed, filtered, or skipped."""
    FILTERED = "FILTERED"
    """A group passed a message with a tag that its subscription does not want."""
    BEGAN = "BEGAN"
    """A group has its first offsets in a topic, behind these messages. What it did with them is not
    known: a group may begin anywhere."""
    SET_BACK = "SET_BACK"
    """A group committed an offset before these messages: they come again."""
    RETRIED = "RETRIED"
    """A delivery to a group had failed, and the message is there for another try."""
    DEAD = "DEAD"
    """A group gave a message up."""


class FeedEvent(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """Something that happened.

    Attributes:
      time_ms: when a message was stored, by the broker's clock; of others, when it was seen, by
        this machine's; ms since 1970.
      topic: where a message comes from; of counted retries, the retry topic.
      count: messages.
      message_id: of the one message; "": there are several, or it was not read.
      tries: deliveries before; 0: none, or it is not known.
    """

    kind: EventKind
    time_ms: int
    broker_name: str
    topic: str
    group: str = ""
    count: int = 1
    message_id: str = ""
    tags: str = ""
    keys: tuple[str, ...] = ()
    tries: int = 0


class FeedView(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """What the feed has.

    Attributes:
      since_ms: of the first look, ms since 1970.
      events: the newest first, at most EVENTS_MAX.
      errors: by the name of a broker, why it did not answer.
    """

    since_ms: int
    events: tuple[FeedEvent, ...]
    errors: dict[str, str]


_Queue = tuple[str, int]
"""Topic and queue id, on one broker."""
_Place = tuple[str, str, int]
"""Group, topic and queue id, on one broker."""


class _Offsets(NamedTuple):
    committed: int
    pulled: int


class _Seen:
    """What was seen of one broker.

    Attributes:
      topics: as its table last had them; None: it was not asked yet.
      old_topics: those of its first table: what they held then is not news.
    """

    def __init__(self) -> None:
        self.ends: dict[_Queue, int] = {}
        self.offsets: dict[_Place, _Offsets] | None = None
        self.topics: list[str] | None = None
        self.old_topics: frozenset[str] = frozenset()
        self.asked_s = 0.0
        self.turn = 0
        self.tags: dict[tuple[_Queue, int], FeedEvent] = {}
        self.subscriptions: dict[str, tuple[float, dict[str, frozenset[str] | None]]] = {}


class _Grown(NamedTuple):
    """New messages of a queue: offsets from `begin` up to `end`."""

    topic: str
    queue_id: int
    begin: int
    end: int


class Feed:
    """Events, by looks one after another.

    Args:
      admin: open.
      mask: hides what no one may see.
    """

    def __init__(self, admin: Admin, mask: Mask) -> None:
        self._admin = admin
        self._client = admin.client
        self._mask = mask
        self._seen: dict[str, _Seen] = {}
        self._events: deque[FeedEvent] = deque(maxlen=EVENTS_MAX)
        self._since_ms: int | None = None

    async def look(self) -> FeedView:
        """See what has happened since the last look.

        Raises: ServerError; ConnectError: no name server answers.
        """
        view = await self._admin.cluster()
        if self._since_ms is None:
            self._since_ms = self._client.wall_ms()
        found: list[FeedEvent] = []
        errors: dict[str, str] = {}
        limiter = anyio.CapacityLimiter(BROKERS_AT_ONCE)

        own = {name for broker in view.brokers for name in (broker.cluster, broker.name)}

        async def ask(broker: BrokerInfo) -> None:
            async with limiter:
                errors[broker.name] = LATE
                with anyio.move_on_after(BROKER_S):
                    try:
                        found.extend(await self._look_at(broker, own))
                    except ClientError as error:
                        errors[broker.name] = one_line(error)
                    else:
                        del errors[broker.name]

        async with anyio.create_task_group() as tasks:
            for broker in view.brokers:
                tasks.start_soon(ask, broker)
        self._events.extend(sorted(found, key=lambda each: each.time_ms))
        return FeedView(
            since_ms=self._since_ms, events=tuple(reversed(self._events)), errors=errors
        )

    async def _look_at(self, broker: BrokerInfo, own: set[str]) -> list[FeedEvent]:
        address = broker.address
        if address is None:
            raise ConnectError(broker.name, "none of its addresses is up")
        seen = self._seen.setdefault(broker.name, _Seen())
        stats = await self._admin.broker_consume_stats(address)
        await self._read_table(seen, address, own)
        ends = {
            (queue.topic, queue.queue_id): queue.end
            for group in stats.groups
            for queue in group.queues
        }
        ends |= await self._ends_of_others(seen, address, ends)
        grown = _grown(seen, ends)
        sent = await self._sent(seen, broker.name, grown)
        moved = await self._moved(seen, broker.name, stats)
        return [*sent, *moved]

    # Ends

    async def _read_table(self, seen: _Seen, address: str, own: set[str]) -> None:
        now_s = anyio.current_time()
        if seen.topics is not None and now_s - seen.asked_s < TABLES_S:
            return
        table = await self._admin.broker_topics(address)
        if seen.topics is None:
            seen.old_topics = frozenset(table)
        seen.topics = [topic for topic in table if topic not in own and not is_own_topic(topic)]
        seen.asked_s = now_s

    async def _ends_of_others(
        self, seen: _Seen, address: str, known: Iterable[_Queue]
    ) -> dict[_Queue, int]:
        """The ends of some topics that no group has an offset in."""
        of_groups = {topic for topic, _ in known}
        rest = [topic for topic in seen.topics or () if topic not in of_groups]
        count = TOPICS_MAX if seen.ends else FIRST_TOPICS_MAX
        chosen, seen.turn = in_turn(rest, seen.turn, count)
        answers = await ask_all(
            {topic: partial(self._admin.topic_offsets, address, topic) for topic in chosen}
        )
        for error in answers.errors.values():
            if not isinstance(error, ServerError):  # else it was deleted meanwhile
                raise error
        return {
            (topic, queue.queue_id): queue.end
            for topic, queues in answers.values.items()
            for queue in queues
        }

    # Messages

    async def _sent(self, seen: _Seen, name: str, grown: list[_Grown]) -> list[FeedEvent]:
        answers = await ask_all(
            {each: partial(self._read, name, each) for each in grown[:READS_MAX]}
        )
        events: list[FeedEvent] = []
        unread: dict[str, int] = {}
        for each in grown:
            if isinstance(answers.errors.get(each), RouteNotFoundError):
                # A broker registers a new topic a moment later: the next look reads it.
                seen.ends[each.topic, each.queue_id] = each.begin
                continue
            found = answers.values.get(each, [])
            for message in found:
                place = (each.topic, each.queue_id), message.queue_offset
                shown = self._mask(message)
                event = _event_of(name, each.topic, shown)
                if shown.tags == message.tags:
                    seen.tags[place] = event
                events.append(event)
            rest = each.end - each.begin - len(found)
            if rest > 0:
                unread[each.topic] = unread.get(each.topic, 0) + rest
        while len(seen.tags) > TAGS_MAX:
            del seen.tags[next(iter(seen.tags))]
        now_ms = self._client.wall_ms()
        for topic, count in unread.items():
            events.append(
                FeedEvent(
                    kind=_kind_of(topic, EventKind.SENT_UNREAD),
                    time_ms=now_ms,
                    broker_name=name,
                    topic=topic,
                    group=_group_of(topic),
                    count=count,
                )
            )
        return events

    async def _read(self, name: str, grown: _Grown) -> list[ReceivedMessage]:
        """The newest of new messages."""
        full = self._client.with_namespace(grown.topic)
        queue = MessageQueue(full, name, grown.queue_id)
        begin = max(grown.begin, grown.end - READ_COUNT)
        result = await look(self._client, queue, begin, grown.end - begin, inflate=False)
        return [
            ReceivedMessage(
                each,
                MessageQueue(each.topic, name, each.queue_id),
                self._client.without_namespace(each.topic),
            )
            for each in result.messages
            if begin <= each.queue_offset < grown.end
        ]

    # Offsets

    async def _moved(self, seen: _Seen, name: str, stats: BrokerConsumeStats) -> list[FeedEvent]:
        before = seen.offsets
        seen.offsets = offsets = {
            (group.group, queue.topic, queue.queue_id): _Offsets(queue.committed, queue.pulled)
            for group in stats.groups
            if not is_own_group(group.group)
            for queue in group.queues
        }
        if before is None:
            return []
        sums: dict[tuple[str, str, EventKind], int] = {}
        passed: list[tuple[_Place, int, int]] = []
        for place, now in offsets.items():
            last = before.get(place)
            if last is None:
                key = (place[0], place[1], EventKind.BEGAN)
                sums[key] = sums.get(key, 0) + now.committed
                continue
            for kind, count in _moves(last, now):
                key = (place[0], place[1], kind)
                sums[key] = sums.get(key, 0) + count
            if now.committed > last.committed:
                passed.append((place, last.committed, now.committed))
        now_ms = self._client.wall_ms()
        filtered = await self._filtered(seen, passed)
        for each in filtered:
            sums[each.group, each.topic, EventKind.PASSED] -= 1
        return [
            *filtered,
            *(
                FeedEvent(
                    kind=kind,
                    time_ms=now_ms,
                    broker_name=name,
                    topic=topic,
                    group=group,
                    count=count,
                )
                for (group, topic, kind), count in sums.items()
                if count > 0 or kind is EventKind.BEGAN
            ),
        ]

    async def _filtered(
        self, seen: _Seen, passed: list[tuple[_Place, int, int]]
    ) -> list[FeedEvent]:
        """Messages that were passed, whose tag the group's subscription does not want."""
        known = [
            (group, topic, event)
            for (group, topic, queue_id), begin, end in passed
            for offset in range(max(begin, end - TAGS_MAX), end)
            if (event := seen.tags.get(((topic, queue_id), offset))) is not None
        ]
        await self._ask_subscriptions(seen, dict.fromkeys(group for group, _, _ in known))
        now_ms = self._client.wall_ms()
        events = []
        for group, topic, event in known:
            _, by_topic = seen.subscriptions.get(group, (0.0, {}))
            wanted = by_topic.get(topic)
            if wanted is not None and event.tags not in wanted:
                events.append(
                    msgspec.structs.replace(
                        event, kind=EventKind.FILTERED, time_ms=now_ms, topic=topic, group=group
                    )
                )
        return events

    async def _ask_subscriptions(self, seen: _Seen, groups: Iterable[str]) -> None:
        now_s = anyio.current_time()
        for group, (asked_s, _) in list(seen.subscriptions.items()):
            if now_s - asked_s > SUBSCRIPTION_S:
                del seen.subscriptions[group]
        missing = [group for group in groups if group not in seen.subscriptions][:GROUPS_MAX]
        answers = await ask_all({group: partial(self._admin.clients, group) for group in missing})
        for group, clients in answers.values.items():
            wanted = {each.topic: tags_of(each) for each in clients.subscriptions}
            seen.subscriptions[group] = now_s, wanted


def _moves(last: _Offsets, now: _Offsets) -> Iterable[tuple[EventKind, int]]:
    """How far a group's offsets of a queue moved."""
    if now.pulled > max(last.pulled, last.committed):
        yield EventKind.PULLED, now.pulled - max(last.pulled, last.committed)
    if now.committed > last.committed:
        yield EventKind.PASSED, now.committed - last.committed
    elif now.committed < last.committed:
        yield EventKind.SET_BACK, last.committed - now.committed


def _grown(seen: _Seen, ends: dict[_Queue, int]) -> list[_Grown]:
    """The queues with new messages. A topic that is new since the first look begins at 0."""
    grown = []
    for (topic, queue_id), end in ends.items():
        key = topic, queue_id
        before = seen.ends.get(key)
        if before is None:
            before = end if topic in seen.old_topics else 0
        if end > before and not is_own_topic(topic):
            grown.append(_Grown(topic, queue_id, before, end))
        seen.ends[key] = end
    return grown


def _kind_of(topic: str, other: EventKind) -> EventKind:
    if is_retry_topic(topic):
        return EventKind.RETRIED
    return EventKind.DEAD if is_dlq_topic(topic) else other


def _group_of(topic: str) -> str:
    """The group of a retry topic or a dead-letter topic; of the retry topic of a group that pops,
    its topic, too; "": it is neither.
    """
    for prefix in (RETRY_TOPIC_PREFIX, DLQ_TOPIC_PREFIX):
        if topic.startswith(prefix):
            return topic.removeprefix(prefix)
    return ""


def _event_of(name: str, topic: str, message: ReceivedMessage) -> FeedEvent:
    group = _group_of(topic)
    origin = message.properties.get(PROPERTY_RETRY_TOPIC, "")
    if origin and group.endswith((f"+{origin}", f"_{origin}")):
        group = group[: -len(origin) - 1]
    return FeedEvent(
        kind=_kind_of(topic, EventKind.SENT),
        time_ms=message.store_timestamp_ms,
        broker_name=name,
        topic=origin or topic,
        group=group,
        message_id=message.message_id,
        tags=message.tags or "",
        keys=message.keys,
        tries=message.reconsume_times if group else 0,
    )
