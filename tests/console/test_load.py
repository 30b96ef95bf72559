"""What a page costs: bytes for the browser, requests for the brokers, memory for the console."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
import trio

from trocket.blocking import PushConsumer
from trocket.client import Admin, Client
from trocket.console.console import Console
from trocket.console.pages.page import each_sample
from trocket.console.pages.rows import ROWS_MAX
from trocket.console.pages.table import PAGES
from trocket.console.samples import INTERVAL_S
from trocket.console.server import listener, serve
from trocket.console.settings import ConsoleSettings
from trocket.remoting.request_codes import RequestCode
from trocket.testing import Broker

from ..kit.waiting import wait_until
from ..operations.peers import Group, Peer, broker_answers
from .running import Browser, logged_in, running_console
from .test_pages import ELSEWHERE, QUERIES

FIRST_LOAD_MAX = 60_000
REQUESTS_MAX = 40
"""To a broker when a page is opened."""
KNOWN_TO_ASK_MORE = {"delayed": 60}
"""It asks for the messages of each of the 18 levels."""
REQUESTS_AT_REST_S = 2.0
COUNT = 1_000
"""Topics, and groups."""
SAMPLES_AFTER = 5
"""Readings of the counter until it is at rest, at most."""
LONG_S = 1.0
SHOWN = [page for page in PAGES if page.name not in ELSEWHERE]
LIVE = [page for page in PAGES if page.is_live and page.follow is each_sample]


@pytest.fixture(scope="module")
def large(stocked: Broker) -> Broker:
    """A broker with many topics and groups, and one group with two members."""
    names = [f"{number:04}" for number in range(COUNT)]
    topics = [{"topicName": f"T{name}", "readQueueNums": 4} for name in names]
    groups = [{"groupName": f"g{name}"} for name in names]

    async def make() -> None:
        async with Client(stocked.url) as client:
            for code, tree in (
                (RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, {"topicConfigList": topics}),
                (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, {"groupConfigList": groups}),
            ):
                await client.request(stocked.broker_address, code, body=json.dumps(tree).encode())

    anyio.run(make)
    return stocked


@contextmanager
def stream(browser: Browser, page: str) -> Iterator[http.client.HTTPResponse]:
    """An open event stream of a page."""
    connection = http.client.HTTPConnection("127.0.0.1", browser.port, timeout=30)
    cookies = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
    connection.request("GET", f"/{page}.events", headers={"Cookie": cookies})
    answer = connection.getresponse()
    try:
        assert answer.status == 200
        yield answer
    finally:
        answer.close()
        connection.close()


def next_event(answer: http.client.HTTPResponse) -> None:
    while line := answer.readline():
        if line.startswith(b"data: "):
            return
    pytest.fail("the stream ended")


def findings(browser: Browser) -> Any:
    """Those of the doctor; None: it still collects."""
    return browser.get("overview.json").tree["findings"]


@pytest.mark.parametrize("page", SHOWN, ids=lambda each: each.name)
def test_a_first_load_is_small(browser: Browser, page: Any) -> None:
    shown = browser.get(page.name, **QUERIES.get(page.name, {}))
    assert shown.status == 200
    paths = set(re.findall(r'(?:href|src)="/(static/[^"]*)"', shown.text))
    assert len(paths) >= 3
    files = [shown.text, *(browser.get(path).text for path in paths)]
    assert sum(len(gzip.compress(each.encode())) for each in files) <= FIRST_LOAD_MAX


@pytest.mark.slow
@pytest.mark.parametrize("page", SHOWN, ids=lambda each: each.name)
def test_opening_a_page_asks_few_requests(large: Broker, page: Any) -> None:
    members = ("refund", "paid")
    with (
        PushConsumer(large.url, group="billing", subscriptions={"orders": members[0]}),
        PushConsumer(large.url, group="billing", subscriptions={"orders": members[1]}),
        running_console(large.url) as (console, browser),
    ):
        logged_in(console, browser)
        asked = counted(large)
        assert browser.get(page.name, **QUERIES.get(page.name, {})).status == 200
        if page.name == "overview":  # the doctor goes on in the background
            wait_until(lambda: findings(browser) is not None, "findings")
        limit = KNOWN_TO_ASK_MORE.get(page.name, REQUESTS_MAX)
        assert (page.name == "overview") <= asked() <= limit
        large.faults.clear()


@pytest.mark.slow
def test_a_search_for_a_client_asks_few_requests(large: Broker) -> None:
    with running_console(large.url) as (console, browser):
        logged_in(console, browser)
        asked = counted(large)
        assert browser.get("search", q="10.0.0.7@1234").status == 200
        assert 0 < asked() <= REQUESTS_MAX
        large.faults.clear()


def counted(broker: Broker) -> Callable[[], int]:
    """Gives the number of the console's requests to the broker from now on.

    Those of consumers are not among them: a delay of nothing counts each request of its code.
    """
    broker.faults.clear()
    of_consumers = {
        RequestCode.PULL_MESSAGE,
        RequestCode.LITE_PULL_MESSAGE,
        RequestCode.HEART_BEAT,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
    }
    codes = [code for code in RequestCode if code not in of_consumers]
    faults = [broker.faults.delay(code, seconds=0, times=None) for code in codes]
    return lambda: sum(fault.hits for fault in faults)


@pytest.mark.slow
def test_long_tables_are_shown_in_pages(large: Broker) -> None:
    with running_console(large.url) as (console, browser):
        logged_in(console, browser)
        first = browser.get("topics").text
        assert first.count("<tr>") == ROWS_MAX + 1
        assert f"topics?from={ROWS_MAX}" in first
        assert browser.get("topics", name="T0999").text.count("<tr>") == 2
        assert len(browser.get("topics.json").tree["topics"]) >= COUNT


async def test_opening_the_first_page_asks_another_broker_few_requests() -> None:
    members = {f"c{number:02}": "A" for number in range(20)}
    groups = {f"g{number:04}": Group(lag=number, members=members) for number in range(COUNT)}
    topics = [f"T{number:04}" for number in range(COUNT)]
    async with Peer(broker_answers(groups, topics)).running() as peer:
        peer.brokers = {"broker-a": {0: peer.address}}

        def open_page() -> None:
            with running_console(f"rocketmq://{peer.address}") as (console, browser):
                logged_in(console, browser)
                assert browser.get("overview").status == 200
                wait_until(lambda: findings(browser) is not None, "findings")

        await trio.to_thread.run_sync(open_page)
        asked = peer.counts.total() - peer.counts[RequestCode.GET_BROKER_CLUSTER_INFO]
        assert 0 < asked <= REQUESTS_MAX, peer.counts


@pytest.mark.slow
@pytest.mark.parametrize("page", LIVE, ids=lambda each: each.name)
def test_a_page_at_rest_asks_little_and_no_viewer_nothing(
    large: Broker, page: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    short_s = 0.05
    monkeypatch.setattr("trocket.console.samples.INTERVAL_S", short_s)
    with running_console(large.url) as (console, browser):
        logged_in(console, browser)
        browser.get(page.name)
        if page.name == "overview":
            wait_until(lambda: findings(browser) is not None, "findings")
        asked = counted(large)
        with stream(browser, page.name) as events, stream(browser, page.name):
            next_event(events)
            wait_until(lambda: console.account.samples.viewers == 2, "two viewers")
            before, intervals = asked(), 6
            for _ in range(intervals):
                next_event(events)
            # The sample after the last event may have begun.
            assert asked() - before <= REQUESTS_AT_REST_S * INTERVAL_S * (intervals + 1)
        wait_until(lambda: console.account.samples.viewers == 0, "no viewer")
        # A sample that has begun goes on to its end, however slow the machine is.
        never, counts = threading.Event(), [-1, asked()]
        while counts[-1] != counts[-2]:
            assert len(counts) <= SAMPLES_AFTER
            never.wait(LONG_S)
            counts.append(asked())
        never.wait(LONG_S)
        assert asked() == counts[-1]
        large.faults.clear()


LOADS = 2_000
STREAMS = 200
GROWTH_MAX = 10 << 20
OPENED = ("overview", "topics", "groups", "brokers", "clients", "audit", "topic", "group")


def resident() -> int:
    """Bytes of memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


@pytest.mark.slow
def test_page_loads_and_event_streams_leave_nothing(stocked: Broker) -> None:
    settings = ConsoleSettings(port=0)

    def load(browser: Browser, console: Console, loads: int, streams: int) -> None:
        for number in range(loads):
            name = OPENED[number % len(OPENED)]
            assert browser.get(name, **QUERIES.get(name, {})).status == 200
        for _ in range(streams):
            with stream(browser, "overview") as events:
                assert events.readline()
        wait_until(lambda: console.account.samples.viewers == 0, "no viewer")

    async def main() -> tuple[int, list[str]]:
        with listener(settings) as sock:
            async with Admin(stocked.url) as admin, anyio.create_task_group() as tasks:
                made: list[Console] = []
                ready = anyio.Event()

                def serving(console: Console) -> None:
                    made.append(console)
                    ready.set()

                tasks.start_soon(serve, settings, admin, sock, serving)
                await ready.wait()
                (console,) = made
                browser = Browser(sock.getsockname()[1])
                await anyio.to_thread.run_sync(logged_in, console, browser)
                await anyio.to_thread.run_sync(load, browser, console, LOADS // 5, STREAMS // 5)
                before, known = resident(), {task.id for task in anyio.get_running_tasks()}
                await anyio.to_thread.run_sync(load, browser, console, LOADS, STREAMS)
                await anyio.wait_all_tasks_blocked()
                grown = resident() - before
                left = [str(task) for task in anyio.get_running_tasks() if task.id not in known]
                tasks.cancel_scope.cancel()
        return grown, left

    grown, left = anyio.run(main, backend="asyncio")
    assert left == []
    assert grown <= GROWTH_MAX


def test_a_console_that_is_cancelled_closes_its_connections(stocked: Broker) -> None:
    with running_console(stocked.url) as (_, browser):
        connection = http.client.HTTPConnection("127.0.0.1", browser.port, timeout=30)
        connection.connect()
        connection.request("GET", "/login")
        connection.getresponse().read()
    with connection.sock as open_socket, contextlib.suppress(ConnectionResetError):
        assert open_socket.recv(1) == b""
