"""Bringing log and queues to one state when the store is opened.

Java counterparts: DefaultMessageStore.load/recover, CommitLog.recoverNormally/recoverAbnormally of
5.3.3. What to do at the log's end is decided in recovery.py. Afterwards every consume queue is what
the log says it is, and nothing lies behind the log's end.

Recovery has two halves. `look` reads, and changes nothing on disk: queues are opened on an overlay.
If it finds a hole, the store stays on that overlay: it is whole in memory, read-only, and the
folder is as it was. Else `settle_log` and `build_queues` write, in an order that makes a crash at
any point harmless:

1. The log is cut: later files go, the rest is zeroed and synced. Doing it again, from any state in
   between, finds the same end and decides the same: zeroing takes records away and makes none, and
   sectors that were not written stay unwritten. The abort file comes after that, so a start that
   was clean is clean again.
2. The abort file: from now on the queues may be half built, and the next start does not trust what
   lies behind the checkpoint. Before the checkpoint nothing changes but in queues that are built
   again from their beginning; these are named in queue_ends.trocket, synced, before their folder
   goes, so that the next start builds them again.
3. The queues: what lies behind the checkpoint is overwritten with zeros, then written anew.
4. Log and queues are synced, then queue_ends.trocket, then the checkpoint is written. Until the
   checkpoint is on the device the next start begins where this one did; ends that do not belong to
   the checkpoint do not count, but for the names of queues that were being built again.

What a queue has before the checkpoint is checked by its end only (queue_ends.trocket, and the last
unit's record); units in between are verified when they are read (record_check.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from ...remoting.sys_flag import INNER_BATCH
from ..config import MessageStoreConfig
from ..disk.os_disk import Disk
from ..disk.overlay_disk import OverlayDisk
from ..format import PRE_BLANK_SIZE, UNIT, Key
from ..log.commit_log import CommitLog, file_name
from ..log.log_age import log_end_timestamp_ms
from ..log.log_reader import (
    CANDIDATE_CHUNK,
    NOWHERE,
    Hole,
    LogReader,
    ScannedRecord,
    record_at,
)
from ..queues.batch_consume_queue import BatchUnit, blanks_between, inner_batch
from ..queues.consume_queue import PRE_BLANK, ConsumeQueue
from ..queues.consume_queue_store import ConsumeQueueStore
from ..queues.projection import LIGHT_PREFIX, SCHEDULE_TOPIC, Places, delay_levels_ms
from ..queues.queue_ends import REBUILD, QueueEnds, read_queue_ends, write_queue_ends
from ..queues.unit_check import UnitFault, unit_fault
from .checkpoint import Checkpoint
from .checkpoint_check import correct_checkpoint
from .log_scan import LogScan, ScanResult, describe
from .recovered_queues import BLANKS_MAX, LIGHT_BLANKS_MAX, RecoveredQueue, RecoveredQueues
from .recovery_table import Action, scan_start

__all__ = ["SCHEDULE_TOPIC", "Loader", "delay_levels_ms"]

logger = logging.getLogger(__name__)

UNKNOWN = -1
"""A log start that nothing tells."""

CLOCK_BEHIND_MAX_MS = 3_600_000
"""The newest message may be so much younger than the clock says before a start warns of it."""

NOT_ITS = {UnitFault.MISSING, UnitFault.ELSEWHERE}
"""Faults of a unit that is not its record's at all; those of its tags are left to serving."""

TAIL_BYTES_MAX = 16 * 1024
"""Units of one queue kept in memory while they are made from a second reading."""


@dataclass(slots=True)
class Recovered:
    """What recovery found.

    Attributes:
      end: physical offset to append at.
      start: physical offset from which the log was read.
      newest_ms: the newest store timestamp that a record of the log has; 0: there is none.
      refusal: why the store must be read-only; "": it need not.
      as_closed: nothing was to be done: log and queues are as a clean exit of ours left them.
    """

    end: int
    start: int
    newest_ms: int
    refusal: str = ""
    as_closed: bool = False


class Loader:
    """One recovery: `look`, then `settle_log` if the store may be changed, then `build_queues`.

    Args:
      config, log, queue_store, checkpoint, disk: the store's; log and queues are not loaded yet.
      clean: there was no abort file.
      wall_ms: the wall clock, ms since 1970; the checkpoint's times are checked against it.
    """

    def __init__(
        self,
        config: MessageStoreConfig,
        log: CommitLog,
        queue_store: ConsumeQueueStore,
        checkpoint: Checkpoint,
        disk: Disk,
        *,
        clean: bool,
        wall_ms: int,
    ) -> None:
        self._config = config
        self._log = log
        self._wall_ms = wall_ms
        self._queue_store = queue_store
        self._checkpoint = checkpoint
        self._disk = disk
        self._clean = clean
        self._overlay = OverlayDisk(disk)
        self._places = Places(config.message_delay_level)
        self._start = self._dispatch_from = 0
        self._ends: QueueEnds | None = None
        self._log_start = UNKNOWN
        self._begun_midway = False
        self._has_foreign = False
        self._kept: dict[Key, int] = {}
        self._rebuilding: frozenset[Key] = frozenset()
        self._states: RecoveredQueues | None = None
        self._found: ScanResult | None = None
        self._frozen = False

    @property
    def ends(self) -> QueueEnds:
        """What was known of the queues' ends at the checkpoint; nothing: of no checkpoint."""
        if self._ends is not None:
            return self._ends
        return QueueEnds(
            -1,
            self._config.queue_file_size,
            log_start=max(self._log_start, 0),
            own_from=NOWHERE if self._has_foreign else 0,
            begun_midway=self._begun_midway,
        )

    @property
    def own_from(self) -> int:
        """The physical offset from which on all records are known to be ours."""
        dispatched = self._checkpoint.dispatched_offset
        if dispatched < 0 or self._has_foreign:
            return NOWHERE
        return self._ends.own_from if self._ends is not None else dispatched

    # ---- looking -------------------------------------------------------------------------

    def look(self) -> Recovered:
        """Read what is needed to know where the log ends and what the queues lack.

        Nothing on disk is changed; the queues are loaded on an overlay, and stay there if the
        outcome has a `refusal`.

        Raises:
          CorruptRecordError: files of another size than configured.
          StoreIOError: a file could not be read.
        """
        log, queue_store, checkpoint = self._log, self._queue_store, self._checkpoint
        queue_store.use_disk(self._overlay)
        log.load()
        queue_store.load()
        is_corrected = self._correct_checkpoint()
        dispatched = checkpoint.dispatched_offset
        queues_end = queue_store.physical_end() if dispatched < 0 or self._clean else 0
        vouched = dispatched if dispatched >= 0 or not self._clean else queues_end
        if not log.files:
            return self._look_without_log(vouched)
        self._start = self._where_to_start(queues_end)
        self._dispatch_from = self._start
        if self._clean or dispatched > self._start:
            self._dispatch_from = dispatched if dispatched >= 0 else queues_end
        damaged = self._look_at_queues()
        scan = LogScan(
            self._config,
            log,
            clean=self._clean,
            vouched=vouched,
            is_known=self._clean or dispatched >= 0,
            own_from=self.own_from,
        )
        holes = self._missing_start() + scan.damaged_starts(self._start)
        suspects = self._suspects() - damaged
        found, holes = self._read(scan, damaged | suspects, holes)
        if holes and suspects:
            # Where the log is damaged a unit that leads nowhere is no reason to doubt the queue.
            found, holes = self._read(scan, damaged, holes)
        # Of the checkpoint's times none counts: a clock set by a damaged file would never go back.
        newest_ms = found.newest_ms or log_end_timestamp_ms(self._disk, log, found.end)
        if newest_ms - self._wall_ms > CLOCK_BEHIND_MAX_MS:
            logger.warning(
                "the newest message was stored %.1f h after the time of this machine's clock. New "
                "messages get the same store time until the clock has reached it; if the clock is "
                "wrong, set it",
                (newest_ms - self._wall_ms) / 3_600_000,
            )
        if not holes:
            as_closed = (
                self._clean
                and not is_corrected
                and self._ends is not None  # else the file that has them is written again
                and dispatched == found.end
                and not (self._rebuilding or self._overlay.changed or log.unfinished_path)
                and not self._has_foreign  # then `own_from` is noted anew
            )
            return Recovered(found.end, self._start, newest_ms, as_closed=as_closed)
        self._frozen = True
        end = max(found.end, vouched, *(hole.end for hole in holes))
        refusal = describe(holes, log, self._config.store_path_root_dir)
        return Recovered(end, self._start, newest_ms, refusal)

    def _correct_checkpoint(self) -> bool:
        """Put right what cannot be true in the checkpoint; returns whether something was."""
        log, checkpoint = self._log, self._checkpoint
        known_ms = log_end_timestamp_ms(self._disk, log, checkpoint.dispatched_offset)
        # Apache's page: the newest file that has a message tells how late its clock was.
        firsts = (self._first_timestamp_ms(base) for base in reversed(log.files))
        known_ms = known_ms or next((first for first in firsts if first > 0), 0)
        return correct_checkpoint(
            checkpoint,
            f"{self._config.store_path_root_dir}/checkpoint",
            latest_ms=max(self._wall_ms, known_ms),
            log_end=log.end_of_files,
        )

    def _look_without_log(self, vouched: int) -> Recovered:
        if vouched <= 0:
            return Recovered(0, 0, 0)
        self._frozen = True
        hole = Hole(0, vouched, "there is no commit log file, though there was one", at_end=True)
        refusal = describe([hole], self._log, self._config.store_path_root_dir)
        return Recovered(vouched, 0, 0, refusal)

    def _where_to_start(self, queues_end: int) -> int:
        log, checkpoint = self._log, self._checkpoint
        bases = list(log.files)
        start = scan_start(
            clean=self._clean,
            dispatched_offset=checkpoint.dispatched_offset,
            bases=bases,
            first_timestamp_ms=self._first_timestamp_ms,
            queues_end=queues_end,
            safe_timestamp_ms=min(
                checkpoint.physic_msg_timestamp_ms, checkpoint.logics_msg_timestamp_ms
            )
            - 3000,
        )
        if start == log.end_of_files or start - start % log.file_size in log.files:
            return start
        return max(base for base in bases if base < start)  # the file it lay in is missing

    def _missing_start(self) -> list[Hole]:
        """The log's oldest files, where they are gone and retention did not take them."""
        start, known = self._log.min_offset, self._log_start
        if self._checkpoint.dispatched_offset < 0 or known == UNKNOWN or known >= start:
            return []
        return [Hole(known, start, "the oldest commit log files are missing")]

    def _first_timestamp_ms(self, base: int) -> int:
        reader = LogReader(self._log, base, check_crc=False, chunk_size=CANDIDATE_CHUNK)
        record = next(reader.records(), None)
        return record.store_timestamp_ms if record is not None else 0

    def _look_at_queues(self) -> set[Key]:
        """Find out how much of each queue can stay, and which must be built again."""
        queue_store, dispatched = self._queue_store, self._checkpoint.dispatched_offset
        ends = read_queue_ends(self._disk, self._config.store_path_root_dir)
        problem = queue_store.size_problem()
        if problem is not None and (ends is None or ends.file_size != self._config.queue_file_size):
            raise problem
        damaged = set(queue_store.damaged)
        if ends is not None:
            # True whichever checkpoint it belongs to: a crash may have come between the two.
            self._log_start = ends.log_start
            self._begun_midway = ends.begun_midway
            self._has_foreign = ends.own_from == NOWHERE
            damaged |= {key for key, end in ends.ends.items() if end == REBUILD}
        if ends is not None and ends.dispatched_offset == dispatched >= 0:
            self._ends = ends
            for key, end in ends.ends.items():
                queue = queue_store.queues.get(key)
                if queue is None or key in damaged or not self._ends_at(queue, end):
                    damaged.add(key)
                elif not queue.is_batch:
                    self._kept[key] = end
        elif ends is not None and ends.dispatched_offset > dispatched >= 0:
            # Those of a checkpoint that was about to be written: what they name was on the device.
            damaged |= {
                key for key, end in ends.ends.items() if end and key not in queue_store.queues
            }
        for key, queue in queue_store.queues.items():
            if key in self._kept or key in damaged or queue.is_batch:
                continue
            if not self._clean and self._ends is not None:
                # Made since the checkpoint. Of several files a power cut may leave the later one,
                # empty: the queue would go on with an offset that it never reached.
                self._kept[key] = 0
            elif not self._clean:
                self._kept[key] = queue.end_before(self._dispatch_from)
            elif queue.max_offset and self._ends is not None and dispatched >= 0:
                damaged.add(key)
            else:
                self._kept[key] = queue.max_offset
        for key in sorted(damaged):
            reason = queue_store.damaged.get(key, "it is not there, or does not end where it did")
            logger.warning("queue %d of topic %s is built again: %s", key[1], key[0], reason)
        return damaged

    def _ends_at(self, queue: ConsumeQueue, end: int) -> bool:
        """Whether a queue has what it had at the checkpoint."""
        if queue.is_batch:
            return queue.max_offset >= end
        if queue.max_offset < end or (self._clean and queue.max_offset != end):
            return False
        known = self.ends
        if queue.lowest_offset > known.begins.get(queue.key, 0) and (
            known.begins_at == self._log.min_offset
        ):
            return False  # its oldest file is missing
        physical_offset, size, _ = queue.unit_at(end - 1)
        if size == PRE_BLANK_SIZE:
            return True
        return 0 <= physical_offset < physical_offset + size <= self._checkpoint.dispatched_offset

    def _suspects(self) -> set[Key]:
        """Queues whose last unit to stay is not that of the record it points to."""
        log = self._log
        found = set()
        for key, kept in self._kept.items():
            if kept <= 0:
                continue
            unit = self._queue_store.queues[key].unit_at(kept - 1)
            physical_offset, size, _ = unit
            if size == PRE_BLANK_SIZE or 0 <= physical_offset < log.min_offset:
                continue
            record = record_at(log, physical_offset) if physical_offset >= 0 else None
            place = record and self._places.place_in(record, key, kept - 1)
            if record is None or place is None or unit_fault(unit, record, place) in NOT_ITS:
                logger.warning(
                    "queue %d of topic %s is built again if the log is whole: its last unit says "
                    "%d bytes at %d, where its message is not", key[1], key[0], size,
                    physical_offset,
                )  # fmt: skip
                found.add(key)
        return found

    def _read(
        self, scan: LogScan, rebuilding: set[Key], holes: list[Hole]
    ) -> tuple[ScanResult, list[Hole]]:
        """Read the log: from the start, or all of it when there are queues to build again."""
        log, dispatched = self._log, self._checkpoint.dispatched_offset
        at_checkpoint = None
        if self._ends is not None and dispatched >= 0:
            at_checkpoint = frozenset(self._ends.ends)
        while True:
            start = log.min_offset if rebuilding else self._start
            states = RecoveredQueues(
                self._queue_store,
                self._places,
                self._kept,
                dispatch_from=self._dispatch_from,
                rebuilding=frozenset(rebuilding),
                whole_log=self._dispatch_from <= log.min_offset,
                from_0=log.min_offset == 0,
                begun_midway=self._begun_midway,
                at_checkpoint=at_checkpoint,
            )
            states.after_hole = bool(holes) and not rebuilding
            found = scan.read(start, states)
            if states.damaged <= rebuilding:
                break
            rebuilding = rebuilding | states.damaged
        self._states, self._found = states, found
        self._rebuilding = frozenset(rebuilding)
        if rebuilding:  # then the damaged files were read once more
            holes = [hole for hole in holes if hole.start < log.min_offset]
        return found, holes + found.holes

    # ---- writing -------------------------------------------------------------------------

    def settle_log(self) -> None:
        """Cut off, on disk, what lies behind the last good record.

        Raises:
          StoreIOError: a file could not be written or removed.
        """
        log, found = self._log, self._found
        log.remove_unfinished()
        if found is None:
            return
        end, file_size = found.end, log.file_size
        base = end - end % file_size
        if found.case.action is Action.TRUNCATE:
            logger.warning(
                "%s/%s: the log is cut at %d, %d bytes behind it are zeroed: %s (case %s: %s)",
                log.folder,
                file_name(base),
                end,
                found.nonzero_end - end,
                found.reason or "zeros",
                found.case.label,
                found.case.why,
            )
        # A file that begins where the log ends is needed next, unless it must be overwritten.
        keep_until = base + file_size if base in log.files else base
        if log.end_of_files > keep_until:
            log.remove_from(keep_until)
            self._disk.sync_folder(log.folder)
        if found.case.action is Action.TRUNCATE:
            log.zero(end, min(found.nonzero_end, keep_until))

    def build_queues(self) -> None:
        """Make the queues what the log says; on the overlay if the store is read-only.

        Raises:
          StoreIOError: a file could not be read or written.
        """
        queue_store, log = self._queue_store, self._log
        if not self._frozen:
            queue_store.use_disk(self._disk)
            if self._overlay.changed:
                queue_store.load()
        if self._states is None:
            if not self._frozen and queue_store.queues:
                logger.warning("there is no commit log: the consume queues are removed")
                queue_store.remove_all()
            return
        if self._rebuilding and not self._frozen:
            self._announce_rebuilding()
        for key, queue in list(queue_store.queues.items()):
            self._cut_queue(key, queue, self._states.by_key.get(key))
        for key, state in self._states.by_key.items():
            self._fill_queue(key, state)
        self._dispatch_again(self._states)
        self._make_empty_queues()
        for queue in queue_store.queues.values():
            queue.correct_min_offset(log.min_offset)

    def _announce_rebuilding(self) -> None:
        known = self.ends
        ends = {**known.ends, **dict.fromkeys(self._rebuilding, REBUILD)}
        write_queue_ends(self._disk, self._config.store_path_root_dir, replace(known, ends=ends))

    def _cut_queue(self, key: Key, queue: ConsumeQueue, state: RecoveredQueue | None) -> None:
        if key in self._rebuilding or (state is not None and state.kept < 0):
            queue.remove()
        elif queue.is_batch:
            if not self._clean:
                queue.cut(self._dispatch_from)
        else:
            kept = self._kept.get(key, 0)
            if kept == 0:
                if queue.file_offsets:
                    queue.remove()
            elif not self._clean:
                queue.cut_at(kept)

    def _fill_queue(self, key: Key, state: RecoveredQueue) -> None:
        if self._frozen and self._ends is not None and not state.is_late:
            lacking = self._ends.ends.get(key, 0) - state.next
            if 0 < lacking <= BLANKS_MAX and key in self._rebuilding:
                state.units += PRE_BLANK * lacking
        if state.units:
            queue = self._queue_store.get_or_create(*key)
            assert queue is not None, "impossible queues have no state"
            queue.extend_recovered(state.first, state.units)
            state.units = bytearray()
            if not self._frozen:
                queue.write()

    def _make_empty_queues(self) -> None:
        """Let queues go on where they ended that are gone, as are all their messages."""
        if self._ends is None:
            return
        queues, log_start = self._queue_store.queues, self._log.min_offset
        for key, end in self._ends.ends.items():
            if key not in self._rebuilding or key in queues or end <= 0 or log_start == 0:
                continue
            queue = self._queue_store.get_or_create(*key)
            if queue is not None and not queue.is_batch:
                queue.extend_recovered(end - 1, PRE_BLANK)
                queue.write()

    def _dispatch_again(self, states: RecoveredQueues) -> None:
        """Read the log again for what was not collected at the first reading."""
        found = self._found
        assert found is not None, "there are states only after a reading"
        all_from = found.collected_until if found.collected_until >= 0 else NOWHERE
        wanted = {key for key, state in states.by_key.items() if not state.is_ignored}
        late = {key for key in wanted if states.by_key[key].is_late}
        if all_from == NOWHERE and not late:
            return
        for start, end in found.segments:
            if not late:
                start = max(start, all_from)
            stop = _constant(end)
            for record in LogReader(self._log, start, check_crc=False, stop=stop).scan():
                physical_offset, _, _, _, _, _, _, _ = record
                for key, queue_offset, code in self._places.of(record):
                    if (
                        (key in late or physical_offset >= all_from)
                        and key in wanted
                        and (physical_offset >= self._dispatch_from or key in self._rebuilding)
                    ):
                        self._append(key, queue_offset, code, record)

    def _append(self, key: Key, queue_offset: int, code: int, record: ScannedRecord) -> None:
        """Append one record to one queue, however often that queue begins again."""
        queue_store = self._queue_store
        physical_offset, size, topic, _, _, sys_flag, timestamp_ms, properties = record
        if sys_flag & INNER_BATCH:
            if key not in queue_store.queues:
                queue_store.batch_topics.add(key[0])
            elif key[0] not in queue_store.batch_topics:
                return  # of a topic that was deleted and made again as one without batches
        queue = queue_store.get_or_create(*key)
        assert queue is not None, "impossible queues have no state"
        if queue.is_batch:
            base, count = inner_batch(properties) or (queue_offset, 1)
            if base == 0 and queue.max_offset:
                queue.remove()
            if self._frozen and (queue.max_offset or self._log.min_offset == 0):
                for blank in blanks_between(queue.max_offset, base, physical_offset):
                    queue.append_recovered(blank.base_offset, blank.to_bytes())
            unit = BatchUnit(physical_offset, size, code, timestamp_ms, base, count).to_bytes()
            queue.append_recovered(base, unit)
        else:
            gap = queue_offset - queue.max_offset
            is_light = key[0].startswith(LIGHT_PREFIX)
            if is_light and queue_offset > 0 > gap:
                return
            if gap < 0 or (is_light and gap > LIGHT_BLANKS_MAX):
                queue.remove()
            elif gap and queue.max_offset:
                queue.extend_recovered(queue.max_offset, PRE_BLANK * gap)
            if key[0] == topic:
                code = queue.stored_tags_code(code, timestamp_ms, properties)
            queue.append_recovered(queue_offset, UNIT.pack(physical_offset, size, code))
        if len(queue.tail) >= TAIL_BYTES_MAX and not self._frozen:
            queue.write()


def _constant(value: int) -> Callable[[], int]:
    return lambda: value
