"""`queue_ends.trocket`: where log and queues began, and queues ended, at the last checkpoint.

Ours; RocketMQ has no such file and leaves it alone. A queue whose folder is missing, or whose files
were cut, looks like a queue that is new or short; one that lacks its oldest file looks like one
that retention has been at, and so does a log. This file tells the difference.

Text: the CRC32 of all that follows the first line, as 8 hex digits, a newline, then JSON. It counts
only together with the checkpoint whose `dispatched_offset` it names, so of queues' ends it says
nothing once Apache's broker has written the checkpoint; where the log begins, and which queues are
being built again (`REBUILD`), counts without one. Written to a temporary file, synced, renamed.
"""

from __future__ import annotations

import json
import logging
import zlib
from collections.abc import Set
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any

from ..disk.os_disk import Disk
from ..format import Key
from ..offsets import START

logger = logging.getLogger(__name__)

FILE_NAME = "queue_ends.trocket"
VERSION = 1

REBUILD = -1
"""The end of a queue that is being built again: no queue ends there, so a start that finds it
builds the queue from its beginning, whatever its files hold by then, and whichever checkpoint the
file belongs to."""


@dataclass(slots=True)
class QueueEnds:
    """What the file says.

    Attributes:
      dispatched_offset: of the checkpoint it belongs to, bytes; -1: it belongs to none. Then only
        queues that are being rebuilt are named, and of others it says nothing.
      file_size: bytes of one file of a plain queue.
      log_start: physical offset of the oldest byte of the log, or where retention is about to let
        it begin.
      begins: queue offset of the oldest message, by queue; counts while the log begins at
        `begins_at`.
      begins_at: where the log began then.
      own_from: physical offset from which on all records are known to be written by this program.
      begun_midway: the log was begun as a copy of one that was older: its first records are not the
        first ones of their queues, and a queue that is new to it may have any offset.
      ends: queue offset after the last message whose record lies before `dispatched_offset`, or
        `REBUILD`; queues without messages are left out.
    """

    dispatched_offset: int
    file_size: int
    ends: dict[Key, int] = field(default_factory=dict)
    begins: dict[Key, int] = field(default_factory=dict)
    log_start: int = 0
    begins_at: int = 0
    own_from: int = 0
    begun_midway: bool = False

    def to_bytes(self) -> bytes:
        """The file's text."""
        queues: dict[str, dict[str, tuple[int, int]]] = {}
        for key, end in self.ends.items():
            queues.setdefault(key[0], {})[str(key[1])] = (self.begins.get(key, 0), end)
        content: dict[str, object] = {
            "version": VERSION,
            "dispatchedOffset": self.dispatched_offset,
            "fileSize": self.file_size,
            "logStart": self.log_start,
            "beginsAt": self.begins_at,
            "ownFrom": self.own_from,
            "queues": queues,
        }
        if self.begun_midway:
            content["begunMidway"] = True
        text = json.dumps(content, separators=(",", ":")).encode()
        return b"%08x\n%s" % (zlib.crc32(text), text)

    @classmethod
    def from_bytes(cls, data: bytes) -> QueueEnds:
        """Read the file's text.

        Raises:
          ValueError: it is damaged, of a version that is not known, or holds what is no offset.
        """
        crc, _, text = data.partition(b"\n")
        if crc != b"%08x" % zlib.crc32(text):
            raise ValueError("its checksum is wrong")
        try:
            return cls._from_content(json.loads(text))
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"a part is missing or of a wrong kind: {error}") from error

    @classmethod
    def _from_content(cls, content: dict[str, Any]) -> QueueEnds:
        if content["version"] != VERSION:
            raise ValueError(f"it is of version {content['version']}")
        found = cls(
            _offset("dispatchedOffset", content["dispatchedOffset"]),
            _offset("fileSize", content["fileSize"]),
            log_start=_offset("logStart", content["logStart"]),
            begins_at=_offset("beginsAt", content["beginsAt"]),
            own_from=_offset("ownFrom", content["ownFrom"]),
            begun_midway=content.get("begunMidway", False) is True,
        )
        for topic, queues in content["queues"].items():
            for queue_id, (begin, end) in queues.items():
                found.begins[topic, int(queue_id)] = _offset("begin of a queue", begin)
                found.ends[topic, int(queue_id)] = _offset("end of a queue", end)
        return found


def _offset(what: str, value: object) -> int:
    """Raises: ValueError: it is neither an offset in bytes or units nor -1."""
    if type(value) is not int or not -1 <= value < 1 << 63:
        raise ValueError(f"its {what} is {value!r}")
    return value


def read_queue_ends(disk: Disk, root: str) -> QueueEnds | None:
    """Read the file; None when there is none, or it is damaged: then nothing is known.

    Raises:
      StoreIOError: it could not be read.
    """
    path = f"{root}/{FILE_NAME}"
    if not disk.exists(path):
        return None
    file = disk.open(path)
    try:
        return QueueEnds.from_bytes(file.pread(file.size(), START))
    except ValueError as error:
        logger.warning("%s does not count: %s", path, error)
        return None
    finally:
        file.close()


def write_queue_ends(disk: Disk, root: str, ends: QueueEnds) -> None:
    """Replace the file.

    Raises:
      StoreIOError: it could not be written; the old one still stands.
    """
    path = f"{root}/{FILE_NAME}"
    temporary = f"{path}.tmp"
    disk.unlink(temporary)
    file = disk.open(temporary, create=True)
    try:
        file.pwrite(ends.to_bytes(), START)
        file.sync()
    finally:
        file.close()
    disk.rename(temporary, path)
    disk.sync_folder(root)


class QueueEndsFile:
    """The file of a store that is open. Its methods may be called from worker threads.

    Args:
      disk, root: where the store is.
      known: what the file says.
    """

    def __init__(self, disk: Disk, root: str, known: QueueEnds) -> None:
        self.known = known
        self._disk = disk
        self._root = root
        self._lock = Lock()

    def note(self, ends: QueueEnds) -> None:
        """Say what belongs to the next checkpoint.

        Raises:
          StoreIOError: it could not be written; the old one still stands.
        """
        with self._lock:
            known = self.known
            self._write(
                replace(
                    ends,
                    log_start=max(ends.log_start, known.log_start),
                    begun_midway=known.begun_midway,
                )
            )

    def note_log_start(self, physical_offset: int) -> None:
        """Say that the log will begin here: to be called before older files are removed.

        Raises:
          StoreIOError: as `note`.
        """
        with self._lock:
            if physical_offset > self.known.log_start:
                self._write(replace(self.known, log_start=physical_offset))

    def begin_midway(self, physical_offset: int) -> None:
        """Say that a log that has nothing will begin here: to be called before it does.

        Raises:
          StoreIOError: as `note`.
        """
        with self._lock:
            self._write(replace(self.known, log_start=physical_offset, begun_midway=True))

    def note_foreign(self, own_from: int) -> None:
        """Say that records of others follow: to be called before they do.

        Args:
          own_from: behind whatever they reach to.

        Raises:
          StoreIOError: as `note`.
        """
        with self._lock:
            self._write(replace(self.known, own_from=own_from))

    def forget_topics(self, topics: Set[str]) -> None:
        """Say that these topics have no queues: to be called before their queues are removed.

        Raises:
          StoreIOError: as `note`.
        """
        with self._lock:
            self._forget({key for key in self.known.ends if key[0] in topics})

    def forget_queue(self, key: Key) -> None:
        """Say that there is no such queue: to be called before it is removed.

        Raises:
          StoreIOError: as `note`.
        """
        with self._lock:
            self._forget({key} & self.known.ends.keys())

    def _forget(self, gone: Set[Key]) -> None:
        if gone:
            ends = {key: end for key, end in self.known.ends.items() if key not in gone}
            self._write(replace(self.known, ends=ends))

    def _write(self, ends: QueueEnds) -> None:
        write_queue_ends(self._disk, self._root, ends)
        self.known = ends
