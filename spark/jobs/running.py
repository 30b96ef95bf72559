"""The frame of all jobs: a session, progress, a summary, errors as one line.

::

    @dataclass(frozen=True, kw_only=True)
    class Flags(JobFlags):
        topic: Annotated[str, typer.Option(help="To be read.")]

    def main(argv: Sequence[str] | None = None) -> int:
        return run("my_job", read_flags(Flags, "my_job", __doc__, argv), work)

    def work(spark: SparkSession, given: Flags, summary: Summary) -> int:
        follow([start(spark, given)], quiet=given.quiet)
        summary.row("messages", 7)
        return summary.finish(0)

Exit statuses: 0 well, 1 findings (the job did its work, and somebody should look), 2 it could not
do its work (wrong use, no connection, a query that failed), 130 after Ctrl-C.
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
from trocket.spark import lag, register
from trocket.spark.errors import SparkConnectorError
from trocket.spark.jobs.connection import writing
from trocket.spark.jobs.flags import JobFlags
from trocket.spark.local_settings import local_settings
from trocket.spark.source_options import FORMAT
from trocket.spark.versions import require_streams
from trocket.store.errors import StoreError

EXIT_FINDINGS: Final = 1
EXIT_FAILED: Final = 2

STARTING: Final = "Spark is starting, and ends when it has; Ctrl-C once more ends it now"

POLL_S: Final = 0.5
"""How often progress is looked at. Spark keeps the last 100 batches; none is missed so."""

_LAST_OF_TRACEBACK = re.compile(r"^(?:\w+\.)*\w+(?:Error|Exception): (.+)$", re.MULTILINE)
_CLASS = re.compile(r"^\[[A-Z_.]+\] *")


F = TypeVar("F", bound=JobFlags)


class JobError(Exception):
    """The job cannot do its work; the text says what was wrong, where, and what to do."""


# ---- a run -------------------------------------------------------------------------------


def run(
    name: str,
    given: F,
    work: Callable[[SparkSession, F, Summary], int],
) -> int:
    """Do a job's work; its exit status. What hinders it becomes one line on standard error."""
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
    """Not what py4j logs, with a traceback, when Ctrl-C meets a call to Java."""
    return record.msg != "KeyboardInterrupt while sending command."


def session(name: str, given: JobFlags) -> SparkSession:
    """Spark's session, with our formats. Days and hours of timestamps are those of UTC.

    Raises:
      JobError: there is no Java. KeyboardInterrupt: Ctrl-C came, as soon as Spark has started.
    """
    settings = {"spark.app.name": name, "spark.sql.session.timeZone": "UTC"}
    if given.master:
        settings["spark.master"] = given.master
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # spark-submit has not set anything up
        if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
            raise JobError("Spark needs Java 17 or newer, and there is no `java`: install it")
        # Workers are to have the packages that we have.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        if (given.master or "local").startswith("local"):
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
            settings["spark.ui.showConsoleProgress"] = "false"
            # Spark's 200 partitions, of a few rows each, take a minute per micro-batch here.
            settings["spark.sql.shuffle.partitions"] = str(os.cpu_count() or 2)
            if SparkSession.getActiveSession() is None:
                settings |= local_settings(os.environ)
        settings["spark.log.level"] = "ERROR"
    spark = _started(settings)
    register(spark)
    return spark


def _started(settings: Mapping[str, str]) -> SparkSession:
    """Start Spark, or take the session that there is.

    Ctrl-C waits until that is done: who leaves while Java starts leaves Java behind, for good. A
    second one does not wait, as a cluster's manager may have Spark wait for hours.
    """
    with interrupts(STARTING) as is_interrupted:
        # A context takes Ctrl-C for itself when it is made, which is not the end yet.
        SparkContext.getOrCreate(SparkConf().setAll(list(settings.items())))
        with interrupts(STARTING) as is_interrupted_late:
            spark = SparkSession.builder.config(map=dict(settings)).getOrCreate()
            # What fails is told in one line by `run`; Spark would print it twice, with Java's
            # stack.
            spark.sparkContext.setLogLevel("OFF")
        if is_interrupted() or is_interrupted_late():
            raise KeyboardInterrupt
    return spark


def reason(error: BaseException) -> str:
    """The line of an error that says something: of Spark's many, that of our own code."""
    text = str(error)
    found = _LAST_OF_TRACEBACK.findall(text)
    line = found[-1] if found else next(iter(text.strip().splitlines()), type(error).__name__)
    return " ".join(_CLASS.sub("", line).split())


# ---- the end -----------------------------------------------------------------------------


class Summary:
    """What a job did: a table of two columns, or with --json one JSON object."""

    def __init__(self, name: str, given: JobFlags) -> None:
        self._name = name
        self._as_json = bool(given.json)
        self._rows: dict[str, Any] = {}

    def row(self, what: str, value: Any) -> None:
        """One more line; a name that was there is set anew."""
        self._rows[what] = value

    def add(self, what: str, count: int) -> None:
        """Count on in a line, which begins with 0."""
        self._rows[what] = self._rows.get(what, 0) + count

    def total(self) -> int:
        """The sum of all counts: where each line counts findings, whether there are any."""
        return sum(value for value in self._rows.values() if isinstance(value, int))

    def finish(self, status: int) -> int:
        """Print it.

        Args:
          status: the job's exit status; 1: there are findings.
        Returns: the status.
        """
        if self._as_json:
            print(json.dumps({"job": self._name, "status": status, **self._rows}, default=str))
        else:
            show(["", ""], self._rows.items(), title=self._name, cell=grouped)
        return status


# ---- messages ----------------------------------------------------------------------------


def send(rows: DataFrame, given: JobFlags, topic: str, **options: str) -> None:
    """Write rows as messages, at least once; `id` is their SPARK_ROW_ID if they have it.

    A micro-batch that runs again sends again: ids that depend on the rows alone let consumers drop
    what they saw.
    """
    if "id" in rows.columns:
        options["rowId"] = "id"
    found = writing(given, topic=topic, **options)
    rows.write.format(FORMAT).options(**found).mode("append").save()


# ---- streams -----------------------------------------------------------------------------


def read_stream(spark: SparkSession, options: Mapping[str, str]) -> DataStreamReader:
    """A stream of messages.

    Raises:
      OptionError: this PySpark has none; 4.0 itself hides what the format says of that.
    """
    require_streams()
    return spark.readStream.format(FORMAT).options(**options)


class Progress:
    """How far a streaming query is.

    Attributes:
      rows: read since it was started.
      batches: done since then, those without rows left out.
      rows_per_s: of the newest batch with rows.
      behind: messages that the brokers have and it has not read; None: it does not say.
    """

    def __init__(self, query: StreamingQuery) -> None:
        self.query = query
        self.rows_per_s = 0.0
        self.behind: int | None = None
        self._rows_of: dict[int, int] = {}

    @property
    def rows(self) -> int:
        """Read since it was started."""
        return sum(self._rows_of.values())

    @property
    def batches(self) -> int:
        """With rows, since it was started."""
        return sum(rows > 0 for rows in self._rows_of.values())

    def look(self) -> None:
        """Take in what the query says now."""
        for progress in self.query.recentProgress:
            rows = int(progress["numInputRows"])
            batch = int(progress["batchId"])
            # Told again, without rows, while nothing comes.
            self._rows_of[batch] = max(rows, self._rows_of.get(batch, 0))
            if rows:
                self.rows_per_s = float(progress["processedRowsPerSecond"])
            lags = [sum(lag(source).values()) for source in progress["sources"] if lag(source)]
            self.behind = sum(lags) if lags else self.behind


def follow(queries: Sequence[StreamingQuery], *, quiet: bool = False) -> dict[str, Progress]:
    """Wait until all queries have ended, and show a person how far they are.

    When one fails, or on Ctrl-C, the others are stopped.

    Returns: what each did, by its name.
    Raises: JobError: a query failed; KeyboardInterrupt.
    """
    seen = [Progress(query) for query in queries]
    with interrupts() as is_interrupted, _view(quiet) as view:
        try:
            while True:
                running = [query for query in queries if query.isActive]
                for each in seen:
                    each.look()
                view(seen)
                _check(queries)
                if not running:
                    return {str(each.query.name): each for each in seen}
                with contextlib.suppress(PySparkException):  # _check tells of it
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
    """Shows progress on standard error, where a person looks at it."""
    if quiet or not sys.stderr.isatty() or not has_rich():
        yield lambda seen: None
        return
    from rich.console import Console
    from rich.live import Live

    with Live(console=Console(stderr=True), transient=True, auto_refresh=False) as live:

        def view(seen: Sequence[Progress]) -> None:
            rows = [progress_row(each) for each in seen]
            live.update(table(PROGRESS_COLUMNS, rows), refresh=True)

        yield view


PROGRESS_COLUMNS: Final = ("query", "batches", "rows", "rows/s", "behind by")


def progress_row(each: Progress) -> list[str]:
    """A query's line in the table of progress."""
    return [
        str(each.query.name),
        grouped(each.batches),
        grouped(each.rows),
        f"{each.rows_per_s:,.0f}",
        grouped(each.behind),
    ]
