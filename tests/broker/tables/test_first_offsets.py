"""A group that has committed no offset yet is not taken for a lost consumerOffset.json."""

from __future__ import annotations

import pytest
import trio

from trocket.disk.memory_disk import MemoryDisk

from ...kit import broker_client, embedded_broker, heartbeat, send_fields

SEND, HEART_BEAT = 310, 34


@pytest.mark.parametrize("was_killed", [False, True], ids=["stopped", "killed"])
async def test_a_group_that_only_sent_heartbeats_is_no_lost_table(
    was_killed, autojump_clock, caplog
):
    disk = MemoryDisk()
    async with broker_client(disk) as client:
        assert (await client.ask(HEART_BEAT, {}, heartbeat("CG"))).code == 0
        assert (await client.ask(SEND, send_fields(), b"x")).code == 0
        await trio.sleep(11)
        left = disk.copy()
    disk = left if was_killed else disk
    disk.process_death()
    for _ in range(2):
        caplog.clear()
        async with embedded_broker(disk):
            pass
        assert "backup" not in caplog.text


async def test_a_first_table_of_offsets_that_is_lost_later_is_reported(autojump_clock, caplog):
    disk = MemoryDisk()
    async with broker_client(disk) as client:
        assert (await client.ask(HEART_BEAT, {}, heartbeat("CG"))).code == 0
        assert (await client.ask(SEND, send_fields(), b"x")).code == 0
    for path in [path for path in disk.contents if "consumerOffset.json" in path]:
        del disk.contents[path]
    async with embedded_broker(disk):
        pass
    assert "config/consumerOffset.json is missing" in caplog.text
    assert "restore it from a backup" in caplog.text
