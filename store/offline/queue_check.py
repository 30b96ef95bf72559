"""The comparison of consume queues with the log.

The log is walked once; each record's units are looked up on the way. A topic that was deleted and
created again begins at queue offset 0, and its older records have no units any more: differences
are counted per queue and dropped when the queue begins again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from ...disk.errors import StoreIOError
from ...disk.os_disk import Disk
from ...disk.position import Position
from ..format import PRE_BLANK_SIZE, Key, Unit
from ..log.commit_log import CommitLog
from ..log.log_reader import NOWHERE, LogRecord, record_at
from ..queues.consume_queue_ext import ExtUnit
from ..queues.deleted_topics import DeletedTopics
from ..queues.projection import Place, Places
from ..queues.unit_check import UnitFault, unit_fault
from .findings import Findings, Severity
from .losses import Losses
from .queue_files import REBUILD, QueueOnDisk, QueuesOnDisk

GAPS_MAX = 10_000
"""Gaps in the queue offsets remembered for each queue."""

STRAYS_MAX = 100
"""Records out of order remembered for each queue."""

DAMAGED_HEAD = "the records' heads are damaged: restore the files from a replica or a backup"

_EXT_BASE = -(1 << 63)
_EXT_SIZE_MAX = 0x7FFF


class DifferenceCount:
    """The count of one kind of difference in a queue, and its first and last queue offset."""

    __slots__ = ("count", "example", "first", "last")

    def __init__(self, offset: int, example: str) -> None:
        self.count = 0
        self.first = self.last = offset
        self.example = example


class Gap(NamedTuple):
    """Queue offsets [start, stop) that no record has."""

    start: int
    stop: int
    after: int  # physical offset behind the record before the gap; -1 if there is none
    before: int  # physical offset of the record behind the gap


class Misplaced(NamedTuple):
    """A whole record whose head contradicts the unit that points to it.

    topic, queue_id and queue_offset are those of the unit.
    """

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    size: int
    said: str  # the topic that the record names


class CheckedQueue:
    """One queue according to the log.

    Attributes:
      on_disk: its files; None: it has no folder.
      first, next: queue offsets of the first record and after the last one; -1: no record yet.
      end: physical offset behind its last record.
      differences: differences by kind: `missing`, `wrong`, `tags`, `delay`, `ext`, `again`.
      gaps: queue offsets that no record has, at most `GAPS_MAX`.
      begin: physical offset of its first record; count: how many it has; older: how many it had
        before it began again at 0.
      last: physical offset of its last record.
      strays: physical offsets of records that do not follow, at most `STRAYS_MAX`.
    """

    __slots__ = (
        "begin",
        "count",
        "differences",
        "end",
        "first",
        "gaps",
        "last",
        "next",
        "older",
        "on_disk",
        "strays",
    )

    def __init__(self, on_disk: QueueOnDisk | None) -> None:
        self.on_disk = on_disk
        self.first = self.next = self.end = self.begin = self.last = -1
        self.count = self.older = 0
        self.strays: list[int] = []
        self.differences: dict[str, DifferenceCount] = {}
        self.gaps: list[Gap] = []

    def note(self, kind: str, offset: int, example: str) -> None:
        """Count one difference."""
        difference = self.differences.get(kind)
        if difference is None:
            difference = self.differences[kind] = DifferenceCount(offset, example)
        difference.count += 1
        difference.last = offset

    def forget(self, kind: str, offset: int) -> None:
        """Remove the last difference, if it was this one."""
        difference = self.differences.get(kind)
        if difference is not None and difference.last == offset:
            difference.count -= 1
            if not difference.count:
                del self.differences[kind]

    def begin_again(self, offset: int) -> None:
        """Drop all differences: the topic was deleted and created again."""
        self.differences = {}
        self.gaps = []
        self.first = self.next = offset
        self.older, self.count = self.older + self.count, 0


class QueueCheck:
    """The queues of one store, compared while the log is walked.

    Args:
      disk, root: the disk and the data folder.
      queues: its consume queues' files.
      log: to look up records that units point at.
      ext_file_size: bytes of one file of the extensions.
      places: the rules of dispatching.
      delays_known: the delays were configured; otherwise different delays are not an error.
      batch_topics: topics whose queues are batch consume queues; they are left out.
    """

    def __init__(
        self,
        disk: Disk,
        root: str,
        queues: QueuesOnDisk,
        log: CommitLog,
        *,
        ext_file_size: int,
        places: Places,
        delays_known: bool,
        batch_topics: frozenset[str],
    ) -> None:
        self.states: dict[Key, CheckedQueue] = {
            key: CheckedQueue(queue) for key, queue in queues.queues.items()
        }
        self.unit_count = 0
        self.damaged: set[Key] = set()
        self.lagging: set[Key] = set()
        """Queues that the broker's next start completes or cuts."""
        self.misplaced: dict[int, Misplaced] = {}
        self.deleted: set[Key] = set()
        """Queues of the log that have no folder, and whose topic is not configured any more."""
        self._disk = disk
        self._root = root
        self._ext_folder = f"{root}/consumequeue_ext"
        self._queues = queues
        self._log = log
        self._ext_file_size = ext_file_size
        self._places = places
        self._delays_known = delays_known
        self._batch_topics = batch_topics

    def feed(self, record: LogRecord) -> None:
        """Compare one record's units; records come in the log's order.

        Raises:
          StoreIOError: a file cannot be read.
        """
        if record.topic in self._batch_topics:
            return
        for unit in self._places.of(record):
            state = self.states.get(unit.key)
            if state is None:
                state = self.states[unit.key] = CheckedQueue(None)
            self.unit_count += 1
            self._compare(state, unit, record)

    def _compare(self, state: CheckedQueue, unit: Place, record: LogRecord) -> None:
        offset, physical_offset = unit.queue_offset, record.physical_offset
        on_disk = state.on_disk
        found: Unit = (0, 0, 0)
        if on_disk is not None:
            found = self._queues.unit(on_disk, offset)
        if state.begin < 0:
            state.begin = physical_offset
        if offset != state.next and not self._goes_on(state, unit, record, found):
            return
        state.next = offset + 1
        state.last, state.end = physical_offset, physical_offset + record.size
        state.count += 1
        fault = unit_fault(found, record, unit)
        if fault is not None:
            self._note_fault(fault, state, unit, record, found)

    def _goes_on(self, state: CheckedQueue, unit: Place, record: LogRecord, found: Unit) -> bool:
        """Whether to accept a record that does not follow the previous one of its queue."""
        offset, physical_offset, on_disk = unit.queue_offset, record.physical_offset, state.on_disk
        place = (physical_offset, record.size)
        if state.next < 0:
            state.first = offset
            if offset > 0:
                state.gaps.append(Gap(0, offset, -1, physical_offset))
            return True
        # Only `__CRC32#` protects a record's queue offset, so the queue's units decide.
        if offset == 0 and found[:2] != place and not 0 < found[0] + found[1] <= physical_offset:
            state.begin_again(offset)
            return True
        here = self._queues.unit(on_disk, state.next) if on_disk is not None else (0, 0, 0)
        if found[:2] != place and here[:2] == place:
            self._misplace(state, unit.key, state.next, *place)
            return False
        if offset > state.next:
            if found[:2] != place and (any(found) or any(here)):
                return self._is_stray(state, "stray", offset, physical_offset)
            if len(state.gaps) < GAPS_MAX:
                state.gaps.append(Gap(state.next, offset, state.end, physical_offset))
            return True
        jump = state.gaps[-1] if state.gaps else None
        if jump is not None and jump.stop == state.next - 1 and jump.start == offset - 1:
            # The previous record jumped ahead, and this one continues from before the jump.
            state.gaps.pop()
            state.forget("missing", jump.stop)
            last, size = state.last, state.end - state.last
            state.next = offset
            self._misplace(state, unit.key, jump.start, last, size)
            return True
        if found[:2] == place:
            # Either the topic was created again, or a stray record was accepted.
            if offset == 0:
                state.begin_again(offset)
            state.gaps = [gap for gap in state.gaps if gap.stop <= offset]
            state.forget("wrong", offset)
            return True
        return self._is_stray(state, "again", offset, physical_offset)

    def _is_stray(self, state: CheckedQueue, kind: str, offset: int, physical_offset: int) -> bool:
        """Count a record that is not accepted; returns False."""
        state.note(kind, offset, f"the record at {physical_offset}")
        if len(state.strays) < STRAYS_MAX:
            state.strays.append(physical_offset)
        return False

    def _misplace(
        self, state: CheckedQueue, key: Key, queue_offset: int, physical_offset: int, size: int
    ) -> None:
        """Accept the record as this message of the queue, whatever its head says."""
        record = record_at(self._log, physical_offset)
        said = record.topic if record is not None else ""
        self.misplaced[physical_offset] = Misplaced(*key, queue_offset, physical_offset, size, said)
        state.next = max(state.next, queue_offset + 1)
        state.last, state.end = physical_offset, physical_offset + size

    def _note_fault(
        self, fault: UnitFault, state: CheckedQueue, place: Place, record: LogRecord, found: Unit
    ) -> None:
        offset = place.queue_offset
        physical_offset, size, tags_code = found
        if fault is UnitFault.MISSING:
            state.note("missing", offset, "")
        elif fault is UnitFault.ELSEWHERE:
            state.note(
                "wrong", offset,
                f"it says {size} bytes at {physical_offset}, the message is "
                f"{record.size} bytes at {record.physical_offset}",
            )  # fmt: skip
        elif fault is UnitFault.EXT:
            ext = self._ext_unit(place, tags_code)
            if ext is None or ext.tags_code != place.tags_code:
                state.note("ext", offset, f"{ext} for tags code {place.tags_code}")
        elif fault is UnitFault.DELAY and not self._delays_known:
            state.note("delay", offset, f"{tags_code - record.store_timestamp_ms} ms")
        else:
            state.note("tags", offset, f"tags code {tags_code}, the message's is {place.tags_code}")

    def _ext_unit(self, unit: Place, address: int) -> ExtUnit | None:
        position = address - _EXT_BASE
        base = position - position % self._ext_file_size
        path = f"{self._ext_folder}/{unit.key[0]}/{unit.key[1]}/{base:020d}"
        if not self._disk.exists(path):
            return None
        file = self._disk.open(path)
        try:
            return ExtUnit.from_bytes(file.pread(_EXT_SIZE_MAX, Position(position - base)), 0)
        finally:
            file.close()

    def finish(
        self,
        findings: Findings,
        losses: Losses,
        *,
        log_start: int,
        log_end: int,
        ends: Mapping[Key, int],
        settled: bool,
        is_live: bool,
        topics: frozenset[str] | None,
    ) -> None:
        """Check the units without a record, and add the findings.

        Args:
          losses: gets the messages that were in holes.
          log_start, log_end: physical offsets of the log's first byte and after its last record.
          ends: offsets after the last messages that queues are known to have had.
          settled: the store was closed cleanly; otherwise the queues' ends may lag.
          is_live: a broker is writing; units after the log's end are no finding.
          topics: the configured ones; None: unknown.

        Raises:
          StoreIOError: a file cannot be read.
        """
        deleted: Counter[str] = Counter()
        for key in ends:
            self.states.setdefault(key, CheckedQueue(None))
        for key, state in sorted(self.states.items()):
            self._find_lost(key, state, findings, losses, log_start, log_end)
            self._find_lost_end(key, state, ends.get(key, 0), findings, losses, log_start)
        for key, state in sorted(self.states.items()):
            topic, queue_id = key
            on_disk = state.on_disk
            if on_disk is None and state.next < 0:
                continue  # nothing is known of it but that it was there
            if on_disk is None and state.count <= 1 and state.begin in self.misplaced:
                continue  # only a damaged head names this queue
            behind = state.differences.pop("behind", None)
            if behind is not None and not is_live:
                self._report_behind(key, state, behind, findings, log_end, settled)
            if on_disk is not None:
                self._report(key, on_disk, state, findings, settled)
            elif topics is not None and topic not in topics:
                self.deleted.add(key)
                deleted[topic] += state.next - state.first
            else:
                (self.damaged if settled else self.lagging).add(key)
                findings.add(
                    Severity.ERROR if settled else Severity.WARNING, "queue.missing",
                    f"{self._queues.folder}/{topic}/{queue_id}", state.first,
                    f"the log holds {state.next - state.first} messages of this queue, but it has "
                    "no folder", REBUILD,
                )  # fmt: skip
        for found in self.misplaced.values():
            findings.add(
                Severity.ERROR, "log.misplaced", self._log.path_at(found.physical_offset),
                found.physical_offset,
                f"{found.topic} queue {found.queue_id} has this record at queue offset "
                f"{found.queue_offset}, but its head says something else",
                "`trocket store repair` writes topic, queue id and queue offset back",
            )  # fmt: skip
        self._report_older(findings)
        if deleted:
            findings.add(
                Severity.INFO, "queue.deleted", self._queues.folder, -1,
                f"the log still holds {sum(deleted.values())} messages of {len(deleted)} topics "
                f"that are not configured and have no queues: {', '.join(sorted(deleted)[:5])}",
            )  # fmt: skip

    def _report_older(self, findings: Findings) -> None:
        """Report queues that began again, unless the deletion of their topic is recorded."""
        # Deleting a topic leaves its records in the log, which is no fault.
        recorded = DeletedTopics(self._disk, self._root)
        recorded.load()
        older = {
            key: state.older
            for key, state in self.states.items()
            if state.older and key[0] not in recorded.names
        }
        if older:
            findings.add(
                Severity.INFO, "queue.begun_again", self._queues.folder, -1,
                f"the log holds {sum(older.values())} older messages of {len(older)} queues that "
                f"began again at offset 0, where no consumer can read them: "
                f"{', '.join(f'{topic} queue {number}' for topic, number in sorted(older)[:5])}",
                "usual after a topic was deleted and created again; otherwise its folder was lost",
            )  # fmt: skip

    def _report(
        self, key: Key, on_disk: QueueOnDisk, state: CheckedQueue, findings: Findings, settled: bool
    ) -> None:
        if on_disk.is_damaged:
            self.damaged.add(key)
        is_explained = all(at in self.misplaced for at in state.strays)
        for kind, difference in state.differences.items():
            if kind in ("stray", "again") and is_explained:
                continue  # reported as records with a damaged head
            severity, words, advice = Severity.ERROR, f"units are {kind}", REBUILD
            if kind == "missing":
                words = "messages of the log have no unit"
                at_end = difference.last == state.next - 1
                if at_end and difference.count == difference.last - difference.first + 1:
                    words += ", all at the queue's end"
                    if not settled:
                        severity = Severity.WARNING
                        advice = "the next start of the broker adds them"
            elif kind == "wrong":
                words = "units point at something else than their message"
            elif kind == "tags":
                words = "units do not have the tags code of their message"
            elif kind == "delay":
                severity, advice = Severity.INFO, "give -c broker.conf to have them compared"
                words = "delays are not those of RocketMQ's default messageDelayLevel"
            elif kind == "ext":
                severity, advice = Severity.WARNING, "such messages pass every tag filter"
                words = "units point at an extension unit that is missing or of another message"
            elif kind == "again":
                severity, advice = Severity.WARNING, ""
                words = "records have a queue offset that an earlier record has, which is shown"
            elif kind == "stray":
                severity, advice = Severity.LOSS, DAMAGED_HEAD
                words = "records say queue offsets at which the queue has other messages"
            if severity is Severity.ERROR:
                self.damaged.add(key)
            elif kind == "missing":
                self.lagging.add(key)
            example = f" (first: {difference.example})" if difference.example else ""
            findings.add(
                severity, f"queue.{kind}", on_disk.folder, difference.first,
                f"{difference.count} {words}, queue offsets {difference.first} to "
                f"{difference.last}{example}",
                advice,
            )  # fmt: skip

    def _find_lost(
        self,
        key: Key,
        state: CheckedQueue,
        findings: Findings,
        losses: Losses,
        log_start: int,
        log_end: int,
    ) -> None:
        """Explain the units and queue offsets that no record has."""
        losses.begin_queue()
        on_disk = state.on_disk
        ranges = list(state.gaps)
        if on_disk is not None:
            start, stop = max(state.next, 0), self._queues.end_offset(on_disk)
            ranges.append(Gap(start, stop, state.end, NOWHERE))
        for gap in ranges:
            if on_disk is None:
                continue
            end, following = gap.after, gap.start
            for offset, unit in self._queues.written(on_disk, gap.start, gap.stop):
                physical_offset, size, _ = unit
                # Units are evidence of lost messages only where they agree with the records around
                # them.
                in_order = end <= physical_offset and physical_offset + size <= gap.before
                if gap.before == NOWHERE and state.next >= 0:
                    in_order = in_order and offset == following
                if physical_offset < 0 or size <= 0 or not in_order:
                    state.note("wrong", offset, f"it says {size} bytes at {physical_offset}")
                    continue
                end, following = physical_offset + size, offset + 1
                if physical_offset < log_start or losses.add(key, offset, physical_offset, size):
                    continue
                if physical_offset >= log_end:
                    state.note("behind", offset, "")
                else:
                    self._judge_unit(key, state, offset, unit)
        for gap in state.gaps:
            self._explain_gap(key, state, gap, findings, losses, log_start)

    def _find_lost_end(
        self,
        key: Key,
        state: CheckedQueue,
        end: int,
        findings: Findings,
        losses: Losses,
        log_start: int,
    ) -> None:
        """Messages that the queue is known to have had behind its last record."""
        start = max(state.next, 0)
        if state.next < 0 and state.on_disk is not None:
            start = self._queues.max_offset(state.on_disk)
        if end > start:
            gap = Gap(start, end, state.end, NOWHERE)
            self._explain_gap(key, state, gap, findings, losses, log_start)

    def _judge_unit(self, key: Key, state: CheckedQueue, offset: int, unit: Unit) -> None:
        """Count a unit without a record."""
        physical_offset, size, _ = unit
        record = record_at(self._log, physical_offset)
        if record is not None and record.size == size and offset < state.next:
            place = (*key, offset, physical_offset, size)
            self.misplaced[physical_offset] = Misplaced(*place, record.topic)
        else:
            state.note("wrong", offset, f"no message of this queue is at {physical_offset}")

    def _report_behind(
        self,
        key: Key,
        state: CheckedQueue,
        behind: DifferenceCount,
        findings: Findings,
        log_end: int,
        settled: bool,
    ) -> None:
        (self.damaged if settled else self.lagging).add(key)
        findings.add(
            Severity.ERROR if settled else Severity.WARNING, "queue.behind_log",
            state.on_disk.folder if state.on_disk is not None else self._queues.folder,
            behind.first,
            f"{behind.count} units, offsets {behind.first} to {behind.last}, point behind the end "
            f"of the log ({log_end})",
            "`trocket store repair` cuts the queue, and so does the next start after a kill",
        )  # fmt: skip

    def _explain_gap(
        self,
        key: Key,
        state: CheckedQueue,
        gap: Gap,
        findings: Findings,
        losses: Losses,
        log_start: int,
    ) -> None:
        if gap.after < 0 and log_start > 0:
            return  # the log's beginning was removed by retention
        on_disk = state.on_disk
        if gap.after < 0 and on_disk is not None and self._is_blank(on_disk, gap):
            return
        hole = losses.hole_between(gap.after, gap.before)
        if hole is not None:
            for offset in range(gap.start, gap.stop):
                losses.add_unplaced(key, offset, gap.before, hole)
        elif gap.after >= 0 and not self._is_misplaced(key, gap):
            stray = self._stray_in(key, state, gap)
            if stray is not None:
                self.misplaced[stray.physical_offset] = stray
            else:
                self._report_gap(key, on_disk, gap, findings)

    def _stray_in(self, key: Key, state: CheckedQueue, gap: Gap) -> Misplaced | None:
        """The record that a gap of one lacks, if just one there is in no queue as it says."""
        if gap.stop - gap.start != 1:
            return None
        found = [at for at in state.strays if gap.after <= at < gap.before]
        for (topic, queue_id), other in self.states.items():
            if (
                other.on_disk is None
                and other.count == 1
                and other.first == gap.start
                and gap.after <= other.begin < gap.before
                and (topic == key[0] or queue_id == key[1])
            ):
                found.append(other.begin)
        record = record_at(self._log, found[0]) if len(found) == 1 else None
        if record is None:
            return None
        return Misplaced(*key, gap.start, found[0], record.size, record.topic)

    def _report_gap(
        self, key: Key, on_disk: QueueOnDisk | None, gap: Gap, findings: Findings
    ) -> None:
        before = "the log's end" if gap.before == NOWHERE else gap.before
        findings.add(
            Severity.WARNING, "log.offset_gap",
            on_disk.folder if on_disk is not None else self._queues.folder, gap.start,
            f"no record of the log has the queue offsets {gap.start} to {gap.stop - 1} of "
            f"{key[0]} queue {key[1]}, though nothing is damaged between {gap.after} and {before}",
            "consumers cannot pass it: set their offsets behind it",
        )  # fmt: skip

    def _is_misplaced(self, key: Key, gap: Gap) -> bool:
        """Whether records with a damaged head are what a gap lacks."""
        known = {found[:3] for found in self.misplaced.values()}
        return len(known) >= gap.stop - gap.start and all(
            (*key, offset) in known for offset in range(gap.start, gap.stop)
        )

    def _is_blank(self, on_disk: QueueOnDisk, gap: Gap) -> bool:
        """Whether the queue itself says that there are no messages in a gap."""
        try:
            ends = (gap.start, gap.stop - 1)
            return all(self._queues.unit(on_disk, at)[1] == PRE_BLANK_SIZE for at in ends)
        except StoreIOError:
            return False
