"""`trocket pop`: popped messages, and how groups get messages."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import anyio
import pytest

from trocket.client import Admin, Message, Producer
from trocket.remoting.headers import PopMessageRequestHeader
from trocket.remoting.request_codes import RequestCode
from trocket.testing import Broker

from .conftest import Run


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    # Check points stay in memory, however slow the machine is.
    with Broker(config={"popCkStayBufferTime": 600_000}) as running:
        yield running


@pytest.fixture
def topic(broker: Broker) -> str:
    """A topic with five messages, of which group g has popped three; the id of each is its key."""
    name = f"T{uuid.uuid4().hex}"

    async def prepare() -> None:
        async with Admin(broker.url) as admin:
            await admin.create_topic(name, 1)
            await admin.create_group("g")
            async with Producer(admin.client) as producer:
                for body in "abcde":
                    await producer.send(Message(name, body))
            header = PopMessageRequestHeader(
                consumer_group="g", topic=name, queue_id=0, max_msg_nums=3, invisible_time=60_000,
                poll_time=0, born_time=0, init_mode=0,
            )  # fmt: skip
            (found,) = (await admin.cluster()).brokers
            await admin.client.request(found.address, RequestCode.POP_MESSAGE, header)

    anyio.run(prepare, backend="trio")
    return name


def test_show_lists_queues_and_invisible_messages(run: Run, topic: str) -> None:
    queue, *messages = run("pop", "show", "g", topic).rows
    assert queue == [topic, "broker-a", "0", "0", "3", "5", "2", "3"]
    assert [row[:4] for row in messages] == [[topic, "broker-a", "0", str(at)] for at in range(3)]
    assert {row[6] for row in messages} == {"no"}
    assert messages[1][7].split(" ")[6:] == ["0", "1"]
    ended = run("pop", "show", "g", topic, "--limit", "1")
    assert (len(ended.rows), ended.err) == (
        2, "trocket: 2 more messages: --limit or --json shows them\n",
    )  # fmt: skip


@pytest.mark.slow
def test_show_has_json_and_finds_one_message(run: Run, topic: str) -> None:
    tree = run("pop", "show", "g", topic, "--json").json
    assert [message["offset"] for message in tree["messages"]] == [0, 1, 2]
    first = tree["messages"][0]
    assert first["visibleMs"] - first["poppedMs"] == 60_000
    listed = run("message", "--topic", topic, "--time", "1h", "--json").json_lines
    wanted = listed[1]["messageId"]
    tree = run("pop", "show", "g", topic, "--message", wanted, "--json").json
    assert [message["offset"] for message in tree["messages"]] == [1]
    last = listed[4]["messageId"]
    assert run("pop", "show", "g", topic, "--message", last, "--json").json["messages"] == []


@pytest.mark.slow
def test_a_mode_is_set_and_shown(run: Run, broker: Broker, topic: str) -> None:
    assert run("pop", "mode", "g", topic, "pop", "--share", "2").out == ""
    assert run("pop", "mode", "g").rows == [[topic, "g", "POP", "2", "broker-a"]]
    assert run("pop", "mode", "g", topic, "--json").json[0]["mode"] == "POP"
    assert run("pop", "mode", "h").err.startswith("trocket: there is no group 'h'")
    broker.create_group("h")
    none = run("pop", "mode", "h")
    assert (none.status, none.out) == (0, "")
    assert none.err.startswith("trocket: no broker has a mode for it: ")
    wrong = run("pop", "mode", "g", topic, "push")
    assert (wrong.status, wrong.err) == (
        2,
        "trocket: there is no mode 'push'; there are PULL, POP\n",
    )
    wrong = run("pop", "mode", "--share", "2")
    assert (wrong.status, "need GROUP" in wrong.err) == (2, True)
