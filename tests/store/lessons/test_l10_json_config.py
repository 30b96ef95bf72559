"""L10: consumerOffset.json torn by a power cut sends a group back to the beginning.

Apache's broker writes its state in place (#3401). A torn file does not parse, is deleted, and the
`.bak` is read; when that is bad too, the broker starts with nothing, and consumers at offset 0 (or
at the end, as they are told). A digit that changed on the disk is not found out at all.

Ours: temporary file, fsync, rename, fsync of the folder; a checksum at the end that JSON readers
pass over; a damaged file falls back to its `.bak`; when both are damaged the broker does not start.
"""

from __future__ import annotations

import pytest

from trocket.disk.errors import CorruptRecordError
from trocket.disk.json_config import unsealed
from trocket.disk.memory_disk import MemoryDisk

from ...kit import broker_client, embedded_broker, pull_fields, send_fields

OFFSETS = "/store/config/consumerOffset.json"
SEND, PULL, QUERY = 310, 11, 14
GROUP = {"consumerGroup": "CG", "topic": "T", "queueId": 0}


async def committed(disk, *offsets):
    """A broker's disk after a group committed these offsets, each followed by a clean stop."""
    for offset in offsets:
        async with broker_client(disk) as client:
            for _ in range(offset):  # one behind the queue's end would be set back
                await client.ask(SEND, send_fields(), b"body")
            await client.ask(PULL, pull_fields(sysFlag=1 | 4, commitOffset=offset))
    return disk


async def offset_now(disk):
    async with embedded_broker(disk) as broker:
        answer = await (await broker.connect()).ask(QUERY, GROUP)
    return int(answer.ext_fields["offset"])


async def test_offsets_are_saved_with_a_checksum_and_come_back():
    disk = await committed(MemoryDisk(), 5)
    assert unsealed(bytes(disk.contents[OFFSETS]))[1] is True
    assert await offset_now(disk) == 5


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda data: data[: len(data) // 2], id="torn"),
        pytest.param(lambda data: bytes(len(data)), id="zeros"),
        pytest.param(lambda data: b"", id="empty"),
        pytest.param(lambda data: data.replace(b"0:7", b"0:3"), id="another digit"),
    ],
)
async def test_a_damaged_file_falls_back_to_the_one_before_it(damage):
    disk = await committed(MemoryDisk(), 5, 7)
    disk.contents[OFFSETS] = bytearray(damage(bytes(disk.contents[OFFSETS])))
    assert await offset_now(disk) == 5


async def test_with_both_damaged_the_broker_does_not_start_and_says_which_files():
    disk = await committed(MemoryDisk(), 5, 7)
    before = {}
    for path in (OFFSETS, f"{OFFSETS}.bak"):
        disk.contents[path][20] ^= 1
        before[path] = bytes(disk.contents[path])
    with pytest.raises(ExceptionGroup) as caught:
        async with embedded_broker(disk):
            pass
    refusals, others = caught.value.split(CorruptRecordError)
    assert others is None
    assert "consumerOffset.json" in repr(refusals)
    assert {path: bytes(disk.contents[path]) for path in before} == before
