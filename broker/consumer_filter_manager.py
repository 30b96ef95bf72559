"""The SQL92 filters of the groups that are connected, compiled, by group and topic.

They follow the subscriptions of the heartbeats: a filter is compiled when its text is new, goes
with its subscription, and all of a group's go with its last client. One that cannot be compiled is
kept as such, so that it is told once and tried once; the pulls of its consumers are refused.

What compiling may cost is bounded twice, because expressions come from the wire: per heartbeat in
time, and for all groups together in memory.

Java counterpart: broker/filter/ConsumerFilterManager.java and ConsumerFilterData.java of 5.3.3.
Pure. Not as there: nothing is written to consumerFilter.json, since a group without clients pulls
nothing by what it had registered, and a client that comes back registers anew.
Not done: the Bloom filter's positions, which only `enableCalcFilterBitMap` needs.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from .filter.sql92 import (
    EXPRESSION_CACHE_COUNT_MAX,
    EXPRESSION_LENGTH_MAX,
    Expression,
    FilterSyntaxError,
    compile_expression,
)
from .subscription import Subscription

logger = logging.getLogger(__name__)

SQL92: Final = "SQL92"
"""The one type of expression besides tags. Source: common/filter/ExpressionType.java."""

HEARTBEAT_CHARACTERS_MAX: Final = EXPRESSION_LENGTH_MAX
"""Characters of expressions that one heartbeat may have compiled: some 0.3 s at the worst, and
hundreds of usual expressions. The others wait for the next heartbeat. RocketMQ has no bound, but
compiles in threads of its own."""

REGISTERED_CHARACTERS_MAX: Final = 1024 * 1024
"""Characters of all compiled expressions together: some 200 MB at the worst, and tens of thousands
of usual ones. RocketMQ has no bound."""

_TEXT_SHOWN_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class ConsumerFilterData:
    """The filter of one group for one topic; never changed.

    Attributes:
      text: the expression as the user wrote it.
      client_version: the `sub_version` of the subscription that it belongs to.
      expression: compiled; None: it cannot be.
    """

    text: str
    client_version: int
    expression: Expression | None


def compile_filter(expression_type: str, text: str) -> Expression | str:
    """An expression of any type but TAG, compiled, or why it cannot be.

    Both are remembered for some texts, so that a client that repeats a wrong one costs little.
    """
    if expression_type != SQL92:
        return f"{expression_type[:_TEXT_SHOWN_MAX]!r} is no type of expressions; TAG and SQL92 are"
    if len(text) > EXPRESSION_LENGTH_MAX:
        return f"{len(text)} characters, and at most {EXPRESSION_LENGTH_MAX} are taken"
    return _compiled(text)


@lru_cache(maxsize=EXPRESSION_CACHE_COUNT_MAX)
def _compiled(text: str) -> Expression | str:
    try:
        return compile_expression(text)
    except FilterSyntaxError as error:
        return str(error)


def warm_up() -> None:
    """Do what the first expression would do besides: import the parser and make its tables.

    It takes 0.2 s, in which a broker that serves already would serve nobody.
    """
    compile_expression("price > 0 AND symbol = 'A'")


class ConsumerFilterManager:
    """The filters that heartbeats registered. Not thread-safe: used from the broker's one trio run.

    Args:
      characters_max: see REGISTERED_CHARACTERS_MAX.
    """

    def __init__(self, *, characters_max: int = REGISTERED_CHARACTERS_MAX) -> None:
        self._characters_max = characters_max
        self._characters = 0
        self._groups: dict[str, dict[str, ConsumerFilterData]] = {}

    @property
    def characters(self) -> int:
        """Of all compiled expressions."""
        return self._characters

    def find(self, topic: str, group: str) -> ConsumerFilterData | None:
        """The filter of a group for a topic; None: none is registered, or it is wrong."""
        data = self._groups.get(group, {}).get(topic)
        return None if data is None or data.expression is None else data

    def register(
        self, group: str, subscriptions: Mapping[str, Subscription], characters_max: int
    ) -> int:
        """Let the filters of a group follow its subscriptions.

        Args:
          group: one that is connected.
          subscriptions: all of the group's, by topic.
          characters_max: what may be compiled now, at most HEARTBEAT_CHARACTERS_MAX.
        Returns: how many characters were compiled.
        Source: ConsumerFilterManager.register, FilterDataMapByTopic.register.
        """
        wanted = {topic: one for topic, one in subscriptions.items() if not one.is_tag_type}
        filters = self._groups.get(group, {})
        for topic in filters.keys() - wanted.keys():
            self._forget(filters.pop(topic))
        compiled = 0
        waiting: list[str] = []
        for topic, one in wanted.items():
            old = filters.get(topic)
            if old is not None and old.text == one.sub_string:
                filters[topic] = ConsumerFilterData(old.text, one.sub_version, old.expression)
                continue
            size = len(one.sub_string)
            if size <= EXPRESSION_LENGTH_MAX:  # a longer one is refused without a look
                if compiled + size > characters_max:
                    waiting.append(topic)
                    continue
                compiled += size
            if old is not None:
                self._forget(old)
            filters[topic] = self._compile(group, one)
        if waiting:
            logger.warning(
                "group %s: more expressions than are compiled for one heartbeat; %d wait for the "
                "next one, that for %s first", group, len(waiting), waiting[0],
            )  # fmt: skip
        if filters:
            self._groups[group] = filters
        else:
            self._groups.pop(group, None)
        return compiled

    def unregister(self, group: str) -> None:
        """Forget the filters of a group whose last client left."""
        for data in self._groups.pop(group, {}).values():
            self._forget(data)

    def _compile(self, group: str, subscription: Subscription) -> ConsumerFilterData:
        text = subscription.sub_string
        room = self._characters_max - self._characters
        found: Expression | str
        if len(text) > room:
            found = f"the groups' expressions have {self._characters_max} characters already"
        else:
            found = compile_filter(subscription.expression_type, text)
        if isinstance(found, str):
            logger.error(
                "group %s gets nothing of %s: its expression %.*r is refused: %s",
                group, subscription.topic, _TEXT_SHOWN_MAX, text, found,
            )  # fmt: skip
            return ConsumerFilterData(text, subscription.sub_version, None)
        self._characters += len(text)
        logger.info(
            "filter registered, group: %s topic: %s %.*r",
            group, subscription.topic, _TEXT_SHOWN_MAX, text,
        )  # fmt: skip
        return ConsumerFilterData(text, subscription.sub_version, found)

    def _forget(self, data: ConsumerFilterData) -> None:
        if data.expression is not None:
            self._characters -= len(data.text)
