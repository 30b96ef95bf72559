"""Deleting for real: what goes, what stays, what a crash leaves, when sends are refused."""

from __future__ import annotations

import errno
import logging
import re

import pytest
import trio

from trocket.common.clock import ManualClock
from trocket.disk.errors import StoreIOError
from trocket.disk.memory_disk import MemoryDisk
from trocket.disk.os_disk import OsDisk
from trocket.remoting.message_codec import decode_messages
from trocket.store.retention.disk_space import measure
from trocket.store.retention.retention_rules import CLOCK_DOUBT_S
from trocket.store.retention_service import Retention
from trocket.store.services import checkpoint_now, run_services
from trocket.store.status import GetMessageStatus, PutMessageStatus
from trocket.store.store_state import StoreEvent

from .support import bodies, open_store, physical_offset_of, put, send, visible_records

HOUR_MS = 3_600_000
FILE = 64 * 1024
DEFAULTS = {
    "delete_when": ";".join(map(str, range(24))),
    "mapped_file_size_consume_queue": 200,
    "max_index_num": 20,
}
ANOTHER_HOUR = "3"
"""A `ManualClock` begins at 22 o'clock, and whole days pass."""


def numbered(store, topic="T", queue_id=0):
    """The numbers of the messages of a queue; each says its own queue offset."""
    return [int(body[:6]) for body in bodies(store, topic, queue_id)]


def send_numbered(store, topic="T", size=3000, **more):
    offset = store.max_offset(topic, 0)
    assert send(store, b"%06d" % offset + bytes(size), topic=topic, **more) == offset


async def aged_store(disk=None, *, days=5, **keys):
    """A store with one log file a day, each but the last full; the checkpoint vouches for all."""
    clock = ManualClock()
    store = open_store(disk, clock=clock, **{**DEFAULTS, **keys})
    for day in range(days):
        store.begin_burst()
        while store.max_physical_offset < day * FILE + FILE // 2:
            key = f"{day}-{store.max_offset('T', 0)}"
            send_numbered(store, properties=b"KEYS\1" + key.encode())
            send_numbered(store, topic=f"Day{day}")
        clock.advance(24 * HOUR_MS)
    build_index(store)
    store.index.finish_full_files()
    await checkpoint_now(store)
    return store


def build_index(store):
    while store.index.is_behind:
        store.index.work(60.0)


def reopened(store, disk, *, clean, **keys):
    """The store after a stop or a kill, some time later."""
    if clean:
        store.close()
    disk.process_death()
    return open_store(disk, clock=store.clock, **{**DEFAULTS, **keys})


async def test_expired_files_go_and_everything_begins_where_the_log_does(caplog):
    store = await aged_store()
    retention = Retention(store)
    before = numbered(store)
    caplog.set_level(logging.INFO)
    retention.clean()
    # Days 0 and 1 are 3 days old and more; the first message of day 2 is in the file of day 1.
    assert list(store.log.files) == [FILE * day for day in (2, 3, 4)]
    assert store.min_physical_offset == 2 * FILE
    low = store.min_offset("T", 0)
    assert low > 0
    assert numbered(store) == before[low:]
    assert physical_offset_of(store, low) >= 2 * FILE
    said = [record.message for record in caplog.records if "/commitlog/" in record.message]
    assert len(said) == 2
    words = r"/0{20} is deleted, physical offsets 0 to 65535, newest message of 20231115221320000: "
    assert re.search(words, said[0])
    assert "older than fileReservedTime=72 h" in said[0]


async def test_an_operator_deletes_expired_files_at_any_hour():
    store = await aged_store(delete_when=ANOTHER_HOUR)
    retention = Retention(store)
    retention.clean()
    assert len(store.log.files) == 5
    store.activity.cleaning.delete_log_files()
    retention.clean()
    # What has not expired stays, however often an operator asks.
    assert list(store.log.files) == [FILE * day for day in (2, 3, 4)]


async def test_who_asks_for_a_deleted_message_is_sent_to_the_oldest_one():
    store = await aged_store()
    Retention(store).clean()
    result = store.get_message("T", 0, 0, 32)
    low = store.min_offset("T", 0)
    assert result.status is GetMessageStatus.OFFSET_TOO_SMALL
    assert (result.next_begin_offset, result.min_offset) == (low, low)
    assert store.message_at(0) is None
    assert store.offset_by_time("T", 0, 0) == low


async def test_a_slice_of_a_deleted_file_stays_whole():
    store = await aged_store()
    (held,) = store.get_message("T", 0, 0, 1).buffers
    Retention(store).clean()
    (message,) = decode_messages(held, check_crc=True)
    assert message.body[:6] == b"000000"


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("units", [3, 4, 6, 7])
async def test_a_queue_without_messages_never_begins_again_at_zero(clean, units):
    disk = MemoryDisk()
    keys = {"mapped_file_size_consume_queue": units * 20}
    store = await aged_store(disk, **keys)
    end = store.max_offset("Day0", 0)
    Retention(store).clean()
    assert end == 6, "the last file is full to the end, or not"
    assert len([path for path in disk.contents if "/consumequeue/Day0/" in path]) == 1
    assert store.get_message("Day0", 0, 0, 1).status is GetMessageStatus.OFFSET_TOO_SMALL
    for _ in range(2):
        assert (store.min_offset("Day0", 0), store.max_offset("Day0", 0)) == (end, end)
        store = reopened(store, disk, clean=clean, **keys)
    send_numbered(store, topic="Day0")
    assert numbered(store, "Day0") == [end]


async def test_the_newest_file_stays_however_old_it_is():
    store = await aged_store(days=3)
    retention = Retention(store)
    for _ in range(40):
        store.clock.advance(24 * HOUR_MS)
        retention.clean()
    assert list(store.log.files) == [2 * FILE]
    assert numbered(store)


async def test_queue_and_index_files_follow_and_what_is_left_is_found():
    disk = MemoryDisk()
    store = await aged_store(disk)
    queue_files = [path for path in disk.contents if "/consumequeue/T/0/" in path]
    index_files = [path for path in disk.contents if "/index/" in path]
    Retention(store).clean()
    left = [path for path in disk.contents if "/consumequeue/T/0/" in path]
    assert 0 < len(left) < len(queue_files)
    assert left == queue_files[-len(left) :], "the oldest ones went"
    assert min(map(int, (path[-20:] for path in left))) <= store.min_offset("T", 0) * 20
    index_left = [path for path in disk.contents if "/index/" in path]
    assert 0 < len(index_left) < len(index_files)

    def found(day, offset):
        return len(store.query_by_key("T", f"{day}-{offset}", 32, 0, 1 << 60).buffers)

    last = store.max_offset("T", 0) - 1
    for clean in (None, True, False):
        if clean is not None:
            store = reopened(store, disk, clean=clean)
            assert set(index_left) <= set(disk.contents), "nothing is built again"
            build_index(store)
        assert found(4, last) == 1
        assert found(0, 0) == 0


async def test_what_the_checkpoint_does_not_vouch_for_stays():
    store = await aged_store(days=2)
    vouched = store.checkpoints.current.dispatched_offset
    for _ in range(60):
        send_numbered(store)
    store.clock.advance(200 * HOUR_MS)
    retention = Retention(store)
    retention.clean()
    retention.clean()
    store.clock.advance(int(CLOCK_DOUBT_S * 1000))
    retention.clean()
    assert store.min_physical_offset == vouched - vouched % FILE
    assert vouched < store.max_physical_offset - 2 * FILE
    await checkpoint_now(store)
    retention.clean()
    assert len(store.log.files) == 1


@pytest.mark.parametrize("hour", [DEFAULTS["delete_when"], ANOTHER_HOUR])
async def test_a_read_only_store_deletes_nothing(hour):
    disk = MemoryDisk()
    store = await aged_store(disk, delete_when=hour)
    store.writer.enter(StoreEvent.WRITE_FAILED, "the test says so")
    disk.unlink(store.log.detach(0))  # queue files would follow
    names = set(disk.contents)
    Retention(store).clean()
    assert set(disk.contents) == names


async def test_a_file_whose_end_is_damaged_is_as_old_as_what_follows_it():
    disk = MemoryDisk()
    store = await aged_store(disk)
    for base in (0, FILE):
        disk.contents[store.log.files[base].path][-30_000:] = bytes(30_000)
    retention = Retention(store)
    retention.clean()
    assert store.min_physical_offset == 2 * FILE


async def test_a_jump_of_the_clock_deletes_nothing(caplog):
    store = await aged_store(days=3)
    retention = Retention(store)
    retention.clean()
    store.clock.jump(1000 * 24 * HOUR_MS)
    retention.clean()
    retention.clean()
    assert len(store.log.files) == 3
    assert [r.message for r in caplog.records if "jumped 24000.0 h ahead" in r.message] != []
    store.clock.jump(-1000 * 24 * HOUR_MS)
    store.clock.advance(80 * HOUR_MS)
    retention.clean()
    assert len(store.log.files) == 1


async def test_a_new_reserved_time_does_not_make_a_clock_right_that_has_jumped():
    store = await aged_store(days=3)
    retention = Retention(store)
    retention.clean()
    store.clock.jump(1000 * 24 * HOUR_MS)
    retention.clean()
    store.config.file_reserved_time = 100
    retention.clean()
    store.clock.advance(2 * HOUR_MS)
    retention.clean()
    assert len(store.log.files) == 3


@pytest.mark.parametrize("clean", [True, False])
async def test_a_restored_backup_is_kept_for_an_hour(clean):
    disk = MemoryDisk()
    store = await aged_store(disk)
    store.clock.advance(1000 * HOUR_MS)
    store = reopened(reopened(store, disk, clean=clean), disk, clean=clean)
    send(store, topic="Meanwhile")
    retention = Retention(store)
    retention.clean()
    assert len(store.log.files) == 5
    store.clock.advance(HOUR_MS)
    retention.clean()
    assert len(store.log.files) == 1


async def test_a_topic_deleted_meanwhile_is_left_alone():
    disk = MemoryDisk()
    store = await aged_store(disk)
    retention = Retention(store)

    async def call(function):
        if function.func.__name__ == "unlink" and "T" in store.topics():
            store.delete_topics(["T"])
            send(store, b"new", topic="T")
            store.queue_store.write()
        return function()

    async def go_on(_):
        pass

    queue = store.queue_store.queues["T", 0]
    await retention.run_once(call, go_on)
    assert store.min_physical_offset == 2 * FILE
    assert store.queue_store.queues["T", 0] is not queue
    assert bodies(store)[0] == b"new"


async def test_who_reads_the_log_while_its_beginning_goes_goes_on_where_it_begins():
    store = await aged_store()
    everything = [record[3] for record in visible_records(store)]
    reader = visible_records(store)
    next(reader)
    Retention(store).clean()
    rest = [record[3] for record in reader]
    assert rest[-len(everything) // 2 :] == everything[-len(everything) // 2 :]


# ---- crashes and errors -------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("clean", [True, False])
async def test_a_stop_at_any_moment_leaves_a_store_that_opens_and_goes_on(clean):
    calls = 0
    deleting = ("unlink", "sync_folder", "remove_folder", "rename")
    for fails_at in range(1, 1000):
        disk = MemoryDisk()
        store = await aged_store(disk)
        before = numbered(store)
        calls = 0

        def die(name, path):
            nonlocal calls
            calls += name in deleting
            return OSError(errno.EIO, "") if calls >= fails_at else None  # noqa: B023

        disk.fault = die
        retention = Retention(store)
        try:
            retention.clean()
        except StoreIOError:
            finished = False
        else:
            finished = True
        disk.fault = None
        store = reopened(store, disk, clean=clean)
        low, end = store.min_offset("T", 0), len(before)
        assert numbered(store) == before[low:end]
        assert store.trouble == ""
        Retention(store).clean()
        assert store.min_physical_offset == 2 * FILE
        assert numbered(store) == before[store.min_offset("T", 0) :]
        assert send(store) == end
        if finished:
            break
    assert calls >= 8


@pytest.mark.parametrize("clean", [True, False])
async def test_what_a_crash_left_behind_goes_at_the_first_look(clean):
    disk = MemoryDisk()
    store = await aged_store(disk)
    store.checkpoints.note_log_start(2 * FILE)
    for base in (0, FILE):
        disk.unlink(store.log.detach(base))
    store = reopened(store, disk, clean=clean, delete_when=ANOTHER_HOUR)
    low = store.min_offset("T", 0)
    before = set(disk.contents)
    Retention(store).clean()
    gone = before - set(disk.contents)
    assert {path.split("/")[2] for path in gone} == {"consumequeue", "index"}
    assert numbered(store) == list(range(low, store.max_offset("T", 0)))


@pytest.mark.parametrize("clean", [True, False])
async def test_on_a_disk_without_a_single_free_block_files_go_all_the_same(clean):
    disk = MemoryDisk()
    store = await aged_store(disk)
    before = numbered(store)

    def full(name, path):
        if name == "unlink" and "/commitlog/" in path:
            disk.fault = None
        elif name in ("pwrite", "allocate", "resize"):
            return OSError(errno.ENOSPC, "")
        return None

    disk.fault = full
    Retention(store).clean()
    assert store.min_physical_offset == 2 * FILE
    store = reopened(store, disk, clean=clean)
    assert not store.read_only
    assert numbered(store) == before[store.min_offset("T", 0) :]


async def test_a_file_that_cannot_be_removed_stays_whole_and_goes_later():
    disk = MemoryDisk()
    store = await aged_store(disk)
    before = numbered(store)
    retention = Retention(store)
    disk.fault = lambda name, path: (
        OSError(errno.EACCES, "") if name == "unlink" and "/commitlog/" in path else None
    )
    with pytest.raises(StoreIOError, match="give the broker's user the right"):
        retention.clean()
    assert store.min_physical_offset == 0
    assert numbered(store) == before
    disk.fault = None
    retention.clean()
    assert store.min_physical_offset == 2 * FILE


async def test_the_next_file_goes_only_when_the_removal_of_the_one_before_is_on_the_device():
    disk = MemoryDisk()
    store = await aged_store(disk)
    retention = Retention(store)
    disk.fault = lambda name, path: (
        OSError(errno.EIO, "") if name == "sync_folder" and path.endswith("/commitlog") else None
    )
    for _ in range(3):
        with pytest.raises(StoreIOError):
            retention.clean()
    assert store.min_physical_offset == FILE, "one file is gone, and no second one"
    disk.fault = None
    retention.clean()
    assert store.min_physical_offset == 2 * FILE


async def test_an_index_behind_the_deleted_part_goes_on_at_the_logs_beginning():
    store = await aged_store()
    store.index.files.clear()
    store.index.catch_up_from(0)
    assert store.index.is_behind
    Retention(store).clean()
    build_index(store)
    last = store.max_offset("T", 0) - 1
    assert store.query_by_key("T", f"4-{last}", 32, 0, 1 << 60).buffers != []


# ---- room ---------------------------------------------------------------------------------


def fill(disk, percent):
    """Let others take so much that the disk is that full."""
    own = sum(map(len, disk.contents.values()))
    disk.capacity = 100 * FILE
    disk.taken = percent * FILE - own


async def test_over_75_percent_expired_files_go_at_any_hour():
    disk = MemoryDisk()
    store = await aged_store(disk, delete_when=ANOTHER_HOUR)
    retention = Retention(store)
    fill(disk, 75)
    retention.clean()
    assert len(store.log.files) == 5
    fill(disk, 76)
    retention.clean()
    assert len(store.log.files) == 3


async def test_over_85_percent_the_oldest_files_go_and_sends_are_taken():
    disk = MemoryDisk()
    store = await aged_store(disk, delete_when=ANOTHER_HOUR, file_reserved_time=1000)
    fill(disk, 87)
    Retention(store).clean()
    assert len(store.log.files) == 3
    assert put(store)[0] is None


async def test_over_90_percent_sends_are_refused_reads_go_on_and_sends_come_back():
    disk = MemoryDisk()
    keys = {
        "delete_when": ANOTHER_HOUR,
        "clean_file_forcibly_enable": False,
        "file_reserved_time": 1000,
    }
    store = await aged_store(disk, **keys)
    retention = Retention(store)
    before = numbered(store)
    refusal, _, pending = put(store, b"%06d" % len(before))
    fill(disk, 91)
    retention.clean()
    retention.clean()
    assert refusal is None
    assert put(store)[0].status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    assert "/data/commitlog is 91 % full" in store.trouble
    assert put(store, topic="New")[0].status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    store.commit()
    assert numbered(store) == [*before, pending], "what was put before is stored"
    fill(disk, 90)
    retention.clean()
    assert send(store, b"%06d" % (len(before) + 1)) == len(before) + 1
    store.close()
    assert store.trouble == ""


async def test_a_failed_write_while_sends_are_refused_does_not_take_them_again():
    disk = MemoryDisk()
    store = await aged_store(disk, delete_when=ANOTHER_HOUR, clean_file_forcibly_enable=False)
    put(store)
    fill(disk, 99)
    Retention(store).clean()
    failures = [OSError(errno.ENOSPC, "")]
    disk.fault = lambda name, path: failures.pop() if name == "pwrite" and failures else None
    with pytest.raises(StoreIOError):
        store.commit()
    assert put(store)[0].status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    assert "diskSpaceWarningLevelRatio" in store.trouble


async def test_a_quota_bounds_what_the_store_takes():
    disk = MemoryDisk()
    quota = 4 * FILE
    keys = {"delete_when": ANOTHER_HOUR, "store_bytes_max": quota, "message_index_enable": False}
    store = open_store(disk, clock=ManualClock(), **keys)
    retention = Retention(store)
    sent = 0
    for _ in range(60):
        for _ in range(5):
            send_numbered(store)
            sent += 1
        await checkpoint_now(store)
        retention.clean()
        assert store.trouble == ""
        assert disk.used_bytes("/data") <= quota
    assert numbered(store) == list(range(store.min_offset("T", 0), sent))
    assert measure(disk, store.config).own_bytes == disk.used_bytes("/data")


async def test_over_a_quota_that_nothing_can_meet_sends_are_refused_by_name():
    disk = MemoryDisk()
    keys = {"delete_when": ANOTHER_HOUR, "clean_file_forcibly_enable": False}
    store = await aged_store(disk, store_bytes_max=3 * FILE, file_reserved_time=1000, **keys)
    Retention(store).clean()
    assert put(store)[0].status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    assert "storeBytesMax=192.0 KiB" in store.trouble
    assert "cleanFileForciblyEnable" in store.trouble


async def test_the_service_refuses_and_takes_sends_as_room_goes_and_comes(autojump_clock):
    disk = MemoryDisk()
    store = await aged_store(disk, delete_when=ANOTHER_HOUR, file_reserved_time=1000)
    async with trio.open_nursery() as nursery:
        await nursery.start(run_services, store)
        fill(disk, 99)
        await trio.sleep(11)
        assert len(store.log.files) == 1
        assert store.trouble
        await trio.sleep(12)
        logs = disk.list("/data/commitlog")
        assert logs == [f"{4 * FILE:020d}"], "no file is made ahead on a full disk"
        disk.taken = 0
        await trio.sleep(11)
        assert store.trouble == ""
        send(store)
        nursery.cancel_scope.cancel()
    store.close()


async def test_the_service_goes_on_after_an_error_and_logs_it_once(autojump_clock, caplog):
    disk = MemoryDisk()
    store = await aged_store(disk)
    disk.fault = lambda name, path: OSError(errno.EIO, "") if name == "space" else None
    async with trio.open_nursery() as nursery:
        await nursery.start(run_services, store)
        await trio.sleep(21)
        assert len([r for r in caplog.records if "retention failed" in r.message]) == 1
        disk.fault = None
        await trio.sleep(11)
        assert store.min_physical_offset == 2 * FILE
        nursery.cancel_scope.cancel()
    store.close()


async def test_on_the_machines_disk_with_threads_files_go_and_the_rest_is_served(tmp_path):
    store = await aged_store(
        OsDisk(),
        root=str(tmp_path),
        clean_file_forcibly_enable=False,  # the machine's disk may be full
        delete_commit_log_files_interval=1,
        delete_consume_queue_files_interval=1,
    )
    before = numbered(store)
    async with trio.open_nursery() as nursery:
        await nursery.start(run_services, store)
        with trio.fail_after(20):
            while len(store.index.files) > 3 or store.min_physical_offset < 2 * FILE:
                await trio.testing.wait_all_tasks_blocked(0.01)
        nursery.cancel_scope.cancel()
    low = store.min_offset("T", 0)
    assert numbered(store) == before[low:]
    store.close()
    assert min(path.name for path in (tmp_path / "commitlog").iterdir()) == f"{2 * FILE:020d}"
