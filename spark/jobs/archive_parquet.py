"""Archive of topics in Parquet, each message exactly once; --verify finds missing ones.

    spark-submit trocket/spark/jobs/archive_parquet.py --name-server 127.0.0.1:9876 \\
        --topic Orders,Payments --out /data/archive            # from cron: up to now, then ends
    spark-submit …/archive_parquet.py --name-server … --out /data/archive --verify

Under `--out` are folders `topic=T/date=2026-11-22/hour=13/batch=…`, by the time at which brokers
stored a message, in UTC. Any Parquet reader can read them. `_manifest.json` has the archived
offsets of each queue, `_checkpoint` is Spark's.

Exactly once: the checkpoint has the offsets of a batch before the batch is read, and a batch
replaces folders with its name. Leftovers of a killed run are hidden, or replaced when the next
run repeats the batch. Nothing prevents two simultaneous runs on one archive: use flock in cron.

`--compact DAYS` merges the batches of each hour into one folder, except for a topic's newest hour.
It writes a journal first, so that the next run completes an interrupted compaction; until then,
readers may miss rows of that hour.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from trocket.spark.cluster import Cluster
from trocket.spark.columns import MESSAGE
from trocket.spark.jobs.archive_checks import rebuilt
from trocket.spark.jobs.archive_compaction import JOURNAL, compact, complete
from trocket.spark.jobs.archive_flags import CHECKPOINT, ArchiveFlags
from trocket.spark.jobs.archive_manifest import Manifest, read_manifest, read_offset_log
from trocket.spark.jobs.archive_verify import verify
from trocket.spark.jobs.connection import reading
from trocket.spark.jobs.files import Files
from trocket.spark.jobs.flags import read_flags
from trocket.spark.jobs.running import (
    JobError,
    Summary,
    follow,
    read_stream,
    run,
)
from trocket.spark.queue_offsets import EARLIEST, as_tree
from trocket.spark.source_options import source_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

NAME: Final = "archive_parquet"
MANIFEST: Final = "_manifest.json"
FOLDERS: Final = ("topic", "date", "hour", "batch")
"""Partition columns: their values are names of folders."""


def placed(messages: DataFrame) -> DataFrame:
    """Messages with their partition columns: date and hour of the store time, in UTC."""
    seconds = F.unix_seconds("storeTimestamp")
    return messages.withColumns(
        {
            "date": F.date_format(
                F.date_from_unix_date(F.floor(seconds / 86400).cast("int")), "yyyy-MM-dd"
            ),
            "hour": F.format_string("%02d", F.floor(F.pmod(seconds, F.lit(86400)) / 3600)),
        }
    )


class Archive:
    """One archive.

    Args:
      checkpoint: the folder of Spark's checkpoint; "": in the archive.
    """

    def __init__(self, spark: SparkSession, root: str, checkpoint: str = "") -> None:
        self._spark = spark
        self.files = Files(spark, root)
        self.checkpoint = Files(spark, checkpoint or self.files.where(CHECKPOINT))

    def manifest(self) -> Manifest | None:
        """The manifest; None if there is none yet. Raises: JobError: the file is not a manifest."""
        text = self.files.read(MANIFEST)
        return None if text is None else read_manifest(text, self.files.where(MANIFEST))

    def write_manifest(self, manifest: Manifest) -> None:
        self.files.write(MANIFEST, manifest.to_text())

    def rows(self) -> DataFrame:
        """All archived messages, with their batch."""
        columns = ", ".join(f"{name} {kind}" for name, kind in MESSAGE.items())
        schema = f"{columns}, date string, hour string, batch string"
        return self._spark.read.schema(schema).parquet(self.files.root)

    def add(self, messages: DataFrame, batch_id: int) -> None:
        """Archive a batch of the stream; a repeated batch replaces its own rows."""
        query_id = json.loads(self.checkpoint.read("metadata") or "{}")["id"]
        name = f"q{query_id[:8]}-{batch_id:08d}"
        tasks = self._spark.sparkContext.defaultParallelism
        (
            placed(messages)
            .withColumn("batch", F.lit(name))
            .repartition(tasks, *FOLDERS[:3])
            .sortWithinPartitions(*FOLDERS[:3], "brokerName", "queueId", "queueOffset")
            .write.mode("overwrite")
            .option("partitionOverwriteMode", "dynamic")
            .option("compression", "zstd")
            .partitionBy(*FOLDERS)
            .parquet(self.files.root)
        )
        log = f"offsets/{batch_id}"
        end = read_offset_log(self.checkpoint.read(log) or "", self.checkpoint.where(log))
        self.write_manifest((self.manifest() or Manifest()).after(name, end))

    def tidy(self) -> None:
        """Complete or remove the leftovers of a killed run."""
        for name in self.files.names():
            if name.startswith(".spark-staging"):
                self.files.delete(name)
        complete(self.files)


def begin(archive: Archive, given: ArchiveFlags) -> str:
    """The option startingOffsets of a run, after checks that the flags fit the archive.

    Raises:
      JobError: the archive is of other topics, or its manifest is missing.
    """
    manifest = archive.manifest()
    if manifest is None:
        if archive.checkpoint.has("commits/0"):
            raise JobError(
                f"{archive.files.where(MANIFEST)} is missing, but {archive.checkpoint.root} shows"
                " that there was one: restore it from a backup, or rebuild it from the rows with"
                " --rebuild-manifest"
            )
        return str(given.starting_offsets)
    names = [name.strip() for name in given.topic.split(",")]
    is_known = any(
        re.fullmatch(given.topic_pattern, topic) if given.topic_pattern else topic in names
        for topic in manifest.topics
    )
    if manifest.topics and not is_known:
        raise JobError(
            f"{archive.files.root} is an archive of {', '.join(manifest.topics)}, not of"
            f" {given.topic_pattern or given.topic}: add one of these, or use another --out"
        )
    if archive.checkpoint.has("metadata"):
        return str(given.starting_offsets)  # ignored by Spark, which continues at the checkpoint
    # The checkpoint is missing, or unreadable for this Spark: continue at the manifest's offsets.
    options = source_options(source(given))
    starts = dict.fromkeys(Cluster(options).queues(options), EARLIEST)
    return json.dumps(as_tree({**starts, **manifest.next}))


def source(given: ArchiveFlags, **more: str) -> dict[str, str]:
    """The options of the stream. Raises: OptionError: an option is invalid."""
    what = {"topicPattern": given.topic_pattern} if given.topic_pattern else {"topic": given.topic}
    return reading(
        given,
        maxOffsetsPerTrigger=str(given.max_offsets_per_trigger),
        failOnDataLoss=str(not given.allow_loss).lower(),
        **what,
        **more,
    )


def start(spark: SparkSession, archive: Archive, given: ArchiveFlags) -> StreamingQuery:
    options = source(given, startingOffsets=begin(archive, given))
    stream = read_stream(spark, options)
    writer = (
        stream.load()
        .writeStream.queryName(NAME)
        .foreachBatch(archive.add)
        .option("checkpointLocation", archive.checkpoint.root)
    )
    if given.continuous:
        return writer.trigger(processingTime=given.continuous).start()
    return writer.trigger(availableNow=True).start()


def work(spark: SparkSession, given: ArchiveFlags, summary: Summary) -> int:
    """Archive, or check an archive. Raises: JobError: there is none, or it is incomplete."""
    archive = Archive(spark, given.out, given.checkpoint)
    if given.rebuild_manifest:
        archive.write_manifest(rebuilt(archive.rows()))
    if given.verify:
        manifest = archive.manifest()
        if manifest is None:
            raise JobError(f"{archive.files.root} is not an archive: it has no {MANIFEST}")
        if archive.files.has(JOURNAL):
            raise JobError(
                f"a compaction of {archive.files.root} was interrupted: run once without --verify"
                " to complete it"
            )
        return verify(archive.rows(), manifest, given, summary)
    archive.tidy()
    done = follow([start(spark, archive, given)], quiet=given.quiet)[NAME]
    summary.row("messages archived", done.rows)
    summary.row("batches", done.batches)
    if given.compact is not None:
        summary.row("hours compacted", compact(spark, archive.files, given.compact))
    manifest = archive.manifest() or Manifest()
    summary.row("topics", len(manifest.topics))
    summary.row("queues", len(manifest.next))
    summary.row("messages lost before they were archived", sum(each.size for each in manifest.lost))
    summary.row("archive", archive.files.root)
    return summary.finish(0)


def main(argv: Sequence[str] | None = None) -> int:
    """Archive or verify; exit status 0: success, 1: findings, 2: failure."""
    return run(NAME, read_flags(ArchiveFlags, NAME, __doc__, argv), work)


if __name__ == "__main__":
    sys.exit(main())
