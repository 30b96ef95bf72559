"""ConsumerOrderInfoManager: which queues are blocked, because a group consumes them in order.

A pop in order gets no message of a queue while an earlier one is neither acknowledged nor visible
again. The table has an `OrderInfo` for each queue with such messages, and is saved as
`consumerOrderInfo.json`, so that a restart does not give the messages of one consumer to another.

An entry goes when its last message is acknowledged: what RocketMQ keeps of it then is never used.

Java counterpart: broker/pop/orderly/QueueLevelConsumerManager.java of 5.5.0
(broker/offset/ConsumerOrderInfoManager.java of 5.1). Pure, but for the `save` it is given; times
are arguments.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from ...common.steps import Steps, at_once
from ...disk.json_config import parse
from ...disk.state_file import Save, StateFile
from ...remoting.number_fields import QUEUE_ID
from ..tables.config_text import CONSUMER_ORDERS
from ..tables.consumer_offset_manager import SEPARATOR, key_of
from ..tables.table_numbers import whole_number
from .order_info import OrderInfo

logger = logging.getLogger(__name__)

QUEUES_MAX: Final = 100_000
"""Queues, counted for each group, with messages that were popped in order and not acknowledged:
some 100 MB at the worst. RocketMQ has no bound."""

KEPT_MS: Final = 24 * 3600 * 1000
"""How long an entry is kept without a pop. Source: CLEAN_SPAN_FROM_LAST."""

ILLEGAL: Final = -1
"""The acknowledged offset is not one of those that were popped."""

UNKNOWN: Final = -2
"""The acknowledgement is of an earlier pop: it changes nothing."""

_STEP_ENTRIES: Final = 100
"""Entries of up to 32 messages per step: some 5 ms."""


class ConsumerOrderInfoManager:
    """The table of queues with messages in order. Not thread-safe: of the broker's one trio run.

    Args:
      queues_max: see QUEUES_MAX.

    Attributes:
      count: number of entries.
    """

    def __init__(self, *, save: Save, queues_max: int = QUEUES_MAX) -> None:
        self.file = StateFile(
            CONSUMER_ORDERS, "messages in order", save, self.encode_in_steps, is_lazy=True
        )
        self.count = 0
        self._queues_max = queues_max
        self._table: dict[str, dict[int, OrderInfo]] = {}

    def find(self, topic: str, group: str, queue_id: int) -> OrderInfo | None:
        """The messages of a queue that are not all acknowledged; read-only."""
        queues = self._table.get(key_of(topic, group))
        return None if queues is None else queues.get(queue_id)

    def queues_of(self, topic: str, group: str) -> Sequence[tuple[int, OrderInfo]]:
        """The queues of a topic with messages that a group did not acknowledge; read-only."""
        return sorted(self._table.get(key_of(topic, group), {}).items())

    def entries(self) -> Iterator[tuple[str, str, int, OrderInfo]]:
        """Topic, group, queue id and messages of all entries, as they are now."""
        for key, queues in list(self._table.items()):
            topic, _, group = key.partition(SEPARATOR)
            for queue_id, info in list(queues.items()):
                yield topic, group, queue_id, info

    def has_room(self, topic: str, group: str, queue_id: int) -> bool:
        """Whether a pop from a queue may be recorded: it has an entry, or the table is not full."""
        return self.count < self._queues_max or self.find(topic, group, queue_id) is not None

    def check_block(
        self,
        attempt_id: str | None,
        topic: str,
        group: str,
        queue_id: int,
        *,
        invisible_time: int,
        now_ms: int,
    ) -> bool:
        """Whether a pop must not get messages of a queue now; see `OrderInfo.blocks`."""
        info = self.find(topic, group, queue_id)
        return info is not None and info.blocks(attempt_id, invisible_time, now_ms)

    def update(
        self,
        attempt_id: str | None,
        topic: str,
        group: str,
        queue_id: int,
        *,
        pop_time: int,
        invisible_time: int,
        offsets: Sequence[int],
    ) -> OrderInfo:
        """Record a pop; return its entry, with the numbers of earlier pops.

        Args:
          attempt_id: of the pop, of at most ATTEMPT_ID_LENGTH_MAX characters.
          topic, group, queue_id: they exist.
          pop_time: now, ms since 1970.
          invisible_time: ms after `pop_time`.
          offsets: queue offsets of the messages, rising, one at least and POP_COUNT_MAX at most.
        Source: QueueLevelConsumerManager.update.
        """
        queues = self._table.setdefault(key_of(topic, group), {})
        before = queues.get(queue_id)
        info = OrderInfo(attempt_id, pop_time, invisible_time, tuple(offsets), pop_time)
        if before is None:
            self.count += 1
        else:
            info.count_from(before)
        queues[queue_id] = info
        self.file.is_dirty = True
        return info

    def commit_and_next(
        self, topic: str, group: str, queue_id: int, offset: int, *, pop_time: int
    ) -> int:
        """Acknowledge a message.

        Args:
          topic, group, queue_id: of the message; they need not be known.
          offset: the message's queue offset.
          pop_time: of its receipt.
        Returns: the offset to commit, ILLEGAL or UNKNOWN. A queue without an entry is UNKNOWN;
          RocketMQ commits `offset` + 1 then, which may skip messages.
        Source: QueueLevelConsumerManager.commitAndNext.
        """
        info = self._of_pop(topic, group, queue_id, pop_time)
        if info is None:
            return UNKNOWN
        if not info.ack(offset):
            return ILLEGAL
        self.file.is_dirty = True
        # Its last acknowledgement frees the queue for the next pop.
        if info.is_all_acked:
            self.clear_block(topic, group, queue_id)
        return info.next_offset

    def update_next_visible_time(
        self, topic: str, group: str, queue_id: int, offset: int, *, pop_time: int, visible_ms: int
    ) -> bool:
        """Set when a message becomes visible again; False: it is not one of its pop's messages.

        Args:
          topic, group, queue_id, offset, pop_time: as of `commit_and_next`.
          visible_ms: ms since 1970.
        Source: QueueLevelConsumerManager.updateNextVisibleTime.
        """
        info = self._of_pop(topic, group, queue_id, pop_time)
        if info is None or not info.change_visible(offset, visible_ms):
            return False
        self.file.is_dirty = True
        return True

    def _of_pop(self, topic: str, group: str, queue_id: int, pop_time: int) -> OrderInfo | None:
        info = self.find(topic, group, queue_id)
        if info is not None and info.pop_time == pop_time:
            return info
        logger.info(
            "a receipt of %(key)s queue %(queue_id)d is of the pop at %(pop_time)d, but the last "
            "one was at %(last)s: it changes nothing",
            {
                "key": key_of(topic, group),
                "queue_id": queue_id,
                "pop_time": pop_time,
                "last": "an unknown time" if info is None else info.pop_time,
            },
        )
        return None

    def clear_block(self, topic: str, group: str, queue_id: int) -> None:
        """Forget the messages of a queue, because its offset is reset or they are consumed."""
        key = key_of(topic, group)
        queues = self._table.get(key, {})
        if queues.pop(queue_id, None) is not None:
            self.count -= 1
            self.file.is_dirty = True
            if not queues:
                del self._table[key]

    def remove_topic(self, topic: str) -> None:
        """Forget the messages of a deleted topic."""
        self._remove([key for key in self._table if key.startswith(f"{topic}{SEPARATOR}")])

    def remove_group(self, group: str) -> None:
        """Forget the messages of a deleted group."""
        self._remove([key for key in self._table if key.endswith(f"{SEPARATOR}{group}")])

    def _remove(self, keys: Iterable[str]) -> None:
        for key in keys:
            self.count -= len(self._table.pop(key))
            self.file.is_dirty = True

    def clean(
        self,
        now_ms: int,
        *,
        queue_count: Callable[[str], int],
        has_group: Callable[[str], bool],
    ) -> Steps[None]:
        """Steps that drop entries without a topic, group or queue, and those that are too old.

        Args:
          now_ms: ms since 1970.
          queue_count: returns how many queues of a topic can be read; 0: it does not exist.
          has_group: returns whether a group exists.
        Source: QueueLevelConsumerManager.autoClean.
        """
        for number, (topic, group, queue_id, info) in enumerate(self.entries(), 1):
            if queue_id >= queue_count(topic) or not has_group(group):
                reason = "its topic, group or queue is gone"
            elif now_ms - info.last_consume_ms > KEPT_MS:
                reason = "it was not consumed for a day"
            # Such an entry would never grow old.
            elif info.last_consume_ms - now_ms > KEPT_MS:
                reason = "it was consumed in the future: the clock was set back"
            else:
                reason = ""
            # A pop may have replaced it since this step began.
            if reason and self.find(topic, group, queue_id) is info:
                logger.info(
                    "the messages in order of %(key)s queue %(queue_id)d are forgotten, because "
                    "%(reason)s: those that were not acknowledged are delivered again",
                    {"key": key_of(topic, group), "queue_id": queue_id, "reason": reason},
                )
                self.clear_block(topic, group, queue_id)
            if number % _STEP_ENTRIES == 0:
                yield

    def correct(
        self,
        committed: Callable[[str, str, int], int],
        max_offset: Callable[[str, int], int],
    ) -> None:
        """Compare the table that was read with the offsets and the store, which may be newer.

        Messages before the group's offset count as acknowledged. An entry past the end of its queue
        is dropped: the log lost those messages, and others get their offsets.

        Args:
          committed: returns a group's offset, of group, topic and queue id.
          max_offset: returns the next offset of a queue, of topic and queue id.
        """
        for topic, group, queue_id, info in self.entries():
            done = committed(group, topic, queue_id)
            for offset in info.offsets:
                if offset < done:
                    self.file.is_dirty |= info.ack(offset)
            if info.is_all_acked or info.offsets[-1] >= max_offset(topic, queue_id):
                self.clear_block(topic, group, queue_id)

    # The file

    def encode(self) -> bytes:
        """The text of `consumerOrderInfo.json`."""
        return at_once(self.encode_in_steps())

    def encode_in_steps(self) -> Steps[bytes]:
        """Steps that encode `consumerOrderInfo.json`; each step reads the entries of its moment."""
        parts: list[bytes] = []
        keys = entries = 0
        for key in list(self._table):
            before = len(parts)
            for queue_id in list(self._table.get(key, ())):
                info = self._table.get(key, {}).get(queue_id)
                if info is not None:
                    head = b",\n\t\t\t%d:" if len(parts) > before else b"%d:"
                    parts += (head % queue_id, info.written())
                entries += 1
                if entries % _STEP_ENTRIES == 0:
                    yield
            if len(parts) > before:
                head = b",\n\t\t%b:{\n\t\t\t" if keys else b"{\n\t\t%b:{\n\t\t\t"
                parts.insert(before, head % msgspec.json.encode(key))
                parts.append(b"\n\t\t}")
                keys += 1
        yield
        head = b'{\n\t"orderInfoCount":%d,\n\t"orderedConsumptionLevel":"QUEUE",\n\t"table":' % keys
        return b"".join((head, *parts, b"\n\t}\n}" if keys else b"{}\n}"))

    def decode(self, text: bytes) -> int:
        """Replace the table by the content of `consumerOrderInfo.json`.

        Entries that cannot be used are left out, with a warning: their messages are delivered
        again.

        Args:
          text: the file's text, as RocketMQ from 5.0 on or this class wrote it.
        Returns: the number of entries.
        Raises: ValueError: the text is not such a table; nothing is changed then.
        """
        tree = parse(text).get("table")
        if not isinstance(tree, dict | None):
            raise ValueError(f"not a table of messages in order, but a {type(tree).__name__}")
        table: dict[str, dict[int, OrderInfo]] = {}
        self.file.is_dirty = False
        for key, queues in (tree or {}).items():
            found = dict(self._readable(key, queues))
            if found:
                table[key] = found
        self._table = table
        self.count = sum(map(len, table.values()))
        return self.count

    def _readable(self, key: str, queues: Any) -> Iterable[tuple[int, OrderInfo]]:
        """The entries of one topic@group that can be used and are needed."""
        problem = "" if key.count(SEPARATOR) == 1 else "its name is not topic@group"
        for queue, tree in queues.items() if isinstance(queues, dict) else [(0, queues)]:
            try:
                if problem:
                    raise ValueError(problem)
                queue_id, info = whole_number(queue), OrderInfo.read(tree)
                if not QUEUE_ID.has(queue_id):
                    raise ValueError(f"{queue_id} is not a queue id")
            except ValueError as error:
                # The next save writes the file without it.
                self.file.is_dirty = True
                logger.warning(
                    "%(file)s: the entry of %(key)s queue %(queue)s is left out, and its messages "
                    "are delivered again: %(error)s",
                    {"file": self.file.name, "key": key, "queue": queue, "error": error},
                )
            else:
                if not info.is_all_acked:
                    yield queue_id, info
