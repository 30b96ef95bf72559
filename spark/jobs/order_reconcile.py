"""Alerts for orders that were not paid, or paid and not shipped, in time.

    spark-submit --master 'local[2]' trocket/spark/jobs/order_reconcile.py \\
        --name-server 127.0.0.1:9876 --checkpoint /data/reconcile

Each message is JSON with an `orderId`, and an `amount` in orders and payments. Two stream-stream
joins, orders with payments and payments with shipments, wait for the other side. An order without
it after `--pay-within` or `--ship-within` seconds becomes a message in the alert topic, with the
kind (`unpaid`, `unshipped`) as tag, the order as key, and an id that is the same in every run.

The time of a message is its store time. So no message is ever late, wrong clocks of shops do no
harm, and a batch (`--batch`: over the queues, `--store`: over a broker's files) finds the same
alerts; `--verify` compares them with those in the topic. A store's files also have half messages:
orders with an unfinished transaction, which consumers never see; a batch over the files counts
them.

Only messages advance time: while all three topics are silent, no alert is sent.
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

from trocket.common.topic_names import (
    TRANS_CHECK_MAX_TIME_TOPIC,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
)
from trocket.spark.jobs.connection import reading
from trocket.spark.jobs.flags import StreamJobFlags, read_flags
from trocket.spark.jobs.running import (
    EXIT_FINDINGS,
    Summary,
    follow,
    read_stream,
    run,
    send,
)

NAME = "order_reconcile"
COLUMNS = "body binary, storeTimestamp timestamp"
MESSAGE = "orderId string, amount double"
ALERT = "kind string, orderId string, since bigint, amount double"
KINDS = ("unpaid", "unshipped")
WATERMARK_POLICY = "spark.sql.streaming.multipleWatermarkPolicy"


@dataclass(frozen=True, kw_only=True)
class Flags(StreamJobFlags):
    """The job's command line."""

    order_topic: Annotated[str, typer.Option(help="Read orders from here.")] = "TopicOrder"
    payment_topic: Annotated[str, typer.Option(help="Read payments from here.")] = "TopicPayment"
    shipment_topic: Annotated[str, typer.Option(help="Read shipments from here.")] = "TopicShipment"
    alert_topic: Annotated[str, typer.Option(help="Send alerts here.")] = "TopicOrderAlert"
    pay_within: Annotated[
        int, typer.Option(metavar="S", help="Expect the payment within S seconds.")
    ] = 1800
    ship_within: Annotated[
        int, typer.Option(metavar="S", help="Expect the shipment within S seconds.")
    ] = 86_400
    skew: Annotated[
        int, typer.Option(metavar="S", help="Allow brokers' clocks to differ by S seconds.")
    ] = 30
    delay_level: Annotated[
        int, typer.Option(metavar="N", help="Send alerts with this delay level.")
    ] = 0
    half_after: Annotated[
        float, typer.Option(metavar="S", help="Ignore half messages younger than S seconds.")
    ] = 60.0
    alert_files: Annotated[
        str, typer.Option(metavar="FOLDER", help="Write a batch's alerts as Parquet.")
    ] = ""
    half_files: Annotated[
        str, typer.Option(metavar="FOLDER", help="Write open half messages as Parquet.")
    ] = ""
    verify: Annotated[
        bool, typer.Option("--verify", help="Compare a batch's alerts with the alert topic.")
    ] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.is_batch:
            self.need("--name-server", "--checkpoint")
        elif not self.store or self.verify:
            self.need("--name-server")


def read_side(messages: DataFrame) -> DataFrame:
    """orderId, amount, and `at` (the store time); other messages are dropped."""
    body = F.from_json(F.col("body").cast("string"), MESSAGE)
    found = messages.select(body.alias("m"), F.col("storeTimestamp").alias("at"))
    return found.select("m.orderId", "m.amount", "at").where("orderId IS NOT NULL")


def waiting(first: DataFrame, second: DataFrame, kind: str, within_s: int) -> DataFrame:
    """Rows of `first` without a row of the same order in `second` within `within_s` seconds.

    Streams need watermarks, and return a row once its time is over.
    """
    span = F.expr(f"INTERVAL {within_s} SECONDS")
    left, right = first.alias("l"), second.alias("r")
    match = (
        (F.col("l.orderId") == F.col("r.orderId"))
        & (F.col("r.at") >= F.col("l.at") - span)
        & (F.col("r.at") <= F.col("l.at") + span)
    )
    return (
        left.join(right, match, "left")
        .where("r.orderId IS NULL")
        .select(
            F.lit(kind).alias("kind"),
            F.col("l.orderId").alias("orderId"),
            F.unix_millis("l.at").alias("since"),
            F.col("l.amount").alias("amount"),
        )
    )


def once(alerts: DataFrame) -> DataFrame:
    """One alert per order, even if a producer has sent a message twice."""
    found = alerts.groupBy("kind", "orderId")
    return found.agg(F.min("since").alias("since"), F.max("amount").alias("amount"))


def overdue(first: DataFrame, second: DataFrame, kind: str, given: Flags) -> DataFrame:
    """The alerts of a batch that a stream would have sent by now."""
    within_s = _within_s(kind, given)
    newest = first.select("at").union(second.select("at")).agg(F.max("at").alias("newest"))
    over = F.unix_millis("newest") - (within_s + given.skew) * 1000
    alerts = waiting(first, second, kind, within_s).crossJoin(F.broadcast(newest))
    return once(alerts.where(F.col("since") < over))


def _within_s(kind: str, given: Flags) -> int:
    return int(given.pay_within if kind == "unpaid" else given.ship_within)


def pairs(given: Flags) -> dict[str, tuple[str, str]]:
    """The two topics of each kind of alert."""
    return {
        "unpaid": (given.order_topic, given.payment_topic),
        "unshipped": (given.payment_topic, given.shipment_topic),
    }


def as_messages(alerts: DataFrame, delay_level: int) -> DataFrame:
    """Alerts as rows for the sink."""
    return alerts.select(
        F.to_json(F.struct("*")).alias("body"),
        F.col("kind").alias("tags"),
        F.array("orderId").alias("keys"),
        F.concat_ws("@", "kind", "orderId").alias("id"),
        *([F.lit(delay_level).alias("delayLevel")] if delay_level else []),
    )


# ---- as a stream -------------------------------------------------------------------------


def start(spark: SparkSession, given: Flags, summary: Summary) -> list[StreamingQuery]:
    """Start both joins."""
    # "max": an idle topic must not hold back the watermark. It loses nothing, as each batch reads
    # all topics up to one moment.
    before = spark.conf.get(WATERMARK_POLICY)
    spark.conf.set(WATERMARK_POLICY, "max")
    queries = []
    try:
        for kind, topics in pairs(given).items():
            first, second = (_stream(spark, given, topic) for topic in topics)
            alerts = waiting(first, second, kind, _within_s(kind, given))
            writer = (
                alerts.writeStream.queryName(f"{NAME} {kind}")
                .foreachBatch(_writer(given, summary, kind))
                .option("checkpointLocation", f"{given.checkpoint}/{kind}")
            )
            if given.available_now:
                writer = writer.trigger(availableNow=True)
            queries.append(writer.start())
    finally:
        spark.conf.set(WATERMARK_POLICY, str(before))
    return queries


def _stream(spark: SparkSession, given: Flags, topic: str) -> DataFrame:
    options = reading(given, topic=topic, startingOffsets="earliest")
    source = read_stream(spark, options)
    side = read_side(source.schema(COLUMNS).load())
    return side.withWatermark("at", f"{given.skew} seconds")


def _writer(given: Flags, summary: Summary, kind: str) -> Callable[[DataFrame, int], None]:
    def write(rows: DataFrame, batch: int) -> None:
        alerts = once(rows).persist()
        try:
            count = alerts.count()
            summary.add(kind, count)
            if count:
                send(as_messages(alerts, given.delay_level), given, given.alert_topic)
        finally:
            alerts.unpersist()

    return write


# ---- as a batch --------------------------------------------------------------------------


def batch(spark: SparkSession, given: Flags, summary: Summary) -> None:
    """Find the same alerts in the queues or files, and open half messages in files."""
    sides = {topic: read_side(_table(spark, given, topic)).persist() for topic in _topics(given)}
    found: DataFrame | None = None
    for kind, (first, second) in pairs(given).items():
        alerts = overdue(sides[first], sides[second], kind, given)
        found = alerts if found is None else found.union(alerts)
    assert found is not None  # pairs has two
    found = found.persist()
    for kind in KINDS:
        summary.row(kind, found.where(F.col("kind") == kind).count())
    if given.alert_files:
        found.write.mode("overwrite").parquet(given.alert_files)
    if given.verify:
        sent = _sent_alerts(spark, given)
        names = ["kind", "orderId"]
        summary.row("alerts missing in the topic", found.join(sent, names, "left_anti").count())
        summary.row("alerts only in the topic", sent.join(found, names, "left_anti").count())
    if given.store:
        halves = open_halves(spark, given.store, given.half_after).persist()
        for what in ("open", "given up"):
            count = halves.where(F.col("state") == what).count()
            summary.row(f"half messages {what}", count)
        if given.half_files:
            halves.write.mode("overwrite").parquet(given.half_files)
        halves.unpersist()
    for table in (found, *sides.values()):
        table.unpersist()


def _topics(given: Flags) -> tuple[str, str, str]:
    return (given.order_topic, given.payment_topic, given.shipment_topic)


def _table(spark: SparkSession, given: Flags, topic: str) -> DataFrame:
    if given.store:
        source = spark.read.format("rocketmq-store").options(path=given.store, topic=topic)
    else:
        source = spark.read.format("rocketmq").options(**reading(given, topic=topic))
    return source.schema(COLUMNS).load()


def _sent_alerts(spark: SparkSession, given: Flags) -> DataFrame:
    source = spark.read.format("rocketmq").options(**reading(given, topic=given.alert_topic))
    body = F.from_json(F.col("body").cast("string"), ALERT).alias("alert")
    return source.schema("body binary").load().select(body).select("alert.*").distinct()


def open_halves(spark: SparkSession, store: str, after_s: float) -> DataFrame:
    """Half messages whose transaction is neither committed nor rolled back.

    Each check of a producer writes the half message again, so only the newest copy counts. A
    transaction is finished if an op message names it, or if the log has the committed message.

    Args:
      store: the folder of a broker, or a pattern.
      after_s: least age, measured from the store's newest message, as it may be a cold copy.

    Returns: state ("open", or "given up": the broker has stopped checking), topic, uniqKey, keys,
      producer group, checks, since (timestamp), body.
    """
    columns = (
        "topic string, brokerName string, queueOffset bigint, body binary, keys string, tags"
        " string, uniqKey string, properties map<string,string>, storeTimestamp timestamp,"
        " preparedTransactionOffset bigint"
    )
    log = spark.read.format("rocketmq-store").option("path", store)
    rows = log.schema(columns).load()
    place = ["brokerName", "queueOffset"]
    ops = rows.where((F.col("topic") == TRANS_OP_HALF_TOPIC) & (F.col("tags") == "d"))
    # One op message finishes several transactions: its body is a list of queue offsets.
    offset = F.explode(F.split(F.col("body").cast("string"), ","))
    through = (
        ops.select("brokerName", offset.alias("text"))
        .select("brokerName", F.expr("try_cast(text AS bigint)").alias("queueOffset"))
        .where("queueOffset IS NOT NULL")
    )
    halves = rows.where(F.col("topic") == TRANS_HALF_TOPIC)
    newest_copy = halves.groupBy("brokerName", "uniqKey").agg(
        F.max("queueOffset").alias("queueOffset")
    )
    committed = rows.where("preparedTransactionOffset > 0").where(
        ~F.col("topic").isin(TRANS_HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC)
    )
    # Ages are relative to the newest message, since the store may be a copy of last year.
    newest = rows.agg(F.unix_millis(F.max("storeTimestamp")).alias("newest"))
    is_old = F.unix_millis("storeTimestamp") < F.col("newest") - int(after_s * 1000)
    open_ones = (
        halves.join(newest_copy, ["uniqKey", *place], "left_semi")
        .join(through, place, "left_anti")
        .crossJoin(F.broadcast(newest))
        .where(is_old)
    )
    # Halves that the broker checked too often; committed ones among them are removed at the end.
    parked = rows.where(F.col("topic") == TRANS_CHECK_MAX_TIME_TOPIC)
    states = open_ones.withColumn("state", F.lit("open")).unionByName(
        parked.withColumn("state", F.lit("given up")), allowMissingColumns=True
    )
    return states.join(committed.select("uniqKey"), "uniqKey", "left_anti").select(
        "state",
        F.col("properties")["REAL_TOPIC"].alias("topic"),
        "uniqKey",
        "keys",
        F.col("properties")["PGROUP"].alias("producerGroup"),
        F.coalesce(F.expr("try_cast(properties['TRANSACTION_CHECK_TIMES'] AS int)"), F.lit(0))
        .alias("checks"),
        F.col("storeTimestamp").alias("since"),
        "body",
    )  # fmt: skip


# ---- the command -------------------------------------------------------------------------


def work(spark: SparkSession, given: Flags, summary: Summary) -> int:
    """Run until stopped; a batch, or --available-now, ends after all current messages."""
    for kind in KINDS:
        summary.row(kind, 0)
    if given.is_batch:
        batch(spark, given, summary)
    else:
        follow(start(spark, given, summary), quiet=given.quiet)
    return summary.finish(EXIT_FINDINGS if summary.total() else 0)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job; exit status 1 if there are stuck orders."""
    return run(NAME, read_flags(Flags, NAME, __doc__, argv), work)


if __name__ == "__main__":
    sys.exit(main())
