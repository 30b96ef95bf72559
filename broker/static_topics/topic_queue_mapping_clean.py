"""TopicQueueMappingCleanService: removes what mappings of static topics no longer need.

In an hour of deleteWhen, when log files are deleted:

- the oldest item of a logic queue that this broker leads, if its physical queue has no message any
  more, here or at its broker;
- a logic queue that was moved away, once its leader has moved it again: no client asks this broker
  then.

Without it, requests for old offsets would be sent to brokers for ever that have nothing.

Java counterpart: broker/topic/TopicQueueMappingCleanService.java of 5.5.0, which asks for the
statistics of the whole topic.
"""

from __future__ import annotations

import logging
from typing import Final

import msgspec

from ...remoting.bodies import (
    LogicQueueMappingItem,
    TopicConfigAndQueueMapping,
    TopicQueueMappingDetail,
)
from ...remoting.codec import RemotingCommand
from ...remoting.errors import RemotingError, RequestRefused
from ...remoting.headers import (
    GetMaxOffsetRequestHeader,
    GetMinOffsetRequestHeader,
    GetTopicConfigRequestHeader,
    Header,
    OffsetResponseHeader,
    decode,
    encode_header,
)
from ...remoting.request_codes import RequestCode
from ...remoting.response_codes import ResponseCode
from ...store.message_store import MessageStore
from ...store.retention.retention_rules import is_due
from ..tables.topic_queue_mapping_manager import TopicQueueMappingManager
from .peer_brokers import PeerBrokers

logger = logging.getLogger(__name__)

CLEAN_INTERVAL_S: Final = 5 * 60
"""Between two looks at the clock. Source: TopicQueueMappingCleanService.run."""


class TopicQueueMappingCleanService:
    """Cleans the mappings of one broker, which is a master.

    Args:
      store: its messages.
    """

    def __init__(
        self,
        mappings: TopicQueueMappingManager,
        store: MessageStore,
        peers: PeerBrokers,
    ) -> None:
        self._mappings = mappings
        self._store = store
        self._peers = peers

    async def clean_when_due(self) -> None:
        """Clean in an hour of deleteWhen."""
        clock = self._store.clock
        hour = int(clock.local_time_name(clock.wall_ms())[8:10])
        if is_due(hour, self._store.config):
            await self.clean()

    async def clean(self) -> None:
        """Clean all mappings; other brokers that cannot be asked leave theirs as they are."""
        for topic in list(self._mappings.topic_queue_mapping_table):
            detail = self._mappings.topic_queue_mapping_table.get(topic)
            if detail is None:
                continue
            kept = {}
            for queue_id, items in detail.hosted_queues.items():
                left = await self._cleaned(detail, queue_id, items)
                if left:
                    kept[queue_id] = left
            if kept == detail.hosted_queues:
                continue
            cleaned = msgspec.structs.replace(detail, hosted_queues=kept)
            # Unless the mapping was changed while other brokers were asked.
            if self._mappings.replace(detail, cleaned):
                logger.info(
                    "static topic %(topic)s: items without messages are removed from its mapping",
                    {"topic": topic},
                )

    async def _cleaned(
        self, detail: TopicQueueMappingDetail, queue_id: int, items: list[LogicQueueMappingItem]
    ) -> list[LogicQueueMappingItem]:
        """The items of a logic queue to keep; empty: the queue is not needed here."""
        try:
            if not detail.leads(queue_id):
                is_gone = await self._is_moved_on(detail, queue_id, items[-1])
                return [] if is_gone else items
            if len(items) > 1 and items[1].is_decided and await self._is_empty(detail, items[0]):
                return items[1:]
        except (RequestRefused, RemotingError) as error:
            logger.warning(
                "static topic %(topic)s, logic queue %(queue_id)d: its mapping is not cleaned "
                "now: %(error)s",
                {"topic": detail.topic, "queue_id": queue_id, "error": error},
            )
        return items

    async def _is_empty(self, detail: TopicQueueMappingDetail, item: LogicQueueMappingItem) -> bool:
        """Whether the physical queue of an item has no message."""
        topic, queue_id = detail.topic, item.queue_id
        if item.bname == detail.bname:
            return self._store.min_offset(topic, queue_id) >= self._store.max_offset(
                topic, queue_id
            )
        first = await self._ask(
            item.bname,
            RequestCode.GET_MIN_OFFSET,
            GetMinOffsetRequestHeader(topic=topic, queue_id=queue_id, logical=False),
        )
        end = await self._ask(
            item.bname,
            RequestCode.GET_MAX_OFFSET,
            GetMaxOffsetRequestHeader(topic=topic, queue_id=queue_id, logical=False),
        )
        return _offset_of(first) >= _offset_of(end)

    async def _is_moved_on(
        self, detail: TopicQueueMappingDetail, queue_id: int, last: LogicQueueMappingItem
    ) -> bool:
        """Whether the queue's leader, as this broker knows it, has given the queue away.

        Source: TopicQueueMappingCleanService.cleanItemListMoreThanSecondGen.
        """
        header = GetTopicConfigRequestHeader(
            topic=detail.topic, logical=True, broker_name=last.bname
        )
        answer = await self._ask(last.bname, RequestCode.GET_TOPIC_CONFIG, header)
        theirs = TopicConfigAndQueueMapping.from_body(answer.body).mapping_detail
        if theirs is None or (theirs.epoch, theirs.total_queues) != (
            detail.epoch,
            detail.total_queues,
        ):
            return False
        items = theirs.hosted_queues.get(queue_id)
        return bool(items) and items[-1].bname not in (last.bname, detail.bname)  # type: ignore[index]

    async def _ask(self, broker_name: str, code: RequestCode, header: Header) -> RemotingCommand:
        """Raises: RequestRefused: the broker cannot be asked, or refuses."""
        command = RemotingCommand(code, encode_header(header))
        answer = await self._peers.call(broker_name, command)
        if answer.code != ResponseCode.SUCCESS:
            raise RequestRefused(answer.code, f"broker {broker_name}: {answer.remark}")
        return answer


def _offset_of(answer: RemotingCommand) -> int:
    return decode(OffsetResponseHeader, answer.ext_fields).offset
