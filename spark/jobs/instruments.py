"""Table of instruments by symbol that is joined to bars, and reloaded while a stream runs."""

from __future__ import annotations

import logging
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from trocket.spark.jobs.running import JobError, reason

logger = logging.getLogger(__name__)

KEY = "symbol"


class Instruments:
    """The instrument of each symbol.

    The rows are kept in memory, so replacing the file while a batch runs does not disturb it. If a
    new version cannot be read, a warning is logged and the last one stays in use.

    Args:
      path: a CSV file with a header, or Parquet (a file or a folder), with a column `symbol`.
      every: reload after this number of batches in any case: changes are visible only for files on
        this machine.
    """

    def __init__(self, spark: SparkSession, path: str, every: int) -> None:
        self._spark = spark
        self._path = path
        self._every = every
        self._batches_since = 0
        self._version = self._file_states()
        self._table = self._read()

    def join(self, bars: DataFrame) -> DataFrame:
        """Bars with `known`, and `instrument`: the other columns of the symbol's row, or null."""
        table = self._fresh()
        others = [name for name in table.columns if name != KEY]
        facts = F.struct(*others) if others else F.struct(KEY)
        side = table.select(KEY, facts.alias("instrument"))
        return bars.join(F.broadcast(side), KEY, "left").select(
            *bars.columns, F.col("instrument").isNotNull().alias("known"), "instrument"
        )

    def _fresh(self) -> DataFrame:
        self._batches_since += 1
        version = self._file_states()
        if self._batches_since > self._every or version != self._version:
            self._batches_since, self._version = 1, version
            try:
                self._table = self._read()
            except (JobError, PySparkException) as error:
                logger.warning(
                    "%s cannot be read, keeping the last version: %s", self._path, reason(error)
                )
        return self._table

    def _file_states(self) -> list[tuple[str, int, int]]:
        """Names, sizes and times of the files; empty if they are not on this machine."""
        root = Path(self._path)
        files = sorted(root.rglob("*")) if root.is_dir() else [root] if root.exists() else []
        found = []
        for path in files:
            state = path.stat()
            found.append((path.name, state.st_size, state.st_mtime_ns))
        return found

    def _read(self) -> DataFrame:
        read = self._spark.read
        if self._path.endswith(".csv"):
            table = read.csv(self._path, header=True, inferSchema=True)
        else:
            table = read.parquet(self._path)
        if KEY not in table.columns:
            names = ", ".join(table.columns)
            raise JobError(f"{self._path} has no column {KEY!r}, only {names}: rename one")
        table = table.withColumn(KEY, F.col(KEY).cast("string"))
        rows = table.collect()
        symbols = [row[KEY] for row in rows]
        twice = sorted({str(each) for each in symbols if symbols.count(each) > 1})
        if twice:
            raise JobError(
                f"{self._path} has several rows of {', '.join(twice[:5])}: keep one each"
            )
        return self._spark.createDataFrame(rows, table.schema)
