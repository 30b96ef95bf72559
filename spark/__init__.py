"""RocketMQ as a source and a sink of Apache Spark, and a store's files as tables.

::

    import trocket.spark

    trocket.spark.register(spark)
    messages = spark.read.format("rocketmq-store").load("/data/broker-a/store")

Place: above the client and the offline tools, which it uses through their blocking doors; nothing
imports it but the command. Needs `pip install 'trocket[spark]'` on the driver and on every
executor. docs/spark.md has the options, the columns and what is promised.
"""

from __future__ import annotations

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
"""Variables that Spark sets for every worker, whatever they are; PythonStreamingSourceRunner of
4.3.0 does so in a map that all streams of a source share."""


def register(spark: SparkSession) -> None:
    """Make the formats known to a session, of Spark's own kind or of Spark Connect.

    Raises: ImportError: pyspark, pyarrow or numpy is not installed.
    """
    from pyspark.errors import AnalysisException

    from .source import RocketMQSource
    from .store_source import RocketMQStoreSource

    for source in (RocketMQSource, RocketMQStoreSource):
        try:
            with _variables_set(spark):
                spark.dataSource.register(source)
        except AnalysisException as error:
            # Spark found it by itself; that of 4.0 lets nobody say it once more.
            if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
                raise


@contextmanager
def _variables_set(spark: SparkSession) -> Iterator[None]:
    """Let a source be registered with the variables that Spark will set for it.

    Two streams that start at once each put them into one HashMap of Java, which no lock guards.
    That left it with a wrong count, and every stream of the session ended from then on with
    java.io.OptionalDataException. Where the names are there, only their values are replaced.
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
