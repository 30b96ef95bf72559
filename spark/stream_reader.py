"""`spark.readStream.format("rocketmq")`: the shell over `stream_plan`.

Needs PySpark 4.2 or newer: older ones lack the read limits that are imported here.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from .cluster import Cluster
from .partitions import QueuePartition, partitions_of
from .pull_read import read_range
from .queue_offsets import StreamOffset
from .source_options import SourceOptions
from .store_options import LogRequest
from .stream_plan import StreamPlan, batch_ranges, check_topics
from .worker import settle

if TYPE_CHECKING:
    import pyarrow as pa


ROWS_MAX: Final = 2**62
"""A row limit that never applies: ReadAllAvailable would also disable maxBytesPerTrigger."""


class QueueStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of one stream: plans in one process for the query's life, reads in tasks.

    Args:
      request: the columns and tags of the rows.
    """

    def __init__(self, options: SourceOptions, request: LogRequest) -> None:
        self._options = options
        self._request = request
        self._plan: StreamPlan | None = StreamPlan(
            options, lambda: Cluster(options), time.monotonic, threading.Event().wait
        )

    def __getstate__(self) -> dict[str, Any]:
        """The state for tasks, which do not plan."""
        return {"_options": self._options, "_request": self._request, "_plan": None}

    @property
    def _planning(self) -> StreamPlan:
        assert self._plan is not None
        return self._plan

    def initialOffset(self) -> dict[str, Any]:
        """The offsets at which a new query begins."""
        return self._planning.initial().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """The limit of maxOffsetsPerTrigger; the plan of a batch applies maxBytesPerTrigger."""
        if not self._options.is_limited:
            return ReadAllAvailable()
        return ReadMaxRows(self._options.max_offsets_per_trigger or ROWS_MAX)

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end of the stream: read the messages that exist now, then stop."""
        self._planning.pin()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The end of the next batch; `start` if there is nothing to read."""
        # Trigger.Once reads everything, regardless of the options' limits.
        is_once = isinstance(limit, ReadAllAvailable) and self._options.is_limited
        count = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        end = self._planning.next_end(StreamOffset.from_json(start), count, all_of_it=is_once)
        return start if end is None else end.to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The last known ends of the queues, for the query's progress."""
        latest = self._planning.latest
        return StreamOffset(latest).to_json() if latest else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The ranges of a batch."""
        until = StreamOffset.from_json(end)
        # After a restart, a batch that was planned before is read without a call of latestOffset.
        check_topics(self._options, until)
        ranges = batch_ranges(StreamOffset.from_json(start), until)
        return partitions_of(self._options, ranges)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a range."""
        if isinstance(partition, QueuePartition):
            settle()
            options = self._options
            yield from read_range(Cluster(options), options, self._request, partition.part)

    def commit(self, end: dict[str, Any]) -> None:
        """Commit the offsets of a finished batch."""
        self._planning.commit(StreamOffset.from_json(end))

    def stop(self) -> None:
        """Do nothing: the connections belong to the process."""
