"""A real process with real files, killed with -9 in the middle of its work."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap

import pytest

from trocket.disk.errors import StoreLockedError
from trocket.store.config import MessageStoreConfig
from trocket.store.message_store import MessageStore

from .support import bodies

WRITER = textwrap.dedent(
    """
    import sys
    import trio
    from trocket.store.config import FlushDiskType, MessageStoreConfig
    from trocket.store.message_store import MessageStore
    from trocket.store.services import run_services

    async def main(root, flush):
        store = MessageStore(
            MessageStoreConfig(
                store_path_root_dir=root,
                mapped_file_size_commit_log=1 << 20,
                mapped_file_size_consume_queue=2000,
                max_hash_slot_num=1000,
                max_index_num=4000,
                flush_interval_commit_log=20,
                flush_disk_type=FlushDiskType[flush],
            )
        )
        store.load()
        host = bytes(8)
        async with trio.open_nursery() as nursery:
            await nursery.start(run_services, store)
            number = store.max_offset("T", 0) + store.max_offset("T", 1)
            while True:
                store.begin_burst()
                last = -1
                for _ in range(20):
                    body = b"%d " % number + b"x" * (number % 3000)
                    refusal, last, _ = store.put_message(
                        "T", number % 2, body, b"KEYS\\x01k%d\\x02" % number,
                        born_timestamp_ms=0, born_host=host, store_host=host, tags_code=0,
                    )
                    assert refusal is None, refusal
                    number += 1
                store.commit()
                if store.writer.sync_flush:
                    flushed, when_flushed = trio.Event(), store.flusher.when_flushed
                    when_flushed(last, lambda ok: flushed.set() if ok else sys.exit(1))
                    await flushed.wait()
                print(number, flush=True)  # all up to here are answered
                await trio.sleep(0)

    trio.run(main, *sys.argv[1:])
    """
)


def start(root, flush):
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(root), flush],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONWARNINGS": "error"},
    )


def opened(root):
    return MessageStore(
        MessageStoreConfig(
            store_path_root_dir=str(root),
            mapped_file_size_commit_log=1 << 20,
            mapped_file_size_consume_queue=2000,
            max_hash_slot_num=1000,
            max_index_num=4000,
        )
    )


@pytest.mark.slow
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_kill_9_loses_nothing_that_was_answered(tmp_path, flush):
    total = 0
    for rounds in (30, 45):
        process = start(tmp_path, flush)
        answered = [int(process.stdout.readline()) for _ in range(rounds)]
        with pytest.raises(StoreLockedError):
            opened(tmp_path).load()
        process.send_signal(signal.SIGKILL)
        answered += [int(line) for line in process.stdout.read().splitlines()]
        process.stdout.close()
        assert process.wait() == -signal.SIGKILL
        assert answered[-1] > total
        total = answered[-1]
    store = opened(tmp_path)
    store.load()
    for queue_id in (0, 1):
        found = bodies(store, queue_id=queue_id)
        assert len(found) >= total // 2
        for position, body in enumerate(found):
            number = position * 2 + queue_id
            assert body == b"%d " % number + b"x" * (number % 3000)
    while store.index.is_behind:
        store.index.work(1.0)
    for number in range(0, total, 97):
        assert len(store.query_by_key("T", f"k{number}", 8, 0, 1 << 60).buffers) >= 1
    store.close()
    assert not (tmp_path / "abort").exists()
