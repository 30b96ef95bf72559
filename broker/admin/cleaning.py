"""Cleaning: CLEAN_EXPIRED_CONSUMEQUEUE (306), CLEAN_UNUSED_TOPIC (316), DELETE_EXPIRED_COMMITLOG
(329).

306 and 329 are answered at once; the retention service does the work, in the order in which it
always does, so consumers that read meanwhile are not disturbed.

Java counterpart: cleanExpiredConsumeQueue, cleanUnusedTopic and deleteExpiredCommitLog of
AdminBrokerProcessor.java of 5.5.0. Pure.
"""

from __future__ import annotations

import logging

from ...disk.errors import StoreIOError
from ...remoting.channel import Answer, Channel, Processor
from ...remoting.codec import RemotingCommand
from ...remoting.errors import RequestRefused
from ...remoting.request_codes import RequestCode
from ...remoting.response_codes import ResponseCode
from ...store.message_store import MessageStore
from ..tables.topic_config_manager import TopicConfigManager

logger = logging.getLogger(__name__)


class CleaningProcessor:
    """Deletes what has expired, and queues of topics that were deleted."""

    def __init__(self, store: MessageStore, topics: TopicConfigManager) -> None:
        self._store = store
        self._topics = topics
        self.processors: dict[RequestCode, Processor] = {
            RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: self._clean_queues,
            RequestCode.CLEAN_UNUSED_TOPIC: self._clean_topics,
            RequestCode.DELETE_EXPIRED_COMMITLOG: self._delete_log_files,
        }

    def _clean_queues(self, request: RemotingCommand, channel: Channel) -> Answer:
        logger.info("%(peer)s starts a retention pass", {"peer": channel.remote_address})
        self._store.activity.cleaning.begin_pass()
        return request.answer()

    def _delete_log_files(self, request: RemotingCommand, channel: Channel) -> Answer:
        logger.info("%(peer)s deletes expired log files", {"peer": channel.remote_address})
        self._store.activity.cleaning.delete_log_files()
        return request.answer()

    def _clean_topics(self, request: RemotingCommand, channel: Channel) -> Answer:
        """Delete the queues of topics that are not in the broker's table."""
        # A slave refuses: its table may be behind its master's.
        if self._store.is_slave:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR, "a slave deletes the topics that its master deletes"
            )
        known = self._topics.topic_config_table
        names = sorted(
            name
            for name in self._store.topics()
            if name not in known and not self._topics.is_system_topic(name)
        )
        if names:
            logger.info(
                "%(peer)s deletes the queues of unused topics: %(topics)s",
                {"peer": channel.remote_address, "topics": names},
            )
            try:
                self._store.delete_topics(names)
            except StoreIOError as error:
                raise RequestRefused(
                    ResponseCode.SYSTEM_ERROR, f"not all queues were deleted: {error}; try again"
                ) from error
        return request.answer()
