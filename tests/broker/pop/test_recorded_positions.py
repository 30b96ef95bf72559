"""With flushDiskType=SYNC_FLUSH and enablePopBufferMerge=false no kill takes an ack back."""

from __future__ import annotations

from typing import Any

import pytest

from trocket.disk.memory_disk import MemoryDisk
from trocket.remoting.codec import RemotingCommand
from trocket.store.config import FlushDiskType

from ...kit import START_MS, Broker, TrioClock, embedded_broker, send_fields
from .consumer import REVIVE, SEND, TIMER, Consumer, consumer, messages_of, seconds

DURABLE: dict[str, Any] = {
    "flush_disk_type": FlushDiskType.SYNC_FLUSH,
    "enable_pop_buffer_merge": False,
}

SMALL: dict[str, Any] = {
    "flush_consumer_offset_interval": 700,
    "mapped_file_size_consume_queue": 2_000,
}
"""Offsets are saved often; queue files are small, because each image has them all."""


def killed(broker: Broker, crash: str) -> MemoryDisk:
    """The disk as a kill or a power cut leaves it."""
    disk = broker.controller.store.disk
    assert isinstance(disk, MemoryDisk)
    copy = disk.copy()
    if crash == "power cut":
        copy.power_loss()
    return copy


async def comes(group: Consumer, *, wait_s: int = 90) -> list[bytes]:
    """The messages that the group still gets, each acknowledged."""
    bodies: list[bytes] = []
    for _ in range(wait_s):
        answer: RemotingCommand = await group.ask_pop()
        while answer.code == 0:
            for got in messages_of(answer):
                bodies.append(got.message.body)
                assert (await group.ack(got)).code == 0
            answer = await group.ask_pop()
        await seconds(1)
    return bodies


DELETE_TOPIC = 215

both_crashes = pytest.mark.parametrize("crash", ["kill", "power cut"])


@pytest.mark.slow
@both_crashes
@pytest.mark.parametrize("invisible_ms", [1_000, 60_000])
@pytest.mark.parametrize("batch", [False, True])
async def test_an_acknowledged_message_does_not_come_again(
    crash, invisible_ms, batch, autojump_clock
) -> None:
    disk = MemoryDisk(journalled=True)
    async with embedded_broker(disk, **DURABLE) as broker:
        group = await consumer(broker)
        await group.send(4)
        got = await group.pop(maxMsgNums=3, invisibleTime=invisible_ms)
        if batch:
            assert (await group.ack_batch(got[:2])).code == 0
        else:
            assert {(await group.ack(each)).code for each in got[:2]} == {0}
        survivor = killed(broker, crash)
    async with embedded_broker(survivor, **DURABLE) as broker:
        assert sorted(await comes(await consumer(broker))) == [b"2", b"3"]


@pytest.mark.slow
@both_crashes
async def test_nor_does_one_come_early_whose_time_was_changed(crash, autojump_clock) -> None:
    disk = MemoryDisk(journalled=True)
    async with embedded_broker(disk, **DURABLE) as broker:
        group = await consumer(broker)
        await group.send(1)
        (got,) = await group.pop(invisibleTime=5_000)
        assert (await group.change(got, 60_000)).code == 0
        survivor = killed(broker, crash)
    async with embedded_broker(survivor, **DURABLE) as broker:
        group = await consumer(broker)
        assert await comes(group, wait_s=50) == []
        assert await comes(group) == [b"0"]


@pytest.mark.slow
@both_crashes
async def test_nor_does_one_that_was_acknowledged_at_its_second_delivery(
    crash, autojump_clock
) -> None:
    disk = MemoryDisk(journalled=True)
    async with embedded_broker(disk, flush_consumer_offset_interval=60_000, **DURABLE) as broker:
        group = await consumer(broker)
        await group.send(1)
        await group.pop(invisibleTime=2_000)
        assert await comes(group, wait_s=8) == [b"0"]
        survivor = killed(broker, crash)
    async with embedded_broker(survivor, **DURABLE) as broker:
        assert await comes(await consumer(broker)) == []


async def test_nor_with_messages_between_that_the_filter_skips(autojump_clock) -> None:
    disk = MemoryDisk(journalled=True)
    async with embedded_broker(disk, **DURABLE) as broker:
        group = await consumer(broker)
        for tag in ("a", "b", "a", "b"):
            await group.send(1, i=f"TAGS\x01{tag}\x02")
        for _ in range(2):
            for got in await group.pop(maxMsgNums=1, exp="a", expType="TAG"):
                assert (await group.ack(got)).code == 0
        survivor = killed(broker, "kill")
    async with embedded_broker(survivor, **DURABLE) as broker:
        group = await consumer(broker)
        assert (await group.ask_pop(exp="a", expType="TAG")).code != 0


@pytest.mark.slow
async def test_a_reset_before_the_kill_gives_the_messages_again(autojump_clock) -> None:
    disk = MemoryDisk(journalled=True)
    async with embedded_broker(disk, flush_consumer_offset_interval=300, **DURABLE) as broker:
        group = await consumer(broker)
        await group.send(3)
        assert {(await group.ack(each)).code for each in await group.pop()} == {0}
        broker.controller.offsets.assign_reset_offset("G", "T", 0, 0)
        await seconds(0.7)  # it is saved
        survivor = killed(broker, "kill")
    async with embedded_broker(survivor, **DURABLE) as broker:
        assert sorted(await comes(await consumer(broker))) == [b"0", b"1", b"2"]


@pytest.mark.slow
async def test_a_stop_after_the_kill_leaves_no_acknowledged_message(autojump_clock) -> None:
    disk = MemoryDisk(journalled=True)
    async with embedded_broker(disk, **DURABLE) as broker:
        group = await consumer(broker)
        await group.send(2)
        assert {(await group.ack(each)).code for each in await group.pop()} == {0}
        survivor = killed(broker, "kill")
    for _ in range(2):
        async with embedded_broker(survivor, **DURABLE):
            pass
    async with embedded_broker(survivor, **DURABLE) as broker:
        assert await comes(await consumer(broker)) == []


async def test_a_timer_message_of_a_client_that_looks_like_a_record_moves_no_group(
    autojump_clock,
) -> None:
    disk = MemoryDisk(journalled=True)
    async with embedded_broker(disk, **DURABLE) as broker:
        group = await consumer(broker)
        await group.send(3)
        (got,) = await group.pop(maxMsgNums=1)
        assert (await group.ack(got)).code == 0
        (record, *_) = group.stored(TIMER)
        due_ms = START_MS + 3_600_000
        forged = f"TAGS\x01ck\x02TIMER_DELIVER_MS\x01{due_ms}\x02POP_NEXT_OFFSET\x013\x02"
        for claimed in ("", f"REAL_TOPIC\x01{REVIVE}\x02" * 2):
            fields = send_fields("T", 1, i=claimed + forged)
            assert (await group.client.ask(SEND, fields, record.body)).code == 0
        survivor = killed(broker, "kill")
    async with embedded_broker(survivor, **DURABLE) as broker:
        assert sorted(await comes(await consumer(broker), wait_s=5)) == [b"1", b"2"]


async def test_no_message_of_a_topic_that_was_made_again_is_skipped(autojump_clock) -> None:
    disk = MemoryDisk(journalled=True)
    async with embedded_broker(disk, flush_consumer_offset_interval=300, **DURABLE) as broker:
        group = await consumer(broker)
        await group.send(3)
        assert {(await group.ack(each)).code for each in await group.pop()} == {0}
        assert (await group.client.ask(DELETE_TOPIC, {"topic": "T"})).code == 0
        await group.send(4)
        await seconds(0.7)  # the offsets are saved
        survivor = killed(broker, "kill")
    async with embedded_broker(survivor, **DURABLE) as broker:
        found = await comes(await consumer(broker), wait_s=5)
        assert sorted(found) == [b"0", b"1", b"2", b"3"]


@pytest.mark.slow
async def test_of_a_crash_at_any_write_no_acknowledgement_is_lost_and_no_message(
    autojump_clock,
) -> None:
    clock, disk = TrioClock(), MemoryDisk(journalled=True)
    images: list[tuple[MemoryDisk, set[bytes]]] = []
    acked: set[bytes] = set()

    def take(operation: str, path: str) -> None:
        if operation in ("pwrite", "sync", "rename"):
            images.append((disk.copy(), set(acked)))

    async with embedded_broker(disk, clock=clock, **SMALL, **DURABLE) as broker:
        group = await consumer(broker)
        await group.send(6)
        disk.fault = take
        for number in range(6):
            (got,) = await group.pop(maxMsgNums=1, invisibleTime=2_000)
            if number % 3:
                assert (await group.ack(got)).code == 0
                acked.add(got.message.body)
            await seconds(0.4)
        for _ in range(6):
            for got in messages_of(await group.ask_pop(invisibleTime=2_000)):
                assert (await group.ack(got)).code == 0
                acked.add(got.message.body)
            await seconds(1)
        disk.fault = None
    assert len(acked) == 6
    assert len(images) > 40
    for number, (image, before) in enumerate(images[::3]):
        if number % 2:
            image.power_loss(number % 3)
        async with embedded_broker(image, clock=clock, **SMALL, **DURABLE) as broker:
            found = await comes(await consumer(broker), wait_s=8)
        assert set(found).isdisjoint(before), f"crash {number}: an acknowledged one comes again"
        # The one whose acknowledgement was on its way may be acknowledged.
        assert len(acked - before - set(found)) <= 1, f"crash {number}: one is missing"
