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
from trocket.client.messages.message import MessageQueue, SendResult, SendStatus
from trocket.remoting.response_codes import ResponseCode
from trocket.spark.cluster import client_of
from trocket.spark.errors import OptionError, RowRefusedError, SparkConnectorError
from trocket.spark.sink_options import BAD_ROW, BAD_ROW_TOPIC, ROW_ID, row_layout, sink_options
from trocket.spark.sink_write import SinkWriter

MAP = pa.map_(pa.string(), pa.string())
SCHEMA = pa.schema(
    [
        ("topic", pa.string()), ("body", pa.binary()), ("tags", pa.string()),
        ("keys", pa.list_(pa.string())), ("properties", MAP), ("shardingKey", pa.string()),
        ("delayLevel", pa.int32()), ("deliverAt", pa.timestamp("us", tz="UTC")),
        ("flag", pa.int32()), ("brokerName", pa.string()), ("queueId", pa.int32()),
        ("id", pa.string()),
    ]
)  # fmt: skip
KINDS = {"topic": "string", "body": "binary", "tags": "string", "keys": "array<string>",
         "properties": "map<string,string>", "shardingKey": "string", "delayLevel": "int",
         "deliverAt": "timestamp", "flag": "int", "brokerName": "string",
         "queueId": "int"}  # fmt: skip


@pytest.fixture(scope="module")
def broker(broker):
    broker.create_topic("T", queues=4)
    broker.create_topic("U", queues=2)
    return broker


def batch(*rows):
    return pa.RecordBatch.from_pylist(list(rows), SCHEMA)


def write(broker, rows, *, row_id="q:0:0", **given):
    options = sink_options({"nameServer": broker.namesrv_address, **given})
    columns = KINDS if options.row_id == "auto" else {**KINDS, options.row_id: "string"}
    layout = row_layout(columns.items(), options)
    client = client_of(options)
    with Producer(client, group="g", message_size_max=options.max_message_size) as producer:
        return SinkWriter(producer, options, layout, row_id).write([batch(*rows)])


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


GOOD = {"topic": "Good", "body": b"x"}

BAD_ROWS = {
    "no body": ({"body": None}, "has no body"),
    "an empty body": ({"body": b""}, "has an empty body"),
    "too large a body": ({"body": b"x" * 4001}, "has a body of 4001 bytes, and maxMessageSize"),
    "no topic": ({"topic": None}, "has no topic"),
    "an empty topic": ({"topic": ""}, "has no topic"),
    "a blank topic": ({"topic": " "}, "the topic's name is blank"),
    "a topic with an illegal character": ({"topic": "a\x02b"}, "has an illegal character '\\x02'"),
    "too long a topic": ({"topic": "T" * 128}, "has 128 characters, at most 127 are allowed"),
    "a topic of the brokers": ({"topic": "SCHEDULE_TOPIC_XXXX"}, "is reserved for RocketMQ"),
    "a tag of a subscription": ({"tags": "a||b"}, "a message has one tag"),
    "a tag in spaces": ({"tags": " a"}, "remove the spaces around it"),
    "a tag with a control character": ({"tags": "a\x02b"}, "the message's properties"),
    "too long a tag": ({"tags": "t" * 40_000}, "the message's properties have 40"),
    "null among the keys": ({"keys": ["a", None]}, "None is not a str"),
    "a key with a space": ({"keys": ["a b"]}, "the key 'a b' is empty or has a blank"),
    "an empty key": ({"keys": ["a", ""]}, "the key '' is empty or has a blank"),
    "a reserved property": ({"properties": [("KEYS", "a")]}, "'KEYS' is reserved for RocketMQ"),
    "a property with a control character": ({"properties": [("n", "\x02")]}, "properties"),
    "a property without a name": ({"properties": [("", "v")]}, "the message's properties"),
    "too large properties": ({"properties": [("n", "v" * 40_000)]}, "at most 32767 are allowed"),
    "a negative delay level": ({"delayLevel": -1}, "give 1 to 18, or 0 for no delay"),
    "a delay level that no broker has": ({"delayLevel": 19}, "brokers have 18 levels"),
    "a delivery before 1970": ({"deliverAt": datetime(1969, 7, 20, tzinfo=UTC)}, "since 1970"),
    "a delivery after the timers": ({"deliverAt": datetime(2199, 1, 1, tzinfo=UTC)}, "delay time"),
    "a delivery after the year 9999": ({"deliverAt": 10**18}, "delay time"),
    "two delays": ({"delayLevel": 1, "deliverAt": datetime(2030, 1, 1, tzinfo=UTC)}, "several"),
    "a broker without a queue": ({"brokerName": "broker-a"}, "give both, or neither"),
    "a queue without a broker": ({"queueId": 0}, "give both, or neither"),
    "an empty broker": ({"brokerName": "", "queueId": 0}, "give both, or neither"),
    "a negative queue": ({"brokerName": "broker-a", "queueId": -1}, "names the queue -1 of"),
    "a queue that is not there": ({"brokerName": "broker-a", "queueId": 1}, "has 1 to write to"),
    "an id with a control character": ({"id": "a\x02b"}, "the message's properties"),
    "too long an id": ({"id": "i" * 40_000}, "the message's properties have 40"),
}


@pytest.mark.slow
@pytest.mark.parametrize("on_bad_row", ["fail", "Bad"])
@pytest.mark.parametrize(("wrong", "reason"), BAD_ROWS.values(), ids=BAD_ROWS)
def test_a_row_that_cannot_be_a_message_fails_its_task_or_goes_to_the_topic_for_bad_rows(
    broker, wrong, reason, on_bad_row
) -> None:
    for topic in ("Bad", "Good"):
        broker.delete_topic(topic)
        broker.create_topic(topic, queues=1)
    bad = {**GOOD, "body": b"bad", "id": "1", **wrong}
    rows = [{**GOOD, "body": b"one", "id": "0"}, bad, {**GOOD, "body": b"two", "id": "2"}]
    given = {"rowId": "id", "maxMessageSize": "4000", "onBadRow": on_bad_row}
    if on_bad_row == "fail":
        with pytest.raises(RowRefusedError, match="of this task") as caught:
            write(broker, rows, **given)
        assert reason in str(caught.value)
        return
    assert write(broker, rows, **given).row_count == 3
    assert [message.body for message in broker.messages("Good")] == [b"one", b"two"]
    (found,) = broker.messages("Bad")
    assert found.body == (bad["body"] or b"-")[:4000]
    assert reason in found.properties[BAD_ROW].replace("\n", " ")
    assert found.properties[ROW_ID] == bad["id"].replace("\x02", " ")[:2000]
    assert found.properties.get(BAD_ROW_TOPIC, "") == (bad["topic"] or "").replace("\x02", " ")


@pytest.mark.slow
def test_a_row_without_a_place_in_an_order_goes_to_the_topic_for_bad_rows(broker) -> None:
    broker.create_topic("Unordered", queues=1)
    rows = [{"topic": "Ordered", "body": b"x"}, {"topic": "Ordered", "body": b"y",
            "shardingKey": "k"}]  # fmt: skip
    write(broker, rows, ordered="true", onBadRow="Unordered")
    (found,) = broker.messages("Unordered")
    assert (found.body, found.properties[BAD_ROW_TOPIC]) == (b"x", "Ordered")


@pytest.mark.slow
def test_a_topic_for_bad_rows_that_takes_none_fails_the_task(broker) -> None:
    with pytest.raises(RowRefusedError, match="cannot become a message"):
        write(broker, [{"topic": "T", "body": None}], onBadRow="no topic")


@pytest.mark.slow
def test_rows_that_each_fit_are_not_refused_together(broker) -> None:
    broker.create_topic("Small", queues=1)
    rows = [{"topic": "Small", "body": b"x" * 900, "keys": ["k" * 900]} for _ in range(10)]
    assert write(broker, rows, maxMessageSize="1000").row_count == 10
    assert len(broker.messages("Small")) == 10


@pytest.mark.slow
@pytest.mark.parametrize("ordered", ["true", "false"])
def test_rows_with_keys_go_into_a_topic_that_they_create(broker, ordered) -> None:
    topic = f"New-{ordered}"
    rows = [{"topic": topic, "body": b"%d" % n, "shardingKey": f"s{n % 5}"} for n in range(20)]
    assert write(broker, rows, ordered=ordered, batchSize="3").row_count == 20
    queues: dict[str, set[int]] = {}
    for message in broker.messages(topic):
        queues.setdefault(message.properties["__SHARDINGKEY"], set()).add(message.queue_id)
    assert len(queues) == 5
    assert all(len(found) == 1 for found in queues.values())


@pytest.mark.slow
def test_rows_with_queues_go_into_a_topic_that_they_create(broker) -> None:
    row = {"topic": "NewQueue", "body": b"x", "brokerName": "broker-a", "queueId": 3}
    assert write(broker, [row]).row_count == 1
    assert [message.queue_id for message in broker.messages("NewQueue")] == [3]


class Flaky:
    """A sender whose first tries fail, or whose stores are not safe; its topic has one queue.

    Args:
      unknown: how often no name server knows the topic.
    """

    def __init__(self, *failures, status=SendStatus.SEND_OK, unknown=0) -> None:
        self.failures = list(failures)
        self.status = status
        self.unknown = unknown
        self.sent = []

    def queues(self, topic):
        if self.unknown:
            self.unknown -= 1
            raise RouteNotFoundError(17, "No topic route info", "n:1", "GET_ROUTEINFO_BY_TOPIC")
        return [QUEUE]

    def send(self, message, *, queue, timeout_s):
        return self.send_batch([message], queue=queue, timeout_s=timeout_s)

    def send_batch(self, messages, *, queue, timeout_s):
        if self.failures:
            raise self.failures.pop(0)
        self.sent += messages
        return SendResult(self.status, "id", queue or QUEUE, 0, "offset")


QUEUE = MessageQueue(topic="T", broker_name="b", queue_id=0)


def flaky(sender, row, **given):
    options = sink_options({"nameServer": "a:1", "retryIntervalMs": "0", **given})
    layout = row_layout([("body", "binary"), ("topic", "string"), ("brokerName", "string"),
                         ("queueId", "int"), ("shardingKey", "string")], options)  # fmt: skip
    schema = pa.schema([("body", pa.binary()), ("topic", pa.string()),
                        ("brokerName", pa.string()), ("queueId", pa.int32()),
                        ("shardingKey", pa.string())])  # fmt: skip
    rows = pa.RecordBatch.from_pylist([row], schema)
    return SinkWriter(sender, options, layout, None).write([rows])


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
    assert flaky(Flaky(unknown=2), row, numRetries="2").row_count == 1
    with pytest.raises(RouteNotFoundError):
        flaky(Flaky(unknown=2), row, numRetries="1")


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
