"""The clock of a broker under test, shown and moved by the console."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from http.cookiejar import CookieJar

import pytest

from trocket.blocking import Producer
from trocket.client import Message
from trocket.console.beside import console_beside
from trocket.console.clock import EmbeddedClock
from trocket.testing import Broker

from .running import Browser, logged_in, running_console

DAY_MS = 86_400_000


@pytest.fixture
def moved() -> Iterator[tuple[Broker, Browser]]:
    with (
        Broker() as broker,
        running_console(broker.url, clock=EmbeddedClock(broker)) as (console, browser),
    ):
        yield broker, logged_in(console, browser)


def test_it_is_moved_on_and_what_is_due_is_delivered(moved: tuple[Broker, Browser]) -> None:
    broker, browser = moved
    broker.create_topic("orders", queues=1)
    with Producer(broker.url, group="shop") as producer:
        producer.send(Message("orders", b"x", delay_s=86_000))
    before = broker.now_ms
    assert "Clock of the broker" in browser.get("overview").text
    assert "1 h on" not in browser.get("overview").text
    assert "60 min on" in browser.get("clock").text
    answer = browser.post("clock", seconds="86400")
    assert (answer.status, answer.headers["location"].partition("?")[0]) == (303, "/clock")
    assert broker.now_ms - before >= DAY_MS
    assert [each.body for each in broker.messages("orders")] == [b"x"]
    page = browser.request("GET", answer.headers["location"]).text
    assert "The clock was moved on by 86400 s; it is change 1" in page
    (change,) = browser.get("audit.json").tree["changes"]
    assert (change["what"], change["person"]) == ("clock", "token")
    assert change["after"] - change["before"] >= DAY_MS
    assert "moved the clock of the broker" in browser.get("audit").text


@pytest.mark.parametrize("seconds", ["", "0", "-1", "1.5", "99999999999", "x"])
def test_a_wrong_span_is_refused(moved: tuple[Broker, Browser], seconds: str) -> None:
    broker, browser = moved
    before = broker.now_ms
    assert browser.post("clock", seconds=seconds).status == 400
    assert broker.now_ms - before < DAY_MS


def test_a_console_of_another_cluster_has_no_clock(browser: Browser) -> None:
    assert "/clock" not in browser.get("overview").text
    answer = browser.get("clock")
    assert answer.status == 400
    assert "no clock to move" in answer.text


def test_a_test_has_a_console_beside_its_broker() -> None:
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
    with Broker() as broker:
        with console_beside(broker) as address:
            assert "/login?token=" in address
            with opener.open(address, timeout=30) as answer:
                assert "Clock of the broker" in answer.read().decode()
        with pytest.raises(OSError, match="refused"):
            opener.open(address, timeout=30)
        port = int(broker.url.rpartition(":")[2])
        with pytest.raises(OSError, match="in use"), console_beside(broker, port=port):
            pass
