"""A crash at any write loses no popped message, and brings none again whose ack was stored."""

from __future__ import annotations

import pytest
import trio

from trocket.disk.memory_disk import MemoryDisk

from ...kit import TrioClock, embedded_broker
from .revive_harness import bodies, create, point, put, store_ack, store_point

COUNT = 12
ACKED = {1, 2, 6, 11}
UNACKED = {b"%d" % number for number in range(COUNT) if number not in ACKED}
INVISIBLE_MS = 4_000
OPTIONS = {"flush_consumer_offset_interval": 300, "mapped_file_size_consume_queue": 2_000}
"""Offsets are saved often; queue files are small, because each image has them all."""

AFTER_S = 30
"""Enough for all that a restarted broker has to deliver."""


class Images:
    """Copies of a disk, made before each of its writes."""

    def __init__(self, disk: MemoryDisk) -> None:
        self.taken: list[MemoryDisk] = []
        self._disk = disk
        disk.fault = self._take

    def _take(self, operation: str, path: str) -> None:
        if operation in ("pwrite", "sync", "rename", "unlink"):
            self.taken.append(self._disk.copy())


async def images(clock: TrioClock) -> list[MemoryDisk]:
    """Images of all moments between the storing of acks and the end of redelivery."""
    disk = MemoryDisk(journalled=True)
    async with embedded_broker(disk, clock=clock, **OPTIONS) as broker:
        create(broker)
        put(broker, COUNT)
        points = [point(broker, range(first, first + 4), INVISIBLE_MS) for first in (0, 4, 8)]
        for number, each in enumerate(points):
            store_point(broker, each, number % 2)
            store_ack(broker, each, sorted(ACKED & set(each.offsets())), number % 2)
        await trio.sleep(1)  # it is on the device
        taken = Images(disk)
        await trio.sleep(9)
        disk.fault = None
        assert set(bodies(broker)) == UNACKED
        return taken.taken


@pytest.mark.slow
@pytest.mark.parametrize("crash", ["kill", "power loss"])
async def test_a_crash_at_any_write(crash: str, autojump_clock: trio.testing.MockClock) -> None:
    clock = TrioClock()
    crashed = await images(clock)
    assert len(crashed) > 20
    repeated = 0
    for number, image in enumerate(crashed):
        if crash == "power loss":
            image.power_loss(number % 3)
        async with embedded_broker(image, clock=clock, **OPTIONS) as broker:
            await trio.sleep(AFTER_S)
            found = bodies(broker)
        assert set(found) == UNACKED, f"crash {number} of {len(crashed)}"
        repeated += len(found) > len(UNACKED)
    assert repeated < len(crashed)
