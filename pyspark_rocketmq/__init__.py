"""Where Spark finds `format("rocketmq")` by itself: it looks into top-level `pyspark_*`."""

from trocket.spark.source import RocketMQSource as DefaultSource

__all__ = ["DefaultSource"]
