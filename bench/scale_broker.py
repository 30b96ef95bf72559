"""What a broker costs, by the number of what it has: curves over three decades.

    python -m trocket.bench.scale_broker                            # all parts, about an hour
    python -m trocket.bench.scale_broker --part queues --most 50000
    python -m trocket.bench.scale_broker --part logs --sizes 1,10,100 --json logs.json
    python -m trocket.bench.scale_broker --part logs --sizes 1000 --json logs.json
    python -m trocket.bench.scale_broker --part start-queues --peers trocket,apache-5.5.0

connections     clients in groups of ten, with their heartbeats
queues          ten in a topic, with a message or more in each
groups          consumer groups with a consumer and offsets of four queues
logs            commit log files of 1 GiB: start, look-up by time, deletion
start-queues    start after a clean stop and after kill -9, beside Apache's broker
start-files     the same by commit log files
processes       messages per second of `trocket up --brokers 1, 2, 4`
proxies         messages per second by gRPC of 1, 2 and 4 times `trocket proxy` before one broker

Each part begins with an empty folder, and a broker and a name server in a process each. A curve's
claim is the exponent with which its cost may grow; see `scale_curve.py`. The exit status is 1 if
one grows faster.

Each point is printed when it is measured. With `--json` it is then in the file, so a run that is
stopped keeps what it has, and a run with other `--sizes` and the same file adds its points.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import typer

from trocket.bench.kit import chosen
from trocket.bench.scale_connections import connections
from trocket.bench.scale_curve import Curve
from trocket.bench.scale_log import logs
from trocket.bench.scale_meter import Pace, Task, doublings, sizes
from trocket.bench.scale_processes import processes
from trocket.bench.scale_proxies import proxies
from trocket.bench.scale_record import Record
from trocket.bench.scale_starts import of_files, of_queues
from trocket.bench.scale_tables import QUEUES_PER_TOPIC, groups, queues

CONNECTIONS: Final = 18_900
"""Under a hard limit of 20,000 open files a broker takes 19,000 connections, and closes further
ones; the probe needs some."""
SETTLE_S: Final = 0.5
"""After a new topic, for the save and the registration."""


def _tens(most: int) -> Sequence[int]:
    return sizes(most, least=QUEUES_PER_TOPIC)


class Part(NamedTuple):
    """A part.

    Attributes:
      most: its largest size by default.
      run: measures, and returns the curves.
      sizes: up to a largest one.
    """

    most: int
    run: Callable[[Task], list[Curve]]
    sizes: Callable[[int], Sequence[int]] = sizes


PARTS: Final[dict[str, Part]] = {
    "connections": Part(CONNECTIONS, connections),
    "queues": Part(50_000, queues, _tens),
    "groups": Part(10_000, groups),
    "logs": Part(1_000, logs),
    "start-queues": Part(10_000, of_queues),
    "start-files": Part(1_000, of_files),
    "processes": Part(4, processes, doublings),
    "proxies": Part(4, proxies, doublings),
}


def _numbers(text: str) -> list[int]:
    """Rising sizes from an option. Raises: typer.BadParameter: they are not."""
    found = [int(each) for each in text.split(",") if each.isdecimal()]
    if not found or found != sorted({*found}) or found[0] < 1 or len(found) <= text.count(","):
        raise typer.BadParameter(f"--sizes is as 1,10,100 is, rising numbers, not {text!r}")
    return found


def main(
    part: Annotated[list[str] | None, typer.Option(help="Run this part; all by default.")] = None,
    most: Annotated[int | None, typer.Option(min=1, help="The largest size.")] = None,
    sizes: Annotated[str | None, typer.Option(help="Only these, such as 1,10.")] = None,
    peers: Annotated[str, typer.Option(help="Start these.")] = "trocket,apache-5.5.0,apache-4.9.7",
    seconds: Annotated[float, typer.Option(min=0.1, help="Measure idle CPU this long.")] = 20.0,
    rest_s: Annotated[float, typer.Option(min=0, help="Rest before that.")] = 11.0,
    count: Annotated[int, typer.Option(min=1, help="Requests of a round.")] = 10_000,
    rounds: Annotated[int, typer.Option(min=1, help="Of each cost, and of each start.")] = 3,
    json_: Annotated[
        Path | None, typer.Option("--json", help="Save each point here; may be continued.")
    ] = None,
) -> None:
    """Measure what a broker costs, by the number of what it has."""
    pace = Pace(seconds, rest_s, count, rounds, settle_s=SETTLE_S)
    parts = chosen(part, PARTS, "--part")
    of_part = {
        name: each.sizes(most or each.most) if sizes is None else _numbers(sizes)
        for name, each in parts.items()
    }
    with Record("broker", list(parts), json_) as record:
        for name, each in parts.items():
            record.begin(name)
            with tempfile.TemporaryDirectory(prefix="trocket-scale-") as folder:
                run = Path(folder) / "run"
                each.run(Task(of_part[name], run, pace, peers.split(","), record.found))
    raise typer.Exit(record.status)


if __name__ == "__main__":
    typer.run(main)
