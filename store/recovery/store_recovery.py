"""Recovery of log and queues when the store is opened.

Java counterparts: DefaultMessageStore.load/recover, CommitLog.recoverNormally/recoverAbnormally of
5.3.3. recovery_table.py decides what to do at the log's end. Afterwards every consume queue agrees
with the log, and the log's files hold only zeros after its end.

Recovery has two phases. `scan` reads and changes nothing on disk: queues are opened on an overlay.
If it finds a hole, the store stays on that overlay: complete in memory, read-only, the folder
unchanged. Otherwise `truncate_log` and `build_queues` write, in an order that makes a crash at any
point harmless:

1. The log is truncated: later files are removed, the rest is zeroed and synced. Repeating this from
   any intermediate state finds the same end and takes the same decision: zeroing removes records
   and creates none, and unwritten sectors stay unwritten. The abort file is written afterwards, so
   a start after a clean exit remains one.
2. The abort file: from now on the queues may be half built, and the next start does not trust their
   units after the checkpoint. Before the checkpoint only queues change that are rebuilt from their
   beginning; queue_ends.trocket names them, synced, before their folders are removed, so that the
   next start rebuilds them.
3. The queues: units after the checkpoint are overwritten with zeros, then written anew.
4. Log and queues are synced, then queue_ends.trocket and the checkpoint are written. Until the
   checkpoint is on the device the next start begins where this one did; ends of another checkpoint
   are ignored, except for the queues that were being rebuilt.

The units of a queue before the checkpoint are checked only at its end (queue_ends.trocket, and the
last unit's record; without that file coverage.py looks for records without a unit); the others are
verified when they are read (record_check.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from ...disk.os_disk import Disk
from ...disk.overlay_disk import OverlayDisk
from ...disk.start_warnings import LEFTOVER
from ...remoting.sys_flag import INNER_BATCH
from ..config import MessageStoreConfig
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
from ..queues.projection import LIGHT_PREFIX, Places
from ..queues.queue_ends import FILE_NAME as QUEUE_ENDS
from ..queues.queue_ends import REBUILD, QueueEnds, read_queue_ends, write_queue_ends
from ..queues.unit_check import UnitFault, unit_fault
from .checkpoint import Checkpoint
from .checkpoint_check import correct_checkpoint
from .coverage import queues_without_units
from .log_scan import LogScan, ScanResult, describe
from .recovered_queues import BLANKS_MAX, LIGHT_BLANKS_MAX, RecoveredQueue, RecoveredQueues
from .recovery_table import Action, scan_start

logger = logging.getLogger(__name__)

UNKNOWN = -1
"""The log's start, where no file records it."""

CLOCK_BEHIND_MAX_MS = 3_600_000
"""A newest message that is further ahead of the clock makes a start warn."""

WRONG_RECORD = {UnitFault.MISSING, UnitFault.ELSEWHERE}
"""Faults of a unit that does not point to its record; serving checks the tags code."""

TAIL_BYTES_MAX = 16 * 1024
"""Units of one queue kept in memory during the second reading of the log."""


@dataclass(slots=True)
class RecoveryResult:
    """The findings of recovery.

    Attributes:
      end: physical offset of the next append.
      start: physical offset from which the log was read.
      newest_ms: the newest store timestamp of the log's records; 0 if there is none.
      refusal: why the store must be read-only; "": it need not.
      as_closed: nothing has to be done: log and queues are as a clean exit of this program left
        them.
    """

    end: int
    start: int
    newest_ms: int
    refusal: str = ""
    as_closed: bool = False


class StoreRecovery:
    """One recovery: `scan`, then `truncate_log` if the store may be changed, then `build_queues`.

    Args:
      config, log, queue_store, checkpoint, disk: the store's; log and queues are not loaded yet.
      clean: there was no abort file.
      wall_ms: the wall clock, ms since 1970; the checkpoint's times are checked against it.
      is_topic: whether a topic exists, as far as known; queues of deleted ones are not missing.
      is_frozen: nothing may be written.
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
        is_topic: Callable[[str], bool] = lambda topic: True,
        is_frozen: bool = False,
    ) -> None:
        self._config = config
        self._is_topic = is_topic
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
        self._frozen = is_frozen

    @property
    def ends(self) -> QueueEnds:
        """The queues' ends at the checkpoint, as far as queue_ends.trocket has them."""
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
        """The physical offset from which on all records are known to be this program's."""
        dispatched = self._checkpoint.dispatched_offset
        if dispatched < 0 or self._has_foreign:
            return NOWHERE
        return self._ends.own_from if self._ends is not None else dispatched

    # ---- reading -------------------------------------------------------------------------

    def scan(self) -> RecoveryResult:
        """Read the log as far as needed to find its end and the missing units of the queues.

        Nothing on disk is changed; the queues are loaded on an overlay, and stay there if the
        result has a `refusal`.

        Raises:
          CorruptRecordError: files differ from the configured size.
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
            return self._scan_without_log(vouched)
        self._start = self._where_to_start(queues_end)
        self._dispatch_from = self._start
        if self._clean or dispatched > self._start:
            self._dispatch_from = dispatched if dispatched >= 0 else queues_end
        damaged = self._check_queues()
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
            # In a damaged log a unit without its record does not mean that the queue is wrong.
            found, holes = self._read(scan, damaged, holes)
        # The checkpoint's times are not used: a clock set by a damaged file would never go back.
        newest_ms = found.newest_ms or log_end_timestamp_ms(self._disk, log, found.end)
        if newest_ms - self._wall_ms > CLOCK_BEHIND_MAX_MS:
            logger.warning(
                "the newest message was stored %(ahead_h).1f h after the time of this machine's "
                "clock. New messages get the same store time until the clock has reached it; if "
                "the clock is wrong, set it",
                {"ahead_h": (newest_ms - self._wall_ms) / 3_600_000},
                extra=LEFTOVER,
            )
        if not holes:
            as_closed = (
                self._clean
                and not is_corrected
                and self._ends is not None  # otherwise queue_ends.trocket is written again
                and dispatched == found.end
                and not (self._rebuilding or self._overlay.changed or log.unfinished_path)
                and not self._has_foreign  # otherwise `own_from` is recorded anew
            )
            return RecoveryResult(found.end, self._start, newest_ms, as_closed=as_closed)
        self._frozen = True
        end = max(found.end, vouched, *(hole.end for hole in holes))
        refusal = describe(holes, log, self._config.store_path_root_dir)
        return RecoveryResult(end, self._start, newest_ms, refusal)

    def _correct_checkpoint(self) -> bool:
        """Correct impossible fields of the checkpoint; returns whether there were any."""
        log, checkpoint = self._log, self._checkpoint
        known_ms = log_end_timestamp_ms(self._disk, log, checkpoint.dispatched_offset)
        # Apache's page: the first message of the newest file shows how late its clock was.
        firsts = (self._first_timestamp_ms(base) for base in reversed(log.files))
        known_ms = known_ms or next((first for first in firsts if first > 0), 0)
        path = f"{self._config.store_path_root_dir}/checkpoint"
        if checkpoint.problem and log.files:
            self._warn_of_lost_progress(path, checkpoint.problem)
        is_corrected = correct_checkpoint(
            checkpoint,
            path,
            latest_ms=max(self._wall_ms, known_ms),
            log_end=log.end_of_files,
        )
        return is_corrected or bool(checkpoint.problem)

    def _warn_of_lost_progress(self, path: str, problem: str) -> None:
        logger.warning(
            "%(path)s cannot be used: %(problem)s; log and queues are compared without it, and it "
            "is written again",
            {"path": path, "problem": problem},
            extra=None if self._clean else LEFTOVER,
        )

    def _scan_without_log(self, vouched: int) -> RecoveryResult:
        if vouched <= 0:
            return RecoveryResult(0, 0, 0)
        self._frozen = True
        hole = Hole(0, vouched, "there is no commit log file, though there was one", at_end=True)
        refusal = describe([hole], self._log, self._config.store_path_root_dir)
        return RecoveryResult(vouched, 0, 0, refusal)

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
        return max(base for base in bases if base < start)  # the file of this offset is missing

    def _missing_start(self) -> list[Hole]:
        """The hole at the log's start, if its oldest files are missing without retention."""
        start, known = self._log.min_offset, self._log_start
        if self._checkpoint.dispatched_offset < 0 or known == UNKNOWN or known >= start:
            return []
        return [Hole(known, start, "the oldest commit log files are missing")]

    def _first_timestamp_ms(self, base: int) -> int:
        reader = LogReader(self._log, base, check_crc=False, chunk_size=CANDIDATE_CHUNK)
        record = next(reader.records(), None)
        return record.store_timestamp_ms if record is not None else 0

    def _check_queues(self) -> set[Key]:
        """Set how much of each queue is kept; returns the queues to rebuild."""
        queue_store, dispatched = self._queue_store, self._checkpoint.dispatched_offset
        root = self._config.store_path_root_dir
        ends = read_queue_ends(self._disk, root)
        if dispatched >= 0 and not self._disk.exists(f"{root}/{QUEUE_ENDS}"):
            self._warn_of_lost_progress(f"{root}/{QUEUE_ENDS}", "it is missing")
        problem = queue_store.size_problem()
        if problem is not None and (ends is None or ends.file_size != self._config.queue_file_size):
            raise problem
        damaged = set(queue_store.damaged)
        if ends is not None:
            # Valid with any checkpoint: a crash may have come between the two writes.
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
            # The ends of a checkpoint that was not written any more: these queues were synced.
            damaged |= {
                key for key, end in ends.ends.items() if end and key not in queue_store.queues
            }
        for key, queue in queue_store.queues.items():
            if key in self._kept or key in damaged or queue.is_batch:
                continue
            if not self._clean and self._ends is not None:
                # Created since the checkpoint. A power cut may leave only a later file, empty: the
                # queue would continue with an offset that it never reached.
                self._kept[key] = 0
            elif not self._clean:
                self._kept[key] = queue.end_before(self._dispatch_from)
            elif queue.max_offset and self._ends is not None and dispatched >= 0:
                damaged.add(key)
            else:
                self._kept[key] = queue.max_offset
        unlike = "it is missing, or does not end where the last checkpoint says"
        if self._ends is None:
            damaged |= queues_without_units(
                self._log, queue_store, self._places, end=self._dispatch_from,
                is_topic=self._is_topic,
            )  # fmt: skip
            unlike = "the log has messages of which it has no unit"
        for key in sorted(damaged):
            reason = queue_store.damaged.get(key, unlike)
            logger.warning(
                "queue %(queue_id)d of topic %(topic)s is rebuilt from the log: %(reason)s",
                {"queue_id": key[1], "topic": key[0], "reason": reason},
            )
        return damaged

    def _ends_at(self, queue: ConsumeQueue, end: int) -> bool:
        """Whether a queue has all units that it had at the checkpoint."""
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
        """Queues whose last kept unit does not point to its record."""
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
            if record is None or place is None or unit_fault(unit, record, place) in WRONG_RECORD:
                logger.warning(
                    "queue %(queue_id)d of topic %(topic)s is rebuilt from the log unless the "
                    "log is damaged: its last unit says %(size)d bytes at %(physical_offset)d, "
                    "where its message is not",
                    {
                        "queue_id": key[1],
                        "topic": key[0],
                        "size": size,
                        "physical_offset": physical_offset,
                    },
                )
                found.add(key)
        return found

    def _read(
        self, scan: LogScan, rebuilding: set[Key], holes: list[Hole]
    ) -> tuple[ScanResult, list[Hole]]:
        """Read the log: from the start offset, or all of it when there are queues to rebuild."""
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
        if rebuilding:  # then all files were read, and their holes found again
            holes = [hole for hole in holes if hole.start < log.min_offset]
        return found, holes + found.holes

    # ---- writing -------------------------------------------------------------------------

    def truncate_log(self) -> None:
        """Remove, on disk, the bytes after the last good record.

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
                "%(folder)s/%(file)s: the log is cut at %(end)d, %(cut_size)d bytes after it "
                "are zeroed: %(reason)s (case %(case)s: %(why)s)",
                {
                    "folder": log.folder,
                    "file": file_name(base),
                    "end": end,
                    "cut_size": found.nonzero_end - end,
                    "reason": found.reason or "zeros",
                    "case": found.case.label,
                    "why": found.case.why,
                },
                extra=None if self._clean else LEFTOVER,
            )
        # A file that begins where the log ends is needed next, unless it must be overwritten.
        keep_until = base + file_size if base in log.files else base
        if log.end_of_files > keep_until:
            log.remove_from(keep_until)
            self._disk.sync_folder(log.folder)
        if found.case.action is Action.TRUNCATE:
            log.zero(end, min(found.nonzero_end, keep_until))

    def build_queues(self) -> None:
        """Make the queues agree with the log; on the overlay if the store is read-only.

        Raises:
          StoreIOError: a file could not be read or written.
        """
        queue_store, log = self._queue_store, self._log
        if not self._frozen:
            # What was tried on the overlay is dropped: from here on the files themselves change.
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
        """Create queues again that lost all messages, so that their offsets continue."""
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
        """Read the log again for units that the first reading did not collect."""
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
            stop = partial(int, end)
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
        """Append one record to one queue; a queue may begin anew within the log."""
        queue_store = self._queue_store
        physical_offset, size, topic, _, _, sys_flag, timestamp_ms, properties = record
        if sys_flag & INNER_BATCH:
            if key not in queue_store.queues:
                queue_store.batch_topics.add(key[0])
            elif key[0] not in queue_store.batch_topics:
                return  # of a topic that was deleted and created again without batches
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
