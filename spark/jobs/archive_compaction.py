"""The batches of an hour of an archive as one folder.

First the merged rows lie in a hidden folder, then a journal names the folders that they replace,
then these are deleted and the new one takes its place. A run that is killed before the journal has
changed nothing; after it the next run does the rest.

A topic's newest hour is left alone: the next run will write there, too.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from trocket.spark.jobs.files import Files
from trocket.spark.jobs.running import JobError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOURNAL: Final = "_compaction.json"
STAGED: Final = "_compacting"
ROWS_OF_FILE_MAX: Final = 5_000_000
"""Rows above which an hour has several files."""


def compact(spark: SparkSession, files: Files, days: int) -> int:
    """Merge the batches of each hour that has several.

    Args:
      days: of each topic its newest so many days with messages; 0: all.

    Returns: how many hours were merged.
    Raises: JobError: an archive's folder cannot be changed; a merge would change its rows.
    """
    return sum(_compact_hour(spark, files, hour) for hour in hours(files, days))


def hours(files: Files, days: int) -> list[str]:
    """The folders of the hours that are complete, of each topic's newest days."""
    found = []
    for topic in files.names():
        if not topic.startswith("topic="):
            continue
        dates = [name for name in files.names(topic) if name.startswith("date=")]
        of_topic = [
            f"{topic}/{date}/{hour}"
            for date in dates[-days:]
            for hour in files.names(f"{topic}/{date}")
            if hour.startswith("hour=")
        ]
        found += of_topic[:-1]
    return found


def _compact_hour(spark: SparkSession, files: Files, hour: str) -> bool:
    batches = [name for name in files.names(hour) if name.startswith("batch=")]
    if len(batches) < 2:
        return False
    files.delete(STAGED)
    rows = spark.read.parquet(*(files.where(f"{hour}/{name}") for name in batches))
    merged = rows.coalesce(1).sortWithinPartitions("brokerName", "queueId", "queueOffset")
    (
        merged.write.option("compression", "zstd")
        .option("maxRecordsPerFile", ROWS_OF_FILE_MAX)
        .parquet(files.where(STAGED))
    )
    counts = rows.count(), spark.read.parquet(files.where(STAGED)).count()
    if counts[0] != counts[1]:
        raise JobError(
            f"{files.where(hour)} has {counts[0]} rows and would have {counts[1]}: does another"
            " run write there? Nothing was changed"
        )
    # Its name sorts where the newest of those was, and is none that a batch can have.
    target = f"{hour}/{batches[-1].removesuffix('-merged')}-merged"
    journal = {"replace": [f"{hour}/{name}" for name in batches], "by": target}
    files.write(JOURNAL, json.dumps(journal))
    complete(files)
    return True


def complete(files: Files) -> None:
    """Do what a compaction's journal says, if there is one.

    Raises: JobError: the journal is damaged, or a folder cannot be changed.
    """
    text = files.read(JOURNAL)
    if text is None:
        return
    try:
        journal = json.loads(text)
        replaced, target = [str(name) for name in journal["replace"]], str(journal["by"])
    except (ValueError, KeyError, TypeError) as error:
        raise JobError(f"{files.where(JOURNAL)} is no journal of a compaction: {error}") from error
    if files.has(STAGED):
        for name in replaced:
            files.delete(name)
        files.move(STAGED, target)
    files.delete(JOURNAL)
