"""Jobs for `spark-submit` and `trocket pipeline`: each is a `main(argv)` in a module of its name.

`spark-submit` runs them as files, so they import trocket as a user's program does. What they share
is in `running.py`; in `demo/` a module of the same name makes data for them, with known answers.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

JOBS: Final[dict[str, str]] = {
    "archive_parquet": "Topics into Parquet, each message once; --verify looks for what is missing",
    "dlq_report": "What lies in the dead letter queues: how much, of whom, why, how old",
    "replay": "Dead letters back to the topic that they came from, slowly, with an audit of each",
    "trades_ohlc": "Trades become bars: open, high, low, close, volume, VWAP per symbol and window",
    "order_reconcile": "Orders not paid, or paid and not shipped, in time become alerts",
    "lag_and_store_report": "Who is behind, what is about to be lost, where the bytes go: a page",
}
"""What each does, by its name: the only list of them, for the command, the docs and the tests."""


def load(name: str) -> Any:
    """The module of a job.

    Raises: ModuleNotFoundError: pyspark is not installed.
    """
    return import_module(f"{__name__}.{name}")
