"""Opening crash images again, and checking what the store then says."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import NamedTuple

from trocket.disk.errors import StoreError
from trocket.store.format import UNIT
from trocket.store.message_store import MessageStore

from ..file_system import POWER_KINDS, FileSystem, Image
from ..recording_disk import RecordingDisk
from .checks import Finding, check_config, check_holed_store, check_store
from .history import Expectation, Lane, Sent
from .hole import is_hole_unavoidable
from .runs import Failure, Report, Run, image_at, images_of, record_run
from .session import HOST, Step

AFTERMATH_EVERY = 8
"""Interval of images after which the store goes on after its recovery, and crashes again."""

KEYS_EVERY = 3
"""Interval of images after which the index is brought up to date and asked."""

RECOVERY_EVERY = 200
"""Interval of images after which each moment of the recovery is a crash, too (depth 2)."""

SECOND_KINDS = ("all", "none", "random1")
"""Images of a crash in a recovery."""

FAILURES_MAX = 3
"""Failures after which a run is given up."""


class Opened(NamedTuple):
    """An image that was opened: the store, what it holds, what is wrong ("" for nothing)."""

    store: MessageStore | None
    finding: Finding
    problem: str


NOTHING = Finding([], [])


def open_and_check(
    run: Run,
    report: Report,
    disk: RecordingDisk,
    expected: Expectation,
    *,
    power: bool,
    keys: int = 0,
    later_ms: int = 60_000,
) -> Opened:
    """Open a store on what a crash left and check it.

    Args:
      power: the crash was a power cut: then a hole may have to be there.
      keys: see `check_store`.
    """
    store = run.new_store(disk, later_ms)
    try:
        store.load()
    except StoreError as error:
        return Opened(None, NOTHING, f"the store does not start: {error}")
    if store.read_only:
        # A start around a hole changes nothing on the disk: this is still the image.
        if not power or not is_hole_unavoidable(run.config, disk.system.everything()):
            return Opened(store, NOTHING, f"the store starts read-only: {store.trouble}")
        report.holes += 1
        finding = check_holed_store(store, expected)
    else:
        finding = check_store(store, expected, keys=keys)
    return Opened(store, finding, next(iter(finding.violations), ""))


def check_run(
    run: Run,
    *,
    depth2: bool = False,
    share: float = 1.0,
    only: tuple[str, str] | None = None,
    failures_max: int = FAILURES_MAX,
) -> Report:
    """All images of a run.

    Args:
      depth2: crash in recoveries, too.
      share: look at this part of the images only, chosen by the run's seed.
      only: the one image to check, by its operation and kind; None: all.
      failures_max: give up after this many.
    """
    report = Report(runs=1)
    if run.problem:
        report.failures.append(run.failure(run.session.moment, "run", run.problem))
        return report
    number = run.seed
    moment_now = -1
    expectations: dict[bool, Expectation] = {}
    chosen = Random(f"share of {run.workload} {run.mode} {run.seed}")
    for moment, kind, system, image in images_of(run):
        number += 1
        if chosen.random() >= share or only not in (None, (str(moment), kind)):
            continue
        if moment != moment_now:
            moment_now = moment
            expectations = {
                power: run.history.expectation(moment, power=power) for power in (False, True)
            }
        case = Case(run, report, system, moment, kind, number)
        try:
            problem = check_image(case, image, expectations[kind in POWER_KINDS])
            if depth2 and not problem and number % RECOVERY_EVERY == 0:
                problem = check_recovery(run, report, system, moment, kind)
        except Exception as error:
            error.add_note(run.failure(moment, kind, "an error that no store may raise").text())
            raise
        if problem:
            report.failures.append(run.failure(moment, kind, problem))
            if len(report.failures) >= failures_max:
                break
    return report


class Case(NamedTuple):
    """One image: of which run, after how many operations, and its number among all."""

    run: Run
    report: Report
    system: FileSystem
    moment: int
    kind: str
    number: int


def check_image(case: Case, image: Image, expected: Expectation) -> str:
    """Open one image and check it; from time to time go on and crash again."""
    run, report, _, _, kind, number = case
    report.images[run.workload, kind] += 1
    may_go_on = number % AFTERMATH_EVERY == 0 or kind.startswith("random")
    disk = RecordingDisk.of_image(image, recording=may_go_on)
    power = kind in POWER_KINDS
    keys = 1 if number % KEYS_EVERY == 0 else 0
    store, finding, problem = open_and_check(run, report, disk, expected, power=power, keys=keys)
    if problem or store is None:
        return problem
    problem = next(iter(check_config(disk, run.config, expected)), "")
    if (
        may_go_on
        and not (problem or store.read_only)
        and (number % AFTERMATH_EVERY == 0 or has_leftovers(case, store, expected))
    ):
        problem = check_aftermath(run, report, disk, store, finding.present, number)
    return problem


def has_leftovers(case: Case, store: MessageStore, expected: Expectation) -> bool:
    """Whether recovery had to cut off a whole record: it could come back."""
    end, file_size = store.max_physical_offset, case.run.config.mapped_file_size_commit_log
    beyond = [
        each
        for lanes in expected.lanes.values()
        for lane in lanes
        for each in lane.allowed.values()
        if each.physical_offset > end
    ]
    image = image_at(case.run, case.system, case.moment, case.kind) if beyond else None
    if image is None:
        return False
    for each in beyond:
        position = each.physical_offset % file_size
        path = f"{case.run.config.commit_log_folder}/{each.physical_offset - position:020d}"
        data = image.files.get(path, b"")
        if data[position : position + len(each.record)] == each.record:
            return True
    return False


def check_recovery(run: Run, report: Report, system: FileSystem, moment: int, kind: str) -> str:
    """Crash at every moment of the recovery of one image.

    After a kill what was not synced is still not synced while the recovery runs. What the store
    shows once it is loaded is promised, like all that is shown.
    """
    if kind == "all":
        disk = RecordingDisk(system.fork())
    else:
        image = image_at(run, system, moment, kind)
        assert image is not None
        disk = RecordingDisk.of_image(image, recording=True)
    base = disk.system.fork()
    first_power = kind in POWER_KINDS
    expected = run.history.expectation(moment, power=first_power)
    scratch = Report()
    store, finding, problem = open_and_check(run, scratch, disk, expected, power=first_power)
    if problem or store is None or store.read_only:
        return problem
    journal = disk.journal
    for step in range(len(journal) + 1):
        for second in SECOND_KINDS:
            image = base.crash_image(second, run.random(moment, f"{kind}:{step}:{second}"))
            if image is None:
                continue
            report.second["in the recovery", second] += 1
            power = first_power or second in POWER_KINDS
            expected = run.history.expectation(moment, power=power)
            if step == len(journal):
                require(expected, finding.present)
            again = RecordingDisk.of_image(image)
            problem = open_and_check(
                run, report, again, expected, power=power, later_ms=120_000
            ).problem
            if problem:
                return f"crash {second} after operation {step} of the recovery: {problem}"
        if step < len(journal):
            base.apply(journal[step])
    return ""


def require(expected: Expectation, present: Iterable[Sent]) -> None:
    """What is readable now must stay readable."""
    for each in present:
        for lane in expected.lanes.get((each.topic, each.queue_id), ()):
            if lane.allowed.get(each.queue_offset) is each:
                lane.required.add(each.queue_offset)


def only(present: Iterable[Sent], maybe: Iterable[Sent] = ()) -> Expectation:
    """All of these messages, some of those, and nothing else."""
    expected = Expectation()
    for messages, promised in ((present, True), (maybe, False)):
        for each in messages:
            if each.queue_offset < 0:
                expected.log_only.append((each, promised))
                continue
            lane = expected.lanes.setdefault((each.topic, each.queue_id), [Lane()])[0]
            lane.allowed[each.queue_offset] = each
            if promised:
                lane.required.add(each.queue_offset)
    return expected


def check_aftermath(
    run: Run,
    report: Report,
    disk: RecordingDisk,
    store: MessageStore,
    present: list[Sent],
    number: int,
) -> str:
    """Put some messages and crash again: nothing that recovery cut off may come back.

    Where a message was lost, one of its size takes its place: what was left behind it on the disk,
    if anything was, would then be the log's next record.
    """
    added: list[Sent] = []
    places = [(("T", 0), 9), (("Other", 1), 9)]
    for each in run.history.sent:
        if each.physical_offset == store.max_physical_offset and each.queue_offset >= 0:
            size = len(each.record) - store_overhead(store, each)
            if each.record and size >= 0:
                places.insert(0, ((each.topic, each.queue_id), size))
                break
    for key, size in places:
        refusal, physical_offset, queue_offset = store.put_message(
            *key, b"x" * size, b"", born_timestamp_ms=1, born_host=HOST, store_host=HOST,
            tags_code=0,
        )  # fmt: skip
        if refusal is not None:
            return f"N1: after recovery a put answers {refusal.status.name}: {refusal.remark}"
        added.append(Sent(0, *key, 0, queue_offset, physical_offset, 0, (), {}, 0))
    store.commit()
    for each in added:
        each.record = record_at(store, each.physical_offset)
        each.unit = UNIT.pack(each.physical_offset, len(each.record), 0)
    others = ("none", "prefix", "torn", "random1")
    for second in ("all", others[number // AFTERMATH_EVERY % len(others)]):
        image = disk.system.crash_image(second, Random(f"{number}:{second}"))
        if image is None:
            continue
        report.second["after the recovery", second] += 1
        power = second != "all"
        expected = only(present, added) if power else only([*present, *added])
        problem = open_and_check(
            run, report, RecordingDisk.of_image(image), expected, power=power, later_ms=120_000
        ).problem
        if problem:
            return f"{len(added)} puts after the recovery, and crash {second}: {problem}"
    return ""


def store_overhead(store: MessageStore, each: Sent) -> int:
    """Bytes of a record beside body and properties."""
    queue = store.queue_store.get_or_create(each.topic, each.queue_id)
    assert queue is not None
    return int(queue.record_overhead)


def record_at(store: MessageStore, physical_offset: int) -> bytes:
    """The bytes of a record that the log just got."""
    prefix = store.log.read(physical_offset, 4)
    assert prefix is not None
    record = store.log.read(physical_offset, int.from_bytes(prefix, "big"))
    assert record is not None
    return bytes(record)


def shorten(failure: Failure, is_same: Callable[[Failure], bool], *, tries_max: int = 150) -> Run:
    """The run of a failure with as few steps as `tries_max` attempts at leaving some out can find.

    Args:
      is_same: whether another failure counts as this one.
    """
    run = record_run(failure.workload, failure.mode, failure.seed)
    steps: list[Step] = run.steps
    size = max(len(steps) // 2, 1)
    tries = 0
    while tries < tries_max:
        start = 0
        is_shorter = False
        while start < len(steps) and tries < tries_max:
            tries += 1
            fewer = steps[:start] + steps[start + size :]
            other = record_run(failure.workload, failure.mode, failure.seed, fewer)
            if any(is_same(each) for each in check_run(other, failures_max=1).failures):
                steps, run, is_shorter = fewer, other, True
            else:
                start += size
        if size == 1 and not is_shorter:
            break
        size = max(size // 2, 1)
    return run
