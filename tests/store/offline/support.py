"""A small store in memory with something of everything, and ways to damage it."""

from __future__ import annotations

import copy
import functools
import struct
from collections.abc import Mapping
from typing import Any

from trocket.common.clock import ManualClock
from trocket.common.java_hash import tags_code
from trocket.disk.json_config import save_json
from trocket.disk.memory_disk import MemoryDisk
from trocket.disk.os_disk import Disk
from trocket.remoting.message import MessageExt
from trocket.store.log.commit_log import file_name
from trocket.store.message_store import MessageStore
from trocket.store.offline.findings import Severity
from trocket.store.offline.fsck import check_store
from trocket.store.offline.layout import read_layout
from trocket.store.offline.log_walk import LogWalk
from trocket.store.offline.mend import carry_out, plan_for
from trocket.store.offline.plan import HolePolicy, Plan, Rebuild
from trocket.store.offline.report import Report
from trocket.store.queues.queue_ends import FILE_NAME as QUEUE_ENDS

from ..support import ROOT, put, small_config

LOG = f"{ROOT}/commitlog"
FILE_SIZE = 64 * 1024
COUNT = 249
CONF = {"mapped_file_size_consume_queue": "400"}
TOPICS = b"""{"dataVersion":{"counter":1},"topicConfigTable":{
 "T":{"topicName":"T"},"U":{"topicName":"U"},"SCHEDULE_TOPIC_XXXX":{"topicName":"S"}}}"""


def fill(store: MessageStore, clock: ManualClock, count: int = COUNT) -> None:
    """Messages of T in three queues, of U, delayed and half ones, over several log files."""
    for number in range(count):
        clock.advance(10)
        store.begin_burst()
        tag = f"tag{number % 4}"
        properties = f"UNIQ_KEY\x01{number:032X}\x02KEYS\x01k{number} all\x02TAGS\x01{tag}\x02"
        body = b"%d " % number * (number % 300)
        more: dict[str, Any] = {"properties": properties.encode(), "tags_code": tags_code(tag)}
        assert put(store, body, topic="T", queue_id=number % 3, **more)[0] is None
        if number % 10 == 0:
            assert put(store, b"other", topic="U", queue_id=1)[0] is None
        if number % 25 == 0:
            delayed = b"DELAY\x012\x02REAL_TOPIC\x01U\x02REAL_QID\x010\x02"
            deliver_ms = store.store_time_ms + 5000
            assert (
                put(
                    store, b"later", topic="SCHEDULE_TOPIC_XXXX", queue_id=1,
                    properties=delayed, tags_code=deliver_ms,
                )[0] is None
            )  # fmt: skip
        if number % 40 == 0:
            assert put(store, b"half", topic="T", queue_id=0, sys_flag=4)[0] is None
        store.commit()
        store.index.work(1.0)


@functools.cache
def _stopped() -> MemoryDisk:
    disk, clock = MemoryDisk(), ManualClock()
    store = MessageStore(small_config(), clock=clock, disk=disk, memory_bytes=1 << 30)
    store.load()
    fill(store, clock)
    store.close()
    save_json(disk, f"{ROOT}/config/topics.json", TOPICS)
    offsets = b'{"offsetTable":{"T@g":{0:5,1:80},"U@g":{1:24}}}'
    save_json(disk, f"{ROOT}/config/consumerOffset.json", offsets)
    save_json(disk, f"{ROOT}/config/consumerOffset.json", offsets)
    save_json(disk, f"{ROOT}/config/delayOffset.json", b'{"offsetTable":{2:9}}')
    return disk


def stopped_store() -> MemoryDisk:
    """A disk with a store that was closed cleanly; each call returns a new copy."""
    return copy.deepcopy(_stopped())


def killed_store() -> MemoryDisk:
    """The same messages, in a store whose process died."""
    disk, clock = MemoryDisk(), ManualClock()
    store = MessageStore(small_config(), clock=clock, disk=disk, memory_bytes=1 << 30)
    store.load()
    fill(store, clock)
    disk.process_death()
    return disk


def open_again(disk: Disk, root: str = ROOT) -> MessageStore:
    """The store, opened by the broker's own code."""
    config = small_config(root=root)
    store = MessageStore(config, clock=ManualClock(), disk=disk, memory_bytes=1 << 30)
    store.load()
    return store


def records(disk: Disk, root: str = ROOT) -> list[MessageExt]:
    """All whole records of the log."""
    files = read_layout(disk, root).commit_log(disk)
    try:
        return list(LogWalk(files).messages(read_body=True))
    finally:
        files.close()


def poke(disk: MemoryDisk, physical_offset: int, data: bytes, log: str = LOG) -> None:
    """Overwrite bytes of the log."""
    base = physical_offset - physical_offset % FILE_SIZE
    at = physical_offset - base
    disk.contents[f"{log}/{file_name(base)}"][at : at + len(data)] = data


def flip(disk: MemoryDisk, physical_offset: int, log: str = LOG) -> None:
    """Turn one bit over."""
    base = physical_offset - physical_offset % FILE_SIZE
    disk.contents[f"{log}/{file_name(base)}"][physical_offset - base] ^= 0x40


def expire(disk: MemoryDisk) -> None:
    """Remove the oldest log file as retention does: nothing says that it should be there."""
    disk.unlink(f"{LOG}/{0:020d}")
    disk.unlink(f"{ROOT}/{QUEUE_ENDS}")


def found(report: Report, least: Severity = Severity.WARNING) -> set[tuple[str, Severity]]:
    """(kind, severity) of what a check found."""
    return {(f.kind, f.severity) for f in report.findings.items if f.severity >= least}


def kinds(report: Report, least: Severity = Severity.WARNING) -> set[str]:
    return {kind for kind, _ in found(report, least)}


def check(disk: Disk, **more: Any) -> Report:
    return check_store(disk, ROOT, **more)


def repair(
    disk: Disk,
    *,
    holes: HolePolicy = HolePolicy.ASK,
    rebuild: Rebuild = Rebuild.DAMAGED,
    into: str = "",
    conf: Mapping[str, str] | None = None,
    **more: Any,
) -> tuple[Report, Plan, Report]:
    """Plan and carry out; (report before, plan, report after)."""
    before, plan = plan_for(disk, ROOT, holes=holes, rebuild=rebuild, conf=conf)
    after = carry_out(disk, disk, before, plan, into=into, conf=conf, **more)
    return before, plan, after


def unit_path(topic: str, queue_id: int, queue_offset: int) -> tuple[str, int]:
    """Where a unit lies: (path, position)."""
    base = queue_offset * 20 // 400 * 400
    return f"{ROOT}/consumequeue/{topic}/{queue_id}/{base:020d}", queue_offset * 20 - base


def poke_unit(
    disk: MemoryDisk, topic: str, queue_id: int, queue_offset: int, unit: tuple[int, int, int]
) -> None:
    """Overwrite one unit with (physical offset, size, tags code)."""
    path, at = unit_path(topic, queue_id, queue_offset)
    disk.contents[path][at : at + 20] = struct.pack(">qiq", *unit)


def read_unit(disk: MemoryDisk, topic: str, queue_id: int, queue_offset: int) -> tuple[Any, ...]:
    path, at = unit_path(topic, queue_id, queue_offset)
    return struct.unpack_from(">qiq", disk.contents[path], at)


def abort(disk: MemoryDisk) -> None:
    """As if the process had died: `stopped_store` removed the file."""
    disk.contents[f"{ROOT}/abort"] = bytearray()
