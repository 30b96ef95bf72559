"""Compaction of an archive: merges the batches of an hour into one folder.

It writes the merged rows to a hidden folder, then a journal that names the folders they replace;
then it deletes these and moves the new folder into place. A run that is killed before the journal
has changed nothing; after the journal, the next run does the rest.

A topic's newest hour is not compacted: the next run will add batches to it.
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
"""Most rows per file."""


def compact(spark: SparkSession, files: Files, days: int) -> int:
    """Merge the batches of each hour that has several.

    Args:
      days: the newest days with messages of each topic; 0: all.

    Returns: the number of merged hours.
    Raises: JobError: the archive's folder cannot be changed, or a merge would change its rows.
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
            f"{files.where(hour)} has {counts[0]} rows, but would have {counts[1]} after the merge:"
            " does another run write there? Nothing was changed"
        )
    # The name sorts like the newest batch's, and no batch can have it.
    target = f"{hour}/{batches[-1].removesuffix('-merged')}-merged"
    journal = {"replace": [f"{hour}/{name}" for name in batches], "by": target}
    files.write(JOURNAL, json.dumps(journal))
    complete(files)
    return True


def complete(files: Files) -> None:
    """Complete the compaction that a journal describes, if there is one.

    Raises: JobError: the journal is damaged, or a folder cannot be changed.
    """
    text = files.read(JOURNAL)
    if text is None:
        return
    try:
        journal = json.loads(text)
        replaced, target = [str(name) for name in journal["replace"]], str(journal["by"])
    except (ValueError, KeyError, TypeError) as error:
        raise JobError(
            f"{files.where(JOURNAL)} is not a valid journal of a compaction: {error}"
        ) from error
    if files.has(STAGED):
        for name in replaced:
            files.delete(name)
        files.move(STAGED, target)
    files.delete(JOURNAL)
