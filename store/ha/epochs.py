"""The epochs of a log in controller mode, and their file.

Each master of a set has an epoch, a number that the controller counts up. The list of epochs says
at which physical offset the log of each master begins; an epoch ends where the next one begins, and
the last one with the log. Two brokers find by their lists up to where their logs are the same.

Java counterparts: ha/autoswitch/EpochFileCache.java and CheckpointFile.java of 5.5.0. Unlike there,
an epoch in which nothing was written is replaced by the next one (see `Epochs.append`).
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple
from zlib import crc32

from ...common.java_integers import INT32_MAX, INT64_MAX
from ...disk.errors import CorruptRecordError
from ...disk.json_config import read_bytes, write_copy
from ...disk.os_disk import Disk

logger = logging.getLogger(__name__)

NO_EPOCH: Final = -1
"""The number of the last epoch of an empty list, as in Apache's heartbeats."""

_NOT_CHECKED = 0
"""A checksum that Apache's broker does not compare."""


class EpochError(ValueError):
    """Epochs that no log can have; the message says why."""


class Epoch(NamedTuple):
    """One epoch.

    Attributes:
      number: 0 … 2^31 - 1.
      start: physical offset of its first byte, 0 … 2^63 - 1.
    """

    number: int
    start: int


class Epochs:
    """The epochs of one log, oldest first. Immutable.

    Numbers rise, and starts never fall.

    Raises:
      EpochError: they do, or a number is out of range.
    """

    __slots__ = ("_entries", "_starts")

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self._entries = tuple(Epoch(*entry) for entry in entries)
        self._starts = [entry.start for entry in self._entries]
        before = Epoch(NO_EPOCH, 0)
        for entry in self._entries:
            if not 0 <= entry.number <= INT32_MAX or not 0 <= entry.start <= INT64_MAX:
                raise EpochError(f"epoch {entry.number} at offset {entry.start}")
            if entry.number <= before.number or entry.start < before.start:
                raise EpochError(
                    f"epoch {entry.number} at offset {entry.start} after epoch {before.number} at "
                    f"offset {before.start}"
                )
            before = entry

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Epoch]:
        return iter(self._entries)

    def __getitem__(self, index: int) -> Epoch:
        return self._entries[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Epochs) and self._entries == other._entries

    def __hash__(self) -> int:
        return hash(self._entries)

    def __repr__(self) -> str:
        return f"Epochs({[tuple(entry) for entry in self._entries]})"

    @property
    def last_number(self) -> int:
        """The number of the newest epoch; `NO_EPOCH`: there is none."""
        return self._entries[-1].number if self._entries else NO_EPOCH

    def append(self, number: int, start: int) -> Epochs:
        """The list with a new epoch; the same list if its last epoch is this one.

        An epoch in which nothing was written is replaced. Apache's broker refuses the new one
        instead, so that two different logs may have the same list.

        Args:
          number: higher than `last_number`. A master that was started again in its epoch has it in
            its list, and appends nothing.
          start: the end of the log; for the first epoch, its begin.

        Raises:
          EpochError: the list would not be sorted.
        """
        entries = self._entries
        if entries and entries[-1] == (number, start):
            return self
        # Compared with the last one before it is dropped: the new number must be above it.
        whole = Epochs((*entries, (number, start)))
        if entries and entries[-1].start == start:
            return Epochs((*entries[:-1], (number, start)))
        return whole

    def cut(self, end: int) -> Epochs:
        """The epochs that have bytes before a physical offset, at which the log was cut."""
        return Epochs(entry for entry in self._entries if entry.start < end)

    def drop_before(self, start: int) -> Epochs:
        """The epochs that have bytes from a physical offset on, and always the newest.

        Args:
          start: the begin of the log; older files have expired.
        """
        return Epochs(self._entries[max(self.index_at(start), 0) :])

    def newest(self, count: int) -> Epochs:
        """At most `count` of the newest epochs."""
        return Epochs(self._entries[-count:])

    def index_at(self, offset: int) -> int:
        """Index of the epoch of the byte at a physical offset; -1: it is before the first one."""
        return bisect_right(self._starts, offset) - 1

    def end_of(self, index: int, log_end: int) -> int:
        """Physical offset at which an epoch ends.

        Args:
          log_end: the end of the log, and of the newest epoch.
        """
        return self._entries[index + 1].start if index + 1 < len(self._entries) else log_end


def consistent_point(own: Epochs, own_end: int, theirs: Epochs, their_end: int) -> int | None:
    """Physical offset up to which two logs are the same, by their epochs.

    Args:
      own_end, their_end: the ends of the logs.

    Returns: the end of the newest epoch that both have with the same start, or its shorter part;
      None: they have no epoch in common.

    Source: 5.5.0 EpochFileCache.findConsistentPoint.
    """
    places = {entry: index for index, entry in enumerate(theirs)}
    for index in reversed(range(len(own))):
        place = places.get(own[index])
        if place is not None:
            return min(own.end_of(index, own_end), theirs.end_of(place, their_end))
    return None


# The file: the number of entries, the checksum of the lines after it, a line for each entry. Each
# line ends with the newline of the machine that wrote it.


def encode_epochs(epochs: Epochs) -> bytes:
    """The text of the file, as Apache's broker writes it on Linux."""
    lines = "".join(f"{entry.number}-{entry.start}\n" for entry in epochs).encode()
    return b"%d\n%d\n%b" % (len(epochs), _checksum(lines), lines)


def decode_epochs(text: bytes) -> Epochs:
    """The epochs in the text of a file.

    Raises:
      ValueError: it is not such a text, or is damaged.
    """
    lines = text.replace(b"\r\n", b"\n").split(b"\n", 2)
    if len(lines) < 3:
        raise ValueError("it has fewer than two lines")
    count, expected = (_number(line) for line in lines[:2])
    written = lines[2].replace(b"\n", b"\r\n") if b"\r\n" in text else lines[2]
    if expected != _NOT_CHECKED and _checksum(written) != expected & INT32_MAX:
        raise ValueError(f"its checksum is not {expected}")
    entries = []
    for line in lines[2].split():
        number, dash, start = line.partition(b"-")
        if not dash:
            raise ValueError(f"{line[:40]!r} is no epoch")
        entries.append((_number(number), _number(start)))
    if len(entries) != count:
        raise ValueError(f"it has {len(entries)} epochs, and its first line says {count}")
    return Epochs(entries)


def _number(text: bytes) -> int:
    # `int` alone also takes blanks, underscores, and digits without a limit.
    digits = text.removeprefix(b"-")
    if not digits.isdigit() or len(digits) > 19:
        raise ValueError(f"{text[:40]!r} is no number")
    return int(text)


def _checksum(lines: bytes) -> int:
    """CRC32 without its highest bit, as UtilAll.crc32 of 5.5.0."""
    return crc32(lines) & INT32_MAX


class EpochFile:
    """The file of a log's epochs. Owned by the store's task.

    Args:
      path: `MessageStoreConfig.epoch_file`.

    Attributes:
      epochs: as loaded or saved last.
    """

    def __init__(self, disk: Disk, path: str) -> None:
        self.path = path
        self.epochs = Epochs()
        self._disk = disk

    def load(self) -> Epochs:
        """Read the file, or its `.bak` if it cannot be used; neither file: no epochs.

        A `.bak` may lack the newest epochs. That is safe: their bytes then count to an older epoch,
        and are cut and copied again.

        Raises:
          CorruptRecordError: there are files, but none can be used.
          StoreIOError: a file could not be read.
        """
        problems = []
        for path in (self.path, f"{self.path}.bak"):
            if not self._disk.exists(path):
                continue
            try:
                epochs = decode_epochs(read_bytes(self._disk, path))
            except ValueError as error:
                problems.append(f"{path}: {error}")
                continue
            # An empty list in the file is passed over, as Apache's broker does.
            if epochs or path != self.path:
                if problems:
                    logger.error(
                        "%(problem)s; %(file)s is used instead, which is older",
                        {"problem": problems[0], "file": path},
                    )
                self.epochs = epochs
                return epochs
        if problems:
            raise CorruptRecordError(
                self.path,
                0,
                f"the epochs of the log cannot be read ({'; '.join(problems)}). Restore the file, "
                "or remove it and its .bak: a slave then compares its log with the master's",
            )
        self.epochs = Epochs()
        return self.epochs

    def save(self, epochs: Epochs) -> None:
        """Replace the file; the old one is kept as `.bak`. It is durable when this returns.

        Raises:
          StoreIOError: it could not be written; the old file is unchanged.
        """
        if epochs == self.epochs:
            return
        disk, path = self._disk, self.path
        folder = path.rpartition("/")[0]
        disk.make_folder(folder)
        if epochs:
            # Only a list that was read or written here, so never a damaged text.
            if self.epochs:
                write_copy(disk, f"{path}.bak", encode_epochs(self.epochs), private=False)
            write_copy(disk, path, encode_epochs(epochs), private=False)
        else:
            # Apache's broker would read the `.bak` in place of an empty list.
            disk.unlink(f"{path}.bak")
            disk.unlink(path)
        disk.sync_folder(folder)
        self.epochs = epochs
