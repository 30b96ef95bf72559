"""Strategies that assign the queues of a topic to the members of a consumer group.

Each member computes its own queues. So all members must use the same strategy, with the same lists
in the same order: the queues sorted, and the client ids sorted.

Java counterpart: AllocateMessageQueueStrategy and the classes beside it in
client/consumer/rebalance, ConsistentHashRouter of RocketMQ 5.3.3. Pure.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from ...common.allocation import share_averagely, share_by_circle
from ...remoting.bodies import MessageQueue

VIRTUAL_NODE_COUNT: Final = 10
"""Positions of a client on the hash ring. Source: AllocateMessageQueueConsistentHash."""

VIRTUAL_NODE_COUNT_MAX: Final = 1024
"""RocketMQ sets no limit. Each position costs an MD5 per client and rebalance."""


class AllocateMessageQueueStrategy(Protocol):
    """Chooses the queues of one member of a consumer group."""

    @property
    def name(self) -> str:
        """RocketMQ's name of the strategy, which administrators see."""

    def allocate(
        self,
        group: str,
        client_id: str,
        queues: Sequence[MessageQueue],
        client_ids: Sequence[str],
    ) -> list[MessageQueue]:
        """Choose the queues of one member.

        Args:
          group: name of the consumer group.
          client_id: client id of the member.
          queues: all queues of one topic, sorted; not empty.
          client_ids: client ids of all members, sorted; not empty.

        Returns: the queues of the member; an empty list if `client_ids` does not have it.
        Raises: ValueError: the client id or a list is empty.
        """


def _index_of(
    client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
) -> int | None:
    """The member's index; None if it is no member.

    Source: AbstractAllocateMessageQueueStrategy.check.
    """
    for what, given in (("a client id", client_id), ("queues", queues), ("client ids", client_ids)):
        if not given:
            raise ValueError(f"queues cannot be assigned without {what}")
    try:
        return client_ids.index(client_id)
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class AllocateMessageQueueAveragely:
    """Assigns adjacent queues, in numbers that differ by at most one: 01 23 4. The default."""

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
        return share_averagely(queues, index, len(client_ids))


@dataclass(frozen=True, slots=True)
class AllocateMessageQueueAveragelyByCircle:
    """Assigns one queue to each member in turn: 03 14 2."""

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
        return [] if index is None else share_by_circle(queues, index, len(client_ids))


@dataclass(frozen=True, slots=True)
class AllocateMessageQueueByConfig:
    """Assigns a fixed list of queues to this member, whatever the other members are.

    Attributes:
      queues: the queues of this member.
      name: RocketMQ's name of the strategy.
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
        """The configured queues; the arguments are not checked."""
        return list(self.queues)


@dataclass(frozen=True, slots=True)
class AllocateMessageQueueByMachineRoom:
    """Assigns only queues of certain machine rooms; the names of brokers have the form `room@name`.

    Attributes:
      rooms: the machine rooms (`consumeridcs` in Java).
      name: RocketMQ's name of the strategy.
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
        """See AllocateMessageQueueStrategy; queues of other rooms are not assigned."""
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
        # Java's String.split drops empty strings at the end.
        parts = broker_name.rstrip("@").split("@")
        return len(parts) == 2 and parts[0] in self.rooms


class MachineRoomResolver(Protocol):
    """Maps brokers and clients to machine rooms."""

    def broker_deploy_in(self, queue: MessageQueue) -> str:
        """The machine room of the queue's broker; not empty."""

    def consumer_deploy_in(self, client_id: str) -> str:
        """The machine room of a client; not empty."""


@dataclass(frozen=True, slots=True)
class AllocateMachineRoomNearby:
    """Assigns queues to members in the same machine room; without any, to all members.

    Attributes:
      strategy: assigns the queues of one room.
      resolver: maps brokers and clients to rooms.
    """

    strategy: AllocateMessageQueueStrategy
    resolver: MachineRoomResolver

    @property
    def name(self) -> str:
        """The name of this strategy and of the one that it uses."""
        return f"MACHINE_ROOM_NEARBY-{self.strategy.name}"

    def allocate(
        self,
        group: str,
        client_id: str,
        queues: Sequence[MessageQueue],
        client_ids: Sequence[str],
    ) -> list[MessageQueue]:
        """See AllocateMessageQueueStrategy. Raises ValueError also if a room is empty."""
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
        raise ValueError(f"the resolver returned no machine room for {of}")
    return room


HashFunction = Callable[[str], int]
"""Maps a string to a position on the hash ring."""


def md5_hash(key: str) -> int:
    """The first four bytes of the MD5 of a string, as a number from 0 to 2^32 - 1.

    Source: ConsistentHashRouter.MD5Hash.
    """
    digest = hashlib.md5(key.encode("utf-8", "replace"), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4], "big")


@dataclass(frozen=True, slots=True)
class AllocateMessageQueueConsistentHash:
    """Assigns by consistent hashing: few queues move when a member joins or leaves.

    Attributes:
      virtual_node_count: positions of each member on the hash ring, 0 to 1,024; with 0 no queue is
        assigned.
      hash_function: maps texts to positions; all members must use the same.
      name: RocketMQ's name of the strategy.

    Raises: ValueError: `virtual_node_count` is out of range.
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
        """Map positions to clients; the last client at a position counts, as in Java."""
        ring: dict[int, str] = {}
        seen: set[str] = set()
        for client_id in client_ids:
            # Two processes can have the same client id: continue with its number of positions.
            start = list(ring.values()).count(client_id) if client_id in seen else 0
            seen.add(client_id)
            for number in range(start, start + self.virtual_node_count):
                ring[self.hash_function(f"{client_id}-{number}")] = client_id
        return ring


def _text_of(queue: MessageQueue) -> str:
    """Java's MessageQueue.toString, which determines the position on the ring."""
    return (
        f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name},"
        f" queueId={queue.queue_id}]"
    )
