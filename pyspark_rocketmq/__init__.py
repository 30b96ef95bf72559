"""Entry point of `format("rocketmq")`: Spark searches top-level `pyspark_*` packages for it."""

from trocket.spark.source import RocketMQSource as DefaultSource

__all__ = ["DefaultSource"]
