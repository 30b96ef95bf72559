"""Pops and acknowledgements where a write fails, and after kills and power cuts.

A message that was not acknowledged must be popped again, or have a check point in the store.
"""

from __future__ import annotations

import errno
import json

import pytest

from trocket.disk.memory_disk import MemoryDisk

from ...kit import Broker, embedded_broker
from .consumer import Consumer, consumer, seconds


def failing_writes(operation: str, path: str) -> OSError | None:
    if operation == "pwrite" and "commitlog" in path:
        return OSError(errno.EIO, "broken")
    return None


def disk_of(broker: Broker) -> MemoryDisk:
    disk = broker.controller.store.disk
    assert isinstance(disk, MemoryDisk)
    return disk


def killed(broker: Broker) -> MemoryDisk:
    """The disk as a kill leaves it, with all that was written."""
    return disk_of(broker).copy()


async def popped_or_stored(group: Consumer) -> set[int]:
    """The offsets of messages that are popped now, or that a stored check point has."""
    records = [record for record in group.stored("rmq_sys_wheel_timer") if record.tags == "ck"]
    found = set()
    for record in records:
        body = json.loads(record.body)
        found |= {body["so"] + diff for diff in body["d"]}
    while (answer := await group.ask_pop()).code == 0:
        offsets = answer.ext_fields["msgOffsetInfo"].split(" ")[2]
        found |= set(map(int, offsets.split(",")))
    return found


async def test_what_is_only_in_memory_is_popped_again_after_a_kill(autojump_clock) -> None:
    async with embedded_broker() as broker:
        group = await consumer(broker)
        await group.send(4)
        first = await group.pop(maxMsgNums=2)
        second = await group.pop(maxMsgNums=2)
        await group.ack_batch(second)
        await group.ack(first[0])
        await seconds(6)  # the offsets are saved
        survivor = killed(broker)
    async with embedded_broker(survivor) as broker:
        group = await consumer(broker)
        assert await popped_or_stored(group) == {0, 1, 2, 3}


async def test_what_all_have_acknowledged_is_not(autojump_clock) -> None:
    async with embedded_broker() as broker:
        group = await consumer(broker)
        await group.send(4)
        await group.ack_batch(await group.pop(maxMsgNums=2))
        await group.pop(maxMsgNums=2)
        await seconds(6)
        survivor = killed(broker)
    async with embedded_broker(survivor) as broker:
        group = await consumer(broker)
        assert await popped_or_stored(group) == {2, 3}


@pytest.mark.parametrize("waited_s", [1, 9, 10.01, 10.2, 10.6, 12, 15.1, 15.6, 20])
@pytest.mark.parametrize("merges", [True, False])
async def test_after_a_power_cut_no_message_is_missing(waited_s, merges, autojump_clock) -> None:
    disk = MemoryDisk(journalled=True)
    async with embedded_broker(disk, enable_pop_buffer_merge=merges) as broker:
        group = await consumer(broker)
        await group.send(4)
        await seconds(1)  # the messages are on the device
        await group.pop(maxMsgNums=2)
        await group.pop(maxMsgNums=2)
        await seconds(waited_s)
        survivor = killed(broker)
    survivor.power_loss()
    async with embedded_broker(survivor) as broker:
        group = await consumer(broker)
        assert await popped_or_stored(group) == {0, 1, 2, 3}


@pytest.mark.slow
async def test_nor_one_whose_invisible_time_was_changed(autojump_clock) -> None:
    for waited_s in (0, 0.3, 4.9, 5.2, 6):
        disk = MemoryDisk(journalled=True)
        async with embedded_broker(disk) as broker:
            group = await consumer(broker)
            await group.send(2)
            await seconds(1)
            got = await group.pop()
            await group.ack(got[0])
            assert (await group.change(got[1], 30_000)).code == 0
            await seconds(waited_s)
            survivor = killed(broker)
        survivor.power_loss()
        async with embedded_broker(survivor) as broker:
            assert 1 in await popped_or_stored(await consumer(broker))


async def test_a_pop_whose_record_cannot_be_written_gives_nothing(autojump_clock) -> None:
    async with embedded_broker(enable_pop_buffer_merge=False) as broker:
        group = await consumer(broker)
        await group.send(2)
        disk_of(broker).fault = failing_writes
        assert (await group.ask_pop()).code != 0
        assert group.committed() == 0
        survivor = killed(broker)
        disk_of(broker).fault = None
    async with embedded_broker(survivor) as broker:
        assert await popped_or_stored(await consumer(broker)) == {0, 1}


async def test_a_change_whose_record_cannot_be_written_acknowledges_nothing(
    autojump_clock,
) -> None:
    async with embedded_broker() as broker:
        group = await consumer(broker)
        await group.send(2)
        got = await group.pop()
        await group.ack(got[0])
        disk_of(broker).fault = failing_writes
        assert (await group.change(got[1], 30_000)).code != 0
        await seconds(20)
        assert group.committed() == 0
        disk_of(broker).fault = None


async def test_an_acknowledgement_that_cannot_be_stored_is_refused(autojump_clock) -> None:
    async with embedded_broker(enable_pop_buffer_merge=False) as broker:
        group = await consumer(broker)
        await group.send(1)
        (got,) = await group.pop()
        disk_of(broker).fault = failing_writes
        assert (await group.ack(got)).code != 0
        disk_of(broker).fault = None


async def test_a_stop_without_a_working_disk_commits_nothing(autojump_clock) -> None:
    async with embedded_broker() as broker:
        group = await consumer(broker)
        await group.send(2)
        await group.pop()
        disk = disk_of(broker)
        disk.fault = failing_writes
    disk.fault = None
    disk.process_death()
    async with embedded_broker(disk) as broker:
        assert await popped_or_stored(await consumer(broker)) == {0, 1}
