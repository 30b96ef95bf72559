"""Every page and every change in Chromium on three brokers, ours and Apache's."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from itertools import product
from typing import Any
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Browser as Chromium
from playwright.sync_api import Page, expect

from trocket.console.login import COOKIE
from trocket.console.pages.table import CHANGES, PAGES
from trocket.interop.peer import Cluster
from trocket.interop.peers import check_peer, open_cluster

from .sites import CONFIG, open_site
from .windows import Site, window

pytestmark = [pytest.mark.interop, pytest.mark.slow]

VIEWS = [view.name for view in (*PAGES, *CHANGES) if view.name != "clock"]
"""The clock is of a broker in this process: `test_views` has it."""


def _cells() -> Iterator[Any]:
    """Each broker with and without scripts; without them `make test` has ours alone."""
    for peer, scripts in product(("trocket", "apache-5.5.0", "apache-4.9.7"), (True, False)):
        yield pytest.param(
            peer,
            scripts,
            id=f"{peer}-{'scripts' if scripts else 'no-scripts'}",
            marks=() if (peer, scripts) in FAST else pytest.mark.matrix,
        )


FAST = {("trocket", True), ("trocket", False), ("apache-5.5.0", True)}
ON_EACH_BROKER = pytest.mark.parametrize(
    ("cluster", "scripts"), list(_cells()), indirect=["cluster"], scope="module"
)


@pytest.fixture(scope="module")
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """A running cluster, for all tests here."""
    reason = check_peer(request.param)
    if reason is not None:
        pytest.fail(reason)
    cluster = open_cluster(request.param, tmp_path_factory.mktemp("peer") / "cluster", CONFIG)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


@pytest.fixture(scope="module")
def is_4(cluster: Cluster) -> bool:
    """Whether the broker has neither pops nor timer messages."""
    return cluster.label.startswith("apache-4")


@pytest.fixture(scope="module")
def site(shown: Chromium, cluster: Cluster, is_4: bool) -> Iterator[Site]:
    with open_site(cluster.namesrv_address, has_timers=not is_4) as site:
        yield site


def tree(site: Site, page: str, **query: str) -> dict[str, object]:
    """A page as JSON."""
    connection = http.client.HTTPConnection(site.address.removeprefix("http://"), timeout=30)
    try:
        path = f"/{page}.json?{urlencode(query)}"
        connection.request("GET", path, headers={"Cookie": f"{COOKIE}={site.session}"})
        found: dict[str, object] = json.loads(connection.getresponse().read())
        return found
    finally:
        connection.close()


REFUSED = {
    "popped": "have no pops, as they are of RocketMQ 4.x",
    "recall": "waits that can be recalled",
}
"""What pages say of a broker of 4.x, which has no such thing."""


@ON_EACH_BROKER
def test_every_page_is_shown(shown: Chromium, site: Site, is_4: bool, scripts: bool) -> None:
    with window(shown, site, java_script_enabled=scripts) as opened:
        for name in VIEWS:
            answer = opened.page.goto(site.page(name), wait_until="load")
            assert answer is not None
            text = opened.page.inner_text("main")
            if is_4 and name in REFUSED:
                assert REFUSED[name] in text
                opened.faults.clear()  # the status of the answer
                continue
            assert answer.status == 200, (name, text)
            assert "Not all brokers answered" not in text, name
            if scripts:  # else nothing can be asked
                assert not opened.is_too_wide, name
            assert opened.faults == [], name


def confirm(page: Page) -> None:
    """See the preview, and confirm it."""
    page.click("main form.panel button")
    page.click("main form.confirm button")


def done(page: Page, text: str) -> None:
    expect(page.locator("[role=status]").first).to_contain_text(text)


@ON_EACH_BROKER
def test_a_topic_is_created_changed_and_deleted(shown: Chromium, site: Site, scripts: bool) -> None:
    with window(shown, site, java_script_enabled=scripts) as opened:
        page, name = opened.page, f"made-{scripts}"
        page.goto("/topics")
        page.fill("main form input[name=topic]", name)
        page.click("main form button:has-text('Create')")
        confirm(page)
        done(page, name)
        page.click("main .tools a:has-text('Change')")
        page.fill("input[name=queues]", "3")
        confirm(page)
        done(page, name)
        (on_broker,) = tree(site, "topic", topic=name)["brokers"]  # type: ignore[misc]
        assert on_broker["writeQueues"] == 3
        page.click("main .tools a:has-text('Delete')")
        page.fill("input[name=confirm]", name)
        page.click("main form button.main")
        done(page, name)
        assert tree(site, "topic", topic=name)["error"] == "cluster"
        assert opened.faults == []


@ON_EACH_BROKER
def test_a_group_is_created_changed_and_deleted(shown: Chromium, site: Site, scripts: bool) -> None:
    with window(shown, site, java_script_enabled=scripts) as opened:
        page, name = opened.page, f"made-group-{scripts}"
        page.goto("/groups")
        page.fill("main form input[name=group]", name)
        page.click("main form button:has-text('Create')")
        confirm(page)
        done(page, name)
        page.goto(f"/change_group?group={name}")
        page.fill("input[name=retryMaxTimes]", "3")
        confirm(page)
        done(page, name)
        after = tree(site, "audit")["changes"][0]["after"]  # type: ignore[index]
        assert [each["retryMaxTimes"] for each in after.values()] == [3]
        page.goto(f"/delete_group?group={name}")
        page.fill("input[name=confirm]", name)
        page.click("main form button.main")
        done(page, name)
        assert opened.faults == []


@ON_EACH_BROKER
def test_messages_are_found_and_sent_and_a_copy_is_edited(
    shown: Chromium, site: Site, scripts: bool
) -> None:
    with window(shown, site, java_script_enabled=scripts) as opened:
        page, key = opened.page, f"sent-{scripts}"
        page.goto("/topic?topic=orders")
        page.click("main .tools a:has-text('Send')")
        page.fill("input[name=keys]", key)
        page.fill("textarea[name=body]", "first")
        page.click("main form button.main")
        done(page, "The message was sent to orders")
        expect(page.locator("pre").first).to_contain_text("first")
        page.click("main .tools a:has-text('edited copy')")
        expect(page.locator("textarea[name=body]")).to_have_value("first")
        page.fill("textarea[name=body]", "second")
        page.click("main form button.main")
        done(page, "The message was sent to orders")
        page.goto("/messages?topic=orders")
        page.fill("main input[name=text]", "second")
        page.click("main form button.main")
        expect(page.locator("main [role=status]")).to_contain_text("messages found among")
        row = page.locator("tbody tr", has_text=key).first
        expect(row).to_contain_text("second")
        row.locator("a").click()
        expect(page.locator("pre").first).to_contain_text("second")
        page.goto("/messages?topic=orders")
        page.fill("main input[name=key]", "17")
        page.click("main form button.main")
        expect(page.locator("tbody tr")).to_contain_text('{"id": 17}')
        page.fill("#q", "orders")
        page.press("#q", "Enter")
        expect(page.locator("h1")).to_have_text("orders")
        assert opened.faults == []


def committed(site: Site) -> dict[str, int]:
    queues: list[dict[str, int]] = tree(site, "group", group="audit")["queues"]  # type: ignore[assignment]
    return {f"{each['brokerName']} {each['queueId']}": each["committed"] for each in queues}


@ON_EACH_BROKER
def test_a_reset_and_its_undo_leave_the_offsets_as_they_were(
    shown: Chromium, site: Site, scripts: bool
) -> None:
    before = committed(site)
    with window(shown, site, java_script_enabled=scripts) as opened:
        page = opened.page
        page.goto("/group?group=audit")
        page.click("main .tools a:has-text('Reset')")
        page.fill("input[name=topic]", "orders")
        page.select_option("select[name=to]", "end")
        confirm(page)
        done(page, "The offsets in orders were reset")
        assert all(committed(site)[queue] > offset for queue, offset in before.items())
        page.goto("/audit")
        page.click("tbody tr:first-child a")
        page.click("form.confirm button")
        done(page, "were set back")
        assert committed(site) == before
        assert opened.faults == []


@ON_EACH_BROKER
def test_a_dead_letter_is_sent_again(shown: Chromium, site: Site, scripts: bool) -> None:
    with window(shown, site, java_script_enabled=scripts) as opened:
        page, row = opened.page, int(scripts)
        page.goto("/dead_letters?group=billing")
        page.locator("tbody input[type=checkbox]").nth(row).check()
        page.click("main button:has-text('Send the chosen ones again')")
        expect(page.locator("ul.names")).to_contain_text("1 go to orders")
        page.click("form.confirm button")
        done(page, "1 dead letters were sent again")
        expect(page.locator("tbody tr").nth(row)).to_contain_text("sent again by change")
        assert opened.faults == []


@ON_EACH_BROKER
def test_a_delayed_message_is_recalled(
    shown: Chromium, site: Site, is_4: bool, scripts: bool
) -> None:
    with window(shown, site, java_script_enabled=scripts) as opened:
        page = opened.page
        page.goto("/delayed?topic=later")
        links = page.locator("tbody a:has-text('Recall')")
        if is_4:
            expect(links).to_have_count(0)
            expect(page.locator("tbody tr")).to_have_count(1)
            return
        links.first.click()
        page.click("form.confirm button")
        done(page, "was recalled")
        assert opened.faults == []


@ON_EACH_BROKER
def test_a_transaction_that_was_given_up_is_checked_again(
    shown: Chromium, site: Site, scripts: bool
) -> None:
    with window(shown, site, java_script_enabled=scripts) as opened:
        page = opened.page
        page.goto("/transactions")
        page.locator("main a:has-text('Check again')").first.click()
        page.click("main form.confirm button")
        done(page, "is checked again")
        assert opened.faults == []
