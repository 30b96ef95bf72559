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

from typing import TYPE_CHECKING

from .queue_offsets import lag

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["lag", "register"]


def register(spark: SparkSession) -> None:
    """Make the formats known to a session, of Spark's own kind or of Spark Connect.

    Raises: ImportError: pyspark, pyarrow or numpy is not installed.
    """
    from pyspark.errors import AnalysisException

    from .source import RocketMQSource
    from .store_source import RocketMQStoreSource

    for source in (RocketMQSource, RocketMQStoreSource):
        try:
            spark.dataSource.register(source)
        except AnalysisException as error:
            # Spark found it by itself; that of 4.0 lets nobody say it once more.
            if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
                raise
