"""TopicTable: the queues of each topic by broker name.

Java counterpart: topicQueueTable and topicQueueMappingInfoTable of RocketMQ 5.3.3
namesrv/routeinfo/RouteInfoManager.java. Here they have an index by broker name, so that the removal
of a broker does not scan all topics.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Final, NamedTuple

import msgspec

from ..common.steps import Steps, in_parts
from ..remoting import fastjson
from ..remoting.bodies import QueueData, TopicConfig, out_of_range
from ..remoting.errors import LocalProtocolError
from ..remoting.names import is_name
from .limits import QUEUE_DATA_MAX, QUEUE_MAPPING_SIZE_MAX, QUEUE_MAPPINGS_MAX, TOPICS_MAX

logger = logging.getLogger(__name__)

TOPICS_PER_STEP: Final = 2_000
"""Topics of a broker that are added or changed per step, some 4 ms."""

ROUTES_SIZE_MAX: Final = 32 * 1024 * 1024
"""Bytes of all kept routes: 10,000 topics of ten brokers each."""

ROUTE_SIZE: Final = 300
"""Bytes that a kept route needs besides its text."""

SharedQueueData = dict[tuple[object, ...], QueueData]
"""The queue data of a broker by their values: most of its topics have equal ones."""


def share(known: SharedQueueData, queue_data: QueueData) -> QueueData:
    """The first of all equal queue data, which must not be changed in place."""
    return known.setdefault(msgspec.structs.astuple(queue_data), queue_data)


def queue_data_of(broker_name: str, topic: TopicConfig, keep_perm: int) -> QueueData:
    """The queues of a topic on a broker; of its permission only some bits."""
    return QueueData(
        broker_name=broker_name,
        read_queue_nums=topic.read_queue_nums,
        write_queue_nums=topic.write_queue_nums,
        perm=topic.perm & keep_perm,
        topic_sys_flag=topic.topic_sys_flag,
    )


class Form(NamedTuple):
    """What a route's text depends on besides the tables.

    Attributes:
      shows_acting: a slave may be shown as an acting master.
      quotes_keys: broker ids are strings.
    """

    shows_acting: bool
    quotes_keys: bool


class RouteAnswers:
    """Written routes of topics, kept until what they show changes; the oldest are dropped first.

    Thousands of clients ask for the same routes every 30 seconds, and a route of many brokers takes
    some 3 us for each of them to write. RocketMQ's name server writes each answer anew.

    Attributes:
      size: bytes of all of them, about.
    """

    def __init__(self) -> None:
        self._routes: dict[str, dict[Form, bytes]] = {}
        self.size = 0

    def get(self, topic: str, form: Form) -> bytes | None:
        """The route of a topic; None: it is not kept."""
        forms = self._routes.get(topic)
        return None if forms is None else forms.get(form)

    def keep(self, topic: str, form: Form, body: bytes) -> None:
        """Keep a route that was not kept, unless it is too large."""
        size = len(body) + ROUTE_SIZE
        if size > ROUTES_SIZE_MAX:
            return
        while self.size + size > ROUTES_SIZE_MAX:
            self.drop(next(iter(self._routes)))
        self._routes.setdefault(topic, {})[form] = body
        self.size += size

    def drop(self, topic: str) -> None:
        """Forget the routes of a topic that changes."""
        forms = self._routes.pop(topic, None)
        if forms is not None:
            self.size -= sum(map(len, forms.values())) + ROUTE_SIZE * len(forms)

    def clear(self) -> None:
        """Forget all routes, because a broker changes."""
        self._routes.clear()
        self.size = 0


class TopicTable:
    """Topics with the queues that each broker name has of them.

    Invariants: no topic without a broker, no mapping without its topic; the index by broker name
    is exactly the inverse of the table.

    Attributes:
      answers: written routes; a change of a topic drops its own.
      changed_at: by broker name, the number of the last change of its queues or mappings; changes
        are numbered from 1 over all brokers. A broker without topics may be missing.
    """

    def __init__(self) -> None:
        self._queues: dict[str, dict[str, QueueData]] = {}
        # The string of a topic's name that the index by broker has, too: each registration brings
        # other ones, and names take a third of the memory if every broker keeps those it sent.
        self._names: dict[str, str] = {}
        # Dicts, not sets: they are stored in order, so iteration is three times as fast.
        self._topics_by_broker: dict[str, dict[str, None]] = {}
        self._mappings: dict[str, dict[str, Mapping[str, object]]] = {}
        self._pair_count = 0
        self._mapping_count = 0
        self._change_count = 0
        self.changed_at: dict[str, int] = {}
        self.answers = RouteAnswers()

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
        """Steps that collect the topics of any of these brokers, each once, oldest first."""
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
        """A static topic's mappings by broker name; None: the topic is not static."""
        return self._mappings.get(topic)

    def put(self, topic: str, queue_data: QueueData) -> bool:
        """Set the queues that a broker name has of a topic.

        Args:
          topic: any string from the wire.
          queue_data: the queues, with the broker's name.
        Returns: False, with a log line: the name is illegal, a number is out of range, or the
          table is full. Known queues of the topic stay.
        """
        fault = out_of_range(queue_data)
        if fault is not None:
            # A high number would harm clients, which create an object for each queue of a route.
            logger.warning(
                "topic %(topic)r of broker %(broker_name)s is not registered: %(reason)s",
                {"topic": topic[:80], "broker_name": queue_data.broker_name, "reason": fault},
            )
            return False
        brokers = self._queues.get(topic)
        name = queue_data.broker_name
        if brokers is None or name not in brokers:
            is_full = brokers is None and len(self._queues) >= TOPICS_MAX
            if is_full or self._pair_count >= QUEUE_DATA_MAX:
                logger.warning(
                    "topic %(topic)s of broker %(broker_name)s is not registered, so clients "
                    "cannot find it: the topic table is full",
                    {"topic": topic, "broker_name": name},
                )
                return False
            if not is_name(topic):
                logger.warning(
                    "topic %(topic)r of broker %(broker_name)s is not registered: the name is "
                    "illegal",
                    {"topic": topic[:80], "broker_name": name},
                )
                return False
            if brokers is None:
                brokers = self._queues[topic] = {}
                self._names[topic] = topic
            self._topics_by_broker.setdefault(name, {})[self._names[topic]] = None
            self._pair_count += 1
        brokers[name] = queue_data
        self._changed(topic, name)
        return True

    def put_mapping(self, topic: str, broker_name: str, mapping: Mapping[str, object]) -> bool:
        """Set a broker's mapping of a static topic.

        Returns: False if the topic is not in the table, the mapping is too large, or there are
          QUEUE_MAPPINGS_MAX already.
        """
        if topic not in self._queues:
            return False
        if not _fits(mapping):
            logger.warning(
                "the queue mapping of topic %(topic)s on broker %(broker_name)r is ignored: it "
                "is larger than %(limit)d bytes",
                {"topic": topic, "broker_name": broker_name[:80], "limit": QUEUE_MAPPING_SIZE_MAX},
            )
            return False
        known = self._mappings.get(topic, {})
        if broker_name not in known:
            if self._mapping_count >= QUEUE_MAPPINGS_MAX:
                logger.warning(
                    "the queue mapping of topic %(topic)s is ignored: the table is full "
                    "(%(limit)d mappings)",
                    {"topic": topic, "limit": QUEUE_MAPPINGS_MAX},
                )
                return False
            self._mapping_count += 1
        self._mappings.setdefault(topic, {})[broker_name] = mapping
        self._changed(topic, broker_name)
        return True

    def put_topics(
        self, broker_name: str, topics: Sequence[TopicConfig], *, only_missing: bool, keep_perm: int
    ) -> Steps[bool]:
        """Set the queues of a broker's topics, in steps.

        Args:
          only_missing: leave those as they are that it has queues of.
          keep_perm: the bits of the permission that are kept.
        Returns: steps that return whether all were set, where they had to be: see `put`.
        """
        shared: SharedQueueData = {}
        are_set = True
        for count, topic in enumerate(topics, 1):
            if count % TOPICS_PER_STEP == 0:
                yield
            known = self.queues(topic.topic_name).get(broker_name)
            if known is None or not only_missing:
                queue_data = queue_data_of(broker_name, topic, keep_perm)
                if known != queue_data:
                    are_set &= self.put(topic.topic_name, share(shared, queue_data))
        return are_set

    def put_mappings(self, broker_name: str, mappings: Mapping[str, Mapping[str, object]]) -> None:
        """Set mappings of static topics, each of the broker that it names, or of this one."""
        for topic, mapping in mappings.items():
            bname = mapping.get("bname")
            self.put_mapping(topic, bname if isinstance(bname, str) else broker_name, mapping)

    def keep_only(self, broker_name: str, topics: Set[str]) -> None:
        """Remove a broker name from all other topics."""
        missing = self.topics_of_broker(broker_name) - topics
        if missing:
            logger.info(
                "%(topics)d topics of %(broker_name)s are removed: not in its table",
                {"topics": len(missing), "broker_name": broker_name},
            )
            self.remove_broker(broker_name, missing)

    def remove(self, topic: str, broker_name: str) -> bool:
        """Remove a broker's queues from a topic, and the topic with its last broker.

        Returns: False if it had none.
        """
        brokers = self._queues.get(topic)
        if brokers is None or brokers.pop(broker_name, None) is None:
            return False
        self._changed(topic, broker_name)
        self._pair_count -= 1
        if not brokers:
            self._drop(topic)
        topics = self._topics_by_broker[broker_name]
        topics.pop(topic, None)
        if not topics:
            del self._topics_by_broker[broker_name]
        return True

    def remove_topic(self, topic: str) -> bool:
        """Remove a topic from all brokers. Returns: False: it does not exist."""
        names = list(self._queues.get(topic, ()))
        for name in names:
            self.remove(topic, name)
        return bool(names)

    def remove_broker(self, broker_name: str, topics: Iterable[str] | None = None) -> None:
        """Remove a broker name from these topics; None: from all, some 0.2 us each."""
        if topics is not None:
            for topic in list(topics):
                self.remove(topic, broker_name)
            return
        gone = self._topics_by_broker.pop(broker_name, {})
        table = self._queues
        for topic in gone:
            brokers = table[topic]
            del brokers[broker_name]
            self.answers.drop(topic)
            if not brokers:
                self._drop(topic)
        self._pair_count -= len(gone)
        self.changed_at.pop(broker_name, None)

    def _changed(self, topic: str, broker_name: str) -> None:
        self._change_count += 1
        self.changed_at[broker_name] = self._change_count
        self.answers.drop(topic)

    def _drop(self, topic: str) -> None:
        """Remove a topic that has no broker any more, with its mappings."""
        del self._queues[topic]
        del self._names[topic]
        self._mapping_count -= len(self._mappings.pop(topic, ()))

    def change_perm(self, broker_name: str, *, keep: int, add: int) -> Steps[int]:
        """Set the permission of all queues of a broker to `(perm & keep) | add`, in steps.

        Returns: steps that return the number of topics that the broker had; topics that are added
          meanwhile are not changed.
        """
        topics = list(self._topics_by_broker.get(broker_name, ()))
        shared: SharedQueueData = {}
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
                    # A new object, because routes that are being answered share the old one.
                    self._changed(topic, broker_name)
                    brokers[broker_name] = share(shared, msgspec.structs.replace(old, perm=perm))
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
    except LocalProtocolError:  # it could not be encoded in an answer, either
        return False
