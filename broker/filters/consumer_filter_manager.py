"""ConsumerFilterManager: the groups' compiled SQL92 filters, by group and topic.

The table follows the subscriptions in heartbeats: a filter is compiled when its text is new, and
dies with its subscription or with its group's last client. Dead filters are kept for
`filterDataCleanTimeSpan`, also in `consumerFilter.json`, and revived when their group returns with
the same text. A filter that does not compile is remembered, so that it is compiled and logged only
once; pulls by it are refused, and it is not saved.

Invariant: every bit map that `FilterBitMaps` gave to a message stored after a filter was born has
that filter's bits, if it matches. So a filter gets a new birth time whenever its text changes, and
when it may not have been evaluated without a gap.

Expressions come from the wire, so the cost of compiling is bounded twice: per heartbeat in time,
and for all groups together in memory.

Java counterpart: broker/filter/ConsumerFilterManager.java and ConsumerFilterData.java of 5.3.3.
Pure, but for the `save` it is given.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final

from ...common.clock import LATEST_MS, Clock
from ...common.sized_cache import sized_cache
from ...common.sql92.expression import (
    EXPRESSION_CACHE_SIZE_MAX,
    EXPRESSION_LENGTH_MAX,
    Expression,
    FilterSyntaxError,
    compile_expression,
    expression_size,
)
from ...common.steps import one_step
from ...disk.state_file import Save, StateFile
from ..tables.config_text import CONSUMER_FILTERS
from .bloom import BloomFilter
from .consumer_filter_data import (
    SQL92,
    ConsumerFilterData,
    StoredFilter,
    decode_filters,
    encode_filters,
)
from .subscription import Subscription

logger = logging.getLogger(__name__)

HEARTBEAT_CHARACTERS_MAX: Final = EXPRESSION_LENGTH_MAX
"""Characters of expressions that one heartbeat may have compiled: some 0.3 s at the worst, or
hundreds of usual expressions. The rest waits for the next heartbeat. RocketMQ has no bound, but
compiles in separate threads."""

REGISTERED_CHARACTERS_MAX: Final = 1024 * 1024
"""Characters of all compiled expressions together: some 200 MB at the worst, or tens of thousands
of usual expressions. Dead filters are dropped first. RocketMQ has no bound."""

DEAD_COUNT_MAX: Final = 10_000
"""Dead filters that are kept; beyond that the older half is dropped. Consumers with a new group
name at each start leave many of them."""

KEPT_DEAD_MS: Final = 24 * 3600 * 1000
"""The default of `filterDataCleanTimeSpan`."""

LEFT_BEFORE_START_MS: Final = 30_000
"""A group that was connected when the file was written counts as having left this long before the
start. Source: ConsumerFilterManager.decode."""

_TEXT_SHOWN_MAX: Final = 200


def compile_filter(expression_type: str, text: str) -> Expression | str:
    """Compile an expression of any type but TAG; return it, or the reason why it does not compile.

    Both results are cached, so that a client that repeats a wrong expression costs little.
    """
    if expression_type != SQL92:
        return f"{expression_type[:_TEXT_SHOWN_MAX]!r} is not an expression type; use TAG or SQL92"
    if len(text) > EXPRESSION_LENGTH_MAX:
        return f"it has {len(text)} characters, the limit is {EXPRESSION_LENGTH_MAX}"
    return _compiled(text)


@sized_cache(size_max=EXPRESSION_CACHE_SIZE_MAX, size_of=expression_size)
def _compiled(text: str) -> Expression | str:
    try:
        return compile_expression(text)
    except FilterSyntaxError as error:
        return str(error)


def warm_up() -> None:
    """Import the parser and build its tables, before the first expression needs them.

    It takes 0.2 s, which would block the loop of a serving broker.
    """
    compile_expression("price > 0 AND symbol = 'A'")


def _no_message() -> int:
    return 0


class ConsumerFilterManager:
    """The filters that heartbeats registered. Not thread-safe: used from the broker's one trio run.

    Args:
      clock: gives the times at which filters are born and die.
      newest_ms: the store timestamp of the newest message; no filter is born before it, even if the
        clock was set back.
      bloom: the size of the bit maps.
      kept_dead_ms: see KEPT_DEAD_MS.
      characters_max: see REGISTERED_CHARACTERS_MAX.

    Attributes:
      kept_dead_ms: as above; it may change.
      topics: the compiled filters, including dead ones, by topic, then group; read-only.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        save: Save,
        newest_ms: Callable[[], int] = _no_message,
        bloom: BloomFilter | None = None,
        kept_dead_ms: int = KEPT_DEAD_MS,
        characters_max: int = REGISTERED_CHARACTERS_MAX,
    ) -> None:
        self.file = StateFile(
            CONSUMER_FILTERS, "consumer filters", save, one_step(self.encode), is_lazy=True
        )
        self.bloom = bloom or BloomFilter.create()
        self.topics: dict[str, dict[str, ConsumerFilterData]] = {}
        self._clock = clock
        self._newest_ms = newest_ms
        self.kept_dead_ms = kept_dead_ms
        self._characters_max = characters_max
        self._characters = self._dead_count = 0
        self._groups: dict[str, dict[str, ConsumerFilterData]] = {}

    @property
    def characters(self) -> int:
        """The number of characters of all compiled expressions."""
        return self._characters

    def find(self, topic: str, group: str) -> ConsumerFilterData | None:
        """The filter of a group for a topic; None: it is missing, dead, or does not compile."""
        data = self._groups.get(group, {}).get(topic)
        return None if data is None or data.expression is None or data.is_dead else data

    def register(
        self, group: str, subscriptions: Mapping[str, Subscription], characters_max: int
    ) -> int:
        """Update the filters of a group to its subscriptions.

        Args:
          group: a connected group.
          subscriptions: all of the group's, by topic.
          characters_max: characters to compile now, at most HEARTBEAT_CHARACTERS_MAX.
        Returns: the number of compiled characters.
        Source: ConsumerFilterManager.register, FilterDataMapByTopic.register.
        """
        wanted = {topic: one for topic, one in subscriptions.items() if one.needs_expression}
        filters = self._groups.get(group, {})
        self._mark_dead([filters[topic] for topic in filters.keys() - wanted.keys()])
        compiled = 0
        waiting: list[str] = []
        for topic, one in wanted.items():
            old = filters.get(topic)
            if old is not None and old.text == one.sub_string:
                self._keep(old, one.sub_version)
                continue
            size = len(one.sub_string)
            if size <= EXPRESSION_LENGTH_MAX:  # a longer one is refused without compiling
                if compiled + size > characters_max:
                    waiting.append(topic)
                    continue
                compiled += size
            if old is not None:
                self._drop(old)
            self._put(self._compile(group, topic, one))
        if waiting:
            logger.warning(
                "group %(group)s has more expressions than are compiled for one heartbeat: "
                "%(count)d wait for the next one, the one for %(topic)s first",
                {"group": group, "count": len(waiting), "topic": waiting[0]},
            )
        return compiled

    def unregister(self, group: str) -> None:
        """Mark the filters of a group dead, because its last client left."""
        filters = self._groups.get(group)
        if filters:
            self._mark_dead(list(filters.values()))

    def clean(self) -> None:
        """Drop filters that have been dead too long. Source: ConsumerFilterManager.clean."""
        if self._dead_count:
            before_ms = self._clock.wall_ms() - self.kept_dead_ms
            for data in self._dead():
                if data.dead_ms <= before_ms:
                    self._drop(data)

    def reset_birth_times(self) -> None:
        """Set every birth time to that of the newest message, or later.

        For a start after a crash: the last registrations are not in the file, so older bit maps may
        have been made with other filters.
        """
        now_ms = self._now_ms()
        for filters in list(self.topics.values()):
            for data in list(filters.values()):
                dead_ms = max(data.dead_ms, now_ms) if data.is_dead else 0
                self._replace(data, replace(data, born_ms=now_ms, dead_ms=dead_ms))

    # The file

    def encode(self) -> bytes:
        """The text of `consumerFilter.json`."""
        topics = {topic: filters.values() for topic, filters in self.topics.items()}
        return encode_filters(topics, self.bloom.bit_count)

    def decode(self, text: bytes) -> int:
        """Replace the table by the filters of `consumerFilter.json`, all of them dead.

        Filters with other bit positions, and those that do not compile, are left out.

        Args:
          text: the file's text, as any version of RocketMQ wrote it.
        Returns: the number of filters.
        Raises: ValueError: the text is not a table of filters; nothing is changed then.
        """
        stored = decode_filters(text)
        self._groups.clear()
        self.topics.clear()
        self._characters = self._dead_count = 0
        for each in stored:
            data = self._restored(each)
            if data is not None:
                self._put(data)
        count = sum(map(len, self.topics.values()))
        self.file.is_dirty = count < len(stored)
        return count

    def _restored(self, stored: StoredFilter) -> ConsumerFilterData | None:
        group, topic, text = stored.consumer_group, stored.topic, stored.expression or ""
        bits = stored.bloom_filter_data
        positions = self._positions(group, topic)
        if topic in self._groups.get(group, {}):
            return None
        # The bits of messages were computed for these positions, so the filter would match none.
        if bits is None or (bits.bit_num, bits.bit_pos) != (self.bloom.bit_count, [*positions]):
            logger.info(
                "the filter of group %(group)s for %(topic)s has other Bloom filter bits than "
                "the configuration gives: it is left out, and the group registers it anew",
                {"group": group, "topic": topic},
            )
            return None
        if self._characters + len(text) > self._characters_max:
            logger.warning(
                "the filter of group %(group)s for %(topic)s is left out: the table is full "
                "(%(limit)d characters)",
                {"group": group, "topic": topic, "limit": self._characters_max},
            )
            return None
        expression = compile_filter(stored.expression_type or "", text)
        if isinstance(expression, str):
            logger.warning(
                "the filter of group %(group)s for %(topic)s is left out, it does not compile: "
                "%(reason)s",
                {"group": group, "topic": topic, "reason": expression},
            )
            return None
        for time_ms in (stored.born_time, stored.dead_time):
            if not 0 <= time_ms <= LATEST_MS:
                logger.warning(
                    "%(file)s: a time of the filter of group %(group)s for %(topic)s is "
                    "%(time_ms)d: the filter is left out, and the group registers it anew",
                    {"file": CONSUMER_FILTERS, "group": group, "topic": topic, "time_ms": time_ms},
                )
                return None
        # No client is connected yet, so each group counts as gone until its next heartbeat.
        dead_ms = stored.dead_time or self._clock.wall_ms() - LEFT_BEFORE_START_MS
        return ConsumerFilterData(
            group=group,
            topic=topic,
            text=text,
            client_version=stored.client_version,
            expression=expression,
            positions=positions,
            born_ms=stored.born_time,
            dead_ms=max(dead_ms, stored.born_time, 1),
        )

    # The table

    def _positions(self, group: str, topic: str) -> tuple[int, ...]:
        """Source: ConsumerFilterManager.register."""
        return self.bloom.generate(f"{group}#{topic}")

    def _now_ms(self) -> int:
        return max(self._clock.wall_ms(), self._newest_ms())

    def _dead(self) -> list[ConsumerFilterData]:
        filters = [data for group in self.topics.values() for data in group.values()]
        return [data for data in filters if data.is_dead]

    def _compile(self, group: str, topic: str, subscription: Subscription) -> ConsumerFilterData:
        text = subscription.sub_string
        found = self._compiled(subscription.expression_type, text)
        if isinstance(found, str):
            logger.error(
                "group %(group)s gets no messages of %(topic)s, because its expression "
                "%(expression)r is refused: %(reason)s",
                {
                    "group": group,
                    "topic": topic,
                    "expression": text[:_TEXT_SHOWN_MAX],
                    "reason": found,
                },
            )
            # Kept without an expression, so that it is not compiled and logged at each heartbeat.
            return ConsumerFilterData(group, topic, text, subscription.sub_version, None)
        logger.info(
            "filter registered, group: %(group)s topic: %(topic)s %(expression)r",
            {"group": group, "topic": topic, "expression": text[:_TEXT_SHOWN_MAX]},
        )
        positions = self._positions(group, topic)
        return ConsumerFilterData(
            group, topic, text, subscription.sub_version, found, positions, self._now_ms()
        )

    def _compiled(self, expression_type: str, text: str) -> Expression | str:
        """Compile if the table has room; dead filters are dropped first."""
        if self._characters + len(text) > self._characters_max:
            self._drop_dead(0)
        if self._characters + len(text) > self._characters_max:
            return f"the groups' expressions already have {self._characters_max} characters"
        return compile_filter(expression_type, text)

    def _keep(self, data: ConsumerFilterData, client_version: int) -> None:
        """Keep a filter whose text is unchanged; revive it if it is dead."""
        if data.is_dead or data.client_version != client_version:
            self._replace(data, replace(data, client_version=client_version, dead_ms=0))

    def _mark_dead(self, filters: Iterable[ConsumerFilterData]) -> None:
        now_ms = self._now_ms()
        for data in filters:
            if data.expression is None:
                self._drop(data)
            elif not data.is_dead:
                self._replace(data, replace(data, dead_ms=max(now_ms, data.born_ms)))
        if self._dead_count > DEAD_COUNT_MAX:
            self._drop_dead(DEAD_COUNT_MAX // 2)

    def _drop_dead(self, keep: int) -> None:
        """Drop dead filters except the `keep` ones that died last."""
        dead = sorted(self._dead(), key=lambda data: data.dead_ms)
        for data in dead[: len(dead) - keep]:
            self._drop(data)

    def _replace(self, old: ConsumerFilterData, new: ConsumerFilterData) -> None:
        """Replace a filter by another state of itself."""
        self._groups[new.group][new.topic] = new
        if new.expression is not None:
            self.topics[new.topic][new.group] = new
            self._dead_count += new.is_dead - old.is_dead
            self.file.is_dirty = True

    def _put(self, data: ConsumerFilterData) -> None:
        self._groups.setdefault(data.group, {})[data.topic] = data
        if data.expression is not None:
            self.topics.setdefault(data.topic, {})[data.group] = data
            self._characters += len(data.text)
            self._dead_count += data.is_dead
            self.file.is_dirty = True

    def _drop(self, data: ConsumerFilterData) -> None:
        _delete(self._groups, data.group, data.topic)
        if data.expression is not None:
            _delete(self.topics, data.topic, data.group)
            self._characters -= len(data.text)
            self._dead_count -= data.is_dead
            self.file.is_dirty = True


def _delete(table: dict[str, dict[str, ConsumerFilterData]], first: str, second: str) -> None:
    del table[first][second]
    if not table[first]:
        del table[first]
