"""`deleted_topics.trocket`: the names of topics that were deleted and not made again.

A deleted topic's messages stay in the log until retention takes them. After a crash recovery may
build queues from them, and delayed messages may still be delivered to it. Without this file such
queues look like those of a topic that the table of topics has lost, which is made again at a start.

Ours; RocketMQ has no such file and leaves it alone. Text: the CRC32 of all that follows the first
line, as 8 hex digits, a newline, then JSON. Written to a temporary file, synced, renamed.
"""

from __future__ import annotations

import json
import logging
import zlib
from collections.abc import Iterable
from typing import Final

from ..disk.os_disk import Disk
from ..offsets import START

logger = logging.getLogger(__name__)

FILE_NAME = "deleted_topics.trocket"
VERSION = 1


DELETED_COUNT_MAX: Final = 100_000
"""Names that are kept, as many as there may be topics; the oldest deletions are forgotten first.
Each deletion writes the file: 100 bytes a name."""


class DeletedTopics:
    """The deletions of one store. Owned by the store's task.

    Args:
      disk, root: where the store is.

    Attributes:
      names: the topics that are deleted, in the order of their deletions.
      known_from: physical offset from which on every deletion is noted; None: there is no file, so
        that nothing is known of deletions.
    """

    def __init__(self, disk: Disk, root: str) -> None:
        self.names: dict[str, None] = {}
        self.known_from: int | None = None
        self._disk = disk
        self._path = f"{root}/{FILE_NAME}"
        self._root = root

    def load(self) -> None:
        """Read the file; one that is damaged counts as none, and this is logged.

        Raises:
          StoreIOError: it could not be read.
        """
        if not self._disk.exists(self._path):
            return
        file = self._disk.open(self._path)
        try:
            data = file.pread(file.size(), START)
        finally:
            file.close()
        try:
            self.known_from, self.names = _parse(data)
        except (ValueError, KeyError, TypeError) as error:
            logger.warning(
                "%s cannot be used: %s; which topics were deleted before now is not known",
                self._path, error,
            )  # fmt: skip

    def begin(self, log_end: int) -> None:
        """Note deletions from here on, where there is no file yet.

        Args:
          log_end: where the log ends; 0: there was no topic yet that could have been deleted.
        Raises:
          StoreIOError: the file could not be written.
        """
        if self.known_from is None:
            self._write(log_end, self.names)

    def add(self, topics: Iterable[str], log_end: int) -> None:
        """Say that topics are deleted: to be called before their queues are removed.

        Raises:
          StoreIOError: the file could not be written; the old one still stands.
        """
        names = {**self.names, **dict.fromkeys(topics)}
        if names.keys() != self.names.keys():
            for oldest in list(names)[: max(len(names) - DELETED_COUNT_MAX, 0)]:
                del names[oldest]
            self._write(log_end if self.known_from is None else self.known_from, names)

    def remove(self, topics: Iterable[str]) -> None:
        """Say that topics are there, be it again.

        Raises:
          StoreIOError: the file could not be written; the old one still stands.
        """
        again = {topic for topic in topics if topic in self.names}
        if again and self.known_from is not None:
            names = {name: None for name in self.names if name not in again}
            self._write(self.known_from, names)

    def _write(self, known_from: int, names: dict[str, None]) -> None:
        content = {"version": VERSION, "knownFrom": known_from, "topics": list(names)}
        text = json.dumps(content, separators=(",", ":")).encode()
        temporary = f"{self._path}.tmp"
        self._disk.unlink(temporary)
        file = self._disk.open(temporary, create=True)
        try:
            file.pwrite(b"%08x\n%s" % (zlib.crc32(text), text), START)
            file.sync()
        finally:
            file.close()
        self._disk.rename(temporary, self._path)
        self._disk.sync_folder(self._root)
        self.known_from, self.names = known_from, names


def _parse(data: bytes) -> tuple[int, dict[str, None]]:
    """Raises: ValueError, KeyError, TypeError: it is damaged, or of another version."""
    crc, _, text = data.partition(b"\n")
    if crc != b"%08x" % zlib.crc32(text):
        raise ValueError("its checksum is wrong")
    content = json.loads(text)
    if content["version"] != VERSION:
        raise ValueError(f"it is of version {content['version']}")
    return int(content["knownFrom"]), {str(topic): None for topic in content["topics"]}
