"""L16: a full disk is an error with an answer, never a signal, and nothing maps what may vanish.

At Apache files are made sparse and written through maps: when the disk is full, or the device turns
read-only, the write is a SIGBUS and the broker is gone (issues 1790, 3511, 9693); removing a mapped
queue file while it is read crashes too (8405). Here commit log files are allocated before use, and
every file is written by pwrite; maps are for reading allocated, never shrinking files. Queue and
index files stay sparse, as a thousand queues of 6 MB need not take 6 GB: they are not mapped, and a
write to them that finds no room is an error like any other.
"""

from __future__ import annotations

import errno
import re
import resource
import subprocess
import sys
import textwrap
from contextlib import suppress
from pathlib import Path

import pytest

from trocket.common.clock import ManualClock
from trocket.disk.errors import StoreIOError
from trocket.disk.memory_disk import MemoryDisk
from trocket.disk.os_disk import OsDisk
from trocket.store.services import checkpoint_now
from trocket.store.writing.log_writer import CREATE_RETRY_S

from ..support import bodies, open_store, put, send

ROOT = Path(__file__).resolve().parents[3]

WRITES = ("pwrite", "allocate", "resize", "open", "make_folder")


def test_files_are_mapped_for_reading_only_and_in_one_place():
    maps = {
        (path.name, line.strip())
        for folder in ("disk", "store")
        for path in (ROOT / folder).rglob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.search(r"\bmmap\.mmap\(", line)
    }
    of_files = {(name, line) for name, line in maps if "mmap.mmap(-1," not in line}
    assert {name for name, _ in of_files} == {"os_disk.py"}
    assert all("ACCESS_READ" in line for _, line in of_files)


def test_a_commit_log_file_has_all_its_blocks_before_the_first_record(tmp_path):
    store = open_store(OsDisk(), root=str(tmp_path), mapped_file_size_commit_log=1 << 20)
    send(store)
    (path,) = (tmp_path / "commitlog").iterdir()
    assert path.stat().st_blocks * 512 >= 1 << 20
    store.close()


@pytest.mark.parametrize(
    "error",
    [
        errno.ENOSPC,
        pytest.param(errno.EROFS, marks=pytest.mark.slow),
        pytest.param(errno.EDQUOT, marks=pytest.mark.slow),
        pytest.param(errno.EIO, marks=pytest.mark.slow),
    ],
)
async def test_whatever_write_fails_nothing_acknowledged_is_lost_and_sends_come_back(error):
    """Every single failing call, one run each, until a run has none."""
    for fails_at in range(1, 1000):
        disk = MemoryDisk()
        clock = ManualClock()
        store = open_store(disk, clock=clock)
        calls, acknowledged = 0, []

        def fail(name, path):
            nonlocal calls
            calls += name in WRITES
            return OSError(error, "") if calls == fails_at and name in WRITES else None  # noqa: B023

        disk.fault = fail
        for number in range(30):
            body = b"%02d" % number + bytes(5000)
            clock.advance(round(CREATE_RETRY_S * 1000))
            store.begin_burst()
            if put(store, body, properties=b"KEYS\1k%d" % number)[0] is None:
                with suppress(StoreIOError):
                    store.commit()
                    acknowledged.append(body)
            if number % 10 == 9:
                await checkpoint_now(store)
                store.index.work(60.0)
        disk.fault = None
        assert bodies(store) == acknowledged
        assert len(acknowledged) >= 29
        assert send(store) == len(acknowledged)
        store.close()
        assert bodies(open_store(disk))[:-1] == acknowledged
        if calls < fails_at:
            break
    assert fails_at > 20


def test_a_referenced_slice_outlives_its_file(tmp_path):
    store = open_store(OsDisk(), root=str(tmp_path))
    while len(store.log.files) < 3:
        send(store, bytes(20_000))
    held = store.message_at(0)
    (tmp_path / "commitlog" / ("0" * 20)).unlink()
    store.log.detach(0)
    assert len(bytes(held)) == len(held) > 20_000
    store.close()
    assert len(bytes(held)) == len(held)


LIMITED = textwrap.dedent(
    """
    import resource, signal, sys
    from trocket.store.config import MessageStoreConfig
    from trocket.disk.errors import StoreIOError
    from trocket.store.message_store import MessageStore

    FILE = 1 << 20
    store = MessageStore(
        MessageStoreConfig(
            store_path_root_dir=sys.argv[1],
            mapped_file_size_commit_log=FILE,
            mapped_file_size_consume_queue=4000,
            max_hash_slot_num=1000,
            max_index_num=4000,
        )
    )
    store.load()
    host, refused = bytes(8), 0

    reasons = []

    def send():
        store.begin_burst()
        refusal, _, _ = store.put_message(
            "T", 0, bytes(50_000), b"", born_timestamp_ms=0, born_host=host, store_host=host,
            tags_code=0,
        )
        try:
            store.commit()
        except StoreIOError as error:
            reasons.append(str(error))
            return False
        if refusal is not None:
            reasons.append(refusal.remark)
        return refusal is None

    sent = sum(send() for _ in range(30))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # as Python does; a signal would kill us
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE // 2, resource.RLIM_INFINITY))
    outcomes = [send() for _ in range(30)]
    assert not outcomes[-1], "a file as long as that was not to be had"
    assert reasons[-1]
    sent += sum(outcomes)
    assert store.max_offset("T", 0) == sent, (store.max_offset("T", 0), sent)
    assert store.get_message("T", 0, 0, 1).buffers, "reads go on"
    store.close()
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    store = MessageStore(store.config)
    store.load()
    assert store.max_offset("T", 0) == sent, (store.max_offset("T", 0), sent)
    assert send()
    store.close()
    print("ok", sent)
    """
)


@pytest.mark.slow
def test_a_real_file_system_that_refuses_more_bytes_kills_no_process(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("ok ")


LONG_LOG = textwrap.dedent(
    """
    import resource, sys
    import trio
    from trocket.store.config import MessageStoreConfig
    from trocket.store.message_store import MessageStore
    from trocket.store.services import run_services

    COUNT, FILE = int(sys.argv[4]), int(sys.argv[5]) << 20

    async def main():
        resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[2]), int(sys.argv[2])))
        if int(sys.argv[3]):
            room = int(sys.argv[3]) << 20
            used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used + room, used + room))
        config = MessageStoreConfig(
            store_path_root_dir=sys.argv[1],
            mapped_file_size_commit_log=FILE,
            mapped_file_size_consume_queue=400,
            max_hash_slot_num=100,
            max_index_num=400,
            max_transfer_bytes_on_message_in_memory=1 << 20,
        )
        host = bytes(8)
        store = MessageStore(config)
        store.load()
        number = 0
        while len(store.log.files) < COUNT:
            store.begin_burst()
            refusal, _, _ = store.put_message(
                "T", number % 50, b"%06d" % number + bytes(200_000), b"", born_timestamp_ms=0,
                born_host=host, store_host=host, tags_code=0,
            )
            assert refusal is None, refusal
            store.commit()
            store.flusher.flush()
            number += 1
        store.close()
        store = MessageStore(config)
        store.load()
        async with trio.open_nursery() as nursery:
            await nursery.start(run_services, store)
            seen = 0
            for queue_id in range(50):
                offset = 0
                while offset < store.max_offset("T", queue_id):
                    result = store.get_message("T", queue_id, offset, 32)
                    assert result.buffers, result.status
                    for buffer in result.buffers:
                        assert int(bytes(buffer[88:94])) % 50 == queue_id
                    seen += result.count
                    offset = result.next_begin_offset
                    del result, buffer  # sent
                await trio.sleep(0)
            assert seen == number, (seen, number)
            nursery.cancel_scope.cancel()
        store.close()
        print("ok", seen)

    trio.run(main)
    """
)


@pytest.mark.slow
@pytest.mark.parametrize(
    "limits",
    [(256, 0, 300, 1), (1024, 120, 50, 4)],
    ids=["300 files, 256 descriptors", "200 MiB, 120 MiB of address space"],
)
def test_a_long_log_works_with_few_descriptors_or_little_memory(tmp_path, limits):
    if not Path("/proc/self/statm").exists():
        pytest.skip("needs /proc")
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[1] >= 1024
    done = subprocess.run(
        [sys.executable, "-c", LONG_LOG, str(tmp_path), *map(str, limits)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("ok ")
