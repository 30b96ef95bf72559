"""`queue_ends.trocket`: the ends of log and queues at the last checkpoint.

Ours; RocketMQ has no such file and ignores it. Without it a queue whose folder is missing, or whose
files were cut, cannot be distinguished from a new or short one; nor a queue or log that lacks its
oldest file from one whose file retention has deleted.

Text: the CRC32 of everything after the first line, as 8 hex digits, a newline, then JSON. The ends
of queues are valid only together with the checkpoint whose `dispatched_offset` the file names, so
not once Apache's broker has written the checkpoint; the log's start and the queues that are being
rebuilt (`REBUILD`) are valid without it. Written to a temporary file, synced, renamed.
"""

from __future__ import annotations

import json
import logging
import zlib
from collections.abc import Set
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any

from ...disk.os_disk import Disk
from ...disk.position import START
from ..format import Key

logger = logging.getLogger(__name__)

FILE_NAME = "queue_ends.trocket"
VERSION = 1

REBUILD = -1
"""The end of a queue that is being rebuilt. No queue ends there, so a start that finds it rebuilds
the queue from its beginning, whatever its files hold and whichever checkpoint the file belongs to.
"""


@dataclass(slots=True)
class QueueEnds:
    """The content of the file.

    Attributes:
      dispatched_offset: of the checkpoint it belongs to, bytes; -1: it belongs to none. Then only
        queues that are being rebuilt are named.
      file_size: bytes of one file of a plain queue.
      log_start: physical offset of the oldest byte of the log, or the one that retention is about
        to make the oldest.
      begins: queue offset of the oldest message, by queue; valid while the log begins at
        `begins_at`.
      begins_at: the start of the log at that time.
      own_from: physical offset from which on all records are known to be written by this program.
      begun_midway: the log was begun as a copy of an older one: its first records are not the first
        of their queues, and a queue that is new to it may begin at any offset.
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
        # The checksum first: a file cut by a crash does not pass for a shorter one.
        return b"%08x\n%s" % (zlib.crc32(text), text)

    @classmethod
    def from_bytes(cls, data: bytes) -> QueueEnds:
        """Read the file's text.

        Raises:
          ValueError: it is damaged, of an unknown version, or holds an invalid offset.
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
    """Read the file; None if there is none, or it is damaged.

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
        logger.warning(
            "%(path)s is ignored: %(error)s; queues are checked without it",
            {"path": path, "error": error},
        )
        return None
    finally:
        file.close()


def write_queue_ends(disk: Disk, root: str, ends: QueueEnds) -> None:
    """Replace the file.

    Raises:
      StoreIOError: it could not be written; the old one is still valid.
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
    """The file of an open store. Its methods may be called from worker threads.

    Args:
      disk, root: the disk and the data folder.
      known: the content of the file.
    """

    def __init__(self, disk: Disk, root: str, known: QueueEnds) -> None:
        self.known = known
        self._disk = disk
        self._root = root
        self._lock = Lock()

    def note(self, ends: QueueEnds) -> None:
        """Write the ends that belong to the next checkpoint.

        Raises:
          StoreIOError: it could not be written; the old one is still valid.
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
        """Record the log's new start; call it before older files are removed.

        Raises:
          StoreIOError: it could not be written.
        """
        with self._lock:
            if physical_offset > self.known.log_start:
                self._write(replace(self.known, log_start=physical_offset))

    def begin_midway(self, physical_offset: int) -> None:
        """Record the start of an empty log; call it before its first file is created.

        Raises:
          StoreIOError: it could not be written.
        """
        with self._lock:
            self._write(replace(self.known, log_start=physical_offset, begun_midway=True))

    def note_foreign(self, own_from: int) -> None:
        """Record that records of another program follow; call it before they are written.

        Args:
          own_from: a physical offset after these records.

        Raises:
          StoreIOError: it could not be written.
        """
        with self._lock:
            self._write(replace(self.known, own_from=own_from))

    def forget_topics(self, topics: Set[str]) -> None:
        """Drop the queues of these topics; call it before their files are removed.

        Raises:
          StoreIOError: it could not be written.
        """
        with self._lock:
            self._forget({key for key in self.known.ends if key[0] in topics})

    def forget_queue(self, key: Key) -> None:
        """Drop one queue; call it before its files are removed.

        Raises:
          StoreIOError: it could not be written.
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
