"""Report on dead letters: counts by group, reason and age, frequent keys, samples.

    spark-submit trocket/spark/jobs/dlq_report.py --name-server 127.0.0.1:9876 --group billing

Counts by group, original topic, reason, number of retries, and age; the most frequent keys; the
newest bodies of each group and topic. `--json` for programs. It consumes nothing; `replay` takes
the same flags to send dead letters again.

Brokers delete dead letters like all messages, after fileReservedTime (72 h by default): letters
older than three days are the next to go.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from pyspark.sql import Window
from pyspark.sql import functions as F

from trocket.common.terminal import grouped, show
from trocket.spark.jobs.dead_letters import DeadLetterFlags, dead_letters, dlq_topics
from trocket.spark.jobs.flags import read_flags
from trocket.spark.jobs.running import EXIT_FINDINGS, JobError, Summary, run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAME: Final = "dlq_report"
DIMENSIONS: Final = ("consumerGroup", "originTopic", "reason", "reconsumeTimes", "age")
AGES: Final = (
    ("under 1 h", 3600), ("1 h to 1 day", 86_400), ("1 to 2 days", 172_800),
    ("2 to 3 days", 259_200),
)  # fmt: skip
OLDEST: Final = "over 3 days"
BODY_MAX: Final = 200
"""Bytes of a body in a sample."""
REASON_MAX: Final = 120
"""Characters of a reason that distinguish it: the rest is often a stack trace."""


@dataclass(frozen=True, kw_only=True)
class Flags(DeadLetterFlags):
    """The job's command line."""

    top: Annotated[int, typer.Option(help="Show this number of keys.")] = 10
    out: Annotated[
        str, typer.Option(metavar="FOLDER", help="Write the report to FOLDER/report.json, too.")
    ] = ""
    samples: Annotated[
        int, typer.Option(help="Show this number of bodies per group and topic.")
    ] = 3


def prepared(letters: DataFrame) -> DataFrame:
    """The columns for the report, shortened, as they are cached and read several times."""
    seconds = F.unix_seconds(F.current_timestamp()) - F.unix_seconds("storeTimestamp")
    age = F.when(F.lit(False), "")
    for text, limit_s in AGES:
        age = age.when(seconds < limit_s, text)
    head = F.substring("body", 1, BODY_MAX)
    is_text = F.is_valid_utf8(F.col("body").cast("string"))
    return letters.select(
        *DIMENSIONS[:2],
        F.substring(F.split("reason", "\n")[0], 1, REASON_MAX).alias("reason"),
        "reconsumeTimes",
        age.otherwise(OLDEST).alias("age"),
        "keys",
        "storeTimestamp",
        "queueOffset",
        # A truncated character becomes a replacement character.
        F.when(is_text, F.make_valid_utf8(head.cast("string")))
        .otherwise(F.concat(F.lit("0x"), F.hex(head))).alias("body"),
    )  # fmt: skip


def counts(letters: DataFrame) -> dict[str, Any]:
    """The total, the first and last time, and counts by each dimension, the largest first.

    Returns: total, oldest, newest (ISO 8601, UTC) and `by`: dimension to value to count. A missing
      value is "".
    """
    sets = [[name] for name in DIMENSIONS]
    rows = letters.groupingSets([*sets, []], *DIMENSIONS).agg(
        F.grouping_id().alias("left_out"), F.count("*").alias("count"),
        *(F.date_format(at("storeTimestamp"), "yyyy-MM-dd'T'HH:mm:ss'Z'").alias(name)
          for name, at in (("oldest", F.min), ("newest", F.max))),
    ).collect()  # fmt: skip
    every = (1 << len(DIMENSIONS)) - 1
    found: dict[str, Any] = {"total": 0, "oldest": None, "newest": None, "by": {}}
    for name in DIMENSIONS:
        found["by"][name] = {}
    for row in sorted(rows, key=lambda row: -int(row["count"])):
        kept = every & ~row["left_out"]
        if not kept:
            found |= {"total": row["count"], "oldest": row["oldest"], "newest": row["newest"]}
            continue
        name = DIMENSIONS[len(DIMENSIONS) - kept.bit_length()]
        value = row[name]
        found["by"][name]["" if value is None else str(value)] = row["count"]
    return found


def top_keys(letters: DataFrame, count: int) -> dict[str, int]:
    """The most frequent keys; equally frequent ones are sorted by name."""
    each = letters.select(F.explode(F.array_distinct(F.split("keys", " "))).alias("key"))
    rows = each.where("key != ''").groupBy("key").count().orderBy(F.desc("count"), "key")
    return {row["key"]: row["count"] for row in rows.limit(count).collect()}


def samples(letters: DataFrame, count: int) -> list[dict[str, Any]]:
    """The newest dead letters of each group and topic."""
    pair = ("consumerGroup", "originTopic")
    newest = Window.partitionBy(*pair).orderBy(F.desc("storeTimestamp"), F.desc("queueOffset"))
    rows = letters.withColumn("place", F.row_number().over(newest)).where(F.col("place") <= count)
    columns = (*pair, "reason", "reconsumeTimes", "age", "keys", "body")
    return [row.asDict() for row in rows.orderBy(*pair, "place").select(*columns).collect()]


def work(spark: SparkSession, given: Flags, summary: Summary) -> int:
    topics, closed = dlq_topics(given)
    letters = dead_letters(spark, given, topics)
    found: dict[str, Any] = {"total": 0, "oldest": None, "newest": None, "by": {}}
    keys: dict[str, int] = {}
    shown: list[dict[str, Any]] = []
    if letters is not None:
        short = prepared(letters).persist()
        try:
            found = counts(short)
            keys = top_keys(short, given.top)
            shown = samples(short, given.samples)
        finally:
            short.unpersist()
    if given.out:
        _write(Path(given.out), found | {"keys": keys, "samples": shown, "unreadable": closed})
    summary.row("dead letters", found["total"])
    summary.row("oldest", found["oldest"])
    summary.row("newest", found["newest"])
    status = EXIT_FINDINGS if closed else 0
    if given.json:
        summary.row("by", found["by"])
        summary.row("keys", keys)
        summary.row("samples", shown)
        summary.row("unreadable", closed)
        return summary.finish(status)
    for topic in closed:
        summary.row(f"{topic} cannot be read", "set its perm to 6 (mqadmin updateTopic -p 6)")
    summary.finish(status)
    lines = [(name, value or "-", count) for name, values in found["by"].items()
             for value, count in values.items()]  # fmt: skip
    show(("by", "value", "dead letters"), lines, cell=grouped)
    show(("top", "value", "dead letters"), [("key", *each) for each in keys.items()], cell=grouped)
    if shown:
        show(tuple(shown[0]), [tuple(each.values()) for each in shown], cell=grouped)
    return status


def _write(folder: Path, report: dict[str, Any]) -> None:
    """Raises: JobError: the folder or the file cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(report, indent=1, default=str)
        (folder / "report.json").write_text(text, encoding="utf-8")
    except OSError as error:
        raise JobError(f"--out {folder} cannot be written: {error}") from error


def main(argv: Sequence[str] | None = None) -> int:
    """Report; exit status 0: success, 1: some topics cannot be read, 2: failure."""
    return run(NAME, read_flags(Flags, NAME, __doc__, argv), work)


if __name__ == "__main__":
    sys.exit(main())
