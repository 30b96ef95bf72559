"""Dead letters sent again: each once over many runs, as it was, and all of it written down."""

from __future__ import annotations

import json
import time
from collections import Counter

import pytest

pytest.importorskip("pyspark", reason="pyspark is of the extra `spark`")

from trocket.blocking import Message, Producer
from trocket.client.errors import ConnectError
from trocket.client.messages.message import MessageQueue, SendResult, SendStatus
from trocket.spark.jobs.demo.replay import fill
from trocket.spark.jobs.files import Files
from trocket.spark.jobs.replay import Replay, main, message
from trocket.testing import Broker

pytestmark = pytest.mark.slow


# ---- one run, without Spark --------------------------------------------------------------


def letter(number, **more) -> dict:
    """A dead letter."""
    return {
        "originId": f"id{number}", "consumerGroup": "g", "originTopic": "T", "topic": "%DLQ%g",
        "brokerName": "b", "queueId": 0, "queueOffset": number, "body": b"body", "keys": "k1 k2",
        "tags": "t", "flag": 7, "sentAt": None,
        "properties": {"own": "x", "KEYS": "k1 k2", "TAGS": "t", "RETRY_TOPIC": "T",
                       "__SHARDINGKEY": "s", "UNIQ_KEY": "u"},
        **more,
    }  # fmt: skip


class Sender:
    """Takes messages; refuses those with given REPLAY_IDs."""

    def __init__(self, refused=()) -> None:
        self.sent: list[Message] = []
        self.refused = refused

    def send_soon(self, message):
        self.sent.append(message)
        return self.Delivery(message.properties["REPLAY_ID"] in self.refused)

    class Delivery:
        """What became of one."""

        def __init__(self, is_refused) -> None:
            self.is_refused = is_refused

        def result(self) -> SendResult:
            if self.is_refused:
                raise ConnectError("b", "gone")
            queue = MessageQueue(topic="T", broker_name="b", queue_id=0)
            return SendResult(SendStatus.FLUSH_DISK_TIMEOUT, "m", queue, 1, "o")


def play(letters, sender, **more):
    batches: list[list[dict]] = []
    replay = Replay("r", "", batches.append, sender, **more)
    is_through = replay.all(letters, 2)
    return replay, batches, is_through


def test_a_message_is_sent_as_it_was_and_says_that_it_is_again() -> None:
    again = message(letter(1), "T")
    assert (again.topic, again.body, again.tags, again.keys) == ("T", b"body", "t", "k1 k2")
    assert (again.sharding_key, again.flag) == ("s", 7)
    assert dict(again.properties) == {"own": "x", "REPLAY_ID": "id1", "REPLAY_TIMES": "1"}
    twice = message(letter(2, properties={"REPLAY_TIMES": "4", "REPLAY_ID": "id1"}), "T")
    assert twice.properties == {"REPLAY_TIMES": "5", "REPLAY_ID": "id2"}


def test_each_has_a_line_and_batches_are_written_as_they_are_done() -> None:
    sender = Sender(refused=["id2"])
    letters = [letter(1), letter(2), letter(1), letter(3, originTopic=None),
               letter(4, sentAt="2026-11-22T10:00:00Z")]  # fmt: skip
    replay, batches, is_through = play(letters, sender)
    assert [len(batch) for batch in batches] == [2, 2, 1]
    lines = [(line["status"], line["why"].split(":")[0]) for batch in batches for line in batch]
    assert lines == [
        ("sent", "stored, but FLUSH_DISK_TIMEOUT"),
        ("failed", "b"),
        ("skipped", "the same message is among the dead letters more than once"),
        ("skipped", "its original topic is unknown; choose one with --to"),
        ("skipped", "sent before, at 2026-11-22T10"),
    ]
    assert [each.properties["REPLAY_ID"] for each in sender.sent] == ["id1", "id2"]
    assert (batches[0][0]["messageId"], batches[0][0]["place"]) == ("m", "b/%DLQ%g/0/1")
    assert replay.counts == {"sent": 1, "failed": 1, "skipped": 3}
    assert is_through


def test_after_too_many_failures_it_is_given_up_at_the_end_of_a_batch() -> None:
    refused = [f"id{number}" for number in range(9)]
    _, batches, is_through = play(map(letter, range(9)), Sender(refused), failures_max=3)
    assert len(batches) == 2
    assert not is_through


def test_the_rate_is_kept() -> None:
    begin_s = time.monotonic()
    play(map(letter, range(6)), Sender(), rate=50)
    assert time.monotonic() - begin_s >= 5 / 50


# ---- runs --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def filled(spark):
    """A broker with dead letters, and what is known of them."""
    with Broker() as broker:
        yield broker, fill(broker.namesrv_address, 120, seed=21)


def run(broker, capsys, *flags, status=0) -> dict:
    capsys.readouterr()
    given = ["--name-server", broker.namesrv_address, "--json", "--rate", "0", *flags]
    assert main(given) == status
    return json.loads(capsys.readouterr().out)


def again(broker) -> Counter:
    """How often each order was sent again."""
    return Counter(
        json.loads(each.body)["order"]
        for topic in ("TopicOrder", "TopicPayment")
        for each in broker.messages(topic)
        if "REPLAY_ID" in each.properties
    )


@pytest.mark.matrix
def test_each_is_sent_once_over_runs_of_which_one_is_killed(
    filled, spark, tmp_path, capsys, monkeypatch
) -> None:
    broker, answers = filled
    audit = tmp_path / "audit"
    orders = {order for orders in answers["dead"].values() for order in orders}
    flags = ["--audit", str(audit), "--batch", "5"]

    found = run(broker, capsys, *flags, "--dry-run")
    assert (found["to send"], found["skipped"]) == (len(orders), answers["total"] - len(orders))
    assert not audit.exists()
    assert not again(broker)

    # Killed between the third batch and its lines.
    write, counts = Files.write, Counter()

    def broken(self, name, text) -> None:
        counts["writes"] += 1
        if counts["writes"] == 3:
            raise KeyboardInterrupt
        write(self, name, text)

    with monkeypatch.context() as patch:
        patch.setattr(Files, "write", broken)
        assert main(["--name-server", broker.namesrv_address, "--rate", "0", *flags]) == 130
    # What it did not write is not known: at most a batch is sent twice.
    assert run(broker, capsys, *flags)["failed"] == 0
    found = run(broker, capsys, *flags)
    assert (found["sent"], found["skipped"]) == (0, answers["total"])
    sent = again(broker)
    assert set(sent) == orders
    assert sum(sent.values()) == len(orders) + 5

    lines = spark.read.json(f"{audit}/*.jsonl").collect()
    assert Counter(line.status for line in lines)["sent"] == len(orders)
    one = next(line for line in lines if line.status == "sent")
    stored = [each for each in broker.messages(one.destination)
              if each.properties["UNIQ_KEY"] == one.messageId]  # fmt: skip
    assert stored[0].properties["REPLAY_ID"] == one.id
    assert stored[0].properties["KEYS"] == one["keys"]


def test_a_part_of_them_goes_elsewhere(filled, tmp_path, capsys) -> None:
    broker, _ = filled
    broker.create_topic("Elsewhere", queues=1)
    flags = ["--audit", str(tmp_path / "audit"), "--group", "demo-billing", "--where",
             "reason = 'NoStock'", "--to", "Elsewhere", "--limit", "3"]  # fmt: skip
    assert run(broker, capsys, *flags)["sent"] == 3
    assert run(broker, capsys, *flags)["sent"] == 3  # the next three
    dead = [each for each in broker.messages("%DLQ%demo-billing")
            if each.properties["reason"] == "NoStock"]  # fmt: skip
    found = broker.messages("Elsewhere")
    assert [each.body for each in found] == [each.body for each in dead[:6]]


def test_what_no_broker_takes_is_a_failure_with_its_reason(spark, tmp_path, capsys) -> None:
    with Broker(config={"autoCreateTopicEnable": "false"}) as broker:
        broker.create_topic("%DLQ%g", queues=1)
        with Producer(broker.url) as producer:
            producer.send(Message("%DLQ%g", "x"))
        flags = ["--audit", str(tmp_path), "--to", "Nosuch"]
        found = run(broker, capsys, *flags, status=1)
        assert (found["failed"], found["given up"]) == (1, False)
        assert "Nosuch" in found["by"][0]["why"]
        broker.create_topic("Nosuch", queues=1)
        assert run(broker, capsys, *flags)["sent"] == 1


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["--group", "nobody"], "the group nobody has no dead letters"),
        (["--where", "reason ="], "syntax"),
        (["--name-server", "127.0.0.1:1"], "127.0.0.1:1"),
    ],
    ids=str,
)
def test_what_cannot_be_done_is_one_line_and_status_2(
    filled, tmp_path, capsys, flags, text
) -> None:
    given = ["--name-server", filled[0].namesrv_address, "--audit", str(tmp_path / "a")]
    assert main([*given, *flags]) == 2
    assert text in capsys.readouterr().err.splitlines()[-1].lower()


def test_an_audit_that_is_none_is_refused_before_anything_is_sent(filled, tmp_path, capsys) -> None:
    (tmp_path / "x.jsonl").write_text("no JSON\n")
    given = ["--name-server", filled[0].namesrv_address, "--audit", str(tmp_path)]
    assert main(given) == 2
    assert "x.jsonl is not an audit of replay" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "text"),
    [([], "--audit is required"), (["--audit", "a", "--batch", "0"], "--batch must be")],
    ids=str,
)
def test_wrong_use_is_status_2(flags, text, capsys) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--name-server", "x", *flags])
    assert caught.value.code == 2
    assert text in " ".join(capsys.readouterr().err.replace("│", " ").split())
