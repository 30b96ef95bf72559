"""A garbage checkpoint was believed: store times became those of the year 10^8, and sends failed.

Of ten random pages seven had a time beyond the year 9999. Further starts did not heal it.
"""

from __future__ import annotations

import os
import struct
from random import Random

import pytest

from trocket.common.clock import ManualClock
from trocket.disk.memory_disk import MemoryDisk
from trocket.remoting.message_codec import decode_messages
from trocket.store.recovery.checkpoint import read_checkpoint

from ..kit import START_MS, TrioClock, broker_client, embedded_broker, pull_fields, send_fields
from ..store.support import ROOT, bodies, open_store, send

SEED = int(os.environ.get("TROCKET_SIM_SEED", "1"))
SEND, PULL = 310, 11
PATH = f"{ROOT}/checkpoint"
FIELDS = (
    "physicMsgTimestamp",
    "logicsMsgTimestamp",
    "indexMsgTimestamp",
    "masterFlushedOffset",
    "confirmPhyOffset",
)


def random_page(random: Random) -> bytearray:
    """A page whose bytes are random, and whose first time is positive."""
    page = bytearray(random.randbytes(4096))
    page[0] &= 0x7F
    return page


def stopped(clock: ManualClock, *, clean: bool = True) -> MemoryDisk:
    """A store of 400 messages on several log files, closed or killed."""
    disk = MemoryDisk()
    store = open_store(disk, clock=clock)
    for number in range(400):
        clock.advance(10)
        store.begin_burst()
        send(store, b"%d" % number + bytes(200), properties=b"KEYS\x01k%d\x02" % number)
    store.flusher.flush()
    if clean:
        store.close()
    disk.process_death()
    return disk


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("number", range(10))
def test_a_random_page_moves_no_clock_and_loses_nothing(number, clean, caplog):
    print("seed", SEED)
    clock = ManualClock()
    disk = stopped(clock, clean=clean)
    disk.contents[PATH] = random_page(Random(f"{SEED}:{number}"))
    clock.advance(1000)
    store = open_store(disk, clock=clock)
    assert len(bodies(store)) == 400
    send(store)
    assert store.store_time_at("T", 0, 400) == clock.now_ms
    found = [record.getMessage() for record in caplog.records if PATH in record.getMessage()]
    assert any("physicMsgTimestamp" in line for line in found)
    caplog.clear()
    store.close()
    again = open_store(disk, clock=clock)
    assert [record.getMessage() for record in caplog.records] == []
    assert len(bodies(again)) == 401


@pytest.mark.parametrize("value", [-(1 << 63), -2, 1 << 50, (1 << 63) - 1])
@pytest.mark.parametrize("field", range(5))
def test_each_field_is_put_right_with_a_warning_and_written_again(field, value, caplog):
    clock = ManualClock()
    disk = stopped(clock)
    struct.pack_into(">q", disk.contents[PATH], 8 * field, value)
    store = open_store(disk, clock=clock)
    assert len(bodies(store)) == 400
    assert f"{PATH}: its {FIELDS[field]} is {value}, but" in caplog.text
    disk.process_death()
    found = read_checkpoint(disk, PATH)
    times = (
        found.physic_msg_timestamp_ms,
        found.logics_msg_timestamp_ms,
        found.index_msg_timestamp_ms,
    )
    assert all(0 <= each <= clock.now_ms for each in times)
    assert found.master_flushed_offset == found.confirm_physical_offset == 0
    assert found.dispatched_offset > 0


def test_a_store_time_that_is_no_time_does_not_count(caplog):
    """The last record's own time is damaged: its bytes have no checksum."""
    clock = ManualClock()
    disk = MemoryDisk()
    store = open_store(disk, clock=clock)
    send(store, b"first")
    at = store.dispatched_offset
    send(store, b"second")
    store.flusher.flush()
    disk.process_death()
    log = disk.contents[f"{ROOT}/commitlog/{0:020d}"]
    assert log[at + 56 : at + 64] == struct.pack(">q", clock.now_ms)
    log[at + 56 : at + 64] = struct.pack(">q", 1 << 60)
    again = open_store(disk, clock=clock)
    assert "is impossible and is ignored" in caplog.text
    send(again)
    assert again.store_time_at("T", 0, 2) == clock.now_ms


def test_a_clock_that_was_years_ahead_is_still_believed_where_messages_prove_it(caplog):
    clock = ManualClock()
    disk = MemoryDisk()
    store = open_store(disk, clock=clock)
    ahead_ms = 10 * 365 * 24 * 3_600_000
    clock.jump(ahead_ms)
    store.begin_burst()
    send(store)
    clock.jump(-ahead_ms)
    store.close()
    again = open_store(disk, clock=clock)
    send(again)
    assert again.store_time_at("T", 0, 1) == clock.now_ms + ahead_ms
    assert "87600.0 h after the time of this machine's clock" in caplog.text


def test_a_clock_that_was_years_ahead_without_a_message_leaves_no_trace():
    clock = ManualClock()
    disk = MemoryDisk()
    store = open_store(disk, clock=clock)
    send(store)
    clock.jump(1 << 40)
    store.begin_burst()
    store.close()
    clock.jump(-(1 << 40))
    again = open_store(disk, clock=clock)
    send(again)
    assert again.store_time_at("T", 0, 1) == clock.now_ms


async def test_sends_without_a_unique_key_work_at_sane_times(autojump_clock):
    disk = MemoryDisk()
    async with embedded_broker(disk=disk) as broker:
        await (await broker.connect()).ask(SEND, send_fields(i=""), b"before")
    disk.contents["/store/checkpoint"] = random_page(Random(f"{SEED}:wire"))
    disk.process_death()
    for start in range(2):
        async with broker_client(disk=disk, clock=TrioClock()) as client:
            answer = await client.ask(SEND, send_fields(i=""), b"after")
            assert answer.code == 0, answer.remark
            pulled = await client.ask(PULL, pull_fields())
            messages = decode_messages(pulled.body, check_crc=True)
            assert len(messages) == 2 + start
            assert all(0 <= each.store_timestamp_ms - START_MS < 10_000 for each in messages)
        disk.process_death()
