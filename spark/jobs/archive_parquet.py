"""Topics into Parquet, each message once; --verify looks for what is missing.

    spark-submit trocket/spark/jobs/archive_parquet.py --name-server 127.0.0.1:9876 \\
        --topic Orders,Payments --out /data/archive            # from cron: up to now, then ends
    spark-submit …/archive_parquet.py --name-server … --out /data/archive --verify

Under `--out` are folders `topic=T/date=2026-11-22/hour=13/batch=…`, by the time at which brokers
stored a message, in UTC. Any reader of Parquet may read them. Beside them, in `_manifest.json`, is
which messages of each queue are archived, and in `_checkpoint` how far Spark is.

Exactly once: the offsets of a batch are in the checkpoint before it is read, and it replaces the
folders of its own name. What a run that was killed left of a batch is hidden or replaced when the
next run does that batch again. A second run on one archive at the same time is not guarded
against: let cron use flock.

`--compact DAYS` makes one folder of the batches of each hour, but of a topic's newest one. A
journal is written first, so that a broken off compaction is completed by the next run; who reads
such an hour meanwhile may find rows missing.
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
"""Columns whose values are names of folders."""


def placed(messages: DataFrame) -> DataFrame:
    """Messages with the folders they go to: date and hour of the store time, in UTC."""
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
      root: its folder.
      checkpoint: where Spark keeps how far it is; "": in the archive.
    """

    def __init__(self, spark: SparkSession, root: str, checkpoint: str = "") -> None:
        self._spark = spark
        self.files = Files(spark, root)
        self.checkpoint = Files(spark, checkpoint or self.files.where(CHECKPOINT))

    def manifest(self) -> Manifest | None:
        """What it holds; None: nothing yet. Raises: JobError: it is no manifest."""
        text = self.files.read(MANIFEST)
        return None if text is None else read_manifest(text, self.files.where(MANIFEST))

    def write_manifest(self, manifest: Manifest) -> None:
        """Replace it."""
        self.files.write(MANIFEST, manifest.to_text())

    def rows(self) -> DataFrame:
        """All that is archived, and which batch brought it."""
        columns = ", ".join(f"{name} {kind}" for name, kind in MESSAGE.items())
        schema = f"{columns}, date string, hour string, batch string"
        return self._spark.read.schema(schema).parquet(self.files.root)

    def add(self, messages: DataFrame, batch_id: int) -> None:
        """Archive a batch of the stream; once more, and it replaces what there is of it."""
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
        """Complete what a run that was killed left undone."""
        for name in self.files.names():
            if name.startswith(".spark-staging"):
                self.files.delete(name)
        complete(self.files)


def begin(archive: Archive, given: ArchiveFlags) -> str:
    """The option startingOffsets of a run; refuses an archive that it does not fit.

    Raises:
      JobError: the archive is of other topics, or has no manifest any more.
    """
    manifest = archive.manifest()
    if manifest is None:
        if archive.checkpoint.has("commits/0"):
            raise JobError(
                f"{archive.files.where(MANIFEST)} is missing, and {archive.checkpoint.root} says"
                " that there was one: restore it from a backup, or have --rebuild-manifest make"
                " one of the rows that there are"
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
            f" {given.topic_pattern or given.topic}: name one of these too, or use another --out"
        )
    if archive.checkpoint.has("metadata"):
        return str(given.starting_offsets)  # which Spark does not look at: the checkpoint counts
    # The checkpoint is gone, or of a Spark that this one cannot read: the manifest says the same.
    options = source_options(source(given))
    starts = dict.fromkeys(Cluster(options).queues(options), EARLIEST)
    return json.dumps(as_tree({**starts, **manifest.next}))


def source(given: ArchiveFlags, **more: str) -> dict[str, str]:
    """The options of the stream. Raises: OptionError: they cannot be right."""
    what = {"topicPattern": given.topic_pattern} if given.topic_pattern else {"topic": given.topic}
    return reading(
        given,
        maxOffsetsPerTrigger=str(given.max_offsets_per_trigger),
        failOnDataLoss=str(not given.allow_loss).lower(),
        **what,
        **more,
    )


def start(spark: SparkSession, archive: Archive, given: ArchiveFlags) -> StreamingQuery:
    """Start archiving."""
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
    """Archive, or check an archive."""
    archive = Archive(spark, given.out, given.checkpoint)
    if given.rebuild_manifest:
        archive.write_manifest(rebuilt(archive.rows()))
    if given.verify:
        manifest = archive.manifest()
        if manifest is None:
            raise JobError(f"{archive.files.root} is no archive: it has no {MANIFEST}")
        if archive.files.has(JOURNAL):
            raise JobError(
                f"a compaction of {archive.files.root} was broken off: the next run without"
                " --verify completes it"
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
    """Archive or verify; 0: well, 1: findings, 2: it could not be done."""
    return run(NAME, read_flags(ArchiveFlags, NAME, __doc__, argv), work)


if __name__ == "__main__":
    sys.exit(main())
