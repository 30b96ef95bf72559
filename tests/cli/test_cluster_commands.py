"""Every command that talks to a cluster, against a broker of our own; JSON and lines."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from trocket import ConsumeFromWhere, Message
from trocket.blocking import Producer, PushConsumer
from trocket.testing import Broker

from .conftest import Command, Run

TIMEOUT_S = 30.0


@pytest.fixture
def topic(run: Run, request: pytest.FixtureRequest) -> Iterator[str]:
    """A topic of two queues, gone after the test."""
    name = f"T{abs(hash(request.node.name)):x}"
    assert run("topic", "create", name, "--queues", "2").status == 0
    yield name
    run("topic", "delete", name, "--yes")


# Topics and groups


@pytest.mark.slow
def test_topics(run: Run) -> None:
    words = ("--queues", "2", "--read-queues", "3", "--perm", "r", "-a", "message.type=FIFO")
    assert run("topic", "create", "Made", *words, "--json").json == {"created": "Made"}
    assert ["Made"] in run("topic", "list").rows
    assert "Made" in run("topic", "list", "--json").json
    assert "TBW102" in run("topic", "list", "--all", "--json").json
    shown = run("topic", "show", "Made", "--json").json
    (on,) = shown["brokers"]
    assert (on["readQueues"], on["writeQueues"], on["perm"]) == (3, 2, 4)
    assert on["attributes"] == {"message.type": "FIFO"}
    assert [queue["queueId"] for queue in shown["queues"]] == [0, 1, 2]
    rows = run("topic", "show", "Made").rows
    assert rows[0] == ["broker-a", "DefaultCluster", "3", "2", "R", "message.type=FIFO"]
    assert len(rows) == 4
    assert run("topic", "delete", "Made", "--yes", "--json").json == {"deleted": "Made"}
    assert "Made" not in run("topic", "list", "--json").json


@pytest.mark.slow
def test_groups(run: Run) -> None:
    made = run("group", "create", "made", "--retries", "3", "--orderly", "--set", "brokerId=1")
    assert (made.status, made.out) == (0, "")
    assert ["made"] in run("group", "list").rows
    assert "TOOLS_CONSUMER" in run("group", "list", "--all", "--json").json
    shown = run("group", "show", "made", "--json").json
    settings = shown["settings"]["broker-a"]
    assert settings["retryMaxTimes"] == 3
    assert settings["consumeMessageOrderly"] is True
    assert settings["brokerId"] == 1
    assert shown["members"]["clients"] == []
    assert run("group", "show", "made").rows == [["broker-a", "yes", "yes", "yes", "3", "1"]]
    assert run("group", "clients", "made", "--json").json == []
    assert run("group", "clients", "made", "--producers", "--json").json == []
    assert run("group", "delete", "made", "--yes", "--json").json == {"deleted": "made"}
    assert run("group", "show", "made").status == 1


# Sending and reading


def test_send_tells_where_each_message_is(run: Run, topic: str) -> None:
    (row,) = run("send", topic, "hello", "--tag", "A", "--key", "k", "--property", "a=b").rows
    message_id, broker_name, queue_id, offset = row
    assert (broker_name, offset) == ("broker-a", "0")
    found = run("message", message_id, "--topic", topic, "--json")
    while found.status != 0:  # until the index has it; pytest's own limit ends it
        found = run("message", message_id, "--topic", topic, "--json")
    message = found.json
    assert (message["body"], message["queueId"]) == ("hello", int(queue_id))
    properties = message["properties"]
    assert (properties["TAGS"], properties["KEYS"], properties["a"]) == ("A", "k", "b")
    (confirmed,) = run("send", topic, "again", "--json").json_lines
    assert confirmed["status"] == "SEND_OK"
    assert run("message", confirmed["msgId"], "--json").json["body"] == "again"


@pytest.mark.slow
def test_send_repeats_reads_lines_and_sends_batches(run: Run, topic: str) -> None:
    assert len(run("send", topic, "x", "--count", "300").rows) == 300
    assert len(run("send", topic, "-", stdin="a\nb\n\nc").rows) == 3
    batch = run("send", topic, "-", "--batch", "2", "--json", stdin="1\r\n2\n3\n").json_lines
    assert [each["queueOffset"] - batch[0]["queueOffset"] for each in batch[:2]] == [0, 1]
    assert batch[0]["queueId"] == batch[1]["queueId"]
    assert len({each["messageId"] for each in batch}) == len({e["msgId"] for e in batch}) == 3
    bodies = run("consume", topic, "--raw").out.split("\n")
    assert sorted(bodies) == sorted(["", "1", "2", "3", "a", "b", "c", *["x"] * 300])


@pytest.mark.slow
def test_send_in_order_and_later(run: Run, topic: str, broker: Broker) -> None:
    rows = run("send", topic, "x", "--count", "5", "--sharding-key", "one").rows
    assert len({queue_id for _, _, queue_id, _ in rows}) == 1
    assert run("send", topic, "late", "--delay-level", "3").status == 0
    assert run("send", topic, "later", "--delay", "60").status == 0
    assert run("consume", topic, "--raw").out == "x\n" * 5
    broker.advance(minutes=2)
    assert sorted(run("consume", topic, "--raw").out.split()) == ["late", "later", *["x"] * 5]


@pytest.mark.slow
def test_what_consume_writes_send_copies(run: Run, topic: str) -> None:
    run("send", topic, "grüße", "--tag", "A", "--key", "k1", "--key", "k2", "--property", "p=v")
    run("send", topic, "-", stdin="plain\n")
    lines = run("consume", topic, "--json").out
    assert run("topic", "create", "Copy", "--queues", "1").status == 0
    assert len(run("send", "Copy", "--json", stdin=lines).json_lines) == 2
    copied = run("consume", "Copy", "--json").json_lines
    by_body = {each["body"]: each["properties"] for each in copied}
    assert by_body.keys() == {"grüße", "plain"}
    of = by_body["grüße"]
    assert (of["TAGS"], of["KEYS"], of["p"]) == ("A", "k1 k2", "v")
    assert run("topic", "delete", "Copy", "--yes").status == 0


@pytest.mark.slow
def test_consume_reads_what_is_asked_for(run: Run, topic: str) -> None:
    (first, *_) = run("send", topic, "a", "--tag", "A", "--key", "k", "--count", "2").rows
    run("send", topic, "b", "--tag", "B", "--count", "2")
    queue = f"{first[1]}:{first[2]}"

    def bodies(*words: str) -> list[str]:
        return [each["body"] for each in run("consume", topic, "--json", *words).json_lines]

    assert sorted(bodies()) == ["a", "a", "b", "b"]
    assert bodies("--tag", "A") == ["a", "a"]
    assert sorted(bodies("--tag", "A || B")) == ["a", "a", "b", "b"]
    assert bodies("--key", "k") == ["a", "a"]
    assert bodies("--count", "3") == bodies()[:3]
    assert bodies("--from", "end") == []
    assert bodies("--from", "99") == []
    assert len(bodies("--from", "1")) == 2
    assert len(bodies("--from", "1h")) == 4
    assert sorted(bodies("--queue", queue)) == sorted(bodies("--queue", first[2])) == ["a", "b"]
    assert len(run("consume", topic).out.splitlines()) == 4


@pytest.mark.slow
def test_consume_follows_until_nothing_comes_or_enough_came(run: Run, topic: str) -> None:
    run("send", topic, "old")
    words = ("consume", topic, "--follow", "--raw")
    assert run(*words, "--from", "begin", "--count", "1").out == "old\n"
    assert run(*words, "--idle", "0.05").out == ""


@pytest.mark.slow
def test_a_group_goes_on_where_it_was(run: Run, topic: str) -> None:
    run("send", topic, "a", "--count", "3")
    words = ("consume", topic, "--group", f"g_{topic}", "--from", "begin", "--raw")
    assert run(*words, "--count", "2").out == "a\na\n"
    assert run(*words, "--idle", "0.3").out == "a\n"
    lag = run("lag", f"g_{topic}", "--topic", topic, "--json").json
    assert (lag["lag"], lag["topics"]) == (0, {topic: 0})


def test_sql_is_the_brokers(run: Run, topic: str) -> None:
    ended = run("consume", topic, "--sql", "a > 1")
    assert ended.status in (0, 1)
    assert "Traceback" not in ended.err


# Messages


@pytest.mark.slow
def test_messages_by_key_by_time_and_dead_ones(run: Run, topic: str) -> None:
    run("send", topic, "one", "--key", "k")
    words = ("message", "--topic", topic)
    found = run(*words, "--key", "k", "--json")
    while found.status != 0:  # until the index has it
        found = run(*words, "--key", "k", "--json")
    assert [each["body"] for each in found.json_lines] == ["one"]
    assert run(*words, "--time", "1h").out.rstrip().endswith("  one")
    assert run(*words, "--time", "1h", "--until", "1m").err == "trocket: no such message\n"
    assert run("message", "--dlq", "nobody").status == 1
    whole = run("message", found.json_lines[0]["msgId"]).out
    assert f"topic:       {topic}\n" in whole
    assert "  KEYS = k\n" in whole
    assert whole.endswith("\none\n")


@pytest.mark.slow
def test_the_timeline_of_a_message(run: Run, broker: Broker, topic: str) -> None:
    own = f"{topic}_trace"
    assert run("topic", "create", own, "--queues", "1").status == 0
    missing = run("trace", "7F00000124A551B6EF5F6C42A3AC0000")
    assert missing.status == 1
    assert "no broker has the trace topic RMQ_SYS_TRACE_TOPIC: set traceTopicEnable" in missing.err
    with Producer(broker.url, group="shop", trace=own) as producer:
        sent = producer.send(Message(topic, "one", tags="t", keys="k"))
        producer.send(Message(own, b"?\x02", keys=sent.message_id))  # it cannot be read
    with PushConsumer(
        broker.url,
        group=f"g_{topic}",
        subscriptions={topic: "*"},
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        trace=own,
    ) as consumer:
        consumer.receive().ack()
    words = ("trace", sent.message_id, "--trace-topic", own)
    found = run(*words, "--json")
    while found.status != 0 or not found.json["consumptions"]:  # until the index has them
        found = run(*words, "--json")
    tree = found.json
    assert found.err == f"trocket: 1 records in {own} cannot be read\n"
    assert tree["messageId"] == sent.message_id
    (send,) = tree["sends"]
    assert (send["group"], send["kind"], send["isSuccess"]) == ("shop", "NORMAL", True)
    (consumption,) = tree["consumptions"]
    assert (consumption["group"], consumption["outcome"]) == (f"g_{topic}", "SUCCESS")
    shown = run(*words)
    rows = [[row[1], row[2], row[3], row[5], row[6]] for row in shown.rows]
    details = f"{topic} on {broker.broker_address}, 3 bytes, tags=t, keys=k"
    assert rows == [
        ["send", "shop", "127.0.0.1", "stored", details],
        ["consume", f"g_{topic}", "127.0.0.1", "success", ""],
    ]
    run("topic", "delete", own, "--yes")
    run("group", "delete", f"g_{topic}", "--yes")


# Offsets, lag, cluster


@pytest.mark.slow
def test_offsets_and_lag(run: Run, topic: str) -> None:
    run("send", topic, "a", "--count", "4")
    assert [q["end"] for q in run("offset", "show", topic, "--json").json] == [2, 2]
    assert [row[2:5] for row in run("offset", "show", topic).rows] == [["0", "2", "2"]] * 2
    group = f"g_{topic}"
    assert run("group", "create", group).status == 0
    assert "has no offsets" in run("lag", group).err
    rows = run("lag", group, "--topic", topic).rows
    assert [row[:6] for row in rows] == [
        [topic, "broker-a", "0", "-", "2", "2"],
        [topic, "broker-a", "1", "-", "2", "2"],
        ["total", "", "", "", "", "4"],
    ]
    reset = ("offset", "reset", group, topic, "--json")
    planned = run(*reset, "--to", "end", "--dry-run").json
    assert [(each["before"], each["after"]) for each in planned] == [(None, 2), (None, 2)]
    assert run(*reset, "--to", "1", "--yes").status == 0
    assert run(*reset, "--to", "0", "--queue", "broker-a:1", "--yes").status == 0
    assert run("lag", group, "--json").json["lag"] == 3
    assert run(*reset, "--to", "1h", "--yes").status == 0
    assert run(*reset[:-1], "--to", "end", "--yes").rows == [
        ["broker-a", "0", "0", "2"],
        ["broker-a", "1", "0", "2"],
    ]
    assert run("lag", group, "--json").json["lag"] == 0
    run("group", "delete", group, "--yes")


def test_the_cluster(run: Run, broker: Broker) -> None:
    view = run("cluster", "--json").json
    assert view["nameServers"] == [broker.namesrv_address]
    assert view["brokers"][0]["addresses"] == {"0": broker.broker_address}
    assert run("cluster").rows == [["DefaultCluster", "broker-a", "0", broker.broker_address]]
    for words in (("info",), ("config",)):
        ended = run("cluster", *words, "nosuch")
        assert (ended.status, ended.err) == (
            1,
            "trocket: no broker is called 'nosuch'; there are: broker-a\n",
        )


def test_bench_measures_and_leaves_nothing(run: Run) -> None:
    before = run("topic", "list", "--json").json
    sent, consumed = run("bench", "--count", "50", "--size", "10", "--json").json
    assert (sent["what"], sent["messages"], sent["bytes"]) == ("send", 50, 500)
    assert (consumed["what"], consumed["messages"], consumed["bytes"]) == ("consume", 50, 500)
    assert 0 < sent["p50Ms"] <= sent["p99Ms"] <= sent["maxMs"]
    assert run("topic", "list", "--json").json == before


def test_bench_of_one_half_uses_a_topic_that_stays(run: Run, topic: str) -> None:
    words = ("--topic", topic, "--count", "20", "--json")
    assert [each["what"] for each in run("bench", "send", *words).json] == ["send"]
    assert [each["messages"] for each in run("bench", "consume", *words).json] == [20]
    assert run("bench", *words).rows
    assert run("bench", "consume").status == 2


# What goes wrong


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("topic", "list"),
        ("group", "list"),
        ("cluster",),
        ("lag", "g"),
        ("send", "T", "x"),
        ("consume", "T"),
        ("consume", "T", "--group", "g"),
        ("message", "--topic", "T", "--key", "k"),
        ("offset", "show", "T"),
        ("bench",),
    ],
    ids=" ".join,
)
def test_a_port_that_nobody_listens_on_is_one_line(run: Run, words: tuple[str, ...]) -> None:
    address = f"127.0.0.1:{free_port()}"
    ended = run(*words, "--url", address)
    assert (ended.status, ended.out, ended.err.count("\n")) == (1, "", 1)
    assert ended.err.startswith(f"trocket: {address}: no name server answered: ")
    assert "cannot connect" in ended.err


def test_a_host_that_nobody_knows_is_one_line(run: Run) -> None:
    ended = run("topic", "list", "-n", "host.invalid:9876")
    assert (ended.status, ended.out, ended.err.count("\n")) == (1, "", 1)
    assert "host.invalid:9876" in ended.err


@pytest.mark.parametrize(
    "words",
    [
        ("topic", "show", "Nosuch"),
        ("topic", "delete", "Nosuch", "--yes"),
        ("consume", "Nosuch"),
        ("consume", "Nosuch", "--group", "g"),
        ("offset", "show", "Nosuch"),
        ("offset", "reset", "g", "Nosuch", "--to", "end", "--yes"),
        ("message", "--topic", "Nosuch", "--key", "k"),
        ("lag", "g", "--topic", "Nosuch"),
    ],
    ids=" ".join,
)
def test_a_topic_that_is_not_there_is_one_line(run: Run, words: tuple[str, ...]) -> None:
    ended = run(*words)
    assert (ended.status, ended.out, ended.err.count("\n")) == (1, "", 1)
    assert "Nosuch" in ended.err


def test_ids_and_groups_that_are_not_there(run: Run, topic: str) -> None:
    ended = run("message", "nonsense", "--topic", topic)
    assert (ended.status, ended.out) == (1, "")
    assert ended.err == f"trocket: no message with the id nonsense is in the topic {topic}\n"
    for words in (("lag", "nobody"), ("group", "show", "nobody")):
        ended = run(*words)
        assert (ended.status, ended.out) == (1, "")
        assert ended.err.startswith("trocket: there is no group 'nobody'; ")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("send", "T"), "nothing to send"),
        (("send", "T", "-", "--count", "2"), "--count needs a BODY"),
        (("send", "T", "--json", "--tag", "A"), "into each message"),
        (("send", "T", "x", "--property", "a"), "'a' is not NAME=VALUE"),
        (("consume", "T", "--tag", "A", "--sql", "B"), "not both"),
        (("consume", "T", "--raw", "--json"), "not both"),
        (("consume", "T", "--group", "g", "--from", "5"), "trocket offset reset"),
        (("consume", "T", "--group", "g", "--queue", "1"), "shared by its members"),
        (("consume", "T", "--queue", "x"), "neither ID nor BROKER:ID"),
        (("message",), "give an ID, or --topic"),
        (("message", "id", "--time", "1h"), "do not work with an ID"),
        (("message", "--topic", "T"), "give an ID, or --topic"),
        (("topic", "create", "T", "--perm", "X"), "not RW, R or W"),
        (("topic", "create", "T", "--cluster", "nosuch"), "there are: DefaultCluster"),
        (("topic", "delete", "T"), "Add --yes to confirm"),
        (("group", "create", "g", "--set", "x=1"), "a group has no setting 'x'"),
        (("group", "create", "g", "--set", "brokerId=x"), "brokerId=x"),
        (("group", "clients", "g", "--topic", "T"), "needs --producers"),
        (("offset", "reset", "g", "T", "--to", "end", "--queue", "b:1"), "needs --to with"),
        (("offset", "reset", "g", "T", "--to", "1", "--queue", "b"), "not BROKER:ID"),
        (("topic", "list", "--url", "http://host"), "write rocketmq://"),
        (("nosuch",), "nosuch"),
        (("topic", "nosuch"), "nosuch"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_wrong_usage_is_status_2(run: Run, words: tuple[str, ...], text: str) -> None:
    ended = run(*words)
    assert (ended.status, ended.out) == (2, "")
    assert text in ended.err
    assert "Traceback" not in ended.err


def test_a_bad_line_ends_a_send_after_what_came_before_it(run: Run, topic: str) -> None:
    ended = run("send", topic, "--json", stdin='{"body":"good"}\n\n{"bad":1}\n{"body":"never"}\n')
    assert ended.status == 1
    assert ended.out.count("\n") == 1
    error = json.loads(ended.err)["error"]
    assert error.startswith("line 3 of standard input: unknown member 'bad'")
    assert run("consume", topic, "--raw").out == "good\n"


def test_half_an_account_is_refused(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCKETMQ_ACCESS_KEY", "me")
    ended = run("topic", "list")
    assert ended.status == 2
    assert "ROCKETMQ_SECRET_KEY" in ended.err
    monkeypatch.setenv("ROCKETMQ_SECRET_KEY", "secret")
    assert run("topic", "list").status == 0


# Help, completion, processes


def trocket(*words: str, url: str, **options: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "trocket.cli.main", *words],
        env={**os.environ, "ROCKETMQ_URL": url},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **options,
    )


@pytest.mark.slow
def test_a_pipe_copies_a_topic(run: Run, topic: str, broker: Broker) -> None:
    run("send", topic, "x", "--tag", "A", "--count", "1000")
    run("topic", "create", "Piped", "--queues", "2")
    reader = trocket("consume", topic, "--json", url=broker.url)
    writer = trocket("send", "Piped", "--json", url=broker.url, stdin=reader.stdout)
    assert reader.stdout is not None
    reader.stdout.close()
    out, err = writer.communicate(timeout=TIMEOUT_S)
    assert (writer.returncode, err) == (0, b"")
    assert reader.wait(TIMEOUT_S) == 0
    assert reader.stderr is not None
    reader.stderr.close()
    assert out.count(b"\n") == 1000
    assert len(broker.messages("Piped")) == 1000
    assert {message.tags for message in broker.messages("Piped")} == {"A"}
    run("topic", "delete", "Piped", "--yes")


@pytest.mark.slow
def test_ctrl_c_ends_a_follower_quietly_with_130(run: Run, topic: str, broker: Broker) -> None:
    run("send", topic, "x")
    process = trocket("consume", topic, "-f", "--from", "begin", "--raw", url=broker.url)
    assert process.stdout is not None
    assert process.stdout.readline() == b"x\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, out, err) == (130, b"", b"")


@pytest.mark.slow
def test_ctrl_c_ends_a_send_that_waits_for_lines(run: Run, topic: str, broker: Broker) -> None:
    process = trocket("send", topic, "-", url=broker.url, stdin=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"sent\n")
    process.stdin.flush()
    assert b"broker-a" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    assert process.wait(TIMEOUT_S) == 130
    out, err = process.communicate()
    assert (out, err) == (b"", b"")
    assert run("consume", topic, "--raw").out == "sent\n"


@pytest.mark.slow
def test_a_reader_that_has_enough_is_no_traceback(run: Run, topic: str, broker: Broker) -> None:
    run("send", topic, "x" * 1000, "--count", "500")
    process = trocket("consume", topic, "--json", url=broker.url)
    assert process.stdout is not None
    assert process.stdout.readline()
    process.stdout.close()
    assert process.wait(TIMEOUT_S) == 1
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()


@pytest.mark.slow
def test_a_watched_lag_is_printed_repeatedly(run: Run, topic: str, broker: Broker) -> None:
    group = f"g_{topic}"
    run("group", "create", group)
    words = ("lag", group, "--topic", topic, "--watch", "--interval", "0.1", "--json")
    process = trocket(*words, url=broker.url)
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["lag"] == 0
    run("send", topic, "x")
    while json.loads(process.stdout.readline())["lag"] == 0:
        pass
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=TIMEOUT_S)[1] == b""
    assert process.returncode == 130


@pytest.mark.slow
def test_shell_completion_knows_the_commands() -> None:
    environment = {
        **os.environ,
        "_TROCKET_COMPLETE": "complete_bash",
        "COMP_WORDS": "trocket topic ",
        "COMP_CWORD": "2",
    }
    code = "import sys; from trocket.cli.main import main; sys.exit(main([]))"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert {"list", "show", "create", "delete", "stats"} <= set(done.stdout.split())


@pytest.mark.slow
def test_commands_do_not_import_the_client_before_they_run() -> None:
    script = (
        "import sys; from trocket.cli.app import make_app; make_app();"
        "print([n for n in ('trocket.client', 'trio', 'anyio', 'rich.table') if n in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


@pytest.mark.slow
def test_two_brokers_of_one_name_and_id_are_reported(
    start: Callable[..., Command], run: Run, tmp_path: Path
) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(
        "bindAddress=127.0.0.1\nlistenPort=0\nbrokerIP1=127.0.0.1\nbrokerName=twin\n"
        f"storePathRootDir={tmp_path}/store\npreallocateCommitLog=false\n"
    )
    with Broker(config={"brokerName": "twin"}) as broker:
        second = start("broker", "-c", str(conf), "-n", broker.namesrv_address)
        assert "boot success" in second.first_line()
        ended = run("cluster", "--url", broker.url, "--json")
        assert ended.json["warning"].startswith("broker twin id 0 is registered by several brokers")
        assert ended.err.startswith("trocket: warning: broker twin id 0 is registered by several")
        assert second.end(signal.SIGTERM)[2].count("broker twin id 0 is registered by several") == 1
