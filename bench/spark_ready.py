"""Spark source with batches decoded in advance, which measures Spark's own share of a scan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from trocket.spark.columns import COMMITLOG, ddl
from trocket.spark.log_read import read_log
from trocket.spark.store_options import log_request, store_options
from trocket.spark.store_plan import find_stores, plan_log
from trocket.store.offline.read_only import ReadOnlyDisk

PARTS = 4


class ReadyReader(DataSourceReader):
    """Returns the first batch of a store repeatedly.

    Args:
      root: the store.
      columns: names.
      batches: number per partition.
    """

    def __init__(self, root: str, columns: tuple[str, ...], batches: int) -> None:
        self._root = root
        self._columns = columns
        self._batches = batches

    def partitions(self) -> Sequence[InputPartition]:
        """PARTS equal partitions."""
        return [InputPartition(part) for part in range(PARTS)]

    def read(self, _: InputPartition) -> Iterator[Any]:
        """The same batch, repeated."""
        options, disk = store_options({"path": self._root}), ReadOnlyDisk()
        split = plan_log(disk, find_stores(disk, options), options)[0]
        batch = next(read_log(disk, split, log_request(options, self._columns)))
        for _ in range(self._batches):
            yield batch


class ReadySource(DataSource):
    """The format `rocketmq-ready`, of the benchmark; options path and batches."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "rocketmq-ready"

    def schema(self) -> str:
        """The columns of a commit log."""
        return ddl(COMMITLOG)

    def reader(self, schema: Any) -> ReadyReader:
        """A reader of these columns."""
        return ReadyReader(self.options["path"], tuple(schema.names), int(self.options["batches"]))
