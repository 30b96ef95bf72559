"""Every call to the disk fails once, or fsync from then on for ever.

The process goes on: it refuses what it cannot store, or turns read-only. Then it is killed, or the
power goes, and the store is opened on a disk that works again.
"""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Iterator
from typing import NamedTuple

from ..broken import Broken
from ..recording_disk import Failure, RecordingDisk
from .checks import check_config, check_store
from .engine import open_and_check, require
from .runs import Report, Run, config_for, record_run, steps_for
from .session import Session, Step

WORKLOADS = ("mixed", "roll", "truncate")

STEPS_MAX = 75


class Case(NamedTuple):
    """Which call fails, and how.

    Attributes:
      call: counts from 0.
      is_lasting: all calls of that name fail from then on.
    """

    call: int
    name: str
    failure: Failure
    is_lasting: bool = False


EIO = Failure(errno.EIO)
ENOSPC = Failure(errno.ENOSPC)
SHORT = Failure(errno.ENOSPC, 0.5)


def steps_of(workload: str, seed: int) -> list[Step]:
    """A short run without crashes."""
    return [each for each in steps_for(workload, seed) if each[0] != "crash"][:STEPS_MAX]


class Calls:
    """Names the calls of a run, and fails one of them."""

    def __init__(self, case: Case | None = None) -> None:
        self.names: list[str] = []
        self._case = case
        self._failing = ""

    def __call__(self, name: str, path: str) -> Failure | None:
        """See `recording_disk.Faults`."""
        number = len(self.names)
        self.names.append(name)
        case = self._case
        if case is None:
            return None
        if number == case.call:
            if case.is_lasting:
                self._failing = name
            return case.failure
        return case.failure if name == self._failing else None


def cases(workload: str, mode: str, seed: int) -> Iterator[Case]:
    """All failures of all calls of one run."""
    steps = steps_of(workload, seed)
    session = Session(config_for(workload, mode), seed)
    calls = session.disk.faults = Calls()
    session.play(steps)
    for number, name in enumerate(calls.names):
        yield Case(number, "EIO", EIO)
        if name in ("pwrite", "allocate", "resize", "open", "make_folder", "rename"):
            yield Case(number, "ENOSPC", ENOSPC)
        if name == "pwrite":
            yield Case(number, "short write", SHORT)
        if name in ("sync", "sync_folder"):
            yield Case(number, "EIO for ever", EIO, is_lasting=True)


def check_case(workload: str, mode: str, seed: int, case: Case, checked: set[bytes]) -> str:
    """Run with one failure, go on, crash, open again; "" when all invariants hold.

    Args:
      checked: end states of this workload, mode and seed that keep every promise after a crash.
    """
    steps = steps_of(workload, seed)
    session = Session(config_for(workload, mode), seed, is_faulty=True)
    session.disk.faults = Calls(case)
    run = Run(workload, mode, seed, steps, session)
    try:
        session.play(steps)
    except Broken as error:
        return str(error)
    session.disk.faults = None
    moment = session.moment
    killed = run.history.expectation(moment, power=False)
    if session.is_running and session.store is not None:
        problem = next(iter(check_store(session.store, killed, keys=0).violations), "")
        if problem:
            return f"while it runs: {problem}"
    # Two in five cases end as another one does: with the same failure under another error number,
    # or of a call that is made again.
    end = end_state(run, moment)
    if end in checked:
        return ""
    problem = check_after(run, session, moment)
    if not problem:
        checked.add(end)
    return problem


def end_state(run: Run, moment: int) -> bytes:
    """A digest of all that `check_after` depends on."""
    session, history = run.session, run.history
    parts = (moment, session.clock.now_ms, history.sent, history.saved)
    return hashlib.sha256(session.disk.system.digest() + repr(parts).encode()).digest()


def check_after(run: Run, session: Session, moment: int) -> str:
    """Kill or cut the power, open on a disk that works; after the kill cut the power, too."""
    system = session.disk.system
    report = Report()
    for kind in ("all", "none", "random1"):
        expected = run.history.expectation(moment, power=kind != "all")
        if kind == "all":
            disk = RecordingDisk(system.fork())
        else:
            image = system.crash_image(kind, run.random(moment, kind))
            if image is None:
                continue
            disk = RecordingDisk.of_image(image)
        opened = open_and_check(run, report, disk, expected, power=kind != "all", keys=1)
        problem = opened.problem or next(iter(check_config(disk, run.config, expected)), "")
        if problem:
            return f"after {kind}: {problem}"
        if kind == "all":
            image = disk.system.crash_image("none", run.random(moment, "again"))
            assert image is not None
            again = run.history.expectation(moment, power=True)
            require(again, opened.finding.present)
            disk = RecordingDisk.of_image(image)
            problem = open_and_check(run, report, disk, again, power=True, keys=1).problem
            if problem:
                return f"after a kill, a start and a power cut: {problem}"
    return ""


def describe(workload: str, mode: str, seed: int, case: Case) -> str:
    """Which call it is, for people."""
    run = record_run(workload, mode, seed, steps_of(workload, seed))
    calls = Calls()
    session = Session(run.config, seed)
    session.disk.faults = calls
    session.play(run.steps)
    lasting = "from there on" if case.is_lasting else "once"
    return (
        f"{workload} {mode} seed {seed}: call {case.call} ({calls.names[case.call]}) fails with "
        f"{case.name}, {lasting}"
    )
