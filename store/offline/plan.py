"""The plan of a repair, made from a check's report before anything is changed."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from ...common.topic_names import SCHEDULE_TOPIC
from ..config import MessageStoreConfig
from ..format import Key
from .examined_start import STRAY, WARNED
from .json_files import CONSUMER_OFFSETS, DELAY_OFFSETS, TOPICS
from .log_walk import HOLES_MAX
from .losses import per_queue
from .report import Report


class HolePolicy(Enum):
    """The choice of how to repair holes in the log."""

    ASK = "nothing: say what there is to choose"
    SKIP = "placeholders where messages are lost, everything else stays"
    CUT = "end the log at the first hole"


class Rebuild(Enum):
    """The choice of queues and indexes to rebuild."""

    DAMAGED = "damaged"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a repair."""

    kind: str
    path: str
    what: str

    def as_dict(self) -> dict[str, str]:
        """For JSON."""
        return {"kind": self.kind, "path": self.path, "what": self.what}


@dataclass(slots=True)
class Plan:
    """The whole repair.

    Attributes:
      steps: in order.
      problems: why some of it cannot be done; a plan with problems is not carried out.
      cut_at: physical offset of the log's new end; -1: unchanged.
      fill: holes get placeholders and filler.
      queues: to rebuild; None: all but those of deleted topics.
      index: it is rebuilt.
      restore: paths of config files to restore from their `.bak`.
      topics: queue counts of the topics to add to `topics.json`, by name.
      clamp: names of config files whose offsets are set back to the queues' ends.
      strays: paths of files and folders that are not the store's.
      start: the start corrects tables or files.
    """

    steps: list[Step] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    cut_at: int = -1
    fill: bool = False
    queues: set[Key] | None = field(default_factory=set)
    index: bool = False
    restore: list[str] = field(default_factory=list)
    clamp: list[str] = field(default_factory=list)
    topics: dict[str, int] = field(default_factory=dict)
    start: bool = False
    strays: list[str] = field(default_factory=list)

    @property
    def changes_log(self) -> bool:
        """Whether messages are moved, added or cut."""
        return self.fill or self.cut_at >= 0

    def end_of(self, report: Report) -> int:
        """Physical offset of the end of the repaired log."""
        if self.cut_at >= 0:
            return self.cut_at
        return max([report.log_end, *(hole.end for hole in report.holes if self.fill)])

    def add(self, kind: str, path: str, what: str) -> None:
        self.steps.append(Step(kind, path, what))

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return {"steps": [step.as_dict() for step in self.steps], "problems": self.problems}


def plan_repair(report: Report, holes: HolePolicy, rebuild: Rebuild) -> Plan:
    """Plan the repair of everything that a check found.

    Args:
      report: of `check_store` with `remember=True`.
    """
    plan = Plan()
    _plan_log(plan, report, holes)
    _plan_rest(plan, report, rebuild)
    _plan_config(plan, report)
    for finding in report.findings.of_kind(STRAY):
        plan.strays.append(finding.path)
        plan.add("store.stray", finding.path, "move it out of the data folder")
    for finding in report.findings.of_kind(WARNED):
        plan.start = True
        plan.add("store.start", finding.path, finding.what)
    root = report.layout.root
    if plan.steps or not report.is_clean_exit:
        plan.add(
            "store.close", root,
            "write the checkpoint, open the store once and close it cleanly (no abort file stays)",
        )  # fmt: skip
    kinds = ["log.file_name", "store.cut"]
    if not report.start_opens:  # otherwise the start takes what is whole in them
        kinds += ["config.lost", "config.content"]
    for finding in report.findings.of_kind(*kinds):
        plan.problems.append(f"{finding.path}: {finding.what}; {finding.advice}")
    for finding in report.findings.of_kind("queue.stray"):
        plan.problems.append(f"{finding.path}: {finding.what}; {finding.advice}")
    return plan


def _plan_log(plan: Plan, report: Report, holes: HolePolicy) -> None:
    layout, size, files = report.layout, report.layout.log_file_size, report.layout.log_path
    for base, found in layout.log_sizes.items():
        if found != size and not layout.is_misnamed(base):
            plan.add("log.size", files(base), f"make the file {size} bytes long again, with zeros")
    for record in report.misplaced:
        # A head is corrected in place, so the topic must keep its length.
        if len(record.topic.encode()) != len(record.said.encode()):
            plan.problems.append(
                f"{files(record.physical_offset)}: the record at {record.physical_offset} names "
                f"{record.said!r}, but the queue of {record.topic!r} has it: restore the file from "
                "a replica or a backup"
            )
            continue
        plan.add(
            "log.head", files(record.physical_offset),
            f"write back that the record at {record.physical_offset} is {record.topic} queue "
            f"{record.queue_id} offset {record.queue_offset}",
        )  # fmt: skip
    if report.holes and holes is HolePolicy.SKIP:
        _plan_fill(plan, report)
    elif report.holes and holes is HolePolicy.CUT:
        _plan_cut(plan, report)
    elif report.holes:
        hole = report.holes[0]
        more = f" and {len(report.holes) - 1} more" if len(report.holes) > 1 else ""
        plan.problems.append(
            f"{files(hole.start)}: the log has a hole at {hole.start}{more}: restore the files "
            "from a replica or a backup, or choose: --skip puts placeholders where messages are "
            "lost and keeps all others, --cut deletes everything after the hole"
        )
    if report.findings.of_kind("log.none"):
        plan.problems.append(f"{layout.log_folder}: there is no commit log; restore it")
    end = plan.end_of(report)
    if plan.cut_at < 0 and report.nonzero_end > end:
        plan.add(
            "log.zero", files(end),
            f"overwrite the {report.nonzero_end - end} bytes from {end} on with zeros: they hold "
            "no record",
        )  # fmt: skip


def _plan_fill(plan: Plan, report: Report) -> None:
    files = report.layout.log_path
    if len(report.holes) >= HOLES_MAX or not report.losses.is_complete:
        plan.problems.append(f"{report.layout.log_folder}: too much is damaged to skip it")
        return
    plan.fill = True
    for number, hole in enumerate(report.holes):
        counts = report.losses.counts[number]
        lost = f"{sum(counts.values())} lost messages: {per_queue(counts, 1000)}"
        plan.add(
            "log.skip", files(hole.start),
            f"fill the {hole.end - hole.start} bytes from {hole.start} to {hole.end}, with "
            f"placeholders for {lost if counts else 'no message, none is known to be lost'}",
        )  # fmt: skip


def _plan_cut(plan: Plan, report: Report) -> None:
    files = report.layout.log_path
    plan.cut_at = report.holes[0].start
    following = report.following
    in_holes = report.losses.total
    plan.add(
        "log.cut", files(plan.cut_at),
        f"end the log at {plan.cut_at}; {report.log_end - plan.cut_at} bytes after it are deleted: "
        f"{sum(following.values())} good messages ({per_queue(following, 1000) or 'none'}) and "
        f"{sum(in_holes.values())} that are lost already ({per_queue(in_holes, 1000) or 'none'})",
    )  # fmt: skip


def _plan_rest(plan: Plan, report: Report, rebuild: Rebuild) -> None:
    root = report.layout.root
    # Moved or removed messages change the units of any queue, and the index.
    everything = rebuild is Rebuild.ALL or plan.changes_log
    batch_bad = report.findings.of_kind(
        "batch.file_size", "batch.missing", "batch.wrong", "batch.extra"
    )
    if everything:
        plan.queues = None
        plan.add("queue.rebuild", f"{root}/consumequeue", "rebuild all queues from the log")
    else:
        plan.queues = report.damaged_queues | report.lagging_queues
        if batch_bad:
            plan.queues |= report.batch_queues
        for topic, queue_id in sorted(plan.queues):
            kind = "batchconsumequeue" if topic in report.batch_topics else "consumequeue"
            path = f"{root}/{kind}/{topic}/{queue_id}"
            plan.add("queue.rebuild", path, "rebuild this queue from the log")
    has_bad_index = report.is_index_damaged or report.findings.of_kind(
        "index.behind", "index.unfinished"
    )
    # With the default log size the default queue size is assumed as well.
    is_usual = report.layout.log_file_size == MessageStoreConfig().mapped_file_size_commit_log
    if plan.queues != set() and not report.layout.knows_queue_size and not is_usual:
        plan.problems.append(
            f"{root}/consumequeue: no file is left that shows the size of queue files: give -c "
            "broker.conf with mappedFileSizeConsumeQueue"
        )
    rebuilds_delays = plan.queues is None or any(key[0] == SCHEDULE_TOPIC for key in plan.queues)
    if rebuilds_delays and report.findings.of_kind("queue.delay"):
        plan.problems.append(
            f"{root}/consumequeue/{SCHEDULE_TOPIC}: its delays are not RocketMQ's default ones: "
            "give -c broker.conf with messageDelayLevel"
        )
    if report.has_index and (everything or has_bad_index):
        if report.index_counts is None:
            plan.problems.append(
                f"{root}/index: the index must be rebuilt, but its files do not show their slot "
                "and entry counts: give -c broker.conf with maxHashSlotNum and maxIndexNum"
            )
        plan.index = True
        plan.add("index.rebuild", f"{root}/index", "rebuild the index from the log")


def _plan_config(plan: Plan, report: Report) -> None:
    folder = report.config.folder
    for path in report.config.restorable:
        plan.restore.append(path)
        plan.add("config.restore", path, "restore the content of its .bak")
    plan.topics = dict(report.unknown_topics)
    for topic, count in plan.topics.items():
        plan.add(
            "config.topics", f"{folder}/{TOPICS}",
            f"create topic {topic} again, with {count} queues and perm 6 (read and write)",
        )  # fmt: skip
    cut = plan.cut_at >= 0
    for name, kind in ((CONSUMER_OFFSETS, "config.offset"), (DELAY_OFFSETS, "config.delay_offset")):
        found = report.findings.of_kind(kind)
        if name in report.config.files and (found or cut):
            plan.clamp.append(name)
            plan.add(
                "config.offsets", f"{folder}/{name}",
                "set offsets beyond a queue's end back to that end",
            )  # fmt: skip
