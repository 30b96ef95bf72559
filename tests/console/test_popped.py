"""The page of popped messages of a group."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

import anyio
import pytest
import trio

from trocket.client import Admin, Message, Producer
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.headers import PopMessageRequestHeader
from trocket.remoting.request_codes import RequestCode
from trocket.remoting.response_codes import ResponseCode
from trocket.testing import Broker

from ..operations.peers import Group, Peer, broker_answers
from .running import Browser, logged_in, running_console


@pytest.fixture(scope="module")
def popped() -> Iterator[Broker]:
    """A group that has popped three of five messages."""

    async def prepare(broker: Broker) -> None:
        async with Admin(broker.url) as admin, Producer(admin.client) as producer:
            for body in "abcde":
                await producer.send(Message("jobs", body))
            header = PopMessageRequestHeader(
                consumer_group="workers", topic="jobs", queue_id=0, max_msg_nums=3,
                invisible_time=60_000, poll_time=0, born_time=0, init_mode=0,
            )  # fmt: skip
            (found,) = (await admin.cluster()).brokers
            await admin.client.request(found.address, RequestCode.POP_MESSAGE, header)

    # Check points stay in memory, however slow the machine is.
    with Broker(config={"popCkStayBufferTime": 600_000}) as running:
        running.create_topic("jobs", queues=1)
        running.create_group("workers")
        anyio.run(prepare, running)
        yield running


@pytest.fixture(scope="module")
def browser(popped: Broker) -> Iterator[Browser]:
    with running_console(popped.url) as (console, browser):
        yield logged_in(console, browser)


def test_popped_messages_say_where_they_are_and_until_when(browser: Browser) -> None:
    page = browser.get("popped.json", group="workers").tree
    assert [each["offset"] for each in page["messages"]] == [0, 1, 2]
    first = page["messages"][0]
    assert (first["topic"], first["brokerName"], first["queueId"]) == ("jobs", "broker-a", 0)
    assert first["visibleMs"] - first["poppedMs"] == 60_000
    (queue,) = page["queues"]
    assert (queue["popped"], queue["end"], queue["invisible"]) == (3, 5, 3)
    shown = browser.get("popped", group="workers").text
    assert shown.count("jobs broker-a 0") == 4
    assert "in memory" in shown
    table = browser.get("popped.csv", group="workers", topic="jobs").text
    assert [row["offset"] for row in csv.DictReader(io.StringIO(table))] == ["0", "1", "2"]


def test_a_group_that_pops_links_to_them(browser: Browser) -> None:
    assert 'href="/popped?group=workers"' in browser.get("group", group="workers").text


def test_a_topic_that_is_not_there_is_named(browser: Browser) -> None:
    answer = browser.get("popped", group="workers", topic="missing")
    assert answer.status == 502
    assert "missing" in answer.text
    assert browser.get("popped").status == 400


async def test_brokers_without_pops_are_named() -> None:
    """Those of 4.x have no topic for records of pops."""

    def without_route(request: RemotingCommand) -> RemotingCommand:
        return request.answer(ResponseCode.TOPIC_NOT_EXIST, "no such topic")

    answers = {
        **broker_answers({"workers": Group(lag=3)}, ["jobs"]),
        RequestCode.GET_ROUTEINFO_BY_TOPIC: without_route,
    }
    async with Peer(answers).running() as peer:
        peer.brokers = {"broker-a": {0: peer.address}}

        def shown() -> str:
            with running_console(f"rocketmq://{peer.address}") as (console, browser):
                return logged_in(console, browser).get("popped", group="workers").text

        text = await trio.to_thread.run_sync(shown)
        assert "These brokers have no pops, as they are of RocketMQ 4.x: broker-a" in text
