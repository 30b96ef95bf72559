"""Results of the verbs about statistics and progress: frozen values.

Topics and groups are without the client's namespace; offsets and lags are in messages, times in ms
since 1970.
"""

from __future__ import annotations

import msgspec

from .results import ClientInfo, QueueOffsets


class Growth(msgspec.Struct, frozen=True, rename="camel"):
    """How a counter grew during a period.

    Attributes:
      total: the growth.
      per_second: the growth per second.
      per_call: the growth per counted event, such as bytes per message.
    """

    total: int = 0
    per_second: float = 0.0
    per_call: float = 0.0


class StatsSnapshot(msgspec.Struct, frozen=True, rename="camel"):
    """How a counter grew during the last minute, hour and day; of all brokers together."""

    minute: Growth
    hour: Growth
    day: Growth


class TopicStats(msgspec.Struct, frozen=True, rename="camel"):
    """What a topic holds, and its traffic.

    Attributes:
      queues: sorted by broker name and queue id.
      put_count, put_size: messages and bytes that were stored; None: none since the brokers
        started.
      groups: group to the messages that it read, sorted; None: it read none since the brokers
        started.
    """

    topic: str
    queues: tuple[QueueOffsets, ...]
    put_count: StatsSnapshot | None
    put_size: StatsSnapshot | None
    groups: dict[str, StatsSnapshot | None]


class QueueProgress(msgspec.Struct, frozen=True, rename="camel"):
    """How far a group is in a queue.

    Attributes:
      committed: the next message to consume; 0 also if the group never committed.
      pulled: the next message to pull, which may be far ahead of `committed`; 4.x: 0.
      end: the next message to come.
      last_consumed_ms: when the last consumed message was stored; None: it is unknown.
      delay_s: how long ago the next message to consume was stored, in seconds; 0: none waits;
        None: it is unknown.
      client_id: the member that has the queue; "": none, or members were not asked.
    """

    topic: str
    broker_name: str
    queue_id: int
    committed: int
    pulled: int
    end: int
    last_consumed_ms: int | None
    delay_s: float | None
    client_id: str = ""

    @property
    def lag(self) -> int:
        """Messages that were not consumed, as mqadmin counts: also those deleted meanwhile."""
        return max(self.end - self.committed, 0)


class GroupProgress(msgspec.Struct, frozen=True, rename="camel"):
    """How far a group is.

    Attributes:
      queues: sorted by topic, broker name and queue id; of a group with members only the topics
        that it subscribes to.
      rate: messages read per second during the last minute.
      clients: its connected members, sorted by id.
      consume_type, message_model: as in GroupClients. A group that broadcasts keeps its offsets
        in its members: its queues tell nothing here.
      retries: messages that wait for another try; they are part of `lag`, and known once the group
        has an offset in its retry topic.
      dead_letters: messages that it gave up, and that are still there.
      silent_clients: members that did not tell which queues they have, sorted.
    """

    group: str
    queues: tuple[QueueProgress, ...]
    rate: float = 0.0
    clients: tuple[ClientInfo, ...] = ()
    consume_type: str = ""
    message_model: str = ""
    retries: int = 0
    dead_letters: int = 0
    silent_clients: tuple[str, ...] = ()

    @property
    def lag(self) -> int:
        """Messages of all queues that were not consumed."""
        return sum(queue.lag for queue in self.queues)

    @property
    def delay_s(self) -> float | None:
        """The longest delay of its queues; 0: no message waits; None: it is unknown."""
        waiting = [queue.delay_s for queue in self.queues if queue.lag]
        known = [delay for delay in waiting if delay is not None]
        return max(known) if known else None if waiting else 0.0


class BrokerConsumeStats(msgspec.Struct, frozen=True, rename="camel"):
    """How far all groups are on one broker.

    Attributes:
      broker: its name or address, as asked for.
      groups: sorted by name; without members, retries and dead letters.
      lag: messages that were not consumed, of all groups.
      in_flight: messages that were pulled and not consumed, of all groups; 4.x: 0.
    """

    broker: str
    groups: tuple[GroupProgress, ...]
    lag: int
    in_flight: int


class QueueSpan(msgspec.Struct, frozen=True, rename="camel"):
    """A group's progress in a queue, as store times. None: there is no such message.

    Attributes:
      first_ms, last_ms: of the first and the last message that are there.
      consumed_ms: of the last consumed message.
      delay_s: as in QueueProgress.
    """

    topic: str
    broker_name: str
    queue_id: int
    first_ms: int | None
    last_ms: int | None
    consumed_ms: int | None
    delay_s: float | None


class QueueUnit(msgspec.Struct, frozen=True, rename="camel"):
    """One unit of a consume queue.

    Attributes:
      queue_offset: its place in the queue.
      physical_offset, size: the place of its message in the log, in bytes.
      tags_code: hash code of the tag, or the address of an extension.
    """

    queue_offset: int
    physical_offset: int
    size: int
    tags_code: int


class ProducerInfo(msgspec.Struct, frozen=True, rename="camel"):
    """A connected producer, on one broker.

    Attributes:
      client_id, language, version: as in ClientInfo.
      address: `ip:port` from which it is connected.
      last_heartbeat_ms: when it last said that it is there.
    """

    group: str
    client_id: str
    address: str
    language: str
    version: str
    broker_name: str
    last_heartbeat_ms: int


class MessageTrack(msgspec.Struct, frozen=True, rename="camel"):
    """What a group did with a message, as far as its offsets tell.

    Attributes:
      state: RocketMQ's name, or "CONSUMED_OR_FILTERED": the group's offset has passed it, and every
        member that is connected now wants its tags; no offset tells whether one got it, so there
        is no "CONSUMED". "CONSUMED_BUT_FILTERED" (the offset has passed it, and all want other
        tags), "UNKNOWN" (the offset has passed it, and it depends on which member had the queue,
        or on an SQL92 expression),
        "NOT_CONSUME_YET", "NOT_ONLINE" (not consumed yet, and no member is connected), "PULL" (its
        members pull, and may keep offsets elsewhere), "CONSUME_BROADCASTING" (each member keeps
        its own).
    Source: RocketMQ 5.5.0 TrackType.
    """

    group: str
    state: str
