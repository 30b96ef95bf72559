"""Validation of the index files when the store is opened.

Java counterpart: IndexService.load of 5.3.3, which removes the files that end after the checkpoint
after an unclean exit, and rebuilds only the part of the log that its recovery reads.

The files are a sequence: an invalid file is removed with all later ones, and the log is indexed
again from the end of the previous file. No damage to an index is fatal.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

from ...common.clock import LATEST_MS
from ...disk.os_disk import Disk
from ...disk.start_warnings import LEFTOVER, warn_of_strays
from ..format import FILE_MARKS_COUNT_MAX
from ..recovery.checkpoint import Checkpoint, IndexProgress
from .index_file import IndexFile

logger = logging.getLogger(__name__)

NAME_LENGTH_MAX = 18
"""Digits of a file's name, which has 17; a longer one may not fit into an int64."""


class LogSpan(NamedTuple):
    """The extent of the log, for the index.

    Attributes:
      start, end: physical offsets, [start, end).
      is_record: whether a record begins at a physical offset.
      latest_ms: the later of the wall clock and the log's newest store timestamp.
    """

    start: int
    end: int
    is_record: Callable[[int], bool]
    latest_ms: int = LATEST_MS


class LoadedIndex(NamedTuple):
    """The valid index files.

    Attributes:
      files: oldest first.
      resumed: the newest of them, if it was being filled; its slot table may have to be rebuilt
        first (`is_rebuilding`).
      catch_up: physical offset from which the log must be indexed again; None: nothing to do.
    """

    files: list[IndexFile]
    resumed: IndexFile | None
    catch_up: int | None


class IndexLoader:
    """Loads the index files of one start.

    Args:
      make_file: from a path to an `IndexFile` that is not loaded yet.
      checkpoint: the store's, as it was read.
      clean: there was no abort file.
      read_only: invalid files are not removed.
    """

    def __init__(
        self,
        disk: Disk,
        folder: str,
        make_file: Callable[[str], IndexFile],
        checkpoint: Checkpoint,
        *,
        clean: bool,
        read_only: bool,
    ) -> None:
        self._disk = disk
        self._folder = folder
        self._make_file = make_file
        self._checkpoint = checkpoint
        self._clean = clean
        self._read_only = read_only

    def load(self, log: LogSpan) -> LoadedIndex:
        """Open the valid files, remove the others.

        Raises:
          StoreIOError: a file could not be read or removed.
          CorruptRecordError: a file was cut meanwhile.
        """
        progress = self._checkpoint.index
        if progress is not None and not self._is_possible(progress, log):
            logger.warning(
                "the checkpoint's record of the index contradicts the log and is ignored: "
                "%(progress)s",
                {"progress": progress},
            )
            progress = None
        present = self._disk.list(self._folder)
        warn_of_strays(self._folder, present)
        names = [
            name
            for name in present
            if name.isascii() and name.isdigit() and len(name) <= NAME_LENGTH_MAX
        ]
        missing = _first_missing(progress, {int(name) for name in names}, log.start)
        if not present and (missing is not None or self._is_lost(log)):
            logger.warning(
                "%(folder)s has no index file, though there was one: the index is built again "
                "from the log; until then queries by key miss messages",
                {"folder": self._folder},
            )
        elif missing is not None:
            logger.warning(
                "index file %(folder)s/%(name)017d is missing: the index is built again from "
                "there; until then queries by key miss messages",
                {"folder": self._folder, "name": missing},
            )
        files: list[IndexFile] = []
        problem = ""
        for position, name in enumerate(names):
            file = self._make_file(f"{self._folder}/{name}")
            problem = self._problem(file, progress, missing, log)
            if not problem and files and file.begin_physical_offset < files[-1].end_physical_offset:
                # One of them has a wrong name, and it is unknown which.
                problem = "it begins before the end of the previous file"
                while files:
                    self._discard(files.pop(0), f"{name} {problem}")
            if problem:
                self._discard(file, problem)
                for later in names[position + 1 :]:
                    self._remove(f"{self._folder}/{later}", "an earlier file was removed")
                break
            files.append(file)
        start = self._resume_offset(files, progress, missing, log, changed=bool(problem))
        resumed = files[-1] if files and not files[-1].is_finished else None
        behind = start is not None and start < log.end
        return LoadedIndex(files, resumed, max(start or 0, log.start) if behind else None)

    def _is_lost(self, log: LogSpan) -> bool:
        """Whether RocketMQ's broker, which closed the store, must have had an index.

        It puts every message of a client into the index, by its unique key.
        """
        page = self._checkpoint
        is_theirs = page.dispatched_offset < 0 and page.physic_msg_timestamp_ms > 0
        return is_theirs and self._clean and log.end > log.start and not self._read_only

    def _is_possible(self, progress: IndexProgress, log: LogSpan) -> bool:
        return 0 <= progress.indexed_offset <= log.end and (
            progress.index_count <= 1 or progress.end_physical_offset < log.end
        )

    def _problem(
        self,
        file: IndexFile,
        progress: IndexProgress | None,
        missing: int | None,
        log: LogSpan,
    ) -> str:
        """Why a file is invalid; "" when it is valid, and then it is loaded."""
        problem = file.load()
        name = file.name
        # Files must have no gap, or the entries of the gap would be missing for good.
        if missing is not None and name > missing:
            return f"the earlier file {missing} is missing"
        if progress is not None and name == progress.file_name:
            if file.has_right_size:
                problem = file.resume(progress, clean=self._clean, read_only=self._read_only)
        elif not problem and progress is not None:
            problem = _contradiction(file, progress)
        if problem:
            return problem
        if file.index_count > 1 and file.end_physical_offset >= log.end:
            return f"it names a message at {file.end_physical_offset}, after the log's end"
        vouched = progress is not None and (
            name == progress.file_name or (name, file.header_crc) in (progress.files or ())
        )
        # Of a log that was cut or replaced: its offsets may belong to other messages now.
        if not vouched and file.end_timestamp_ms > log.latest_ms:
            return (
                f"it names a message stored at {file.end_timestamp_ms} ms, which is later than log "
                "and clock"
            )
        written_ms = self._checkpoint.index_msg_timestamp_ms
        if not self._clean and not vouched and file.end_timestamp_ms > written_ms:
            return "the checkpoint does not cover it"
        return ""

    def _resume_offset(
        self,
        files: list[IndexFile],
        progress: IndexProgress | None,
        missing: int | None,
        log: LogSpan,
        *,
        changed: bool,
    ) -> int | None:
        """Physical offset from which the log must be indexed; None: the files are complete."""
        if progress is not None and missing is None and _is_kept(files, progress):
            return progress.indexed_offset
        is_ours = self._checkpoint.dispatched_offset >= 0
        if self._clean and not is_ours and not changed and files:
            return None  # a clean exit of Apache's broker
        while files:
            end = files[-1].end_physical_offset
            if end < log.start or log.is_record(end):
                return end
            self._discard(files.pop(), f"its last message is at {end}, where the log has none")
        return log.start

    def _discard(self, file: IndexFile, problem: str) -> None:
        file.close()
        self._remove(file.path, problem)

    def _remove(self, path: str, problem: str) -> None:
        if self._read_only:
            logger.warning(
                "index file %(path)s is not used: %(problem)s", {"path": path, "problem": problem}
            )
            return
        logger.warning(
            "index file %(path)s is removed and rebuilt from the log: %(problem)s",
            {"path": path, "problem": problem},
            extra=None if self._clean else LEFTOVER,  # a crash leaves files without a checkpoint
        )
        self._disk.unlink(path)


def _is_kept(files: list[IndexFile], progress: IndexProgress) -> bool:
    """Whether the newest file is the newest one of the checkpoint."""
    newest = files[-1].name if files else 0
    if progress.file_name:
        return newest == progress.file_name
    return progress.files is not None and newest == (progress.files or ((0, 0),))[-1][0]


def _contradiction(file: IndexFile, progress: IndexProgress) -> str:
    """How the checkpoint contradicts a finished file; "" if it does not."""
    marks = dict(progress.files or ())
    # The checkpoint has room for the newest files only; an older one may be valid.
    oldest = min(marks) if len(marks) >= FILE_MARKS_COUNT_MAX else 0
    if progress.files is not None and not (file.name in marks or file.name < oldest):
        return "the checkpoint does not name it"
    if marks.get(file.name, file.header_crc) != file.header_crc:
        return "its header is not the one that was written"
    return ""


def _first_missing(progress: IndexProgress | None, present: set[int], log_start: int) -> int | None:
    """The name of the first file of the checkpoint that is missing."""
    if progress is None or progress.files is None:
        return None
    expected = [name for name, _ in progress.files]
    if progress.file_name:
        expected.append(progress.file_name)
    first = 0
    # Retention may have deleted the oldest index files together with the log's beginning.
    if log_start > 0 and present:
        while first < len(progress.files) and expected[first] not in present:
            first += 1
    return next((name for name in expected[first:] if name not in present), None)
