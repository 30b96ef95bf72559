"""Throughput of Spark's readers and writers, compared with the same work without Spark.

    python -m trocket.bench.spark
    python -m trocket.bench.spark --only store --messages 3500000
    python -m trocket.bench.spark --only sink --only source --only idle

- `store`: a synthetic log of some 300 bytes a message (14-byte key, 100-byte body, five properties)
  is scanned by the decoder alone in two processes, and by `rocketmq-store` on local[2] into `noop`.
- `sink`: rows into a trocket broker in a separate process.
- `source`: those messages with `rocketmq` into `noop`, and with the same pulls in two processes.
- `idle`: the requests per second of an idle stream to its broker.

Rates are messages per second of wall time, the best of `--rounds`; `cpu` is the time of all
processes except the broker's in seconds per million messages, more reliable on a busy machine.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from trocket.bench.kit import running
from trocket.blocking import Admin
from trocket.interop.trocket_peer import TrocketCluster
from trocket.interop.usage import cpu_seconds
from trocket.remoting.message_codec import encode_record
from trocket.spark.batch_plan import ranges
from trocket.spark.cluster import Cluster
from trocket.spark.local_settings import local_settings
from trocket.spark.log_read import read_log
from trocket.spark.pull_read import read_range
from trocket.spark.source import message_request
from trocket.spark.source_options import source_options
from trocket.spark.store_options import log_request, store_options
from trocket.spark.store_plan import find_stores, plan_log
from trocket.store.offline.read_only import ReadOnlyDisk
from trocket.testing import Broker

HOST = bytes((127, 0, 0, 1, 0, 0, 0x2A, 0x9F))
COLUMNS = {
    "8 columns": "topic string, queueId int, queueOffset bigint, body binary, keys string, "
    "tags string, properties map<string,string>, storeTimestamp timestamp",
    "header only": "queueId int, queueOffset bigint, storeTimestamp timestamp, "
    "bornTimestamp timestamp, commitLogOffset bigint",
}
SCAN_GOALS = {"8 columns": 350_000, "header only": 1_000_000}
SCAN_RATIO_MAX = 1.5
SINK_GOAL = 20_000
SOURCE_RATIO_MIN = 0.8
IDLE_GOAL = 5.0

TOPIC = "SparkBench"
QUEUES = 4
IDLE_S = 10.0


class Rate(NamedTuple):
    """Messages per second, and seconds of CPU per million of them."""

    per_s: float
    cpu_s: float


def show(what: str, rate: Rate, goal: str = "") -> None:
    print(f"{what:46} {rate.per_s:>11,.0f} msg/s  cpu {rate.cpu_s:6.2f}  {goal}", flush=True)


def met(is_met: bool, goal: str) -> str:
    return f"{'ok' if is_met else 'MISSED'}: {goal}"


def cpu_of_all(but: list[int]) -> float:
    """CPU seconds of this process and its descendants, exited ones included, except some."""
    parents = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                stat = (folder / "stat").read_text()
            except OSError:
                continue
            parents[int(folder.name)] = int(stat.rpartition(")")[2].split()[1])
    found, todo = 0.0, [os.getpid()]
    while todo:
        pid = todo.pop()
        if pid not in but:
            found += cpu_seconds(pid)
            todo += [child for child, parent in parents.items() if parent == pid]
    return found


def best(rounds: int, work: Callable[[], int], but: list[int] | None = None) -> Rate:
    """The best rate of several rounds, and the least CPU.

    Args:
      but: processes whose CPU time is excluded.
    """
    rates, costs = [], []
    for _ in range(rounds):
        cpu, began = cpu_of_all(but or []), time.perf_counter()
        count = work()
        rates.append(count / (time.perf_counter() - began))
        costs.append((cpu_of_all(but or []) - cpu) / count * 1e6)
    return Rate(max(rates), min(costs))


def spark_session() -> Any:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    import trocket.spark

    spark = (
        SparkSession.builder.master("local[2]")
        .config(map=local_settings(os.environ))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "1g")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    trocket.spark.register(spark)
    return spark


def names_of(schema: str) -> tuple[str, ...]:
    return tuple(each.split()[0] for each in schema.replace("string,string", "").split(", "))


def to_noop(frame: Any) -> None:
    frame.write.format("noop").mode("overwrite").save()


# The files of a store


def write_store(folder: Path, count: int) -> str:
    """A store of one log file."""
    log = folder / "broker-a" / "store" / "commitlog"
    log.mkdir(parents=True)
    with (log / f"{0:020d}").open("wb") as file:
        offset = 0
        for number in range(count):
            properties = (
                f"KEYS\x01order{number:09d}\x02UNIQ_KEY\x01{number:032X}\x02"
                f"TAGS\x01tag{number % 4}\x02WAIT\x01true\x02price\x01{number % 97}\x02"
            ).encode()
            time_ms = 1_700_000_000_000 + number
            record = encode_record(
                "TopicTrade", number % 16, number // 16, offset, b"x" * 100, properties,
                born_timestamp_ms=time_ms, born_host=HOST,
                store_timestamp_ms=time_ms, store_host=HOST,
            )  # fmt: skip
            file.write(record)
            offset += len(record)
    return str(log.parent)


def decode_half(arguments: tuple[str, str, int]) -> int:
    """Decode every second split of the store, and return the number of messages."""
    root, schema, half = arguments
    options = store_options({"path": root})
    disk = ReadOnlyDisk()
    request = log_request(options, names_of(schema))
    splits = plan_log(disk, find_stores(disk, options), options)[half::2]
    return sum(batch.num_rows for split in splits for batch in read_log(disk, split, request))


def measure_store(spark: Any, pool: Any, folder: Path, messages: int, rounds: int) -> None:
    root = write_store(folder, messages)
    for name, schema in COLUMNS.items():
        halves = [(root, schema, 0), (root, schema, 1)]

        def bare(halves: list[tuple[str, str, int]] = halves) -> int:
            return sum(pool.map(decode_half, halves, chunksize=1))

        def scan(schema: str = schema) -> int:
            to_noop(spark.read.format("rocketmq-store").schema(schema).load(root))
            return messages

        alone = best(rounds, bare)
        show(f"store: decoder alone, 2 processes, {name}", alone)
        found, goal = best(rounds, scan), SCAN_GOALS[name]
        show(f"store: local[2], {name}", found, met(found.per_s >= goal, f"{goal:,}"))
        times = alone.per_s / found.per_s
        print(f"  {times:.2f} times the decoder's; {met(times <= SCAN_RATIO_MAX, '1.5')}")


# A broker


def measure_sink(spark: Any, cluster: TrocketCluster, count: int, rounds: int) -> None:
    with Admin(f"rocketmq://{cluster.namesrv_address}") as admin:
        admin.create_topic(TOPIC, queues=QUEUES)
    rows = spark.range(count, numPartitions=2).selectExpr(
        "repeat('x', 100) AS body", "concat('order', id) AS keys", "concat('tag', id % 4) AS tags",
        "map('price', string(id % 97)) AS properties",
    )  # fmt: skip

    def send() -> int:
        options = {"nameServer": cluster.namesrv_address, "topic": TOPIC}
        rows.write.format("rocketmq").options(**options).mode("append").save()
        return count

    found = best(rounds, send, but=cluster.pids)
    show("sink: local[2] into a broker", found, met(found.per_s >= SINK_GOAL, f"{SINK_GOAL:,}"))


def pull_half(arguments: tuple[str, str, int]) -> int:
    """Pull and decode every second queue as Spark's tasks do, and return the number of messages."""
    namesrv, schema, half = arguments
    options = source_options({"nameServer": namesrv, "topic": TOPIC})
    cluster = Cluster(options)
    request = message_request(options, names_of(schema))
    parts = ranges(cluster, options, cluster.queues(options), {})[half::2]
    return sum(
        batch.num_rows for part in parts for batch in read_range(cluster, options, request, part)
    )


def measure_source(spark: Any, pool: Any, cluster: TrocketCluster, rounds: int) -> None:
    schema = COLUMNS["8 columns"]
    halves = [(cluster.namesrv_address, schema, half) for half in range(2)]

    def bare() -> int:
        return sum(pool.map(pull_half, halves, chunksize=1))

    count = bare()

    def read() -> int:
        options = {"nameServer": cluster.namesrv_address, "topic": TOPIC}
        to_noop(spark.read.format("rocketmq").schema(schema).options(**options).load())
        return count

    alone = best(rounds, bare, but=cluster.pids)
    show("source: the same pulls, 2 processes", alone)
    found = best(rounds, read, but=cluster.pids)
    ratio = found.per_s / alone.per_s
    show("source: local[2]", found, met(ratio >= SOURCE_RATIO_MIN, f"80 %, is {ratio:.0%}"))


def measure_idle(spark: Any, folder: Path) -> None:
    with Broker() as broker:
        broker.create_topic(TOPIC, queues=QUEUES)
        options = {"nameServer": broker.namesrv_address, "topic": TOPIC}
        query = (
            spark.readStream.format("rocketmq").options(**options).load()
            .writeStream.format("noop").option("checkpointLocation", str(folder / "idle")).start()
        )  # fmt: skip
        try:
            threading.Event().wait(IDLE_S)  # until the first batch is over
            counted = broker.faults.delay(None, 0, times=None)
            threading.Event().wait(IDLE_S)
            calls = counted.hits / IDLE_S
        finally:
            query.stop()
    print(f"idle: {calls:.1f} requests/s at a broker with {QUEUES} queues;"
          f" {met(calls <= IDLE_GOAL, str(IDLE_GOAL))}")  # fmt: skip


class Part(StrEnum):
    """The parts of the benchmark, for `--only`."""

    STORE = "store"
    SINK = "sink"
    SOURCE = "source"
    IDLE = "idle"


def main(
    messages: Annotated[int, typer.Option(help="Scan a store of this size.")] = 1_000_000,
    rows: Annotated[int, typer.Option(help="Write this number with the sink.")] = 200_000,
    rounds: Annotated[int, typer.Option()] = 3,
    only: Annotated[list[Part] | None, typer.Option()] = None,
) -> None:
    """Measure Spark's readers and writers, and the same work without Spark."""
    parts = set(only or Part)
    print(f"load average before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    spark = spark_session()
    with (
        tempfile.TemporaryDirectory() as name,
        multiprocessing.get_context("spawn").Pool(2) as pool,
    ):
        folder = Path(name)
        if Part.STORE in parts:
            measure_store(spark, pool, folder, messages, rounds)
        if parts & {Part.SINK, Part.SOURCE}:
            with running(TrocketCluster(folder / "cluster")) as cluster:
                measure_sink(spark, cluster, rows, rounds)
                if Part.SOURCE in parts:
                    measure_source(spark, pool, cluster, rounds)
        if Part.IDLE in parts:
            measure_idle(spark, folder)
    spark.stop()


if __name__ == "__main__":
    typer.run(main)
