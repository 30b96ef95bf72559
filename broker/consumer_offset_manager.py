"""How far each group has consumed each queue.

Offsets stand in memory; the controller has them saved every `flushConsumerOffsetInterval` (5 s) and
at a clean stop. After a crash a group starts at the last saved ones and sees some messages again,
as with RocketMQ.

Java counterpart: broker/offset/ConsumerOffsetManager.java of 5.3.3; the file is that of 5.5.0
(`groupTopicMap` and `pullOffsetTable` are only there). Pure, but for the `save` it is given.
Not done: resetOffsetTable, which a reset on the broker's side (useServerSideResetOffset) needs; 222
has the clients do it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from ..remoting.bodies import DataVersion
from ..store.clock import Clock
from .config_text import (
    CONSUMER_OFFSETS,
    Json,
    Save,
    Written,
    next_version,
    parse,
    pretty,
    written,
)
from .saved_table import SavedTable

logger = logging.getLogger(__name__)

SEPARATOR: Final = "@"
"""Between topic and group in a key; neither may contain it."""

VERSION_STEP: Final = 500
"""Commits after which the data version moves on. RocketMQ: consumerOffsetUpdateVersionStep."""

OffsetTable = dict[str, dict[int, int]]
"""Offset by queue id, by topic@group."""


class ConsumerOffsetManager(SavedTable):
    """The table of consumer offsets. Not thread-safe: used from the broker's one trio run.

    Args:
      clock: tells when the data version moved.
      save: writes the file.
    """

    file_name = CONSUMER_OFFSETS

    def __init__(self, *, clock: Clock, save: Save) -> None:
        super().__init__(save)
        self._clock = clock
        self._commits = 0
        self.data_version = DataVersion(timestamp=clock.wall_ms(), counter=0)
        self.offset_table: OffsetTable = {}
        self.pull_offset_table: OffsetTable = {}

    def commit_offset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Note how far a group has consumed a queue.

        Args:
          group: consumer group, checked by the caller.
          topic: checked by the caller.
          queue_id: of the topic, >= 0, checked by the caller.
          offset: the next queue offset to consume; less than before is allowed (a reset).
        """
        key = f"{topic}@{group}"
        table = self.offset_table.get(key)
        if table is None:
            table = self.offset_table[key] = {}
        before = table.get(queue_id)
        table[queue_id] = offset
        if before is not None and offset < before:
            logger.warning(
                "the offset of %s queue %d goes back from %d to %d", key, queue_id, before, offset
            )
        self._dirty = True
        self._commits += 1
        if self._commits % VERSION_STEP == 0:
            self.data_version = next_version(self.data_version, self._clock.wall_ms())

    def query_offset(self, group: str, topic: str, queue_id: int) -> int:
        """How far a group has consumed a queue.

        Returns: the next queue offset to consume; -1: nothing is known.
        """
        table = self.offset_table.get(f"{topic}@{group}")
        return -1 if table is None else table.get(queue_id, -1)

    def query_offsets(self, group: str, topic: str) -> dict[int, int]:
        """Offset by queue id of a group on a topic, a copy; empty: nothing is known."""
        return dict(self.offset_table.get(f"{topic}@{group}", ()))

    def commit_pull_offset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Note from where a group pulled last; the arguments are `commit_offset`'s."""
        key = f"{topic}@{group}"
        table = self.pull_offset_table.get(key)
        if table is None:
            table = self.pull_offset_table[key] = {}
        table[queue_id] = offset
        self._dirty = True

    def query_pull_offset(self, group: str, topic: str, queue_id: int) -> int:
        """From where a group pulled last; what it has consumed where it never pulled; or -1."""
        table = self.pull_offset_table.get(f"{topic}@{group}")
        offset = None if table is None else table.get(queue_id)
        return self.query_offset(group, topic, queue_id) if offset is None else offset

    def _pairs(self) -> Iterator[tuple[str, str, str]]:
        for key in list(self.offset_table):
            topic, separator, group = key.partition(SEPARATOR)
            if separator and SEPARATOR not in group:
                yield key, topic, group

    def which_topic_by_consumer(self, group: str) -> set[str]:
        """The topics of which a group has consumed something."""
        return {topic for _, topic, of in self._pairs() if of == group}

    def which_group_by_topic(self, topic: str) -> set[str]:
        """The groups that have consumed something of a topic."""
        return {group for _, of, group in self._pairs() if of == topic}

    def clean_offset_by_topic(self, topic: str) -> None:
        """Forget a deleted topic."""
        self._remove(f"{topic}{SEPARATOR}", str.startswith)

    def remove_offset(self, group: str) -> None:
        """Forget a deleted group."""
        self._remove(f"{SEPARATOR}{group}", str.endswith)

    def _remove(self, part: str, matches: Callable[[str, str], bool]) -> None:
        for table in (self.offset_table, self.pull_offset_table):
            for key in [key for key in table if matches(key, part)]:
                logger.info("the offsets of %s are dropped: %s", key, table.pop(key))
                self._dirty = True

    def scan_unsubscribed_topic(
        self,
        is_subscribed: Callable[[str, str], bool],
        min_offset: Callable[[str, int], int],
    ) -> list[str]:
        """Forget what nobody subscribes to and whose messages are all gone.

        Args:
          is_subscribed: whether a group (first) is connected and subscribes to a topic (second).
          min_offset: first queue offset still in the store, of topic and queue id.
        Returns: the keys `topic@group` that went.
        Source: ConsumerOffsetManager.scanUnsubscribedTopic.
        """
        gone = [
            key
            for key, topic, group in self._pairs()
            if self.offset_table[key]
            and not is_subscribed(group, topic)
            and all(
                offset <= min_offset(topic, queue_id)
                for queue_id, offset in self.offset_table[key].items()
            )
        ]
        for key in gone:
            logger.warning("nobody subscribes to %s any more, its offsets are dropped", key)
            del self.offset_table[key]
            self._dirty = True
        return gone

    def correct(self, max_offset: Callable[[str, int], int]) -> None:
        """Bring offsets back to the ends of their queues.

        A power cut under ASYNC_FLUSH may take messages whose consumption was saved already. What
        comes in their place would be passed over (L15); RocketMQ passes it over.

        Args:
          max_offset: next queue offset, of topic and queue id.
        """
        for key, topic, _ in self._pairs():
            for queue_id, offset in self.offset_table[key].items():
                end = max_offset(topic, queue_id)
                if offset > end:
                    logger.warning(
                        "the offset of %s queue %d goes back from %d to the queue's end, %d",
                        key, queue_id, offset, end,
                    )  # fmt: skip
                    self.offset_table[key][queue_id] = end
                    self._dirty = True

    def put_offset(self, key: str, queue_id: int, offset: int) -> None:
        """Take over what a slave's master knows; `key` is topic@group."""
        self.offset_table.setdefault(key, {})[queue_id] = offset
        self._dirty = True

    def drop_offset(self, key: str, queue_id: int) -> None:
        """Forget an offset that a slave's master has forgotten."""
        offsets = self.offset_table.get(key, {})
        if offsets.pop(queue_id, None) is not None:
            self._dirty = True
            if not offsets:
                del self.offset_table[key]

    def to_body(self) -> bytes:
        """The answer to GET_ALL_CONSUMER_OFFSET (43): what the file says, without white space.

        The slave of 5.5.0 cannot read it with: fastjson 2 wants a bare key right behind its brace.
        """
        parts = (
            b'"dataVersion":%b' % self.data_version.to_body(),
            b'"groupTopicMap":%b' % msgspec.json.encode(self._topics_of()),
            b'"offsetTable":%b' % _compact_table(self.offset_table),
            b'"pullOffsetTable":%b' % _compact_table(self.pull_offset_table),
        )
        return b"{%b}" % b",".join(parts)

    def _topics_of(self) -> dict[str, list[Json]]:
        """The topics of each group."""
        topics_of: dict[str, list[Json]] = {}
        for _, topic, group in self._pairs():
            topics_of.setdefault(group, []).append(topic)
        return topics_of

    def encode(self) -> bytes:
        """The text of `consumerOffset.json`."""
        return pretty(
            {
                "dataVersion": written(self.data_version, depth=1),
                "groupTopicMap": self._topics_of(),
                "offsetTable": _written_table(self.offset_table),
                "pullOffsetTable": _written_table(self.pull_offset_table),
            }
        )

    def decode(self, text: bytes) -> int:
        """Take over what `consumerOffset.json` holds, in place of what is here.

        Args:
          text: the file's text, as any version of RocketMQ wrote it.
        Returns: how many keys `topic@group` there are.
        Raises: ValueError: it is no table of offsets; nothing is changed then.
        """
        offsets, pull_offsets, data_version = parse_offsets(text)
        self.offset_table = offsets
        self.pull_offset_table = pull_offsets
        self.data_version = data_version or self.data_version
        self._dirty = False
        return len(offsets)


def parse_offsets(text: bytes) -> tuple[OffsetTable, OffsetTable, DataVersion | None]:
    """Offsets, pull offsets and their version out of `consumerOffset.json`, or an answer to 43.

    Raises: ValueError: it is no table of offsets.
    """
    try:
        tree = parse(text)
        version = tree.get("dataVersion")
        return (
            _table(tree.get("offsetTable")),
            _table(tree.get("pullOffsetTable")),
            None if version is None else msgspec.convert(version, DataVersion),
        )
    except (AttributeError, TypeError, ValueError, msgspec.ValidationError) as error:
        raise ValueError(f"not a table of consumer offsets: {error}") from error


def _written_table(table: OffsetTable) -> dict[str, Json]:
    """What `pretty` would make of it, five times faster: this is written every 5 s."""
    return {
        key: Written(
            "{\n\t\t\t"
            + ",\n\t\t\t".join([f"{queue_id}:{offset}" for queue_id, offset in offsets.items()])
            + "\n\t\t}"
        )
        for key, offsets in table.items()
    }


def _compact_table(table: OffsetTable) -> bytes:
    """The same without white space, as fastjson writes it by itself."""
    entries = (
        f"{msgspec.json.encode(key).decode()}:"
        "{" + ",".join([f"{queue_id}:{offset}" for queue_id, offset in offsets.items()]) + "}"
        for key, offsets in table.items()
    )
    return f"{{{','.join(entries)}}}".encode()


def _table(tree: Any) -> OffsetTable:
    return {
        str(key): {int(queue_id): int(offset) for queue_id, offset in offsets.items()}
        for key, offsets in (tree or {}).items()
    }
