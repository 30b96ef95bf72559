"""Pages of clusters that answer some requests only, lie, or have another time of day."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
import trio

from trocket.blocking import Producer
from trocket.client import Message
from trocket.console.pages.table import PAGES
from trocket.remoting.request_codes import RequestCode
from trocket.testing import Broker

from ..operations.peers import Group, Peer, broker_answers, saying, silent
from .running import Answer, Browser, logged_in, running_console
from .test_pages import ELSEWHERE, QUERIES

SHOWN = [page.name for page in PAGES if page.name not in {*ELSEWHERE, "clock"}]
LIMIT_S = 8.0
"""A time limit of 3 s, a deadline of 5 s for what takes several requests."""
OF_NAME_SERVER = {RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.GET_BROKER_CLUSTER_INFO}
FAILED = {502, 504}
NEGATIVE_AGE = re.compile(r"-\d[\d.,]* (?:s|min|h|d)\b")


def all_pages(browser: Browser) -> dict[str, tuple[float, Answer]]:
    """All pages, opened at once, with how long each took."""

    def opened(name: str) -> tuple[float, Answer]:
        begin_s = time.monotonic()
        own = Browser(browser.port)
        own.cookies = dict(browser.cookies)
        answer = own.get(name, **QUERIES.get(name, {}))
        return time.monotonic() - begin_s, answer

    with ThreadPoolExecutor(len(SHOWN)) as threads:
        return dict(zip(SHOWN, threads.map(opened, SHOWN), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("half", [0, 1])
@pytest.mark.parametrize("how", ["swallow", "refuse", "disconnect"])
def test_a_broker_that_answers_half_of_the_requests_leaves_pages_usable(
    stocked: Broker, how: str, half: int
) -> None:
    codes = sorted(code for code in RequestCode if code not in OF_NAME_SERVER)
    with running_console(stocked.url) as (console, browser):
        logged_in(console, browser)
        try:
            for code in codes[half::2]:
                getattr(stocked.faults, how)(code, times=None)
            found = all_pages(browser)
        finally:
            stocked.faults.clear()
        for name, (took_s, answer) in found.items():
            assert answer.status in {200, *FAILED}, name
            assert took_s <= LIMIT_S, name
            if answer.status != 200:
                assert "broker-a" in answer.text or "127.0.0.1" in answer.text, name
        assert browser.get("topic", topic="orders").status == 200


@contextmanager
def console_of(peer: Peer) -> Iterator[Browser]:
    with running_console(f"rocketmq://{peer.address}") as (console, browser):
        yield logged_in(console, browser)


LIES: dict[str, dict[RequestCode, Any]] = {
    "no JSON": {RequestCode.GET_BROKER_CLUSTER_INFO: lambda request: request.answer(0, body=b"<")},
    "other shapes": {
        RequestCode.GET_BROKER_CLUSTER_INFO: saying({"brokerAddrTable": [1], "clusterAddrTable": 2})
    },
    "no brokers": {RequestCode.GET_BROKER_CLUSTER_INFO: saying({})},
    "numbers": {
        RequestCode.GET_BROKER_CONSUME_STATS: saying({"consumeStatsList": -1}),
        RequestCode.GET_BROKER_RUNTIME_INFO: saying(
            {"table": {"commitLogMaxOffset": "-9" * 30, "bootTimestamp": "1e999"}}
        ),
        RequestCode.GET_ALL_TOPIC_CONFIG: saying(
            {"topicConfigTable": {"T": {"topicName": "T", "writeQueueNums": 2**31 - 1}}}
        ),
    },
    "nothing": dict.fromkeys((RequestCode.GET_BROKER_CLUSTER_INFO,), silent),
}


@pytest.mark.slow
@pytest.mark.parametrize("lie", LIES)
async def test_servers_that_lie_are_answered_in_words(lie: str) -> None:
    answers = {**broker_answers({"g": Group(lag=3)}, ["T"]), **LIES[lie]}
    async with Peer(answers).running() as peer:
        peer.brokers = {
            "broker-a": {0: peer.address},
            "broker-b": {0: "127.0.0.1:1"},
            "broker-c": {0: "no address", -5: "[::]:99999999"},
        }

        def look() -> dict[str, tuple[float, Answer]]:
            with console_of(peer) as browser:
                return all_pages(browser)

        for name, (took_s, answer) in (await trio.to_thread.run_sync(look)).items():
            assert answer.status in {200, 404, *FAILED}, (name, answer.text)
            assert took_s <= LIMIT_S, name


def test_a_broker_with_another_day_does_not_confuse_pages(broker: Broker) -> None:
    broker.create_topic("orders", queues=1)
    broker.advance(hours=24)
    with Producer(broker.url, group="shop") as producer:
        sent = producer.send(Message("orders", "tomorrow", keys="k"))
    with running_console(broker.url) as (console, browser):
        logged_in(console, browser)
        shown = browser.get("message", topic="orders", id=sent.message_id)
        assert shown.status == 200
        pages = {name: answer for name, (_, answer) in all_pages(browser).items()}
        assert {answer.status for answer in pages.values()} <= {200, *FAILED}
        for answer in (shown, *pages.values()):
            assert NEGATIVE_AGE.search(answer.text) is None
