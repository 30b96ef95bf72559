"""Spark's formats against Apache's brokers: tables, streams over a restart, and the files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

import pytest

pytest.importorskip("pyspark", reason="pyspark is of the extra `spark`")

from trocket.blocking import Admin, Message, Producer
from trocket.interop.java_peer import JavaPeer
from trocket.interop.peer import Cluster
from trocket.interop.peers import open_cluster

from ...spark import both_ways

pytestmark = [pytest.mark.interop, pytest.mark.slow]

COMPRESSED = 0x1
"""Bit of a message's sysFlag."""
TABLE_ROWS = 200


@pytest.fixture(scope="module", params=["5.5.0", pytest.param("4.9.7", marks=pytest.mark.matrix)])
def version(request: pytest.FixtureRequest) -> str:
    """Of broker and client."""
    return str(request.param)


@pytest.fixture(scope="module")
def folder(version: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp(f"apache-{version}")


@pytest.fixture(scope="module")
def cluster(version: str, folder: Path) -> Iterator[Cluster]:
    """A running cluster; each test uses other topics, and leaves the broker running."""
    # By default a broker of Apache's refuses SQL.
    cluster = open_cluster(f"apache-{version}", folder, {"enablePropertyFilter": True})
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


def create_topics(cluster: Cluster, *names: str) -> None:
    with Admin(f"rocketmq://{cluster.namesrv_address}") as admin:
        for name in names:
            admin.create_topic(name, queues=2)


def options(cluster: Cluster, topic: str, **more: str) -> dict[str, str]:
    return {"nameServer": cluster.namesrv_address, "topic": topic, **more}


def test_a_table_goes_there_and_comes_back_by_tag_property_and_time(spark, cluster) -> None:
    create_topics(cluster, "Table")
    rows = spark.range(TABLE_ROWS).selectExpr(
        "string(id) AS body", "concat('tag', id % 4) AS tags", "array(string(id), 'all') AS keys",
        "map('n', string(id)) AS properties", "string(id % 7) AS shardingKey",
    )  # fmt: skip
    # What a busy machine answers too late would be sent again.
    patient = options(cluster, "Table", sendTimeoutMs="60000")
    rows.write.format("rocketmq").options(**patient).mode("append").save()

    def read(**more: str) -> list[int]:
        found = spark.read.format("rocketmq").options(**options(cluster, "Table", **more)).load()
        bodies = found.where("properties['n'] = string(body) AND keys = body || ' all'")
        return sorted(int(row.text) for row in bodies.selectExpr("string(body) text").collect())

    every = list(range(TABLE_ROWS))
    assert read() == read(maxRecordsPerPartition="40") == every
    assert read(tags="tag1 || tag3") == every[1::2]
    assert read(filterSql="n BETWEEN 20 AND 39 AND TAGS <> 'tag0'") == [
        n for n in range(20, 40) if n % 4
    ]
    given = options(cluster, "Table")
    times = spark.read.format("rocketmq").schema("storeTimestamp timestamp").options(**given).load()
    stamps = sorted(row[0] for row in times.selectExpr("unix_millis(storeTimestamp)").collect())
    first, last = stamps[0] + 1, stamps[-1]
    # Both ends are included. 4.9.7 answers with any message of a millisecond, or one beside it.
    within = read(startingTimestamp=str(first), endingTimestamp=str(last - 1))
    assert len(within) == sum(first <= stamp <= last - 1 for stamp in stamps)
    assert len(read(endingTimestamp=str(stamps[0]))) == stamps.count(stamps[0])


@pytest.mark.matrix
def test_streams_both_ways_go_on_over_a_restart(spark, cluster, tmp_path) -> None:
    create_topics(cluster, both_ways.SOURCE, both_ways.SINK)

    def send() -> None:
        with Producer(f"rocketmq://{cluster.namesrv_address}", group="p") as producer:
            for number in range(60):
                producer.send(Message(both_ways.SOURCE, str(number)))

    send()
    where = spark, cluster.namesrv_address, str(tmp_path)
    # They wait through the restart: 60 s of tries are more than Apache's broker needs.
    patient = {"numRetries": "600", "retryIntervalMs": "100"}
    queries = both_ways.start(*where, **patient)
    for query in queries.values():
        query.processAllAvailable()
    cluster.stop_broker()
    cluster.start_broker()
    send()
    for query in queries.values():
        query.processAllAvailable()
        query.stop()
    assert both_ways.check(*where) == "120 messages, 0 repeats in the sink's topic"


def test_what_java_compressed_is_the_same_from_the_queues_and_from_the_files(
    spark, cluster, version, folder
) -> None:
    create_topics(cluster, "Packed")
    with JavaPeer(version, folder / "client") as java:
        for size_bytes in (8000, 10):
            java.start_sending(
                f"p{size_bytes}", "Packed", namesrv_address=cluster.namesrv_address, mode="sync",
                message_count=20, size_bytes=size_bytes, keys=True, tags="A,B",
            )  # fmt: skip
        java.wait_sent("p8000", "p10", timeout_s=60)
        sent = {seen.place[1:]: (seen.crc, seen.tags) for seen in java.acknowledged}
    found = spark.read.format("rocketmq").options(**options(cluster, "Packed")).load()
    rows = sorted(map(tuple_of, found.collect()))
    assert len(rows) == 40
    columns = found.columns
    by_place = {(row["queueId"], row["queueOffset"]): row for row in map_of(columns, rows)}
    assert {place: (crc32(row["body"]), row["tags"]) for place, row in by_place.items()} == sent
    assert sum(row["sysFlag"] & COMPRESSED for row in by_place.values()) == 20
    # Stopped, all queues of the broker are in its files.
    cluster.stop_broker()
    try:
        files = (
            spark.read.format("rocketmq-store")
            .options(topic="Packed", brokerName=rows[0][columns.index("brokerName")])
            .load(str(folder / "store"))
            .select(*columns)
        )
        assert sorted(map(tuple_of, files.collect())) == rows
    finally:
        cluster.start_broker()


def tuple_of(row) -> tuple:
    """A row whose properties can be sorted."""
    values = (sorted(value.items()) if isinstance(value, dict) else value for value in row)
    return tuple(bytes(value) if isinstance(value, bytearray) else value for value in values)


def map_of(columns, rows) -> Iterator[dict]:
    for row in rows:
        yield dict(zip(columns, row, strict=True))
