"""The writer of a stream into `format("rocketmq")`: the shell over `sink_write`.

In a separate module, because PySpark 4.0 lacks the base class.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from .errors import SparkConnectorError
from .sink import SinkCommit, log_done, write_rows
from .sink_options import RowLayout, SinkOptions

if TYPE_CHECKING:
    import pyarrow as pa

_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"
"""Local properties of a stream's tasks."""


class StreamSink(DataSourceStreamArrowWriter):
    """Writes a stream; Spark makes a new one for each micro-batch."""

    def __init__(self, options: SinkOptions, layout: RowLayout) -> None:
        self._options = options
        self._layout = layout

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SinkCommit:
        """Send the rows of a task; they are stored when this returns."""
        context = TaskContext.get()
        assert context is not None
        query, batch = (context.getLocalProperty(name) for name in (_QUERY_ID, _BATCH_ID))
        if self._options.row_id == "auto" and (query is None or batch is None):
            raise SparkConnectorError(
                "Spark does not pass the ids of the query and the batch, so rows cannot have stable"
                " ids: name a column of ids with rowId, or set rowId=off"
            )
        return write_rows(self._options, self._layout, f"{query}:{batch}", iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Log the counts: all tasks of a micro-batch have succeeded."""
        log_done(messages, f"micro-batch {batchId}")

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Log the counts: a task failed. Messages of other tasks stay, and are sent again."""
        log_done(messages, f"micro-batch {batchId} that failed")
