"""A broker that is stopped while it starts ends like any other."""

from __future__ import annotations

import pytest
import trio

from trocket.broker.controller import BrokerController
from trocket.broker.settings.config import BrokerConfig
from trocket.disk.memory_disk import MemoryDisk
from trocket.store.config import MessageStoreConfig

from ..kit import TrioClock


@pytest.mark.parametrize("path", ["/store/abort", "/store/lock", "/store/consumequeue"])
async def test_a_stop_while_the_store_is_loaded_is_heard(path, autojump_clock):
    disk, scope = MemoryDisk(), trio.CancelScope()
    controller = BrokerController(
        BrokerConfig(broker_name="b", broker_ip1="127.0.0.1"),
        MessageStoreConfig(
            store_path_root_dir="/store", mapped_file_size_commit_log=64 * 1024,
            max_hash_slot_num=100, max_index_num=400,
        ),
        clock=TrioClock(), disk=disk, listeners=[],
    )  # fmt: skip
    disk.fault = lambda _, at: scope.cancel() if at == path else None
    with trio.fail_after(60):
        with scope:
            await controller.run()
    assert scope.cancelled_caught
    disk.fault = None
    assert not disk.exists("/store/abort")  # it was closed in good order
    disk.lock("/store/lock")
