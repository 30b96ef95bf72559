"""Delayed messages in the console, and their recall."""

from __future__ import annotations

from collections.abc import Iterator

import anyio
import pytest

from trocket.client import Admin, Message, Producer
from trocket.testing import Broker

from .running import Browser, logged_in, running_console


@pytest.fixture
def broker() -> Iterator[Broker]:
    # RocketMQ's default is false.
    with Broker(config={"recallMessageEnable": True}) as running:
        running.create_topic("orders", queues=1)
        running.create_topic("other", queues=1)
        yield running


@pytest.fixture
def delayed(broker: Broker) -> Broker:
    """Messages with times and with a level; one of another topic."""

    async def run() -> None:
        async with Admin(broker.url) as admin, Producer(admin.client) as producer:
            await producer.send(Message("orders", "late", delay_s=7200, tags="b\u202e"))
            await producer.send(Message("orders", "soon", delay_s=3600, keys=["k"]))
            await producer.send(Message("orders", "level", delay_level=10))
            await producer.send(Message("other", "x", delay_s=60))
            await producer.send(Message("orders", "now"))

    anyio.run(run)
    return broker


@pytest.fixture
def browser(delayed: Broker) -> Iterator[Browser]:
    with running_console(delayed.url) as (console, browser):
        yield logged_in(console, browser)


def test_what_waits_is_listed_by_due_time(browser: Browser) -> None:
    page = browser.get("delayed.json", topic="orders").tree
    level, soon, late = page["messages"]
    assert (level["recallHandle"], level["dueMs"] - level["storedMs"]) == ("", 360_000)
    assert (soon["keys"], late["tag"]) == (["k"], "b\u202e")
    assert soon["recallHandle"]
    assert soon["dueMs"] < late["dueMs"]
    assert (page["leftOut"], page["isLate"], page["error"]) == (0, False, "")
    assert len(browser.get("delayed.json").tree["messages"]) == 4
    shown = browser.get("delayed", topic="orders").text
    assert '<mark class="replaced">&lt;U+202E&gt;</mark>' in shown
    assert shown.count('href="/recall?') == 2
    assert 'href="/delayed?topic=orders"' in browser.get("topic", topic="orders").text


def test_every_level_is_read(delayed: Broker, browser: Browser) -> None:
    levels = range(5, 19)  # from a minute on: they wait longer than this test takes

    async def run() -> None:
        async with Producer(delayed.url) as producer:
            for level in levels:
                await producer.send(Message("other", f"{level}", delay_level=level))

    anyio.run(run)
    listed = browser.get("delayed.json", topic="other").tree["messages"]
    delays = [each["dueMs"] - each["storedMs"] for each in listed if not each["recallHandle"]]
    minutes = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 60, 120)
    assert delays == [each * 60_000 for each in minutes]


def test_a_recalled_message_is_not_delivered(delayed: Broker, browser: Browser) -> None:
    soon = browser.get("delayed.json", topic="orders").tree["messages"][1]
    fields = {"topic": "orders", "place": soon["place"]}
    assert soon["messageId"] in browser.get("recall", **fields).text
    done = browser.post("recall", **fields)
    assert done.status == 303, done.text
    shown = browser.request("GET", done.headers["location"]).text
    assert f"Message {soon['messageId']} was recalled; it is change 1" in shown
    (change,) = browser.get("audit.json").tree["changes"]
    assert (change["what"], change["of"]["id"]) == ("recall", soon["messageId"])
    assert change["before"]["dueMs"] == soon["dueMs"]
    listed = browser.get("delayed.json", topic="orders").tree["messages"]
    assert [each["isRecalled"] for each in listed] == [False, True, False]
    delayed.advance(hours=3)
    assert {each.body for each in delayed.messages("orders")} == {b"now", b"level", b"late"}


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"topic": "orders", "place": "broker-a:0:99"}, 409),
        ({"topic": "other", "place": "broker-a:0:0"}, 409),
        ({"topic": "orders", "place": "SELECT 1"}, 409),
        ({"topic": "orders"}, 400),
    ],
)
def test_what_does_not_wait_is_not_recalled(
    browser: Browser, fields: dict[str, str], status: int
) -> None:
    for answer in (browser.get("recall", **fields), browser.post("recall", **fields)):
        assert answer.status == status
    assert browser.get("audit.json").tree["changes"] == []
