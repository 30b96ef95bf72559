"""How fast Spark reads a store's files, beside the bare decoder and what users write today.

    python -m trocket.bench.spark --messages 1000000

A synthetic log of some 300 bytes a message (14-byte key, 100-byte body, five properties) is scanned

- by the decoder alone, in two processes;
- by `rocketmq-store` on local[2], into Spark's `noop`;
- by a loop over `decode_record` whose rows go through `createDataFrame`.

Rates are messages per second of wall time, the best of `--rounds`.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trocket.remoting.message_codec import decode_record, encode_record
from trocket.spark.log_read import read_log
from trocket.spark.store_options import log_request, store_options
from trocket.spark.store_plan import find_stores, plan_log
from trocket.store.offline.read_only import ReadOnlyDisk

HOST = bytes((127, 0, 0, 1, 0, 0, 0x2A, 0x9F))
COLUMNS = {
    "8 columns": "topic string, queueId int, queueOffset bigint, body binary, keys string, "
    "tags string, properties map<string,string>, storeTimestamp timestamp",
    "header only": "queueId int, queueOffset bigint, storeTimestamp timestamp, "
    "bornTimestamp timestamp, commitLogOffset bigint",
}
LOOP_MAX = 50_000
"""Messages of the loop: more would only take longer."""


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
                time_ms, HOST, time_ms, HOST,
            )  # fmt: skip
            file.write(record)
            offset += len(record)
    return str(log.parent)


def names_of(schema: str) -> tuple[str, ...]:
    return tuple(each.split()[0] for each in schema.replace("string,string", "").split(", "))


def decode_half(arguments: tuple[str, str, int]) -> int:
    """Every second piece of the store, decoded; how many messages."""
    root, schema, half = arguments
    options = store_options({"path": root, "splitBytes": "32m"})
    disk = ReadOnlyDisk()
    request = log_request(options, names_of(schema))
    splits = plan_log(disk, find_stores(disk, options), options)[half::2]
    return sum(batch.num_rows for split in splits for batch in read_log(disk, split, request))


def best(rounds: int, work: Callable[[], int]) -> float:
    """The best rate of several rounds."""
    rates = []
    for _ in range(rounds):
        began = time.perf_counter()
        count = work()
        rates.append(count / (time.perf_counter() - began))
    return max(rates)


def spark_session() -> Any:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    import trocket.spark

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "1g")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    trocket.spark.register(spark)
    return spark


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = write_store(Path(folder), given.messages)
        print(f"load average before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
        with multiprocessing.get_context("spawn").Pool(2) as pool:
            for name, schema in COLUMNS.items():
                halves = [(root, schema, 0), (root, schema, 1)]
                rate = best(given.rounds, lambda: sum(pool.map(decode_half, halves, chunksize=1)))  # noqa: B023
                print(f"bare decoder, 2 processes, {name}: {rate:,.0f} msg/s")
        spark = spark_session()
        for name, schema in COLUMNS.items():

            def scan(schema: str = schema) -> int:
                frame = spark.read.format("rocketmq-store").schema(schema)
                frame.option("splitBytes", "32m").load(root).write.format("noop").mode(
                    "overwrite"
                ).save()
                return int(given.messages)

            print(f"rocketmq-store, local[2], {name}: {best(given.rounds, scan):,.0f} msg/s")

        def loop() -> int:
            data = (Path(root) / "commitlog" / f"{0:020d}").read_bytes()
            rows: list[tuple[object, ...]] = []
            at = 0
            while at < len(data) and len(rows) < LOOP_MAX:
                message = decode_record(data, at, check_crc=False)
                at += message.store_size
                rows.append((message.topic, message.queue_id, message.queue_offset, message.body,
                             message.keys, message.tags, message.properties))  # fmt: skip
            names = ["topic", "queueId", "queueOffset", "body", "keys", "tags", "properties"]
            spark.createDataFrame(rows, names).write.format("noop").mode("overwrite").save()
            return len(rows)

        print(f"a loop and createDataFrame, 7 columns: {best(1, loop):,.0f} msg/s")
        spark.stop()


if __name__ == "__main__":
    main()
