"""PopPositions: the offset at which a group's next pop of a queue begins.

Java counterpart: getPopOffset, getInitOffset and resetPopOffset of
broker/processor/PopMessageProcessor.java of 5.5.0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ...common.topic_names import RETRY_TOPIC_PREFIX
from ...disk.errors import StoreError
from ...store.message_store import MessageStore
from ..settings.pop_config import PopConfig
from ..tables.consumer_offset_manager import SEPARATOR, ConsumerOffsetManager
from .buffer import PopBuffer, PopOrder

INIT_MIN: Final = 0
"""initMode of a group that begins at the first message. Source: common/constant/ConsumeInitMode."""


class PopPositions:
    """The positions of all groups.

    Args:
      store: already loaded.
      buffer: the pops that they have not passed.
      on_reset: called with topic, group and queue id when an offset was set by an administrator.
    """

    def __init__(
        self,
        config: PopConfig,
        store: MessageStore,
        offsets: ConsumerOffsetManager,
        buffer: PopBuffer,
        on_reset: Callable[[str, str, int], None],
    ) -> None:
        self._on_reset = on_reset
        self._config = config
        self._store = store
        self._offsets = offsets
        self._buffer = buffer

    def next(
        self, offset_key: str, topic: str, queue_id: int, order: PopOrder | None, init_mode: int
    ) -> int:
        """The offset at which a pop begins; a first one, and one that was reset, is committed.

        Args:
          offset_key: of topic and group in the table of offsets.
          topic: the queue's, maybe a retry topic.
          order: the pops of the queue by the group; None if there was none lately.
          init_mode: where a group begins that has no offset.
        """
        offsets = self._offsets
        if offsets.reset_offset_table:
            reset = offsets.take_reset_offset(offset_key, queue_id)
            if reset is not None:
                # What the buffer has of earlier pops must not move the offset behind the reset.
                if order is not None:
                    self._buffer.restart(order)
                self._on_reset(topic, offset_key.partition(SEPARATOR)[2], queue_id)
                offsets.commit_by_key(offset_key, queue_id, reset)
                return reset
        table = offsets.offset_table.get(offset_key)
        offset = -1 if table is None else table.get(queue_id, -1)
        if offset < 0:
            offset = self._first(topic, queue_id, init_mode)
            offsets.commit_by_key(offset_key, queue_id, offset)
        if order is not None and order.entries:
            # Popped, but its check point waits in memory: the committed offset is still before it.
            waiting = order.entries[-1].next_offset
            if waiting > offset:
                return waiting
        return offset

    def peek(self, topic: str, group: str, queue_id: int) -> int:
        """The same without any effect; a group without an offset begins at the first message."""
        offset = self._offsets.query_offset(group, topic, queue_id)
        if offset < 0:
            offset = self._store.min_offset(topic, queue_id)
        return max(offset, self._buffer.next_offset(topic, group, queue_id))

    def _first(self, topic: str, queue_id: int, init_mode: int) -> int:
        """Where a group begins that has no offset."""
        store = self._store
        least = store.min_offset(topic, queue_id)
        if init_mode == INIT_MIN or topic.startswith(RETRY_TOPIC_PREFIX):
            return max(least, 0)
        if (
            self._config.init_pop_offset_by_check_msg_in_mem
            and least <= 0
            and self._has_first_in_memory(topic, queue_id)
        ):
            return 0
        return max(store.max_offset(topic, queue_id) - 1, 0)

    def _has_first_in_memory(self, topic: str, queue_id: int) -> bool:
        """Whether the first message is near enough to the log's end to be in memory."""
        try:
            first = self._store.get_message(topic, queue_id, 0, 1)
        except StoreError:
            return False
        return first.count > 0 and not first.suggest_pulling_from_slave
