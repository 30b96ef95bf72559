"""Which filters a message matches, as a bit map, and which messages a pull need not read.

With `enableCalcFilterBitMap` each message of a topic that has filters is evaluated when it is
stored; its extension unit keeps the result as a Bloom filter. A pull by a filter then leaves
messages unread whose bit map has not all of the filter's bits.

A message without a bit map is read, so where it is dear, or fails, there is none: that never loses
a message.

Java counterpart: broker/filter/CommitLogDispatcherCalcBitMap.java and isMatchedByConsumeQueue of
ExpressionMessageFilter.java of 5.3.3. Pure.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from ..common.message_properties import properties_from_bytes
from ..common.sql92.expression import Expression
from ..store.queues.consume_queue_ext import ExtUnit
from .consumer_filter_manager import ConsumerFilterManager

logger = logging.getLogger(__name__)

SLOW_S: Final = 0.02
"""A message that took so long to evaluate is followed by some without a bit map. Usual filters take
10 µs each, a hostile one up to 0.4 s. RocketMQ evaluates in a thread of its own, unbounded."""

REST_FACTOR: Final = 20
"""How many times longer than the evaluation the rest is, so that senders lose 5 % at most."""

BORN_MARGIN_MS: Final = 10_000
"""Messages stored so soon after a filter was born are read whatever their bit map says: RocketMQ
notes the birth before it compiles the filter, and meanwhile stores messages without its bits."""

_FEW_FILTERS: Final = 2
"""With more filters than this a message's properties are parsed once for all of them."""


class FilterBitMaps:
    """What connects filters with the bit maps of extension units.

    Args:
      filters: the broker's.
      monotonic_s: a clock for what an evaluation takes.
    """

    def __init__(self, filters: ConsumerFilterManager, *, monotonic_s: Callable[[], float]) -> None:
        self._filters = filters
        self._bloom = filters.bloom
        self._monotonic_s = monotonic_s
        self._rest_until_s = float("-inf")

    def bit_map_of(self, topic: str, properties: bytes) -> bytes | None:
        """The bit map of a message that is being stored; None: it has none. Does not raise.

        What is unknown, and what cannot be evaluated, does not match, as in a pull.

        Args:
          topic: the message's.
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
            logger.exception("a message of %s could not be evaluated", topic)
            self._rest_until_s = start_s + 1
            return None
        took_s = self._monotonic_s() - start_s
        if took_s > SLOW_S:
            self._rest_until_s = start_s + took_s * REST_FACTOR
            logger.warning(
                "evaluating a message of %s for %d groups took %.0f ms; for %.1f s messages get no "
                "bit map, and pulls read them",
                topic, len(filters), took_s * 1000, took_s * REST_FACTOR,
            )  # fmt: skip
        return bytes(bits)

    def hides(
        self, topic: str, group: str, expression: Expression
    ) -> Callable[[ExtUnit], bool] | None:
        """What tells, without a look at the record, that a message does not match.

        Args:
          topic, group: of a pull.
          expression: what the pull filters by.
        Returns: whether a unit's message surely does not match; None: nothing is known of any,
          because the expression is not the one that the group is registered with now.
        """
        data = self._filters.find(topic, group)
        if data is None or data.expression is not expression:
            return None
        bloom, positions = self._bloom, data.positions
        size, from_ms = bloom.bit_count // 8, data.born_ms + BORN_MARGIN_MS

        def is_hidden(unit: ExtUnit) -> bool:
            bits = unit.bit_map
            return (
                bits is not None
                and len(bits) == size
                and unit.store_timestamp_ms > from_ms
                and not bloom.is_hit(positions, bits)
            )

        return is_hidden
