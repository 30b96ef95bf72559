"""Everything that the formats do, once, in a session of any kind: a line of JSON for each.

Run as `python every_way.py MASTER NAMESERVER STORE FOLDER`; MASTER is Spark's, or `connect` and a
master, as in `connect:local[2]`, for a session of Spark Connect with a separate server. The topic
In has messages of digits, all of them on disk in the folder STORE; Out and Streamed are empty.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

from pyspark.sql import SparkSession

import trocket.spark

QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def session(master: str) -> Any:
    """A session whose formats are registered."""
    builder: Any = SparkSession.builder
    kind, _, rest = master.partition(":")
    builder = builder.remote(rest) if kind == "connect" else builder.master(master)
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "600m",
        "spark.executor.memory": "600m",
        "spark.driver.extraJavaOptions": QUICK,
        "spark.executor.extraJavaOptions": QUICK,
        "spark.sql.shuffle.partitions": "2",
        "spark.python.authenticate.socketTimeout": "120s",  # for a busy machine
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    trocket.spark.register(spark)
    return spark


def ways(spark: Any, name_server: str, store: str, folder: str) -> dict[str, Callable[[], Any]]:
    """What there is to do, in order; each gives what can be compared."""

    def options(topic: str, **more: str) -> dict[str, str]:
        return {"nameServer": name_server, "topic": topic, **more}

    def texts(frame: Any) -> list[str]:
        return sorted(row.text for row in frame.selectExpr("string(body) text").collect())

    def table() -> Any:
        return spark.read.format("rocketmq").options(**options("In")).load()

    def write() -> str:
        rows = table().selectExpr("body", "tags")
        rows.write.format("rocketmq").options(**options("Out")).mode("append").save()
        return "stored"

    def stream() -> Any:
        return spark.readStream.format("rocketmq").options(
            **options("In", startingOffsets="earliest", maxOffsetsPerTrigger="20")
        )

    def run(writer: Any, *where: str) -> None:
        query = writer.trigger(availableNow=True).start(*where)
        if not query.awaitTermination(300):
            raise TimeoutError("the stream does not end")

    def stream_read() -> list[str]:
        rows = stream().load().selectExpr("queueId", "queueOffset", "body")
        writer = rows.writeStream.format("parquet").option("checkpointLocation", f"{folder}/c1")
        run(writer, f"{folder}/out")
        return texts(spark.read.parquet(f"{folder}/out"))

    def stream_write() -> str:
        # Rows of Spark's own, so that this shows the sink alone.
        rows = (
            spark.readStream.schema("body string, tags string")
            .format("json")
            .load(f"{folder}/rows")
            .writeStream.format("rocketmq")
            .options(**options("Streamed"))
            .option("checkpointLocation", f"{folder}/c2")
        )
        run(rows)
        return "stored"

    def files(**more: str) -> Any:
        given = {"topic": "In", **more}
        return spark.read.format("rocketmq-store").options(**given).load(store)

    def missing() -> str:
        try:
            spark.read.format("rocketmq").options(**options("Nosuch")).load().collect()
        except Exception as error:  # noqa: BLE001 - of another class in each kind of session
            return (
                "knows the topic Nosuch" if "knows the topic Nosuch" in str(error) else str(error)
            )
        return "nothing was wrong"

    return {
        "read": lambda: texts(table()),
        "store": lambda: texts(files()),
        "write": write,
        "stream write": stream_write,
        "stream read": stream_read,
        "missing topic": missing,
        "pushdown": lambda: files(pushdown="true").where("tags = 'a'").count(),
    }


def main(master: str, name_server: str, store: str, folder: str) -> None:
    """Do all of it; what fails says so in its line, and the rest is done all the same."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = session(master)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    for name, do in ways(spark, name_server, store, folder).items():
        try:
            found = do()
        except Exception as error:  # noqa: BLE001 - of another class in each kind of session
            found = f"{type(error).__name__}: {error}"
        print(json.dumps({"way": name, "found": found}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
