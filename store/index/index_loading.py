"""Which index files are believed when the store is opened, and from where the log is read again.

Java counterpart: IndexService.load of 5.3.3, which removes the files that end behind the
checkpoint after an unclean exit, and builds again only what the log's recovery happens to read.

The files are a sequence: when one of them cannot be believed, it goes with all after it, and the
log is indexed again from where the one before it ends. No damage to an index is fatal.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

from ..clock import LATEST_MS
from ..disk.os_disk import Disk
from ..format import FILE_MARKS_COUNT_MAX
from ..recovery.checkpoint import Checkpoint, IndexProgress
from .index_file import IndexFile

logger = logging.getLogger(__name__)

NAME_LENGTH_MAX = 18
"""Digits of a file's name, which has 17; more would be no int64."""


class LogSpan(NamedTuple):
    """What the index is told of the log.

    Attributes:
      start, end: the first and last physical offset that is there, bytes; [start, end).
      is_record: whether a record begins at a physical offset.
      latest_ms: the later of the wall clock and the log's newest store timestamp.
    """

    start: int
    end: int
    is_record: Callable[[int], bool]
    latest_ms: int = LATEST_MS


class LoadedIndex(NamedTuple):
    """What was found.

    Attributes:
      files: that are believed, oldest first.
      resumed: the newest of them, when it was being filled; its slot table may have to be made
        again first (`is_rebuilding`).
      catch_up: physical offset from which the log must be indexed again; None: nothing to do.
    """

    files: list[IndexFile]
    resumed: IndexFile | None
    catch_up: int | None


class IndexLoader:
    """One look at the files.

    Args:
      disk, folder: where they are.
      make_file: from a path to a file that is not loaded yet.
      checkpoint: the store's, as it was read.
      clean: there was no abort file.
      read_only: files that are not believed are left where they are.
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
        """Open the files that are believed, remove the others.

        Raises:
          StoreIOError: a file could not be read or removed.
          CorruptRecordError: a file was cut at this very moment.
        """
        progress = self._checkpoint.index
        if progress is not None and not self._is_possible(progress, log):
            logger.warning("the checkpoint's word on the index does not fit the log: %s", progress)
            progress = None
        names = [
            name
            for name in self._disk.list(self._folder)
            if name.isascii() and name.isdigit() and len(name) <= NAME_LENGTH_MAX
        ]
        missing = _first_missing(progress, {int(name) for name in names}, log.start)
        files: list[IndexFile] = []
        problem = ""
        for position, name in enumerate(names):
            file = self._make_file(f"{self._folder}/{name}")
            problem = self._problem(file, progress, missing, log)
            if not problem and files and file.begin_physical_offset < files[-1].end_physical_offset:
                # Which of them has another's name cannot be told.
                problem = "it begins before the file before it ends"
                while files:
                    self._give_up(files.pop(0), f"{name} {problem}")
            if problem:
                self._give_up(file, problem)
                for later in names[position + 1 :]:
                    self._remove(f"{self._folder}/{later}", "a file before it is gone")
                break
            files.append(file)
        start = self._resume_offset(files, progress, missing, log, changed=bool(problem))
        resumed = files[-1] if files and not files[-1].is_finished else None
        behind = start is not None and start < log.end
        return LoadedIndex(files, resumed, max(start or 0, log.start) if behind else None)

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
        """Why a file is not believed; "" when it is, and it is ready then."""
        problem = file.load()
        name = file.name
        if missing is not None and name > missing:
            return f"the file {missing} before it is missing"
        if progress is not None and name == progress.file_name:
            if file.has_right_size:
                problem = file.resume(progress, clean=self._clean, read_only=self._read_only)
        elif not problem and progress is not None:
            problem = _contradiction(file, progress)
        if problem:
            return problem
        if file.index_count > 1 and file.end_physical_offset >= log.end:
            return f"it knows a message at {file.end_physical_offset}, behind the log's end"
        vouched = progress is not None and (
            name == progress.file_name or (name, file.header_crc) in (progress.files or ())
        )
        if not vouched and file.end_timestamp_ms > log.latest_ms:
            return (
                f"it knows a message stored at {file.end_timestamp_ms} ms, when neither log nor "
                "clock have come there"
            )
        written_ms = self._checkpoint.index_msg_timestamp_ms
        if not self._clean and not vouched and file.end_timestamp_ms > written_ms:
            return "the checkpoint does not say that it was written out"
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
        """From where the log must be indexed; None: the files are whole."""
        if progress is not None and missing is None and _is_kept(files, progress):
            return progress.indexed_offset
        is_ours = self._checkpoint.dispatched_offset >= 0
        if self._clean and not is_ours and not changed and files:
            return None  # Apache's broker left it so
        while files:
            end = files[-1].end_physical_offset
            if end < log.start or log.is_record(end):
                return end
            self._give_up(files.pop(), f"it ends with a message at {end}, where none is")
        return log.start

    def _give_up(self, file: IndexFile, problem: str) -> None:
        file.close()
        self._remove(file.path, problem)

    def _remove(self, path: str, problem: str) -> None:
        if self._read_only:
            logger.warning("index file %s is not used: %s", path, problem)
            return
        logger.warning("index file %s is removed and built again from the log: %s", path, problem)
        self._disk.unlink(path)


def _is_kept(files: list[IndexFile], progress: IndexProgress) -> bool:
    """Whether every file that the checkpoint vouches for is there."""
    newest = files[-1].name if files else 0
    if progress.file_name:
        return newest == progress.file_name
    return progress.files is not None and newest == (progress.files or ((0, 0),))[-1][0]


def _contradiction(file: IndexFile, progress: IndexProgress) -> str:
    """What the checkpoint says against a file that is not the one being filled."""
    marks = dict(progress.files or ())
    # Of very many files the checkpoint names the newest ones; an older one may be right.
    oldest = min(marks) if len(marks) >= FILE_MARKS_COUNT_MAX else 0
    if progress.files is not None and not (file.name in marks or file.name < oldest):
        return "the checkpoint does not know it"
    if marks.get(file.name, file.header_crc) != file.header_crc:
        return "its header is not the one that was written"
    return ""


def _first_missing(progress: IndexProgress | None, present: set[int], log_start: int) -> int | None:
    """The name of the first file that should be there and is not.

    Of a log whose beginning was cleaned away, the oldest index files may be so too.
    """
    if progress is None or progress.files is None:
        return None
    expected = [name for name, _ in progress.files]
    if progress.file_name:
        expected.append(progress.file_name)
    first = 0
    if log_start > 0 and present:
        while first < len(progress.files) and expected[first] not in present:
            first += 1
    return next((name for name in expected[first:] if name not in present), None)
