"""Starts of trocket's and Apache's brokers on equal folders, by queues and by commit log files.

Each broker gets a folder written by the same program. A time is that of the process until it says
that it has booted; a JVM's includes its own start and classes that are not compiled yet, as an
operator sees it.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from trocket.bench.scale_curve import Curve
from trocket.bench.scale_folders import SMALL_BODY, Plan, build
from trocket.bench.scale_log import (
    ALL_HOURS,
    NEVER_H,
    START_TIMEOUT_S,
    TOPIC,
    Started,
    plan_of,
    start,
)
from trocket.bench.scale_meter import Caller, Curves, Task
from trocket.bench.scale_tables import QUEUES_PER_TOPIC, send_to
from trocket.interop.apache import ApacheCluster
from trocket.interop.peer import LocalCluster
from trocket.interop.process import PeerError
from trocket.interop.trocket_peer import TrocketBroker
from trocket.interop.wire import WireClient
from trocket.remoting.request_codes import RequestCode as Code

BROKER_JAVA: Final = ("-Xms2g", "-Xmx2g")
RECORDS_PER_QUEUE: Final = 3
SENDS_BEFORE_KILL: Final = 100
SETTLE_S: Final = 1.0
"""Between the last send and the kill."""
BY_QUEUES: Final = 1.0
BY_FILES: Final = 1.0
"""Claimed of trocket's starts: each queue is opened, and of each log file the first message is
read."""
PATIENT: Final = {"waitTimeMillsInSendQueue": 60_000, "osPageCacheBusyTimeOutMills": 60_000}
"""A JVM that has just started takes longer for its first sends than the 200 ms after which Apache's
broker refuses them by default."""
KEYS: Final[dict[str, object]] = {"deleteWhen": ALL_HOURS, "fileReservedTime": NEVER_H}


def cluster_of(peer: str, folder: Path) -> LocalCluster:
    """A stopped broker without a name server on the data folder `folder/store`."""
    store = folder / "store"
    if peer == "trocket":
        return TrocketBroker(
            folder / "run", store=store, broker_keys=KEYS, start_timeout_s=START_TIMEOUT_S
        )
    own = {
        **KEYS,
        **PATIENT,
        "namesrvAddr": None,
        "storePathRootDir": store,
        "storePathCommitLog": store / "commitlog",
    }
    version = peer.removeprefix("apache-")
    return ApacheCluster(
        version, folder / "run", broker_java=BROKER_JAVA, broker_keys=own, is_measured=True
    )


def check_whole(cluster: LocalCluster, plan: Plan, count: int) -> None:
    """Ask a broker for the messages of the first topic's queues.

    Args:
      count: of all messages in the folder.
    Raises: PeerError: it has not all of them.
    """
    with WireClient(cluster.broker_address) as client:
        for queue in range(min(plan.queues, QUEUES_PER_TOPIC)):
            fields = {"topic": plan.topic(queue), "queueId": str(queue)}
            answer = client.call(Code.GET_MAX_OFFSET, fields).checked()
            wanted = len(range(queue, count, plan.queues))
            if int(answer.fields["offset"]) != wanted:
                raise PeerError(f"{cluster.label}: {fields} ends at {answer.fields}, not {wanted}")


def of_queues(task: Task) -> list[Curve]:
    """Starts by the number of queues, each with three messages or more; one commit log file."""
    curves = task.curves("queues")
    now_ms = time.time_ns() // 1_000_000
    for size in task.sizes:
        plan = Plan(
            files=1,
            queues=size,
            records=RECORDS_PER_QUEUE * size,
            body_size=SMALL_BODY,
            oldest_ms=now_ms,
            newest_ms=now_ms,
        )
        for peer in task.peers:
            _measure(curves, peer, plan, size, BY_QUEUES, task)
    return curves.all()


def of_files(task: Task) -> list[Curve]:
    """Starts by the number of commit log files of 1 GiB; four queues."""
    curves = task.curves("commit log files")
    for size in task.sizes:
        for peer in task.peers:
            _measure(curves, peer, plan_of(size), size, BY_FILES, task)
    return curves.all()


def _measure(curves: Curves, peer: str, plan: Plan, size: int, claim: float, task: Task) -> None:
    folder = task.folder / f"{peer}-{size}"
    count = build(folder / "store", plan)
    grows_as = claim if peer == "trocket" else None
    cluster = cluster_of(peer, folder)

    def add(kind: str, found: Sequence[Started]) -> None:
        curves.add(f"{peer}: {kind}", "s", grows_as, size, [each.seconds for each in found])
        curves.add(f"{peer}: {kind}, CPU", "s CPU", grows_as, size, [each.cpu_s for each in found])

    try:
        cluster.start_broker()
        # That was the first start; the next one finds what this broker has left.
        check_whole(cluster, plan, count)
        found = []
        for _ in range(task.pace.rounds):
            cluster.stop_broker()
            found.append(start(cluster))
        add("after a clean stop", found)
        found = []
        for _ in range(task.pace.rounds):
            with Caller(cluster.broker_address) as caller:
                caller.call_all(send_to(TOPIC, 0) for _ in range(SENDS_BEFORE_KILL))
            time.sleep(SETTLE_S)
            cluster.kill_broker()
            found.append(start(cluster))
        add("after kill -9", found)
    finally:
        cluster.close()
    shutil.rmtree(folder)
