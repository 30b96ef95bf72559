"""Offsets of queues: GET_MAX_OFFSET (30), GET_MIN_OFFSET (31), SEARCH_OFFSET_BY_TIMESTAMP (29),
GET_EARLIEST_MSG_STORETIME (32).

A missing queue counts as empty, as with RocketMQ: 0, 0, 0 and -1. RocketMQ creates its folder for
any topic name; here nothing is created. The minimum of an empty queue of batches is -1.

Java counterpart: AdminBrokerProcessor.getMaxOffset, getMinOffset, searchOffsetByTimestamp,
getEarliestMsgStoretime of 5.3.3. Pure.
Not done: lite topics. `static_topic.py` has static topics.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Protocol

from ...remoting.channel import Answer, Channel, Processor
from ...remoting.codec import RemotingCommand
from ...remoting.headers import (
    GetEarliestMsgStoretimeRequestHeader,
    GetMaxOffsetRequestHeader,
    GetMinOffsetRequestHeader,
    SearchOffsetRequestHeader,
    decode,
)
from ...remoting.request_codes import RequestCode
from ...store.status import BoundaryType


class QueueOffsets(Protocol):
    """The part of the store that is used here; `store.message_store.MessageStore` implements it."""

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Next queue offset; 0 when there is no such queue."""

    def min_offset(self, topic: str, queue_id: int) -> int:
        """First queue offset still there; -1 when there is no such queue."""

    def offset_by_time(
        self, topic: str, queue_id: int, timestamp_ms: int, boundary: BoundaryType = ...
    ) -> int:
        """Queue offset by store timestamp; 0 when there is no such queue."""

    def earliest_store_time(self, topic: str, queue_id: int) -> int:
        """Store timestamp (ms) of the queue's first message; -1 if none."""


class QueueOffsetProcessor:
    """Serves queries of offsets from the store.

    Args:
      batch_topics: the names of the topics with queues of batches.
    """

    def __init__(self, store: QueueOffsets, batch_topics: Container[str]) -> None:
        self._store = store
        self._batch_topics = batch_topics
        self.processors: dict[RequestCode, Processor] = {
            RequestCode.GET_MAX_OFFSET: self._max_offset,
            RequestCode.GET_MIN_OFFSET: self._min_offset,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self._search,
            RequestCode.GET_EARLIEST_MSG_STORETIME: self._earliest,
        }

    def _max_offset(self, request: RemotingCommand, channel: Channel) -> Answer:
        header = decode(GetMaxOffsetRequestHeader, request.ext_fields)
        offset = self._store.max_offset(header.topic, header.queue_id)
        return request.answer(ext_fields={"offset": str(offset)})

    def _min_offset(self, request: RemotingCommand, channel: Channel) -> Answer:
        header = decode(GetMinOffsetRequestHeader, request.ext_fields)
        topic, queue_id = header.topic, header.queue_id
        offset = max(0, self._store.min_offset(topic, queue_id))
        if topic in self._batch_topics and self._store.max_offset(topic, queue_id) == 0:
            offset = -1  # as BatchConsumeQueue.minOffsetInQueue begins
        # RocketMQ's remark is empty, too, because of its RpcResponse.
        return request.answer(remark="", ext_fields={"offset": str(offset)})

    def _search(self, request: RemotingCommand, channel: Channel) -> Answer:
        header = decode(SearchOffsetRequestHeader, request.ext_fields)
        upper = (header.boundary_type or "").upper() == "UPPER"
        offset = self._store.offset_by_time(
            header.topic,
            header.queue_id,
            header.timestamp,
            BoundaryType.UPPER if upper else BoundaryType.LOWER,
        )
        return request.answer(ext_fields={"offset": str(offset)})

    def _earliest(self, request: RemotingCommand, channel: Channel) -> Answer:
        header = decode(GetEarliestMsgStoretimeRequestHeader, request.ext_fields)
        timestamp = self._store.earliest_store_time(header.topic, header.queue_id)
        return request.answer(ext_fields={"timestamp": str(timestamp)})
