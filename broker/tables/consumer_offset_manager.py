"""ConsumerOffsetManager: the offsets that consumer groups have committed, by topic and queue.

Offsets are kept in memory; the controller saves them every `flushConsumerOffsetInterval` (5 s) and
at a clean stop. After a crash a group starts at the last saved ones and gets some messages again,
as with RocketMQ.

Java counterpart: broker/offset/ConsumerOffsetManager.java of 5.3.3; the file is that of 5.5.0
(`groupTopicMap` and `pullOffsetTable` are not in older ones). Pure, but for the `save` it is given.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from ...common.clock import Clock
from ...common.steps import STEP_ITEMS, Steps, at_once, in_parts, json_members
from ...common.topic_names import TRANSACTION_GROUP
from ...disk.json_config import parse
from ...disk.state_file import Save, StateFile
from ...remoting.bodies import DataVersion
from .config_text import CONSUMER_OFFSETS, Json, next_version, pretty, written, written_in_steps
from .table_numbers import correct_offsets, correct_version, whole_number

logger = logging.getLogger(__name__)

SEPARATOR: Final = "@"
"""Between topic and group in a key; neither may contain it."""

VERSION_STEP: Final = 500
"""Commits per data version. RocketMQ: consumerOffsetUpdateVersionStep."""

OffsetTable = dict[str, dict[int, int]]
"""Offset by queue id, by topic@group."""


def key_of(topic: str, group: str) -> str:
    """The key of a topic and a group in the tables."""
    return f"{topic}{SEPARATOR}{group}"


class ConsumerOffsetManager:
    """The table of consumer offsets. Not thread-safe: used from the broker's one trio run.

    Args:
      clock: gives the data version's time.

    Attributes:
      reset_offset_table: offsets to which an administrator has set a group and which its next pull
        is sent to; not saved, but `offset_table` has them, too. Offsets that clients commit
        meanwhile are ignored.
      is_corrected: the file that was read had impossible numbers.
      first_keys: keys whose offsets are saved, and sent to slaves, as they are when that begins;
        those of other keys may be newer.
      on_reset: called after `assign_reset_offset`.
    """

    def __init__(self, *, clock: Clock, save: Save) -> None:
        self.file = StateFile(
            CONSUMER_OFFSETS, "consumer offsets", save, self.encode_in_steps, is_lazy=True
        )
        self._clock = clock
        self._commits = 0
        self.is_corrected = False
        self.first_keys: tuple[str, ...] = ()
        self.on_reset: Callable[[], None] = lambda: None
        self.data_version = DataVersion(timestamp=clock.wall_ms(), counter=0)
        self.offset_table: OffsetTable = {}
        self.pull_offset_table: OffsetTable = {}
        self.reset_offset_table: OffsetTable = {}

    def commit_offset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Record how far a group has consumed a queue.

        Args:
          group: consumer group, checked by the caller.
          topic: checked by the caller.
          queue_id: of the topic, >= 0, checked by the caller.
          offset: the next queue offset to consume; less than before is allowed (a reset).
        """
        self.commit_by_key(key_of(topic, group), queue_id, offset)

    def commit_by_key(self, key: str, queue_id: int, offset: int) -> None:
        """`commit_offset` by the `key_of` topic and group."""
        table = self.offset_table.get(key)
        if table is None:
            table = self.offset_table[key] = {}
        before = table.get(queue_id)
        table[queue_id] = offset
        if before is not None and offset < before:
            logger.warning(
                "the offset of %(key)s queue %(queue_id)d goes back from %(before)d to "
                "%(offset)d: the group consumes those messages again",
                {"key": key, "queue_id": queue_id, "before": before, "offset": offset},
            )
        self.file.is_dirty = True
        self._commits += 1
        if self._commits % VERSION_STEP == 0:
            self.data_version = next_version(self.data_version, self._clock.wall_ms())

    def clone_offset(self, source: str, target: str, topic: str) -> None:
        """Give a group the offsets of another one in a topic, and no others there.

        Nothing changes if the source has none. Source: ConsumerOffsetManager.cloneOffset.
        """
        offsets = self.offset_table.get(key_of(topic, source))
        if offsets is None:
            return
        known = self.offset_table.get(key_of(topic, target), {})
        for queue_id in known.keys() - offsets.keys():
            del known[queue_id]
        for queue_id, offset in list(offsets.items()):
            self.commit_offset(target, topic, queue_id, offset)

    def count_commits(self, count: int) -> None:
        """Count commits that the C extension has put into the table, for its version."""
        steps = self._commits // VERSION_STEP
        self._commits += count
        for _ in range(self._commits // VERSION_STEP - steps):
            self.data_version = next_version(self.data_version, self._clock.wall_ms())

    def commit_within(
        self, group: str, topic: str, queue_id: int, offset: int, end: int, *, is_slave: bool
    ) -> bool:
        """Commit an offset unless it is past the queue's end.

        An offset past the end would hide the next messages. A master has every message that its
        consumers can have seen, except after a power cut, so there the offset is wrong. A slave may
        lag: it commits its queue's end instead, or keeps a known offset that is past the end, too,
        because a hole in the log may end queues early.

        Args:
          group, topic, queue_id: as for `commit_offset`.
          offset: the next queue offset to consume, >= 0.
          end: the queue's next offset.
          is_slave: whether the broker is a slave.
        Returns: whether an offset was committed.
        """
        if offset > end:
            if not is_slave:
                return False
            offset = min(offset, max(end, self.query_offset(group, topic, queue_id)))
        self.commit_offset(group, topic, queue_id, offset)
        return True

    def query_offset(self, group: str, topic: str, queue_id: int) -> int:
        """The committed offset of a group on a queue.

        Returns: the next queue offset to consume; -1: none is known.
        """
        table = self.offset_table.get(f"{topic}@{group}")
        return -1 if table is None else table.get(queue_id, -1)

    def assign_reset_offset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Set a group to an offset, whatever its clients commit before their next pulls.

        Source: ConsumerOffsetManager.assignResetOffset.
        """
        key = key_of(topic, group)
        self.commit_by_key(key, queue_id, offset)
        self.reset_offset_table.setdefault(key, {})[queue_id] = offset
        self.on_reset()

    def has_offset_reset(self, group: str, topic: str, queue_id: int) -> bool:
        """Whether a group has not pulled since its offset was set."""
        return queue_id in self.reset_offset_table.get(key_of(topic, group), ())

    def take_reset_offset(self, key: str, queue_id: int) -> int | None:
        """The offset to which an administrator set a group, once; None if there is none.

        Source: ConsumerOffsetManager.queryThenEraseResetOffset.
        """
        offsets = self.reset_offset_table.get(key)
        if offsets is None:
            return None
        offset = offsets.pop(queue_id, None)
        if not offsets:
            del self.reset_offset_table[key]
        return offset

    def commit_pull_by_key(self, key: str, queue_id: int, offset: int) -> None:
        """Record the offset of a group's last pull; the arguments are those of `commit_by_key`."""
        table = self.pull_offset_table.get(key)
        if table is None:
            table = self.pull_offset_table[key] = {}
        table[queue_id] = offset
        self.file.is_dirty = True

    def _pairs(self, keys: Iterable[str]) -> Iterator[tuple[str, str, str]]:
        for key in keys:
            topic, separator, group = key.partition(SEPARATOR)
            if separator and SEPARATOR not in group:
                yield key, topic, group

    def which_topic_by_consumer(self, group: str) -> set[str]:
        return {
            key.removesuffix(f"{SEPARATOR}{group}")
            for key in self._keys_of_group(self.offset_table, group)
            if key.count(SEPARATOR) == 1
        }

    def which_group_by_topic(self, topic: str) -> set[str]:
        return {
            key.removeprefix(f"{topic}{SEPARATOR}")
            for key in self._keys_of_topic(self.offset_table, topic)
            if key.count(SEPARATOR) == 1
        }

    def clean_offset_by_topic(self, topic: str) -> None:
        """Drop the offsets of a deleted topic."""
        self._remove(self._keys_of_topic, topic)

    def remove_offset(self, group: str) -> None:
        """Drop the offsets of a deleted group."""
        self._remove(self._keys_of_group, group)

    # One pass over 100,000 keys each, some 5 ms, so the loop calls nothing but the string method.

    @staticmethod
    def _keys_of_topic(table: OffsetTable, topic: str) -> list[str]:
        prefix = f"{topic}{SEPARATOR}"
        return [key for key in table if key.startswith(prefix)]

    @staticmethod
    def _keys_of_group(table: OffsetTable, group: str) -> list[str]:
        suffix = f"{SEPARATOR}{group}"
        return [key for key in table if key.endswith(suffix)]

    def _remove(self, keys_of: Callable[[OffsetTable, str], list[str]], name: str) -> None:
        for table in (self.offset_table, self.pull_offset_table, self.reset_offset_table):
            for key in keys_of(table, name):
                logger.info(
                    "the offsets of %(key)s are dropped: %(offsets)s",
                    {"key": key, "offsets": table.pop(key)},
                )
                self.file.is_dirty = True

    def correct(self, max_offset: Callable[[str, int], int]) -> None:
        """Set offsets that are past the end of their queue back to that end.

        Args:
          max_offset: next queue offset, of topic and queue id.
        """
        forgotten = False
        for noun, table, where in (
            ("offset", self.offset_table, "the queue's end"),
            ("pull offset", self.pull_offset_table, "that end"),
        ):
            for key, offsets in table.items():
                topic, _, group = key.partition(SEPARATOR)
                for queue_id, offset in offsets.items():
                    end = max_offset(topic, queue_id)
                    if offset > end:
                        logger.warning(
                            "%(file)s: the %(offset_kind)s of %(key)s queue %(queue_id)d is "
                            "%(offset)d, but the queue ends at %(end)d: it goes back to %(used)s",
                            {
                                "file": CONSUMER_OFFSETS,
                                "offset_kind": noun,
                                "key": key,
                                "queue_id": queue_id,
                                "offset": offset,
                                "end": end,
                                "used": "0, as all offsets of this group do"
                                if group == TRANSACTION_GROUP
                                else where,
                            },
                        )
                        # A power cut under ASYNC_FLUSH may lose messages whose consumption was
                        # saved already. Without the correction the group would skip the messages
                        # that are stored in their place (L15), as with RocketMQ.
                        offsets[queue_id] = end
                        self.file.is_dirty = self.is_corrected = True
                        forgotten |= group == TRANSACTION_GROUP
        # The transactions' offsets are saved only after the log is on the device. So one that is
        # past the end does not come from a power cut: it is wrong, and 0 is used. Otherwise open
        # half messages would be lost.
        if forgotten:
            for topic in self.which_topic_by_consumer(TRANSACTION_GROUP):
                self.offset_table[f"{topic}{SEPARATOR}{TRANSACTION_GROUP}"] = {0: 0}

    def put_offset(self, key: str, queue_id: int, offset: int) -> None:
        """Set an offset that a slave copied from its master; `key` is topic@group."""
        self.offset_table.setdefault(key, {})[queue_id] = offset
        self.file.is_dirty = True

    def drop_offset(self, key: str, queue_id: int) -> None:
        """Drop an offset that a slave's master has dropped."""
        offsets = self.offset_table.get(key, {})
        if offsets.pop(queue_id, None) is not None:
            self.file.is_dirty = True
            if not offsets:
                del self.offset_table[key]

    def to_body(self) -> Steps[bytes]:
        """Steps that encode the answer to GET_ALL_CONSUMER_OFFSET (43): the file in one line.

        A slave of 5.5.0 cannot parse it with white space: fastjson 2 accepts a bare key only right
        after the brace. Nor can it parse the bare keys of `pullOffsetTable` that its master sends
        (RocketMQ ConsumerOffsetManager): a slave knows no such member, and fastjson 2 passes over
        an unknown member only if its keys are quoted. Such a slave copies no offsets at all, so
        these keys are quoted.
        """
        firsts = self._firsts()
        version = self.data_version.to_body()
        topics = yield from self.topics_by_group()
        parts = (
            b'"dataVersion":%b' % version,
            b'"groupTopicMap":%b' % (yield from json_members(topics, msgspec.json.encode)),
            b'"offsetTable":%b'
            % (yield from json_members(self.offset_table | firsts, compact_table)),
            b'"pullOffsetTable":%b'
            % (yield from json_members(self.pull_offset_table, msgspec.json.encode)),
        )
        return b"{%b}" % b",".join(parts)

    def topics_by_group(self) -> Steps[dict[str, list[Json]]]:
        """Steps that collect the topics for which each group has offsets."""
        topics_of: dict[str, list[Json]] = {}
        for keys in in_parts(list(self.offset_table), STEP_ITEMS):
            for _, topic, group in self._pairs(keys):
                topics_of.setdefault(group, []).append(topic)
            if len(keys) == STEP_ITEMS:
                yield
        return topics_of

    def _firsts(self) -> OffsetTable:
        table = self.offset_table
        return {key: dict(table[key]) for key in self.first_keys if key in table}

    def encode(self) -> bytes:
        """The text of `consumerOffset.json`."""
        return at_once(self.encode_in_steps())

    def encode_in_steps(self) -> Steps[bytes]:
        """Steps that encode `consumerOffset.json`; each step reads the offsets of its moment."""
        firsts = self._firsts()
        version = written(self.data_version, depth=1)
        topics = yield from self.topics_by_group()
        tree = {
            "dataVersion": version,
            "groupTopicMap": (yield from written_in_steps(topics, _written_topics)),
            "offsetTable": (
                yield from written_in_steps(self.offset_table | firsts, _written_offsets)
            ),
            "pullOffsetTable": (
                yield from written_in_steps(dict(self.pull_offset_table), _written_offsets)
            ),
        }
        yield
        return pretty(tree)

    def decode(self, text: bytes) -> int:
        """Replace the table by the content of `consumerOffset.json`.

        Args:
          text: the file's text, as any version of RocketMQ wrote it.
        Returns: the number of keys `topic@group`.
        Raises: ValueError: the text is not a table of offsets; nothing is changed then.
        """
        offsets, pull_offsets, data_version = parse_offsets(text)
        self.offset_table = _corrected(offsets)
        self.pull_offset_table = _corrected(pull_offsets)
        version = data_version or self.data_version
        self.data_version = correct_version(CONSUMER_OFFSETS, version, self.data_version)
        self.is_corrected = self.file.is_dirty = (
            self.offset_table != offsets
            or self.pull_offset_table != pull_offsets
            or self.data_version is not version
        )
        return len(offsets)


def parse_offsets(text: bytes) -> tuple[OffsetTable, OffsetTable, DataVersion | None]:
    """Offsets, pull offsets and their version from `consumerOffset.json` or an answer to 43.

    Raises: ValueError: the text is not a table of offsets.
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


def _written_offsets(key: str, offsets: dict[int, int]) -> bytes:
    lines = ",\n\t\t\t".join([f"{queue_id}:{offset}" for queue_id, offset in offsets.items()])
    return b"%b:{\n\t\t\t%b\n\t\t}" % (msgspec.json.encode(key), lines.encode())


def _written_topics(group: str, topics: list[Json]) -> bytes:
    lines = b",\n\t\t\t".join([msgspec.json.encode(topic) for topic in topics])
    return b"%b:[\n\t\t\t%b\n\t\t]" % (msgspec.json.encode(group), lines)


def compact_table(table: Mapping[str, Mapping[int, int]]) -> bytes:
    """The table as JSON without white space, fastjson's default form."""
    entries = (
        f"{msgspec.json.encode(key).decode()}:"
        "{" + ",".join([f"{queue_id}:{offset}" for queue_id, offset in offsets.items()]) + "}"
        for key, offsets in table.items()
    )
    return f"{{{','.join(entries)}}}".encode()


def _corrected(table: OffsetTable) -> OffsetTable:
    return {key: correct_offsets(CONSUMER_OFFSETS, key, each) for key, each in table.items()}


def _table(tree: Any) -> OffsetTable:
    return {
        str(key): {
            whole_number(queue_id): whole_number(offset) for queue_id, offset in offsets.items()
        }
        for key, offsets in (tree or {}).items()
    }
