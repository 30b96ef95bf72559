"""`rocketmq` as a stream in a Spark session: what comes, what goes, what is there after a stop."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("pyspark", reason="pyspark is of the extra `spark`")

import trocket.spark
from trocket.blocking import Message, Producer
from trocket.spark.sink_options import ROW_ID

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def producer(broker):
    with Producer(broker.url, group="p") as producer:
        yield producer


def stream(spark, broker, topic, **options):
    given = {"nameServer": broker.namesrv_address, "topic": topic, "startingOffsets": "earliest"}
    return spark.readStream.format("rocketmq").options(**{**given, **options}).load()


def run_to_parquet(frame, folder):
    """Read what is there now into Parquet; the query, ended."""
    query = (
        frame.writeStream.format("parquet")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start(f"{folder}/out")
    )
    query.awaitTermination()
    return query


def test_parquet_has_each_message_once_over_restarts(spark, broker, producer, tmp_path) -> None:
    broker.create_topic("P", queues=3)
    broker.create_group("g")
    sent = 0
    for count in (40, 25):
        for _ in range(count):
            producer.send(Message("P", str(sent)))
            sent += 1
        frame = stream(spark, broker, "P", maxOffsetsPerTrigger="30", consumerGroup="g")
        query = run_to_parquet(frame, tmp_path)
        assert len(query.recentProgress) >= 1
    found = spark.read.parquet(f"{tmp_path}/out")
    rows = found.selectExpr("queueId", "queueOffset", "int(string(body)) n").collect()
    assert sorted(row.n for row in rows) == list(range(sent))
    assert len({(row.queueId, row.queueOffset) for row in rows}) == sent
    lag = trocket.spark.lag(query.lastProgress["sources"][0])
    assert {queue.queue_id: count for queue, count in lag.items()} == {0: 0, 1: 0, 2: 0}
    assert lag == trocket.spark.lag(json.loads(query.lastProgress["sources"][0].json))
    # The offsets of finished batches are committed before the last batch is planned.
    assert broker.lag("g", "P") < sent


def test_rows_come_out_as_messages_with_ids_that_stay(spark, broker, producer, tmp_path) -> None:
    broker.create_topic("In", queues=2)
    broker.create_topic("Out", queues=4)
    for number in range(50):
        producer.send(Message("In", str(number), tags=f"t{number % 2}"))
    doubled = stream(spark, broker, "In", maxOffsetsPerTrigger="20").selectExpr(
        "string(2 * int(string(body))) AS body", "tags", "string(queueId) AS shardingKey"
    )
    sink = {"nameServer": broker.namesrv_address, "topic": "Out"}
    query = (
        doubled.writeStream.format("rocketmq")
        .options(**sink)
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    messages = broker.messages("Out")
    assert sorted(int(message.body) for message in messages) == [2 * n for n in range(50)]
    ids = [message.properties[ROW_ID] for message in messages]
    assert len(set(ids)) == 50
    assert {each.split(":")[0] for each in ids} == {str(query.id)}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"bogus": "1"}, "OptionError: rocketmq has no option 'bogus'"),
        ({"endingOffsets": "latest"}, "OptionError: rocketmq: a stream does not end"),
        ({"topic": "Nosuch"}, "OptionError: no name server of .* knows the topic Nosuch"),
        ({"path": "store"}, r'OptionError: rocketmq-store reads files .*"rocketmq"'),
    ],
    ids=["an unknown option", "an end", "no topic", "files"],
)
def test_a_stream_that_cannot_begin_ends_with_the_reason_and_not_with_an_error_of_pyspark(
    spark, broker, tmp_path, options, text
) -> None:
    given = {"topic": "P", **options}
    if "path" in given:
        frame = spark.readStream.format("rocketmq-store").load(str(tmp_path))
    else:
        frame = stream(spark, broker, **given)
    with pytest.raises(Exception, match=text) as caught:
        run_to_parquet(frame, tmp_path)
    assert "UnboundLocalError" not in str(caught.value)
    assert "During handling" not in str(caught.value)


def test_a_table_is_written_and_read_again(spark, broker) -> None:
    broker.create_topic("Table", queues=2)
    rows = spark.range(300).selectExpr(
        "string(id) AS body", "concat('tag', id % 3) AS tags", "array(string(id), 'all') AS keys",
        "map('n', string(id)) AS properties",
    )  # fmt: skip
    sink = {"nameServer": broker.namesrv_address, "topic": "Table"}
    rows.write.format("rocketmq").options(**sink).mode("append").save()
    found = spark.read.format("rocketmq").options(**sink).load()
    assert found.where("properties['n'] = string(body) AND keys = body || ' all'").count() == 300
    with pytest.raises(Exception, match=r"write with \.mode"):
        rows.write.format("rocketmq").options(**sink).mode("overwrite").save()
    with pytest.raises(Exception, match="did you mean tags"):
        rows.withColumnRenamed("tags", "tag").write.format("rocketmq").options(**sink).mode(
            "append"
        ).save()


@pytest.mark.matrix
def test_a_checkpoint_of_something_else_and_a_topic_made_anew_are_reported(
    spark, broker, producer, tmp_path
) -> None:
    broker.create_topic("Again", queues=1)
    for number in range(5):
        producer.send(Message("Again", str(number)))
    run_to_parquet(stream(spark, broker, "Again"), tmp_path)
    broker.delete_topic("Again")
    broker.create_topic("Again", queues=1)
    producer.send(Message("Again", "new"))
    with pytest.raises(Exception, match="read up to 5, but the queue ends at 1"):
        run_to_parquet(stream(spark, broker, "Again"), tmp_path)
    run_to_parquet(stream(spark, broker, "Again", failOnDataLoss="false"), tmp_path)
    found = spark.read.parquet(f"{tmp_path}/out").selectExpr("string(body) text").collect()
    assert sorted(row.text for row in found) == ["0", "1", "2", "3", "4", "new"]
    broker.create_topic("Other", queues=1)
    with pytest.raises(Exception, match=r"checkpoint is of Again, but the query reads Other"):
        run_to_parquet(stream(spark, broker, "Other"), tmp_path)
    broker.delete_topic("Again")
    with pytest.raises(Exception, match=r"knows the topic Again"):
        run_to_parquet(stream(spark, broker, "Again"), tmp_path)
