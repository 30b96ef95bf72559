"""Data folders of any size with few bytes on disk, which trocket's and Apache's brokers open.

Every record is a valid message with a valid checksum. Where a log must be long, bodies are of 4 MB
of zeros that are never written, so that a file of 1 GiB takes about 1 MB: reading it costs what
reading costs, and no time of the disk. A file ends as a broker ends it, with a blank.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from trocket.bench.scale_tables import QUEUES_PER_TOPIC
from trocket.remoting.bodies import DataVersion, TopicConfig
from trocket.remoting.bodies.topic import TopicConfigSerializeWrapper
from trocket.remoting.message_codec import (
    PROPERTIES_LENGTH,
    RECORD_HEAD,
    RECORD_PREFIX,
    host_bytes,
    record_topic,
)
from trocket.store.format import (
    CHECKPOINT_FILE_SIZE,
    CHECKPOINT_HEAD,
    ENTRY,
    INDEX_HEAD,
    INDEX_HEADER_SIZE,
    SLOT,
    UNIT,
    UNIT_SIZE,
)
from trocket.store.log.commit_log import blank, file_name

LOG_FILE_SIZE: Final = 1 << 30
QUEUE_FILE_SIZE: Final = 300_000 * UNIT_SIZE
"""Both as they are by default."""
LARGE_BODY: Final = 4_000_000
"""Below maxMessageSize, 4 MiB by default."""
SMALL_BODY: Final = 128
LAST_SHARE: Final = 2
"""The newest file is filled up to a half."""
INDEX_SLOTS: Final = 5_000_000
INDEX_ENTRIES: Final = 20_000_000
"""Both as they are by default."""
INDEX_FILE_SIZE: Final = INDEX_HEADER_SIZE + INDEX_SLOTS * SLOT.size + INDEX_ENTRIES * ENTRY.size
INDEX_NAME: Final = "20260101000000000"
"""The time at which it was made."""
NO_ENTRIES: Final = 1
"""The place of the next entry; there is none at 0."""
HOST: Final = host_bytes("127.0.0.1", 10911)


@dataclass(frozen=True)
class Plan:
    """What a folder holds.

    Attributes:
      files: of the commit log; all but the last are full if bodies are large.
      queues: ten in a topic, or fewer; records go to them in turn.
      records: in all; None: as many as fill the files.
      body_size: bytes of each body, all zero.
      oldest_ms: store timestamp of the first record; each later one has that of `time_of`.
      newest_ms: store timestamps of records in the second half of the files begin here.
      file_size: bytes of a commit log file.
    """

    files: int
    queues: int
    records: int | None
    body_size: int
    oldest_ms: int
    newest_ms: int
    file_size: int = LOG_FILE_SIZE

    def topic(self, queue: int) -> str:
        """The topic of a queue by its number."""
        return f"Scale-{queue // QUEUES_PER_TOPIC}"

    def first_ms(self, file: int) -> int:
        """The store timestamp of the first record of a file."""
        return self.oldest_ms if file < self.files // 2 else self.newest_ms


def build(folder: Path, plan: Plan) -> int:
    """Write the folder as a clean stop of Apache's broker leaves it; returns its records."""
    units = [bytearray() for _ in range(plan.queues)]
    count = _write_log(folder / "commitlog", plan, units)
    for queue, content in enumerate(units):
        of_queue = folder / "consumequeue" / plan.topic(queue) / str(queue % QUEUES_PER_TOPIC)
        of_queue.mkdir(parents=True)
        for start in range(0, max(len(content), 1), QUEUE_FILE_SIZE):
            with (of_queue / file_name(start)).open("wb") as file:
                file.write(content[start : start + QUEUE_FILE_SIZE])
                file.truncate(QUEUE_FILE_SIZE)
    topics = {}
    for queue in range(0, plan.queues, QUEUES_PER_TOPIC):
        queue_count = min(QUEUES_PER_TOPIC, plan.queues - queue)
        topics[plan.topic(queue)] = TopicConfig(
            topic_name=plan.topic(queue),
            read_queue_nums=queue_count,
            write_queue_nums=queue_count,
        )
    table = TopicConfigSerializeWrapper(
        topic_config_table=topics, data_version=DataVersion(timestamp=plan.newest_ms, counter=1)
    )
    (folder / "config").mkdir()
    (folder / "config" / "topics.json").write_bytes(table.to_body())
    last_ms = plan.first_ms(plan.files - 1) + count
    head = CHECKPOINT_HEAD.pack(last_ms, last_ms, last_ms, 0, 0)
    (folder / "checkpoint").write_bytes(head.ljust(CHECKPOINT_FILE_SIZE, b"\0"))
    if count:
        newest = units[(count - 1) % plan.queues]
        _write_index(folder / "index", plan.oldest_ms, last_ms, UNIT.unpack(newest[-UNIT_SIZE:])[0])
    return count


def _write_index(folder: Path, first_ms: int, last_ms: int, last_offset: int) -> None:
    """Write an index up to the last message, without entries, as the messages have no keys.

    A broker that finds none where there must be one reads the whole log.
    """
    folder.mkdir()
    with (folder / INDEX_NAME).open("wb") as file:
        file.write(INDEX_HEAD.pack(first_ms, last_ms, 0, last_offset, 0, NO_ENTRIES))
        file.truncate(INDEX_FILE_SIZE)


def _write_log(folder: Path, plan: Plan, units: list[bytearray]) -> int:
    """Write the commit log, and collect the units of the queues; returns its records."""
    folder.mkdir(parents=True)
    crc = zlib.crc32(bytes(plan.body_size)) & 0x7FFFFFFF
    number = 0
    for place in range(plan.files):
        is_last = place == plan.files - 1
        limit = plan.file_size // LAST_SHARE if is_last else plan.file_size
        base, position = place * plan.file_size, 0
        with (folder / file_name(base)).open("wb") as file:
            file.truncate(plan.file_size)
            while plan.records is None or number < plan.records:
                queue = number % plan.queues
                store_ms = plan.first_ms(place) + number
                record = _Record(plan.topic(queue), queue % QUEUES_PER_TOPIC, store_ms)
                size = record.size(plan.body_size)
                if position + size + RECORD_PREFIX.size > limit:
                    break
                offset = len(units[queue]) // UNIT_SIZE
                record.write(file, position, base + position, offset, plan.body_size, crc)
                units[queue] += UNIT.pack(base + position, size, 0)
                position += size
                number += 1
            if not is_last:
                file.seek(position)
                file.write(blank(plan.file_size - position))
    return number


@dataclass(frozen=True)
class _Record:
    topic: str
    queue_id: int
    store_ms: int

    def size(self, body_size: int) -> int:
        _, topic = record_topic(self.topic)
        return RECORD_HEAD.size + body_size + len(topic) + PROPERTIES_LENGTH.size

    def write(
        self,
        file: BinaryIO,
        position: int,
        physical_offset: int,
        queue_offset: int,
        body_size: int,
        crc: int,
    ) -> None:
        """Write all but the body, which stays as it is: zeros."""
        magic, topic = record_topic(self.topic)
        head = RECORD_HEAD.pack(
            self.size(body_size), magic, crc, self.queue_id, 0, queue_offset, physical_offset, 0,
            self.store_ms, HOST, self.store_ms, HOST, 0, 0, body_size,
        )  # fmt: skip
        file.seek(position)
        file.write(head)
        file.seek(position + len(head) + body_size)
        file.write(topic + PROPERTIES_LENGTH.pack(0))
