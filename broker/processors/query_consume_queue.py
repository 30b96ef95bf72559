"""Units of consume queues: QUERY_CONSUME_QUEUE (321), for administrators who look for damage.

Java counterpart: queryConsumeQueue of AdminBrokerProcessor.java of 5.5.0. Pure.
Not done: extensions of units, and whether a group's filter matches them.
"""

from __future__ import annotations

from typing import Final

from ...remoting.bodies import ConsumeQueueData, QueryConsumeQueueResponseBody
from ...remoting.channel import Answer, Channel, Processor
from ...remoting.codec import RemotingCommand
from ...remoting.errors import RequestRefused
from ...remoting.headers import QueryConsumeQueueRequestHeader, decode
from ...remoting.request_codes import RequestCode
from ...remoting.response_codes import NOT_SET, ResponseCode
from ...remoting.steps import STEP_ITEMS, Steps, answer_of
from ...store.errors import StoreError
from ...store.format import UNIT, UNIT_SIZE
from ...store.message_store import MessageStore
from ..consumer_manager import ConsumerManager

UNITS_MAX: Final = 10_000
"""Units of one answer, some 700 KB of JSON."""


class QueryConsumeQueueProcessor:
    """Shows what a queue has.

    Args:
      store: the broker's messages.
      consumers: the broker's table.
    """

    def __init__(self, store: MessageStore, consumers: ConsumerManager) -> None:
        self._store = store
        self._consumers = consumers
        self.processors: dict[RequestCode, Processor] = {
            RequestCode.QUERY_CONSUME_QUEUE: self._query,
        }

    def _query(self, request: RemotingCommand, _: Channel) -> Answer:
        header = decode(QueryConsumeQueueRequestHeader, request.ext_fields)
        return answer_of(self._answer(request, header))

    def _answer(
        self, request: RemotingCommand, header: QueryConsumeQueueRequestHeader
    ) -> Steps[RemotingCommand]:
        place = f"{header.queue_id}@{header.topic}"
        queue = self._store.queue_store.queues.get((header.topic, header.queue_id))
        if queue is None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"{place} is not exist!")
        body = QueryConsumeQueueResponseBody(
            max_queue_index=queue.max_offset, min_queue_index=queue.min_offset
        )
        if header.consumer_group is not None:
            found = self._consumers.find_subscription_data(header.consumer_group, header.topic)
            if found is None:
                body.filter_data = f"{header.consumer_group}@{header.topic} is not online!"
            else:
                body.subscription_data = found.to_data()
                body.filter_data = "null" if found.is_tag_type else found.sub_string
        if not queue.min_offset <= header.index < queue.max_offset:
            remark = f"Index {header.index} of {place} is not exist!"
            return request.answer(ResponseCode.SUCCESS, remark)
        at = header.index
        end = min(queue.max_offset, at + min(max(header.count, 0), UNITS_MAX))
        while at < end:
            try:
                units = queue.read(at, min(end - at, STEP_ITEMS))
            except StoreError as error:
                raise RequestRefused(ResponseCode.SYSTEM_ERROR, str(error)) from error
            if len(units) < UNIT_SIZE:
                break
            for offset, size, tags_code in UNIT.iter_unpack(units):
                body.queue_data.append(
                    ConsumeQueueData(physic_offset=offset, physic_size=size, tags_code=tags_code)
                )
            at += len(units) // UNIT_SIZE
            if at < end:
                yield
        return request.answer(ResponseCode.SUCCESS, NOT_SET, body=body.to_body())
