"""`format("rocketmq")`: queues of a cluster as a table and as a stream.

The shell over Spark's Data Source API; see `store_source`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from .batch_plan import ranges
from .cluster import Cluster
from .columns import MESSAGE, PropertiesAs, ddl, of_messages
from .errors import OptionError, SparkConnectorError
from .options import exact_tags
from .partitions import QueuePartition, partitions_of
from .pull_read import read_range
from .pushdown import Bounds, bounds
from .refused_stream import RefusedStream
from .session import fields_of, picked
from .sink import BatchSink, refuse_overwrite
from .sink_options import RowLayout, SinkOptions, row_layout, sink_options
from .source_options import FORMAT, SourceOptions, source_options
from .store_options import LogRequest
from .versions import require, require_streams
from .worker import settle

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import DataSourceStreamReader, Filter
    from pyspark.sql.types import StructType

    from .stream_sink import StreamSink

_NARROWING = ("topic", "brokerName", "queueId", "queueOffset", "storeTimestamp", "tags")
"""Columns whose filters narrow a read."""


class RocketMQSource(DataSource):
    """The format `rocketmq`; see `SourceOptions`."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self._given = dict(options)

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        """All columns of a message."""
        # Spark also calls this for a sink, whose options are others: read only this option.
        lowered = {key.lower(): value.strip().lower() for key, value in self._given.items()}
        is_text = lowered.get("propertiesas") == PropertiesAs.STRING.value
        return ddl(of_messages(MESSAGE, PropertiesAs.STRING if is_text else PropertiesAs.MAP))

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of the columns that the user's schema picks."""
        options = source_options(self._given)
        columns = picked(schema, of_messages(MESSAGE, options.properties_as), FORMAT)
        if options.pushdown:
            require("pushdown=true", 4, 1)
        kind = FilteringQueueReader if options.pushdown else QueueReader
        return kind(options, columns)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A stream of the columns that the user's schema picks, or one that says what is wrong."""
        try:
            return self._stream(schema)
        except SparkConnectorError as error:
            return RefusedStream(error)

    def _stream(self, schema: StructType) -> DataSourceStreamReader:
        require_streams()
        from .stream_reader import QueueStreamReader

        options = source_options(self._given)
        if options.ending_offsets or options.end_times is not None:
            raise OptionError(
                f"{FORMAT}: a stream does not end: endingOffsets, endingTimestamp and"
                " endingOffsetsByTimestamp are for tables"
            )
        columns = picked(schema, of_messages(MESSAGE, options.properties_as), FORMAT)
        return QueueStreamReader(options, message_request(options, columns))

    def writer(self, schema: StructType, overwrite: bool) -> BatchSink:
        """A writer of these rows."""
        refuse_overwrite(overwrite)
        return BatchSink(*self._sink(schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamSink:
        """A writer of a micro-batch of these rows."""
        require(f'writeStream.format("{FORMAT}")', 4, 1)
        from .stream_sink import StreamSink

        refuse_overwrite(overwrite)
        return StreamSink(*self._sink(schema))

    def _sink(self, schema: StructType) -> tuple[SinkOptions, RowLayout]:
        options = sink_options(self._given)
        return options, row_layout(fields_of(schema), options)


def message_request(options: SourceOptions, columns: tuple[str, ...]) -> LogRequest:
    """The request for the columns and tags of a read.

    Args:
      columns: names, in order.
    """
    return LogRequest(
        columns,
        tags=exact_tags(options.tags),
        batch_rows=options.arrow_batch_rows,
        properties_as=options.properties_as,
    )


class QueueReader(DataSourceReader):
    """Plans on the driver, reads in tasks.

    Args:
      columns: names, in the schema's order.
    """

    def __init__(self, options: SourceOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._request = message_request(options, columns)
        self._filters: dict[str, Bounds] = {}

    def partitions(self) -> Sequence[InputPartition]:
        """Ranges of queues, as the cluster is now."""
        options = self._options
        cluster = Cluster(options)
        found = ranges(cluster, options, cluster.queues(options), self._filters)
        return partitions_of(options, found)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a range."""
        if isinstance(partition, QueuePartition):
            settle()
            options = self._options
            yield from read_range(Cluster(options), options, self._request, partition.part)


class FilteringQueueReader(QueueReader):
    """A reader that Spark's filters narrow; it needs spark.sql.python.filterPushdown.enabled."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Use the filters that narrow the read; Spark applies all of them to the rows, too."""
        self._filters = {name: bounds(filters, name) for name in _NARROWING}
        self._request = self._request.narrowed(tags=self._filters["tags"].values)
        return filters
