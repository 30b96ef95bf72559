"""Two real processes with real files and TCP between them; each is killed with -9 in its turn."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap

import pytest

from tests.store.queue_differences import differences
from trocket.store.config import BrokerRole, FlushDiskType, MessageStoreConfig
from trocket.store.message_store import MessageStore

from ..support import bodies

NODE = textwrap.dedent(
    """
    import sys
    import trio
    from trocket.store.config import BrokerRole, FlushDiskType, MessageStoreConfig
    from trocket.store.ha.master import HaMaster, open_ha_listener
    from trocket.store.ha.slave import HaSlave
    from trocket.store.message_store import MessageStore
    from trocket.store.services import run_services

    async def load(store, number):
        while True:
            store.begin_burst()
            for _ in range(20):
                body = b"%d " % number + b"x" * (number % 3000)
                refusal, last, _ = store.put_message(
                    "T", number % 2, body, b"", born_timestamp_ms=0, born_host=bytes(8),
                    store_host=bytes(8), tags_code=0,
                )
                assert refusal is None, refusal
                number += 1
            store.on_visible(store.commit())
            answered = trio.Event()
            outcome = []
            store.when_replicated(last, lambda status: (outcome.append(status), answered.set()))
            await answered.wait()
            print(number if outcome == [0] else -1, flush=True)
            await trio.sleep(0)

    async def main(root, role, flush, port):
        store = MessageStore(
            MessageStoreConfig(
                store_path_root_dir=root,
                mapped_file_size_commit_log=1 << 20,
                mapped_file_size_consume_queue=2000,
                max_hash_slot_num=1000,
                max_index_num=4000,
                broker_role=BrokerRole[role],
                flush_disk_type=FlushDiskType[flush],
                ha_listen_port=int(port),
            )
        )
        store.load()
        async with trio.open_nursery() as nursery:
            await nursery.start(run_services, store)
            if role == "SLAVE":
                slave = HaSlave(store)
                slave.set_master(f"127.0.0.1:{port}")
                print("up", flush=True)
                await slave.run()
            listener = open_ha_listener(store.config)
            print(listener.getsockname()[1], flush=True)
            await nursery.start(HaMaster(store).serve, [listener])
            await load(store, store.max_offset("T", 0) + store.max_offset("T", 1))

    trio.run(main, *sys.argv[1:])
    """
)


class Process:
    """A node in a separate process."""

    def __init__(self, root, role, flush, port=0):
        self.popen = subprocess.Popen(
            [sys.executable, "-c", NODE, str(root), role, flush, str(port)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONWARNINGS": "error"},
        )
        self.first_line = self.line()

    def line(self):
        return self.popen.stdout.readline().strip()

    def kill(self):
        """Kill it; returns what it had still said."""
        self.popen.send_signal(signal.SIGKILL)
        said = self.popen.stdout.read().splitlines()
        self.popen.stdout.close()
        assert self.popen.wait() == -signal.SIGKILL
        return said


def opened(root, flush, role=BrokerRole.ASYNC_MASTER):
    store = MessageStore(
        MessageStoreConfig(
            store_path_root_dir=str(root),
            mapped_file_size_commit_log=1 << 20,
            mapped_file_size_consume_queue=2000,
            max_hash_slot_num=1000,
            max_index_num=4000,
            broker_role=role,
            flush_disk_type=FlushDiskType[flush],
        )
    )
    store.load()
    assert not store.read_only
    return store


@pytest.mark.slow
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_kill_9_of_either_loses_nothing_that_was_answered(tmp_path, flush):
    master = Process(tmp_path / "master", "SYNC_MASTER", flush)
    port = int(master.first_line)
    answered, rounds = 0, 0
    for victim in ("slave", "master", "slave"):
        slave = Process(tmp_path / "slave", "SLAVE", flush, port)
        while rounds < 40:  # -1: there is no slave yet, or it is gone
            number = int(master.line())
            rounds += number > 0
            answered = max(answered, number)
        rounds = 0
        slave.kill()
        if victim == "master":
            answered = max([answered, *map(int, master.kill())])
            master = Process(tmp_path / "master", "SYNC_MASTER", flush, port)
    answered = max([answered, *map(int, master.kill())])
    # The master's machine is gone: its slave becomes the master.
    stores = [opened(tmp_path / name, flush) for name in ("slave", "master")]
    slave, master = stores
    assert answered > 2000
    for queue_id in (0, 1):
        found = bodies(slave, queue_id=queue_id)
        assert len(found) >= answered // 2
        for position, body in enumerate(found):
            number = position * 2 + queue_id
            assert body == b"%d " % number + b"x" * (number % 3000)
    assert list(differences(slave.log, slave.queue_store, slave.config)) == []
    end = slave.max_physical_offset
    assert end <= master.max_physical_offset
    for base in slave.log.files:
        size = min(end - base, 1 << 20)
        assert bytes(slave.log.view(base)[:size]) == bytes(master.log.view(base)[:size])
    for store in stores:
        store.close()
