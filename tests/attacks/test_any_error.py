"""The broker ended on any exception of a turn's end or of a service that was not a StoreError.

Here an error of any other kind is raised at the calls and awaits of a name server and a broker, one
in each run: both serve on, nothing acknowledged is lost, every service works, and the log says what
failed. `TROCKET_ERRORS` says how many points of each mode are tried, or `all`; `TROCKET_SIM_SEED`
chooses them.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from random import Random

import pytest

from .injection import ERRORS, Points
from .scenario import Lost, play

SEED = int(os.environ.get("TROCKET_SIM_SEED", "1"))
COUNT = os.environ.get("TROCKET_ERRORS", "20")
MODES = ("ASYNC_FLUSH", "SYNC_FLUSH")

FINAL = ("call of MemoryFile.sync",)
"""Where the store may become read-only until its restart: nothing says what the device has."""

OF_NETWORK = (
    "Channel",
    "Connection",
    "Session",
    "StreamTransport",
    "RemotingClient",
    "Registr",
    "MemoryBudget",
    "MemoryShare",
)
"""An OSError there is a connection that was lost: it happens each day, and is not always logged. A
session reads nothing itself, but is called where its connection is read."""

UNREACHED = "this run did not reach the point so often"

REPLACED = ("await in StreamTransport.aclose",)
"""trio closes by force, with a cancellation: that takes the place of the error."""


def problem_of(mode: str, point: tuple[str, int], kind: type[Exception]) -> str:
    """Raise at one point; what is wrong then, "" for nothing."""
    points, name = Points(point, kind), point[0]
    log = _Kept()
    root = logging.getLogger()
    root.addHandler(log)
    try:
        scenario = play(points, {"flushDiskType": mode}, SEED)
    except Lost as error:
        return str(error)
    except Exception as error:  # noqa: BLE001 - reported with its point
        return f"the servers ended: {error!r}"
    finally:
        root.removeHandler(log)
    if points.raised is None:
        return UNREACHED
    if scenario.is_read_only and name not in FINAL:
        return "the store is read-only"
    is_lost = kind is OSError and any(each in name for each in OF_NETWORK)
    is_expected = is_lost or name in REPLACED
    texts = log.texts + scenario.promises.remarks
    # A connection without memory is named without its traceback, which would need more of it.
    signs = (
        ("injected at", "the process has no memory") if kind is MemoryError else ("injected at",)
    )
    if not is_expected and not any(sign in text for text in texts for sign in signs):
        return "the error is not logged"
    return ""


class _Kept(logging.Handler):
    """Keeps what is logged, with tracebacks."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(logging.Formatter().format(record))


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_an_error_raised_anywhere_leaves_the_servers_serving(mode: str) -> None:
    random = Random(f"{mode} {SEED}")
    points = Points()
    play(points, {"flushDiskType": mode}, SEED)
    counts = Counter(points.names)
    assert len(counts) > 150
    assert len(points.names) > 2_000
    if COUNT == "all":
        chosen = [(name, at) for name in sorted(counts) for at in range(counts[name])]
    else:
        names = random.sample(sorted(counts), min(int(COUNT), len(counts)))
        chosen = [(name, random.randrange(counts[name])) for name in names]
    print(f"{mode} seed {SEED}: {len(chosen)} of {len(points.names)} points")
    problems, unreached = [], 0
    for point in chosen:
        kind = random.choice(ERRORS)
        problem = problem_of(mode, point, kind)
        unreached += problem == UNREACHED
        if problem and problem != UNREACHED:
            problems.append(f"{kind.__name__} at {point}: {problem}")
    assert problems == []
    # How often some points are reached depends on real time, which a busy machine stretches.
    assert unreached * 4 <= len(chosen)
