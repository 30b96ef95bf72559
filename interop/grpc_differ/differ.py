"""The jobs of the gRPC differ: the catalogue, on our broker and on Apache's with its proxy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from ..apache import QUICK_KEYS
from ..apache_local_proxy import ApacheLocalProxy
from ..jobs import Job, OnCell, failed
from ..peer import Cluster
from ..peers import PATIENT, open_cluster, parse_peer
from ..process import PeerError
from ..report.cells import Cell, Kind, Verdict
from ..wire_differ.differ import BROKER_KEYS
from ..wire_differ.normalise import Side
from ..wire_differ.tree import differences
from .call import Script
from .catalogue import SCRIPTS
from .known import KNOWN, Known, explained
from .player import Outcome, Player

VERSION: Final = "5.5.0"
"""The proxy that ours is compared with."""

CLIENT: Final = "grpc"
"""The client of the cells."""

AT_ONCE: Final = 12
"""Scripts that are played at the same time on each server: receives wait most of the time."""

NEEDED: Final = "known differences of gRPC: each of them is there"

KEYS: Final[Mapping[str, object]] = {
    **BROKER_KEYS,
    "enableMixedMessageType": True,
    "transactionCheckMax": 15,
}
"""Configuration of both brokers. A transaction is checked until its producer is known."""

Outcomes = Mapping[str, Outcome]


def jobs(ours: Sequence[str], apaches: Sequence[str]) -> list[Job]:
    """A job for each of our brokers, if Apache's of the proxy's version is among the others.

    Args:
      ours, apaches: names of peers.
    """
    if not any(parse_peer(name).version == VERSION for name in apaches):
        return []
    return [_job(name) for name in ours if parse_peer(name).kind == "trocket"]


def _job(ours: str) -> Job:
    broker = f"{ours} vs apache-{VERSION}"
    names = [name for script in SCRIPTS for name, _ in script.compared()]
    owed = tuple(
        Cell(Kind.WIRE, name, CLIENT, broker, Verdict.SKIPPED) for name in (*names, NEEDED)
    )
    return Job(f"gRPC: {broker}", owed, partial(_play, ours))


def _play(ours: str, wanted: Sequence[Cell], folder: Path, on_cell: OnCell) -> None:
    """Start both, play, stop both. A server that does not start fails all cells."""
    owed = {cell.feature: cell for cell in wanted}
    chosen = [script for script in SCRIPTS if any(name in owed for name, _ in script.compared())]
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(2 * AT_ONCE))
        try:
            first = stack.enter_context(closing(open_cluster(ours, folder / ours, KEYS)))
            second = stack.enter_context(closing(_proxy(folder)))
            starts = [pool.submit(cluster.start) for cluster in (first, second)]
            errors = [start.exception() for start in starts]  # for both, before one is closed
            if any(errors):
                raise PeerError(" / ".join(map(str, filter(None, errors))))
        except (PeerError, OSError) as error:
            for cell in failed(list(owed.values()), str(error)):
                on_cell(cell)
            return
        used: list[Known] = []
        plays = [(script, _both(pool, script, first, second)) for script in chosen]
        for script, both in plays:
            one, other = (each.result() for each in both)
            for cell in _compared(script, owed, one, other, used):
                on_cell(cell)
    if NEEDED in owed:
        on_cell(_needed(owed[NEEDED], used, is_whole=len(chosen) == len(SCRIPTS)))


def _proxy(folder: Path) -> ApacheLocalProxy:
    keys = {**PATIENT, **QUICK_KEYS, **KEYS}
    return ApacheLocalProxy(VERSION, folder / "apache", broker_keys=keys)


def _both(
    pool: ThreadPoolExecutor, script: Script, first: Cluster, second: ApacheLocalProxy
) -> tuple[Future[Outcomes], Future[Outcomes]]:
    """The outcomes of a script on each server."""
    addresses = (first.broker_address, second.grpc_address)
    ones, others = (
        pool.submit(_guarded, Player(_side(cluster, address), cluster.broker_address, script).play)
        for cluster, address in zip((first, second), addresses, strict=True)
    )
    return ones, others


def _side(cluster: Cluster, address: str) -> Side:
    return Side(cluster.label, address, cluster.namesrv_address)


def _guarded(play: Callable[[], Outcomes]) -> Outcomes:
    """The outcomes of a script; none of one whose topics or groups could not be created."""
    try:
        return play()
    except PeerError as error:
        return {"": Outcome(broken=str(error))}


def _compared(
    script: Script,
    owed: Mapping[str, Cell],
    first: Outcomes,
    second: Outcomes,
    used: list[Known],
) -> list[Cell]:
    cells: list[Cell] = []
    for name, _ in script.compared():
        cell = owed.get(name)
        if cell is None:
            continue
        pair = tuple(
            side.get(name, side.get("", Outcome(broken="not played"))) for side in (first, second)
        )
        cells.append(_verdict(cell, script, pair[0], pair[1], used))
    return cells


def _verdict(
    cell: Cell, script: Script, first: Outcome, second: Outcome, used: list[Known]
) -> Cell:
    if first.broken or second.broken:
        detail = f"{first.broken or 'ok'} / {second.broken or 'ok'}"
        return replace(cell, verdict=Verdict.FAILED, detail=detail)
    found = differences(first.tree, second.tree)
    if not found:
        return replace(cell, verdict=Verdict.PASSED)
    known = explained(cell.feature.removesuffix(f" [{script.name}]"), found, KNOWN)
    if known is None:
        frames = (f"ours {first.original}", f"Apache's {second.original}")
        detail = "\n".join(map(str, found))
        return replace(cell, verdict=Verdict.FAILED, detail=detail, frames=frames)
    used += known
    rows = "; ".join(each.row for each in known)
    return replace(cell, verdict=Verdict.QUIRK, detail=rows)


def _needed(cell: Cell, used: Sequence[Known], *, is_whole: bool) -> Cell:
    """Whether each known difference was seen."""
    if not is_whole:
        return replace(cell, detail="only part of the catalogue was played")
    idle = [f"{', '.join(each.calls)}: {each.row}" for each in KNOWN if each not in used]
    verdict = Verdict.FAILED if idle else Verdict.PASSED
    return replace(cell, verdict=verdict, detail="\n".join(idle))
