"""`deleted_topics.trocket`: the names of deleted topics that were not created again.

A deleted topic's messages stay in the log until retention deletes them. After a crash recovery may
build queues from them, and delayed messages may still be delivered to the topic. Without this file
such queues look like those of a topic that the topic table has lost, which a start creates again.

Ours; RocketMQ has no such file and ignores it. Text: the CRC32 of everything after the first line,
as 8 hex digits, a newline, then JSON. Written to a temporary file, synced, renamed.
"""

from __future__ import annotations

import json
import logging
import zlib
from collections.abc import Callable, Container, Iterable
from functools import cache
from typing import Final

from ...common.topic_names import is_system_topic
from ...disk.errors import StoreIOError
from ...disk.json_config import parse, read_bytes, unsealed
from ...disk.os_disk import Disk
from ...disk.position import START

logger = logging.getLogger(__name__)

FILE_NAME = "deleted_topics.trocket"
VERSION = 1


DELETED_COUNT_MAX: Final = 100_000
"""Names that are kept, the limit of topics; the oldest deletions are dropped first. Each deletion
writes the file: 100 bytes per name."""


class DeletedTopics:
    """The deletions of one store. Owned by the store's task.

    Args:
      disk, root: the disk and the data folder.

    Attributes:
      names: the deleted topics, in the order of their deletions.
      known_from: physical offset from which on every deletion is recorded; None if there is no
        file, and deletions are unknown.
    """

    def __init__(self, disk: Disk, root: str) -> None:
        self.names: dict[str, None] = {}
        self.known_from: int | None = None
        self._disk = disk
        self._path = f"{root}/{FILE_NAME}"
        self._root = root

    def load(self) -> None:
        """Read the file; a damaged one is logged and ignored.

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
                "%(path)s cannot be used: %(error)s; topics that were deleted before now may "
                "reappear",
                {"path": self._path, "error": error},
            )

    def begin(self, log_end: int) -> None:
        """Create the file if it is missing.

        Args:
          log_end: the end of the log; 0: no topic can have been deleted before.
        Raises:
          StoreIOError: the file could not be written.
        """
        if self.known_from is None:
            self._write(log_end, self.names)

    def add(self, topics: Iterable[str], log_end: int) -> None:
        """Record deleted topics; call it before their queues are removed.

        Raises:
          StoreIOError: the file could not be written; the old one is still valid.
        """
        names = {**self.names, **dict.fromkeys(topics)}
        if names.keys() != self.names.keys():
            for oldest in list(names)[: max(len(names) - DELETED_COUNT_MAX, 0)]:
                del names[oldest]
            self._write(log_end if self.known_from is None else self.known_from, names)

    def remove(self, topics: Iterable[str]) -> None:
        """Record that topics exist (again).

        Raises:
          StoreIOError: the file could not be written; the old one is still valid.
        """
        again = {topic for topic in topics if topic in self.names}
        if again and self.known_from is not None:
            names = {name: None for name in self.names if name not in again}
            self._write(self.known_from, names)

    def cut(self, log_end: int) -> None:
        """Let recorded deletions reach back to the end of a log that was cut: there are no older
        messages after it.

        Raises:
          StoreIOError: the file could not be written; the old one is still valid.
        """
        if self.known_from is not None and self.known_from > log_end:
            self._write(log_end, self.names)

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


def topic_check(disk: Disk, root: str, deleted: Container[str]) -> Callable[[str], bool]:
    """A function that says whether a topic exists, as far as the files show it.

    RocketMQ's broker does not record deletions: a topic that a readable topics.json lacks was
    deleted, or is a system topic. The file is read at the first call.

    Args:
      deleted: the topics whose deletion this program recorded.
    """

    @cache
    def configured() -> frozenset[str] | None:
        path = f"{root}/config/topics.json"
        try:
            table = parse(unsealed(read_bytes(disk, path))[0]).get("topicConfigTable")
        except (StoreIOError, ValueError):
            return None
        return frozenset(table) if isinstance(table, dict) and table else None

    def exists(topic: str) -> bool:
        known = configured()
        return topic not in deleted and (known is None or topic in known or is_system_topic(topic))

    return exists
