"""The writer of a table into `format("rocketmq")`: the shell over `sink_write`."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from ..blocking import Producer
from ..client.errors import ClientError
from .cluster import client_of
from .errors import OptionError, SparkConnectorError
from .sink_options import RowLayout, SinkOptions
from .sink_write import SinkWriter, Written

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)


@dataclass
class SinkCommit(WriterCommitMessage):
    """The counts of a task that has sent all its rows."""

    written: Written


def refuse_overwrite(overwrite: bool) -> None:
    """Raises: OptionError: a queue cannot be overwritten."""
    if overwrite:
        raise OptionError('a queue cannot be overwritten: write with .mode("append")')


def write_rows(
    options: SinkOptions, layout: RowLayout, run: str, batches: Iterator[pa.RecordBatch]
) -> SinkCommit:
    """Send the rows of this task.

    Args:
      run: prefix of the ids of all rows of this query and batch.

    Raises:
      SparkConnectorError: a row cannot become a message, or was not stored.
    """
    context = TaskContext.get()
    partition = context.partitionId() if context is not None else 0
    client = client_of(options)
    row_id = f"{run}:{partition}" if options.row_id == "auto" else None
    try:
        with Producer(
            client,
            group=options.producer_group,
            retry_times=options.retries,
            message_size_max=options.max_message_size,
        ) as producer:
            writer = SinkWriter(producer, options, layout, row_id)
            return SinkCommit(writer.write(batches))
    except ClientError as error:
        raise SparkConnectorError(str(error)) from error


def log_done(messages: list[WriterCommitMessage | None], what: str) -> None:
    """Log how many rows the tasks sent."""
    done = [message.written for message in messages if isinstance(message, SinkCommit)]
    rows, requests = (sum(each[n] for each in done) for n in (0, 1))
    logger.info("%s: %d rows stored, in %d requests", what, rows, requests)


class BatchSink(DataSourceArrowWriter):
    """Writes a table."""

    def __init__(self, options: SinkOptions, layout: RowLayout) -> None:
        self._options = options
        self._layout = layout
        # Set on the driver, so that a retried task gives its rows the same ids.
        self._run = str(uuid.uuid4())

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SinkCommit:
        """Send the rows of a task; they are stored when this returns."""
        return write_rows(self._options, self._layout, self._run, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Log the counts: all tasks have succeeded."""
        log_done(messages, "a batch")

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Log the counts: a task failed. Messages of other tasks stay."""
        log_done(messages, "a batch that failed")
