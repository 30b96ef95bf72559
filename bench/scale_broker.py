"""What a broker costs, by the number of what it has: curves over three decades.

    python -m trocket.bench.scale_broker                            # all parts, about an hour
    python -m trocket.bench.scale_broker --part queues --most 50000
    python -m trocket.bench.scale_broker --part connections --json
    python -m trocket.bench.scale_broker --part start-queues --peers trocket,apache-5.5.0

connections     clients in groups of ten, with their heartbeats
queues          ten in a topic, with a message or more in each
groups          consumer groups with a consumer and offsets of four queues
logs            commit log files of 1 GiB: start, look-up by time, deletion
start-queues    start after a clean stop and after kill -9, beside Apache's broker
start-files     the same by commit log files
processes       messages per second of `trocket up --brokers 1, 2, 4`

Each part begins with an empty folder, and a broker and a name server in a process each. A curve's
claim is the exponent with which its cost may grow; see `scale_curve.py`.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import typer
from rich.console import Console

from trocket.bench.kit import chosen, table
from trocket.bench.scale_connections import connections
from trocket.bench.scale_curve import COLUMNS, Curve, report
from trocket.bench.scale_log import logs
from trocket.bench.scale_meter import Pace
from trocket.bench.scale_processes import processes
from trocket.bench.scale_starts import of_files, of_queues
from trocket.bench.scale_tables import groups, queues

WIDTH: Final = 190
CONNECTIONS: Final = 18_900
"""Under a hard limit of 20,000 open files a broker takes 19,000 connections, and closes further
ones; the probe needs some."""
SETTLE_S: Final = 0.5
"""After a new topic, for the save and the registration."""


class Part(NamedTuple):
    """A part: its largest size by default, and its function, which is given names of peers, too."""

    most: int
    run: Callable[[int, Path, Pace, list[str]], list[Curve]]


PARTS: Final[dict[str, Part]] = {
    "connections": Part(CONNECTIONS, lambda most, at, pace, _: connections(most, at, pace)),
    "queues": Part(50_000, lambda most, at, pace, _: queues(most, at, pace)),
    "groups": Part(10_000, lambda most, at, pace, _: groups(most, at, pace)),
    "logs": Part(1_000, lambda most, at, pace, _: logs(most, at, pace)),
    "start-queues": Part(
        10_000, lambda most, at, pace, peers: of_queues(most, at, peers, pace.rounds)
    ),
    "start-files": Part(
        1_000, lambda most, at, pace, peers: of_files(most, at, peers, pace.rounds)
    ),
    "processes": Part(4, lambda most, at, pace, _: processes(most, at, pace)),
}


def run(part: Part, most: int | None, pace: Pace, peers: list[str]) -> list[Curve]:
    """The curves of a part, in a folder that is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="trocket-scale-") as folder:
        return part.run(most or part.most, Path(folder) / "run", pace, peers)


def main(
    part: Annotated[list[str] | None, typer.Option(help="Run this part; all by default.")] = None,
    most: Annotated[int | None, typer.Option(min=1, help="The largest size.")] = None,
    peers: Annotated[str, typer.Option(help="Start these.")] = "trocket,apache-5.5.0,apache-4.9.7",
    seconds: Annotated[float, typer.Option(min=0.1, help="Measure idle CPU this long.")] = 20.0,
    rest_s: Annotated[float, typer.Option(min=0, help="Rest before that.")] = 11.0,
    count: Annotated[int, typer.Option(min=1, help="Requests of a round.")] = 10_000,
    rounds: Annotated[int, typer.Option(min=1, help="Of each cost, and of each start.")] = 3,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Measure what a broker costs, by the number of what it has."""
    pace = Pace(seconds, rest_s, count, rounds, settle_s=SETTLE_S)
    found: list[Curve] = []
    for name, each in chosen(part, PARTS, "--part").items():
        Console(stderr=True).print(f"{name}, up to {most or each.most:,}")
        curves = run(each, most, pace, peers.split(","))
        found += curves
        if not json_:
            Console(width=WIDTH).print(table(COLUMNS, curves, name))
    if json_:
        facts = {"load at the end": os.getloadavg()[0], "python": sys.version.split()[0]}
        print(json.dumps(report(found, facts), indent=2))


if __name__ == "__main__":
    typer.run(main)
