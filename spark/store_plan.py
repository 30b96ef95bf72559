"""Plan of a store query: the stores of a path, and the splits of their logs for tasks.

It reads only, and needs no broker. A store that a broker has open is read up to the end of its
queues at planning time; any other store is locked during the planning.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from glob import has_magic
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Final

from ..disk.os_disk import Disk
from ..store.log.commit_log import CommitLog
from ..store.log.log_bytes import last_nonzero
from ..store.log.log_reader import record_at
from ..store.offline.layout import Layout, NoStoreError
from ..store.offline.log_walk import LogWalk
from ..store.offline.opening import opened
from .errors import DataLossError, OptionError
from .queue_units import check_queues
from .store_options import StoreOptions

logger = logging.getLogger(__name__)

CLOCK_STEP_MAX_MS: Final = 600_000
"""Store times rise, except when a broker's clock steps back. Files are skipped only if they would
not match even after a step of ten minutes."""


@dataclass(frozen=True)
class LogSplit:
    """The records that begin in [begin, end) bytes of one log file.

    Attributes:
      broker_name: the name of the store's broker.
      base: physical offset of the file's first byte.
      file_size: the size of this store's log files in bytes.
      limit: bytes of this file that may be read.
      is_newest: all later files are empty.
    """

    path: str
    root: str
    broker_name: str
    base: int
    file_size: int
    limit: int
    is_newest: bool
    begin: int
    end: int


@dataclass(frozen=True)
class StoreAt:
    """One store: its root folder and its broker's name."""

    root: str
    broker_name: str


def find_stores(disk: Disk, options: StoreOptions) -> list[StoreAt]:
    """The stores that match the option path.

    Raises:
      OptionError: there is no such folder, or brokerName is given for several.
    """
    path = options.path.removeprefix("file://").rstrip("/") or "/"
    roots = _matching(path) if has_magic(path) else [path]
    roots = [root for root in roots if disk.is_folder(root)]
    if not roots:
        raise OptionError(
            f"there is no folder {path}: give the folder of storePathRootDir, which must exist on"
            " every machine that reads it"
        )
    if options.broker_name is not None and len(roots) > 1:
        raise OptionError(
            f"{path} matches {len(roots)} stores, but brokerName names one: omit it to name each"
            " store by its folder"
        )
    return [StoreAt(root, options.broker_name or name_of(root)) for root in roots]


def _matching(pattern: str) -> list[str]:
    path = Path(pattern)
    folder = Path(path.anchor or ".")
    return sorted(str(found) for found in folder.glob(str(path.relative_to(path.anchor))))


def name_of(root: str) -> str:
    """A broker's name from its store's path: the last folder whose name is not `store`."""
    parts = [part for part in PurePosixPath(root).parts if part not in ("/", "store")]
    return parts[-1] if parts else "broker"


def plan_log(disk: Disk, stores: list[StoreAt], options: StoreOptions) -> list[LogSplit]:
    """The splits of all stores' logs, oldest first.

    Raises:
      OptionError: a path is not a store.
      DataLossError: a file between others is missing.
      StoreIOError: a file cannot be read.
    """
    splits: list[LogSplit] = []
    for store in stores:
        try:
            with opened(disk, store.root, live=True) as (layout, stop):
                if options.only_queues:
                    check_queues(disk, store.root)
                splits += _splits(disk, layout, store, stop, options)
        except NoStoreError as error:
            raise OptionError(str(error)) from error
    return splits


def _splits(
    disk: Disk, layout: Layout, store: StoreAt, stop: int | None, options: StoreOptions
) -> Iterator[LogSplit]:
    log = layout.commit_log(disk)
    try:
        newest = newest_base(log, stop)
        _check_gaps(log, newest, options)
        for base in _in_time(log, newest, options):
            limit = min(log.files[base].size(), layout.log_file_size)
            if stop is not None:
                limit = min(limit, stop - base)
            for begin in range(0, max(limit, 1), options.split_bytes):
                yield LogSplit(
                    path=layout.log_path(base),
                    root=store.root,
                    broker_name=store.broker_name,
                    base=base,
                    file_size=layout.log_file_size,
                    limit=limit,
                    is_newest=base == newest,
                    begin=begin,
                    end=min(begin + options.split_bytes, limit),
                )
    finally:
        log.close()


def _check_gaps(log: CommitLog, newest: int, options: StoreOptions) -> None:
    bases = [base for base in log.files if base <= newest]
    for before, base in pairwise(bases):
        if base == before + log.file_size:
            continue
        text = f"{log.path_of(before + log.file_size)} is missing, but later files exist"
        if options.fail_on_data_loss:
            raise DataLossError(f"{text}; set failOnDataLoss=false to read the other files")
        logger.warning("%s; its messages are missing in the result", text)


def newest_base(log: CommitLog, stop: int | None) -> int:
    """Physical offset of the newest file that is not empty: brokers create the next one ahead.

    Raises:
      StoreIOError: a file cannot be read.
    """
    bases = [base for base in log.files if stop is None or base < stop]
    while len(bases) > 1:
        if record_at(log, bases[-1]) or last_nonzero(log, bases[-1]) > bases[-1]:
            break
        bases.pop()
    return bases[-1] if bases else 0


def _in_time(log: CommitLog, newest: int, options: StoreOptions) -> list[int]:
    """The files that may hold messages of the requested times."""
    bases = [base for base in log.files if base <= newest]
    first_ms, last_ms = options.starting_timestamp, options.ending_timestamp
    if first_ms is None and last_ms is None:
        return bases
    times = [_first_time(log, base) for base in bases]
    wanted = []
    for index, base in enumerate(bases):
        begins = times[index]
        ends = times[index + 1] if index + 1 < len(bases) else None
        is_older = first_ms is not None and ends is not None and ends + CLOCK_STEP_MAX_MS < first_ms
        is_newer = (
            last_ms is not None and begins is not None and begins - CLOCK_STEP_MAX_MS > last_ms
        )
        if not is_older and not is_newer:
            wanted.append(base)
    return wanted


def _first_time(log: CommitLog, base: int) -> int | None:
    record = record_at(log, base)
    if record is None:
        # The file begins with a hole: search for its first record.
        record = next(iter(LogWalk(log, start=base, stop=base + log.file_size).records()), None)
    return record.store_timestamp_ms if record is not None else None
