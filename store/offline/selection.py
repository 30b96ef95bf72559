"""Selection of messages of a log, and their form as JSON, for dump and export."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from ...common.message_properties import KEY_SEPARATOR, KEYS_NAME, UNIQUE_KEY_NAME, find_property
from ...remoting.body_compression import decompress
from ...remoting.errors import RemoteProtocolError
from ...remoting.message import MessageExt
from ...remoting.sys_flag import COMPRESSED
from ..log.commit_log import CommitLog
from ..log.log_reader import LogRecord
from .log_walk import LogWalk


class Bodies(Enum):
    """The form of bodies."""

    AUTO = "auto"  # as text when it is UTF-8, otherwise in base64
    TEXT = "text"  # as text, with replacements for invalid UTF-8
    BASE64 = "base64"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Selection:
    """Conditions for messages; None or "": all.

    Attributes:
      key: one of its KEYS, or its unique key.
      start, stop: [start, stop) of queue offsets when a queue id is given, else of physical ones.
      since_ms, until_ms: store time, both included.
      limit: most messages.
    """

    topic: str = ""
    queue_id: int | None = None
    key: str = ""
    start: int | None = None
    stop: int | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    limit: int | None = None

    def matches(self, record: LogRecord) -> bool:
        """Whether a record is wanted."""
        if self.topic and record.topic != self.topic:
            return False
        place = record.physical_offset
        if self.queue_id is not None:
            if record.queue_id != self.queue_id:
                return False
            place = record.queue_offset
        if self.start is not None and place < self.start:
            return False
        if self.stop is not None and place >= self.stop:
            return False
        if self.since_ms is not None and record.store_timestamp_ms < self.since_ms:
            return False
        if self.until_ms is not None and record.store_timestamp_ms > self.until_ms:
            return False
        return not self.key or has_key(record.properties, self.key)


def keys_of(properties: bytes) -> str:
    """A record's keys, blank-separated."""
    return str(find_property(properties, KEYS_NAME) or b"", "utf-8", "replace")


def has_key(properties: bytes, key: str) -> bool:
    """Whether a record has a key, or is the one with that unique key."""
    unique = find_property(properties, UNIQUE_KEY_NAME)
    if unique is not None and str(unique, "utf-8", "replace") == key:
        return True
    return key in keys_of(properties).split(KEY_SEPARATOR)


def selected(
    log: CommitLog,
    selection: Selection,
    *,
    read_body: bool,
    stop: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    on_walk: Callable[[LogWalk], None] | None = None,
) -> Iterator[MessageExt]:
    """The wanted records in the log's order; holes are passed over.

    Files that begin after the wanted physical offset are not read before it; everything else is.

    Args:
      stop: a live store's end.
      on_walk: called with the walk before it begins; it has the holes afterwards.

    Raises:
      StoreIOError: a file cannot be read.
    """
    begin, end = log.min_offset, log.end_of_files
    if selection.queue_id is None:
        if selection.start is not None and selection.start > begin:
            begin = max(
                (base for base in log.files if base <= selection.start), default=log.min_offset
            )
        end = min(end, selection.stop) if selection.stop is not None else end
    walk = LogWalk(
        log,
        start=begin,
        stop=end if stop is None else min(end, stop),
        progress=progress,
    )
    if on_walk is not None:
        on_walk(walk)
    count = 0
    limit = selection.limit
    if limit == 0:
        return
    for record in walk.records():
        if selection.matches(record):
            yield walk.message(read_body=read_body)
            count += 1
            if count == limit:
                return


def as_json(record: MessageExt, bodies: Bodies, *, inflate: bool = True) -> dict[str, Any]:
    """A record under RocketMQ's names.

    `body` is text, `bodyBase64` anything else; `isCompressed` says that the body is as stored,
    still compressed. `msgId` is the broker's id of the message, from its host and physical offset.
    """
    found: dict[str, Any] = {
        "topic": record.topic,
        "queueId": record.queue_id,
        "queueOffset": record.queue_offset,
        "physicalOffset": record.physical_offset,
        "size": record.store_size,
        "msgId": record.offset_message_id if record.physical_offset >= 0 else "",
        "storeTimestamp": record.store_timestamp_ms,
        "bornTimestamp": record.born_timestamp_ms,
        "storeHost": record.store_host_text,
        "bornHost": record.born_host_text,
        "flag": record.flag,
        "sysFlag": record.sys_flag,
        "bodyCRC": record.body_crc,
        "reconsumeTimes": record.reconsume_times,
        "preparedTransactionOffset": record.prepared_transaction_offset,
        "properties": record.properties,
    }
    if bodies is Bodies.NONE:
        return found
    body, is_compressed = readable_body(record, inflate=inflate)
    if is_compressed:
        found["isCompressed"] = True
    if bodies is Bodies.TEXT:
        found["body"] = str(body, "utf-8", "replace")
    elif bodies is Bodies.BASE64:
        found["bodyBase64"] = base64.b64encode(body).decode()
    else:
        try:
            # Text if it can be, so that a person or `jq` can read it; base64 loses nothing.
            found["body"] = str(body, "utf-8")
        except UnicodeDecodeError:
            found["bodyBase64"] = base64.b64encode(body).decode()
    return found


def readable_body(record: MessageExt, *, inflate: bool) -> tuple[bytes, bool]:
    """The body, and whether it is still compressed (inflating is off, or fails)."""
    if not record.sys_flag & COMPRESSED or not record.body:
        return record.body, False
    if inflate:
        try:
            return decompress(record.body, record.sys_flag), False
        except RemoteProtocolError:
            pass
    return record.body, True
