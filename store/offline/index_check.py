"""The comparison of index files with the log: chains, entries without a record, missing entries.

Entries are in the log's order, so files and log are read side by side. An entry out of order is
looked up separately.
"""

from __future__ import annotations

import sys
from array import array
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from ...disk.os_disk import Disk, DiskFile
from ...disk.position import Position
from ..format import ENTRY, ENTRY_SIZE, INDEX_HEADER_SIZE, SLOT_SIZE
from ..log.commit_log import CommitLog
from ..log.log_reader import LogRecord, record_at
from .findings import Findings, Severity
from .index_counts import Header, IndexCounts, key_hashes, read_header, tag_hash

CHUNK_COUNT = 3276
"""Entries read at once, 64 KiB."""

_WORD_BYTES = 256 * 1024

REBUILD = "`trocket store repair` rebuilds the index from the log"


class Entry(NamedTuple):
    """One plausible entry."""

    path: str
    number: int
    key_hash: int
    physical_offset: int


class Problems:
    """Differences of one file: number and first example by kind."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.first: dict[str, tuple[int, str]] = {}

    def note(self, kind: str, number: int, example: str) -> None:
        """Count one difference."""
        self.counts[kind] += 1
        self.first.setdefault(kind, (number, example))


WORDS = {
    "chain": "entries do not name the entry before them in their slot",
    "slot": "slots do not name the newest entry of their hashes",
    "nowhere": "entries point at no record of the log",
    "key": "entries point at a record that has no key of this hash",
    "time": "first messages are newer than the last: the clock went back",
    "header": "header fields are not what the entries say",
}


class IndexCheck:
    """The index of one store, compared while the log is walked.

    Args:
      paths: the files, oldest first.
      counts: of each.
      log: to look up records out of order.
      log_end: physical offset after the last record.
      unfinished: name of the file that is being filled, by the checkpoint; "": none.
    """

    def __init__(
        self,
        disk: Disk,
        paths: list[str],
        counts: IndexCounts,
        log: CommitLog,
        *,
        log_end: int,
        unfinished: str,
    ) -> None:
        self.entry_count = 0
        self.missing_count = 0
        self.first_missing = -1
        self.last_missing = -1
        self.last_missing_run = 0
        """The number of missing entries that are of records after the last entry."""
        self.again_count = 0
        self.is_damaged = False
        self.problems: dict[str, Problems] = {path: Problems() for path in paths}
        self.unfinished_paths: list[str] = []
        self.empty_paths: list[str] = []
        self.wrong_size: dict[str, int] = {}
        self._disk = disk
        self._paths = paths
        self._counts = counts
        self._log = log
        self._log_end = log_end
        self._unfinished = unfinished
        self._begin = -1
        self._done: set[tuple[int, int]] = set()
        self._entries = self._all_entries()
        self._entry: Entry | None = next(self._entries, None)

    def feed(self, record: LogRecord) -> None:
        """Compare one record's entries; records come in the log's order.

        Raises:
          StoreIOError: a file cannot be read.
        """
        offset = record.physical_offset
        entry = self._entry
        while entry is not None and entry.physical_offset < offset:
            self._look_up(entry)
            entry = self._entry = next(self._entries, None)
        wanted = key_hashes(record)
        also = -1
        while entry is not None and entry.physical_offset == offset:
            key_hash = entry.key_hash
            if key_hash in wanted:
                wanted.remove(key_hash)
            elif key_hash in key_hashes(record):
                self.again_count += 1
            else:
                if also < 0:
                    also = tag_hash(record) or 0
                # Apache's 5.x also indexes a message's tags, which is not wrong.
                if key_hash != also:
                    self.problems[entry.path].note("key", entry.number, f"hash {key_hash}")
            entry = self._entry = next(self._entries, None)
        # Records before the index begins lost their entries with its deleted files.
        if wanted and (self._begin < 0 or offset >= self._begin):
            for key_hash in wanted:
                if (offset, key_hash) in self._done:
                    self._done.remove((offset, key_hash))
                    continue
                self.missing_count += 1
                self.last_missing = offset
                if self.first_missing < 0:
                    self.first_missing = offset
                if entry is None:
                    self.last_missing_run += 1

    def finish(self, findings: Findings, *, settled: bool) -> None:
        """Check the remaining entries, and add the findings.

        Args:
          settled: no broker will complete the index at its next start.

        Raises:
          StoreIOError: a file cannot be read.
        """
        while self._entry is not None:
            self._look_up(self._entry)
            self._entry = next(self._entries, None)
        for path in self.unfinished_paths:
            findings.add(
                Severity.ERROR if settled else Severity.WARNING, "index.unfinished", path, -1,
                "the file was being filled when the broker died: its slots and header are not "
                "written", "the next start of the broker resumes it",
            )  # fmt: skip
            self.is_damaged |= settled
        for path in self.empty_paths:
            findings.add(Severity.INFO, "index.empty", path, -1, "the file has no entries")
        for path, size in self.wrong_size.items():
            self.is_damaged = True
            findings.add(
                Severity.ERROR, "index.file_size", path, -1,
                f"the file is {size} bytes long, and not {self._counts.file_size}", REBUILD,
            )  # fmt: skip
        for path, problems in self.problems.items():
            for kind, count in problems.counts.items():
                number, example = problems.first[kind]
                is_harmless = kind == "time"
                self.is_damaged |= not is_harmless
                findings.add(
                    Severity.WARNING if is_harmless else Severity.ERROR, f"index.{kind}", path,
                    number, f"{count} {WORDS[kind]} (first: {example})",
                    "queries by key and time may miss messages" if is_harmless else REBUILD,
                )  # fmt: skip
        # Entries missing at the end are a backlog, which the broker adds; others are lost.
        inside = self.missing_count - self.last_missing_run
        if inside:
            self.is_damaged = True
            findings.add(
                Severity.ERROR, "index.missing", self._paths[-1], -1,
                f"{inside} keys of records have no entry; the first record is at "
                f"{self.first_missing}", REBUILD,
            )  # fmt: skip
        if self.last_missing_run:
            self.is_damaged |= settled
            findings.add(
                Severity.ERROR if settled else Severity.WARNING, "index.behind", self._paths[-1],
                -1, f"{self.last_missing_run} keys of the newest records have no entry yet",
                REBUILD if settled else "the next start of the broker adds them",
            )  # fmt: skip
        if self.again_count:
            findings.add(
                Severity.INFO, "index.again", self._paths[-1], -1,
                f"{self.again_count} keys have their entry twice, as a recovery leaves it",
            )  # fmt: skip

    def _look_up(self, entry: Entry) -> None:
        if entry.physical_offset < self._log.min_offset:
            return  # removed by retention
        record = record_at(self._log, entry.physical_offset)
        if record is None:
            example = f"offset {entry.physical_offset}"
            self.problems[entry.path].note("nowhere", entry.number, example)
        elif entry.key_hash in key_hashes(record):
            self.again_count += 1
        elif entry.key_hash != tag_hash(record):
            self.problems[entry.path].note("key", entry.number, f"hash {entry.key_hash}")

    def _all_entries(self) -> Iterator[Entry]:
        """The entries in order; entries out of order are checked at once."""
        before: Entry | None = None
        for path in self._paths:
            file = self._disk.open(path)
            try:
                for entry in self._entries_of(path, file):
                    if self._begin < 0:
                        self._begin = entry.physical_offset
                    if entry.physical_offset >= self._log_end:
                        example = f"offset {entry.physical_offset}"
                        self.problems[path].note("nowhere", entry.number, example)
                        continue
                    if before is not None:
                        # `feed` walks the log beside the entries, so only ascending ones can wait
                        # for their record.
                        if before.physical_offset <= entry.physical_offset:
                            yield before
                        else:
                            self._judge_early(before)
                    before = entry
            finally:
                file.close()
        if before is not None:
            yield before

    def _judge_early(self, entry: Entry) -> None:
        """Check an entry with a greater offset than the next one's: correct, but out of order?"""
        record = record_at(self._log, entry.physical_offset)
        if record is not None and entry.key_hash in key_hashes(record):
            self._done.add((entry.physical_offset, entry.key_hash))
        else:
            self._look_up(entry)

    def _entries_of(self, path: str, file: DiskFile) -> Iterator[Entry]:
        counts, problems = self._counts, self.problems[path]
        if file.size() == 0 and path == self._paths[-1]:  # killed before it had its size
            self.unfinished_paths.append(path)
            return
        if file.size() != counts.file_size:
            self.wrong_size[path] = file.size()
            return
        header = read_header(file)
        if header.index_count <= 1:
            first = file.pread(ENTRY_SIZE, Position(_entries_at(counts) + ENTRY_SIZE))
            is_unfinished = any(first) or path.endswith(f"/{self._unfinished}")
            (self.unfinished_paths if is_unfinished else self.empty_paths).append(path)
            return
        if header.index_count > counts.index_count_max:
            problems.note("header", 0, f"index_count {header.index_count}")
            return
        newest = array("i", bytes(counts.slot_count * SLOT_SIZE))
        number = 1
        first_entry: Entry | None = None
        entry = None
        while number < header.index_count:
            count = min(CHUNK_COUNT, header.index_count - number)
            raw = file.pread(
                count * ENTRY_SIZE, Position(_entries_at(counts) + number * ENTRY_SIZE)
            )
            for key_hash, offset, _, previous in ENTRY.iter_unpack(raw):
                if key_hash < 0 or offset < 0:
                    problems.note("nowhere", number, f"hash {key_hash}, offset {offset}")
                else:
                    slot = key_hash % counts.slot_count
                    if previous != newest[slot]:
                        problems.note("chain", number, f"{previous}, not {newest[slot]}")
                    newest[slot] = number
                    entry = Entry(path, number, key_hash, offset)
                    first_entry = first_entry or entry
                    yield entry
                number += 1
            self.entry_count += count
        self._check_slots(file, header, newest, problems)
        self._check_header(header, first_entry, entry, problems)

    def _check_slots(
        self, file: DiskFile, header: Header, newest: array[int], problems: Problems
    ) -> None:
        used = 0
        words = _WORD_BYTES // SLOT_SIZE
        for first in range(0, len(newest), words):
            expected = newest[first : first + words]
            position = Position(INDEX_HEADER_SIZE + first * SLOT_SIZE)
            found = array("i", file.pread(len(expected) * SLOT_SIZE, position))
            if sys.byteorder == "little":
                found.byteswap()
            used += len(expected) - expected.count(0)
            # Nearly always equal; slot by slot is much slower.
            if found == expected:
                continue
            for slot, (is_, should) in enumerate(zip(found, expected, strict=True), first):
                if is_ != should and (should or 0 < is_ < header.index_count):
                    problems.note("slot", should, f"slot {slot} says {is_}, not {should}")
        if used != header.hash_slot_count:
            problems.note("header", 0, f"hash_slot_count {header.hash_slot_count}, not {used}")

    def _check_header(
        self, header: Header, first: Entry | None, last: Entry | None, problems: Problems
    ) -> None:
        if first is None or last is None:
            return
        if header.begin_timestamp_ms > header.end_timestamp_ms:
            problems.note("time", 0, f"{header.begin_timestamp_ms} and {header.end_timestamp_ms}")
        if header.begin_physical_offset != first.physical_offset:
            problems.note("header", 0, f"begin_physical_offset {header.begin_physical_offset}")
        if header.end_physical_offset != last.physical_offset:
            problems.note("header", 0, f"end_physical_offset {header.end_physical_offset}")


def _entries_at(counts: IndexCounts) -> int:
    return INDEX_HEADER_SIZE + counts.slot_count * SLOT_SIZE
