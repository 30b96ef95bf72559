"""Bars from trades: open, high, low, close, volume and VWAP per symbol and window.

    spark-submit --master 'local[2]' trocket/spark/jobs/trades_ohlc.py \\
        --name-server 127.0.0.1:9876 --checkpoint /data/ohlc --available-now

A trade is JSON: `{"symbol":"ACME","price":12.5,"quantity":100,"time":1763805600123}`, with the time
of the exchange in ms since 1970. Bars are sent to a topic with the symbol as sharding key, so that
the bars of a symbol are in the order of their windows.

Three kinds of messages are not part of a bar, and are sent unchanged to another topic, with the
kind as tag: *late* (stored by the broker more than `--late-after` seconds after its time), *early*
(its time is more than SKEW_S seconds after it was stored: it would close the windows of all
symbols), and *unreadable* (not such JSON). The kind depends only on the message, so a stream, a
batch over the queues (`--batch`) and a batch over a store's files (`--store`) agree on it. They
also agree on the bars: those whose window is closed, which means `--late-after` and SKEW_S seconds
before the newest trade.

`--verify` with either batch compares its bars with those in the bar topic; exit status 1: they
differ.

At least once: when Spark repeats a batch, bars are sent again, with the same SPARK_ROW_ID
(symbol@start).

Not done: limits per batch. A stream reads all queues up to one moment in each batch; with
maxOffsetsPerTrigger, a queue could be behind the watermark of another, and its bars incomplete.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated

import typer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from trocket.spark.jobs.connection import reading
from trocket.spark.jobs.flags import StreamJobFlags, read_flags
from trocket.spark.jobs.instruments import Instruments
from trocket.spark.jobs.running import (
    EXIT_FINDINGS,
    Summary,
    follow,
    read_stream,
    run,
    send,
)

NAME = "trades_ohlc"
TRADE = "symbol string, price double, quantity bigint, time bigint"
BAR = (
    "symbol string, start bigint, open double, high double, low double, close double,"
    " volume bigint, vwap double, trades bigint"
)
SKEW_S = 5
"""Seconds by which the queues of a batch, or the clocks of machines, may differ."""
VWAP_TOLERANCE = 1e-9
"""Relative tolerance: sums of doubles depend on their order, which varies between batches."""


@dataclass(frozen=True, kw_only=True)
class Flags(StreamJobFlags):
    """The job's command line."""

    topic: Annotated[str, typer.Option(help="Read trades from here.")] = "TopicTrade"
    bar_topic: Annotated[str, typer.Option(help="Send bars here.")] = "TopicBar"
    late_topic: Annotated[
        str, typer.Option(help="Send late, early and unreadable messages here.")
    ] = "TopicTradeLate"
    late_files: Annotated[
        str, typer.Option(metavar="FOLDER", help="Write those messages as Parquet, too.")
    ] = ""
    window: Annotated[str, typer.Option(help="Set the length of a bar.")] = "1 minute"
    late_after: Annotated[
        float, typer.Option(metavar="S", help="Treat trades as late after S seconds.")
    ] = 10.0
    instruments: Annotated[
        str, typer.Option(metavar="FILE", help="Join bars with this CSV or Parquet by symbol.")
    ] = ""
    instruments_every: Annotated[
        int, typer.Option(metavar="N", help="Reload that table every N batches.")
    ] = 100
    starting_offsets: Annotated[str, typer.Option(help="Start a new stream here.")] = "earliest"
    bar_files: Annotated[
        str, typer.Option(metavar="FOLDER", help="Write a batch's bars as Parquet.")
    ] = ""
    verify: Annotated[
        bool, typer.Option("--verify", help="Compare a batch's bars with the bar topic.")
    ] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.is_batch:
            self.need("--name-server", "--checkpoint")
        elif not (self.bar_files or self.verify):
            raise typer.BadParameter("a batch needs --bar-files or --verify")
        elif not self.store or self.verify:
            self.need("--name-server")


def read_trades(messages: DataFrame, late_after_s: float) -> DataFrame:
    """Parse messages.

    Args:
      messages: rows of `rocketmq` or `rocketmq-store`.

    Returns: `at` (timestamp), symbol, price, quantity, `place` (the order of trades with the same
      time), `id` (of the message), body, and `problem`: null, or why it is not part of a bar.
    """
    text = F.col("body").cast("string")
    trade = F.from_json(text, TRADE)
    fields = ("symbol", "price", "quantity", "time")
    is_whole = F.lit(True)
    for name in fields:
        is_whole &= trade[name].isNotNull()
    age_ms = F.unix_millis("storeTimestamp") - trade["time"]
    return messages.select(
        F.timestamp_millis(trade["time"]).alias("at"),
        *(trade[name].alias(name) for name in fields[:3]),
        F.struct(trade["time"], "storeTimestamp", "queueId", "queueOffset").alias("place"),
        F.concat_ws("/", "topic", "brokerName", "queueId", "queueOffset").alias("id"),
        "body",
        F.when(~is_whole, "unreadable")
        .when(age_ms > late_after_s * 1000, "late")
        .when(age_ms < -SKEW_S * 1000, "early")
        .alias("problem"),
    )


def bars(trades: DataFrame, window: str) -> DataFrame:
    """Aggregate trades to one row per symbol and window.

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


def closed_bars(trades: DataFrame, window: str, late_after_s: float) -> DataFrame:
    """The bars of a batch that a stream would have sent by now."""
    newest = F.unix_millis(F.max("at")) - F.lit(int((late_after_s + SKEW_S) * 1000))
    watermark = trades.where("problem IS NULL").agg(newest.alias("watermark"))
    width_ms = F.unix_millis(F.timestamp_millis(F.lit(0)) + F.expr(f"INTERVAL {window}"))
    is_closed = F.col("start") + width_ms <= F.col("watermark")
    return bars(trades, window).crossJoin(F.broadcast(watermark)).where(is_closed).drop("watermark")


def as_messages(bar: DataFrame) -> DataFrame:
    """Bars as rows for the sink, those of a symbol in the order of their windows."""
    tags = [F.when(F.col("known"), "known").otherwise("unknown").alias("tags")]
    return (
        bar.repartition("symbol")
        .sortWithinPartitions("symbol", "start")
        .select(
            F.to_json(F.struct("*")).alias("body"),
            F.col("symbol").alias("shardingKey"),
            F.array("symbol").alias("keys"),
            F.concat_ws("@", "symbol", "start").alias("id"),
            *(tags if "known" in bar.columns else []),
        )
    )


# ---- as a stream -------------------------------------------------------------------------


def start(spark: SparkSession, given: Flags, summary: Summary) -> list[StreamingQuery]:
    """Start both streams: bars, and messages that are not part of one."""
    options = reading(given, topic=given.topic, startingOffsets=given.starting_offsets)
    source = read_stream(spark, options)
    trades = read_trades(source.load(), given.late_after)
    good = trades.where("problem IS NULL")
    timely = good.withWatermark("at", f"{given.late_after + SKEW_S} seconds")
    outputs = {
        "bars": (bars(timely, given.window), _bar_writer(spark, given, summary)),
        "late": (trades.where("problem IS NOT NULL"), _problem_writer(given, summary)),
    }
    queries = []
    for name, (rows, write) in outputs.items():
        writer = (
            rows.writeStream.queryName(f"{NAME} {name}")
            .foreachBatch(write)
            .option("checkpointLocation", f"{given.checkpoint}/{name}")
        )
        if given.available_now:
            writer = writer.trigger(availableNow=True)
        queries.append(writer.start())
    return queries


Write = Callable[[DataFrame, int], None]


def _bar_writer(spark: SparkSession, given: Flags, summary: Summary) -> Write:
    instruments = _instruments(spark, given)

    def write(rows: DataFrame, batch: int) -> None:
        kept = (instruments.join(rows) if instruments else rows).persist()
        try:
            count = kept.count()
            if count:
                send(as_messages(kept), given, given.bar_topic, ordered="true")
            summary.add("bars", count)
            if instruments:
                summary.add("bars of unknown symbols", kept.where("NOT known").count())
        finally:
            kept.unpersist()

    return write


def _problem_writer(given: Flags, summary: Summary) -> Write:
    def write(rows: DataFrame, batch: int) -> None:
        kept = rows.persist()
        try:
            for row in kept.groupBy("problem").count().collect():
                summary.add(row["problem"], row["count"])
            if kept.isEmpty():
                return
            messages = kept.selectExpr("body", "problem AS tags", "id")
            send(messages, given, given.late_topic)
            if given.late_files:
                # A repeated batch replaces its own files; those of another query stay.
                query = kept.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
                _save_problems(kept, f"{given.late_files}/query={query}/batch={batch}")
        finally:
            kept.unpersist()

    return write


def _save_problems(rows: DataFrame, path: str) -> None:
    columns = ("id", "problem", "at", "symbol", "price", "quantity", "body")
    rows.select(*columns).write.mode("overwrite").parquet(path)


def _instruments(spark: SparkSession, given: Flags) -> Instruments | None:
    if not given.instruments:
        return None
    return Instruments(spark, given.instruments, given.instruments_every)


# ---- as a batch --------------------------------------------------------------------------


def batch(spark: SparkSession, given: Flags, summary: Summary) -> int:
    """Aggregate the queues or a store's files; write the bars, or compare them with the topic."""
    if given.store:
        source = spark.read.format("rocketmq-store").options(path=given.store, topic=given.topic)
    else:
        source = spark.read.format("rocketmq").options(**reading(given, topic=given.topic))
    columns = "topic string, brokerName string, queueId int, queueOffset bigint, body binary"
    messages = source.schema(f"{columns}, storeTimestamp timestamp").load()
    trades = read_trades(messages, given.late_after).persist()
    for row in trades.groupBy("problem").count().orderBy("problem").collect():
        summary.row(row["problem"] or "trades", row["count"])
    found = closed_bars(trades, given.window, given.late_after)
    instruments = _instruments(spark, given)
    found = (instruments.join(found) if instruments else found).persist()
    summary.row("bars", found.count())
    if instruments:
        summary.row("bars of unknown symbols", found.where("NOT known").count())
    if given.bar_files:
        found.write.mode("overwrite").parquet(given.bar_files)
    if given.late_files:
        _save_problems(trades.where("problem IS NOT NULL"), given.late_files)
    status = _verify(spark, given, summary, found) if given.verify else 0
    trades.unpersist()
    found.unpersist()
    return status


def _verify(spark: SparkSession, given: Flags, summary: Summary, found: DataFrame) -> int:
    source = spark.read.format("rocketmq").options(**reading(given, topic=given.bar_topic))
    stored = source.schema("body binary").load()
    bar = F.from_json(F.col("body").cast("string"), BAR).alias("bar")
    counted = compare(found, stored.select(bar).select("bar.*"))
    for what, count in counted.items():
        summary.row(what, count)
    return EXIT_FINDINGS if any(counted.values()) else 0


def compare(expected: DataFrame, stored: DataFrame) -> dict[str, int]:
    """The numbers of bars that differ, are missing, or are extra; repeated bars count once."""
    names = [field.split()[0] for field in BAR.split(", ")]
    is_same = F.lit(True)
    for name in names[2:]:
        wanted, given = F.col(f"e.{name}"), F.col(f"t.{name}")
        same = wanted == given
        if name == "vwap":
            same = F.abs(wanted - given) <= F.abs(wanted) * VWAP_TOLERANCE
        is_same &= F.coalesce(same, F.lit(False))
    kind = (
        F.when(F.col("t.symbol").isNull(), "bars missing in the topic")
        .when(F.col("e.symbol").isNull(), "bars only in the topic")
        .when(~is_same, "bars that differ")
    )
    both = expected.select(*names).alias("e").join(
        stored.select(*names).distinct().alias("t"), ["symbol", "start"], "full"
    )  # fmt: skip
    counts = both.select(kind.alias("kind")).where("kind IS NOT NULL").groupBy("kind").count()
    found = {row["kind"]: int(row["count"]) for row in counts.collect()}
    kinds = ("bars that differ", "bars missing in the topic", "bars only in the topic")
    return {each: found.get(each, 0) for each in kinds}


# ---- the command -------------------------------------------------------------------------


def work(spark: SparkSession, given: Flags, summary: Summary) -> int:
    """Run until stopped; a batch, or --available-now, ends after all current messages."""
    if given.is_batch:
        return summary.finish(batch(spark, given, summary))
    summary.row("bars", 0)
    done = follow(start(spark, given, summary), quiet=given.quiet)
    summary.row("messages", done[f"{NAME} bars"].rows)
    return summary.finish(0)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job and return its exit status."""
    return run(NAME, read_flags(Flags, NAME, __doc__, argv), work)


if __name__ == "__main__":
    sys.exit(main())
