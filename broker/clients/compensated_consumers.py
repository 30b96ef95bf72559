"""CompensatedConsumers: groups that consume without heartbeats, known from their requests.

A pop says which group gets which topic by which expression. So a consumer that only pops, behind a
proxy for instance, has a subscription that administrators and metrics see, and one to all messages
of the retry topics. Connected groups and their clients (38, 203) are those of heartbeats only.

Java counterpart: consumerCompensationTable of broker/client/ConsumerManager.java of 5.5.0, which
also notes pulls, has no bound, and keeps the groups for ever. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from ...common.topic_names import normal_topic
from ...remoting.bodies import SubscriptionData
from ..filters.subscription import SUB_ALL, TAG, Subscription, is_tag_type, tags_codes_of

ENTRIES_MAX: Final = 50_000
"""Topics of all groups together, as many as groups: some 20 MB. Beyond that the oldest are
dropped."""

CHARACTERS_MAX: Final = 4 * 1024 * 1024
"""Characters of their expressions together; beyond that the oldest are dropped."""


class _Entry:
    """What a group's last pop of a topic said."""

    __slots__ = ("expression", "expression_type", "noted_ms")

    def __init__(self, expression: str, expression_type: str, noted_ms: int) -> None:
        self.expression = expression
        self.expression_type = expression_type
        self.noted_ms = noted_ms


class CompensatedConsumers:
    """The table. Not thread-safe: used from the broker's one trio run."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[str, _Entry]] = {}
        self._entries: dict[tuple[str, str], _Entry] = {}  # the oldest first
        self._characters = 0

    def __len__(self) -> int:
        return len(self._entries)

    def note(
        self,
        group: str,
        topic: str,
        expression: str | None,
        expression_type: str | None,
        now_ms: int,
    ) -> None:
        """Record a pop, of a group and a topic that exist.

        Args:
          expression: None or "": all messages.
          expression_type: None or "": tags.
          now_ms: ms since 1970.
        """
        known = self._groups.get(group, {}).get(topic)
        text, kind = expression or SUB_ALL, expression_type or TAG
        if known is not None and known.expression == text and known.expression_type == kind:
            known.noted_ms = now_ms
            return
        self._drop(group, topic)
        self._characters += len(text)
        entry = self._entries[group, topic] = _Entry(text, kind, now_ms)
        self._groups.setdefault(group, {})[topic] = entry
        while len(self._entries) > ENTRIES_MAX or self._characters > CHARACTERS_MAX:
            self._drop(*next(iter(self._entries)))

    def topics_of(self, group: str) -> Collection[str]:
        return self._groups.get(group, {}).keys()

    @property
    def groups(self) -> Mapping[str, Collection[str]]:
        """The topics of every group; read-only."""
        return self._groups

    def find(self, group: str, topic: str) -> Subscription | None:
        """The subscription of a group to a topic; None: it did not pop it lately."""
        topics = self._groups.get(group)
        if topics is None:
            return None
        entry = topics.get(topic)
        if entry is None:
            # Of a retry topic the group gets everything, as it gets back only what it popped.
            origin = topics.get(normal_topic(topic, group))
            if origin is None:
                return None
            entry = _Entry(SUB_ALL, origin.expression_type, origin.noted_ms)
        codes = tags_codes_of(entry.expression) if is_tag_type(entry.expression_type) else None
        return Subscription.from_data(
            SubscriptionData(
                topic=topic,
                sub_string=entry.expression,
                expression_type=entry.expression_type,
                sub_version=entry.noted_ms,
                code_set=set(codes or ()),
            )
        )

    def expire(self, before_ms: int) -> None:
        """Drop what was last noted before a time, ms since 1970."""
        for (group, topic), entry in list(self._entries.items()):
            if entry.noted_ms < before_ms:
                self._drop(group, topic)

    def topic_deleted(self, topic: str) -> None:
        """Drop the entries of a topic."""
        for group, topics in list(self._groups.items()):
            if topic in topics:
                self._drop(group, topic)

    def group_deleted(self, group: str) -> None:
        """Drop the entries of a group."""
        for topic in list(self.topics_of(group)):
            self._drop(group, topic)

    def _drop(self, group: str, topic: str) -> None:
        entry = self._entries.pop((group, topic), None)
        if entry is None:
            return
        self._characters -= len(entry.expression)
        topics = self._groups[group]
        del topics[topic]
        if not topics:
            del self._groups[group]
