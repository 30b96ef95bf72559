"""The page of a broker: its files, its replication, its settings, and what is wrong with it."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.waiting import wait_until
from trocket.blocking import Producer
from trocket.client import Message
from trocket.console.findings import about_broker, findings_of
from trocket.interop.trocket_peer import TrocketBroker, TrocketPair
from trocket.testing import Broker

from .running import Browser, logged_in, running_console
from .test_findings import FACTS

KIBIBYTES = 1 << 10
PAGE = {"name": "broker-a"}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    config = {"transactionCheckMax": 5, "mappedFileSizeCommitLog": 256 * KIBIBYTES}
    with Broker(config=config) as running:
        running.create_topic("orders", queues=1)
        yield running


@pytest.fixture(scope="module")
def browser(broker: Broker) -> Iterator[Browser]:
    with running_console(broker.url) as (console, browser):
        yield logged_in(console, browser)


def test_settings_that_differ_are_beside_their_defaults(browser: Browser) -> None:
    page = browser.get("broker.json", **PAGE).tree
    found = {each["key"]: each for each in page["differences"]}
    assert found["transactionCheckMax"] == {
        "key": "transactionCheckMax", "value": "5", "default": "15", "isKnown": True,
    }  # fmt: skip
    assert "transactionTimeOut" not in found
    shown = browser.get("broker", **PAGE).text
    assert "The defaults are those of RocketMQ 5.5.0" in shown


def test_the_next_deletion_of_a_file_is_said(broker: Broker, browser: Browser) -> None:
    """Questions 24 and 25 of operators: when are files deleted, and why did one vanish."""
    assert "so no file can be deleted yet" in browser.get("broker", **PAGE).text
    body = random.Random(1).randbytes(60 * KIBIBYTES)  # does not get shorter by compression
    with Producer(broker.url) as producer:
        for _ in range(6):
            producer.send(Message("orders", body))
    deletion = browser.get("broker.json", **PAGE).tree["deletion"]
    assert (deletion["state"], deletion["keptHours"], deletion["files"]) == ("AT_HOUR", 72, 2)
    shown = browser.get("broker", **PAGE).text
    assert "The log has 2 files. The oldest one is deleted 72 h after its last message" in shown
    assert "at 04 o&#39;clock of the broker&#39;s day" in shown
    assert "Above 75 %, expired files are deleted at any hour; above 85 %" in shown


@pytest.mark.slow
def test_the_slaves_of_a_master_and_the_master_of_a_slave_are_shown(tmp_path: Path) -> None:
    keys: dict[str, object] = {"mappedFileSizeCommitLog": 16 << 20}
    pair = TrocketPair(tmp_path / "master", broker_keys=keys)
    with contextlib.closing(pair):
        pair.start()
        keys |= {"brokerRole": "SLAVE", "brokerId": 1, "namesrvAddr": pair.namesrv_address}
        slave = TrocketBroker(tmp_path / "slave", store=tmp_path / "store", broker_keys=keys)
        with (
            contextlib.closing(slave),
            running_console(f"rocketmq://{pair.namesrv_address}") as (console, browser),
        ):
            slave.start()
            logged_in(console, browser)

            def page(name: str) -> Any:
                return browser.get("broker.json", name=name).tree

            wait_until(lambda: page("broker-a")["slaves"], "a slave")
            (found,) = page("broker-a")["slaves"]
            assert (found["behind"], found["inSync"]) == (0, True)
            wait_until(lambda: page(slave.broker_address)["followed"], "a master")
            assert page(slave.broker_address)["role"] == "SLAVE"
            shown = browser.get("broker", name=slave.broker_address).text
            assert "brokerRole: <code>SLAVE</code>" in shown
            assert "It follows 127.0.0.1:" in shown
            slave.stop_broker()
            pair.stop_broker()


def test_the_page_has_what_is_wrong_with_the_broker(browser: Browser) -> None:
    def found() -> Any:
        return browser.get("broker.json", **PAGE).tree["findings"]

    wait_until(lambda: found() is not None, "findings")
    assert [each for each in found() if each["query"] != PAGE] == []
    of_all = findings_of(FACTS)
    assert [each.kind for each in about_broker(of_all, "broker-a")] == ["DISK_CLEANS"]
    assert about_broker(of_all, "broker-b") == ()
