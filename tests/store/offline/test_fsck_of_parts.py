"""What a check finds of damage to queues, index and state files."""

from __future__ import annotations

import struct

import pytest

from trocket.disk.memory_disk import MemoryDisk
from trocket.store.offline.findings import Severity

from ..support import ROOT, open_store, put
from .support import (
    COUNT,
    abort,
    check,
    found,
    poke_unit,
    read_unit,
    stopped_store,
    unit_path,
)

ERROR, LOSS, WARNING, INFO = Severity.ERROR, Severity.LOSS, Severity.WARNING, Severity.INFO


def remove_queue(disk):
    disk.remove_folder(f"{ROOT}/consumequeue/T/1")


def cut_queue_file(disk):
    del disk.contents[unit_path("T", 1, 0)[0]][399:]


def remove_queue_file(disk):
    disk.unlink(unit_path("T", 1, 20)[0])


def zero_unit(disk):
    poke_unit(disk, "T", 1, 7, (0, 0, 0))


def shift_unit(disk):
    offset, size, code = read_unit(disk, "T", 1, 7)
    poke_unit(disk, "T", 1, 7, (offset + 1, size, code))


def retag_unit(disk):
    offset, size, code = read_unit(disk, "T", 1, 7)
    poke_unit(disk, "T", 1, 7, (offset, size, code + 1))


def add_unit(disk):
    poke_unit(disk, "T", 1, COUNT // 3, read_unit(disk, "T", 1, 5))


def add_unit_behind(disk):
    poke_unit(disk, "T", 1, COUNT // 3, (1 << 40, 100, 0))


def index_path(disk, number=0):
    return sorted(path for path in disk.contents if path.startswith(f"{ROOT}/index/"))[number]


def poke_entry(disk, number, at, data):
    start = 40 + 20 * 4 + number * 20 + at
    disk.contents[index_path(disk)][start : start + len(data)] = data


def spoil_hash(disk):
    poke_entry(disk, 5, 0, b"\x00\x00\x00\x01")


def spoil_entry(disk):
    poke_entry(disk, 5, 4, struct.pack(">q", 77))


def spoil_entry_ahead(disk):
    poke_entry(disk, 5, 4, struct.pack(">q", 100_000))


def spoil_chain(disk):
    poke_entry(disk, 45, 16, struct.pack(">i", 44))


def spoil_slot(disk):
    disk.contents[index_path(disk)][40:120] = bytes(80)


def spoil_header(disk):
    disk.contents[index_path(disk)][24:32] = bytes(8)


def cut_index(disk):
    del disk.contents[index_path(disk)][500:]


def remove_newest_index(disk):
    disk.unlink(index_path(disk, -1))


def spoil_json(disk):
    disk.contents[f"{ROOT}/config/consumerOffset.json"][:] = b'{"offsetTable":'


def empty_json(disk):
    disk.contents[f"{ROOT}/config/topics.json"][:] = b""


def spoil_spare(disk):
    disk.contents[f"{ROOT}/config/consumerOffset.json.bak"][:] = b"nonsense"


def wrong_shape(disk):
    disk.contents[f"{ROOT}/config/consumerOffset.json"][:] = b'{"offsetTable":{"T@g":5}}'


def offset_beyond(disk):
    disk.contents[f"{ROOT}/config/consumerOffset.json"][:] = b'{"offsetTable":{"T@g":{0:84}}}'


def delay_beyond(disk):
    disk.contents[f"{ROOT}/config/delayOffset.json"][:] = b'{"offsetTable":{2:11}}'


def no_checkpoint(disk):
    disk.unlink(f"{ROOT}/checkpoint")


def short_checkpoint(disk):
    del disk.contents[f"{ROOT}/checkpoint"][100:]


DAMAGES = [
    (remove_queue, "queue.missing", ERROR, 0),
    (cut_queue_file, "queue.file_size", ERROR, 0),
    (remove_queue_file, "queue.file_missing", ERROR, 40),
    (zero_unit, "queue.missing", ERROR, 7),
    (shift_unit, "queue.wrong", ERROR, 7),
    (retag_unit, "queue.tags", ERROR, 7),
    (add_unit, "queue.wrong", ERROR, COUNT // 3),
    (add_unit_behind, "queue.behind_log", ERROR, COUNT // 3),
    (spoil_hash, "index.key", ERROR, 5),
    (spoil_entry, "index.nowhere", ERROR, 5),
    (spoil_entry_ahead, "index.nowhere", ERROR, 5),
    (spoil_chain, "index.chain", ERROR, 45),
    (spoil_slot, "index.slot", ERROR, None),
    (spoil_header, "index.header", ERROR, 0),
    (cut_index, "index.file_size", ERROR, -1),
    (remove_newest_index, "index.behind", WARNING, -1),
    (spoil_json, "config.bad", ERROR, -1),
    (empty_json, "config.lost", LOSS, -1),
    (spoil_spare, "config.bad_spare", WARNING, -1),
    (wrong_shape, "config.content", ERROR, -1),
    (offset_beyond, "config.offset", WARNING, -1),
    (delay_beyond, "config.delay_offset", WARNING, -1),
    (abort, "store.abort", WARNING, -1),
    (no_checkpoint, "checkpoint.missing", WARNING, -1),
    (short_checkpoint, "checkpoint.size", WARNING, -1),
]


@pytest.mark.parametrize(
    ("damage", "kind", "severity", "offset"), DAMAGES, ids=[row[0].__name__ for row in DAMAGES]
)
def test_each_damage_has_its_finding(damage, kind, severity, offset):
    disk = stopped_store()
    damage(disk)
    report = check(disk)
    findings = report.findings.of_kind(kind)
    assert findings, found(report, INFO)
    assert findings[0].severity is severity
    assert offset is None or findings[0].offset == offset
    assert findings[0].what
    assert report.is_clean is (severity <= WARNING)
    assert report.holes == []


def test_queues_of_a_topic_that_is_not_configured_any_more_are_not_missed():
    disk = stopped_store()
    disk.remove_folder(f"{ROOT}/consumequeue/U")
    disk.contents[f"{ROOT}/config/topics.json"][:] = b'{"topicConfigTable":{"T":{}}}'
    report = check(disk)
    assert found(report, INFO) >= {("queue.deleted", INFO)}
    assert report.is_clean
    assert report.deleted_queues == {("U", 1)}


def test_a_topic_that_was_deleted_and_made_again_is_clean():
    store = open_store(disk := MemoryDisk())
    for _ in range(50):
        put(store, b"old", properties=b"KEYS\x01old\x02")
    store.commit()
    store.delete_topics(["T"])
    for _ in range(30):
        put(store, b"new", properties=b"KEYS\x01new\x02")
    store.commit()
    store.close()
    report = check(disk)
    assert found(report, INFO) == set()
    assert report.max_offsets["T", 0] == 30
    poke_unit(disk, "T", 0, 0, (0, 0, 0))
    (finding,) = [f for f in check(disk).findings.items if f.kind.startswith("queue.")]
    assert finding.what.startswith("1 messages of the log have no unit")
    disk.remove_folder(f"{ROOT}/consumequeue/T")
    (finding,) = check(disk).findings.of_kind("queue.missing")
    assert "30 messages" in finding.what


def test_a_queue_that_began_again_without_a_recorded_deletion_is_reported():
    store = open_store(disk := MemoryDisk())
    for _ in range(50):
        put(store, b"old")
    store.commit()
    store.close()
    # As a broker leaves it that did not notice the loss of the folder.
    store = open_store(disk)
    store.queue_store.delete_topics(["T"])
    store.checkpoints.forget_topics({"T"})
    for _ in range(30):
        put(store, b"new")
    store.commit()
    store.close()
    again = [f for f in check(disk).findings.items if f.kind == "queue.begun_again"]
    assert ["50 older messages of 1 queues" in finding.what for finding in again] == [True]


def test_a_queue_that_lags_is_a_warning_only_after_an_unclean_exit():
    disk = stopped_store()
    last = COUNT // 3 - 1
    poke_unit(disk, "T", 1, last, (0, 0, 0))
    assert ("queue.missing", ERROR) in found(check(disk))
    abort(disk)
    assert ("queue.missing", WARNING) in found(check(disk))


def test_a_wrong_checksum_of_a_json_file_is_found():
    disk = stopped_store()
    text = disk.contents[f"{ROOT}/config/topics.json"]
    text[:] = bytes(text) + b"\n" + b" " * 32
    report = check(disk)
    assert any("checksum" in finding.what for finding in report.findings.of_kind("config.lost"))
