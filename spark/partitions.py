"""Ranges of queues as Spark's partitions, of batches and streams alike."""

from __future__ import annotations

from pyspark.sql.datasource import InputPartition

from .queue_offsets import QueueRange, split_ranges
from .source_options import SourceOptions


class QueuePartition(InputPartition):
    """One task's work: a range of a queue."""

    def __init__(self, part: QueueRange) -> None:
        super().__init__(part)
        self.part = part


def partitions_of(options: SourceOptions, ranges: list[QueueRange]) -> list[InputPartition]:
    """Ranges of queues as tasks, split according to the options."""
    parts = split_ranges(
        ranges, parts_min=options.min_partitions, size_max=options.max_records_per_partition
    )
    return [QueuePartition(part) for part in parts]
