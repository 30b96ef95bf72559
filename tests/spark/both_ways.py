"""Two streams over one topic: into Parquet, and into another topic. What kills must not change.

Run as `python both_ways.py NAMESERVER FOLDER JAVA_OPTIONS` it is a driver to be killed: both
streams run until then, and a line is printed for each batch that is done.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Collection
from typing import Any

SOURCE = "In"
SINK = "Out"
ROWS_PER_BATCH = 40


def start(
    spark: Any, name_server: str, folder: str, only: Collection[str] = (), **options: str
) -> dict[str, Any]:
    """Start both, or those that are named; the queries, by the name of their direction."""
    cluster = {"nameServer": name_server, **options}
    source = spark.readStream.format("rocketmq").options(
        **cluster,
        topic=SOURCE,
        startingOffsets="earliest",
        maxOffsetsPerTrigger=str(ROWS_PER_BATCH),
        # So that the topic is looked up while its only broker is away, too.
        queueDiscoveryInterval="0s",
    )
    place = ("brokerName", "queueId", "queueOffset", "string(body) AS text")
    outputs = {
        "parquet": (source.load().selectExpr(*place), {"path": f"{folder}/out"}),
        "rocketmq": (
            source.load().selectExpr("concat_ws(' ', queueId, queueOffset, string(body)) AS body"),
            # Slow, so that a kill finds some rows of a task stored and others not.
            {**cluster, "topic": SINK, "batchSize": "1", "maxInFlight": "1"},
        ),
    }
    return {
        name: rows.writeStream.format(name)
        .options(**given)
        .option("checkpointLocation", f"{folder}/checkpoint-{name}")
        .start()
        for name, (rows, given) in outputs.items()
        if not only or name in only
    }


def check(spark: Any, name_server: str, folder: str) -> str:
    """Look at what came of all messages; says how many there are, and how many were repeated.

    Raises: AssertionError: a row is missing or too many.
    """
    read = spark.read.format("rocketmq").option("nameServer", name_server)
    sent = read.option("topic", SOURCE).load()
    places = [
        (row.brokerName, row.queueId, row.queueOffset, row.text)
        for row in sent.selectExpr(
            "brokerName", "queueId", "queueOffset", "string(body) text"
        ).collect()
    ]
    files = spark.read.parquet(f"{folder}/out").collect()
    found = [(row.brokerName, row.queueId, row.queueOffset, row.text) for row in files]
    assert Counter(found) == Counter(places)
    out = read.option("topic", SINK).load()
    bodies: dict[str, str] = {}
    rows = out.selectExpr("properties['SPARK_ROW_ID'] id", "string(body) text").collect()
    for row in rows:
        # A row that is stored again says the same, whatever ran again.
        assert bodies.setdefault(row.id, row.text) == row.text
    assert sorted(bodies.values()) == sorted(" ".join(map(str, place[1:])) for place in places)
    return f"{len(places)} messages, {len(rows) - len(bodies)} repeats in the sink's topic"


def main(name_server: str, folder: str, java_options: str) -> None:
    """Run until killed."""
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQueryListener

    import trocket.spark
    from trocket.spark.local_settings import local_settings

    class BatchListener(StreamingQueryListener):  # type: ignore[misc]
        """Says which batch is done."""

        def onQueryStarted(self, event: Any) -> None:
            """Nothing."""

        def onQueryProgress(self, event: Any) -> None:
            """Tell it."""
            print("batch", event.progress.batchId, event.progress.numInputRows, flush=True)

        def onQueryIdle(self, event: Any) -> None:
            """Notify the waiters, too, which would otherwise wait for a batch after the last."""
            print("batch none", flush=True)

        def onQueryTerminated(self, event: Any) -> None:
            """Nothing."""

    spark = (
        SparkSession.builder.master("local[2]")
        .config(map=local_settings(os.environ))  # as jobs start it, but for the JVM's flags
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "512m")
        .config("spark.driver.extraJavaOptions", java_options)
        .config("spark.python.authenticate.socketTimeout", "120s")  # for a busy machine
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    trocket.spark.register(spark)
    spark.streams.addListener(BatchListener())
    start(spark, name_server, folder)
    spark.streams.awaitAnyTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
