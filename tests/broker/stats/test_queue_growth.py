"""What queues have got since the last look: the sums, and how much work a step is."""

import struct
from collections.abc import Sequence
from itertools import chain

import pytest

from trocket.broker.stats.queue_growth import (
    UNITS_PER_SORTED_STEP,
    UNITS_PER_STEP,
    Queue,
    QueueGrowth,
)

BOUNDS = (100.0, 200.0)
UNITS_PER_FILE = 300_000


class EvenQueue:
    """Many messages of one size, perhaps with a last one of another size."""

    min_offset = 0

    def __init__(self, count: int, size: int, last: int | None = None) -> None:
        self.max_offset = count
        self.read_count = 0
        self._sizes = [size] * (count - 1) + [size if last is None else last]

    def read(self, queue_offset: int, count_max: int) -> bytes:
        end = min(queue_offset + count_max, (queue_offset // UNITS_PER_FILE + 1) * UNITS_PER_FILE)
        sizes = self._sizes[queue_offset:end]
        self.read_count += len(sizes)
        return b"".join(struct.pack(">qiq", 0, size, -1) for size in sizes)


@pytest.mark.parametrize(
    ("bounds", "most"), [((), UNITS_PER_STEP), (BOUNDS, UNITS_PER_SORTED_STEP)]
)
@pytest.mark.parametrize("count", [50, 999, 1_000_000])
def test_a_step_reads_a_limited_number_of_units_of_all_queues_together(
    bounds: Sequence[float], most: int, count: int
) -> None:
    queues = {("T", number): EvenQueue(count, 10) for number in range(max(400_000 // count, 1))}
    shown: dict[tuple[str, int], Queue] = dict(queues)
    growth = QueueGrowth(shown)
    growth.size_bounds = bounds
    steps = growth.look(lambda *_: None)
    read = [sum(queue.read_count for queue in queues.values()) for _ in chain(steps, [None])]
    assert read[-1] == count * len(queues)
    assert max(b - a for a, b in zip([0, *read], read, strict=False)) <= most


@pytest.mark.parametrize("last", [10, 11, 150, 250, 2**31 - 1])
def test_sizes_are_added_up_whether_they_are_all_the_same_or_not(last: int) -> None:
    queues: dict[tuple[str, int], Queue] = {("T", 0): EvenQueue(1_000, 10, last)}
    growth = QueueGrowth(queues)
    growth.size_bounds = BOUNDS
    found = []
    for _ in growth.look(lambda *note: found.append(note)):
        pass
    assert found == [("T", 0, 1_000, 9_990 + last)]
    sizes = growth.sizes["T"]
    assert (sizes.count, sizes.total) == (1_000, 9_990 + last)
    assert sizes.counts == [999 + (last <= 100), int(100 < last <= 200), int(last > 200)]
