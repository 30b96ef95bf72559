"""What a broker's commit log costs, by the number of its files: start, look-up, deletion.

The log is of messages of 4 MB, whose zeros take no room on disk, see `scale_folders`.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from trocket.bench.kit import resident_mb, running
from trocket.bench.scale_curve import Curve
from trocket.bench.scale_folders import LARGE_BODY, LOG_FILE_SIZE, Plan, build
from trocket.bench.scale_meter import (
    Caller,
    Curves,
    Pace,
    Request,
    Task,
    cpu_percent,
    cpu_s,
    cpu_us,
    probed,
)
from trocket.bench.scale_tables import disk_mb, send_to
from trocket.interop.peer import LocalCluster
from trocket.interop.trocket_peer import TrocketBroker
from trocket.remoting.request_codes import RequestCode as Code

QUEUES: Final = 4
TOPIC: Final = "Scale-0"
HOUR_MS: Final = 3_600_000
OLD_MS: Final = 100 * HOUR_MS
"""Age of the older half of the files; by default a file expires after 72 hours."""
NEW_MS: Final = 2 * HOUR_MS
SENDS_BEFORE_KILL: Final = 1_000
ALL_HOURS: Final = ";".join(f"{hour:02}" for hour in range(24))
NEVER_H: Final = 10_000
DELETING_S: Final = 300.0
ASK_S: Final = 0.1
PASS_MS: Final = 1_000
"""Between two passes of retention: ten times as often as by default, for more to measure."""


START_TIMEOUT_S: Final = 180.0
"""As for Apache's brokers."""


class Started(NamedTuple):
    """A start of a broker, until it says that it has booted.

    Attributes:
      seconds: passed since its process began.
      cpu_s: that it used till then.
    """

    seconds: float
    cpu_s: float


def start(cluster: LocalCluster) -> Started:
    """Start a broker. Raises: PeerError: it did not start in time."""
    begin_s = time.perf_counter()
    cluster.start_broker()
    return Started(time.perf_counter() - begin_s, cpu_s(cluster.pids[0]))


def plan_of(files: int) -> Plan:
    """A log of this number of files, the older half of which has expired."""
    now_ms = time.time_ns() // 1_000_000
    return Plan(
        files=files,
        queues=QUEUES,
        records=None,
        body_size=LARGE_BODY,
        oldest_ms=now_ms - OLD_MS,
        newest_ms=now_ms - NEW_MS,
    )


def logs(task: Task) -> list[Curve]:
    """A broker with a log of more and more files of 1 GiB."""
    curves, pace = task.curves("commit log files"), task.pace
    for size in task.sizes:
        own = task.folder / str(size)
        plan = plan_of(size)
        build(own / "store", plan)
        _starts(curves, own, size, pace.rounds)
        _look_ups(curves, own, plan, replace(pace, count=max(pace.count // 20, 1)))
        _retention(curves, own, size, pace)
        shutil.rmtree(own)
    return curves.all()


def _broker(folder: Path, keys: Mapping[str, object] | None = None) -> TrocketBroker:
    kept: dict[str, object] = {"deleteWhen": ALL_HOURS, "fileReservedTime": NEVER_H}
    return TrocketBroker(
        folder / "run",
        store=folder / "store",
        broker_keys={**kept, **(keys or {})},
        start_timeout_s=START_TIMEOUT_S,
    )


def _starts(curves: Curves, folder: Path, size: int, rounds: int) -> None:
    broker = _broker(folder)
    with running(broker):  # that is a first start, on a folder of Apache's
        broker.stop_broker()
        for kind in ("clean stop", "kill -9"):
            found = []
            for _ in range(rounds):
                found.append(start(broker))
                memory_mb = resident_mb(broker.pids[0])
                if kind == "clean stop":
                    broker.stop_broker()
                    continue
                with Caller(broker.broker_address) as caller:
                    caller.call_all(
                        send_to(TOPIC, each % QUEUES) for each in range(SENDS_BEFORE_KILL)
                    )
                broker.kill_broker()
            if kind == "kill -9":
                found = [*found[1:], start(broker)]  # the first one followed a clean stop
                broker.stop_broker()
            # Of each file the first message is read and verified, so a start grows with them.
            curves.add(f"start after a {kind}", "s", 1, size, [each.seconds for each in found])
            curves.add(
                f"start after a {kind}: CPU", "s CPU", 1, size, [each.cpu_s for each in found]
            )
            if kind == "clean stop":
                curves.add("memory after it", "MB", 0, size, memory_mb)
    curves.add("disk", "MB", 1, size, disk_mb(folder / "store"))


def _look_ups(curves: Curves, folder: Path, plan: Plan, pace: Pace) -> None:
    """Searches by time, over all files."""
    span_ms = plan.newest_ms - plan.oldest_ms + plan.files * (LOG_FILE_SIZE // LARGE_BODY)

    def search(number: int) -> Request:
        at_ms = plan.oldest_ms + span_ms * number // pace.count
        fields = {"topic": TOPIC, "queueId": number % QUEUES, "timestamp": at_ms}
        return Request(Code.SEARCH_OFFSET_BY_TIMESTAMP, fields)

    def search_early(number: int) -> Request:
        # Store timestamps rise by 1 ms with each record: a different place each time.
        half_ms = max(plan.files // 2, 1) * (LOG_FILE_SIZE // LARGE_BODY)
        fields = {
            "topic": TOPIC, "queueId": number % QUEUES,
            "timestamp": plan.oldest_ms + number * 7919 % half_ms,
        }  # fmt: skip
        return Request(Code.SEARCH_OFFSET_BY_TIMESTAMP, fields)

    broker = _broker(folder)
    with running(broker):
        broker.start_broker()
        with Caller(broker.broker_address) as caller:
            pid = broker.pids[0]
            for what, each in (("all times", search), ("times of records", search_early)):
                costs = cpu_us(pid, caller, each, pace)
                curves.add(f"a search by time, {what}", "µs CPU", 0.15, plan.files, costs)
        broker.stop_broker()


def _retention(curves: Curves, folder: Path, size: int, pace: Pace) -> None:
    """Passes of retention that delete nothing, and the deletion of the older half."""
    often = {"cleanResourceInterval": PASS_MS}
    broker = _broker(folder, often)
    with running(broker):
        broker.start_broker()
        time.sleep(pace.rest_s)
        shares = [cpu_percent(broker.pids[0], pace.seconds) for _ in range(pace.rounds)]
        curves.add("idle, with a pass of retention each second", "% CPU", 0, size, shares)
        broker.stop_broker()
    before = _log_files(folder)
    if before < 2:
        return
    at_once = {"deleteFileBatchMax": size, "deleteCommitLogFilesInterval": 0}
    broker = _broker(folder, {**often, **at_once, "fileReservedTime": OLD_MS // HOUR_MS - 28})
    with running(broker):
        broker.start_broker()
        begin_s = cpu_s(broker.pids[0])

        def deleting(_: float) -> None:
            end_s = time.perf_counter() + DELETING_S
            while _log_files(folder) > before - size // 2 and time.perf_counter() < end_s:
                time.sleep(ASK_S)

        found = probed(broker.pids[0], broker.broker_address, TOPIC, DELETING_S, deleting)
        deleted = max(before - _log_files(folder), 1)
        of_one = (cpu_s(broker.pids[0]) - begin_s) * 1e3 / deleted
        curves.add("the deletion of a file", "ms CPU", 0, size, of_one)
        # Of more files the deletion takes longer, so there are more sends, and one is the slowest.
        curves.add_probes("50 sends a second meanwhile", size, [found])


def _log_files(folder: Path) -> int:
    return sum(path.name.isdigit() for path in (folder / "store" / "commitlog").iterdir())
