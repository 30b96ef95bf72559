"""Rows become messages that are stored, or the task fails with the row's name."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is of the extra `spark`")

import pyarrow as pa

from trocket.blocking import Producer
from trocket.client.errors import (
    Attempt,
    ConnectError,
    RequestTimeoutError,
    RouteNotFoundError,
    SendError,
    server_error,
)
from trocket.client.message import MessageQueue, SendResult, SendStatus
from trocket.remoting.bodies import BrokerData, QueueData, TopicRouteData
from trocket.remoting.response_codes import ResponseCode
from trocket.spark.cluster import client_of
from trocket.spark.errors import OptionError, RowRefusedError, SparkConnectorError
from trocket.spark.sink_options import BAD_ROW, BAD_ROW_TOPIC, ROW_ID, row_layout, sink_options
from trocket.spark.sink_write import SinkWriter
from trocket.testing import Broker

MAP = pa.map_(pa.string(), pa.string())
SCHEMA = pa.schema(
    [
        ("topic", pa.string()), ("body", pa.binary()), ("tags", pa.string()),
        ("keys", pa.list_(pa.string())), ("properties", MAP), ("shardingKey", pa.string()),
        ("delayLevel", pa.int32()), ("deliverAt", pa.timestamp("us", tz="UTC")),
        ("flag", pa.int32()),
    ]
)  # fmt: skip
KINDS = {"topic": "string", "body": "binary", "tags": "string", "keys": "array<string>",
         "properties": "map<string,string>", "shardingKey": "string", "delayLevel": "int",
         "deliverAt": "timestamp", "flag": "int"}  # fmt: skip


@pytest.fixture(scope="module")
def broker():
    with Broker() as broker:
        broker.create_topic("T", queues=4)
        broker.create_topic("U", queues=2)
        yield broker


def batch(*rows):
    return pa.RecordBatch.from_pylist(list(rows), SCHEMA)


def write(broker, rows, *, row_id="q:0:0", **given):
    options = sink_options({"nameServer": broker.namesrv_address, **given})
    layout = row_layout(KINDS.items(), options)
    client = client_of(options)
    with Producer(client, group="g") as producer:
        return SinkWriter(producer, client, options, layout, row_id).write([batch(*rows)])


@pytest.mark.slow
def test_every_column_becomes_what_it_says(broker) -> None:
    row = {"topic": "U", "body": b"all", "tags": "tag", "keys": ["k1", "k2"],
           "properties": [("n", "1"), ("none", None)], "shardingKey": "s", "flag": 7}  # fmt: skip
    assert write(broker, [row, {"topic": "U", "body": b"plain"}], batchSize="1") == (2, 2)
    found = {message.body: message for message in broker.messages("U")}
    message = found[b"all"]
    assert (message.tags, message.keys, message.flag) == ("tag", "k1 k2", 7)
    assert message.properties["n"] == "1"
    assert "none" not in message.properties
    assert message.properties["__SHARDINGKEY"] == "s"
    assert message.properties[ROW_ID] == "q:0:0:0"
    assert found[b"plain"].properties[ROW_ID] == "q:0:0:1"
    assert found[b"plain"].tags is None


@pytest.mark.slow
def test_rows_go_together_and_all_are_stored(broker) -> None:
    rows = [{"topic": "T", "body": b"%d" % n, "tags": f"t{n % 3}"} for n in range(1000)]
    written = write(broker, rows, batchSize="100")
    assert written == (1000, 10)
    messages = broker.messages("T")
    assert sorted(int(message.body) for message in messages) == list(range(1000))
    assert {message.properties[ROW_ID] for message in messages} == {
        f"q:0:0:{n}" for n in range(1000)
    }


@pytest.mark.slow
def test_a_sharding_key_is_one_queue_and_ordered_keeps_its_order(broker) -> None:
    broker.create_topic("O", queues=3)
    rows = [{"topic": "O", "body": b"%d" % n, "shardingKey": f"s{n % 5}"} for n in range(500)]
    write(broker, rows, ordered="true", batchSize="7")
    queues: dict[str, set[int]] = {}
    for message in broker.messages("O"):
        queues.setdefault(message.properties["__SHARDINGKEY"], set()).add(message.queue_id)
    assert all(len(found) == 1 for found in queues.values())
    by_queue: dict[int, list[int]] = {}
    for message in sorted(broker.messages("O"), key=lambda m: (m.queue_id, m.queue_offset)):
        by_queue.setdefault(message.queue_id, []).append(int(message.body))
    assert all(numbers == sorted(numbers) for numbers in by_queue.values())
    with pytest.raises(RowRefusedError, match="row 0 of this task has neither shardingKey"):
        write(broker, [{"topic": "O", "body": b"x"}], ordered="true")


@pytest.mark.slow
def test_delayed_rows_go_alone_and_come_when_they_are_due(broker) -> None:
    broker.create_topic("D", queues=1)
    later = datetime.fromtimestamp(broker.now_ms / 1000 + 60, UTC)
    rows = [{"topic": "D", "body": b"level", "delayLevel": 5}, {"topic": "D", "body": b"now"},
            {"topic": "D", "body": b"time", "deliverAt": later}]  # fmt: skip
    assert write(broker, rows).row_count == 3
    assert {message.body for message in broker.messages("D")} == {b"now"}
    broker.advance(minutes=2)
    assert {message.body for message in broker.messages("D")} == {b"now", b"level", b"time"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("row", "given", "text"),
    [
        ({"body": None, "topic": "T"}, {}, "row 0 of this task has no body: {'topic': 'T'}"),
        ({"body": b"x"}, {}, "row 0 of this task has no topic"),
        ({"body": b"x" * 11, "topic": "T"}, {"maxMessageSize": "10"}, "a body of 11 bytes"),
        (
            {"body": b"x", "topic": "T", "properties": [("KEYS", "a")]},
            {},
            "is reserved for Rocke",
        ),
    ],
    ids=["no body", "no topic", "too large", "a reserved name"],
)
def test_a_row_that_cannot_be_a_message_is_named(broker, row, given, text) -> None:
    with pytest.raises(RowRefusedError) as caught:
        write(broker, [row], **given)
    assert text in str(caught.value)


@pytest.mark.slow
def test_rows_that_cannot_be_messages_go_to_a_topic_of_their_own(broker) -> None:
    broker.create_topic("Bad", queues=1)
    broker.create_topic("Good", queues=1)
    rows = [{"topic": "Good", "body": b"one"}, {"topic": "Good", "body": None}, {"body": b"where"},
            {"topic": "Good", "body": b"x" * 11},
            {"topic": "Good", "body": b"name", "properties": [("KEYS", "a")]},
            {"topic": "Good", "body": b"two"}]  # fmt: skip
    assert write(broker, rows, onBadRow="Bad", maxMessageSize="10").row_count == 6
    assert [message.body for message in broker.messages("Good")] == [b"one", b"two"]
    bad = {message.properties[ROW_ID]: message for message in broker.messages("Bad")}
    bodies = {row_id: message.body for row_id, message in bad.items()}
    assert bodies == {"q:0:0:1": b"-", "q:0:0:2": b"where", "q:0:0:3": b"x" * 10,
                      "q:0:0:4": b"name"}  # fmt: skip
    assert "has no body" in bad["q:0:0:1"].properties[BAD_ROW]
    assert "KEYS" in bad["q:0:0:4"].properties[BAD_ROW]
    assert bad["q:0:0:4"].properties[BAD_ROW_TOPIC] == "Good"
    with pytest.raises(RowRefusedError, match="cannot become a message"):
        write(broker, [{"topic": "Good", "body": None}], onBadRow="no topic")


class Flaky:
    """A sender whose first tries fail, or whose stores are not safe."""

    def __init__(self, *failures, status=SendStatus.SEND_OK) -> None:
        self.failures = list(failures)
        self.status = status
        self.sent = []

    def send(self, message, *, queue, timeout_s):
        return self.send_batch([message], queue=queue, timeout_s=timeout_s)

    def send_batch(self, messages, *, queue, timeout_s):
        if self.failures:
            raise self.failures.pop(0)
        self.sent += messages
        return SendResult(self.status, "id", queue or QUEUE, 0, "offset")


QUEUE = MessageQueue(topic="T", broker_name="b", queue_id=0)


class Routes:
    """Of a topic with one queue, which is not known for the first `unknown` times."""

    def __init__(self, unknown=0) -> None:
        self.unknown = unknown

    def with_namespace(self, resource):
        return resource

    def route(self, topic):
        if self.unknown:
            self.unknown -= 1
            raise RouteNotFoundError(17, "No topic route info", "n:1", "GET_ROUTEINFO_BY_TOPIC")
        return TopicRouteData(
            queue_datas=[QueueData("b", 1, 1, 6, 0)],
            broker_datas=[BrokerData(cluster="c", broker_name="b", broker_addrs={0: "b:1"})],
        )


def flaky(sender, row, routes=None, **given):
    options = sink_options({"nameServer": "a:1", "retryIntervalMs": "0", **given})
    layout = row_layout([("body", "binary"), ("topic", "string"), ("brokerName", "string"),
                         ("queueId", "int"), ("shardingKey", "string")], options)  # fmt: skip
    schema = pa.schema([("body", pa.binary()), ("topic", pa.string()),
                        ("brokerName", pa.string()), ("queueId", pa.int32()),
                        ("shardingKey", pa.string())])  # fmt: skip
    rows = pa.RecordBatch.from_pylist([row], schema)
    return SinkWriter(sender, routes or Routes(), options, layout, None).write([rows])


NAMED = {"body": b"x", "topic": "T", "brokerName": "b", "queueId": 0}


AWAY = ConnectError("b", "no name server has the address of its master")
BUSY = server_error(ResponseCode.SYSTEM_BUSY, "busy", "b:1", "SEND_MESSAGE_V2")
CLOSING = server_error(ResponseCode.SERVICE_NOT_AVAILABLE, "", "b:1", "SEND_MESSAGE_V2")
DENIED = server_error(ResponseCode.NO_PERMISSION, "no", "b:1", "SEND_MESSAGE_V2")
NOT_CONFIRMED = SendError("T", [Attempt("b", 0.1, DENIED), Attempt("b", 0.1, AWAY)])


@pytest.mark.parametrize(
    "failures", [[AWAY, BUSY], [NOT_CONFIRMED, CLOSING], [RequestTimeoutError("SEND", "b:1", 3)]]
)
def test_rows_wait_for_a_broker_that_is_away_as_long_as_the_options_say(failures) -> None:
    assert flaky(Flaky(*failures), NAMED, numRetries="2").row_count == 1
    text = r"1 rows for .* were not stored: .*; raise numRetries or retryIntervalMs"
    with pytest.raises(SparkConnectorError, match=text):
        flaky(Flaky(*failures), NAMED, numRetries=str(len(failures) - 1))


def test_what_does_not_get_better_is_not_tried_again() -> None:
    with pytest.raises(SparkConnectorError, match="were not stored"):
        flaky(Flaky(DENIED), NAMED)


def test_a_topic_is_waited_for_where_rows_choose_their_queues() -> None:
    row = {"body": b"x", "topic": "T", "shardingKey": "k"}
    assert flaky(Flaky(), row, Routes(unknown=2), numRetries="2").row_count == 1
    with pytest.raises(RouteNotFoundError):
        flaky(Flaky(), row, Routes(unknown=2), numRetries="1")


def test_what_is_not_stored_safely_is_a_failure_unless_allowed() -> None:
    with pytest.raises(SparkConnectorError, match="not safely: FLUSH_DISK_TIMEOUT"):
        flaky(Flaky(status=SendStatus.FLUSH_DISK_TIMEOUT), NAMED)
    sender = Flaky(status=SendStatus.FLUSH_DISK_TIMEOUT)
    assert flaky(sender, NAMED, requireFlushed="false").row_count == 1


@pytest.mark.parametrize(
    ("columns", "given", "text"),
    [
        ({"topic": "string"}, {}, "needs a column body"),
        ({"body": "binary"}, {}, "needs the option topic, or a column topic"),
        ({"body": "int"}, {"topic": "T"}, "body is int, and must be binary or string: cast it"),
        ({"body": "string", "tag": "string"}, {"topic": "T"}, "'tag'; did you mean tags"),
        (
            {"body": "string", "queueId": "int"},
            {"topic": "T"},
            "queueId and brokerName go together",
        ),
        ({"body": "string"}, {"topic": "T", "ordered": "true"}, "ordered=true needs a column"),
        ({"body": "string", "id": "int"}, {"topic": "T", "rowId": "id"}, "column of type string"),
        ({"body": "string"}, {"topic": "T", "batchsise": "3"}, "did you mean batchSize"),
    ],
    ids=str,
)
def test_columns_and_options_that_cannot_be_right(columns, given, text) -> None:
    with pytest.raises(OptionError) as caught:
        row_layout(columns.items(), sink_options({"nameServer": "a:1", **given}))
    assert text in str(caught.value)
