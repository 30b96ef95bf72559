"""Pages of topics: all, and one with its queues and its groups."""

from __future__ import annotations

from functools import partial

import msgspec

from ...client import QueueOffsets, TopicOnBroker
from ...operations.asking import asked_at_once
from ...operations.sampling import TopicRow
from .page import Ask, Page


class Topics(msgspec.Struct, frozen=True, rename="camel"):
    """All topics of the newest sample, those that wait longest first.

    Attributes:
      gaps: brokers that did not answer all, with the reason.
    """

    error: str
    topics: tuple[TopicRow, ...]
    gaps: tuple[str, ...] = ()


async def topics(ask: Ask) -> Topics:
    """The topics of the newest sample."""
    sample = await ask.account.samples.fresh()
    rows = sample.topics if sample else ()
    return Topics(ask.account.samples.error, rows, ask.account.samples.gaps)


class Topic(msgspec.Struct, frozen=True, rename="camel"):
    """A topic.

    Attributes:
      brokers: its settings on each.
      queues: what each queue holds.
      groups: groups with offsets in it, or that subscribe to it.
      error: which brokers did not answer; "": all did.
    """

    topic: str
    brokers: tuple[TopicOnBroker, ...]
    queues: tuple[QueueOffsets, ...]
    groups: tuple[str, ...]
    error: str

    @property
    def count(self) -> int:
        """Messages that are there."""
        return sum(each.count for each in self.queues)


async def topic(ask: Ask) -> Topic:
    """A topic's settings, queues and groups."""
    name = ask.text("topic")
    (info, error), (queues, more), (groups, last) = await asked_at_once(
        partial(ask.admin.topic, name),
        partial(ask.admin.offsets, name),
        partial(ask.admin.topic_groups, name),
    )
    return Topic(name, info.brokers, tuple(queues), tuple(sorted(groups)), error or more or last)


PAGES = (
    Page("topics", topics, table="topics", is_live=True, name_field="topic"),
    Page("topic", topic, table="queues", section="topics"),
)
