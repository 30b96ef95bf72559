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
from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any, Final

from ...common.steps import Steps, at_once, json_members, with_member
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

_NO_QUEUES: Final = b'"queues":{}'


def queue_text(queue_id: int, begin: int, end: int) -> str:
    """A queue as a member of its topic's JSON object.

    Args:
      begin, end: queue offsets of the oldest message, and after the newest.
    """
    # These are numbers, so it is the JSON encoder's text, in half of its time.
    return f'"{queue_id}":[{begin},{end}]'


def topic_text(topic: str, queues: Mapping[int, str]) -> Steps[bytes]:
    """Steps that encode the queues of a topic as a member of the file's JSON object.

    Args:
      queues: the `queue_text` of each by queue id, at least one; copied first.
    """
    text = yield from json_members(queues, _joined)
    return b"%s:%s" % (json.dumps(topic).encode(), text)


def _joined(queues: Mapping[int, str]) -> bytes:
    return f"{{{','.join(queues.values())}}}".encode()


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

    def encoded(self) -> EncodedEnds:
        """The same with the queues as text."""
        topics: dict[str, dict[int, str]] = {}
        for key, end in self.ends.items():
            topic, queue_id = key
            text = queue_text(queue_id, self.begins.get(key, 0), end)
            topics.setdefault(topic, {})[queue_id] = text
        texts = {topic: at_once(topic_text(topic, queues)) for topic, queues in topics.items()}
        return EncodedEnds(replace(self, ends={}, begins={}), texts)

    def to_bytes(self) -> bytes:
        """The file's text."""
        return self.encoded().to_bytes()

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


@dataclass(frozen=True, slots=True)
class EncodedEnds:
    """The content of the file with its queues as text, so that a new file needs little work.

    Attributes:
      head: the content without queues.
      topics: the `topic_text` of each topic with queues.
    """

    head: QueueEnds
    topics: dict[str, bytes]

    def to_bytes(self) -> bytes:
        """The file's text."""
        head = self.head
        content: dict[str, object] = {
            "version": VERSION,
            "dispatchedOffset": head.dispatched_offset,
            "fileSize": head.file_size,
            "logStart": head.log_start,
            "beginsAt": head.begins_at,
            "ownFrom": head.own_from,
            "queues": {},
        }
        if head.begun_midway:
            content["begunMidway"] = True
        text = json.dumps(content, separators=(",", ":")).encode()
        text = with_member(text, _NO_QUEUES, b"{%s}" % b",".join(self.topics.values()))
        # The checksum first: a file cut by a crash does not pass for a shorter one.
        return b"%08x\n%s" % (zlib.crc32(text), text)


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


def write_queue_ends(disk: Disk, root: str, ends: QueueEnds | EncodedEnds) -> None:
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

    Attributes:
      next: the ends that the next `note` writes, if they were taken already. What is recorded or
        forgotten before that changes them, too.
    """

    def __init__(self, disk: Disk, root: str, known: QueueEnds) -> None:
        self.next: EncodedEnds | None = None
        self._known = known.encoded()
        self._disk = disk
        self._root = root
        self._lock = Lock()

    def note(self, ends: EncodedEnds, dispatched_offset: int) -> None:
        """Write the ends that belong to the next checkpoint.

        Args:
          dispatched_offset: of that checkpoint.

        Raises:
          StoreIOError: it could not be written; the old one is still valid.
        """
        with self._lock:
            head, known = ends.head, self._known.head
            head = replace(
                head,
                dispatched_offset=dispatched_offset,
                log_start=max(head.log_start, known.log_start),
                begun_midway=known.begun_midway,
            )
            # A copy, as `next` may still be changed.
            self._write(EncodedEnds(head, dict(ends.topics)))

    def note_log_start(self, physical_offset: int) -> None:
        """Record the log's new start; call it before older files are removed.

        Raises:
          StoreIOError: it could not be written.
        """
        with self._lock:
            if physical_offset > self._known.head.log_start:
                self._write_head(log_start=physical_offset)

    def begin_midway(self, physical_offset: int) -> None:
        """Record the start of an empty log; call it before its first file is created.

        Raises:
          StoreIOError: it could not be written.
        """
        with self._lock:
            self._write_head(log_start=physical_offset, begun_midway=True)

    def note_foreign(self, own_from: int) -> None:
        """Record that records of another program follow; call it before they are written.

        Args:
          own_from: a physical offset after these records.

        Raises:
          StoreIOError: it could not be written.
        """
        with self._lock:
            self._write_head(own_from=own_from)
            if self.next is not None:
                self.next.head.own_from = own_from

    def forget_topics(self, topics: Set[str]) -> None:
        """Drop the queues of these topics; call it before their files are removed.

        Raises:
          StoreIOError: it could not be written.
        """
        with self._lock:
            known = self._known.topics
            if not topics.isdisjoint(known):
                left = {topic: text for topic, text in known.items() if topic not in topics}
                self._write(replace(self._known, topics=left))
            if self.next is not None:
                for topic in topics:
                    self.next.topics.pop(topic, None)

    def forget_queue(self, key: Key) -> None:
        """Drop one queue; call it before its files are removed.

        Raises:
          StoreIOError: it could not be written.
        """
        with self._lock:
            left = dict(self._known.topics)
            if _drop_queue(left, key):
                self._write(replace(self._known, topics=left))
            if self.next is not None:
                _drop_queue(self.next.topics, key)

    def _write_head(self, **changes: Any) -> None:
        self._write(replace(self._known, head=replace(self._known.head, **changes)))

    def _write(self, ends: EncodedEnds) -> None:
        write_queue_ends(self._disk, self._root, ends)
        self._known = ends


def _drop_queue(topics: dict[str, bytes], key: Key) -> bool:
    """Drop a queue from the texts of topics; returns whether it was there."""
    topic, queue_id = key
    if topic not in topics:
        return False
    ((_, queues),) = json.loads(b"{%s}" % topics[topic]).items()
    left = {
        int(each): queue_text(int(each), begin, end)
        for each, (begin, end) in queues.items()
        if int(each) != queue_id
    }
    if len(left) == len(queues):
        return False
    if left:
        topics[topic] = at_once(topic_text(topic, left))
    else:
        del topics[topic]
    return True
