"""The last heartbeat of each broker, and who is alive by it.

Pure: times are arguments, seconds of a clock that never goes back. Only members of stored sets are
in the table, so it is no larger than they are.

Only the connection of the last heartbeat counts: the end of an older one says nothing. A new
controller has heard no one yet; each member gets one time-out to send a heartbeat, so that no
election follows from the change of the controller.

Source: DefaultBrokerHeartbeatManager and BrokerLiveInfo of RocketMQ 5.5.0. There a heartbeat whose
epoch or offset is lower than the last one's leaves those as they were; here it counts as it is,
because a log that was cut has less.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Final, NamedTuple, TypeVar

import msgspec

from .broker_set import BrokerSet
from .rules import Alive, Standing

TIMEOUT_S: Final = 10.0
"""Of a broker that states none, or was not heard yet. Source: DefaultBrokerHeartbeatManager."""

TIMEOUT_S_MIN: Final = 0.1
"""A shorter time-out is raised to this: no broker sends heartbeats as often."""


class Member(NamedTuple):
    """A broker of a set, as heartbeats name it."""

    cluster_name: str
    broker_name: str
    broker_id: int


class Heartbeat(msgspec.Struct, frozen=True):
    """What a broker said last.

    Attributes:
      standing: of its log.
      confirm_offset: up to where its log is confirmed, bytes.
      timeout_s: how long it counts as alive.
      connection: on which it came; None: the member was not heard yet.
    """

    standing: Standing = Standing()
    confirm_offset: int = 0
    timeout_s: float = TIMEOUT_S
    connection: object = None


class _Heard(NamedTuple):
    heartbeat: Heartbeat
    at_s: float
    allowed_s: float = 0.0

    @property
    def timeout_s(self) -> float:
        return max(self.heartbeat.timeout_s, TIMEOUT_S_MIN)

    @property
    def until_s(self) -> float:
        return self.at_s + self.timeout_s + self.allowed_s

    def allow(self, pause_s: float) -> _Heard:
        """With the time of a pause added, as far as `LiveTable.allow` adds it."""
        most_s = max(self.allowed_s, self.timeout_s, pause_s)
        return self._replace(allowed_s=min(self.allowed_s + pause_s, most_s))


class LiveTable:
    """The last heartbeats; see the module."""

    def __init__(self) -> None:
        self._heard: dict[Member, _Heard] = {}
        self._ids: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
        self._by_connection: defaultdict[object, set[Member]] = defaultdict(set)

    def __len__(self) -> int:
        return len(self._heard)

    def expect(self, sets: Iterable[BrokerSet], now_s: float) -> None:
        """Give each member that was not heard yet one time-out from now."""
        for each in sets:
            for broker_id in each.replicas:
                member = Member(each.cluster_name, each.broker_name, broker_id)
                if member not in self._heard:
                    self.beat(member, Heartbeat(), now_s)

    def beat(self, member: Member, heartbeat: Heartbeat, now_s: float) -> float:
        """Record a heartbeat.

        Returns: when its time is over.
        """
        self.forget(member)
        self._heard[member] = _Heard(heartbeat, now_s)
        self._ids[member[:2]].add(member.broker_id)
        if heartbeat.connection is not None:
            self._by_connection[heartbeat.connection].add(member)
        return self._heard[member].until_s

    def forget(self, member: Member) -> None:
        """Count a member as dead until its next heartbeat."""
        heard = self._heard.pop(member, None)
        if heard is None:
            return
        _drop(self._ids, member[:2], member.broker_id)
        _drop(self._by_connection, heard.heartbeat.connection, member)

    def last(self, member: Member) -> Heartbeat | None:
        """The last heartbeat; None: there is none, or it has expired and was removed."""
        heard = self._heard.get(member)
        return None if heard is None else heard.heartbeat

    def members_of(self, connection: object) -> frozenset[Member]:
        """The members whose last heartbeat came on a connection."""
        return frozenset(self._by_connection.get(connection, ()))

    def alive(self, broker_set: BrokerSet | None, now_s: float) -> Alive:
        """The living members of a set, by id."""
        if broker_set is None:
            return {}
        key = (broker_set.cluster_name, broker_set.broker_name)
        found: dict[int, Standing] = {}
        for broker_id in self._ids.get(key, ()):
            heard = self._heard[Member(*key, broker_id)]
            if heard.until_s > now_s and broker_id in broker_set.replicas:
                found[broker_id] = heard.heartbeat.standing
        return found

    def expire(self, now_s: float) -> set[Member]:
        """Remove the members whose time is over.

        Returns: them.
        """
        over = {member for member, heard in self._heard.items() if heard.until_s <= now_s}
        for member in over:
            self.forget(member)
        return over

    def allow(self, pause_s: float) -> None:
        """Give all members more time: for so long this process has read no heartbeats.

        One pause counts whole. Many short ones together add at most a time-out to one heartbeat:
        a process that is always late reads heartbeats between its pauses, and must still notice
        that a member sends none.
        """
        self._heard = {member: heard.allow(pause_s) for member, heard in self._heard.items()}

    def next_expiry_s(self) -> float | None:
        """When the next member's time is over; None: no one is alive."""
        return min((heard.until_s for heard in self._heard.values()), default=None)

    def keep(self, broker_set: BrokerSet | None, name: str) -> None:
        """Forget the members of a name that its set does not have any more."""
        kept = () if broker_set is None else broker_set.replicas
        cluster_name = "" if broker_set is None else broker_set.cluster_name
        for member in [each for each in self._heard if each.broker_name == name]:
            if member.cluster_name != cluster_name or member.broker_id not in kept:
                self.forget(member)


_K = TypeVar("_K")
_V = TypeVar("_V")


def _drop(table: dict[_K, set[_V]], key: _K, value: _V) -> None:
    """Remove a value of a key, and the key with its last one."""
    values = table.get(key)
    if values is not None:
        values.discard(value)
        if not values:
            del table[key]
