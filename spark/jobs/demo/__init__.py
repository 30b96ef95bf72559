"""Data with known answers for each job, and `trocket pipeline NAME --demo`, which plays one.

A module here has the name of its job and

- `fill(name_server, count, seed) -> dict`: makes topics and sends messages; returns what the job
  must find, computed without Spark. Tests use it, too.
- `arguments(stage, answers) -> list[str]`: the job's command line.
- `check(stage, answers) -> bool`: prints what came out; False: it is not what must be found.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trocket.spark.jobs import load
from trocket.spark.jobs.running import EXIT_FINDINGS, EXIT_INTERRUPTED

if TYPE_CHECKING:
    from trocket.testing import Broker


@dataclass(frozen=True)
class Stage:
    """Where a demo plays.

    Attributes:
      broker: of its own, in this process; its files are in `store`.
      folder: for what the job writes; removed at the end.
    """

    broker: Broker
    folder: Path

    @property
    def name_server(self) -> str:
        """`127.0.0.1:PORT`."""
        return self.broker.namesrv_address

    @property
    def store(self) -> Path:
        """The broker's folder of files, which `storePathRootDir` names."""
        return self.folder / "broker" / "store"


def load_demo(name: str) -> Any:
    """The module that makes data for a job.

    Raises: ModuleNotFoundError: pyspark is not installed.
    """
    return import_module(f"{__name__}.{name}")


def play(name: str, words: Sequence[str]) -> int:
    """Start a broker, fill it, run a job over it, show what came out; the exit status.

    Args:
      words: `--count N`, `--seed N`; all else goes to the job.
    """
    from trocket.testing import Broker

    parser = argparse.ArgumentParser(prog=f"{name} --demo", add_help=False, allow_abbrev=False)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    given, rest = parser.parse_known_args(words)
    demo = load_demo(name)
    try:
        with tempfile.TemporaryDirectory(prefix="trocket-demo-") as folder:
            root = Path(folder)
            with Broker(folder=root / "broker") as broker:
                stage = Stage(broker, root)
                _say(f"a broker at {stage.name_server}, with data of seed {given.seed}")
                answers = demo.fill(stage.name_server, given.count, given.seed)
                line = [*demo.arguments(stage, answers), *rest]
                _say(f"{name} {' '.join(line)}")
                with _own_session():
                    status = int(load(name).main(line))
                if status not in (0, EXIT_FINDINGS):
                    return status
                return 0 if demo.check(stage, answers) else EXIT_FINDINGS
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


@contextlib.contextmanager
def _own_session() -> Iterator[None]:
    """End Spark's session if it begins in here: its workers would miss the broker."""
    from pyspark.sql import SparkSession

    is_own = SparkSession.getActiveSession() is None
    try:
        yield
    finally:
        session = SparkSession.getActiveSession()
        if is_own and session is not None:
            session.stop()


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
