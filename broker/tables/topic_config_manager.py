"""TopicConfigManager: the broker's topics and their settings.

A topic is created by an administrator (17, 18), by a first send to an unknown name
(`create_topic_in_send_message`, after the pattern of TBW102), or for a consumer group that needs
its retry topic. New and changed topics take effect once `topics.json` is saved, so that a killed
broker knows every topic and queue that it accepted messages for. Until then they are staged;
requests that need them wait, and are refused if the save fails. Afterwards `on_change` registers
them with the name servers.

Java counterpart: broker/topic/TopicConfigManager.java of 5.3.3. Pure, but for the `save` it is
given. A `TopicConfig` is never changed in place, always replaced.
Not done: rocksdb.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Set
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from ...common import topic_names as names
from ...common.clock import Clock
from ...common.steps import Steps, at_once
from ...common.topic_validator import RETRY_OR_DLQ_TOPIC_LENGTH_MAX, refuse_topic
from ...disk.errors import StoreIOError
from ...disk.json_config import parse
from ...disk.state_file import Save, StateFile
from ...remoting.bodies import (
    PERM_INHERIT,
    PERM_READ,
    PERM_WRITE,
    DataVersion,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from ...remoting.errors import RequestRefused
from ...remoting.refusals import Refusals
from ...remoting.response_codes import ResponseCode
from ..settings.attributes import TOPIC_ATTRIBUTES, alter_attributes
from .config_text import TOPICS, WrittenBodies, next_version, pretty, written
from .table_numbers import correct_topics, correct_version
from .topic_limit import NewTopics, limit_remark, warn_near_limit
from .topic_queues import (
    bounded_topic,
    has_usable_counts,
    mended_topic,
    queue_count_of_new_topic,
    readable_topic,
    refuse_numbers,
    retry_queue_count,
)

if TYPE_CHECKING:
    from ..settings.config import BrokerConfig

logger = logging.getLogger(__name__)

PERM_ALL: Final = PERM_READ | PERM_WRITE | PERM_INHERIT
"""All bits that a topic's `perm` may have. Source: common/constant/PermName.java."""

UNIT_SUB_FLAG: Final = 2
"""Bit of `topicSysFlag`: units subscribe to it. Source: common/sysflag/TopicSysFlag.java."""

SCHEDULE_QUEUE_COUNT: Final = 18
"""Queues of SCHEDULE_TOPIC_XXXX: one for each of RocketMQ's delay levels."""
BENCHMARK_QUEUE_COUNT: Final = 1024
CLUSTER_QUEUE_COUNT: Final = 16
"""Queues of the topic named after the cluster: TopicConfig's default."""


class TopicConfigManager:
    """The table of topics. Not thread-safe: used from the broker's one trio run.

    Args:
      config: the broker's configuration; read at each use, so changes take effect at once.
      clock: gives the data version's time.
      save_later: schedules a write, see `StateFile`.
      on_change: called after every change, with the new and changed topics, without deleted ones.
        The controller then registers.
      refusals: counts new topics that are refused.

    Attributes:
      topic_config_table: topic by name, always the same dict. The hot path reads it directly; only
        this class changes it.
      data_version: increases with every change; name servers compare it.
      system_topics: the names of the topics that this broker created at its start.
      is_corrected: the file that was read had impossible numbers.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        clock: Clock,
        save: Save,
        save_later: Callable[[StateFile], None] | None = None,
        on_change: Callable[[list[TopicConfig]], None] = lambda topics: None,
        refusals: Refusals | None = None,
    ) -> None:
        self._config = config
        self._clock = clock
        self._new_topics = NewTopics(config, clock.monotonic_s, refusals or Refusals())
        self.file = StateFile(
            TOPICS, "topics", save, self._text_to_save, save_later, on_saved=self._on_saved
        )
        self._texts = WrittenBodies()
        self.is_corrected = False
        self._wrong_counts: set[str] = set()  # topics of the file whose queue counts were wrong
        self._staged: dict[str, TopicConfig] = {}
        self._saving: dict[str, TopicConfig] = {}  # those of `_staged` in the running save
        self.on_change = on_change
        self.data_version = DataVersion(timestamp=clock.wall_ms(), counter=0)
        self.topic_config_table: dict[str, TopicConfig] = {
            topic.topic_name: topic for topic in _system_topics(config)
        }
        self.system_topics: frozenset[str] = frozenset(self.topic_config_table)

    def settings_changed(self) -> None:
        """Give the broker's own topics the queues and permissions that the keys say now.

        A topic whose key was switched off stays: it may have messages.
        """
        table = self.topic_config_table
        own = _system_topics(self._config)
        changed = []
        for topic in own:
            known = table.get(topic.topic_name)
            if known is None:
                changed.append(topic)
            elif topic.topic_name in _FOLLOW_KEYS or topic.topic_name in (
                self._config.broker_cluster_name,
                self._config.broker_name,
            ):
                wanted = msgspec.structs.replace(
                    known,
                    perm=topic.perm,
                    read_queue_nums=topic.read_queue_nums,
                    write_queue_nums=topic.write_queue_nums,
                )
                if wanted != known:
                    changed.append(wanted)
        self.system_topics |= {topic.topic_name for topic in own}
        if changed:
            self._put(changed)

    def permission_changed(self) -> None:
        """Count a version, because brokerPermission limits all topics that are registered.

        The caller registers them. Source: AdminBrokerProcessor.updateBrokerConfig.
        """
        self.data_version = next_version(self.data_version, self._clock.wall_ms())
        self.file.changed()

    @property
    def unsaved(self) -> Set[str]:
        """The names of staged topics, which take effect once they are saved."""
        return self._staged.keys()

    def select(self, topic: str) -> TopicConfig | None:
        """A topic by name; None: it does not exist."""
        return self.topic_config_table.get(topic)

    def refuse_new(self, topic: str) -> str | None:
        """The remark that refuses a new topic at the limit; None: the limit is not reached."""
        return None if self._has_room else limit_remark(topic, self._config.topics_max)

    @property
    def _has_room(self) -> bool:
        """Whether one more topic may be created. A heartbeat may stage 10,000 topics one by one, so
        they are counted exactly only near the limit."""
        most = len(self.topic_config_table) + len(self._staged)
        return most < self._config.topics_max or self._count < self._config.topics_max

    @property
    def _count(self) -> int:
        """The number of topics, including staged ones."""
        table = self.topic_config_table
        return len(table) + len(self._staged.keys() - table.keys())

    def is_order_topic(self, topic: str) -> bool:
        """Whether a topic is marked as consumed in order."""
        config = self.topic_config_table.get(topic)
        return config is not None and config.order

    def is_system_topic(self, topic: str) -> bool:
        """Whether a topic is a system topic or one that this broker created at its start."""
        return names.is_system_topic(topic, self.system_topics)

    def create_topic_in_send_message(
        self,
        topic: str,
        default_topic: str,
        remote_address: str,
        queue_count: int,
        sys_flag: int = 0,
    ) -> TopicConfig | None:
        """Create the topic of a first send, after the pattern of `default_topic`.

        Args:
          topic: a name that `topic_validator.refuse_topic` let pass.
          default_topic: the pattern, TBW102 in practice; it must have PERM_INHERIT.
          remote_address: of the client, for the log.
          queue_count: requested by the client; limited to the pattern's count.
          sys_flag: topicSysFlag of the new topic.
        Returns: the topic, old or new; None: the pattern does not allow it, or there are
          topicsMax topics already.
        Raises:
          Postponed: the topic is being saved.
          RequestRefused: the client requests less than one queue; or SERVICE_NOT_AVAILABLE if the
            topic could not be saved; or SYSTEM_BUSY if too many topics were created lately.
        Source: TopicConfigManager.createTopicInSendMessageMethod.
        """
        known = self.topic_config_table.get(topic)
        if known is not None:
            return known
        # Another send creates it just now: this one waits for the same save.
        if topic in self._staged:
            return self._when_saved(topic)
        pattern = self.topic_config_table.get(default_topic)
        if default_topic == names.AUTO_CREATE_TOPIC and not self._config.auto_create_topic_enable:
            pattern = None
        if pattern is None or not pattern.perm & PERM_INHERIT:
            logger.warning(
                "topic %(topic)s is not created for %(peer)s: the default topic "
                "%(default_topic)s %(reason)s",
                {
                    "topic": topic,
                    "peer": remote_address,
                    "default_topic": default_topic,
                    "reason": "does not exist or is switched off"
                    if pattern is None
                    else f"has perm {pattern.perm}, without the bit for inheritance",
                },
            )
            return None
        count = queue_count_of_new_topic(topic, queue_count, pattern)
        created = TopicConfig(
            topic_name=topic,
            read_queue_nums=count,
            write_queue_nums=count,
            # Or any topic that clients create could be the pattern of others.
            perm=pattern.perm & ~PERM_INHERIT,
            topic_filter_type=pattern.topic_filter_type,
            topic_sys_flag=sys_flag,
        )
        return self._when_saved(topic) if self._create(created, remote_address) else None

    def create_topic_in_send_message_back(
        self,
        topic: str,
        *,
        queue_count: int,
        perm: int = PERM_READ | PERM_WRITE,
        order: bool = False,
        sys_flag: int = 0,
    ) -> TopicConfig | None:
        """The retry or dead-letter topic of a group, created if there is none; see `stage_topic`.

        Returns: the topic; None: there are topicsMax topics already.
        Raises:
          Postponed: the topic is being saved.
          RequestRefused: SERVICE_NOT_AVAILABLE if it could not be saved.
        Source: TopicConfigManager.createTopicInSendMessageBackMethod.
        """
        has_room = self.stage_topic(
            topic, queue_count=queue_count, perm=perm, order=order, sys_flag=sys_flag
        )
        return self._when_saved(topic) if has_room else None

    def stage_topic(
        self,
        topic: str,
        *,
        queue_count: int,
        perm: int = PERM_READ | PERM_WRITE,
        order: bool = False,
        sys_flag: int = 0,
    ) -> bool:
        """Begin to create the retry or dead-letter topic of a group.

        Of an existing topic only the order flag is changed.

        Args:
          topic: a name that `topic_validator.refuse_topic` allows.
          queue_count: read and write queues of a new topic; clamped to 1..QUEUE_COUNT_MAX.
          perm: PERM_ bits of a new topic.
          order: the topic's order flag.
          sys_flag: topicSysFlag of a new topic.
        Returns: False if there are topicsMax topics already, and it is not created.
        """
        known = self.topic_config_table.get(topic)
        if known is not None:
            if known.order != order:
                self._put([msgspec.structs.replace(known, order=order)])
            return True
        if topic in self._staged:
            return True
        count = retry_queue_count(queue_count)
        created = TopicConfig(
            topic_name=topic,
            read_queue_nums=count,
            write_queue_nums=count,
            perm=perm,
            order=order,
            topic_sys_flag=sys_flag,
        )
        return self._create(created, "")

    def _create(self, created: TopicConfig, remote_address: str) -> bool:
        if not self._has_room:
            self._new_topics.note_full(created.topic_name, remote_address, self._count)
            return False
        self._new_topics.take(created.topic_name, remote_address)
        logger.info(
            "create new topic for %(peer)s: %(settings)s",
            {"peer": remote_address or "the broker", "settings": created},
        )
        self._stage([created])
        return True

    def _when_saved(self, topic: str) -> TopicConfig:
        """An existing topic, or one that is staged.

        Raises:
          Postponed: it is being saved; the requests that wait for a topic are served in order.
          RequestRefused: SERVICE_NOT_AVAILABLE if the last save failed. RocketMQ's producers then
            send to another broker, and retry later (DefaultMQProducer.retryResponseCodes).
        """
        if topic not in self.topic_config_table:
            self.file.wait_for(f"topic[{topic}]", lambda: topic not in self._staged)
        return self.topic_config_table[topic]

    def update(
        self, topics: Iterable[TopicConfig], *, may_be_empty: bool = False
    ) -> list[TopicConfig]:
        """Create or change topics for an administrator; it takes effect once it is saved.

        Args:
          topics: the new settings, but `attributes` are changes (`+key`, `-key`), as requests
            carry them. The caller checks the names.
          may_be_empty: a topic may have no queue: a static one whose queues are on other brokers.
        Returns: the topics after the change.
        Raises: RequestRefused: an attribute, a count or a perm is not allowed, or there are
          topicsMax topics; none of the topics is changed then.
        Source: TopicConfigManager.updateTopicConfigList.
        """
        table = {**self.topic_config_table, **self._staged}
        changed: dict[str, TopicConfig] = {}
        for topic in topics:
            name = topic.topic_name
            refuse_numbers(topic, may_be_empty=may_be_empty)
            old = changed.get(name) or table.get(name)
            attributes = alter_attributes(
                {} if old is None else old.attributes,
                topic.attributes,
                is_new=old is None,
                allowed=TOPIC_ATTRIBUTES,
            )
            changed[name] = msgspec.structs.replace(topic, attributes=attributes)
        count_max = self._config.topics_max
        if len(table) + sum(name not in table for name in changed) > count_max:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"no more than {count_max} topics are allowed on a broker (topicsMax): "
                f"{max(count_max - len(table), 0)} more fit, and none of these was created",
            )
        different = [topic for name, topic in changed.items() if topic != table.get(name)]
        if different:
            logger.info("update topics: %(topics)s", {"topics": different})
            self._stage(different)
        return list(changed.values())

    def update_order_topics(self, order_topics: Iterable[str]) -> list[TopicConfig]:
        """Mark topics as ordered that a name server's answer to the registration names.

        Args:
          order_topics: names of topics; unknown ones are ignored. Topics that are not among them
            keep their flag.
        Returns: the topics that changed.
        Source: TopicConfigManager.updateOrderTopicConfig.
        """
        changed = []
        for name in order_topics:
            topic = self.topic_config_table.get(name)
            if topic is not None and not topic.order:
                changed.append(msgspec.structs.replace(topic, order=True))
        if changed:
            logger.info(
                "ordered topics of the name server: %(topics)s",
                {"topics": [t.topic_name for t in changed]},
            )
            self._put(changed)
        return changed

    def mapping_changed(self, topics: Iterable[str]) -> None:
        """Give the table a new version for name servers, and topics new objects for pull checks."""
        table = self.topic_config_table
        self._put([msgspec.structs.replace(table[name]) for name in topics if name in table])

    def delete(self, topics: Iterable[str]) -> list[str]:
        """Delete topics.

        Returns: the names of those that existed.
        """
        table, staged = self.topic_config_table, self._staged
        gone = [name for name in topics if name in table or name in staged]
        if gone:
            logger.info("delete topics: %(topics)s", {"topics": gone})
            for name in gone:
                table.pop(name, None)
                staged.pop(name, None)
            self._changed([])
        return gone

    def _stage(self, topics: Iterable[TopicConfig]) -> None:
        """Stage topics, which take effect once they are saved."""
        for topic in topics:
            self._staged[topic.topic_name] = topic
        self.file.changed_by_client()

    def _text_to_save(self) -> Steps[bytes]:
        self._saving = dict(self._staged)
        return self._encode_in_steps()

    def _on_saved(self, error: StoreIOError | None) -> None:
        saving, self._saving = self._saving, {}
        if error is not None:
            return
        staged = self._staged
        saved = {name: topic for name, topic in saving.items() if staged.get(name) is topic}
        if not saved:
            return
        count = len(self.topic_config_table)
        self.topic_config_table.update(saved)
        for name in saved:
            del staged[name]
        warn_near_limit(count, len(self.topic_config_table), self._config.topics_max)
        self.data_version = next_version(self.data_version, self._clock.wall_ms())
        self.on_change(list(saved.values()))

    def _put(self, topics: Iterable[TopicConfig]) -> None:
        """Change topics at once, without waiting for the save.

        For topics that can be recovered from the store, and changes that may be lost.
        """
        changed = list(topics)
        for topic in changed:
            name = topic.topic_name
            self.topic_config_table[name] = topic
            if name in self._staged:
                self._staged[name] = msgspec.structs.replace(self._staged[name], order=topic.order)
        self._changed(changed)

    def _changed(self, topics: list[TopicConfig]) -> None:
        self.data_version = next_version(self.data_version, self._clock.wall_ms())
        self.on_change(topics)
        self.file.changed()

    def encode(self) -> bytes:
        """The text of `topics.json`, with what is staged."""
        return at_once(self._encode_in_steps())

    def _encode_in_steps(self) -> Steps[bytes]:
        """Steps that encode `topics.json`; the content is that of this call."""
        version = self.data_version
        if self._staged:
            version = next_version(version, self._clock.wall_ms())
        return self._text_of(version, {**self.topic_config_table, **self._staged})

    def _text_of(self, version: DataVersion, topics: Mapping[str, TopicConfig]) -> Steps[bytes]:
        table = yield from self._texts.write(topics)
        return pretty({"dataVersion": written(version, depth=1), "topicConfigTable": table})

    def decode(self, text: bytes) -> int:
        """Replace the table by `topics.json`; missing system topics are kept.

        A topic whose name is not allowed is left out and logged, because its name would become a
        path. One that is only longer than allowed for new topics is kept, because the store may
        have messages of it.

        Args:
          text: the file's text, as any version of RocketMQ wrote it.
        Returns: the number of topics in the file.
        Raises: ValueError: the text is not a table of topics; nothing is changed then.
        """
        try:
            wrapper = msgspec.convert(parse(text), TopicConfigSerializeWrapper)
        except msgspec.ValidationError as error:
            raise ValueError(f"not a table of topics: {error}") from error
        table, version = wrapper.topic_config_table, wrapper.data_version
        is_corrected = correct_topics(TOPICS, table)
        wrapper.data_version = correct_version(TOPICS, version, self.data_version)
        self._wrong_counts = {name for name in table if not has_usable_counts(table[name])}
        self._replace(wrapper, partial(readable_topic, table=TOPICS))
        self._wrong_counts &= self.topic_config_table.keys()
        self.is_corrected = bool(
            is_corrected or self._wrong_counts or wrapper.data_version is not version
        )
        return len(wrapper.topic_config_table)

    def cover_queues(self, stored: Mapping[str, list[int]]) -> None:
        """Give topics with impossible queue counts as many queues as the store has of them.

        Args:
          stored: the ids of the queues in the store, by topic.
        """
        for name in sorted(self._wrong_counts & self.topic_config_table.keys()):
            stored_count = max(stored.get(name, ()), default=-1) + 1
            self.topic_config_table[name] = bounded_topic(
                self.topic_config_table[name],
                stored_count,
                self._config.default_topic_queue_nums,
                TOPICS,
            )
        self._wrong_counts.clear()

    def restore(self, topics: Iterable[TopicConfig]) -> None:
        """Add missing topics at the broker's start, and schedule a save."""
        restored = [topic for topic in topics if topic.topic_name not in self.topic_config_table]
        if restored:
            self._put(restored)

    def take_over(self, master: TopicConfigSerializeWrapper) -> bool:
        """On a slave: replace the table by its master's, as `decode` does, and schedule a save.

        Args:
          master: all topics of the master.
        Returns: whether they differed.
        Source: SlaveSynchronize.syncTopicConfig.
        """
        if master.data_version == self.data_version:
            return False
        before = dict(self.topic_config_table)
        self._replace(master, mended_topic)
        changed = [t for name, t in self.topic_config_table.items() if t != before.get(name)]
        logger.info(
            "topics copied from the master: %(topics)s",
            {"topics": [topic.topic_name for topic in changed]},
        )
        self.on_change(changed)
        self.file.changed()
        return True

    def _replace(
        self, wrapper: TopicConfigSerializeWrapper, mended: Callable[[TopicConfig], TopicConfig]
    ) -> None:
        own = dict(self.topic_config_table)
        table = self.topic_config_table
        table.clear()  # the file's order first, so that saving it again does not reorder it
        for name, topic in wrapper.topic_config_table.items():
            reason = refuse_topic(name, length_max=RETRY_OR_DLQ_TOPIC_LENGTH_MAX)
            if reason is None or name in self.system_topics:
                topic.topic_name = name
                table[name] = mended(topic)
            else:
                logger.error(
                    "topic %(topic)r is not loaded: %(reason)s", {"topic": name, "reason": reason}
                )
        for name in sorted(self.system_topics & own.keys()):
            table.setdefault(name, own[name])
        self.data_version = wrapper.data_version


_FOLLOW_KEYS: Final = frozenset({names.AUTO_CREATE_TOPIC})
"""System topics whose queues follow a key."""


def _system_topics(config: BrokerConfig) -> list[TopicConfig]:
    """The topics that every broker has from its start.

    Source: TopicConfigManager.init; which of them matter to clients and tools was observed.
    """
    read_write = PERM_READ | PERM_WRITE
    cluster_perm = PERM_ALL if config.cluster_topic_enable else PERM_INHERIT
    broker_perm = PERM_ALL if config.broker_topic_enable else PERM_INHERIT
    topics = [
        (names.SELF_TEST_TOPIC, 1, read_write),
        (names.BENCHMARK_TOPIC, BENCHMARK_QUEUE_COUNT, read_write),
        (config.broker_cluster_name, CLUSTER_QUEUE_COUNT, cluster_perm),
        (config.broker_name, 1, broker_perm),
        (names.OFFSET_MOVED_EVENT_TOPIC, 1, read_write),
        (names.SCHEDULE_TOPIC, SCHEDULE_QUEUE_COUNT, read_write),
        (f"{config.broker_cluster_name}_REPLY_TOPIC", 1, read_write),
        (names.TRANS_HALF_TOPIC, 1, read_write),
        (names.TRANS_OP_HALF_TOPIC, 1, read_write),
        (names.TRANS_CHECK_MAX_TIME_TOPIC, 1, read_write),
        (names.TIMER_TOPIC, 1, read_write),
        (names.revive_topic(config.broker_cluster_name), config.revive_queue_num, read_write),
    ]
    if config.auto_create_topic_enable:
        topics.append((names.AUTO_CREATE_TOPIC, config.default_topic_queue_nums, PERM_ALL))
    if config.trace_topic_enable:
        topics.append((config.msg_trace_topic_name, 1, read_write))
    return [
        TopicConfig(topic_name=name, read_queue_nums=count, write_queue_nums=count, perm=perm)
        for name, count, perm in topics
    ]
