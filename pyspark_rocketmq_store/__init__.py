"""Where Spark finds `format("rocketmq-store")` by itself: it looks into top-level `pyspark_*`."""

from trocket.spark.store_source import RocketMQStoreSource as DefaultSource

__all__ = ["DefaultSource"]
