"""The page of what happens on the brokers."""

from __future__ import annotations

import pytest

from trocket.blocking import Producer
from trocket.client import Message
from trocket.testing import Broker

from ..kit.waiting import wait_until
from .running import logged_in, running_console


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trocket.console.account.FEED_S", 0.05)
    monkeypatch.setattr("trocket.console.pages.feed.FRESH_S", 0.0)


def test_sends_are_on_the_page_and_in_its_table(stocked: Broker, quick: None) -> None:
    with running_console(stocked.url, masks=("orders:properties.KEYS",)) as (console, browser):
        logged_in(console, browser)
        page = browser.get("feed")
        assert "Nothing has happened since then." in page.text
        with Producer(stocked.url, group="shop") as producer:
            sent = producer.send(Message("orders", b"x", tags="<b>", keys="secret-key"))
        wait_until(lambda: browser.get("feed.json").tree["events"], "an event")
        (event,) = browser.get("feed.json").tree["events"]
        assert (event["kind"], event["topic"], event["tags"]) == ("SENT", "orders", "<b>")
        assert event["messageId"] == sent.message_id
        assert "secret-key" not in browser.get("feed.json").text
        page = browser.get("feed")
        assert "&lt;b&gt;" in page.text
        assert f"/message?id={sent.message_id}&amp;topic=orders" in page.text
        assert sent.message_id in browser.get("feed.csv").text


def test_a_cluster_that_does_not_answer_is_said() -> None:
    with Broker() as broker:
        url = broker.url
        with running_console(
            url,
        ) as (console, browser):
            logged_in(console, browser)
            broker.close()
            page = browser.get("feed")
            assert page.status == 502
            assert "127.0.0.1" in page.text
