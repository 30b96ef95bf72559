"""Demo data with known answers for each job, and `trocket pipeline NAME --demo`, which runs one.

A module here has the name of its job and

- `fill(name_server, count, seed) -> dict`: creates topics and sends messages; returns the expected
  answers, computed without Spark. Tests use it, too.
- `arguments(stage, answers) -> list[str]`: the job's command line.
- `check(stage, answers) -> bool`: prints the results; False: they differ from the answers.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trocket.common.terminal import EXIT_INTERRUPTED, say
from trocket.spark.jobs import load
from trocket.spark.jobs.running import EXIT_FAILED, EXIT_FINDINGS

if TYPE_CHECKING:
    from trocket.testing import Broker


_PASSED_ON = {
    "ignore_unknown_options": True,
    "allow_extra_args": True,
    "help_option_names": [],
}
"""The job parses all other flags itself, including --help."""


@dataclass(frozen=True)
class Stage:
    """The environment of a demo.

    Attributes:
      broker: a broker in this process; its files are in `store`.
      folder: for the broker's files and the job's checkpoints; removed at the end.
      out: for the job's results; None: in `folder`.
    """

    broker: Broker
    folder: Path
    out: Path | None = None

    @property
    def results(self) -> Path:
        """The folder of the job's results. Raises: OSError: it cannot be made."""
        folder = self.out or self.folder / "results"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    @property
    def name_server(self) -> str:
        """`127.0.0.1:PORT`."""
        return self.broker.namesrv_address

    @property
    def store(self) -> Path:
        """The broker's folder of files, which `storePathRootDir` names."""
        return self.folder / "broker" / "store"


def load_demo(name: str) -> Any:
    """The module that generates data for a job.

    Raises: ModuleNotFoundError: pyspark is not installed.
    """
    return import_module(f"{__name__}.{name}")


def play(name: str, words: Sequence[str]) -> int:
    """Start a broker, fill it, run a job over it, print the results; return the exit status.

    Args:
      words: `--count N`, `--seed N`, `--out FOLDER`; the job gets all others.
    """
    from trocket.testing import Broker

    given = _demo_flags(name, words)
    demo = load_demo(name)
    try:
        with tempfile.TemporaryDirectory(prefix="trocket-demo-") as folder:
            root = Path(folder)
            with Broker(folder=root / "broker") as broker:
                stage = Stage(broker, root, given.out)
                say(f"a broker at {stage.name_server}, with data of seed {given.seed}")
                answers = demo.fill(stage.name_server, given.count, given.seed)
                line = [*demo.arguments(stage, answers), *given.rest]
                say(f"{name} {' '.join(line)}")
                with _own_session():
                    status = int(load(name).main(line))
                if status not in (0, EXIT_FINDINGS):
                    return status
                is_right = demo.check(stage, answers)
                if given.out is not None:
                    say(f"the results are in {given.out}")
                elif any(stage.results.iterdir()):
                    say("add --out FOLDER to keep the results")
                return 0 if is_right else EXIT_FINDINGS
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except OSError as error:
        if given.out is None or error.filename != str(given.out):
            raise
        say(f"{name}: --out {given.out}: {error.strerror}")
        return EXIT_FAILED


@dataclass(frozen=True)
class _DemoFlags:
    """A demo's flags, and the rest of the command line for the job."""

    count: int
    seed: int
    out: Path | None
    rest: list[str]


def _demo_flags(name: str, words: Sequence[str]) -> _DemoFlags:
    made: list[_DemoFlags] = []
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

    @app.command(context_settings=_PASSED_ON)
    def command(
        context: typer.Context,
        count: Annotated[int, typer.Option()] = 2000,
        seed: Annotated[int, typer.Option()] = 1,
        out: Annotated[Path | None, typer.Option()] = None,
    ) -> None:
        made.append(_DemoFlags(count, seed, out.absolute() if out else None, context.args))

    try:
        app(list(words), prog_name=f"{name} --demo")
    except SystemExit:
        if not made:
            raise
    return made[0]


@contextlib.contextmanager
def _own_session() -> Iterator[None]:
    """Stop a Spark session that starts in the block: its workers keep connections to the broker."""
    from pyspark.sql import SparkSession

    is_own = SparkSession.getActiveSession() is None
    try:
        yield
    finally:
        session = SparkSession.getActiveSession()
        if is_own and session is not None:
            session.stop()
