"""The page that follows a topic."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlencode

import pytest

from trocket.blocking import Producer
from trocket.client import Message
from trocket.console.tails import ROWS_MAX, TAILS_MAX
from trocket.remoting.request_codes import RequestCode
from trocket.testing import Broker

from ..kit.waiting import wait_until
from .running import Browser, logged_in, running_console


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trocket.console.tails.PAUSE_S", 0.01)
    monkeypatch.setattr("trocket.console.tails.LINGER_S", 0.05)


class Stream:
    """An open event stream of the page."""

    def __init__(self, answer: http.client.HTTPResponse) -> None:
        self._answer = answer

    def next(self) -> str:
        """The live part of the page, as it comes again."""
        while line := self._answer.readline():
            if line.startswith(b"data: "):
                return str(json.loads(line.removeprefix(b"data: ")))
        pytest.fail("the stream ended")

    def until(self, text: str) -> str:
        while text not in (block := self.next()):
            pass
        return block

    def read_to_the_end(self) -> bytes:
        return self._answer.read()


@contextmanager
def stream(browser: Browser, **query: str) -> Iterator[Stream]:
    connection = http.client.HTTPConnection("127.0.0.1", browser.port, timeout=60)
    cookies = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
    connection.request("GET", f"/tail.events?{urlencode(query)}", headers={"Cookie": cookies})
    answer = connection.getresponse()
    try:
        yield Stream(answer)
    finally:
        answer.close()
        connection.close()


def send(broker: Broker, topic: str, *bodies: str, **options: str) -> None:
    with Producer(broker.url, group="shop") as producer:
        for body in bodies:
            producer.send(Message(topic, body.encode(), **options))


def test_what_comes_is_shown_and_what_was_there_before(stocked: Broker, quick: None) -> None:
    stocked.create_topic("followed", queues=2)
    send(stocked, "followed", "before-0", "before-1", tags="paid")
    with running_console(stocked.url) as (console, browser):
        logged_in(console, browser)
        with stream(browser, topic="followed") as one, stream(browser, topic="followed") as two:
            assert "before-1" in one.until("before-0")
            two.next()
            assert len(console.account.tails) == 1
            send(stocked, "followed", "after-0", tags="paid")
            for each in (one, two):
                block = each.until("after-0")
                assert block.index("after-0") < block.index("before-1") < block.index("before-0")
                assert block.count("before-0") == 1
        page = browser.get("tail.json", topic="followed").tree
        assert [each["body"] for each in page["messages"]] == ["after-0", "before-1", "before-0"]
        assert page["leftOut"] == 0


def test_the_filters_of_a_search_hold(stocked: Broker, quick: None) -> None:
    stocked.create_topic("filtered", queues=1)
    with running_console(stocked.url) as (console, browser):
        logged_in(console, browser)
        with stream(browser, topic="filtered", tag="paid") as events:
            events.next()
            send(stocked, "filtered", "no-0", tags="created")
            send(stocked, "filtered", "yes-0", tags="paid")
            assert "no-0" not in events.until("yes-0")
        assert browser.get("tail", topic="filtered", sql="a >").status == 400
        with stream(browser, topic="filtered", sql="a >") as events:
            assert b"data:" not in events.read_to_the_end()
        assert browser.get("tail", topic="missing").status == 400
        assert browser.get("tail").status == 400


def test_what_is_left_out_is_counted(stocked: Broker, quick: None) -> None:
    stocked.create_topic("crowded", queues=1)
    with running_console(stocked.url) as (console, browser):
        logged_in(console, browser)
        with stream(browser, topic="crowded") as events:
            events.next()
            send(stocked, "crowded", *(f"m-{number:03}" for number in range(ROWS_MAX + 7)))
            block = events.until(f"m-{ROWS_MAX + 6}")
            assert "7 that came since then are not shown" in block
            assert "m-006" not in block
            assert "m-007" in block


def test_a_masked_value_does_not_come(stocked: Broker, quick: None) -> None:
    stocked.create_topic("secrets", queues=1)
    with running_console(stocked.url, masks=("secrets:$.card",)) as (console, browser):
        logged_in(console, browser)
        with (
            stream(browser, topic="secrets") as events,
            stream(browser, topic="secrets", text="4111") as searched,
        ):
            events.next()
            searched.next()
            send(stocked, "secrets", '{"card": "4111", "id": 1}', '{"id": 2, "sum": "4111"}')
            assert "4111" not in events.until("&#34;id&#34;:").split("sum")[0]
            assert "card" not in searched.until("sum")


def test_without_a_viewer_nothing_is_asked(stocked: Broker, quick: None) -> None:
    with running_console(stocked.url) as (console, browser):
        logged_in(console, browser)
        with stream(browser, topic="orders") as events:
            events.next()
        wait_until(lambda: len(console.account.tails) == 0, "no tail")
        fault = stocked.faults.delay(RequestCode.PULL_MESSAGE, seconds=0, times=None)
        threading.Event().wait(0.5)
        assert fault.hits == 0
        stocked.faults.clear()


def test_a_stream_ends_with_its_session(stocked: Broker, quick: None) -> None:
    stocked.create_topic("ended", queues=1)
    with running_console(stocked.url) as (console, browser):
        logged_in(console, browser)
        with stream(browser, topic="ended") as events:
            events.next()
            assert browser.post("logout").status == 303
            send(stocked, "ended", "after")
            assert b"after" not in events.read_to_the_end()


def test_only_so_much_is_followed_at_once(stocked: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trocket.console.tails.LINGER_S", 60.0)
    with running_console(stocked.url) as (console, browser):
        logged_in(console, browser)
        for number in range(TAILS_MAX):
            assert browser.get("tail", topic="orders", tag=f"t{number}").status == 200
        answer = browser.get("tail", topic="orders")
        assert answer.status == 503
        assert f"{TAILS_MAX} topics are being followed already" in answer.text
        assert browser.get("tail", topic="orders", tag="t0").status == 200
