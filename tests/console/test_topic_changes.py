"""Creating, changing and deleting topics in the console."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anyio
import pytest

from trocket.blocking import Producer
from trocket.client import Admin, Message, RouteNotFoundError, TopicOnBroker
from trocket.testing import Broker

from .running import Answer, Browser, logged_in, running_console

SETTINGS = {"queues": "2", "readQueues": "3", "perm": "R", "attributes": "message.type=FIFO"}


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def browser(broker: Broker) -> Iterator[Browser]:
    with running_console(broker.url) as (console, browser):
        yield logged_in(console, browser)


def topic(broker: Broker, name: str) -> TopicOnBroker | None:
    """The topic as the broker has it; None: it is not there."""

    async def ask() -> TopicOnBroker | None:
        async with Admin(broker.url) as admin:
            try:
                return (await admin.topic(name)).brokers[0]
            except RouteNotFoundError:
                return None

    return anyio.run(ask)


def follow(browser: Browser, answer: Answer) -> str:
    assert answer.status == 303, answer.text
    return browser.request("GET", answer.headers["location"]).text


def changes(browser: Browser) -> list[dict[str, Any]]:
    return browser.get("audit.json").tree["changes"]


def test_a_topic_is_created(broker: Broker, browser: Browser) -> None:
    assert 'action="/create_topic"' in browser.get("topics").text
    form = browser.get("create_topic", topic="orders").text
    assert 'name="queues" inputmode="numeric" required value="8"' in form
    assert 'method="post" action="/create_topic"' not in form, "nothing was chosen yet"
    preview = browser.get("create_topic", topic="orders", **SETTINGS).text
    assert "not there" in preview
    assert "message.type=FIFO" in preview
    assert topic(broker, "orders") is None, "a preview changes nothing"
    shown = follow(browser, browser.post("create_topic", topic="orders", **SETTINGS))
    assert "The topic orders was created; it is change 1 of the audit log." in shown
    made = topic(broker, "orders")
    assert made is not None
    assert (made.write_queues, made.read_queues, made.perm_text) == (2, 3, "R")
    assert made.attributes == {"message.type": "FIFO"}
    (change,) = changes(browser)
    assert (change["what"], change["of"]["topic"]) == ("create_topic", "orders")
    assert "before" not in change
    assert change["after"]["broker-a"] == {
        "queues": 2, "readQueues": 3, "perm": "R", "order": False,
        "attributes": {"message.type": "FIFO"},
    }  # fmt: skip
    assert browser.post("create_topic", topic="orders", **SETTINGS).status == 409


def test_a_topic_is_changed(broker: Broker, browser: Browser) -> None:
    broker.create_topic("orders", queues=4, message_type="FIFO", cleanup_policy="DELETE")
    page = browser.get("topic", topic="orders").text
    assert 'href="/change_topic?topic=orders"' in page
    form = browser.get("change_topic.json", topic="orders")
    assert form.status == 404, "a change has no JSON"
    form = browser.get("change_topic", topic="orders").text
    assert 'value="cleanup.policy=DELETE message.type=FIFO"' in form
    wanted = {"queues": "4", "readQueues": "2", "perm": "RW", "attributes": "cleanup.policy=DELETE"}
    preview = browser.get("change_topic", topic="orders", **wanted).text
    assert "<strong><code>readQueues=4</code></strong>" in preview
    assert "<strong><code>readQueues=2</code></strong>" in preview
    assert "<strong><code>message.type=FIFO</code></strong>" in preview
    assert "not consumed" in preview
    follow(browser, browser.post("change_topic", topic="orders", **wanted))
    made = topic(broker, "orders")
    assert made is not None
    assert (made.write_queues, made.read_queues) == (4, 2)
    # The policy cannot be changed, so it was not asked for once more.
    assert made.attributes == {"cleanup.policy": "DELETE"}
    (change,) = changes(browser)
    assert change["before"]["broker-a"]["attributes"]["message.type"] == "FIFO"
    assert change["after"]["broker-a"]["readQueues"] == 2


def test_a_topic_is_deleted_by_its_name(broker: Broker, browser: Browser) -> None:
    broker.create_topic("orders", queues=1)
    broker.create_group("billing")
    with Producer(broker.url, group="shop") as producer:
        for number in range(3):
            producer.send(Message("orders", f"{number}"))

    async def commit() -> None:
        async with Admin(broker.url) as admin:
            await admin.reset_offset("billing", "orders", to="begin")

    anyio.run(commit)
    preview = browser.get("delete_topic", topic="orders").text
    assert "3 messages are lost" in preview
    assert 'href="/group?group=billing"' in preview
    for typed in ("", "Orders"):
        answer = browser.post("delete_topic", topic="orders", confirm=typed)
        assert answer.status == 400
        assert topic(broker, "orders") is not None
    shown = follow(browser, browser.post("delete_topic", topic="orders", confirm="orders"))
    assert "The topic orders was deleted" in shown
    assert topic(broker, "orders") is None
    (change,) = changes(browser)
    assert change["before"]["messages"] == 3
    assert change["before"]["groups"] == ["billing"]
    assert change["before"]["brokers"]["broker-a"]["queues"] == 1
    assert "after" not in change


@pytest.mark.parametrize(
    ("path", "fields", "status", "words"),
    [
        ("create_topic", {"queues": "0"}, 400, "has 1 to"),
        ("create_topic", {"queues": "-1"}, 400, "whole number"),
        ("create_topic", {"queues": "1", "readQueues": "9" * 18}, 400, "has 1 to"),
        ("create_topic", {"queues": "1", "perm": "X"}, 400, "no permission"),
        ("create_topic", {"queues": "1", "attributes": "a"}, 400, "no attribute"),
        ("create_topic", {"queues": "1", "attributes": "a=b=c"}, 400, "no attribute"),
        ("create_topic", {"queues": "1", "attributes": "a=1 a=2"}, 400, "no attribute"),
        ("create_topic", {"queues": "1", "attributes": "+a=1"}, 400, "no attribute"),
        ("create_topic", {"queues": "1", "cluster": "other"}, 400, "no cluster other"),
        ("create_topic", {"queues": "1", "topic": "a b"}, 400, "illegal character"),
        ("create_topic", {"queues": "1", "topic": "<script>"}, 400, "&lt;script&gt;"),
        ("create_topic", {"queues": "1", "topic": "RMQ_SYS_TRACE_TOPIC"}, 400, "itself needs"),
        ("change_topic", {"queues": "1"}, 404, "not in the cluster"),
        ("delete_topic", {"confirm": "new"}, 502, "new"),
        ("delete_topic", {"topic": "TBW102", "confirm": "TBW102"}, 400, "itself needs"),
    ],
)
def test_what_cannot_be_is_refused_in_words(
    broker: Broker, browser: Browser, path: str, fields: dict[str, str], status: int, words: str
) -> None:
    sent = {"topic": "new", **fields}
    for answer in (browser.get(path, **sent), browser.post(path, **sent)):
        assert answer.status == status, answer.text
        assert words in answer.text
    assert topic(broker, "new") is None
    assert changes(browser) == []


def test_a_change_that_a_broker_refuses_is_in_the_audit_log(
    broker: Broker, browser: Browser
) -> None:
    fields = {"queues": "1", "attributes": "no.such=1"}
    assert browser.post("create_topic", topic="new", **fields).status == 502
    (change,) = changes(browser)
    assert "unsupported key: no.such" in change["error"]
    assert topic(broker, "new") is None
