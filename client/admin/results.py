"""The results of an administrator's verbs: frozen values, in names without the client's namespace.

Offsets and lags are in messages, times in ms since 1970.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ...remoting.bodies import PERM_READ, PERM_WRITE, SubscriptionGroupConfig


class BrokerInfo(msgspec.Struct, frozen=True, rename="camel"):
    """The brokers of one name.

    Attributes:
      name: the name that they share.
      cluster: their cluster's.
      addresses: broker id (0: the master) to `host:port`.
    """

    name: str
    cluster: str
    addresses: dict[int, str]

    @property
    def address(self) -> str | None:
        """`host:port` of the master, or of another one when there is none; None: none is up."""
        return self.addresses[min(self.addresses)] if self.addresses else None


class ClusterView(msgspec.Struct, frozen=True, rename="camel"):
    """Who there is.

    Attributes:
      name_servers: `host:port` of each that the client knows.
      brokers: sorted by cluster and name.
      warning: of trocket's name server, such as two brokers with the same name and id; "": none.
    """

    name_servers: tuple[str, ...]
    brokers: tuple[BrokerInfo, ...]
    warning: str = ""

    @property
    def clusters(self) -> tuple[str, ...]:
        """Names of the clusters, sorted."""
        return tuple(sorted({broker.cluster for broker in self.brokers}))


class ControllerInfo(msgspec.Struct, frozen=True, rename="camel"):
    """What a controller of controller mode says of the group of controllers.

    Attributes:
      address: `host:port` where it was asked.
      is_leader: it leads.
      leader_id, leader_address: the leader's name and `host:port`; "": it knows of none.
      group: the group's name.
      peers: of the whole group, as the controller writes it, such as "n0:host:port;n1:host:port;".
    """

    address: str
    is_leader: bool
    leader_id: str
    leader_address: str
    group: str
    peers: str


class ElectedMaster(msgspec.Struct, frozen=True, rename="camel"):
    """The master of a broker set after an election.

    Attributes:
      controller_id: its number in the set.
      address: its `host:port`.
      epoch: number of elections of the set so far.
      is_new: another broker was the master before, or none.
    """

    broker_name: str
    controller_id: int
    address: str
    epoch: int
    is_new: bool


class TopicOnBroker(msgspec.Struct, frozen=True, rename="camel"):
    """What one broker has of a topic.

    Attributes:
      broker_name, cluster, addresses: as in BrokerInfo.
      read_queues, write_queues: numbers of queues to read from and to write to.
      perm: bits 4 read, 2 write, 1 inherit.
      order: its messages are ordered.
      attributes: such as "message.type": "FIFO"; always empty with 4.x.
    """

    broker_name: str
    cluster: str
    addresses: dict[int, str]
    read_queues: int
    write_queues: int
    perm: int
    order: bool = False
    attributes: dict[str, str] = {}

    @property
    def perm_text(self) -> str:
        """The permission for people: "RW", "R", "W" or "-"."""
        read = "R" if self.perm & PERM_READ else ""
        write = "W" if self.perm & PERM_WRITE else ""
        return read + write or "-"


class TopicInfo(msgspec.Struct, frozen=True, rename="camel"):
    """A topic and where it is; brokers sorted by name."""

    name: str
    brokers: tuple[TopicOnBroker, ...]


class StaticTopicInfo(msgspec.Struct, frozen=True, rename="camel"):
    """The queues of a static topic.

    Attributes:
      epoch: version of the mapping, ms since 1970.
      leaders: the broker of each queue, by queue id.
      moved: the queues that a change moves or moved, with their brokers before.
    """

    name: str
    epoch: int
    leaders: dict[int, str]
    moved: dict[int, str]


class GroupInfo(msgspec.Struct, frozen=True, rename="camel"):
    """A consumer group's settings: broker name to what that broker has."""

    name: str
    settings: dict[str, SubscriptionGroupConfig]


class QueueOffsets(msgspec.Struct, frozen=True, rename="camel"):
    """What a queue holds.

    Attributes:
      begin: offset of the first message that is there.
      end: offset of the next message to come.
      last_store_ms: when the last message was stored; None: there is none, or the topic may not
        be read.
    """

    topic: str
    broker_name: str
    queue_id: int
    begin: int
    end: int
    last_store_ms: int | None

    @property
    def count(self) -> int:
        """How many messages there are."""
        return self.end - self.begin


class QueueLag(msgspec.Struct, frozen=True, rename="camel"):
    """How far a group is in a queue.

    Attributes:
      committed: where the group goes on; None: it never committed.
      begin, end: as in QueueOffsets.
    """

    topic: str
    broker_name: str
    queue_id: int
    committed: int | None
    begin: int
    end: int

    @property
    def lag(self) -> int:
        """Messages that are there and were not consumed; all, if the group never committed.

        Messages that were deleted before they were consumed do not count; with mqadmin they do.
        """
        return max(self.end - max(self.committed or 0, self.begin), 0)


class GroupLag(msgspec.Struct, frozen=True, rename="camel"):
    """How far a group is; queues sorted by topic, broker name and queue id."""

    group: str
    queues: tuple[QueueLag, ...]

    @property
    def total(self) -> int:
        """Messages of all queues that were not consumed."""
        return sum(queue.lag for queue in self.queues)

    @property
    def by_topic(self) -> dict[str, int]:
        """Topic to its messages that were not consumed."""
        totals: dict[str, int] = {}
        for queue in self.queues:
            totals[queue.topic] = totals.get(queue.topic, 0) + queue.lag
        return totals


class QueueReset(msgspec.Struct, frozen=True, rename="camel"):
    """Where a group was in a queue (None: nowhere), and where it goes on now."""

    topic: str
    broker_name: str
    queue_id: int
    before: int | None
    after: int


class ClientInfo(msgspec.Struct, frozen=True, rename="camel"):
    """A client that is connected.

    Attributes:
      client_id: `ip@instance`.
      address: `ip:port` from which it is connected to the first of `brokers`.
      language: such as "JAVA".
      version: such as "V5_5_0".
      brokers: names of the brokers that know it, sorted.
    """

    client_id: str
    address: str
    language: str
    version: str
    brokers: tuple[str, ...]


class SubscriptionInfo(msgspec.Struct, frozen=True, rename="camel"):
    """What a group wants of a topic.

    Attributes:
      expression: such as "*" or "TagA || TagB"; of a class filter, the name of the class.
      expression_type: "TAG", "SQL92", or "CLASS" (a class of filter servers).
    """

    topic: str
    expression: str
    expression_type: str


class GroupClients(msgspec.Struct, frozen=True, rename="camel"):
    """The members of a consumer group that are connected.

    Attributes:
      clients: sorted by id; empty: there are none.
      subscriptions: as the latest heartbeat had them, sorted by topic.
      consume_type: "CONSUME_ACTIVELY" (pull), "CONSUME_PASSIVELY" (push), "CONSUME_POP", or "".
      message_model: "CLUSTERING", "BROADCASTING", or "".
      consume_from_where: such as "CONSUME_FROM_LAST_OFFSET", or "".
    """

    group: str
    clients: tuple[ClientInfo, ...]
    subscriptions: tuple[SubscriptionInfo, ...]
    consume_type: str = ""
    message_model: str = ""
    consume_from_where: str = ""


class QueueState(msgspec.Struct, frozen=True, rename="camel"):
    """What a consumer holds of a queue.

    Attributes:
      values: RocketMQ's own names and values, such as "commitOffset" and "cachedMsgCount".
    Source: RocketMQ 5.3.3 ProcessQueueInfo.
    """

    topic: str
    broker_name: str
    queue_id: int
    values: dict[str, Any]


class RunningInfo(msgspec.Struct, frozen=True, rename="camel"):
    """How a consumer says it is; names and values are RocketMQ's own.

    Attributes:
      properties: such as "PROP_CONSUMER_START_TIMESTAMP".
      subscriptions: what it wants.
      queues: what it holds, sorted by topic, broker name and queue id.
      statuses: topic to numbers such as "consumeOKTPS".
      stacks: stacks of its threads, if asked for.
    Source: RocketMQ 5.3.3 ConsumerRunningInfo.
    """

    client_id: str
    properties: dict[str, str]
    subscriptions: tuple[SubscriptionInfo, ...]
    queues: tuple[QueueState, ...]
    statuses: dict[str, dict[str, Any]]
    stacks: str | None = None


class GroupMembers(msgspec.Struct, frozen=True, rename="camel"):
    """The members of a consumer group, with what each says of itself.

    Attributes:
      group: who is connected, as brokers know it.
      infos: of the members that answered, sorted by client id: each one's subscriptions and queues.
      silent: ids of those that did not, sorted.
    """

    group: GroupClients
    infos: tuple[RunningInfo, ...]
    silent: tuple[str, ...]


class DirectlyConsumed(msgspec.Struct, frozen=True, rename="camel"):
    """What a consumer made of one message that it was handed.

    Attributes:
      result: such as "CR_SUCCESS", "CR_LATER", "CR_THROW_EXCEPTION".
      remark: what it says about that, "": nothing.
      spent_ms: how long it took.
    Source: RocketMQ 5.3.3 ConsumeMessageDirectlyResult, CMResult.
    """

    result: str
    remark: str
    spent_ms: int


class FilterClassInfo(msgspec.Struct, frozen=True, rename="camel"):
    """A class that a filter server has for a group and a topic.

    Attributes:
      server: the filter server's `host:port`.
      class_crc: of its source; 0: there is none.
      language: "java" or "python"; others, such as "configured", are the operator's own classes.
      state: "ready", "fetching" (its source is not there yet) or "broken".
      error: why it is broken, or why a newer source was not taken; "": nothing is wrong.
    """

    server: str
    topic: str
    group: str
    class_name: str
    class_crc: int
    language: str
    state: str
    error: str


NO_ATTRIBUTES: Mapping[str, str | None] = {}


class RequestModeInfo(msgspec.Struct, frozen=True, rename="camel"):
    """How a group gets the messages of a topic.

    Attributes:
      topic, group: names.
      mode: "PULL" or "POP".
      share: with POP, how many further clients may pop from a client's queues; 0 or less: all
        clients pop from all queues.
      brokers: names of the brokers that say so, sorted.
    """

    topic: str
    group: str
    mode: str
    share: int
    brokers: tuple[str, ...]


class PoppedQueue(msgspec.Struct, frozen=True, rename="camel"):
    """A queue that a group pops.

    Attributes:
      topic: the topic, or the group's retry topic.
      broker_name, queue_id: the queue.
      committed: the group's offset.
      popped: offset of the next message to be popped; `committed` on a broker that does not say.
      end: offset of the next message to come.
      invisible: messages that were found popped and not acknowledged.
    """

    topic: str
    broker_name: str
    queue_id: int
    committed: int
    popped: int
    end: int
    invisible: int

    @property
    def waiting(self) -> int:
        """Messages that were not popped yet."""
        return max(self.end - self.popped, 0)


class InvisibleMessage(msgspec.Struct, frozen=True, rename="camel"):
    """A message that was popped and is not acknowledged.

    Attributes:
      topic: where it is: the topic, or the group's retry topic.
      broker_name, queue_id, offset: its place.
      popped_ms: when it was popped.
      visible_ms: when it becomes visible again.
      receipt: what acknowledges it, in RocketMQ's form (POP_CK).
      is_stored: whether the pop is recorded on the broker's disk; false: it is in its memory, and
        after a crash the message is popped again at once.
    """

    topic: str
    broker_name: str
    queue_id: int
    offset: int
    popped_ms: int
    visible_ms: int
    receipt: str
    is_stored: bool


class GroupPops(msgspec.Struct, frozen=True, rename="camel"):
    """What a group has popped and not acknowledged.

    Attributes:
      group: its name.
      queues: those with offsets of the group, sorted.
      messages: the invisible ones, by the time of their pops.
      since_ms: pops before this may be missing.
      without_memory: names of brokers that do not tell what is in their memory only: Apache's.
      left_out: check points and records that were too many to be read.
      without_pops: names of brokers that have no topic for records of pops: those of 4.x.
    """

    group: str
    queues: tuple[PoppedQueue, ...]
    messages: tuple[InvisibleMessage, ...]
    since_ms: int
    without_memory: tuple[str, ...] = ()
    left_out: int = 0
    without_pops: tuple[str, ...] = ()

    @property
    def waiting(self) -> int:
        """Messages that were not popped yet."""
        return sum(queue.waiting for queue in self.queues)
