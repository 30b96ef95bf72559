"""Tables: the broker's topics, groups and offsets, and where they are saved."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from ...common.notifier import Notifier
from ...common.supervision import FailureLog
from ...remoting.bodies import TopicConfig
from ...store.message_store import MessageStore
from ..part import AtCut, Foundation, LogFirst, Part, SavedFile
from ..settings.attributes import BATCH_CQ, QUEUE_TYPE
from .consumer_offset_manager import ConsumerOffsetManager
from .delay_offset_manager import DelayOffsetManager
from .request_modes import MessageRequestModeManager
from .subscription_group_manager import SubscriptionGroupManager
from .table_loading import TableLoader, unmark_deleted
from .topic_config_manager import TopicConfigManager
from .topic_queue_mapping_manager import TopicQueueMappingManager

_failures = FailureLog(logging.getLogger(__name__))


class Tables(Part):
    """The tables that the broker saves under `config/`.

    Attributes:
      topics, mappings, groups, offsets, delay_offsets, request_modes: the tables.
      changed_topics: notified of the settings of topics that changed.
    """

    def __init__(self, foundation: Foundation) -> None:
        config, store, clock = foundation.config, foundation.store, foundation.seams.clock
        refusals = foundation.refusals
        self._store = store
        files = foundation.files
        later = files.later if files.may_put_off else None
        self.topics = TopicConfigManager(
            config, clock=clock, save=files.save, save_later=later, refusals=refusals
        )
        self.groups = SubscriptionGroupManager(
            config, clock=clock, save=files.save, save_later=later, refusals=refusals
        )
        self.mappings = TopicQueueMappingManager(
            config.broker_name, clock=clock, save=files.save, save_later=later
        )
        self.mappings.changes.subscribe(self.topics.mapping_changed)
        self.changed_topics = Notifier[Sequence[TopicConfig]](
            _failures, "notifying of changed topics", "Name servers learn of them late"
        )
        self.changed_topics.subscribe(
            lambda topics: note_batch_topics(store, topics),
            lambda topics: unmark_deleted(store, topics),
        )
        self.topics.on_change = self.changed_topics.notify
        self.offsets = ConsumerOffsetManager(clock=clock, save=files.save)
        self.delay_offsets = DelayOffsetManager(
            clock=clock, version_step=config.delay_offset_update_version_step, save=files.save
        )
        self.request_modes = MessageRequestModeManager(save=files.save, save_later=later)
        is_alone = foundation.seams.member is None
        self._loader = TableLoader(
            files,
            topics=self.topics,
            mappings=self.mappings,
            groups=self.groups,
            offsets=self.offsets,
            delay_offsets=self.delay_offsets,
            request_modes=self.request_modes,
            queues_min=lambda: 1 if is_alone else config.default_topic_queue_nums,
        )
        self.saved = (
            SavedFile(
                file=self.delay_offsets.file,
                at_cut=AtCut.ENDS,
                interval_s=lambda: store.config.flush_delay_offset_interval / 1000,
                log_first=LogFirst.REQUIRED,
            ),
            SavedFile(
                file=self.offsets.file,
                at_cut=AtCut.ENDS,
                interval_s=lambda: config.flush_consumer_offset_interval / 1000,
                log_first=LogFirst.TRIED,
            ),
            SavedFile(file=self.request_modes.file, at_cut=AtCut.KEPT),
            SavedFile(file=self.mappings.file, at_cut=AtCut.KEPT),
            SavedFile(file=self.topics.file, at_cut=AtCut.RESTORED, at_end=True),
            SavedFile(file=self.groups.file, at_cut=AtCut.KEPT, at_end=True),
        )
        foundation.live.subscribe(self.topics.permission_changed, "brokerPermission")
        if not store.is_slave:  # a slave's topics are its master's
            foundation.live.subscribe(
                self.topics.settings_changed,
                "autoCreateTopicEnable",
                "brokerTopicEnable",
                "clusterTopicEnable",
                "defaultTopicQueueNums",
                "traceTopicEnable",
            )

    def load_tables(self) -> None:
        """See `Part`; the store needs to know the topics with queues of batches."""
        self._loader.load()
        note_batch_topics(self._store, self.topics.topic_config_table.values())

    def load(self, *, was_killed: bool) -> None:
        """See `Part`."""
        self._loader.repair(self._store)

    def topic_deleted(self, topic: str) -> None:
        """See `Part`."""
        self.request_modes.topic_deleted(topic)

    def group_deleted(self, group: str) -> None:
        """See `Part`."""
        self.request_modes.group_deleted(group)


def note_batch_topics(store: MessageStore, topics: Iterable[TopicConfig]) -> None:
    """Register with a store those of these topics that have queues of batches."""
    for topic in topics:
        if topic.attributes.get(QUEUE_TYPE) == BATCH_CQ:
            store.queue_store.batch_topics.add(topic.topic_name)
