"""The pages of a stopped broker's store in Chromium: what they add is a banner, and refusals."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser as Chromium

from tests.kit.matrix import first_of
from trocket.blocking import Producer
from trocket.client import Message
from trocket.console.login import COOKIE
from trocket.console.texts import LANGUAGES
from trocket.testing import Broker

from ..running import logged_in, store_console
from ..test_pages import QUERIES
from .test_views import AXE, looks, violations
from .windows import Site, window

VIEWS = ("overview", "topics", "topic", "messages", "message", "groups", "group", "clients", "send")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A console of a store whose broker was killed."""
    folder = tmp_path_factory.mktemp("a-long-name-of-a-folder-that-does-not-fit-a-narrow-screen")
    with Broker(folder=folder) as broker:
        broker.create_group("billing")
        with Producer(broker.url, group="shop") as producer:
            sent = producer.send(Message("orders", b"x", tags="refund", keys="1"))
    (folder / "store" / "abort").touch()
    with store_console(folder / "store") as (console, browser):
        logged_in(console, browser)
        message = {"topic": "orders", "id": sent.message_id}
        yield Site(
            f"http://127.0.0.1:{browser.port}",
            "",
            console.logins.token,
            browser.cookies[COOKIE],
            {**QUERIES, "message": message, "send": {"topic": "orders"}},
        )


@pytest.mark.parametrize("language", first_of(LANGUAGES))  # as in test_views
@pytest.mark.parametrize("name", VIEWS)
def test_a_view_is_right(shown: Chromium, site: Site, name: str, language: str) -> None:
    with window(shown, site, language=language, bypass_csp=True) as opened:
        opened.page.add_init_script(path=AXE)
        opened.page.goto(site.page(name), wait_until="load")
        assert opened.page.locator("main > .verdict").first.is_visible()
        for look in looks(opened):
            assert violations(opened, look) == [], look
            assert not opened.is_too_wide, look
