"""RocketMQ as a source and a sink of Apache Spark, and a store's files as tables.

::

    import trocket.spark

    trocket.spark.register(spark)
    messages = spark.read.format("rocketmq-store").load("/data/broker-a/store")

Place: above the blocking client and the offline tools; only the command imports it. Needs
`pip install 'trocket[spark]'` on the driver and on every executor. docs/spark.md has the options,
the columns and the guarantees.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from .queue_offsets import lag

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["lag", "register"]


SET_BY_SPARK: Final = {
    "SPARK_LOCAL_DIRS": "/tmp",
    "SPARK_AUTH_SOCKET_TIMEOUT": "15",
    "SPARK_BUFFER_SIZE": "65536",
    "SPARK_PYTHON_RUNTIME": "PYTHON_WORKER",
}
"""Variables that Spark sets for every worker; PythonStreamingSourceRunner of 4.3.0 sets them in a
map that all streams of a source share."""


def register(spark: SparkSession) -> None:
    """Register the formats with a session, classic or Spark Connect.

    Where the driver runs the tasks (`local[2]`) and no other Python is configured, the formats run
    in the driver's: Spark would take the first `python3` in PATH, which may not have trocket.

    Raises: ImportError: pyspark, pyarrow or numpy is not installed.
    """
    from pyspark.errors import AnalysisException

    from .source import RocketMQSource
    from .store_source import RocketMQStoreSource

    for source in (RocketMQSource, RocketMQStoreSource):
        try:
            with _variables_set(spark), _own_python(spark):
                spark.dataSource.register(source)
        except AnalysisException as error:
            # Spark found the format by itself, and 4.0 refuses to register it a second time.
            if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
                raise


@contextmanager
def _own_python(spark: SparkSession) -> Iterator[None]:
    """Register a source that runs in this interpreter, unless the user configured another."""
    context = getattr(spark, "sparkContext", None)
    if (
        context is None
        or not context.master.startswith("local")
        or "PYSPARK_PYTHON" in os.environ
        or context.getConf().contains("spark.pyspark.python")
    ):
        yield
        return
    known = context.pythonExec
    context.pythonExec = sys.executable
    try:
        yield
    finally:
        context.pythonExec = known


@contextmanager
def _variables_set(spark: SparkSession) -> Iterator[None]:
    """Register a source with the variables that Spark will set for it later.

    Two streams that start at once both insert them into one Java HashMap, without a lock. That
    corrupted its size, and every later stream of the session failed with
    java.io.OptionalDataException. With the keys already present, only their values are replaced.
    """
    context = getattr(spark, "sparkContext", None)  # Connect has none, and its server no such map
    if context is None:
        yield
        return
    known = context.environment
    context.environment = {**SET_BY_SPARK, **known}
    try:
        yield
    finally:
        context.environment = known
