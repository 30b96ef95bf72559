"""`kill -9` of a driver, of its Python workers and of the broker, while streams run both ways.

Parquet has each message once; the sink's topic has each row once after repeated ids are dropped.
TROCKET_SPARK_KILLS is how many kills of each. Without it each kind of kill happens once: a killed
driver costs the start of a session.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pyspark is of the extra `spark`")

from trocket.blocking import Admin, Message, Producer
from trocket.interop.trocket_peer import TrocketPair
from trocket.interop.wire import WireClient

from ..kit.waiting import wait_until
from . import both_ways, jvm
from .conftest import WORKER_SITE

pytestmark = pytest.mark.slow

KILLS = int(os.environ.get("TROCKET_SPARK_KILLS", "0"))
WORKER_KILLS = KILLS or 2
"""The workers of tasks, and a planner."""
BROKER_KILLS = KILLS or 1
DRIVER_KILLS = KILLS or 1
SENT_PER_KILL = 120
DEADLINE_S = 120.0
STARTS_MAX = 5
"""Of one query after one kill: on the way back up a broker may end it more than once."""


@pytest.fixture
def cluster(tmp_path):
    """Name server and broker, each a process, so that the broker alone can be killed."""
    pair = TrocketPair(tmp_path / "cluster", broker_keys={"mappedFileSizeCommitLog": 16 << 20})
    pair.start()
    try:
        with Admin(f"rocketmq://{pair.namesrv_address}") as admin:
            for topic in (both_ways.SOURCE, both_ways.SINK):
                admin.create_topic(topic, queues=2)
        yield pair
    finally:
        pair.close()


def send(cluster, count: int = SENT_PER_KILL) -> None:
    """Give the streams something to do."""
    with Producer(f"rocketmq://{cluster.namesrv_address}", group="p") as producer:
        for begin in range(0, count, 20):
            numbers = range(begin, begin + 20)
            producer.send_batch([Message(both_ways.SOURCE, str(number)) for number in numbers])


class Streams:
    """Both streams in the tests' session, started again when they end.

    Attributes:
      errors: what ended a query.
    """

    def __init__(self, spark, name_server, folder) -> None:
        self._where = spark, name_server, folder
        self._queries = {}
        self.errors = []

    def go_on(self) -> None:
        """Start what does not run."""
        for name, query in self._queries.items():
            if not query.isActive:
                self.errors.append(f"{name}: {query.exception()}")
        ended = [name for name, query in self._queries.items() if not query.isActive]
        if ended or not self._queries:
            self._queries.update(both_ways.start(*self._where, only=ended))

    def pass_batches(self, count: int) -> None:
        """Wait until one of them has done `count` more batches, or has ended."""
        before = self._batches()
        wait_until(
            lambda: self._is_over() or self._batches() >= before + count,
            "no batch is done",
            timeout_s=DEADLINE_S,
        )

    def finish(self) -> None:
        """Read all there is, and end."""
        for _ in range(STARTS_MAX):
            self.go_on()
            for query in self._queries.values():
                self._read_all(query)
            if not self._is_over():
                break
        else:
            pytest.fail("\n".join(self.errors))
        for query in self._queries.values():
            query.stop()

    def _read_all(self, query) -> None:
        from pyspark.errors import StreamingQueryException

        try:
            query.processAllAvailable()
        except StreamingQueryException:
            assert not query.isActive  # and `go_on` tells why

    def _batches(self) -> int:
        progress = [query.lastProgress for query in self._queries.values()]
        return sum(each.batchId + 1 for each in progress if each is not None)

    def _is_over(self) -> bool:
        return not all(query.isActive for query in self._queries.values())


def play(spark, cluster, folder, kills: int, kill: Callable[[random.Random, Streams], str]) -> None:
    """Run both ways, and kill at seeded moments."""
    rng = random.Random(kills)
    streams = Streams(spark, cluster.namesrv_address, str(folder))
    killed = []
    for _ in range(kills):
        send(cluster)
        streams.go_on()
        streams.pass_batches(rng.randint(1, 4))
        threading.Event().wait(rng.random() / 3)
        killed.append(kill(rng, streams))
    send(cluster)
    streams.finish()
    story = both_ways.check(spark, cluster.namesrv_address, str(folder))
    print(f"killed {', '.join(killed)}; {len(streams.errors)} queries ended; {story}")
    for error in streams.errors:
        print(error[:2000])


# ---- the workers -----------------------------------------------------------------------------

TASKS = "pyspark.daemon pyspark.worker"
PLANNER = "python_streaming_source_runner"


def children(spark) -> dict[str, list[int]]:
    """The processes below this session's JVM, by what they are; a daemon itself is none of them."""
    jvm = spark.sparkContext._gateway.proc.pid
    table = subprocess.run(
        ["ps", "-Aww", "-o", "pid=,ppid=,args="], capture_output=True, text=True, check=True
    )
    parents, programs = {}, {}
    for line in table.stdout.splitlines():
        pid, parent, program = line.split(None, 2)
        parents[int(pid)], programs[int(pid)] = int(parent), program
    found: dict[str, list[int]] = {TASKS: [], PLANNER: []}
    for pid, program in programs.items():
        for what, depth in ((TASKS, 2), (PLANNER, 1)):
            above = pid
            for _ in range(depth):
                above = parents.get(above, 0)
            if above == jvm and what in program:
                found[what].append(pid)
    return found


def rows_are_coming(cluster, streams: Streams) -> None:
    """Wait until a task is just storing rows; a planner killed before may end its query late."""
    with WireClient(cluster.broker_address) as wire:

        def count() -> int:
            streams.go_on()
            return sum(wire.max_offset(both_ways.SINK, queue_id) for queue_id in range(2))

        before = count()
        send(cluster)
        wait_until(lambda: count() > before, "no row comes", timeout_s=DEADLINE_S)


@pytest.mark.matrix
def test_workers_that_are_killed_cost_and_double_nothing(spark, cluster, tmp_path) -> None:
    turn = iter(range(WORKER_KILLS))

    def kill(rng: random.Random, streams: Streams) -> str:
        # In turn the workers of tasks, which Spark tries again, and a planner, whose query ends.
        what = (TASKS, PLANNER)[next(turn) % 2]
        wait_until(lambda: bool(children(spark)[what]), f"there is no {what}", timeout_s=DEADLINE_S)
        pids = children(spark)[what]
        if what == TASKS:
            rows_are_coming(cluster, streams)
        for pid in pids if what == TASKS else [rng.choice(pids)]:
            os.kill(pid, signal.SIGKILL)
        return what.split()[-1]

    play(spark, cluster, tmp_path, WORKER_KILLS, kill)


# ---- the broker ------------------------------------------------------------------------------


def test_a_broker_that_is_killed_costs_and_doubles_nothing(spark, cluster, tmp_path) -> None:
    def kill(rng: random.Random, _: Streams) -> str:
        cluster.kill_broker()
        threading.Event().wait(rng.random() / 2)
        cluster.start_broker()
        return "broker"

    play(spark, cluster, tmp_path, BROKER_KILLS, kill)


# ---- the driver ------------------------------------------------------------------------------


def run_and_kill(arguments: list[str], log: Path, batches: int, delay_s: float) -> None:
    """Start a driver, and kill it with all its workers some time after `batches` batches."""
    with (
        # What a killed driver leaves; its path is short enough for Spark's sockets.
        tempfile.TemporaryDirectory(prefix="driver", ignore_cleanup_errors=True) as scratch,
        log.open("w") as errors,
        subprocess.Popen(
            [sys.executable, str(Path(both_ways.__file__)), *arguments],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
            env={
                **os.environ,
                "TMPDIR": scratch,
                "SPARK_LOCAL_DIRS": scratch,
                "SPARK_LOCAL_IP": "127.0.0.1",
                "PYSPARK_PYTHON": sys.executable,
                "PYTHONPATH": os.pathsep.join([str(WORKER_SITE), *filter(None, sys.path)]),
            },
        ) as process,
    ):
        assert process.stdout is not None
        try:
            seen = 0
            for line in process.stdout:
                seen += line.startswith("batch")
                if seen >= batches:
                    threading.Event().wait(delay_s)
                    return
            pytest.fail(f"the driver ended after {seen} batches:\n{log.read_text()[-3000:]}")
        finally:
            # The JVM is in its group; the Python workers end with it.
            os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.matrix
def test_a_driver_that_is_killed_costs_and_doubles_nothing(spark, cluster, tmp_path) -> None:
    rng = random.Random(DRIVER_KILLS)
    for _ in range(DRIVER_KILLS):
        send(cluster)
        where = [cluster.namesrv_address, str(tmp_path), jvm.java_options()]
        run_and_kill(where, tmp_path / "log", rng.randint(1, 5), rng.random() / 2)
    # Who goes on is another program: the tests' own session.
    streams = Streams(spark, cluster.namesrv_address, str(tmp_path))
    streams.finish()
    assert streams.errors == []
    story = both_ways.check(spark, cluster.namesrv_address, str(tmp_path))
    print(f"{DRIVER_KILLS} drivers; {story}")
