"""Trades in, bars out: open, high, low, close, volume and VWAP per symbol and window.

    spark-submit --master 'local[2]' trocket/spark/jobs/trades_ohlc.py \\
        --name-server 127.0.0.1:9876 --checkpoint /data/ohlc --available-now

A trade is JSON: `{"symbol":"ACME","price":12.5,"quantity":100,"time":1763805600123}`, the time
being the exchange's in ms since 1970. Bars go to a topic, with the symbol as sharding key, so that
those of a symbol stay in order.

A trade is *late* when its broker stored it more than `--late-after` seconds after its time, and
*unreadable* when it is no such JSON. Both depend on the message alone, so a stream, a batch over
the queues and a batch over the store's files agree on them; they go to a topic of their own, as
they came, with the reason as their tag.

Not done: windows that a limit per batch tears apart. A stream reads all queues up to one moment in
each batch; with maxOffsetsPerTrigger a queue may lag behind the watermark of another.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from trocket.spark import register

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TRADE = "symbol string, price double, quantity bigint, time bigint"
SKEW_S = 5
"""Seconds by which queues may differ in one batch: so much longer windows stay open."""


def read_trades(messages: DataFrame, late_after_s: float) -> DataFrame:
    """Messages taken apart.

    Args:
      messages: of `rocketmq` or `rocketmq-store`.

    Returns: `at` (timestamp), symbol, price, quantity, `place` (which of two trades of one time
      came first), body, and `problem`: null, "late" or "unreadable".
    """
    text = F.col("body").cast("string")
    trade = F.from_json(text, TRADE)
    fields = ("symbol", "price", "quantity", "time")
    is_whole = F.lit(True)
    for name in fields:
        is_whole &= trade[name].isNotNull()
    stored_ms = F.unix_millis("storeTimestamp")
    is_late = stored_ms - trade["time"] > late_after_s * 1000
    return messages.select(
        F.timestamp_millis(trade["time"]).alias("at"),
        *(trade[name].alias(name) for name in fields[:3]),
        F.struct(trade["time"], "storeTimestamp", "queueId", "queueOffset").alias("place"),
        "body",
        F.when(~is_whole, "unreadable").when(is_late, "late").alias("problem"),
    )


def bars(trades: DataFrame, window: str) -> DataFrame:
    """One row per symbol and window that has trades.

    Args:
      window: such as "1 minute".
    """
    good = trades.where("problem IS NULL")
    turnover = F.sum(F.col("price") * F.col("quantity"))
    return (
        good.groupBy(F.window("at", window), "symbol")
        .agg(
            F.min_by("price", "place").alias("open"),
            F.max("price").alias("high"),
            F.min("price").alias("low"),
            F.max_by("price", "place").alias("close"),
            F.sum("quantity").alias("volume"),
            (turnover / F.sum("quantity")).alias("vwap"),
            F.count("*").alias("trades"),
        )
        .select(
            "symbol",
            F.unix_millis("window.start").alias("start"),
            *("open", "high", "low", "close", "volume", "vwap", "trades"),
        )
    )


def as_messages(bar: DataFrame) -> DataFrame:
    """Bars as the sink takes them."""
    return bar.select(
        F.to_json(F.struct("*")).alias("body"),
        F.col("symbol").alias("shardingKey"),
        F.array("symbol").alias("keys"),
    )


def start(spark: SparkSession, given: argparse.Namespace) -> list[StreamingQuery]:
    """Start both streams: bars, and what is no part of one."""
    cluster = {"nameServer": given.name_server}
    source = spark.readStream.format("rocketmq").options(
        **cluster, topic=given.topic, startingOffsets=given.starting_offsets
    )
    trades = read_trades(source.load(), given.late_after)
    kept_s = given.late_after + SKEW_S
    outputs = {
        "bars": (given.bar_topic, as_messages(
            bars(trades.withWatermark("at", f"{kept_s} seconds"), given.window))),
        "late": (given.late_topic,
                 trades.where("problem IS NOT NULL").selectExpr("body", "problem AS tags")),
    }  # fmt: skip
    queries = []
    for name, (topic, rows) in outputs.items():
        writer = (
            rows.writeStream.queryName(f"trades_ohlc {name}")
            .format("rocketmq")
            .options(**cluster, topic=topic, ordered=str(name == "bars").lower())
            .option("checkpointLocation", f"{given.checkpoint}/{name}")
        )
        if given.available_now:
            writer = writer.trigger(availableNow=True)
        queries.append(writer.start())
    return queries


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="trades_ohlc", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--name-server", required=True)
    parser.add_argument("--topic", default="TopicTrade")
    parser.add_argument("--bar-topic", default="TopicBar")
    parser.add_argument("--late-topic", default="TopicTradeLate")
    parser.add_argument("--window", default="1 minute")
    parser.add_argument("--late-after", type=float, default=10.0, help="seconds")
    parser.add_argument("--starting-offsets", default="earliest")
    parser.add_argument("--checkpoint", required=True, help="folder of the streams' progress")
    parser.add_argument("--available-now", action="store_true", help="end when all is read")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Run until stopped, or with --available-now until all is read; 0: both streams ended well."""
    given = arguments(sys.argv[1:] if argv is None else argv)
    spark = SparkSession.builder.appName("trades_ohlc").getOrCreate()
    register(spark)
    queries = start(spark, given)
    for query in queries:
        query.awaitTermination()
        print(f"{query.name}: {_rows(query)} messages read")
    return 0


def _rows(query: Any) -> int:
    return sum(progress["numInputRows"] for progress in query.recentProgress)


if __name__ == "__main__":
    sys.exit(main())
