"""Which broker has which queues of which topic.

Java counterpart: topicQueueTable and topicQueueMappingInfoTable of RocketMQ 5.3.3
namesrv/routeinfo/RouteInfoManager.java. Here they have an index by broker name, so that a broker
goes without a look at every topic.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from ..remoting import fastjson
from ..remoting.bodies import QueueData, out_of_range
from ..remoting.errors import LocalProtocolError
from ..remoting.names import is_name
from ..remoting.steps import Steps, in_parts
from .limits import QUEUE_DATA_MAX, QUEUE_MAPPING_SIZE_MAX, QUEUE_MAPPINGS_MAX, TOPICS_MAX

logger = logging.getLogger(__name__)

TOPICS_PER_STEP: Final = 2_000
"""Topics of a broker that are taken, or changed, in one go, some 4 ms."""


class TopicTable:
    """Topics with the queues that each broker name has of them.

    Invariants: no topic without a broker, no mapping without its topic, the index by broker name
    is exactly the table turned round.
    """

    def __init__(self) -> None:
        self._queues: dict[str, dict[str, QueueData]] = {}
        # Dicts and not sets: their order is that of the memory, and a walk is three times as fast.
        self._topics_by_broker: dict[str, dict[str, None]] = {}
        self._mappings: dict[str, dict[str, Mapping[str, object]]] = {}
        self._pair_count = 0
        self._mapping_count = 0

    def __len__(self) -> int:
        return len(self._queues)

    def __contains__(self, topic: str) -> bool:
        return topic in self._queues

    def topics(self) -> list[str]:
        """All topics, oldest first."""
        return list(self._queues)

    def topics_of_broker(self, broker_name: str) -> frozenset[str]:
        """The topics that a broker name has queues of."""
        return frozenset(self._topics_by_broker.get(broker_name, ()))

    def topics_of_brokers(self, broker_names: Iterable[str]) -> Steps[list[str]]:
        """Steps to the topics that any of these has queues of, each once, oldest first."""
        found: dict[str, None] = {}
        for name in broker_names:
            if found:
                yield
            found.update(self._topics_by_broker.get(name, {}))
        return list(found)

    def queues(self, topic: str) -> Mapping[str, QueueData]:
        """The queues of a topic by broker name; empty when there is no such topic."""
        return self._queues.get(topic, {})

    def mappings(self, topic: str) -> Mapping[str, Mapping[str, object]] | None:
        """A static topic's mappings by broker name; None when it is none."""
        return self._mappings.get(topic)

    def put(self, topic: str, queue_data: QueueData) -> bool:
        """Set the queues that a broker name has of a topic.

        Args:
          topic: any text from the wire.
          queue_data: names the broker.
        Returns: False, with a line in the log, when the name is illegal, a number is outside of its
          range or the table is full. What was known of the topic stays.
        """
        fault = out_of_range(queue_data)
        if fault is not None:
            # Clients make an object for each queue that a route has.
            logger.warning("topic %r of %s not kept: %s", topic[:80], queue_data.broker_name, fault)
            return False
        brokers = self._queues.get(topic)
        name = queue_data.broker_name
        if brokers is None or name not in brokers:
            is_full = brokers is None and len(self._queues) >= TOPICS_MAX
            if is_full or self._pair_count >= QUEUE_DATA_MAX:
                logger.warning("the topic table is full: %s of %s not kept", topic, name)
                return False
            if not is_name(topic):
                logger.warning("illegal topic %r of %s not kept", topic[:80], name)
                return False
            if brokers is None:
                brokers = self._queues[topic] = {}
            self._topics_by_broker.setdefault(name, {})[topic] = None
            self._pair_count += 1
        brokers[name] = queue_data
        return True

    def put_mapping(self, topic: str, broker_name: str, mapping: Mapping[str, object]) -> bool:
        """Set what a broker tells of a static topic.

        Returns: False when the topic is not in the table, the mapping is too large, or there are
          QUEUE_MAPPINGS_MAX already.
        """
        if topic not in self._queues:
            return False
        if not _fits(mapping):
            logger.warning("mapping of %s on %r not kept: too large", topic, broker_name[:80])
            return False
        known = self._mappings.get(topic, {})
        if broker_name not in known:
            if self._mapping_count >= QUEUE_MAPPINGS_MAX:
                logger.warning("the table of mappings is full: %s not kept", topic)
                return False
            self._mapping_count += 1
        self._mappings.setdefault(topic, {})[broker_name] = mapping
        return True

    def remove(self, topic: str, broker_name: str) -> bool:
        """Take a broker's queues from a topic; the topic goes with its last broker.

        Returns: False when it had none.
        """
        brokers = self._queues.get(topic)
        if brokers is None or brokers.pop(broker_name, None) is None:
            return False
        self._pair_count -= 1
        if not brokers:
            del self._queues[topic]
            self._mapping_count -= len(self._mappings.pop(topic, ()))
        topics = self._topics_by_broker[broker_name]
        topics.pop(topic, None)
        if not topics:
            del self._topics_by_broker[broker_name]
        return True

    def remove_topic(self, topic: str) -> bool:
        """Take a topic from all brokers. Returns: False when there is none."""
        names = list(self._queues.get(topic, ()))
        for name in names:
            self.remove(topic, name)
        return bool(names)

    def remove_broker(self, broker_name: str, topics: Iterable[str] | None = None) -> None:
        """Take a broker name from these topics; None: from all, some 0.2 us each."""
        if topics is not None:
            for topic in list(topics):
                self.remove(topic, broker_name)
            return
        gone = self._topics_by_broker.pop(broker_name, {})
        table = self._queues
        for topic in gone:
            brokers = table[topic]
            del brokers[broker_name]
            if not brokers:
                del table[topic]
        self._pair_count -= len(gone)
        for topic in [topic for topic in self._mappings if topic not in table]:
            self._mapping_count -= len(self._mappings.pop(topic))

    def change_perm(self, broker_name: str, *, keep: int, add: int) -> Steps[int]:
        """Set the permission of all queues of a broker to `(perm & keep) | add`, in steps.

        Returns: steps to the number of topics that the broker had; those that come meanwhile keep
          theirs.
        """
        topics = list(self._topics_by_broker.get(broker_name, ()))
        for part in in_parts(topics, TOPICS_PER_STEP):
            if part[0] is not topics[0]:
                yield
            for topic in part:
                brokers = self._queues.get(topic, {})
                old = brokers.get(broker_name)
                if old is None:
                    continue
                perm = old.perm & keep | add
                if perm != old.perm:
                    # A new object: routes that were picked up before share the old one.
                    brokers[broker_name] = msgspec.structs.replace(old, perm=perm)
        return len(topics)

    def topics_with_flags(self, *, wanted: int, unwanted: int = 0) -> list[str]:
        """The topics whose sysFlag, on their first broker, has `wanted` and not `unwanted`."""
        found: list[str] = []
        for topic, brokers in self._queues.items():
            for queue_data in brokers.values():
                flag = queue_data.topic_sys_flag
                if flag & wanted == wanted and not flag & unwanted:
                    found.append(topic)
                break
        return found


def _fits(mapping: Mapping[str, object]) -> bool:
    try:
        return len(fastjson.dumps(mapping)) <= QUEUE_MAPPING_SIZE_MAX
    except LocalProtocolError:  # it could not be sent to anybody
        return False
