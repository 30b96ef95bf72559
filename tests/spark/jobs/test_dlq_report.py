"""The report on dead letters that two groups really gave up: every count is the known one."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("pyspark", reason="pyspark is of the extra `spark`")

from trocket.blocking import Message, Producer
from trocket.spark.jobs.dead_letters import DeadLetterFlags, explained
from trocket.spark.jobs.demo.dlq_report import fill
from trocket.spark.jobs.dlq_report import main
from trocket.testing import Broker

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def filled(spark):
    """A broker with dead letters, and what is known of them."""
    with Broker() as broker:
        answers = fill(broker.namesrv_address, 200, seed=11)
        yield broker, answers


def report(broker, capsys, *flags, status=0) -> dict:
    capsys.readouterr()
    assert main(["--name-server", broker.namesrv_address, "--json", *flags]) == status
    return json.loads(capsys.readouterr().out)


def test_every_count_is_the_known_one(filled, capsys) -> None:
    broker, answers = filled
    found = report(broker, capsys, "--samples", "2", "--top", "3")
    assert found["dead letters"] == answers["total"] > 20
    ages = found["by"].pop("age")
    assert found["by"] == answers["by"]
    assert ages == {"under 1 h": answers["total"]}
    most = sorted(answers["keys"].items(), key=lambda each: (-each[1], each[0]))[:3]
    assert list(found["keys"].items()) == most
    assert found["oldest"] <= found["newest"]
    assert found["unreadable"] == []

    pairs = [(each["consumerGroup"], each["originTopic"]) for each in found["samples"]]
    assert pairs == [
        ("demo-billing", "TopicOrder"), ("demo-billing", "TopicOrder"),
        ("demo-billing", "TopicPayment"), ("demo-billing", "TopicPayment"),
        ("demo-shipping", "TopicOrder"), ("demo-shipping", "TopicOrder"),
    ]  # fmt: skip
    newest = broker.messages("%DLQ%demo-shipping")[-1]
    assert found["samples"][4]["body"] == newest.body.decode()


def test_flags_narrow_it(filled, capsys) -> None:
    broker, answers = filled
    customer, count = next(iter(answers["keys"].items()))
    assert report(broker, capsys, "--keys", f"nobody,{customer}")["dead letters"] == count
    wanted = [
        each.store_timestamp_ms for each in broker.messages("%DLQ%demo-billing")
        if each.properties["RETRY_TOPIC"] == "TopicOrder" and each.properties["TAGS"] != "tag1"
        and each.properties["reason"] == "Timeout"
    ]  # fmt: skip
    since, until = wanted[1], wanted[-1]
    flags = ["--pattern", ".*billing", "--origin-topic", "TopicOrder", "--tags", "tag0,tag2",
             "--since", str(since), "--until", str(until),
             "--where", "reason = 'Timeout'"]  # fmt: skip
    expected = [each for each in wanted if since <= each <= until]
    found = report(broker, capsys, *flags, "--samples", "0")
    assert found["dead letters"] == len(expected) > 0
    assert found["samples"] == []


def test_for_people_it_is_a_table(filled, capsys) -> None:
    broker, answers = filled
    assert main(["--name-server", broker.namesrv_address, "--group", "demo-shipping"]) == 0
    lines = capsys.readouterr().out.splitlines()
    count = answers["by"]["consumerGroup"]["demo-shipping"]
    assert f"consumerGroup\tdemo-shipping\t{count}" in lines
    assert f"reconsumeTimes\t2\t{count}" in lines


def test_properties_of_a_proxy_and_of_nobody_are_understood(spark) -> None:
    columns = ("topic string, brokerName string, queueId int, queueOffset bigint, uniqKey string,"
               " properties map<string,string>")  # fmt: skip
    both = {"DLQ_ORIGIN_TOPIC": "A", "RETRY_TOPIC": "B", "DLQ_ORIGIN_MESSAGE_ID": "one",
            "ORIGIN_MESSAGE_ID": "two", "why": "tired"}  # fmt: skip
    rows = [("%DLQ%g", "b", 0, 7, "U", both), ("%DLQ%g", "b", 0, 8, None, {})]
    given = DeadLetterFlags(name_server="n:1", reason_property="why")
    first, second = explained(spark.createDataFrame(rows, columns), given).collect()
    assert (first.consumerGroup, first.originTopic, first.originId) == ("g", "A", "A one U")
    assert first.reason == "tired"
    assert (second.originTopic, second.originId) == (None, "b/%DLQ%g/0/8")


def test_no_dead_letters_is_a_report_and_a_topic_that_nobody_may_read_a_finding(
    spark, capsys
) -> None:
    with Broker() as broker:
        assert report(broker, capsys)["dead letters"] == 0
        broker.create_topic("%DLQ%old", queues=1, perm=2)
        broker.create_topic("%DLQ%new", queues=1)
        with Producer(broker.url) as producer:
            producer.send(Message("%DLQ%new", b"\xff\x00"))
        found = report(broker, capsys, status=1)
        assert found["unreadable"] == ["%DLQ%old"]
        assert found["samples"][0]["body"] == "0xFF00"
        assert found["by"]["originTopic"] == {"": 1}


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["--group", "nobody"], "the group nobody has no dead letters"),
        (["--where", "colour = 1"], "colour"),
        (["--since", "yesterday"], "startingTimestamp must be ms since 1970"),
        (["--name-server", "127.0.0.1:1"], "127.0.0.1:1"),
    ],
    ids=str,
)
def test_what_cannot_be_done_is_one_line_and_status_2(filled, capsys, flags, text) -> None:
    assert main(["--name-server", filled[0].namesrv_address, *flags]) == 2
    assert text in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("flags", [["--group", "a", "--pattern", "b"], ["--pattern", "("]])
def test_wrong_use_is_status_2(flags, capsys) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--name-server", "x", *flags])
    assert caught.value.code == 2
    assert "--pattern" in " ".join(capsys.readouterr().err.replace("│", " ").split())
