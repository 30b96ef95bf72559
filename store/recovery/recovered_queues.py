"""The state of each queue while recovery reads the log: collected units and inconsistencies.

A queue's offsets rise by one from record to record. Where they do not, either the topic was deleted
and created again (it begins at 0 again), or records are in a hole of the log (blank units stand for
them), or the queue's files are wrong: the queue is then rebuilt from the whole log.

Nothing on disk is changed here, and the queues are only read.
"""

from __future__ import annotations

import logging

from ...common.message_properties import INNER_MULTI_DISPATCH_NAME
from ...remoting.sys_flag import INNER_BATCH, TRANSACTION_PREPARED_TYPE
from ..format import UNIT, UNIT_SIZE, Key
from ..log.log_reader import ScannedRecord
from ..queues.consume_queue import PRE_BLANK
from ..queues.consume_queue_store import ConsumeQueueStore
from ..queues.projection import LIGHT_PREFIX, Places, light_places

logger = logging.getLogger(__name__)

UNITS_MAX = 4 * 1024 * 1024
"""Units kept in memory, 80 MiB: four GiB of log with 1 KiB records. The rest of the log is read a
second time when the queues are built."""

BLANKS_MAX = 1 << 20
"""Blank units for one gap; a larger gap is a damaged queue offset."""

LIGHT_BLANKS_MAX = 1000
"""Blank units for one gap in a light queue; after a larger gap the queue begins anew."""

_pack_unit = UNIT.pack


class RecoveredQueue:
    """The state of one queue.

    Attributes:
      kept: queue offset up to which the units on disk are kept; -1: its files are removed.
      first: queue offset of the first collected unit.
      next: expected queue offset of the next record.
      units: collected, 20 bytes each.
      is_known: a unit is kept, or a record was seen.
      is_late: its units are not collected but created when the queues are built: they need data
        that a unit does not hold.
      is_batch: of a batch topic; its offsets may have gaps.
      is_ignored: the topic was deleted; its last records are ignored.
    """

    __slots__ = (
        "first",
        "is_batch",
        "is_ignored",
        "is_known",
        "is_late",
        "kept",
        "next",
        "units",
    )

    def __init__(self, kept: int) -> None:
        self.kept = kept
        self.first = self.next = max(kept, 0)
        self.is_known = kept > 0
        self.is_late = self.is_batch = self.is_ignored = False
        self.units = bytearray()

    def begin(self, queue_offset: int) -> None:
        """Drop all units: the queue begins here."""
        self.kept = -1
        self.first = self.next = queue_offset
        self.units.clear()
        self.is_known = True
        self.is_ignored = False


class UnexplainedOffsetError(Exception):
    """The queue offset of a record is inconsistent with the log before it."""


class RecoveredQueues:
    """All queues during one reading of the log.

    Args:
      queue_store: loaded; only read.
      places: the rules of dispatching.
      kept: queue offset up to which units are kept, by queue; other queues keep none.
      dispatch_from: records before this physical offset are in their queues already.
      rebuilding: queues to rebuild: all their records are taken.
      whole_log: no record is in its queue already, so a queue may begin with any offset.
      from_0: the log's first byte is the first one ever written.
      at_checkpoint: the queues that existed at the checkpoint; None: unknown.
      begun_midway: the log began as a copy of an older one, see `QueueEnds`.

    Attributes:
      by_key: the queues with records so far.
      unit_count: collected units of all queues.
      is_full: no more units are collected.
      after_hole: the reading passed a hole, which explains gaps.
      damaged: inconsistent queues; their records are left out, and they have to be rebuilt.
    """

    def __init__(
        self,
        queue_store: ConsumeQueueStore,
        places: Places,
        kept: dict[Key, int],
        *,
        dispatch_from: int,
        rebuilding: frozenset[Key],
        whole_log: bool,
        from_0: bool,
        at_checkpoint: frozenset[Key] | None,
        begun_midway: bool = False,
    ) -> None:
        self.by_key: dict[Key, RecoveredQueue] = {}
        self.unit_count = 0
        self.is_full = False
        self.after_hole = False
        self.damaged: set[Key] = set()
        self._queue_store = queue_store
        self._places = places
        self._kept = kept
        self._dispatch_from = dispatch_from
        self._rebuilding = rebuilding
        self._whole_log = whole_log
        self._from_0 = from_0
        self._begun_midway = begun_midway
        self._at_checkpoint = at_checkpoint
        self._impossible: set[Key] = set()

    def feed(self, record: ScannedRecord) -> None:
        """Add one record; call it in the log's order.

        Raises:
          UnexplainedOffsetError: the queue offset is inconsistent in a queue that is being rebuilt,
            so the log itself is wrong; the record was not added.
        """
        (
            physical_offset, _, topic, queue_id, queue_offset, sys_flag, timestamp_ms, properties,
        ) = record  # fmt: skip
        key = (topic, queue_id)
        if physical_offset < self._dispatch_from and not self._rebuilding:
            return
        if sys_flag & TRANSACTION_PREPARED_TYPE:
            return
        code = self._places.tags_code(topic, timestamp_ms, properties)
        self._place(key, queue_offset, code, record)
        if INNER_MULTI_DISPATCH_NAME in properties:
            for place in light_places(properties, code):
                self._place(place.key, place.queue_offset, code, record)

    def _place(self, key: Key, queue_offset: int, code: int, record: ScannedRecord) -> None:
        physical_offset, size, _, _, _, sys_flag, _, _ = record
        if physical_offset < self._dispatch_from and key not in self._rebuilding:
            return
        state = self.by_key.get(key) or self._open(key, sys_flag)
        if state is None:
            return
        if queue_offset != state.next or not state.is_known:
            if not state.is_batch and not self._explain(key, state, queue_offset):
                return
            state.is_known = True
        state.next = queue_offset + 1
        if not (self.is_full or state.is_late):
            state.units += _pack_unit(physical_offset, size, code)
            self.unit_count += 1

    def _open(self, key: Key, sys_flag: int) -> RecoveredQueue | None:
        topic, queue_id = key
        if key in self._impossible:
            return None
        queue = self._queue_store.queues.get(key)
        if queue is None and not self._queue_store.is_possible(topic, queue_id):
            logger.error(
                "queue %(queue_id)d of topic %(topic)r is impossible; its messages stay in the "
                "log but are not served",
                {"queue_id": key[1], "topic": key[0]},
            )
            self._impossible.add(key)
            return None
        rebuild = key in self._rebuilding
        # -1: the first record says where it begins.
        state = self.by_key[key] = RecoveredQueue(-1 if rebuild else self._kept.get(key, 0))
        if queue is not None:
            state.is_batch = queue.is_batch
        else:
            state.is_batch = topic in self._queue_store.batch_topics or bool(sys_flag & INNER_BATCH)
        state.is_late = state.is_batch or self._queue_store.writes_ext
        return state

    def _explain(self, key: Key, state: RecoveredQueue, queue_offset: int) -> bool:
        """Handle a record whose offset is not the next one; False: it is left out.

        Raises:
          UnexplainedOffsetError: see `feed`.
        """
        if key in self.damaged:
            return False
        if key[0].startswith(LIGHT_PREFIX):
            return self._explain_light(state, queue_offset)
        if not state.is_known:
            return self._begin(key, state, queue_offset)
        if queue_offset < state.next:
            if queue_offset == 0:
                logger.info(
                    "queue %(queue_id)d of topic %(topic)s begins again at %(queue_offset)d",
                    {"queue_id": key[1], "topic": key[0], "queue_offset": queue_offset},
                )
                state.begin(queue_offset)
                return True
            if state.first <= queue_offset and key in self._rebuilding:
                # Two records have the same queue offset: neither is trusted.
                at = (queue_offset - state.first) * UNIT_SIZE
                if at < len(state.units):
                    state.units[at : at + UNIT_SIZE] = PRE_BLANK
            return self._refuse(key, state, queue_offset)
        gap = queue_offset - state.next
        if not self.after_hole or gap > BLANKS_MAX:
            return self._refuse(key, state, queue_offset)
        if not (self.is_full or state.is_late):
            state.units += PRE_BLANK * gap
            self.unit_count += gap
        return True

    def _explain_light(self, state: RecoveredQueue, queue_offset: int) -> bool:
        """`_explain` of a light queue: senders control its offsets, so no offset is damage."""
        if state.is_known and 0 < queue_offset < state.next:
            return False
        gap = queue_offset - state.next
        if not state.is_known or not 0 < gap <= LIGHT_BLANKS_MAX:
            state.begin(queue_offset)
        elif not (self.is_full or state.is_late):
            state.units += PRE_BLANK * gap
            self.unit_count += gap
        return True

    def _begin(self, key: Key, state: RecoveredQueue, queue_offset: int) -> bool:
        """Handle the first record of a queue without units."""
        known = self._at_checkpoint
        is_new = known is not None and key not in known and key not in self._rebuilding
        if queue_offset > 0 and is_new and not (self.after_hole or self._begun_midway):
            # A new queue begins at 0, so this one is older and was deleted since.
            if not state.is_ignored:
                logger.info(
                    "the last messages of the deleted topic %(topic)s are left out",
                    {"topic": key[0]},
                )
            state.is_ignored = True
            return False
        state.is_ignored = False
        if queue_offset > 0 and not (is_new or self._whole_log or key in self._rebuilding):
            return self._refuse(key, state, queue_offset)
        from_0 = self.after_hole and (is_new or self._from_0)
        if not from_0 or queue_offset > BLANKS_MAX:
            state.first = queue_offset
        elif not (self.is_full or state.is_late):
            state.units += PRE_BLANK * queue_offset
            self.unit_count += queue_offset
        return True

    def _refuse(self, key: Key, state: RecoveredQueue, queue_offset: int) -> bool:
        if key in self._rebuilding:
            raise UnexplainedOffsetError(
                f"the record is message {queue_offset} of queue {key[1]} of topic {key[0]}, where "
                f"{state.next} would be the next"
            )
        logger.warning(
            "queue %(queue_id)d of topic %(topic)s ends at %(queue_end)d, but its next record in "
            "the log is %(queue_offset)d: it is rebuilt from the log",
            {
                "queue_id": key[1],
                "topic": key[0],
                "queue_end": state.next,
                "queue_offset": queue_offset,
            },
        )
        self.damaged.add(key)
        return False
