"""Queues of a real broker as record batches: the same rows as from its files, and losses named."""

from __future__ import annotations

import json
import operator

import pytest

pytest.importorskip("numpy", reason="numpy is of the extra `spark`")
pytest.importorskip("pyspark", reason="pyspark is of the extra `spark`")
pytest.importorskip("pyarrow", reason="pyarrow is of the extra `spark`")

from tests.kit.live_copies import copy_running
from trocket.blocking import Message, Producer
from trocket.client.core.queue_requests import PullAnswer
from trocket.remoting.response_codes import ResponseCode
from trocket.spark.batch_plan import ranges, starts, stops
from trocket.spark.cluster import Cluster
from trocket.spark.columns import MESSAGE
from trocket.spark.errors import DataLossError, OptionError, SparkConnectorError
from trocket.spark.log_read import read_log
from trocket.spark.pull_read import read_range, subscription_of
from trocket.spark.pushdown import Bounds
from trocket.spark.queue_offsets import Queue, QueueRange, split_ranges
from trocket.spark.record_columns import RecordColumns, walk
from trocket.spark.source import message_request
from trocket.spark.source_options import source_options
from trocket.spark.store_options import log_request, store_options
from trocket.spark.store_plan import StoreAt, plan_log
from trocket.store.offline.read_only import ReadOnlyDisk
from trocket.testing import Broker

pytestmark = pytest.mark.slow

COUNT = 300


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("broker")


@pytest.fixture(scope="module")
def broker(folder):
    with Broker(folder=folder) as broker:
        broker.create_topic("T", queues=3)
        broker.create_topic("U", queues=1)
        broker.create_topic("Aa", queues=1)
        with Producer(broker.url, group="p") as producer:
            for number in range(COUNT):
                body = b"%d " % number * (1 + number % 50 * 40)
                message = Message(
                    "T", body, tags=f"tag{number % 4}", keys=[f"k{number}", "all"],
                    properties={"n": str(number)},
                )  # fmt: skip
                producer.send(message)
            producer.send(Message("U", "one"))
            # Two tags of one hash.
            for tag in ("Aa", "BB", "Aa"):
                producer.send(Message("Aa", tag, tags=tag))
        yield broker


def options_of(broker, **given):
    if not {"topic", "topics", "topicPattern", "assign"} & set(given):
        given["topic"] = "T"
    return source_options({"nameServer": broker.namesrv_address, **given})


def rows(broker, columns=None, filters=None, **given):
    options = options_of(broker, **given)
    request = message_request(options, tuple(columns or MESSAGE))
    cluster = Cluster(options)
    parts = split_ranges(
        ranges(cluster, options, cluster.queues(options), filters or {}),
        parts_min=options.min_partitions,
        size_max=options.max_records_per_partition,
    )
    found = []
    for part in parts:
        for batch in read_range(cluster, options, request, part):
            batch.validate(full=True)
            found += batch.to_pylist()
    return found


def place(row):
    return row["topic"], row["queueId"], row["queueOffset"]


def test_the_rows_are_those_of_the_brokers_files(broker, folder, tmp_path) -> None:
    found = sorted(rows(broker), key=place)
    assert len(found) == COUNT
    # A copy: of a store that is in use, only what the last checkpoint covers is read.
    root = str(copy_running(folder / "store", tmp_path / "store"))
    options = store_options({"path": root, "brokerName": found[0]["brokerName"], "topic": "T"})
    splits = plan_log(ReadOnlyDisk(), [StoreAt(root, options.broker_name)], options)
    request = log_request(options, tuple(MESSAGE))
    from_files = [
        row
        for split in splits
        for batch in read_log(ReadOnlyDisk(), split, request)
        for row in batch.to_pylist()
    ]
    assert sorted(from_files, key=place) == found


@pytest.mark.parametrize(
    "given",
    [
        {"maxRecordsPerPartition": "7"},
        {"minPartitions": "20", "pullBatchSize": "3"},
        {"arrowBatchRows": "5"},
        {"pullBatchSize": "1000"},
    ],
    ids=str,
)
def test_however_it_is_cut_each_message_is_a_row_once(broker, given) -> None:
    places = sorted(map(place, rows(broker, ["topic", "queueId", "queueOffset"], **given)))
    assert len(places) == COUNT
    for queue_id in range(3):
        offsets = [offset for _, queue, offset in places if queue == queue_id]
        assert offsets == list(range(len(offsets)))


def test_tags_are_compared_as_texts_and_not_by_their_hashes(broker) -> None:
    assert [row["tags"] for row in rows(broker, topic="Aa", tags="BB")] == ["BB"]
    assert [row["tags"] for row in rows(broker, topic="Aa", tags="Aa || x")] == ["Aa", "Aa"]
    assert {row["tags"] for row in rows(broker, tags="tag1||tag3")} == {"tag1", "tag3"}


def test_topics_are_chosen_by_list_pattern_and_queue(broker) -> None:
    def topics(**given):
        return {row["topic"] for row in rows(broker, ["topic"], **given)}

    assert topics(topics="T, U") == {"T", "U"}
    assert topics(topicPattern="[TU]") == {"T", "U"}
    name = rows(broker, ["brokerName"], topic="U")[0]["brokerName"]
    chosen = rows(broker, ["queueId"], assign=f'{{"T":{{"{name}":[2]}}}}')
    assert {row["queueId"] for row in chosen} == {2}
    with pytest.raises(
        OptionError, match=r"assign names a queue that does not exist: topic T, .*queue 9"
    ):
        rows(broker, assign=f'{{"T":{{"{name}":[9]}}}}')
    with pytest.raises(OptionError, match="knows the topic Nosuch"):
        rows(broker, topic="Nosuch")


def test_offsets_and_times_say_where_to_begin_and_end(broker) -> None:
    everything = sorted(rows(broker, ["queueId", "queueOffset", "storeTimestamp", "brokerName"]),
                        key=lambda row: row["storeTimestamp"])  # fmt: skip
    name = everything[0]["brokerName"]
    spec = f'{{"T":{{"{name}":{{"0":5,"1":-2,"2":-1}}}}}}'
    found = rows(broker, ["queueId", "queueOffset"], startingOffsets=spec)
    assert {row["queueId"] for row in found} == {0, 1}
    assert min(row["queueOffset"] for row in found if row["queueId"] == 0) == 5
    assert len(rows(broker, ["queueId"], endingOffsets=spec)) == 5 + 0 + sum(
        row["queueId"] == 2 for row in everything
    )
    first, last = (everything[n]["storeTimestamp"] for n in (100, 200))
    found = rows(
        broker, ["storeTimestamp"], startingTimestamp=first.isoformat(),
        endingTimestamp=last.isoformat(),
    )  # fmt: skip
    expected = [row for row in everything if first <= row["storeTimestamp"] <= last]
    assert len(found) == len(expected)
    with pytest.raises(OptionError, match="startingOffsets has no offset for topic T"):
        rows(broker, startingOffsets='{"T":{}}')
    with pytest.raises(OptionError, match="no message is as new as startingTimestamp"):
        rows(broker, startingTimestamp="2100-01-01")
    later = {"startingTimestamp": "2100-01-01", "startingOffsetsByTimestampStrategy": "latest"}
    assert rows(broker, **later) == []


def test_each_queue_may_begin_and_end_at_a_time_of_its_own(broker) -> None:
    everything = rows(broker, ["queueId", "queueOffset", "storeTimestamp", "brokerName"])
    name = everything[0]["brokerName"]
    by_queue = {
        queue_id: [row["storeTimestamp"] for row in everything if row["queueId"] == queue_id]
        for queue_id in range(3)
    }
    times = {queue_id: each[len(each) // 2 + queue_id] for queue_id, each in by_queue.items()}
    spec = json.dumps(
        {"T": {name: {n: round(time.timestamp() * 1000) for n, time in times.items()}}}
    )
    from_then = rows(broker, ["queueId", "storeTimestamp"], startingOffsetsByTimestamp=spec)
    until_then = rows(broker, ["queueId", "storeTimestamp"], endingOffsetsByTimestamp=spec)
    for found, is_wanted in ((from_then, operator.ge), (until_then, operator.le)):
        for queue_id, time in times.items():
            assert len([row for row in found if row["queueId"] == queue_id]) == sum(
                is_wanted(each, time) for each in by_queue[queue_id]
            )
    both = rows(broker, ["queueId"], startingOffsetsByTimestamp=spec, startingTimestamp="0")
    assert len(both) == len(everything)  # one time for all wins, as in Spark's Kafka source
    late = json.dumps({"T": {name: dict.fromkeys(range(3), 4102444800000)}})
    with pytest.raises(OptionError, match="as new as startingOffsetsByTimestamp 4102444800000"):
        rows(broker, startingOffsetsByTimestamp=late)
    some = json.dumps({"T": {name: {0: 0}}})
    for option in ("startingOffsetsByTimestamp", "endingOffsetsByTimestamp"):
        with pytest.raises(OptionError, match=f"{option} does not name topic T, .*queue 1"):
            rows(broker, **{option: some})


def test_filters_narrow_the_ranges(broker) -> None:
    options = options_of(broker, topics="T,U")
    cluster = Cluster(options)
    queues = cluster.queues(options)

    def sizes(**filters):
        found = ranges(cluster, options, queues, filters)
        return {(each.queue.topic, each.queue.queue_id): each.size for each in found if each.size}

    assert sizes(topic=Bounds(frozenset({"U"}))) == {("U", 0): 1}
    assert set(sizes(queueId=Bounds(None, 1, 2))) == {("T", 1), ("T", 2)}
    assert sizes(topic=Bounds(frozenset({"T"})), queueOffset=Bounds(frozenset({3, 5}))) == {
        ("T", queue_id): 3 for queue_id in range(3)
    }
    assert sizes(storeTimestamp=Bounds(None, broker.now_ms + 1000)) == {}
    assert sizes(storeTimestamp=Bounds(None, None, 0)) == {}
    assert len(sizes(storeTimestamp=Bounds(None, 0, broker.now_ms))) == 4


def test_a_group_goes_on_where_it_committed(broker) -> None:
    options = options_of(broker, topic="U", consumerGroup="g", startingOffsets="group")
    cluster = Cluster(options)
    (queue,) = cluster.queues(options)
    assert starts(cluster, options, [queue], default="earliest") == {queue: 0}
    assert starts(cluster, options, [queue], default="latest") == {queue: 1}
    broker.create_group("g")
    cluster.commit_offset(queue, "g", 1)
    assert starts(cluster, options, [queue], default="earliest") == {queue: 1}


def test_offsets_beyond_what_is_there_are_data_loss(broker) -> None:
    name = rows(broker, ["brokerName"], topic="U")[0]["brokerName"]
    for key in ("startingOffsets", "endingOffsets"):
        spec = {key: f'{{"U":{{"{name}":{{"0":99}}}}}}'}
        with pytest.raises(DataLossError, match=r"topic U, .*queue 0: .*99.* ends at 1"):
            rows(broker, topic="U", **spec)
        expected = 0 if key == "startingOffsets" else 1
        assert len(rows(broker, topic="U", failOnDataLoss="false", **spec)) == expected


class Answers:
    """A puller with prepared answers by offset."""

    def __init__(self, **answers: PullAnswer) -> None:
        self.answers = {int(key[1:]): answer for key, answer in answers.items()}

    def pull(self, queue, offset, **_):
        return self.answers[offset]


GONE = QueueRange(Queue("T", "b", 0), 5, 20)


@pytest.mark.parametrize(
    ("answers", "lost"),
    [
        ({"a5": PullAnswer(ResponseCode.PULL_OFFSET_MOVED, b"", 0, 12, 12, 30),
          "a12": PullAnswer(ResponseCode.PULL_RETRY_IMMEDIATELY, b"", 0, 20, 12, 30)}, "[5, 12)"),
        ({"a5": PullAnswer(ResponseCode.PULL_OFFSET_MOVED, b"", 0, 0, 0, 3)}, "[5, 20)"),
        ({"a5": PullAnswer(ResponseCode.PULL_NOT_FOUND, b"", 0, 5, 0, 5)}, "[5, 20)"),
        ({"a5": PullAnswer(ResponseCode.PULL_RETRY_IMMEDIATELY, b"", 0, 9, 0, 30),
          "a9": PullAnswer(ResponseCode.PULL_OFFSET_MOVED, b"", 0, 40, 40, 50)}, "[9, 20)"),
    ],
    ids=["expired", "recreated", "nothing there", "expired meanwhile"],
)  # fmt: skip
def test_messages_that_went_while_they_were_read_are_named(broker, answers, lost, caplog) -> None:
    for fails in ("true", "false"):
        options = options_of(broker, failOnDataLoss=fails)
        request = message_request(options, ("body",))
        reading = read_range(Answers(**answers), options, request, GONE)
        if fails == "true":
            with pytest.raises(DataLossError) as caught:
                list(reading)
            assert f"topic T, broker b, queue 0: the messages {lost} are gone" in str(caught.value)
        else:
            assert list(reading) == []
            assert f"the messages {lost} are gone" in caplog.text


def test_an_answer_that_cannot_be_read_or_leads_nowhere_is_an_error(broker) -> None:
    options = options_of(broker)
    request = message_request(options, ("body",))
    bad = Answers(a5=PullAnswer(ResponseCode.SUCCESS, b"x" * 200, 0, 20, 0, 30))
    with pytest.raises(SparkConnectorError, match="bytes that are not messages"):
        list(read_range(bad, options, request, GONE))
    stuck = Answers(a5=PullAnswer(ResponseCode.SUCCESS, b"", 0, 5, 0, 30))
    with pytest.raises(SparkConnectorError, match="pull at 5 with the next offset 5"):
        list(read_range(stuck, options, request, GONE))


def test_a_reader_that_is_left_early_leaves_nothing_behind(broker) -> None:
    options = options_of(broker, arrowBatchRows="1", pullBatchSize="1")
    request = message_request(options, ("body",))
    cluster = Cluster(options)
    found = ranges(cluster, options, cluster.queues(options), {})
    reading = read_range(cluster, options, request, found[0])
    next(reading)
    reading.close()
    assert stops(cluster, options, [found[0].queue]) == {found[0].queue: found[0].end}


def test_a_body_that_does_not_inflate_is_named_or_given_as_it_is(broker) -> None:
    broker.create_topic("Packed", queues=1)
    with Producer(broker.url, group="p") as producer:
        for _ in range(2):
            producer.send(Message("Packed", b"packed" * 2000))
    options = options_of(broker, topic="Packed")
    cluster = Cluster(options)
    (part,) = ranges(cluster, options, cluster.queues(options), {})
    pull = {"count": 9, "group": "g", "subscription": subscription_of(options, "Packed")}
    answer = cluster.pull(part.queue, 0, **pull)
    raw = answer.body
    stored = RecordColumns(raw, walk(raw, 0, len(raw))[0]).bodies[1].as_py()
    assert len(stored) < 12000
    broken = (
        raw[: raw.rindex(stored)] + bytes(len(stored)) + raw[raw.rindex(stored) + len(stored) :]
    )
    bad = Answers(a0=answer._replace(body=broken))
    with pytest.raises(
        SparkConnectorError, match=r"topic Packed, .*queue 0, offset 1: the body is"
    ):
        list(read_range(bad, options, message_request(options, ("body",)), part))
    as_it_is = options_of(broker, topic="Packed", decompress="false")
    (batch,) = read_range(bad, as_it_is, message_request(as_it_is, ("body",)), part)
    assert batch.to_pylist()[1]["body"] == bytes(len(stored))


def slow_read(broker, topic, **given):
    """A read of one queue that has its first message, and will pull for each of the others."""
    broker.create_topic(topic, queues=1)
    with Producer(broker.url, group="p") as producer:
        for number in range(5):
            producer.send(Message(topic, str(number)))
    options = options_of(broker, topic=topic, arrowBatchRows="1", pullBatchSize="1", **given)
    cluster = Cluster(options)
    (part,) = ranges(cluster, options, cluster.queues(options), {})
    reading = read_range(cluster, options, message_request(options, ("body",)), part)
    return next(reading), reading


def test_a_broker_that_starts_again_while_it_is_read_costs_nothing(broker) -> None:
    first, others = slow_read(broker, "Restarted", numRetries="100")
    broker.restart()
    bodies = [row["body"] for batch in (first, *others) for row in batch.to_pylist()]
    assert bodies == [b"0", b"1", b"2", b"3", b"4"]


def test_a_topic_that_is_deleted_while_it_is_read_is_named_with_the_place(broker) -> None:
    _, others = slow_read(broker, "Deleted")
    broker.delete_topic("Deleted")
    with pytest.raises(
        SparkConnectorError, match=r"topic Deleted, .*queue 0, offset 1: the topic was"
    ):
        list(others)


def test_a_broker_that_is_gone_while_it_is_read_is_named_with_the_place() -> None:
    with Broker() as lost:
        _, others = slow_read(lost, "Lost", numRetries="1")
    text = r"topic Lost, .*queue 0: pulling the messages \[1, 5\) failed 2 times: 127\.0"
    with pytest.raises(SparkConnectorError, match=text):
        list(others)


def test_a_name_server_that_is_not_there_is_named() -> None:
    options = source_options(
        {"nameServer": "127.0.0.1:1", "topic": "T", "numRetries": "1", "retryIntervalMs": "1"}
    )
    with pytest.raises(Exception, match=r"127\.0\.0\.1:1"):
        Cluster(options).queues(options)


def test_the_size_of_the_next_messages_is_known_by_some_of_them(broker) -> None:
    cluster = Cluster(options_of(broker))
    only = next(each for each in cluster.queues(options_of(broker, topic="U")))
    size = cluster.mean_size(only, 0, "g")
    assert size is not None
    assert 91 + len("oneU") < size < 400
    assert cluster.mean_size(only, 1, "g") is None
