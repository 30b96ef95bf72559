"""Units of consume queues: QUERY_CONSUME_QUEUE (321), for administrators who look for damage.

Java counterpart: queryConsumeQueue of AdminBrokerProcessor.java, ExpressionMessageFilter.java of
5.5.0. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

from ...common.steps import STEP_ITEMS, Steps
from ...disk.errors import StoreError
from ...remoting.bodies import ConsumeQueueData, QueryConsumeQueueResponseBody
from ...remoting.channel import Answer, Channel, Processor, answer_of
from ...remoting.codec import RemotingCommand
from ...remoting.errors import RequestRefused
from ...remoting.headers import QueryConsumeQueueRequestHeader, decode
from ...remoting.request_codes import RequestCode
from ...remoting.response_codes import NOT_SET, ResponseCode
from ...store.format import UNIT, UNIT_SIZE
from ...store.message_store import MessageStore
from ...store.queues.consume_queue_ext import ExtendedConsumeQueue, ExtUnit, is_ext_address
from ..clients.consumer_manager import ConsumerManager
from ..filters.consumer_filter_data import filter_text
from ..filters.consumer_filter_manager import ConsumerFilterManager
from ..filters.filter_bit_maps import FilterBitMaps
from ..filters.subscription import SUB_ALL, Subscription

UNITS_MAX: Final = 10_000
"""Units of one answer, some 700 KB of JSON."""

Passes = Callable[[ExtUnit], bool]
"""Whether a filter lets a message through, as far as its extension unit tells."""


class QueryConsumeQueueProcessor:
    """Shows what a queue has.

    Args:
      consumers, filters: the broker's tables.
      bit_maps: tests the bit maps of extension units.
    """

    def __init__(
        self,
        store: MessageStore,
        consumers: ConsumerManager,
        filters: ConsumerFilterManager,
        bit_maps: FilterBitMaps,
    ) -> None:
        self._store = store
        self._consumers = consumers
        self._filters = filters
        self._bit_maps = bit_maps
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
        passes: Passes | None = None
        if header.consumer_group is not None:
            found = self._consumers.find_subscription_data(header.consumer_group, header.topic)
            if found is None:
                body.filter_data = f"{header.consumer_group}@{header.topic} is not online!"
            else:
                body.subscription_data = found.to_data()
                data = self._filters.find(header.topic, header.consumer_group)
                body.filter_data = filter_text(data, self._filters.bloom.bit_count)
                passes = self._filter_of(header.consumer_group, found)
        # The answer keeps its code 0 and loses its body, as with Apache's broker.
        if not queue.min_offset <= header.index < queue.max_offset:
            remark = f"Index {header.index} of {place} is not exist!"
            return request.answer(ResponseCode.SUCCESS, remark)
        unit_at = queue.ext.reader() if isinstance(queue, ExtendedConsumeQueue) else None
        at = header.index
        end = min(queue.max_offset, at + min(max(header.count, 0), UNITS_MAX))
        while at < end:
            try:
                # In steps: a request for many units must not hold up the sends of others.
                units = queue.read(at, min(end - at, STEP_ITEMS))
                if len(units) < UNIT_SIZE:
                    break
                for offset, size, tags_code in UNIT.iter_unpack(units):
                    shown = ConsumeQueueData(
                        physic_offset=offset, physic_size=size, tags_code=tags_code
                    )
                    if is_ext_address(tags_code):
                        _show(shown, None if unit_at is None else unit_at(tags_code), passes)
                    body.queue_data.append(shown)
            except StoreError as error:
                raise RequestRefused(ResponseCode.SYSTEM_ERROR, str(error)) from error
            at += len(units) // UNIT_SIZE
            if at < end:
                yield
        return request.answer(ResponseCode.SUCCESS, NOT_SET, body=body.to_body())

    def _filter_of(self, group: str, subscription: Subscription) -> Passes:
        """The filter of a group, as a pull applies it before it reads records.

        Source: ExpressionMessageFilter.isMatchedByConsumeQueue.
        """
        topic = subscription.topic
        if subscription.needs_expression:
            data = self._filters.find(topic, group)
            if data is None or data.expression is None:
                return lambda _: True
            can_skip = self._bit_maps.skip_test(topic, group, data.expression)
            return lambda unit: can_skip is None or not can_skip(unit)
        if subscription.class_filter_mode or subscription.sub_string == SUB_ALL:
            return lambda _: True
        codes = subscription.code_set
        return lambda unit: unit.tags_code in codes


def _show(shown: ConsumeQueueData, unit: ExtUnit | None, passes: Passes | None) -> None:
    """Add what is known of a unit's extension."""
    if unit is None:
        shown.msg = f"Cq extend not exist!addr: {shown.tags_code}"
        return
    members: dict[str, object] = {
        "msgStoreTime": unit.store_timestamp_ms,
        "size": len(unit.to_bytes()),
        "tagsCode": unit.tags_code,
    }
    bits = unit.bit_map
    if bits is not None:
        # Java's bytes have signs. Of a bit map RocketMQ shows the last byte first, in lines of 8.
        signed = memoryview(bits).cast("b").tolist()
        members = {"filterBitMap": signed, **members}
        shown.bit_map = "".join(
            f"{byte:08b}" + ("\n" if at % 8 == 0 else "")
            for at, byte in reversed(list(enumerate(bits)))
        )
    shown.extend_data_json = json.dumps(members, separators=(",", ":"))
    if passes is not None:
        shown.eval = passes(unit)
