"""The jobs of the wire differ: the catalogue, run on our broker and on each of Apache's.

A second job of each pair, for each generation of access control that both have, runs the catalogue
of requests by accounts on brokers with the same accounts.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from ...remoting.codec import encode
from ...testing.recording.frame_lines import frame_line
from ..accounts import (
    Accounts,
    Generation,
    generations_of,
    open_with_accounts,
    start_with_accounts,
)
from ..jobs import Job, OnCell, failed
from ..peer import Cluster
from ..peers import open_cluster, peer_version
from ..process import PeerError
from ..report.cells import Cell, Kind, Verdict
from .access_requests import ACCOUNTS, access_catalogue
from .builders import BROKER_NAME, CLUSTER
from .catalogue import catalogue
from .known_access_bugs import KNOWN_ACCESS_BUGS
from .known_bugs import KNOWN_BUGS, KnownBug, explained
from .normalise import Side
from .player import Outcome, Player
from .request import ANY_CODE, Request, Script, Step, served_in
from .tree import Difference, differences

# The frames of both sides as lines of a report.


def exchange_lines(labels: tuple[str, str], outcomes: tuple[Outcome, Outcome]) -> Iterator[str]:
    """The request, the answer and the error of each side, as far as it has them."""
    for label, outcome in zip(labels, outcomes, strict=True):
        code = None
        if outcome.asked is not None:
            code = outcome.asked.code
            yield f"{label} {frame_line(encode(outcome.asked))}"
        if outcome.answered is not None:
            yield f"{label} {frame_line(encode(outcome.answered), request_code=code)}"
        if outcome.broken:
            yield f"{label}: {outcome.broken}"


NEEDED_FEATURE = "known differences: each of them is there"

NEWEST = "99"
"""The version assumed of a cluster whose version is unknown."""

BROKER_KEYS: Mapping[str, object] = {
    "brokerClusterName": CLUSTER,
    "brokerName": BROKER_NAME,
    "brokerIP1": "127.0.0.1",
    "autoCreateTopicEnable": True,
    "enablePropertyFilter": True,
    "recallMessageEnable": True,
    # `trocket up` has a trace topic unless a file says otherwise, Apache's broker has none.
    "traceTopicEnable": False,
    "useServerSideResetOffset": False,
    "transactionTimeOut": 1000,
    "transactionCheckInterval": 1000,
    "transactionCheckMax": 1,
}
"""Configuration of both brokers: features that are off by default are on, a transaction is parked
after one check instead of fifteen, and 222 is sent on to clients. All else is the default."""


def jobs(ours: str | Sequence[str], apaches: Sequence[str]) -> list[Job]:
    """A job for each pair of ours and Apache's; its cells are the requests of the catalogue.

    Args:
      ours, apaches: names of peers, as `open_cluster` takes them.
    """
    return [_job(name, apache) for name, apache in _pairs(ours, apaches)]


def accounts_jobs(ours: str | Sequence[str], apaches: Sequence[str]) -> list[Job]:
    """A job for each pair and each generation of access control that both have.

    Its cells are the requests by accounts. Arguments as for `jobs`.

    Raises: PeerError: a name is unknown.
    """
    return [
        _job(name, apache, generation)
        for name, apache in _pairs(ours, apaches)
        for generation in Generation
        if generation in generations_of(name) and generation in generations_of(apache)
    ]


def _pairs(ours: str | Sequence[str], apaches: Sequence[str]) -> list[tuple[str, str]]:
    names = [ours] if isinstance(ours, str) else ours
    return [(name, apache) for name in names for apache in apaches]


def _job(ours: str, apache: str, generation: Generation | None = None) -> Job:
    broker = f"{ours} vs {apache}"
    scripts = catalogue() if generation is None else access_catalogue(generation)
    names = [name for script in scripts for name, _ in script.features()]
    with_accounts = "" if generation is None else f" with {generation}"
    owed = tuple(
        Cell(Kind.WIRE, name, "wire", broker, Verdict.SKIPPED)
        for name in (*names, f"{NEEDED_FEATURE}{with_accounts}")
    )

    def play(wanted: Sequence[Cell], folder: Path, on_cell: OnCell) -> None:
        Differ(ours, apache, scripts, wanted, on_cell, generation).play(folder)

    return Job(f"wire: {broker}{with_accounts}", owed, play)


class Differ:
    """Plays scripts on two clusters and reports a cell for each wanted step.

    Args:
      first, second: names of peers; the second is the reference.
      scripts: the whole catalogue.
      wanted: the cells to report; scripts with none of them are not played.
      on_cell: called with each cell.
      generation: of the access control of both clusters; None: they have no accounts.
    """

    def __init__(
        self,
        first: str,
        second: str,
        scripts: Sequence[Script],
        wanted: Sequence[Cell],
        on_cell: OnCell,
        generation: Generation | None = None,
    ) -> None:
        self._peers = (first, second)
        self._scripts = scripts
        self._owed = {cell.feature: cell for cell in wanted}
        self._on_cell = on_cell
        self._version = peer_version(second) or NEWEST
        self._accounts: Accounts | None = None
        known = KNOWN_BUGS
        if generation is not None:
            self._accounts = ACCOUNTS[generation]
            known = KNOWN_ACCESS_BUGS[generation]
        self._bugs = [bug for bug in known if bug.is_of(self._version)]
        self._used: list[KnownBug] = []

    def play(self, folder: Path) -> None:
        """Start both, play, stop both. A cluster that does not start fails all cells."""
        chosen = [script for script in self._scripts if self._is_wanted(script)]
        with ExitStack() as stack:
            pool = stack.enter_context(ThreadPoolExecutor(2))
            try:
                clusters = [
                    stack.enter_context(_Closing(self._open(name, folder / name)))
                    for name in self._peers
                ]
                starts = [pool.submit(self._start, cluster) for cluster in clusters]
                wait(starts)  # for both: a cluster must not be closed while it starts
                for start in starts:
                    start.result()
            except (PeerError, OSError) as error:
                for cell in failed(list(self._owed.values()), str(error)):
                    self._on_cell(cell)
                return
            players = [Player(_side(cluster)) for cluster in clusters]
            for script in chosen:
                started_s = time.monotonic()
                played = script.for_version(self._version)
                plays = [pool.submit(player.play, played) for player in players]
                first, second = (play.result() for play in plays)
                self._compare(script, first, second, time.monotonic() - started_s)
        self._report_needed(chosen)

    def _open(self, name: str, folder: Path) -> Cluster:
        if self._accounts is None:
            return open_cluster(name, folder, BROKER_KEYS)
        return open_with_accounts(name, folder, self._accounts, BROKER_KEYS)

    def _start(self, cluster: Cluster) -> None:
        if self._accounts is None:
            cluster.start()
        else:
            start_with_accounts(cluster, self._accounts)

    def _is_wanted(self, script: Script) -> bool:
        return any(name in self._owed for name, _ in script.features())

    def _compare(
        self,
        script: Script,
        first: Mapping[str, Outcome],
        second: Mapping[str, Outcome],
        seconds: float,
    ) -> None:
        features = script.features()
        for name, step in features:
            cell = self._owed.get(name)
            if cell is None:
                continue
            cell = replace(cell, seconds=seconds / len(features))
            if name not in first:
                # `Script.for_version` left the step out.
                detail = f"Apache's has it {served_in(step)}"
                self._on_cell(replace(cell, verdict=Verdict.SKIPPED, detail=detail))
                continue
            self._on_cell(self._compared(cell, step, first[name], second[name]))

    def _compared(self, cell: Cell, step: Step, first: Outcome, second: Outcome) -> Cell:
        found = found_between(step, first, second)
        if not found:
            return replace(cell, verdict=Verdict.PASSED)
        request = f"{step.code.value}: {step.name}"
        bugs = explained(request, found, self._bugs)
        if bugs is None:
            detail = "\n".join(map(str, found))
            frames = tuple(exchange_lines(self._peers, (first, second)))
            return replace(cell, verdict=Verdict.FAILED, detail=detail, frames=frames)
        self._used += bugs
        rows = "; ".join(bug.row for bug in bugs)
        return replace(cell, verdict=Verdict.QUIRK, detail=rows)

    def _report_needed(self, chosen: Sequence[Script]) -> None:
        cell = next(
            (cell for name, cell in self._owed.items() if name.startswith(NEEDED_FEATURE)), None
        )
        if cell is None:
            return
        if len(chosen) < len(self._scripts):
            detail = "only part of the catalogue was played"
            self._on_cell(replace(cell, verdict=Verdict.SKIPPED, detail=detail))
            return
        idle = [f"{', '.join(bug.requests)}: {bug.row}" for bug in self._bugs_not_seen()]
        verdict = Verdict.FAILED if idle else Verdict.PASSED
        self._on_cell(replace(cell, verdict=verdict, detail="\n".join(idle)))

    def _bugs_not_seen(self) -> Iterable[KnownBug]:
        return (bug for bug in self._bugs if bug not in self._used)


def found_between(step: Step, first: Outcome, second: Outcome) -> list[Difference]:
    """The differences between two outcomes of a step, including an unexpected common code."""
    if first.broken or second.broken:
        return [Difference(("connection",), first.broken or "ok", second.broken or "ok")]
    found = differences(first.tree, second.tree)
    expect = step.expect if isinstance(step, Request) else None
    if expect not in (None, ANY_CODE) and first.code == second.code != expect:
        found.append(Difference(("code",), first.code, f"{second.code}, expected {expect}"))
    return found


def _side(cluster: Cluster) -> Side:
    return Side(cluster.label, cluster.broker_address, cluster.namesrv_address)


class _Closing:
    """A cluster that is closed at the end of a with-block."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def __enter__(self) -> Cluster:
        return self._cluster

    def __exit__(self, *_: object) -> None:
        self._cluster.close()
