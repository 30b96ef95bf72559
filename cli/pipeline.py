"""`trocket pipeline`: the jobs of `trocket.spark.jobs`, without spark-submit.

Spark is imported, and Java started, only when a job runs.
"""

from __future__ import annotations

from collections.abc import Sequence

import typer

from ..common.terminal import say, show
from ..spark.jobs import JOBS
from .session import EXIT_USAGE, AsJson, emit

_PASSED_ON = {
    "ignore_unknown_options": True,
    "allow_extra_args": True,
    "allow_interspersed_args": False,
    "help_option_names": [],
}
"""Typer passes flags through: a job parses them itself, since spark-submit passes them, too."""

_SPARK_PACKAGES = ("pyspark", "pyarrow", "numpy", "pandas")

app = typer.Typer(
    no_args_is_help=True,
    help="Run a Spark job over topics or a store's files, or try one with --demo.",
    epilog="Example: trocket pipeline trades_ohlc --demo",
)


@app.command("list", epilog="Example: trocket pipeline list")
def list_jobs(as_json: AsJson = False) -> None:
    """List the jobs."""
    if as_json:
        emit([{"name": name, "summary": summary} for name, summary in JOBS.items()])
    else:
        show(["Job", "What it does"], JOBS.items())


def _add(name: str, summary: str) -> None:
    def command(context: typer.Context) -> None:
        raise typer.Exit(_run(name, context.args))

    app.command(name, help=summary, context_settings=_PASSED_ON)(command)


for _name, _summary in JOBS.items():
    _add(_name, _summary)


def _run(name: str, words: Sequence[str]) -> int:
    try:
        from ..spark.jobs import load
        from ..spark.jobs.demo import play

        if "--demo" in words:
            return play(name, [word for word in words if word != "--demo"])
        return int(load(name).main(list(words)))
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _SPARK_PACKAGES:
            raise
        say("trocket: pipelines need Spark, and Java 17 or newer: pip install 'trocket[cli,spark]'")
        return EXIT_USAGE
