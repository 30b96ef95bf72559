"""What people do on the pages: by keyboard, by buttons, while they change, and without scripts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser as Chromium
from playwright.sync_api import expect

from tests.kit.waiting import wait_until
from trocket.blocking import Producer
from trocket.client import Message

from .windows import Site, window

pytestmark = pytest.mark.slow

SAMPLE_S = 2.0
"""Instead of five: each wait below is for a sample."""
TWO_SAMPLES_MS = 2 * 1000 * SAMPLE_S + 10_000

COUNTED_STREAM = """
window.arrived = 0;
window.EventSource = class extends EventSource {
  constructor(url) {
    super(url);
    this.addEventListener("message", () => { window.arrived += 1; });
  }
};
"""


@pytest.fixture(scope="module", autouse=True)
def samples_are_taken_often() -> Iterator[None]:
    """Set for the module's console, which starts later."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trocket.console.samples.INTERVAL_S", SAMPLE_S)
        yield


def test_a_slash_goes_to_the_search_box(shown: Chromium, site: Site) -> None:
    with window(shown, site) as opened:
        opened.page.goto("/topics")
        opened.page.keyboard.press("/")
        expect(opened.page.locator("#q")).to_be_focused()
        opened.page.keyboard.type("a/b")
        expect(opened.page.locator("#q")).to_have_value("a/b")


def test_tab_and_enter_skip_to_the_main_part(shown: Chromium, site: Site) -> None:
    with window(shown, site) as opened:
        opened.page.goto("/topics")
        opened.page.keyboard.press("Tab")
        expect(opened.page.locator(".skip")).to_be_focused()
        expect(opened.page.locator(".skip")).to_be_in_viewport()
        opened.page.keyboard.press("Enter")
        expect(opened.page.locator("main")).to_be_focused()
        opened.page.keyboard.press("Tab")
        assert opened.page.evaluate(
            "document.querySelector('main').contains(document.activeElement)"
        )


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_theme_is_kept(shown: Chromium, site: Site, scheme: str) -> None:
    other = {"light": "dark", "dark": "light"}[scheme]
    colour = "getComputedStyle(document.body).backgroundColor"
    with window(shown, site, color_scheme=scheme) as opened:
        opened.page.goto("/topics")
        before = opened.page.evaluate(colour)
        opened.page.click("#theme")
        expect(opened.page.locator("html")).to_have_attribute("data-theme", other)
        changed = opened.page.evaluate(colour)
        assert changed != before
        opened.page.goto("/groups")
        assert opened.page.evaluate(colour) == changed
        opened.page.click("#theme")
        assert opened.page.evaluate(colour) == before
        assert opened.faults == []


def test_the_language_is_changed_on_the_same_page(shown: Chromium, site: Site) -> None:
    with window(shown, site) as opened:
        opened.page.goto("/topic?topic=orders")
        opened.page.click("text=中文")
        expect(opened.page.locator("html")).to_have_attribute("lang", "zh-CN")
        expect(opened.page).to_have_url(f"{site.address}/topic?topic=orders")
        opened.page.click("text=English")
        expect(opened.page.locator("html")).to_have_attribute("lang", "en")
        assert opened.faults == []


def test_what_lives_changes_unless_it_is_in_focus(shown: Chromium, site: Site) -> None:
    with window(shown, site) as opened, Producer(site.url, group="shop") as producer:
        opened.page.add_init_script(COUNTED_STREAM)
        opened.page.goto("/topics")
        opened.page.evaluate("window.isSame = true")
        expect(opened.page.locator("#live-state")).to_have_attribute("data-state", "live")
        row = opened.page.locator("tbody tr", has_text="orders")
        rate = row.locator("td[data-h='In/s']")
        expect(rate).to_have_text("0", timeout=TWO_SAMPLES_MS)
        for number in range(50):
            producer.send(Message("orders", b"%d" % number, tags="refund"))
        expect(rate).not_to_have_text("0", timeout=TWO_SAMPLES_MS)
        link = row.locator("a")
        link.focus()
        element = link.element_handle()
        arrived = opened.page.evaluate("window.arrived")
        opened.page.wait_for_function("before => window.arrived > before", arg=arrived)
        expect(link).to_be_focused()
        assert opened.page.evaluate("element => element.isConnected", element)
        opened.page.keyboard.press("/")  # the focus leaves the part
        opened.page.wait_for_function("element => !element.isConnected", arg=element)
        expect(rate).to_have_text("0", timeout=TWO_SAMPLES_MS)
        assert opened.page.evaluate("window.isSame"), "the page was not loaded again"
        assert opened.faults == []


def test_a_topic_is_followed_from_the_page_of_its_messages(shown: Chromium, site: Site) -> None:
    with window(shown, site) as opened, Producer(site.url, group="shop") as producer:
        opened.page.goto("/messages?topic=orders&tag=followed")
        opened.page.click("main .tools a:has-text('Follow')")
        expect(opened.page.locator("#live-state")).to_have_attribute("data-state", "live")
        expect(opened.page.locator("main")).to_contain_text("There is no message yet.")
        producer.send(Message("orders", b"not this one", tags="other"))
        producer.send(Message("orders", b"the first", tags="followed"))
        rows = opened.page.locator("tbody tr")
        expect(rows).to_contain_text(["the first"])
        producer.send(Message("orders", b"the second", tags="followed"))
        expect(rows).to_contain_text(["the second", "the first"])
        expect(opened.page.locator("main")).not_to_contain_text("not this one")
        assert opened.faults == []


def test_without_scripts_a_topic_is_followed_by_loading_again(shown: Chromium, site: Site) -> None:
    with (
        window(shown, site, java_script_enabled=False) as opened,
        Producer(site.url, group="shop") as producer,
    ):
        opened.page.goto("/tail?topic=orders&tag=plain")
        producer.send(Message("orders", b"the first", tags="plain"))
        row = opened.page.locator("tbody tr")

        def is_there() -> bool:
            opened.page.click("main .tools a:has-text('Refresh')")
            return row.count() == 1

        wait_until(is_there, "the message", pause_s=0.2)
        expect(row).to_contain_text("the first")


def test_a_page_whose_console_has_ended_says_so(shown: Chromium, site: Site) -> None:
    with window(shown, site) as opened:
        opened.page.goto("/topics")
        state = opened.page.locator("#live-state")
        expect(state).to_have_attribute("data-state", "live")
        opened.page.context.set_offline(True)
        opened.page.evaluate(
            "() => { for (const name of ['hidden', 'visible']) {"
            " Object.defineProperty(document, 'hidden', {value: name === 'hidden',"
            " configurable: true}); document.dispatchEvent(new Event('visibilitychange')); } }"
        )
        expect(state).to_have_attribute("data-state", "lost")


def test_without_scripts_people_log_in_reset_and_undo(shown: Chromium, site: Site) -> None:
    with window(shown, site, java_script_enabled=False, is_logged_in=False) as opened:
        page = opened.page
        page.goto("/group?group=billing")
        page.fill("input[name=password]", site.token)
        page.click("main button")
        expect(page.locator("h1")).to_have_text("billing")
        page.click("main .tools a:has-text('Reset')")
        page.fill("input[name=topic]", "orders")
        page.select_option("select[name=to]", "end")
        page.click("main form.panel button")
        expect(page.locator("main")).to_contain_text("broker-a 3")
        page.click("form.confirm button")
        expect(page.locator("[role=status]")).to_contain_text("The offsets in orders were reset")
        page.goto("/audit")
        page.click("tbody tr:first-child a")
        page.click("form.confirm button")
        expect(page.locator("[role=status]")).to_contain_text("were set back")
        page.click("header form[action='/logout'] button")
        assert page.url == f"{site.address}/login"
        assert opened.faults == []
