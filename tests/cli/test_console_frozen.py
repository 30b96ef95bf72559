"""The console of two brokers of which one is stopped by SIGSTOP: what pages say, and how long."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from trocket.blocking import Admin, Producer, PushConsumer
from trocket.client import Message
from trocket.console.pages.table import PAGES

from ..console.running import Browser, logged_in, running_console
from ..console.test_pages import ELSEWHERE, QUERIES
from ..kit.waiting import wait_until
from .conftest import Command

pytestmark = pytest.mark.slow

LIMIT_S = 3.0
BUSY_S = 2.0
"""What a page takes on a machine that does other things, too."""
RECOVERY_S = 10.0
FROZEN = "broker-a"
ASKS_NO_BROKER = {"search", "audit", "dead_letters"}
"""A group without dead letters has no topic for them on a broker."""
Start = Callable[..., Command]


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def opened(browser: Browser, name: str) -> tuple[float, Any]:
    begin_s = time.monotonic()
    answer = browser.get(name, **QUERIES.get(name, {}))
    return time.monotonic() - begin_s, answer


def test_a_stopped_broker_costs_one_time_limit_and_is_named(start: Start, home: Path) -> None:
    facts = start(
        "up", "--home", str(home), "--masters", "2", "--namesrv-port", "0", "--json"
    ).ready()
    pids = {each["name"]: each["pid"] for each in facts["brokers"]}
    url = f"rocketmq://{facts['namesrv']}"
    with Admin(url) as admin, Producer(url) as producer:
        admin.create_topic("orders", 4)
        for number in range(8):
            producer.send(Message("orders", str(number), keys=str(number), tags="refund"))
        admin.create_group("billing")
        admin.reset_offset("billing", "orders", to="begin")
    with (
        PushConsumer(url, group="billing", subscriptions={"orders": "refund"}),
        running_console(url) as (console, browser),
    ):
        logged_in(console, browser)
        names = [
            page.name for page in PAGES if page.name not in ELSEWHERE and page.name != "broker"
        ]
        for name in names:
            opened(browser, name)
        with stopped(pids[FROZEN]):
            for name in names:
                took_s, answer = opened(browser, name)
                assert answer.status == 200, name
                assert took_s <= LIMIT_S + BUSY_S, name
            # What is known to be silent is no longer waited for.
            for name in names:
                took_s, answer = opened(browser, name)
                assert answer.status == 200, name
                assert took_s <= LIMIT_S, name
                assert (FROZEN in answer.text) is (name not in ASKS_NO_BROKER), name

        def is_back() -> bool:
            brokers = browser.get("brokers.json").tree["brokers"]
            return len(brokers) == 2 and not any(each["error"] for each in brokers)

        wait_until(is_back, "both brokers", timeout_s=RECOVERY_S)
