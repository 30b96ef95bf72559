"""Commands that administer a cluster: statistics, progress, upkeep, and the live table."""

from __future__ import annotations

import json
import os
import pty
import queue
import select
import sys
import threading
from collections.abc import Iterator

import anyio
import pytest

from trocket import blocking
from trocket.cli.top import Order, _selection, _shares, span_text
from trocket.client import Admin, Message, MessageQueue, Producer, PullConsumer
from trocket.operations.sampling import Sample
from trocket.remoting.bodies import RegisterBrokerBody, TopicConfig, TopicConfigSerializeWrapper
from trocket.remoting.headers import RegisterBrokerRequestHeader
from trocket.remoting.request_codes import RequestCode
from trocket.testing import Broker

from .conftest import Run

TIMEOUT_S = 30.0


@pytest.fixture(scope="module")
def broker(broker: Broker) -> Broker:
    broker.create_topic("T", 1)
    broker.create_group("g")
    broker.create_topic("Live", 1)
    anyio.run(traffic, broker, backend="trio")
    broker.advance(minutes=2)
    return broker


async def traffic(broker: Broker) -> None:
    """Three messages in T, of which the group g consumed one."""
    async with Admin(broker.url) as admin:
        async with Producer(admin.client) as producer:
            for _ in range(3):
                await producer.send(Message("T", "x"))
        async with PullConsumer(admin.client, group="g") as consumer:
            await consumer.commit({MessageQueue("T", "broker-a", 0): 1})


# Brokers and name servers


@pytest.mark.slow
def test_how_brokers_run(run: Run) -> None:
    ((name, broker_id, address, version, *_),) = run("broker", "stats").rows
    assert (name, broker_id, version[:3]) == ("broker-a", "0", "V5_")
    (found,) = run("broker", "stats", "--json").json
    assert found["address"] == address
    assert found["putTotal"] >= 3
    one = dict(row for row in run("broker", "stats", "broker-a").rows)
    assert one["texts.brokerVersionDesc"] == one["version"] == version
    assert one["isActive"] == "yes"
    assert run("broker", "stats", "broker-a", "--json").json["texts"]["brokerActive"] == "true"


@pytest.mark.slow
def test_counters_and_consume_stats(run: Run) -> None:
    assert len(run("broker", "counter", "broker-a", "TOPIC_PUT_NUMS", "T").rows) == 3
    assert run("broker", "counter", "broker-a", "TOPIC_PUT_NUMS", "T", "--json").json["minute"]
    nothing = run("broker", "counter", "broker-a", "TOPIC_PUT_NUMS", "NoSuch")
    assert (nothing.status, nothing.out) == (1, "")
    assert "counted nothing as TOPIC_PUT_NUMS NoSuch" in nothing.err
    rows = run("broker", "consume-stats", "broker-a", "--min-lag", "1").rows
    assert ["g", "T", "0", "1", "3", "2"] in [row[:6] for row in rows]
    tree = run("broker", "consume-stats", "broker-a", "--json").json
    assert tree["lag"] >= 2
    (group,) = [each for each in tree["groups"] if each["group"] == "g"]
    assert (group["lag"], group["queues"][0]["lag"]) == (2, 2)


@pytest.mark.slow
def test_cleaning_and_permissions(run: Run) -> None:
    words = ("--expired-log", "--expired-queues", "--unused-topics", "--yes")
    done = {name: ["broker-a"] for name in ("expiredLog", "expiredQueues", "unusedTopics")}
    assert run("broker", "clean", "--json", *words).json == {"cleaned": done}
    assert len(run("broker", "clean", "broker-a", *words).rows) == 3
    ((server, count),) = run("broker", "wipe-write-perm", "broker-a", "--yes").rows
    assert run("broker", "add-write-perm", "broker-a", "--json").json == {
        "topics": {server: int(count)}
    }
    assert run("broker", "ha", "broker-a", "--json").json["master"] is True
    assert run("broker", "ha", "broker-a").rows == []


def test_values_of_name_servers(run: Run) -> None:
    assert run("namesrv", "kv", "set", "app", "k", "v").status == 0
    assert run("namesrv", "kv", "get", "app", "k").rows == [["v"]]
    assert run("namesrv", "kv", "list", "app", "--json").json == {"k": "v"}
    assert run("namesrv", "kv", "delete", "app", "k", "--yes", "--json").json == {"deleted": "k"}
    ended = run("namesrv", "kv", "get", "app", "k")
    assert (ended.status, ended.err) == (
        1,
        "trocket: the name server keeps nothing under k of app\n",
    )


# Topics and groups


@pytest.mark.slow
def test_statistics_of_a_topic(run: Run) -> None:
    stats = run("topic", "stats", "T", "--json").json
    assert [(queue["begin"], queue["end"]) for queue in stats["queues"]] == [(0, 3)]
    assert run("topic", "stats", "T").rows[0][:5] == ["broker-a", "0", "0", "3", "3"]
    assert run("topic", "groups", "T").rows == [["g", "-"]]
    units = run("topic", "units", "T", "broker-a:0", "--from", "1", "--json").json
    assert [unit["queueOffset"] for unit in units] == [1, 2]
    assert [row[0] for row in run("topic", "units", "T", "broker-a:0").rows] == ["0", "1", "2"]
    assert run("topic", "perm", "T", "r", "--yes").rows == [["broker-a"]]
    assert run("topic", "perm", "T", "RW", "--yes", "--json").json == {"changed": ["broker-a"]}
    assert run("topic", "allocate", "T", "b", "a").rows == [["broker-a", "0", "a"]]


@pytest.mark.slow
def test_queues_of_an_ordered_topic(run: Run) -> None:
    assert run("topic", "order-conf", "T").status == 1
    changed = run("topic", "order-conf", "T", "--set", "broker-a=2", "--yes", "--json")
    assert changed.json == {"broker-a": 2}
    assert run("topic", "order-conf", "T").rows == [["broker-a", "2"]]
    deleted = run("topic", "order-conf", "T", "--delete", "--yes", "--json")
    assert deleted.json == {"deleted": "T"}
    assert run("topic", "order-conf", "T", "--delete", "--yes").out == ""


@pytest.mark.slow
def test_progress(run: Run) -> None:
    one = run("group", "progress", "g", "--json").json
    assert (one["lag"], one["clients"], one["deadLetters"]) == (2, [], 0)
    assert one["delayS"] > 60  # the broker's clock was advanced
    first, total, *_ = run("group", "progress", "g", "--owners").rows
    assert first[:6] == ["T", "broker-a", "0", "1", "3", "2"]
    assert (total[0], total[5]) == ("total", "2")
    assert ["g", "0", "-", "-", "0.0", "2", "0", "0"] in run("group", "progress").rows
    every = run("group", "progress", "--all", "--json").json
    assert {"g", "TOOLS_CONSUMER"} <= {each["group"] for each in every}
    assert run("group", "topics", "g").rows == [["T"]]
    ended = run("group", "status", "g")
    assert (ended.status, ended.err) == (1, "trocket: no member of the group g is connected\n")
    ((_, _, first_ms, *_),) = run("offset", "times", "g", "T").rows
    assert first_ms != "-"
    assert run("offset", "correction", "g", "T", "--json").json == {"broker-a": {"0": 1}}


def test_the_groups_of_a_message(run: Run) -> None:
    message_id = run("message", "--topic", "T", "--time", "0", "--json").json_lines[2]["msgId"]
    shown = run("message", message_id, "--track", "--json").json
    assert {"group": "g", "state": "NOT_ONLINE"} in shown["track"]
    assert ["g", "NOT_ONLINE"] in run("message", message_id, "--track").rows
    assert run("message", "--topic", "T", "--time", "0", "--track").status == 2


@pytest.mark.slow
def test_offsets_are_cloned(run: Run) -> None:
    assert run("group", "create", "copy").status == 0
    planned = run("offset", "clone", "g", "copy", "T", "--dry-run").rows
    assert planned == [["broker-a", "0", "-", "1"]]
    assert run("offset", "clone", "g", "copy", "T", "--yes", "--json").json[0]["after"] == 1
    assert run("lag", "copy", "--json").json["lag"] == 2
    assert run("group", "delete", "copy", "--yes").status == 0


@pytest.mark.slow
def test_producers_members_and_a_message_consumed_at_once(run: Run, broker: Broker) -> None:
    consumer = blocking.PushConsumer(broker.url, group="live", subscriptions={"Live": "*"})
    with blocking.Producer(broker.url, group="makers") as producer, consumer:
        sent = producer.send(Message("Live", "hello"))
        handled: queue.Queue[str] = queue.Queue()
        thread = threading.Thread(
            target=consumer.run, args=(lambda message: handled.put(message.text),)
        )
        thread.start()
        # Until its heartbeat reached the broker; pytest's own limit ends it.
        while not run("producers", "makers").rows:
            pass
        ((group, client_id, *_),) = run("producers", "makers", "--broker", "broker-a").rows
        assert group == "makers"
        assert run("producers", "nosuch").rows == []
        assert client_id in {each["clientId"] for each in run("producers", "--json").json}
        while run("group", "status", "live").status != 0:
            pass
        (status,) = run("group", "status", "live", "--stacks", "--json").json
        assert {"Live", "%RETRY%live"} == {each["topic"] for each in status["subscriptions"]}
        consume = ("group", "consume", "live", sent.offset_message_id, "--topic", "Live", "--yes")
        done = run(*consume, "--json").json
        while done["result"] != "CR_SUCCESS":  # until its handler is there
            done = run(*consume, "--json").json
        assert done["clientId"] == status["clientId"]
        assert handled.get(timeout=TIMEOUT_S) == "hello"
        unknown = run(*consume, "--client", "nosuch")
        assert (unknown.status, unknown.out) == (1, "")
        consumer.close()
        thread.join(TIMEOUT_S)


# The live table


@pytest.mark.slow
def test_top_measures_once(run: Run) -> None:
    words = ("top", "--once", "--interval", "0.1")
    sample = run(*words, "--json").json
    assert [(each["broker"], each["error"]) for each in sample["brokers"]] == [("broker-a", "")]
    (topic,) = [each for each in sample["topics"] if each["topic"] == "T"]
    (group,) = [each for each in sample["groups"] if each["group"] == "g"]
    assert (topic["inRate"], topic["lag"], group["lag"]) == (0.0, 2, 2)
    assert group["delayS"] > 60
    kinds = [row[0] for row in run(*words, "--filter", "T").rows]
    assert (kinds[:2], "topic" in kinds, "group" in kinds) == (["time", "broker"], True, True)
    names = {each["topic"] for each in run(*words, "--all", "--json").json["topics"]}
    assert {"T", "TBW102"} <= names


@pytest.mark.slow
def test_top_on_a_terminal_ends_with_ctrl_c(broker: Broker) -> None:
    """Ctrl-C reaches it by the terminal, and ends it with 130."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(ROCKETMQ_URL=broker.url, TERM="xterm", COLUMNS="120", LINES="40")
        os.execv(sys.executable, [sys.executable, "-m", "trocket.cli.main", "top"])
    shown = b""
    try:
        while b"Retries" not in shown:
            readable, _, _ = select.select([terminal], [], [], TIMEOUT_S)
            assert readable, shown
            shown += os.read(terminal, 65536)
        assert b"broker-a" in shown
        os.write(terminal, b"\x03")
        while _read(terminal):
            pass
    finally:
        _, status = os.waitpid(pid, 0)
        os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 130


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # the other end is closed
        return b""


def test_rows_are_sorted_and_fit() -> None:
    assert _shares(30, [2, 5, 100]) == [2, 5, 23]
    assert _shares(9, [0, 50, 50]) == [0, 4, 4]
    assert _shares(1, [9, 9]) == [3, 3]
    texts = [span_text(each) for each in (None, 0.0, 59.94, 310, 7500, 273_600)]
    assert texts == ["-", "0.0s", "59.9s", "5m10s", "2h05m", "3d04h"]
    select_in = _selection(Order.IN, "")
    empty = Sample(0, (), (), ())
    assert select_in(empty) == empty


# What goes wrong


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("broker", "clean"), "--expired-queues or --unused-topics"),
        (("broker", "clean", "--expired-log"), "Add --yes to confirm"),
        (("broker", "clean", "b", "--cluster", "c", "--expired-log"), "not both"),
        (("broker", "wipe-write-perm", "broker-a"), "Add --yes to confirm"),
        (("broker", "--log-level", "info", "stats"), "put flags after the command"),
        (("broker", "stats", "--cluster", "nosuch"), "there are: DefaultCluster"),
        (("broker", "nosuch"), "nosuch"),
        (("group", "progress", "--owners"), "need a GROUP"),
        (("group", "consume", "g", "id"), "Add --yes to confirm"),
        (("offset", "clone", "g", "g", "T", "--yes"), "another group"),
        (("topic", "units", "T", "0"), "not BROKER:ID"),
        (("topic", "units", "T", "b:99999999999"), "not BROKER:ID"),
        (("topic", "perm", "T", "X", "--yes"), "not RW, R or W"),
        (("topic", "order-conf", "T", "--set", "b=x"), "not BROKER=QUEUES"),
        (("topic", "order-conf", "T", "--set", "b=1", "--delete"), "not both"),
        (("producers", "--broker", "b", "--cluster", "c"), "not both"),
        (("namesrv", "kv", "delete", "a", "b"), "Add --yes to confirm"),
        (("top", "--sort", "size"), "size"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_wrong_usage_is_status_2(run: Run, words: tuple[str, ...], text: str) -> None:
    ended = run(*words)
    assert (ended.status, ended.out) == (2, "")
    assert text in ended.err


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("broker", "stats", "nosuch"), "no broker is called 'nosuch'; there are: broker-a"),
        (("broker", "clean", "nosuch", "--expired-log", "--yes"), "no broker is called 'nosuch'"),
        (("broker", "add-write-perm", "nosuch"), "there are: broker-a"),
        (("topic", "stats", "NoSuch"), "there is no topic 'NoSuch'"),
        (("topic", "groups", "NoSuch"), "there is no topic 'NoSuch'"),
        (("topic", "units", "NoSuch", "broker-a:0"), "NoSuch"),
        (("topic", "perm", "NoSuch", "R", "--yes"), "there is no topic 'NoSuch'"),
        (("lag", "nosuch"), "there is no group 'nosuch'"),
        (("group", "consume", "g", "id", "--yes"), "no member of the group g is connected"),
        (("offset", "clone", "nosuch", "g", "T", "--yes"), "there is no group 'nosuch'"),
        (("offset", "times", "g", "NoSuch"), "there is no topic 'NoSuch'"),
        (("top", "--once", "--url", "127.0.0.1:1"), "no name server answered"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_is_not_there_is_one_line(run: Run, words: tuple[str, ...], text: str) -> None:
    ended = run(*words)
    assert (ended.status, ended.out) == (1, "")
    assert text in ended.err
    assert ended.err.startswith("trocket: ")
    assert ended.err.count("\n") == 1


@pytest.fixture
def dead_broker(broker: Broker) -> Iterator[None]:
    """A second broker that the name server knows, as long as this lasts, and that is not there."""
    header = RegisterBrokerRequestHeader(
        broker_name="broker-dead",
        broker_addr="127.0.0.1:1",
        cluster_name="DefaultCluster",
        broker_id=0,
        ha_server_addr="127.0.0.1:2",
    )
    topics = {
        name: TopicConfig(topic_name=name, read_queue_nums=1, write_queue_nums=1)
        for name in ("T", "%DLQ%g")
    }
    body = RegisterBrokerBody(TopicConfigSerializeWrapper(topic_config_table=topics)).to_body()
    with blocking.Client(broker.url) as client:
        client.request(broker.namesrv_address, RequestCode.REGISTER_BROKER, header, body)
        yield


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("broker", "stats"),
        ("topic", "stats", "T"),
        ("topic", "groups", "T"),
        ("group", "progress"),
        ("group", "progress", "g"),
        ("offset", "times", "g", "T"),
        ("top", "--once", "--interval", "0.1"),
    ],
    ids=" ".join,
)
def test_what_other_brokers_tell_is_printed_before_the_error(
    run: Run, dead_broker: None, words: tuple[str, ...]
) -> None:
    ended = run(*words, "--json")
    assert ended.status == 1
    assert json.loads(ended.out)
    *warnings, last = ended.err.splitlines()
    assert "broker-dead: 127.0.0.1:1: cannot connect" in last
    assert all("no connection to 127.0.0.1:1" in each for each in warnings)
