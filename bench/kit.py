"""Common code of the benchmarks: brokers by name, figures of processes, percentiles, tables."""

from __future__ import annotations

import json
import statistics
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

import typer
from rich.console import Console
from rich.table import Table

from trocket.common import terminal
from trocket.interop.apache import ApacheCluster, broker_conf_text
from trocket.interop.tls_files import ServerTls
from trocket.interop.trocket_peer import FREE_METRICS_PORT, TrocketCluster
from trocket.interop.usage import resident_bytes

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from trocket.interop.peer import Cluster

T = TypeVar("T")
AnyCluster = TypeVar("AnyCluster", bound="Cluster")
AnyOutcome = TypeVar("AnyOutcome", bound="DataclassInstance")

Columns: TypeAlias = Mapping[str, Callable[[T], str]]
"""Functions that return a cell's text from a result, by column heading."""


def make_cluster(
    peer: str, folder: Path, *, tls: ServerTls | None = None, **of_apache: Any
) -> Cluster:
    """A stopped cluster by its name.

    Args:
      peer: "trocket" or "apache-VERSION".
      tls: of its servers; None: as they are without settings.
      of_apache: options of `ApacheCluster`, such as the heaps of its JVMs.
    """
    if peer == "trocket":
        options: tuple[str, ...] = FREE_METRICS_PORT
        if tls is not None:
            folder.mkdir(parents=True)
            conf = folder / "broker.conf"
            conf.write_text(broker_conf_text(tls.keys), encoding="utf-8")
            options += ("-c", str(conf))
        return TrocketCluster(folder, options=options)
    version = peer.removeprefix("apache-")
    return ApacheCluster(version, folder, is_measured=True, tls=tls, **of_apache)


@contextmanager
def running(cluster: AnyCluster) -> Iterator[AnyCluster]:
    """Start a cluster, and close it at the end of the block."""
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


def socket_address(address: str) -> tuple[str, int]:
    """The (host, port) of HOST:PORT for sockets."""
    host, _, port = address.rpartition(":")
    return host, int(port)


def resident_mb(*pids: int) -> float:
    """Total resident memory of some processes in MB."""
    return sum(map(resident_bytes, pids)) / 1e6


def percentile(ordered: Sequence[float], share: float) -> float:
    """The value below which `share` (0 to 1) of the ordered values lie; they must not be empty."""
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


class Percentiles(NamedTuple):
    """How long some things took; all are 0 if there were none."""

    p50: float
    p99: float
    p999: float
    most: float


def percentiles(values: Iterable[float], scale: float = 1.0) -> Percentiles:
    """The percentiles of some values, each times `scale`."""
    ordered = array("d", sorted(values)) or array("d", [0.0])
    return Percentiles(*(percentile(ordered, share) * scale for share in (0.5, 0.99, 0.999, 1)))


class Spread(NamedTuple):
    """The median of some values, and the smallest and largest of them."""

    median: float
    low: float
    high: float


def spread_of(values: Sequence[float]) -> Spread:
    """The spread of one value or more."""
    return Spread(statistics.median(values), min(values), max(values))


def round_ratios(values: Sequence[float | None], reference: Sequence[float | None]) -> list[float]:
    """Each round's value divided by the reference's of the same round.

    Rounds in which one was not measured, or the reference's was 0, are left out.
    """
    pairs = zip(values, reference, strict=False)
    return [value / other for value, other in pairs if value is not None and other]


def by_turns(sides: Sequence[T], rounds: int) -> Iterator[Sequence[T]]:
    """The sides in the order of each round: every second one begins with the last side."""
    for number in range(rounds):
        yield sides if number % 2 == 0 else sides[::-1]


def spread_text(spread: Spread | None) -> str:
    """ "36,500 (36,100 … 37,400)", one number if all are equal, "" for None."""
    if spread is None:
        return ""
    median, low, high = map(number_text, spread)
    return median if low == high else f"{median} ({low} … {high})"


def number_text(value: float) -> str:
    """All digits before the point of a large number, three digits of a small one."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def chosen(names: Collection[str] | None, known: Mapping[str, T], option: str) -> dict[str, T]:
    """The cases that an option names, in its order; all cases if it names none.

    Args:
      known: the cases by name.
      option: the option's name, for the error text.
    Raises: typer.BadParameter: there is no case of that name.
    """
    for name in names or ():
        if name not in known:
            raise typer.BadParameter(f"{option} is one of {', '.join(known)}, not {name!r}")
    return {name: known[name] for name in names or known}


def table(columns: Columns[T], outcomes: Iterable[T], title: str = "") -> Table:
    """A table with a row for each outcome."""
    rows = [[cell(one) for cell in columns.values()] for one in outcomes]
    return terminal.table([*columns], rows, title=title)


def show(
    outcomes: Sequence[AnyOutcome],
    columns: Columns[AnyOutcome],
    *,
    as_json: bool,
    title: str = "",
    facts: Mapping[str, Any] | None = None,
) -> None:
    """Print results as a table or as JSON.

    Args:
      facts: data of the whole run; in JSON the results are then its member `cases`.
    """
    if not as_json:
        Console(width=160).print(table(columns, outcomes, title))
        return
    cases = [asdict(one) for one in outcomes]
    print(json.dumps({**facts, "cases": cases} if facts else cases, indent=2))


def short(number: float) -> str:
    """A number for a narrow column: one decimal below 100, none above."""
    return f"{number:.1f}" if number < 100 else f"{number:.0f}"
