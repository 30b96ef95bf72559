"""Creating, changing and deleting consumer groups in the console."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anyio
import pytest

from trocket.blocking import Producer
from trocket.client import Admin, Message, NotFoundError
from trocket.remoting.bodies import SubscriptionGroupConfig
from trocket.testing import Broker

from .running import Answer, Browser, logged_in, running_console


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def browser(broker: Broker) -> Iterator[Browser]:
    with running_console(broker.url) as (console, browser):
        yield logged_in(console, browser)


def group(broker: Broker, name: str) -> SubscriptionGroupConfig | None:
    """The group as the broker has it; None: it is not there."""

    async def ask() -> SubscriptionGroupConfig | None:
        async with Admin(broker.url) as admin:
            try:
                return (await admin.group(name)).settings["broker-a"]
            except NotFoundError:
                return None

    return anyio.run(ask)


def follow(browser: Browser, answer: Answer) -> str:
    assert answer.status == 303, answer.text
    return browser.request("GET", answer.headers["location"]).text


def changes(browser: Browser) -> list[dict[str, Any]]:
    return browser.get("audit.json").tree["changes"]


def test_a_group_is_created(broker: Broker, browser: Browser) -> None:
    assert 'action="/create_group"' in browser.get("groups").text
    form = browser.get("create_group", group="billing").text
    assert 'name="retryMaxTimes" required value="16"' in form
    assert 'method="post" action="/create_group"' not in form, "nothing was chosen yet"
    fields = {"retryMaxTimes": "3", "consumeEnable": "false", "attributes": "priority.factor=5"}
    preview = browser.get("create_group", group="billing", **fields).text
    assert "not there" in preview
    assert group(broker, "billing") is None, "a preview changes nothing"
    shown = follow(browser, browser.post("create_group", group="billing", **fields))
    assert "The group billing was created; it is change 1 of the audit log." in shown
    made = group(broker, "billing")
    assert made is not None
    assert (made.retry_max_times, made.consume_enable) == (3, False)
    assert made.attributes == {"priority.factor": "5"}
    (change,) = changes(browser)
    assert (change["what"], change["of"]["group"]) == ("create_group", "billing")
    assert "before" not in change
    assert change["after"]["broker-a"]["retryMaxTimes"] == 3
    assert browser.post("create_group", group="billing", **fields).status == 409


def test_a_change_leaves_the_other_settings_as_they_are(broker: Broker, browser: Browser) -> None:
    broker.create_group(
        "billing", retry_max_times=3, consume_message_orderly=True,
        attributes={"+priority.factor": "5"},
    )  # fmt: skip
    assert 'href="/change_group?group=billing"' in browser.get("group", group="billing").text
    fields = {"consumeEnable": "false"}
    preview = browser.get("change_group", group="billing", **fields).text
    assert "<strong><code>consumeEnable=true</code></strong>" in preview
    assert "<strong><code>consumeEnable=false</code></strong>" in preview
    assert "<strong><code>retryMaxTimes" not in preview
    before = group(broker, "billing")
    assert before is not None
    follow(browser, browser.post("change_group", group="billing", **fields))
    after = group(broker, "billing")
    assert after is not None
    assert (before.consume_enable, after.consume_enable) == (True, False)
    assert (after.retry_max_times, after.consume_message_orderly) == (3, True)
    assert after.attributes == {"priority.factor": "5"}
    (change,) = changes(browser)
    assert change["before"]["broker-a"]["consumeEnable"] is True
    assert change["after"]["broker-a"]["consumeEnable"] is False
    # An attribute that the form has no more is taken away.
    taken = {"consumeEnable": "true", "attributes": ""}
    follow(browser, browser.post("change_group", group="billing", **taken))
    last = group(broker, "billing")
    assert last is not None
    assert (last.attributes, last.consume_enable) == ({}, True)


def test_a_group_is_deleted_by_its_name(broker: Broker, browser: Browser) -> None:
    broker.create_topic("orders", queues=1)
    broker.create_group("billing")
    with Producer(broker.url, group="shop") as producer:
        for number in range(3):
            producer.send(Message("orders", f"{number}"))

    async def commit() -> None:
        async with Admin(broker.url) as admin:
            await admin.reset_offset("billing", "orders", to="begin")

    anyio.run(commit)
    preview = browser.get("delete_group", group="billing").text
    assert "3 messages wait for it" in preview
    assert 'href="/topic?topic=orders"' in preview
    for typed in ("", "Billing"):
        assert browser.post("delete_group", group="billing", confirm=typed).status == 400
    assert group(broker, "billing") is not None
    shown = follow(browser, browser.post("delete_group", group="billing", confirm="billing"))
    assert "The group billing was deleted" in shown
    assert group(broker, "billing") is None
    (change,) = changes(browser)
    assert change["before"]["lag"] == 3
    assert change["before"]["topics"] == ["orders"]
    assert change["before"]["brokers"]["broker-a"]["retryMaxTimes"] == 16
    assert change["of"] == {"group": "billing"}


def test_a_deletion_keeps_the_offsets_if_asked_to(broker: Broker, browser: Browser) -> None:
    broker.create_topic("orders", queues=1)
    broker.create_group("billing")
    with Producer(broker.url, group="shop") as producer:
        for number in range(3):
            producer.send(Message("orders", f"{number}"))

    async def commit() -> None:
        async with Admin(broker.url) as admin:
            await admin.reset_offset("billing", "orders", to="end")

    anyio.run(commit)
    fields = {"group": "billing", "confirm": "billing", "keepOffsets": "1", "withTopics": "1"}
    follow(browser, browser.post("delete_group", **fields))
    (change,) = changes(browser)
    assert change["of"] == {"group": "billing", "keepOffsets": "true", "withTopics": "true"}
    broker.create_group("billing")
    assert broker.lag("billing", "orders") == 0


@pytest.mark.parametrize(
    ("path", "fields", "status", "words"),
    [
        ("create_group", {"retryMaxTimes": "many"}, 400, "retryMaxTimes cannot be many"),
        ("create_group", {"retryMaxTimes": "9" * 30}, 400, "retryMaxTimes cannot be"),
        ("create_group", {"retryMaxTimes": "-7"}, 400, "retryMaxTimes"),
        ("create_group", {"consumeEnable": "perhaps"}, 400, "consumeEnable cannot be perhaps"),
        ("create_group", {"retryMaxTimes": "1", "attributes": "a"}, 400, "no attribute"),
        ("create_group", {"retryMaxTimes": "1", "cluster": "other"}, 400, "no cluster other"),
        ("create_group", {"retryMaxTimes": "1", "group": "a b"}, 400, "illegal character"),
        ("create_group", {"retryMaxTimes": "1", "group": "DEFAULT_CONSUMER"}, 400, "placeholder"),
        ("change_group", {"retryMaxTimes": "1"}, 404, "No broker of this cluster"),
        ("delete_group", {"confirm": "new"}, 502, "no broker knows"),
    ],
)
def test_what_cannot_be_is_refused_in_words(
    broker: Broker, browser: Browser, path: str, fields: dict[str, str], status: int, words: str
) -> None:
    sent = {"group": "new", **fields}
    for answer in (browser.get(path, **sent), browser.post(path, **sent)):
        assert answer.status == status, answer.text
        assert words in answer.text
    assert group(broker, "new") is None
    assert changes(browser) == []


def test_a_change_that_a_broker_refuses_is_in_the_audit_log(
    broker: Broker, browser: Browser
) -> None:
    fields = {"retryMaxTimes": "1", "attributes": "no.such=1"}
    assert browser.post("create_group", group="new", **fields).status == 502
    (change,) = changes(browser)
    assert "unsupported key: no.such" in change["error"]
    assert group(broker, "new") is None
