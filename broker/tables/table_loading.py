"""TableLoader: loads the broker's tables at its start, and recreates entries that the log implies.

A missing or empty file is not a format error, so it would be loaded silently, and messages of
unknown topics could not be read. Topics that have messages in the store but are in no table are
recreated here; for the other tables a warning says what their loss means.

Java counterpart: the load calls of BrokerController.initializeMetadata of 5.3.3, without the
recreation.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from ...common.topic_names import RETRY_TOPIC_PREFIX, SCHEDULE_TOPIC
from ...common.topic_validator import RETRY_OR_DLQ_TOPIC_LENGTH_MAX, refuse_topic
from ...disk.errors import CorruptRecordError, StoreError, StoreIOError
from ...disk.start_warnings import LEFTOVER
from ...disk.state_file import StateFile
from ...disk.state_files import StateFiles
from ...remoting.bodies import TopicConfig
from ...remoting.number_fields import QUEUE_COUNT_MAX
from ...store.message_store import MessageStore
from ...store.queues.unknown_topics import UnknownTopic, unknown_topics
from ..settings.attributes import BATCH_CQ, QUEUE_TYPE, unserved_attributes
from .config_text import (
    CONSUMER_OFFSETS,
    DELAY_OFFSETS,
    QUEUE_MAPPINGS,
    REQUEST_MODES,
    SUBSCRIPTION_GROUPS,
    TOPICS,
)
from .consumer_offset_manager import ConsumerOffsetManager
from .delay_offset_manager import DelayOffsetManager
from .request_modes import MessageRequestModeManager
from .salvage import salvage
from .subscription_group_manager import SYSTEM_GROUPS, SubscriptionGroupManager
from .topic_config_manager import TopicConfigManager
from .topic_queue_mapping_manager import TopicQueueMappingManager

logger = logging.getLogger(__name__)

LINES_MAX: Final = 200
"""Topics that get a log line each; the rest is counted."""

GROUPS_SHOWN_MAX: Final = 20

TABLES_COUNT: Final = 4
"""The tables that a broker's store has."""

MISSING: Final = "is missing"


class TableLoader:
    """Loads the tables of one broker.

    Args:
      files: the tables' files.
      topics, mappings, groups, offsets, delay_offsets, request_modes: the tables.
      queues_min: returns how many queues a topic gets, at least, that is created again. Clients of
        a set of brokers have the route of the lost master, and send to each of its queues.
    """

    def __init__(
        self,
        files: StateFiles,
        *,
        topics: TopicConfigManager,
        mappings: TopicQueueMappingManager,
        groups: SubscriptionGroupManager,
        offsets: ConsumerOffsetManager,
        delay_offsets: DelayOffsetManager,
        request_modes: MessageRequestModeManager,
        queues_min: Callable[[], int] = lambda: 1,
    ) -> None:
        self._files = files
        self._topics = topics
        self._mappings = mappings
        self._groups = groups
        self._offsets = offsets
        self._delay_offsets = delay_offsets
        self._request_modes = request_modes
        self._queues_min = queues_min
        self._lost: dict[str, str] = {}  # why a table is empty, by its file
        self._extra: Mapping[str, object] = {}
        self._mended: set[str] = set()  # files to be written again, without what was damaged

    def load(self) -> None:
        """Load all of them.

        Raises:
          CorruptRecordError: neither a file nor its `.bak` can be used.
          StoreIOError: a file could not be read.
        """
        for name, decode, is_never_empty, members in (
            (TOPICS, self._topics.decode, True, ("topicConfigTable",)),
            (SUBSCRIPTION_GROUPS, self._groups.decode, True, ("subscriptionGroupTable",)),
            (CONSUMER_OFFSETS, self._offsets.decode, False, ("offsetTable", "pullOffsetTable")),
            (DELAY_OFFSETS, self._delay_offsets.decode, False, ("offsetTable",)),
        ):
            try:
                count = self._files.load(name, decode)
            except CorruptRecordError as error:
                self._salvage(name, decode, members, error)
                continue
            if count == 0 and is_never_empty:
                # A broker's file always has its system topics and groups, so this one is damaged.
                count = self._load_spare(name, decode)
            if not count and (count is None or is_never_empty or not self._files.is_sealed(name)):
                self._lost[name] = MISSING if count is None else "has no entry"
        # Few brokers have these.
        self._files.load(QUEUE_MAPPINGS, self._mappings.decode)
        self._files.load(REQUEST_MODES, self._request_modes.decode)

    def _salvage(
        self,
        name: str,
        decode: Callable[[bytes], int],
        members: tuple[str, ...],
        error: CorruptRecordError,
    ) -> None:
        """Take what is whole in a damaged table; topics without a table come from the queues.

        Raises:
          CorruptRecordError: as given: nothing is whole, and it cannot be made again.
        """
        count = self._files.salvage(name, lambda text: salvage(name, text, members, decode))
        if count is None and name != TOPICS:
            raise error
        self._mended.add(name)
        if count is None:
            self._lost[name] = "cannot be used, nor can its .bak"
            return
        logger.error(
            "%(file)s is damaged, and so is its .bak: its %(count)d whole entries are used. It is "
            "written again, and kept as %(file)s.damaged",
            {"file": name, "count": count},
        )

    def _load_spare(self, name: str, decode: Callable[[bytes], int]) -> int:
        try:
            count = self._files.load_spare(name, decode)
        except CorruptRecordError:
            count = None
        if count:
            logger.error(
                "%(file)s has no entry; its .bak, which is older, is used instead", {"file": name}
            )
        return count or 0

    def repair(self, store: MessageStore) -> None:
        """Compare the tables with a loaded store, and recreate what they lack.

        A slave copies its master's tables soon, so there nothing is recreated or reported. Numbers
        that contradict the store are corrected in any case.

        Raises:
          StoreIOError: the store could not be read.
        """
        self._files.keep_damaged()
        if not store.is_slave:
            self._extra = LEFTOVER if self._had_no_broker(store) else {}
            self._restore_topics(store)
            if store.max_physical_offset > 0:
                self._report_lost(store)
        if not store.read_only:
            try:
                store.deleted_topics.begin(store.max_physical_offset)
            except StoreIOError as error:
                logger.error(
                    "deletions of topics cannot be recorded, so a deleted topic may come back "
                    "at a restart: %(error)s",
                    {"error": error},
                )
            unmark_deleted(store, self._topics.topic_config_table.values())
        _correct_tables(self._files, store, self._topics, self._groups, self._offsets)
        if not store.is_slave and not store.read_only:
            if store.max_physical_offset > 0:
                self._save_again()
            elif CONSUMER_OFFSETS in self._lost:
                # Saved soon, although it is empty: once a group has consumers, a missing file means
                # that offsets were lost.
                self._offsets.file.is_dirty = True
        _report_unserved(self._topics.topic_config_table.values())

    def _had_no_broker(self, store: MessageStore) -> bool:
        """Whether no broker has used this store, only a program with the store's own classes."""
        all_missing = list(self._lost.values()) == [MISSING] * TABLES_COUNT
        return all_missing and store.deleted_topics.known_from is None and store.opened.is_ours

    def _save_again(self) -> None:
        """Save the tables that were lost or damaged, so that the next start finds them whole."""
        tables = (self._topics, self._groups, self._offsets, self._delay_offsets)
        for table in tables:
            name = table.file.name
            if name in self._mended or name in self._lost:
                _persist(table.file)
            if name in self._mended:
                _persist(table.file)  # once more, because the .bak is damaged as well

    def _restore_topics(self, store: MessageStore) -> None:
        deleted, known = store.deleted_topics, self._topics.topic_config_table
        found = [
            unknown
            for unknown in unknown_topics(store.queue_store.queues.values(), known, deleted.names)
            if not self._topics.is_system_topic(unknown.topic)
        ]
        # Earlier deletions were not recorded, so older messages may be of a deleted topic.
        is_damaged = TOPICS in self._lost or TOPICS in self._mended
        known_from = 0 if is_damaged else deleted.known_from
        if known_from is None:
            known_from = store.max_physical_offset
        restored = []
        for number, unknown in enumerate(found):
            if number == LINES_MAX:
                logger.warning("and %(more)d more topics like these", {"more": len(found) - number})
            problem = _problem(unknown)
            if not problem and 0 < unknown.physical_end <= known_from:
                problem = "it may have been deleted before this program recorded deletions"
            queue_count = max(unknown.queue_count, self._queues_min())
            if not problem:
                restored.append(_topic_of(unknown, queue_count))
            if number >= LINES_MAX:
                continue
            if problem:
                logger.warning(
                    "topic %(topic)r is in no table, but the store has %(queue)s: it is not "
                    "recreated, because %(problem)s; its messages cannot be read until an "
                    "administrator creates it (`mqadmin updateTopic`, `trocket store repair`)",
                    {"topic": unknown.topic, "queue": unknown, "problem": problem},
                )
            else:
                logger.warning(
                    "topic %(topic)r is in no table, but the store has %(queue)s: it is "
                    "recreated with readQueueNums and writeQueueNums %(queue_count)d, from its "
                    "queues in the store, and perm 6 (read and write); if it had other settings "
                    "or more queues, set them (`mqadmin updateTopic`); if it is not wanted, "
                    "delete it (`mqadmin deleteTopic`)",
                    {"topic": unknown.topic, "queue": unknown, "queue_count": queue_count},
                    extra=self._extra,
                )
        self._topics.restore(restored)

    def _report_lost(self, store: MessageStore) -> None:
        for name, means in (
            (TOPICS, self._topics_lost),
            (SUBSCRIPTION_GROUPS, self._groups_lost),
            (CONSUMER_OFFSETS, self._offsets_lost),
            (DELAY_OFFSETS, lambda: _delays_lost(store)),
        ):
            text = means() if name in self._lost else ""
            if text:
                logger.warning(
                    "config/%(file)s %(lost)s, but the log has %(log_size)d bytes: %(text)s. If "
                    "there was such a file, stop the broker and restore it from a backup or a "
                    "replica before you continue",
                    {
                        "file": name,
                        "lost": self._lost[name],
                        "log_size": store.max_physical_offset - store.log.min_offset,
                        "text": text,
                    },
                    extra=self._extra,
                )

    def _topics_lost(self) -> str:
        return (
            "the topics are recreated from the consume queues, with the queues that have "
            "messages and with default settings; topics without messages are lost"
        )

    def _groups_lost(self) -> str:
        groups = {key.partition("@")[2] for key in self._offsets.offset_table} | {
            topic.removeprefix(RETRY_TOPIC_PREFIX)
            for topic in self._topics.topic_config_table
            if topic.startswith(RETRY_TOPIC_PREFIX)
        }
        groups -= {*SYSTEM_GROUPS, ""}
        is_first = self._lost[SUBSCRIPTION_GROUPS] == MISSING and TOPICS not in self._lost
        if is_first and not groups:
            return ""  # no group has consumed yet
        shown = ", ".join(sorted(groups)[:GROUPS_SHOWN_MAX]) or "none"
        return (
            "groups are recreated at their first heartbeat if autoCreateSubscriptionGroup "
            "allows that, with default settings (retries, retry queues, permissions). Groups in "
            f"the offsets and retry topics: {shown}"
        )

    def _offsets_lost(self) -> str:
        groups = self._groups.subscription_group_table.keys() - set(SYSTEM_GROUPS)
        if not groups and TOPICS not in self._lost and SUBSCRIPTION_GROUPS not in self._lost:
            return ""  # no group has consumed yet
        return (
            "each consumer group begins where its consumers' consumeFromWhere says: at the newest "
            "message, so that it skips all earlier ones, or at the oldest, so that it gets them "
            "again. `mqadmin resetOffsetByTime` sets a group to a time. If no group has consumed "
            "yet, nothing is lost"
        )


def _delays_lost(store: MessageStore) -> str:
    queues: Iterable[tuple[str, int]] = store.queue_store.queues
    if not any(topic == SCHEDULE_TOPIC for topic, _ in queues):
        return ""
    return (
        "delayed messages that are still in the log are delivered again, from the oldest on; their "
        "consumers get them twice. Progress is recorded from then on"
    )


def _report_unserved(topics: Iterable[TopicConfig]) -> None:
    """Warn of topics, made by another broker, whose attributes this one does not serve."""
    found = [
        (topic.topic_name, text)
        for topic in topics
        for text in unserved_attributes(topic.attributes)
    ]
    for name, text in found[:LINES_MAX]:
        logger.warning(
            "topic %(topic)r has the attribute %(attribute)s, which this broker does not serve: "
            "the topic is served without it, as one without this attribute (a compacted topic "
            "is not compacted, and its old messages are deleted like those of others). If you "
            "need it, move the topic back to RocketMQ's broker",
            {"topic": name, "attribute": text},
        )
    if len(found) > LINES_MAX:
        logger.warning("and %(more)d more topics like these", {"more": len(found) - LINES_MAX})


def _problem(unknown: UnknownTopic) -> str:
    """The reason why a topic cannot be recreated; "": it can."""
    if unknown.queue_count > QUEUE_COUNT_MAX:
        return f"it would have {unknown.queue_count} queues, more than {QUEUE_COUNT_MAX}"
    reason = refuse_topic(unknown.topic, length_max=RETRY_OR_DLQ_TOPIC_LENGTH_MAX)
    return f"its name is not allowed: {reason}" if reason else ""


def _topic_of(unknown: UnknownTopic, queue_count: int) -> TopicConfig:
    return TopicConfig(
        topic_name=unknown.topic,
        read_queue_nums=queue_count,
        write_queue_nums=queue_count,
        attributes={QUEUE_TYPE: BATCH_CQ} if unknown.is_batch else {},
    )


def unmark_deleted(store: MessageStore, topics: Iterable[TopicConfig]) -> None:
    """Remove existing topics from the store's list of deleted topics."""
    if not store.read_only:
        try:
            store.deleted_topics.remove(topic.topic_name for topic in topics)
        except StoreError as error:
            logger.error(
                "a recreated topic still counts as deleted, so a lost topics.json would lose "
                "it: %(error)s",
                {"error": error},
            )


def _correct_tables(
    files: StateFiles,
    store: MessageStore,
    topics: TopicConfigManager,
    groups: SubscriptionGroupManager,
    offsets: ConsumerOffsetManager,
) -> None:
    """Correct the tables by the store, and save the corrected ones.

    To be called once the store is open: before that another process may hold the data folder.
    """
    if not store.read_only:  # after a hole in the log, queues may end too early
        offsets.correct(store.queue_store.end_of)
    topics.cover_queues(store.topics())
    files.replace_damaged()
    for table in (topics, groups, offsets):
        if table.is_corrected:
            _persist(table.file)


def _persist(file: StateFile) -> None:
    try:
        file.persist()
    except StoreError as error:
        logger.error(
            "the corrected %(file)s could not be saved: %(error)s",
            {"file": file.name, "error": error},
        )
