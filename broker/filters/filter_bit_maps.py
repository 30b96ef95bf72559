"""FilterBitMaps: bit maps of the SQL92 filters that a message matches, so that pulls can skip it.

With `enableCalcFilterBitMap` the filters of a topic are evaluated when a message is stored; its
extension unit keeps the result as a Bloom filter. A pull by a filter then skips, unread, messages
whose bit map lacks one of the filter's bits.

A message without a bit map is read. So where evaluation is slow, or fails, the bit map is left out,
which never loses a message.

Java counterpart: broker/filter/CommitLogDispatcherCalcBitMap.java and isMatchedByConsumeQueue of
ExpressionMessageFilter.java of 5.3.3. Pure.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from ...common.message_properties import properties_from_bytes
from ...common.sql92.expression import Expression
from ...store.queues.consume_queue_ext import ExtUnit
from .consumer_filter_manager import ConsumerFilterManager

logger = logging.getLogger(__name__)

SLOW_S: Final = 0.02
"""After an evaluation that took this long, no bit maps are made for a while. Usual filters take
10 µs each, a hostile one up to 0.4 s. RocketMQ evaluates in a separate thread, unbounded."""

REST_FACTOR: Final = 20
"""Length of that pause as a multiple of the evaluation, so that senders lose 5 % at most."""

BORN_MARGIN_MS: Final = 10_000
"""Messages stored this soon after a filter was born are read whatever their bit map says: RocketMQ
records the birth before it compiles the filter, and meanwhile stores messages without its bits."""

_FEW_FILTERS: Final = 2
"""With more filters than this a message's properties are parsed once for all of them."""


class FilterBitMaps:
    """Makes the bit maps of extension units from filters, and tests them for pulls.

    Args:
      monotonic_s: a clock that times evaluations.
    """

    def __init__(self, filters: ConsumerFilterManager, *, monotonic_s: Callable[[], float]) -> None:
        self._filters = filters
        self._bloom = filters.bloom
        self._monotonic_s = monotonic_s
        self._rest_until_s = float("-inf")

    def bit_map_of(self, topic: str, properties: bytes) -> bytes | None:
        """The bit map of a message that is being stored; None: it has none. Does not raise.

        A result that is unknown, or an evaluation that fails, counts as no match, as in a pull.

        Args:
          properties: encoded, as they are stored.
        """
        filters = self._filters.topics.get(topic)
        if filters is None:
            return None
        start_s = self._monotonic_s()
        if start_s < self._rest_until_s:
            return None
        bits = self._bloom.new_bits()
        parsed: bytes | Mapping[str, str] = properties
        try:
            if len(filters) > _FEW_FILTERS:
                parsed = properties_from_bytes(properties)
            for data in filters.values():
                if data.expression is not None and data.expression.matches(parsed):
                    self._bloom.hash_to(data.positions, bits)
        except Exception:  # a bug of ours: the message must be stored all the same
            logger.exception(
                "the filters of %(topic)s could not be evaluated for a message: it is stored "
                "without a bit map, and pulls read it",
                {"topic": topic},
            )
            self._rest_until_s = start_s + 1
            return None
        took_s = self._monotonic_s() - start_s
        if took_s > SLOW_S:
            self._rest_until_s = start_s + took_s * REST_FACTOR
            logger.warning(
                "evaluating a message of %(topic)s for %(filters)d groups took %(took_ms).0f "
                "ms; for %(rest_s).1f s messages get no bit map, and pulls read them",
                {
                    "topic": topic,
                    "filters": len(filters),
                    "took_ms": took_s * 1000,
                    "rest_s": took_s * REST_FACTOR,
                },
            )
        return bytes(bits)

    def skip_test(
        self, topic: str, group: str, expression: Expression
    ) -> Callable[[ExtUnit], bool] | None:
        """A test that finds messages that do not match, without reading their records.

        Args:
          topic, group: of a pull.
          expression: the pull's filter.
        Returns: a function that returns true when a unit's message certainly does not match; None:
          no message can be skipped, because the group is now registered with another expression.
        """
        data = self._filters.find(topic, group)
        # The bits in the units are those of the registered expression only.
        if data is None or data.expression is not expression:
            return None
        bloom, positions = self._bloom, data.positions
        size, from_ms = bloom.bit_count // 8, data.born_ms + BORN_MARGIN_MS

        def can_skip(unit: ExtUnit) -> bool:
            bits = unit.bit_map
            return (
                bits is not None
                and len(bits) == size
                and unit.store_timestamp_ms > from_ms
                and not bloom.is_hit(positions, bits)
            )

        return can_skip
