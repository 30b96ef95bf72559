"""What a check finds: nothing in good stores, and each kind of damage by its name."""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path

import pytest

from trocket.disk.errors import StoreLockedError
from trocket.disk.memory_disk import MemoryDisk
from trocket.remoting.message_codec import with_property_crc
from trocket.store.format import CHECKPOINT_FILE_SIZE
from trocket.store.offline.findings import FINDINGS_MAX, Findings, Severity
from trocket.store.offline.fsck import check_store
from trocket.store.offline.layout import NoStoreError
from trocket.store.offline.read_only import ReadOnlyDisk
from trocket.store.recovery.doubt import FILE_NAME as DOUBT

from ..support import ROOT, open_store, put
from ..test_golden_stores import NAMES, unpack
from .support import (
    COUNT,
    FILE_SIZE,
    LOG,
    abort,
    check,
    expire,
    fill,
    flip,
    found,
    killed_store,
    kinds,
    open_again,
    poke,
    poke_unit,
    records,
    stopped_store,
)

ERROR, LOSS, WARNING, INFO = Severity.ERROR, Severity.LOSS, Severity.WARNING, Severity.INFO


def fingerprint(folder: Path):
    return {
        path.relative_to(folder): (
            hashlib.sha1(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns,
        )
        for path in folder.rglob("*") if path.is_file()
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_golden_store_is_clean_and_no_byte_is_changed(name, golden, tmp_path):
    config = unpack(golden, name, tmp_path)
    root = Path(config.store_path_root_dir)
    before = fingerprint(root)
    report = check_store(ReadOnlyDisk(), str(root))
    assert fingerprint(root) == before
    assert report.is_clean
    # A store whose broker was killed has its abort file; that is all that there is to say.
    expected = {("store.abort", WARNING)} if name.endswith("killed") else set()
    assert found(report, INFO) == expected
    layout, counts = report.layout, report.index_counts
    assert counts == (config.max_hash_slot_num, config.max_index_num)
    assert layout.log_file_size == config.mapped_file_size_commit_log
    assert layout.queue_file_size == config.queue_file_size
    assert report.counts["records"] > 20
    assert report.counts["units"] > 20
    assert report.counts["indexEntries"] > 20


def test_a_store_that_was_closed_is_clean():
    report = check(stopped_store())
    assert found(report, INFO) == set()
    assert report.is_clean_exit
    assert report.counts["records"] == len(records(stopped_store()))
    assert report.counts["holes"] == 0
    assert report.counts["indexEntries"] == COUNT * 4
    assert report.max_offsets["T", 0] == COUNT // 3
    assert report.as_dict()["clean"] is True


def test_a_store_whose_process_died_has_warnings_only():
    report = check(killed_store())
    assert report.is_clean
    assert not report.is_clean_exit
    assert ("store.abort", WARNING) in found(report)
    assert {severity for _, severity in found(report)} == {WARNING}
    assert kinds(report) >= {"queue.missing", "index.unfinished"}


def test_an_index_file_that_a_kill_left_without_a_size_is_a_warning_if_it_is_the_newest():
    disk = killed_store()
    paths = sorted(path for path in disk.contents if path.startswith(f"{ROOT}/index/"))
    disk.contents[paths[-1]].clear()
    report = check(disk)
    assert report.is_clean
    assert ("index.unfinished", WARNING) in found(report)
    disk = stopped_store()
    disk.contents[paths[0]].clear()
    assert not check(disk).is_clean


def test_checking_writes_nothing():
    disk = stopped_store()
    before = {path: bytes(data) for path, data in disk.contents.items()}
    used = set()
    disk.fault = lambda operation, path: used.add(operation)
    flip(disk, 5000)
    check(disk)
    flip(disk, 5000)
    assert {path: bytes(data) for path, data in disk.contents.items()} == before
    assert used <= {"open", "pread", "lock", "space"}
    assert disk.open_files == 0


# ---- damage to the log -------------------------------------------------------------------------


def record_of(disk, topic="T", queue_id=0, queue_offset=20):
    return next(
        record for record in records(disk)
        if (record.topic, record.queue_id, record.queue_offset, record.sys_flag & 4)
        == (topic, queue_id, queue_offset, 0)
    )  # fmt: skip


@pytest.mark.parametrize(
    ("at", "words"),
    [
        pytest.param(0, "a record of", id="size"),
        pytest.param(4, "magic", id="magic"),
        pytest.param(8, "CRC of the body", id="crc"),
        pytest.param(30, "says it lies at", id="physical offset"),
        pytest.param(90, "CRC of the body", id="body"),
    ],
)
def test_a_damaged_record_is_a_hole_with_its_message_named(at, words):
    disk = stopped_store()
    record = record_of(disk)
    flip(disk, record.physical_offset + at)
    report = check(disk)
    (hole,) = report.holes
    assert (hole.start, hole.end) == (
        record.physical_offset, record.physical_offset + record.store_size,
    )  # fmt: skip
    assert words in hole.reason
    assert report.losses.total == {("T", 0): 1}
    (finding,) = report.findings.of_kind("log.hole")
    assert (finding.severity, finding.offset) == (LOSS, record.physical_offset)
    assert "1 of T queue 0" in finding.what
    assert "--skip" in finding.advice
    # The index still points there.
    assert kinds(report) == {"log.hole", "index.nowhere"}
    assert not report.is_clean


def test_a_hole_without_queue_units_is_known_by_the_queue_offsets():
    disk = stopped_store()
    lost = [record for record in records(disk) if 30_000 <= record.physical_offset < 40_000]
    for record in lost:
        poke(disk, record.physical_offset, b"\xff" * record.store_size)
    for path in [path for path in disk.contents if "/consumequeue/" in path]:
        disk.unlink(path)
    report = check(disk)
    assert len(report.holes) == 1
    wanted = {}
    for record in lost:
        if not record.sys_flag & 4:
            key = (record.topic, record.queue_id)
            wanted[key] = wanted.get(key, 0) + 1
    assert report.losses.total == wanted
    assert ("queue.missing", ERROR) in found(report)


def test_a_missing_file_between_two_others_is_a_hole():
    disk = stopped_store()
    assert len([path for path in disk.contents if path.startswith(LOG)]) >= 3
    disk.unlink(f"{LOG}/{FILE_SIZE:020d}")
    report = check(disk)
    (hole,) = report.holes
    assert hole.start == FILE_SIZE
    assert hole.end == 2 * FILE_SIZE
    assert "is missing" in hole.reason
    assert report.losses.total["T", 0] > 5


def test_a_file_cut_short_is_named_and_its_end_is_a_hole():
    disk = stopped_store()
    del disk.contents[f"{LOG}/{0:020d}"][50_000:]
    report = check(disk)
    assert ("log.file_size", ERROR) in found(report)
    (hole,) = report.holes
    assert hole.end == FILE_SIZE
    assert "50000 of 65536" in hole.reason


def test_zeros_at_the_end_of_a_file_that_others_follow_are_a_hole():
    disk = stopped_store()
    last = [record for record in records(disk) if record.physical_offset < FILE_SIZE][-1]
    poke(disk, last.physical_offset, bytes(FILE_SIZE - last.physical_offset))
    report = check(disk)
    (hole,) = report.holes
    assert (hole.start, hole.end, hole.reason) == (last.physical_offset, FILE_SIZE, "zeros")


def test_a_torn_last_write_is_a_warning():
    disk = killed_store()
    end = check(disk).log_end
    poke(disk, end, b"\x00\x00\x01\x16\xda\xa3\x20\xa7 and no more")
    report = check(disk)
    assert report.is_clean
    (finding,) = report.findings.of_kind("log.tail")
    assert (finding.severity, finding.offset) == (WARNING, end)
    assert report.nonzero_end > report.log_end == end


def test_records_that_a_truncation_left_behind_are_no_hole():
    disk = stopped_store()
    end = check(disk).log_end
    old = records(disk)[3]
    base = end - end % FILE_SIZE
    at = end + 200
    copied = bytes(disk.contents[f"{LOG}/{0:020d}"][old.physical_offset :][: old.store_size])
    moved = copied[:28] + struct.pack(">q", at) + copied[36:]
    assert at + len(moved) < base + FILE_SIZE
    poke(disk, at, moved)
    report = check(disk)
    assert report.holes == []
    (finding,) = report.findings.of_kind("log.tail")
    assert "were cut off once" in finding.what
    assert report.is_clean


def test_an_old_record_behind_a_torn_one_is_a_leftover_after_a_kill_too():
    disk = killed_store()
    end = check(disk).log_end
    poke(disk, end, b"\x00\x00\x01\x16\xda\xa3\x20\xa7 torn")
    old = records(disk)[3]
    copied = bytes(disk.contents[f"{LOG}/{0:020d}"][old.physical_offset :][: old.store_size])
    poke(disk, end + 200, copied[:28] + struct.pack(">q", end + 200) + copied[36:])
    report = check(disk)
    assert report.holes == []
    newer = struct.pack(">q", report.newest_ms + 1)
    poke(disk, end + 200 + 56, newer)
    assert len(check(disk).holes) == 1


def test_what_the_checkpoint_vouches_for_must_be_there():
    disk = stopped_store()
    end = check(disk).log_end
    last = records(disk)[-1]
    poke(disk, last.physical_offset, bytes(last.store_size))
    report = check(disk)
    assert report.log_end == last.physical_offset < end
    (finding,) = report.findings.of_kind("log.short")
    assert (finding.severity, finding.offset) == (LOSS, last.physical_offset)
    assert report.losses.total == {(last.topic, last.queue_id): 1}
    disk.contents[f"{ROOT}/checkpoint"][64:] = bytes(CHECKPOINT_FILE_SIZE - 64)  # as Apache's
    assert ("log.short", LOSS) in found(check(disk))  # the queues of a clean exit vouch, too
    abort(disk)
    assert ("log.short", LOSS) not in found(check(disk))


def test_the_oldest_file_is_missed_unless_retention_took_it():
    disk = stopped_store()
    first = [record for record in records(disk) if record.physical_offset < FILE_SIZE]
    disk.unlink(f"{LOG}/{0:020d}")
    report = check(disk)
    (finding,) = report.findings.of_kind("log.start")
    assert (finding.severity, finding.offset) == (LOSS, 0)
    in_queues = [record for record in first if not record.sys_flag & 4]
    assert sum(report.losses.total.values()) == len(in_queues)
    expire(disk)
    assert check(disk).is_clean


def test_a_failed_fsync_of_before_is_a_warning():
    disk = stopped_store()
    disk.contents[f"{ROOT}/{DOUBT}"] = bytearray(b"%020d" % 7)
    report = check(disk)
    assert found(report) == {("store.doubt", WARNING)}
    assert report.findings.items[0].offset == 7


def test_a_clock_that_went_back_is_a_warning():
    disk = stopped_store()
    record = records(disk)[9]
    poke(disk, record.physical_offset + 56, struct.pack(">q", record.store_timestamp_ms - 1000))
    report = check(disk)
    assert found(report) == {("log.time", WARNING)}


def test_a_queue_offset_that_its_queue_contradicts_is_named_and_said_right():
    disk = stopped_store()
    record = record_of(disk)
    flip(disk, record.physical_offset + 20)
    report = check(disk)
    (misplaced,) = report.misplaced
    assert misplaced[:4] == ("T", 0, 20, record.physical_offset)
    assert found(report) == {("log.misplaced", ERROR)}


@pytest.mark.parametrize("position", [12, 15])
def test_a_queue_id_that_the_queues_contradict_is_named_and_said_right(position):
    disk = stopped_store()
    record = record_of(disk)
    poke(disk, record.physical_offset + position, b"\x02")
    report = check(disk)
    (misplaced,) = report.misplaced
    assert misplaced[:4] == ("T", 0, 20, record.physical_offset)
    assert kinds(report) == {"log.misplaced"}


@pytest.mark.parametrize(
    ("position", "data"),
    [
        pytest.param(26, b"\x01", id="offset too high"),
        pytest.param(27, b"\x05", id="offset too low"),
        pytest.param(14, b"\x01", id="queue id"),
    ],
)
def test_a_damaged_head_is_known_by_the_log_alone_where_there_are_no_queues(position, data):
    disk = stopped_store()
    record = record_of(disk)
    poke(disk, record.physical_offset + position, data)
    for path in [path for path in disk.contents if "/consumequeue/" in path]:
        disk.unlink(path)
    report = check(disk)
    assert [found[:4] for found in report.misplaced] == [("T", 0, 20, record.physical_offset)]
    assert "log.offset_gap" not in kinds(report, INFO)
    assert "queue.again" not in kinds(report, INFO)


def test_a_unit_out_of_order_is_no_loss():
    disk = stopped_store()
    poke(disk, record_of(disk).physical_offset, b"\xff" * 8)
    first = record_of(disk, "T", 1, 0)
    poke_unit(disk, "T", 0, COUNT // 3 + 5, (first.physical_offset, first.store_size, 0))
    report = check(disk)
    assert report.losses.total == {("T", 0): 1}
    assert ("queue.wrong", ERROR) in found(report)


def test_a_wrong_checksum_over_the_record_counts_where_all_have_one():
    store = open_store(disk := MemoryDisk())
    for number in range(30):
        put(store, b"body %d" % number, properties=b"KEYS\x01k\x02")
    store.commit()
    store.close()
    # The put path leaves the property out by default: write the log anew with it.
    log, at = bytearray(FILE_SIZE), 0
    for record in records(disk):
        whole = bytes(disk.contents[f"{LOG}/{0:020d}"][record.physical_offset :])
        protected = whole[:28] + struct.pack(">q", at) + whole[36 : record.store_size]
        protected = with_property_crc(protected)
        log[at : at + len(protected)] = protected
        at += len(protected)
    disk.contents[f"{LOG}/{0:020d}"] = log
    for path in [path for path in disk.contents if "/index/" in path or "/consumeq" in path]:
        disk.unlink(path)
    assert check(disk).holes == []
    victim = records(disk)[12]
    flip(disk, victim.physical_offset + 16)  # the flag, which nothing else covers
    report = check(disk)
    assert [hole.start for hole in report.holes] == [victim.physical_offset]
    assert "whole record" in report.holes[0].reason


def test_a_checksum_that_came_with_a_forwarded_message_is_a_warning():
    store = open_store(disk := MemoryDisk())
    for number in range(3):
        put(store, b"body %d" % number, properties=b"KEYS\x01k\x02")
    put(store, b"forwarded", properties=b"KEYS\x01k\x02XXCRC32#\x010123456789\x02")
    store.commit()
    store.close()
    log = disk.contents[f"{LOG}/{0:020d}"]
    poke(disk, log.find(b"XXCRC32#"), b"__")  # as Apache stores what a client sends
    assert found(check(disk)) == {("log.crc_property", WARNING)}


def test_findings_are_bounded_and_all_are_counted():
    findings = Findings()
    for number in range(FINDINGS_MAX + 5):
        findings.add(ERROR, "x", "y", number, "z")
    assert len(findings.items) == FINDINGS_MAX
    assert findings.total == FINDINGS_MAX + 5
    assert not findings.is_clean


# ---- what is no store, and what is in use ------------------------------------------------------


def test_a_folder_that_is_no_store_is_refused():
    disk = MemoryDisk()
    disk.make_folder("/empty")
    with pytest.raises(NoStoreError, match="not a store"):
        check_store(disk, "/empty")
    with pytest.raises(NoStoreError, match="no such folder"):
        check_store(disk, "/none")


def test_a_store_that_a_broker_has_open_is_refused_or_looked_at_up_to_its_queues():
    disk = stopped_store()
    store = open_again(disk)
    with pytest.raises(StoreLockedError):
        check(disk)
    report = check(disk, live=True)
    assert report.is_live
    assert report.is_clean
    assert {kind for kind, _ in found(report, INFO)} <= {"store.live", "index.live", "store.abort"}
    store.close()
    assert not check(disk, live=True).is_live


def test_the_lock_is_given_back():
    disk = stopped_store()
    check(disk)
    open_again(disk).close()


def test_a_log_in_another_folder_is_found_through_the_configuration():
    disk = stopped_store()
    for path in [path for path in disk.contents if path.startswith(f"{LOG}/")]:
        disk.contents[path.replace(LOG, "/elsewhere")] = disk.contents.pop(path)
    assert ("log.none", LOSS) in found(check(disk))
    report = check(disk, conf={"store_path_commit_log": "/elsewhere"})
    assert report.is_clean
    assert report.counts["records"] == len(records(stopped_store()))


def test_a_store_of_one_empty_page_is_clean():
    disk = MemoryDisk()
    open_store(disk).close()
    report = check(disk)
    assert report.is_clean
    assert report.counts["records"] == 0
    assert len(disk.contents[f"{ROOT}/checkpoint"]) == CHECKPOINT_FILE_SIZE


def test_progress_rises_to_the_end():
    calls = []
    check(stopped_store(), progress=lambda done, total: calls.append((done, total)))
    assert calls
    assert calls == sorted(calls)
    assert all(done <= total for done, total in calls)


def test_filling_is_the_same_each_time():
    assert [r.physical_offset for r in records(stopped_store())] == [
        r.physical_offset for r in records(killed_store())
    ]
    assert callable(fill)


@pytest.mark.parametrize(
    ("folder", "at", "kind"),
    [
        pytest.param("consumequeue_ext", 5, "queue.ext", id="extension"),
        pytest.param("batchconsumequeue", 5, "batch.wrong", id="batch queue"),
    ],
)
def test_damage_to_extensions_and_batch_queues_is_found(folder, at, kind, golden, tmp_path):
    name = "5.5.0-ext" if folder == "consumequeue_ext" else "5.5.0-mix"
    root = Path(unpack(golden, name, tmp_path).store_path_root_dir)
    path = next(path for path in sorted((root / folder).rglob("*")) if path.is_file())
    with path.open("r+b") as file:
        file.seek(30 if kind == "batch.wrong" else at)
        file.write(b"\x55")
    report = check_store(ReadOnlyDisk(), str(root))
    assert kinds(report) == {kind}
