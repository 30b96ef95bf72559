"""A program that is killed: a stream from a topic into Parquet, until all is read.

Run as `python archiving.py NAMESERVER TOPIC FOLDER`; prints a line for each batch that is done.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQueryListener

import trocket.spark


class Told(StreamingQueryListener):
    """Says which batch is done."""

    def onQueryStarted(self, event) -> None:
        """Nothing."""

    def onQueryProgress(self, event) -> None:
        """Tell it."""
        print("batch", event.progress.batchId, event.progress.numInputRows, flush=True)

    def onQueryIdle(self, event) -> None:
        """Nothing."""

    def onQueryTerminated(self, event) -> None:
        """Nothing."""


def main(name_server: str, topic: str, folder: str) -> None:
    """Read what is there."""
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "512m")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    trocket.spark.register(spark)
    spark.streams.addListener(Told())
    options = {
        "nameServer": name_server, "topic": topic, "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "100",
    }  # fmt: skip
    query = (
        spark.readStream.format("rocketmq")
        .options(**options)
        .load()
        .selectExpr("topic", "brokerName", "queueId", "queueOffset", "string(body) AS text")
        .writeStream.format("parquet")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start(f"{folder}/out")
    )
    query.awaitTermination()
    print("done", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
