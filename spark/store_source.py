"""`spark.read.format("rocketmq-store")`: the files of a store as tables.

The shell over Spark's Data Source API. Spark creates these objects in Python workers and pickles
them to move them; they hold options and plans, but no open files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from ..store.offline.read_only import ReadOnlyDisk
from .columns import ddl
from .errors import OptionError
from .log_read import read_log
from .pushdown import bounds
from .refused_stream import RefusedStream
from .session import picked
from .store_options import FORMAT, StoreOptions, log_request, store_options, within
from .store_plan import LogSplit, find_stores, plan_log
from .store_tables import TableSplit, plan_table, read_table
from .versions import require
from .worker import settle

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import DataSourceStreamReader, Filter
    from pyspark.sql.types import StructType


class RocketMQStoreSource(DataSource):
    """The format `rocketmq-store`; see `StoreOptions`."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self._options = store_options(options)

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        """All columns of the table."""
        return ddl(self._options.columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of the columns that the user's schema picks."""
        options = self._options
        columns = picked(schema, options.columns, f"the table {options.table}")
        if options.pushdown:
            require("pushdown=true", 4, 1)
        kind = FilteringStoreReader if options.pushdown else StoreReader
        return kind(options, columns)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A stream whose use raises: the store has no streaming."""
        text = "reads files as tables, with spark.read; a stream is readStream.format"
        return RefusedStream(OptionError(f'{FORMAT} {text}("rocketmq")'))


class StorePartition(InputPartition):
    """One task's split."""

    def __init__(self, split: LogSplit | TableSplit) -> None:
        super().__init__(split)
        self.split = split


class StoreReader(DataSourceReader):
    """Plans on the driver, reads in tasks.

    Args:
      columns: names, in the schema's order.
    """

    def __init__(self, options: StoreOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._request = log_request(options, columns)

    def partitions(self) -> Sequence[InputPartition]:
        """The splits of the current files."""
        disk = ReadOnlyDisk()
        stores = find_stores(disk, self._options)
        if self._options.table == "commitlog":
            return [StorePartition(split) for split in plan_log(disk, stores, self._options)]
        return [StorePartition(split) for split in plan_table(disk, stores, self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a split."""
        if not isinstance(partition, StorePartition):
            return  # Spark's placeholder for an empty plan
        settle()
        split, options = partition.split, self._options
        disk = ReadOnlyDisk()
        if isinstance(split, LogSplit):
            yield from read_log(
                disk, split, self._request, fail_on_data_loss=options.fail_on_data_loss
            )
        else:
            yield from read_table(disk, split, self._request.columns, options.mode)


class FilteringStoreReader(StoreReader):
    """A reader that Spark's filters narrow; it needs spark.sql.python.filterPushdown.enabled."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Use the filters that narrow the read; Spark applies all of them to the rows, too."""
        times = bounds(filters, "storeTimestamp")
        self._request = self._request.narrowed(
            topics=bounds(filters, "topic").values,
            tags=bounds(filters, "tags").values,
            first_ms=times.low,
            last_ms=times.high,
        )
        self._options = within(self._options, times.low, times.high)
        return filters
