"""Transactions in the console on Apache's brokers, 5.5.0 and 4.9.7."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anyio
import pytest

from tests.console.running import Browser, logged_in, running_console
from tests.kit.waiting import wait_until
from trocket.client import Admin, Message, ReceivedMessage, TransactionProducer, TransactionState
from trocket.interop.apache import ApacheCluster

from .conftest import QUICK_BROKER

pytestmark = [pytest.mark.interop, pytest.mark.slow]

DEADLINE_S = 60.0
CHECK_MAX = 2
KEYS = {
    **QUICK_BROKER,
    "transactionTimeOut": 2_000,
    "transactionCheckInterval": 3_000,
    "transactionCheckMax": CHECK_MAX,
}


@pytest.fixture(scope="module")
def broker_keys() -> dict[str, object]:
    return KEYS


@pytest.fixture(scope="module")
def browser(cluster: ApacheCluster) -> Iterator[Browser]:
    with running_console(cluster.namesrv_address) as (console, browser):
        yield logged_in(console, browser)


def test_a_transaction_is_given_up_and_checked_again(
    version: str, cluster: ApacheCluster, browser: Browser
) -> None:
    is_decided = False

    def check(message: ReceivedMessage) -> TransactionState:
        return TransactionState.COMMIT if is_decided else TransactionState.UNKNOWN

    def page() -> Any:
        return browser.get("transactions.json").tree

    def seen() -> None:
        """The half message while it is checked, then given up, then checked again."""
        nonlocal is_decided
        wait_until(lambda: page()["open"], "an open transaction", timeout_s=DEADLINE_S)
        (half,) = page()["open"]
        assert (half["topic"], half["producerGroup"]) == ("T1", "shop")
        assert half["answerer"] == "CONNECTED"
        (here,) = page()["brokers"]
        assert here["checkMax"] == CHECK_MAX
        assert here["knowsEnds"] == (version == "5.5.0")
        wait_until(lambda: page()["givenUp"], "a transaction given up", timeout_s=DEADLINE_S)
        (row,) = page()["givenUp"]
        assert row["half"]["checks"] == CHECK_MAX
        assert row["half"]["messageId"] == half["messageId"]
        is_decided = True
        place = row["half"]["place"]
        assert half["messageId"] in browser.get("resume_check", place=place).text
        assert browser.post("resume_check", place=place).status == 303
        wait_until(delivered, "the message", timeout_s=DEADLINE_S)

    def delivered() -> bool:
        queues = browser.get("topic.json", topic="T1").tree["queues"]
        return sum(each["end"] for each in queues) == 1

    async def run() -> None:
        async with (
            Admin(cluster.namesrv_address) as admin,
            TransactionProducer(admin.client, group="shop", check=check) as producer,
        ):
            await admin.create_topic("T1", 1)
            with pytest.raises(ZeroDivisionError):
                async with producer.transaction(Message("T1", "x")):
                    raise ZeroDivisionError
            await anyio.to_thread.run_sync(seen)

    anyio.run(run)
