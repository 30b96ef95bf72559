"""Facts about a cluster that `trocket doctor` judges: what servers answered, and what they did not.

Pure. `collect.py` collects them, `checks.py` judges them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec

from ...remoting.bodies import TopicConfig

MASTER_ID = 0


class Limits(NamedTuple):
    """How much of a cluster's groups is asked for at one time.

    Attributes:
      groups: groups whose members one broker is asked for. RocketMQ's brokers tell the members of
        one group at a time.
      members: members that are asked for their subscriptions; brokers hand each question on.
      members_of_group: such members of one group. With the default, one group alone cannot take all
        that are asked, and members of one deployment are mostly alike.
    """

    groups: int = 100
    members: int = 200
    members_of_group: int = 50


MANY: Final = Limits()
"""For a command: a hundred groups take a second or two, and few clusters have more in use."""

FEW: Final = Limits(8, 14, 7)
"""For a page: with the six other questions and a sample's nine, a broker gets less than 40."""


class BrokerKey(NamedTuple):
    """A broker as a name server has it.

    Attributes:
      name: the name that a master and its slaves share.
      broker_id: 0 is the master.
    """

    name: str
    broker_id: int


@dataclass(frozen=True, slots=True)
class NameServerFacts:
    """What one name server answered.

    Attributes:
      address: its `host:port`.
      error: why it gave no list of brokers; "": it gave one.
      brokers: the address of each registered broker, `host:port`.
      clusters: the cluster of each broker name.
      warning: its remark about the list, such as two brokers with the same name and id; "": none.
    """

    address: str
    error: str = ""
    brokers: Mapping[BrokerKey, str] = field(default_factory=dict)
    clusters: Mapping[str, str] = field(default_factory=dict)
    warning: str = ""


class ClockReading(NamedTuple):
    """A broker's clock beside ours: milliseconds that it is ahead, at least and at most."""

    ahead_min_ms: int
    ahead_max_ms: int


class SendAnswer(NamedTuple):
    """What a broker answered to a send.

    Attributes:
      code: RocketMQ's; 0: it takes sends.
      remark: its reason.
    """

    code: int
    remark: str

    @property
    def is_taken(self) -> bool:
        return self.code == 0


TAKEN: Final = SendAnswer(0, "")


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """What one broker answered at its advertised address.

    Attributes:
      key, cluster: as it is registered.
      address: the advertised `host:port`.
      error: why it could not be asked at all; "": it answered.
      gaps: requests that failed, and why: RocketMQ's name of the request to the error.
      runtime: its runtime information; empty: unknown.
      config: its settings by the keys of broker.conf; empty: unknown.
      clock: None if it does not tell its time.
      topics: its topics by name; None: unknown, or it is a slave.
      groups: the names of its consumer groups; None: unknown, or it is a slave.
      send: its answer to a send; None: it is a slave, or unknown.
      not_ready: what its `/health/ready` says is missing; None: it has no such page.
      loop_lag_s: the 99th percentile of its event loop's lag, in seconds; None: unknown.
    """

    key: BrokerKey
    cluster: str
    address: str
    error: str = ""
    gaps: Mapping[str, str] = field(default_factory=dict)
    runtime: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, str] = field(default_factory=dict)
    clock: ClockReading | None = None
    topics: Mapping[str, TopicConfig] | None = None
    groups: frozenset[str] | None = None
    send: SendAnswer | None = None
    not_ready: tuple[str, ...] | None = None
    loop_lag_s: float | None = None

    @property
    def is_master(self) -> bool:
        """Whether it is registered as a master."""
        return self.key.broker_id == MASTER_ID

    @property
    def label(self) -> str:
        """The broker for people: name, id of a slave, address."""
        number = "" if self.is_master else f" slave {self.key.broker_id}"
        return f"{self.key.name}{number} ({self.address})"

    def number(self, name: str) -> float | None:
        """A number of the runtime information; None if it is missing or not a number."""
        return _finite(self.runtime.get(name, ""))

    def setting(self, key: str, default: float) -> float:
        """A number of the settings, or the default."""
        value = _finite(self.config.get(key, ""))
        return default if value is None else value


def _finite(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


class Subscription(NamedTuple):
    """What a member wants of a topic: an expression such as "*", and its type, TAG or SQL92."""

    topic: str
    expression: str
    expression_type: str


@dataclass(frozen=True, slots=True)
class MemberFacts:
    """A connected member of a consumer group.

    Attributes:
      client_id: `ip@instance`.
      language, version: such as "JAVA" and "V5_5_0".
      subscriptions: as it says itself, without retry topics; None: it was not asked, or did not
        answer.
    """

    client_id: str
    language: str
    version: str
    subscriptions: frozenset[Subscription] | None = None


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """A consumer group.

    Attributes:
      name: its full name.
      members: the connected ones that brokers were asked for.
      lag: messages that wait, by topic.
      error: why some broker refused to tell about it; "": none did.
      count: how many members there are, at least.
      unknown_on: the names of the brokers that did not tell whether it has members.
      is_left_out: its members were not asked for, as there are too many groups.
      members_left_out: members that were not asked for their subscriptions, as there are too many.
    """

    name: str
    members: tuple[MemberFacts, ...] = ()
    lag: Mapping[str, int] = field(default_factory=dict)
    error: str = ""
    count: int = 0
    unknown_on: frozenset[str] = frozenset()
    is_left_out: bool = False
    members_left_out: int = 0

    @property
    def is_without_members(self) -> bool:
        """Whether all brokers tell that no member is connected."""
        return not (self.members or self.count or self.unknown_on or self.error)


class ReplicaFacts(NamedTuple):
    """A broker of a set as the controllers know it.

    Attributes:
      controller_id: its number in the set.
      address: its `host:port`.
      is_alive: its heartbeats arrive.
      is_in_sync: it has every confirmed message, so it may be elected.
    """

    controller_id: int
    address: str
    is_alive: bool
    is_in_sync: bool


class EpochFacts(NamedTuple):
    """Where a broker's log is: the last epoch, where that began, and the log's end."""

    epoch: int
    start_offset: int
    max_offset: int


class SetFacts(msgspec.Struct, frozen=True):
    """A broker set in controller mode.

    Attributes:
      name: of its brokers.
      controllers: those in its brokers' settings.
      announced: where the leader says it is; "": none of them leads.
      errors: why controllers gave no answer, by address.
      master_id: controller id; None: there is none, or it is not known.
      replicas: its brokers; empty: no controller knows the set.
      epochs: of the brokers that tell, by address.
    """

    name: str
    controllers: tuple[str, ...] = ()
    announced: str = ""
    errors: Mapping[str, str] = {}
    master_id: int | None = None
    replicas: tuple[ReplicaFacts, ...] = ()
    epochs: Mapping[str, EpochFacts] = {}

    @property
    def master(self) -> ReplicaFacts | None:
        """The master; None: there is none."""
        for each in self.replicas:
            if each.controller_id == self.master_id:
                return each
        return None


@dataclass(frozen=True, slots=True)
class Facts:
    """All that was collected.

    Attributes:
      name_servers: those of the URL.
      brokers: all that are registered anywhere.
      groups: sorted by name; without RocketMQ's own.
      write_perms_taken: names of brokers that a name server hides from producers.
      ordered: the name servers' order of topics: topic to `brokerName:queues;…`.
      limits: how much was asked for.
      sets: the broker sets in controller mode, sorted by name.
    """

    name_servers: tuple[NameServerFacts, ...]
    brokers: tuple[BrokerFacts, ...] = ()
    groups: tuple[GroupFacts, ...] = ()
    write_perms_taken: frozenset[str] = frozenset()
    ordered: Mapping[str, str] = field(default_factory=dict)
    limits: Limits = MANY
    sets: tuple[SetFacts, ...] = ()

    @property
    def masters(self) -> tuple[BrokerFacts, ...]:
        return tuple(each for each in self.brokers if each.is_master and not each.error)

    @property
    def answering(self) -> tuple[BrokerFacts, ...]:
        return tuple(each for each in self.brokers if not each.error)
