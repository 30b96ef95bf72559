"""Runs of workloads, the crash images of each of their moments, and what came of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from trocket.store.config import MessageStoreConfig
from trocket.store.message_store import MessageStore

from ..broken import Broken
from ..clock import WorldClock
from ..file_system import KINDS, FileSystem, Image
from ..recording_disk import RecordingDisk
from .history import History
from .session import MEMORY, ROOT, Session, Step, sim_config
from .workloads import WORKLOADS

MODES = ("M0", "M1")
"""ASYNC_FLUSH and SYNC_FLUSH."""


class Failure(NamedTuple):
    """A broken invariant, and how to see it again."""

    workload: str
    mode: str
    seed: int
    moment: int
    kind: str
    problem: str
    story: list[str]

    @property
    def invariant(self) -> str:
        """The rule that it broke: N1 and so on, or "other"."""
        head = self.problem.rpartition(": N")[2] if ": N" in self.problem else self.problem[1:]
        return f"N{head.partition(':')[0]}" if head[:1].isdigit() else "other"

    def text(self) -> str:
        """For people."""
        lines = "\n    ".join(self.story)
        return (
            f"{self.workload} {self.mode} seed {self.seed}, after operation {self.moment}, image "
            f"{self.kind}: {self.problem}\n    {lines}\n  replay: python -m tests.world store "
            f"--workload {self.workload} --mode {self.mode} "
            f"--replay {self.seed}:{self.moment}:{self.kind}"
        )


@dataclass
class Report:
    """The results of runs; reports add up.

    Attributes:
      images: how many, by (workload, kind of image).
      second: images of a second crash, by (when, kind).
      holes: images that had to, and did, start read-only (hole.py).
    """

    images: Counter[tuple[str, str]] = field(default_factory=Counter)
    second: Counter[tuple[str, str]] = field(default_factory=Counter)
    holes: int = 0
    runs: int = 0
    failures: list[Failure] = field(default_factory=list)

    def add(self, other: Report) -> None:
        """Take another one in."""
        self.images.update(other.images)
        self.second.update(other.second)
        self.holes += other.holes
        self.runs += other.runs
        self.failures += other.failures

    @property
    def count(self) -> int:
        """All images of a first crash."""
        return self.images.total()


@dataclass
class Run:
    """One finished run: what happened, operation by operation.

    Attributes:
      problem: what the store did wrong in the run itself; "" for nothing.
    """

    workload: str
    mode: str
    seed: int
    steps: list[Step]
    session: Session
    problem: str = ""

    @property
    def history(self) -> History:
        """What was promised when."""
        return self.session.history

    @property
    def config(self) -> MessageStoreConfig:
        """The store's."""
        return self.session.config

    def failure(self, moment: int, kind: str, problem: str) -> Failure:
        """This run's failure."""
        story = self.history.story(moment)
        return Failure(self.workload, self.mode, self.seed, moment, kind, problem, story)

    def random(self, moment: int, kind: str) -> Random:
        """The chances of one image."""
        return Random(f"{self.workload}:{self.mode}:{self.seed}:{moment}:{kind}")

    def new_store(self, disk: RecordingDisk, later_ms: int = 60_000) -> MessageStore:
        """A store over a disk of this run, not loaded, at a later time."""
        clock = WorldClock(start_ms=self.session.clock.now_ms + later_ms)
        return MessageStore(self.config, clock=clock, disk=disk, memory_bytes=MEMORY)


def config_for(workload: str, mode: str) -> MessageStoreConfig:
    """The configuration of a workload's store."""
    changes: dict[str, object] = {"max_index_num": 12} if workload == "index" else {}
    return sim_config(sync=mode == "M1", **changes)


def steps_for(workload: str, seed: int) -> list[Step]:
    """The steps of a run."""
    make, length = WORKLOADS[workload]
    return make(Random(f"{workload}:{seed}"), length)


def record_run(
    workload: str,
    mode: str,
    seed: int,
    steps: list[Step] | None = None,
    config: MessageStoreConfig | None = None,
) -> Run:
    """Run a workload on a disk that works, but for the crashes that the workload itself has."""
    if steps is None:
        steps = steps_for(workload, seed)
    session = Session(config or config_for(workload, mode), seed)
    run = Run(workload, mode, seed, steps, session)
    try:
        session.play(steps)
    except Broken as error:
        run.problem = str(error)
    return run


def empty_disk() -> FileSystem:
    """The disk as a run finds it."""
    return FileSystem(Image({}, {ROOT}))


def image_at(run: Run, system: FileSystem, moment: int, kind: str) -> Image | None:
    """One image of a disk that is at this moment of the run; None when there is none."""
    journal = run.session.disk.journal
    next_op = journal[moment] if moment < len(journal) else ("",)
    return system.crash_image(kind, run.random(moment, kind), next_op)


def images_of(run: Run) -> Iterator[tuple[int, str, FileSystem, Image]]:
    """Every crash image of a run: after how many operations, kind, the disk, the image."""
    system = empty_disk()
    journal = run.session.disk.journal
    for moment in range(len(journal) + 1):
        for kind in KINDS:
            image = image_at(run, system, moment, kind)
            if image is not None:
                yield moment, kind, system, image
        if moment < len(journal):
            system.apply(journal[moment])
