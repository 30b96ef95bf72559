"""Report on consumer lag, messages about to expire, and disk usage: Parquet, JSON and HTML.

    spark-submit --master 'local[2]' trocket/spark/jobs/lag_and_store_report.py \\
        --store /backup/broker-a/store --out /reports/2026-11-22

Either from a broker's files (`--store`: a cold copy, or a pattern for several), or from a running
cluster (`--name-server`), whose messages are read once; bytes are then those of bodies. With
`--before`, the folder of an earlier report, lags have a slope, and a time until they are consumed.

In the folder `--out`: `lag`, `queues`, `bytes`, `arrivals`, `hot_keys`, `duplicates` as Parquet,
report.json, and report.html, a self-contained page. Exit status 1: a group lost messages, or is
about to.

For a store, "now" is the time of its newest message. A message is a duplicate if its topic has
another one with the same producer's id: a retried send. Days are in UTC.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.window import Window

from trocket.blocking import Admin
from trocket.client import NotFoundError, RouteNotFoundError
from trocket.common.clock import SystemClock
from trocket.common.topic_names import is_system_group, is_system_topic
from trocket.spark.jobs.connection import client, cluster_name, reading
from trocket.spark.jobs.flags import JobFlags, read_flags
from trocket.spark.jobs.lag_rows import Held, Place, lag_rows, next_unread
from trocket.spark.jobs.report_page import page
from trocket.spark.jobs.running import EXIT_FINDINGS, JobError, Summary, run

NAME = "lag_and_store_report"
COLUMNS = (
    "topic string, brokerName string, queueId int, queueOffset bigint, keys string,"
    " uniqKey string, storeTimestamp timestamp"
)
QUEUE = ["topic", "brokerName", "queueId"]
HOT_KEYS = 10
"""Keys per topic in the report."""
HOT_SHARE = 0.01
"""The share of its topic from which a key is hot."""
ARRIVALS = 96
"""Columns of the plot over time; older messages are left out."""
STEPS_MS = (1000, 10_000, 60_000, 600_000, 3_600_000, 86_400_000)
DUPLICATES = 100
"""Duplicates in the report; all are counted."""

Committed = dict[tuple[str, Place], int]
Queues = dict[Place, Held]


# ---- sources -----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Flags(JobFlags):
    """The job's command line."""

    store: Annotated[
        str, typer.Option(metavar="FOLDER", help="Read a broker's files; a pattern reads several.")
    ] = ""
    broker_name: Annotated[
        str, typer.Option(metavar="NAME", help="Name the store's broker. Default: from its path.")
    ] = ""
    out: Annotated[str, typer.Option(metavar="FOLDER", help="Write the report to FOLDER.")]
    before: Annotated[
        str, typer.Option(metavar="FOLDER", help="Compare with the report in this earlier --out.")
    ] = ""
    retention_hours: Annotated[
        float, typer.Option(metavar="H", help="Assume this fileReservedTime of the brokers.")
    ] = 72.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if bool(self.store) == bool(self.name_server):
            raise typer.BadParameter("give either --store or --name-server")


def of_store(
    spark: SparkSession, store: str, broker_name: str
) -> tuple[DataFrame, Queues, Committed]:
    """Messages, queues and groups' offsets from a broker's files."""

    def table(name: str, schema: str) -> DataFrame:
        source = spark.read.format("rocketmq-store").option("path", store).option("table", name)
        if broker_name:
            source = source.option("brokerName", broker_name)
        return source.schema(schema).load()

    messages = table("commitlog", f"{COLUMNS}, size int, commitLogOffset bigint").persist()
    units = table(
        "consumequeue",
        "brokerName string, topic string, queueId int, queueOffset bigint, commitLogOffset bigint",
    )
    # Queues may still have units of messages that are deleted from the log.
    first = messages.groupBy("brokerName").agg(F.min("commitLogOffset").alias("first"))
    held = units.join(F.broadcast(first), "brokerName").groupBy(*QUEUE).agg(
        F.min(F.when(F.col("commitLogOffset") >= F.col("first"), F.col("queueOffset"))),
        (F.max("queueOffset") + 1).alias("end"),
    )  # fmt: skip
    queues = {}
    for row in held.collect():
        topic, broker, queue, begin, end = row
        queues[Place(topic, broker, queue)] = Held(end if begin is None else begin, end)
    offsets = table(
        "consumeroffsets",
        "brokerName string, group string, topic string, queueId int, offset bigint",
    )
    committed = {
        (row["group"], Place(row["topic"], row["brokerName"], row["queueId"])): row["offset"]
        for row in offsets.collect()
        if not is_system_group(row["group"])
    }
    return messages, queues, committed


def of_cluster(spark: SparkSession, given: Flags) -> tuple[DataFrame, Queues, Committed]:
    """Messages, queues and groups' offsets from running brokers."""
    queues: Queues = {}
    committed: Committed = {}
    with Admin(client(given)) as admin:
        for topic in admin.topics(is_all=True):
            if is_system_topic(topic):
                continue
            try:
                found = admin.offsets(topic)
            except RouteNotFoundError:
                continue  # deleted meanwhile
            for queue in found:
                place = Place(topic, queue.broker_name, queue.queue_id)
                queues[place] = Held(queue.begin, queue.end)
        for group in admin.groups():
            if is_system_group(group):
                continue
            try:
                lags = admin.lag(group).queues
            except NotFoundError:
                continue  # the group was created, but never used
            for lag in lags:
                if lag.committed is not None:
                    place = Place(lag.topic, lag.broker_name, lag.queue_id)
                    committed[group, place] = lag.committed
    topics = sorted({place.topic for place, held in queues.items() if held.end > held.begin})
    if not topics:
        raise JobError(
            f"{cluster_name(given)}: no topic has a message, so there is nothing to report"
        )
    options = reading(given, topics=",".join(topics), failOnDataLoss="false")
    source = spark.read.format("rocketmq").options(**options)
    rows = source.schema(f"{COLUMNS}, body binary, commitLogOffset bigint").load()
    size = F.octet_length("body").alias("size")
    return rows.withColumn("size", size).drop("body").persist(), queues, committed


# ---- tables ------------------------------------------------------------------------------


def bytes_by_day(messages: DataFrame) -> DataFrame:
    """topic, day, messages, bytes."""
    day = F.date_format("storeTimestamp", "yyyy-MM-dd").alias("day")
    found = messages.groupBy("topic", day)
    return found.agg(F.count("*").alias("messages"), F.sum("size").alias("bytes"))


def arrivals(messages: DataFrame, step_ms: int) -> DataFrame:
    """topic, at_ms, messages: by the time they were stored, in steps."""
    at = (F.floor(F.unix_millis("storeTimestamp") / step_ms) * step_ms).alias("at_ms")
    return messages.groupBy("topic", at).agg(F.count("*").alias("messages"))


def step_of(span_ms: int) -> int:
    """The step of a plot over a time: the smallest one with at most ARRIVALS columns."""
    return next((step for step in STEPS_MS if span_ms // step < ARRIVALS), STEPS_MS[-1])


def queue_loads(messages: DataFrame) -> DataFrame:
    """topic, queue, messages, bytes: shows queues with far more messages than the others."""
    found = messages.groupBy(*QUEUE)
    return found.agg(F.count("*").alias("messages"), F.sum("size").alias("bytes"))


def hot_keys(messages: DataFrame) -> DataFrame:
    """The most frequent keys of each topic: topic, key, messages, and their share of the topic."""
    words = messages.select("topic", F.explode(F.split("keys", " ")).alias("key"))
    counts = words.where("key <> ''").groupBy("topic", "key").agg(F.count("*").alias("messages"))
    by_topic = Window.partitionBy("topic")
    most = by_topic.orderBy(F.desc("messages"), "key")
    total = messages.groupBy("topic").agg(F.count("*").alias("total"))
    return (
        counts.withColumn("place", F.row_number().over(most))
        .where((F.col("place") <= HOT_KEYS) & (F.col("messages") > 1))
        .join(F.broadcast(total), "topic")
        .select("topic", "key", "messages", (F.col("messages") / F.col("total")).alias("share"))
        .where(F.col("share") >= HOT_SHARE)
    )


def duplicates(messages: DataFrame) -> DataFrame:
    """topic, uniqKey, copies, and the store times of the first and the last copy."""
    found = messages.where("uniqKey IS NOT NULL AND uniqKey <> ''").groupBy("topic", "uniqKey")
    return found.agg(
        F.count("*").alias("copies"),
        F.unix_millis(F.min("storeTimestamp")).alias("first_ms"),
        F.unix_millis(F.max("storeTimestamp")).alias("last_ms"),
    ).where("copies > 1")


def stored_times(
    spark: SparkSession, messages: DataFrame, queues: Queues, committed: Committed
) -> dict[tuple[Place, int], int]:
    """The store time of the next unread message of each group and queue."""
    wanted = set()
    for (_, place), offset in committed.items():
        unread = next_unread(offset, queues[place]) if place in queues else None
        if unread is not None:
            wanted.add((*place, unread))
    if not wanted:
        return {}
    names = [*QUEUE, "queueOffset"]
    schema = "topic string, brokerName string, queueId int, queueOffset bigint"
    asked = F.broadcast(spark.createDataFrame(sorted(wanted), schema))
    # Half messages are in a system topic until they are committed, so queue offsets are unique.
    rows = messages.join(asked, names, "left_semi")
    ms = F.unix_millis("storeTimestamp").alias("ms")
    return {
        (Place(row["topic"], row["brokerName"], row["queueId"]), row["queueOffset"]): row["ms"]
        for row in rows.select(*names, ms).collect()
    }


def make(spark: SparkSession, given: Flags) -> dict[str, Any]:
    """The report for JSON; also writes its tables to `--out` as Parquet."""
    before = _before(given.before)
    if given.store:
        messages, queues, committed = of_store(spark, given.store, given.broker_name)
    else:
        messages, queues, committed = of_cluster(spark, given)
    ends = [F.unix_millis(end("storeTimestamp")).alias(end.__name__) for end in (F.min, F.max)]
    oldest, newest = messages.agg(*ends).collect()[0]
    if newest is None:
        raise JobError(f"{given.store or cluster_name(given)}: there are no messages to report on")
    at_ms = newest if given.store else max(newest, SystemClock().wall_ms())
    rows = lag_rows(
        committed,
        queues,
        stored_times(spark, messages, queues, committed),
        at_ms=at_ms,
        retention_s=given.retention_hours * 3600,
        before=before,
    )
    # Half and delayed messages are in system topics, which count only in the bytes.
    own = [topic for (topic,) in messages.select("topic").distinct().collect()]
    users = F.col("topic").isin([topic for topic in own if not is_system_topic(topic)])
    mine = messages.where(users)
    found = duplicates(mine).persist()
    step_ms = step_of(newest - oldest)
    recent = F.unix_millis("storeTimestamp") > newest - ARRIVALS * step_ms
    tables = {
        "bytes": bytes_by_day(messages).orderBy("topic", "day"),
        "arrivals": arrivals(mine.where(recent), step_ms).orderBy("topic", "at_ms"),
        "queues": queue_loads(mine).orderBy(*QUEUE),
        "hot_keys": hot_keys(mine).orderBy("topic", F.desc("messages"), "key"),
        "duplicates": found.orderBy(F.desc("copies"), "topic", "uniqKey"),
    }
    report: dict[str, Any] = {
        "at_ms": at_ms,
        "source": given.store or cluster_name(given),
        "bytes_of": "records" if given.store else "bodies",
        "retention_hours": given.retention_hours,
        "arrivals_step_ms": step_ms,
        "lag": [dataclasses.asdict(row) for row in rows],
        "duplicate_count": found.count(),
    }
    if rows:
        tables["lag"] = spark.createDataFrame(report["lag"], LAG_SCHEMA)
    for name, table in tables.items():
        table.coalesce(1).write.mode("overwrite").parquet(f"{given.out}/{name}")
        if name != "lag":
            limit = DUPLICATES if name == "duplicates" else None
            read = spark.read.parquet(f"{given.out}/{name}")
            kept = read if limit is None else read.limit(limit)
            report[name] = [row.asDict() for row in kept.collect()]
    found.unpersist()
    messages.unpersist()
    return report


LAG_SCHEMA = (
    "group string, topic string, brokerName string, queueId int, committed bigint, begin bigint,"
    " end bigint, lag bigint, lost bigint, next_unread_ms bigint, age_s double,"
    " is_at_risk boolean, slope double, eta_s double"
)


def _before(folder: str) -> Mapping[str, Any] | None:
    if not folder:
        return None
    path = Path(folder) / "report.json"
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise JobError(f"--before {folder}: {path} cannot be read: {error}") from error
    if not isinstance(tree, dict) or "lag" not in tree:
        raise JobError(f"--before {folder}: {path} is not a report of {NAME}")
    return tree


# ---- the command -------------------------------------------------------------------------


def work(spark: SparkSession, given: Flags, summary: Summary) -> int:
    """Make the report, write it, and sum it up."""
    out = Path(given.out)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise JobError(f"--out {out} cannot be created: {error}") from error
    report = make(spark, given)
    (out / "report.json").write_text(json.dumps(report, indent=1), encoding="utf-8")
    (out / "report.html").write_bytes(page(report))
    lost, at_risk = findings(report)
    summary.row("messages", sum(row["messages"] for row in report["bytes"]))
    summary.row(f"bytes of {report['bytes_of']}", sum(row["bytes"] for row in report["bytes"]))
    summary.row("lag", sum(row["lag"] for row in report["lag"]))
    summary.row("duplicates", report["duplicate_count"])
    summary.row("groups that lost messages", ", ".join(lost) or None)
    summary.row("groups about to lose some", ", ".join(at_risk) or None)
    summary.row("page", str(out / "report.html"))
    return summary.finish(EXIT_FINDINGS if lost or at_risk else 0)


def findings(report: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """The groups that lost messages, and the groups that are about to."""
    lost = {row["group"] for row in report["lag"] if row["lost"]}
    at_risk = {row["group"] for row in report["lag"] if row["is_at_risk"]}
    return sorted(lost), sorted(at_risk)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job; exit status 1 if a group lost messages, or is about to."""
    return run(NAME, read_flags(Flags, NAME, __doc__, argv), work)


if __name__ == "__main__":
    sys.exit(main())
