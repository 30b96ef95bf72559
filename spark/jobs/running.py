"""Shared parts of all jobs: a session, progress, a summary, errors as one line.

::

    @dataclass(frozen=True, kw_only=True)
    class Flags(JobFlags):
        topic: Annotated[str, typer.Option(help="Read this topic.")]

    def main(argv: Sequence[str] | None = None) -> int:
        return run("my_job", read_flags(Flags, "my_job", __doc__, argv), work)

    def work(spark: SparkSession, given: Flags, summary: Summary) -> int:
        follow([start(spark, given)], quiet=given.quiet)
        summary.row("messages", 7)
        return summary.finish(0)

Exit statuses: 0 success, 1 findings (the job succeeded, and its report needs attention), 2 failure
(wrong usage, no connection, a failed query), 130 after Ctrl-C.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamReader, StreamingQuery

from trocket.client.errors import ClientError
from trocket.common.terminal import (
    EXIT_INTERRUPTED,
    grouped,
    has_rich,
    interrupts,
    say,
    show,
    table,
)
from trocket.disk.errors import StoreError
from trocket.spark import lag, register
from trocket.spark.errors import SparkConnectorError
from trocket.spark.jobs.connection import writing
from trocket.spark.jobs.flags import JobFlags
from trocket.spark.jobs.java_errors import filtered
from trocket.spark.local_settings import local_settings
from trocket.spark.source_options import FORMAT
from trocket.spark.versions import require_streams

EXIT_FINDINGS: Final = 1
EXIT_FAILED: Final = 2

STARTING: Final = "stopping as soon as Spark has started; press Ctrl-C again to stop now"

POLL_S: Final = 0.5
"""Interval of progress updates. Spark keeps the last 100 batches, so none is missed."""

_LAST_OF_TRACEBACK = re.compile(r"^(?:\w+\.)*\w+(?:Error|Exception): (.+)$", re.MULTILINE)
_CLASS = re.compile(r"^\[[A-Z_.]+\] *")


F = TypeVar("F", bound=JobFlags)


class JobError(Exception):
    """The job failed; the message says what was wrong, where, and what to do."""


# ---- a run -------------------------------------------------------------------------------


def run(
    name: str,
    given: F,
    work: Callable[[SparkSession, F, Summary], int],
) -> int:
    """Run a job and return its exit status; errors become one line on standard error."""
    logging.getLogger().addFilter(_is_no_interrupt)
    try:
        return work(session(name, given), given, Summary(name, given))
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except (JobError, PySparkException, ClientError, StoreError, SparkConnectorError) as error:
        say(f"{name}: {reason(error)}")
        return EXIT_FAILED
    finally:
        logging.getLogger().removeFilter(_is_no_interrupt)


def _is_no_interrupt(record: logging.LogRecord) -> bool:
    """Filter out py4j's traceback of a Ctrl-C during a call to Java."""
    return record.msg != "KeyboardInterrupt while sending command."


def session(name: str, given: JobFlags) -> SparkSession:
    """Spark's session, with trocket's formats registered and UTC as time zone.

    Raises:
      JobError: there is no Java. KeyboardInterrupt: Ctrl-C; raised once Spark has started.
    """
    settings = {"spark.app.name": name, "spark.sql.session.timeZone": "UTC"}
    if given.master:
        settings["spark.master"] = given.master
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # spark-submit has not set anything up
        if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
            raise JobError("Spark needs Java 17 or newer, but there is no `java`: install it")
        # Workers must run this interpreter, which has the packages.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        if (given.master or "local").startswith("local"):
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
            settings["spark.ui.showConsoleProgress"] = "false"
            # The default of 200 partitions takes a minute per micro-batch on one machine.
            settings["spark.sql.shuffle.partitions"] = str(os.cpu_count() or 2)
            if SparkSession.getActiveSession() is None:
                settings |= local_settings(os.environ)
        settings["spark.log.level"] = "ERROR"
    spark = _started(settings)
    register(spark)
    return spark


def _started(settings: Mapping[str, str]) -> SparkSession:
    """Start Spark, or return the active session.

    The first Ctrl-C takes effect after the start: interrupting the start of Java would leave the
    Java process behind. The second takes effect at once, as Spark may wait for its cluster for
    hours.
    """
    with interrupts(STARTING) as is_interrupted:
        # A new context installs its own handler of Ctrl-C, so install ours again afterwards.
        starts_java = "PYSPARK_GATEWAY_PORT" not in os.environ and SparkContext._gateway is None
        with filtered() if starts_java else contextlib.nullcontext():
            SparkContext.getOrCreate(SparkConf().setAll(list(settings.items())))
        with interrupts(STARTING) as is_interrupted_late:
            spark = SparkSession.builder.config(map=dict(settings)).getOrCreate()
            # `run` reports errors in one line; Spark would print them twice, with Java's stack.
            spark.sparkContext.setLogLevel("OFF")
        if is_interrupted() or is_interrupted_late():
            raise KeyboardInterrupt
    return spark


def reason(error: BaseException) -> str:
    """The informative line of an error: of Spark's many lines, the message of our own code."""
    text = str(error)
    found = _LAST_OF_TRACEBACK.findall(text)
    line = found[-1] if found else next(iter(text.strip().splitlines()), type(error).__name__)
    return " ".join(_CLASS.sub("", line).split())


# ---- the end -----------------------------------------------------------------------------


class Summary:
    """The results of a job: a table of two columns, or with --json one JSON object."""

    def __init__(self, name: str, given: JobFlags) -> None:
        self._name = name
        self._as_json = bool(given.json)
        self._rows: dict[str, Any] = {}

    def row(self, what: str, value: Any) -> None:
        """Add or replace a row."""
        self._rows[what] = value

    def add(self, what: str, count: int) -> None:
        """Add to the count in a row, which begins at 0."""
        self._rows[what] = self._rows.get(what, 0) + count

    def total(self) -> int:
        """The sum of all counts; if every row counts findings, the number of findings."""
        return sum(value for value in self._rows.values() if isinstance(value, int))

    def finish(self, status: int) -> int:
        """Print the summary, and return `status`.

        Args:
          status: the job's exit status.
        """
        if self._as_json:
            print(json.dumps({"job": self._name, "status": status, **self._rows}, default=str))
        else:
            show(["", ""], self._rows.items(), title=self._name, cell=grouped)
        return status


# ---- messages ----------------------------------------------------------------------------


def send(rows: DataFrame, given: JobFlags, topic: str, **options: str) -> None:
    """Write rows as messages, at least once; a column `id` becomes their SPARK_ROW_ID.

    A repeated micro-batch sends its messages again: with ids that depend only on the rows,
    consumers can drop duplicates.
    """
    if "id" in rows.columns:
        options["rowId"] = "id"
    found = writing(given, topic=topic, **options)
    rows.write.format(FORMAT).options(**found).mode("append").save()


# ---- streams -----------------------------------------------------------------------------


def read_stream(spark: SparkSession, options: Mapping[str, str]) -> DataStreamReader:
    """A stream of messages.

    Raises:
      OptionError: this PySpark has no streams; checked here, as 4.0 hides the format's own error.
    """
    require_streams()
    return spark.readStream.format(FORMAT).options(**options)


class Progress:
    """The progress of a streaming query.

    Attributes:
      rows: rows read since the start.
      batches: batches with rows since the start.
      rows_per_s: the speed of the newest batch with rows.
      behind: messages at the brokers that the query has not read; None: unknown.
    """

    def __init__(self, query: StreamingQuery) -> None:
        self.query = query
        self.rows_per_s = 0.0
        self.behind: int | None = None
        self._rows_of: dict[int, int] = {}

    @property
    def rows(self) -> int:
        """Rows read since the start."""
        return sum(self._rows_of.values())

    @property
    def batches(self) -> int:
        """Batches with rows since the start."""
        return sum(rows > 0 for rows in self._rows_of.values())

    def update(self) -> None:
        """Read the query's recent progress."""
        for progress in self.query.recentProgress:
            rows = int(progress["numInputRows"])
            batch = int(progress["batchId"])
            # An idle query reports its last batch again, without rows.
            self._rows_of[batch] = max(rows, self._rows_of.get(batch, 0))
            if rows:
                self.rows_per_s = float(progress["processedRowsPerSecond"])
            lags = [sum(lag(source).values()) for source in progress["sources"] if lag(source)]
            self.behind = sum(lags) if lags else self.behind


def follow(queries: Sequence[StreamingQuery], *, quiet: bool = False) -> dict[str, Progress]:
    """Wait until all queries have ended, and show their progress on a terminal.

    If one fails, or on Ctrl-C, the others are stopped.

    Returns: the progress of each query by its name.
    Raises: JobError: a query failed; KeyboardInterrupt: Ctrl-C.
    """
    seen = [Progress(query) for query in queries]
    with interrupts() as is_interrupted, _view(quiet) as view:
        try:
            while True:
                running = [query for query in queries if query.isActive]
                for each in seen:
                    each.update()
                view(seen)
                _check(queries)
                if not running:
                    return {str(each.query.name): each for each in seen}
                with contextlib.suppress(PySparkException):  # _check reports it
                    running[0].awaitTermination(POLL_S)
                if is_interrupted():
                    raise KeyboardInterrupt
        finally:
            for query in queries:
                query.stop()


def _check(queries: Iterable[StreamingQuery]) -> None:
    for query in queries:
        error = query.exception()
        if error is not None:
            raise JobError(f"the query {query.name!r} failed: {reason(error)}") from error


@contextlib.contextmanager
def _view(quiet: bool) -> Iterator[Callable[[Sequence[Progress]], None]]:
    """Shows progress on standard error, if that is a terminal."""
    if quiet or not sys.stderr.isatty() or not has_rich():
        yield lambda seen: None
        return
    from rich.console import Console
    from rich.live import Live

    with Live(console=Console(stderr=True), transient=True, auto_refresh=False) as live:

        def view(seen: Sequence[Progress]) -> None:
            rows = [progress_row(each) for each in seen]
            made = table(PROGRESS_COLUMNS, rows, width=live.console.width)
            live.update(made, refresh=True)

        yield view


PROGRESS_COLUMNS: Final = ("query", "batches", "rows", "rows/s", "behind by")


def progress_row(each: Progress) -> list[str]:
    """A query's row in the table of progress."""
    return [
        str(each.query.name),
        grouped(each.batches),
        grouped(each.rows),
        f"{each.rows_per_s:,.0f}",
        grouped(each.behind),
    ]
