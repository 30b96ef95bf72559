"""The strategies by which the members of a consumer group share a topic's queues.

Each member computes the whole by itself, so all must use the same strategy, and each must be given
the same lists in the same order: queues sorted, client ids sorted.

Java counterpart: AllocateMessageQueueStrategy and the classes beside it in
client/consumer/rebalance, ConsistentHashRouter of RocketMQ 5.3.3. Pure.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from ...remoting.bodies import MessageQueue

VIRTUAL_NODE_COUNT: Final = 10
"""Places of a client on the ring. Source: AllocateMessageQueueConsistentHash."""

VIRTUAL_NODE_COUNT_MAX: Final = 1024
"""RocketMQ sets no limit; each one costs an MD5 per client and rebalance."""


class AllocateMessageQueueStrategy(Protocol):
    """Picks one member's queues."""

    @property
    def name(self) -> str:
        """As RocketMQ calls it; shown to administrators."""

    def allocate(
        self,
        group: str,
        client_id: str,
        queues: Sequence[MessageQueue],
        client_ids: Sequence[str],
    ) -> list[MessageQueue]:
        """The queues of one member.

        Args:
          group: the consumer group.
          client_id: the member.
          queues: all queues of one topic, sorted; not empty.
          client_ids: all members, sorted; not empty.
        Returns: its queues, maybe none; none if it is not among the members (yet).
        Raises: ValueError: a list or the client id is empty.
        """


def _index_of(
    client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
) -> int | None:
    """The member's place; None: it is none. Source: AbstractAllocateMessageQueueStrategy.check."""
    for what, given in (("client id", client_id), ("queues", queues), ("client ids", client_ids)):
        if not given:
            raise ValueError(f"no {what} to share queues by")
    try:
        return client_ids.index(client_id)
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class AllocateMessageQueueAveragely:
    """Neighbouring queues, each member as many as the others or one more: 01 23 4. The default."""

    name: str = "AVG"

    def allocate(
        self,
        group: str,
        client_id: str,
        queues: Sequence[MessageQueue],
        client_ids: Sequence[str],
    ) -> list[MessageQueue]:
        """As the protocol says."""
        index = _index_of(client_id, queues, client_ids)
        if index is None:
            return []
        size, more = divmod(len(queues), len(client_ids))
        # The first `more` members have one queue more.
        start = index * size + min(index, more)
        return list(queues[start : start + size + (index < more)])


@dataclass(frozen=True, slots=True)
class AllocateMessageQueueAveragelyByCircle:
    """Dealt like cards, one queue for each member in turn: 03 14 2."""

    name: str = "AVG_BY_CIRCLE"

    def allocate(
        self,
        group: str,
        client_id: str,
        queues: Sequence[MessageQueue],
        client_ids: Sequence[str],
    ) -> list[MessageQueue]:
        """As the protocol says."""
        index = _index_of(client_id, queues, client_ids)
        return [] if index is None else list(queues[index :: len(client_ids)])


@dataclass(frozen=True, slots=True)
class AllocateMessageQueueByConfig:
    """Always the same queues, whoever else is there.

    Attributes:
      queues: what this member gets.
    """

    queues: tuple[MessageQueue, ...] = ()
    name: str = "CONFIG"

    def allocate(
        self,
        group: str,
        client_id: str,
        queues: Sequence[MessageQueue],
        client_ids: Sequence[str],
    ) -> list[MessageQueue]:
        """The configured queues; nothing is checked."""
        return list(self.queues)


@dataclass(frozen=True, slots=True)
class AllocateMessageQueueByMachineRoom:
    """Only the queues of some machine rooms, whose brokers are called `room@name`.

    Attributes:
      rooms: the rooms. Java calls them consumeridcs.
    """

    rooms: frozenset[str]
    name: str = "MACHINE_ROOM"

    def allocate(
        self,
        group: str,
        client_id: str,
        queues: Sequence[MessageQueue],
        client_ids: Sequence[str],
    ) -> list[MessageQueue]:
        """As the protocol says; queues of other rooms go to nobody."""
        index = _index_of(client_id, queues, client_ids)
        if index is None:
            return []
        near = [queue for queue in queues if self._is_near(queue.broker_name)]
        size, more = divmod(len(near), len(client_ids))
        mine = near[index * size : (index + 1) * size]
        if index < more:
            mine.append(near[size * len(client_ids) + index])
        return mine

    def _is_near(self, broker_name: str) -> bool:
        # Java's split drops what is empty at the end.
        parts = broker_name.rstrip("@").split("@")
        return len(parts) == 2 and parts[0] in self.rooms


class MachineRoomResolver(Protocol):
    """Says where brokers and clients are."""

    def broker_deploy_in(self, queue: MessageQueue) -> str:
        """The room of the queue's broker, not empty."""

    def consumer_deploy_in(self, client_id: str) -> str:
        """The room of a client, not empty."""


@dataclass(frozen=True, slots=True)
class AllocateMachineRoomNearby:
    """Queues go to the members in their own room, and only where there is none to all.

    Attributes:
      strategy: shares the queues of one room.
      resolver: says which room that is.
    """

    strategy: AllocateMessageQueueStrategy
    resolver: MachineRoomResolver

    @property
    def name(self) -> str:
        """The name of both strategies."""
        return f"MACHINE_ROOM_NEARBY-{self.strategy.name}"

    def allocate(
        self,
        group: str,
        client_id: str,
        queues: Sequence[MessageQueue],
        client_ids: Sequence[str],
    ) -> list[MessageQueue]:
        """As the protocol says. Raises ValueError too when a room is empty."""
        if _index_of(client_id, queues, client_ids) is None:
            return []
        queues_of: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            room = _room(self.resolver.broker_deploy_in(queue), queue)
            queues_of.setdefault(room, []).append(queue)
        clients_of: dict[str, list[str]] = {}
        for each in client_ids:
            room = _room(self.resolver.consumer_deploy_in(each), each)
            clients_of.setdefault(room, []).append(each)
        here = self.resolver.consumer_deploy_in(client_id)
        near = queues_of.pop(here, None)
        mine: list[MessageQueue] = []
        if near is not None:
            mine += self.strategy.allocate(group, client_id, near, clients_of[here])
        for room in sorted(queues_of):
            if room not in clients_of:
                mine += self.strategy.allocate(group, client_id, queues_of[room], client_ids)
        return mine


def _room(room: str, of: object) -> str:
    if not room:
        raise ValueError(f"the resolver knows no machine room of {of}")
    return room


HashFunction = Callable[[str], int]
"""From a text to its place on the ring."""


def md5_hash(key: str) -> int:
    """The first four bytes of the MD5 of a text: 0 … 2^32 - 1.

    Source: ConsistentHashRouter.MD5Hash.
    """
    digest = hashlib.md5(key.encode("utf-8", "replace"), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4], "big")


@dataclass(frozen=True, slots=True)
class AllocateMessageQueueConsistentHash:
    """Members and queues on a ring: few queues move when a member comes or goes.

    Attributes:
      virtual_node_count: places of each member, 0 … `VIRTUAL_NODE_COUNT_MAX`; with 0 nobody gets
        anything.
      hash_function: from a text to a place.
    Raises: ValueError: virtual_node_count is out of range.
    """

    virtual_node_count: int = VIRTUAL_NODE_COUNT
    hash_function: HashFunction = md5_hash
    name: str = "CONSISTENT_HASH"

    def __post_init__(self) -> None:
        """Check the range."""
        if not 0 <= self.virtual_node_count <= VIRTUAL_NODE_COUNT_MAX:
            raise ValueError(
                f"virtual_node_count {self.virtual_node_count} is not in"
                f" 0..{VIRTUAL_NODE_COUNT_MAX}"
            )

    def allocate(
        self,
        group: str,
        client_id: str,
        queues: Sequence[MessageQueue],
        client_ids: Sequence[str],
    ) -> list[MessageQueue]:
        """As the protocol says."""
        if _index_of(client_id, queues, client_ids) is None:
            return []
        ring = self._ring(client_ids)
        if not ring:
            return []
        places = sorted(ring)
        mine = []
        for queue in queues:
            at = bisect_left(places, self.hash_function(_text_of(queue)))
            if ring[places[at % len(places)]] == client_id:
                mine.append(queue)
        return mine

    def _ring(self, client_ids: Collection[str]) -> dict[int, str]:
        """Place to client; where two meet the later one stays, as in Java."""
        ring: dict[int, str] = {}
        met: set[str] = set()
        for client_id in client_ids:
            # Two processes may have one client id: the second one's places go on counting.
            start = list(ring.values()).count(client_id) if client_id in met else 0
            met.add(client_id)
            for number in range(start, start + self.virtual_node_count):
                ring[self.hash_function(f"{client_id}-{number}")] = client_id
        return ring


def _text_of(queue: MessageQueue) -> str:
    """MessageQueue.toString of Java: its place on the ring comes from it."""
    return (
        f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name},"
        f" queueId={queue.queue_id}]"
    )
