"""Entry point of `format("rocketmq-store")`: Spark searches top-level `pyspark_*` packages."""

from trocket.spark.store_source import RocketMQStoreSource as DefaultSource

__all__ = ["DefaultSource"]
