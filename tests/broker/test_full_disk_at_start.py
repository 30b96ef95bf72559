"""A broker that was killed and starts on a full or read-only disk serves reads."""

from __future__ import annotations

import errno

import pytest
import trio

from trocket.disk.memory_disk import MemoryDisk
from trocket.remoting.message_codec import decode_messages

from ..kit import broker_client, pull_fields, send_fields
from ..store.test_full_disk_at_start import full_after, unwritable

SEND, PULL, COMMIT, QUERY_OFFSET = 310, 11, 15, 14


FAULTS = {
    "full": lambda disk: full_after(disk, 0, errno.ENOSPC),
    "read-only": lambda disk: unwritable(disk, errno.EROFS),
    "of another user": lambda disk: unwritable(disk, errno.EACCES),
}


@pytest.mark.slow
@pytest.mark.parametrize("fail", FAULTS.values(), ids=FAULTS)
async def test_a_killed_broker_on_a_full_disk_serves_reads_and_sends_when_started_with_room(
    fail, autojump_clock
):
    disk = MemoryDisk()
    async with broker_client(disk) as client:
        assert (await client.ask(SEND, send_fields(), b"kept")).code == 0
        delayed = send_fields(i="DELAY\x013\x02UNIQ_KEY\x01A\x02")
        assert (await client.ask(SEND, delayed, b"late")).code == 0
        await trio.sleep(6)
        killed = disk.copy()
    killed.process_death()
    fail(killed)
    async with broker_client(killed) as client:
        found = await client.ask(PULL, pull_fields(sysFlag=4))
        assert [each.body for each in decode_messages(found.body)] == [b"kept"]
        refused = await client.ask(SEND, send_fields(), b"refused")
        assert refused.code != 0
        assert "until restart" in refused.remark
        committed = {"consumerGroup": "CG", "topic": "T", "queueId": 0, "commitOffset": 1}
        assert (await client.ask(COMMIT, committed)).code == 0
        await trio.sleep(60)
        assert (await client.ask(QUERY_OFFSET, committed)).ext_fields["offset"] == "1"
    killed.fault = None
    async with broker_client(killed) as client:
        assert (await client.ask(SEND, send_fields(), b"after")).code == 0
        await trio.sleep(11)
        found = await client.ask(PULL, pull_fields(sysFlag=4))
        bodies = sorted(each.body for each in decode_messages(found.body))
        assert bodies == [b"after", b"kept", b"late"]
