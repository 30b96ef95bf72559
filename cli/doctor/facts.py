"""Facts about a cluster that `trocket doctor` judges: what servers answered, and what they did not.

Pure. `doctor_collect.py` collects them, `doctor_checks.py` judges them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ...remoting.bodies import TopicConfig

MASTER_ID = 0


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
      send_refusal: why it refuses a send; "": it takes sends; None: it is a slave, or unknown.
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
    send_refusal: str | None = None
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
      members: the connected ones.
      lag: messages that wait, by topic; asked only if there are no members.
      error: why some broker did not answer about it; "": all did.
    """

    name: str
    members: tuple[MemberFacts, ...] = ()
    lag: Mapping[str, int] = field(default_factory=dict)
    error: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """All that was collected.

    Attributes:
      name_servers: those of the URL.
      brokers: all that are registered anywhere.
      groups: sorted by name; without RocketMQ's own.
      write_perms_taken: names of brokers that a name server hides from producers.
      ordered: the name servers' order of topics: topic to `brokerName:queues;…`.
    """

    name_servers: tuple[NameServerFacts, ...]
    brokers: tuple[BrokerFacts, ...] = ()
    groups: tuple[GroupFacts, ...] = ()
    write_perms_taken: frozenset[str] = frozenset()
    ordered: Mapping[str, str] = field(default_factory=dict)

    @property
    def masters(self) -> tuple[BrokerFacts, ...]:
        return tuple(each for each in self.brokers if each.is_master and not each.error)

    @property
    def answering(self) -> tuple[BrokerFacts, ...]:
        return tuple(each for each in self.brokers if not each.error)
