"""Members with Apache's Java client on the console's pages: what each wants, and where it hangs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.console.page_lives import words_of
from tests.console.running import Browser, logged_in, running_console
from tests.kit.waiting import wait_until
from trocket.blocking import Producer
from trocket.client import Message
from trocket.interop.java_peer import JavaPeer
from trocket.testing import Broker

pytestmark = [pytest.mark.interop, pytest.mark.slow]

GROUP = "billing"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        running.create_topic("orders", queues=2)
        running.create_group(GROUP)
        yield running


@pytest.fixture(scope="module")
def browser(broker: Broker) -> Iterator[Browser]:
    with running_console(broker.url) as (console, browser):
        yield logged_in(console, browser)


def test_members_of_java_show_what_they_want_and_where_they_hang(
    broker: Broker, browser: Browser, tmp_path: Path
) -> None:
    address = broker.url.removeprefix("rocketmq://")

    def group() -> dict[str, Any]:
        found: dict[str, Any] = browser.get("group.json", group=GROUP).tree
        return found

    with JavaPeer("5.5.0", tmp_path / "a") as first, JavaPeer("4.9.7", tmp_path / "b") as second:
        for peer, name, tags in ((first, "one", "paid"), (second, "two", "refund")):
            peer.start_consuming(
                name, ["orders"], namesrv_address=address, group=GROUP, expression=tags,
                hold_after=1,
            )  # fmt: skip

        def wants() -> set[str]:
            members = group()["members"]
            return {each["expression"] for one in members for each in one["wants"] or ()}

        wait_until(lambda: wants() == {"paid", "refund"}, lambda: str(group()))
        shown = words_of(browser.get("group", group=GROUP).text)
        assert "The members subscribe to different things of orders" in shown
        assert shown.count("JAVA V") == 2
        with Producer(broker.url, group="shop") as producer:
            for number in range(40):
                tag = ("paid", "refund")[number // 2 % 2]  # both in each queue
                producer.send(Message("orders", b"x", tags=tag, keys=str(number)))

        def stuck() -> str:
            for member in group()["members"]:
                page = browser.get("member", group=GROUP, client=member["clientId"])
                assert page.status == 200
                stacks = page.text[page.text.index("<pre") : page.text.index("</pre>")]
                if "ConsumeMessageThread" in stacks and "Peer" in stacks:
                    return stacks
            return ""

        wait_until(stuck, lambda: str(group()))
        assert len(stuck().splitlines()) > 20
        first.resume("one")
        second.resume("two")
