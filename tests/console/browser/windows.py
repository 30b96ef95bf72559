"""A console of a cluster that has something on every page, and Chromium in front of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

from playwright.sync_api import Browser as Chromium
from playwright.sync_api import BrowserContext, ConsoleMessage, Page, Request, sync_playwright

from tests.kit.chromium import chromium_or_skip
from trocket.console.app import LANGUAGE_COOKIE
from trocket.console.login import COOKIE

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
TIMEOUT_MS = 30_000
WIDE = {"width": 1280, "height": 800}
NARROW = {"width": 390, "height": 800}
"""A phone's."""

REPORTS = (
    "addEventListener('securitypolicyviolation', event =>"
    " console.error(`CSP ${event.violatedDirective} ${event.blockedURI} ${event.sample}`))"
)


@contextmanager
def chromium() -> Iterator[Chromium]:
    """The machine's Chromium without a window."""
    program = chromium_or_skip()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


class Site(NamedTuple):
    """A running console.

    Attributes:
      address: "http://127.0.0.1:PORT".
      url: of its cluster.
      token: that logs in.
      session: cookie of a person who is logged in.
      queries: of each page or change that needs one, by name.
    """

    address: str
    url: str
    token: str
    session: str
    queries: Mapping[str, Mapping[str, str]]

    def page(self, name: str) -> str:
        """The address of a page with its query."""
        query = self.queries.get(name, {})
        return f"{self.address}/{name}{'?' + urlencode(query) if query else ''}"


class Opened(NamedTuple):
    """A page in a window, and what went wrong in it.

    Attributes:
      faults: errors of the page's console, violations of its Content-Security-Policy, and requests
        to other hosts.
    """

    page: Page
    faults: list[str]

    @property
    def is_too_wide(self) -> bool:
        """Whether the page can be scrolled sideways."""
        wide: bool = self.page.evaluate(
            "document.documentElement.scrollWidth > document.documentElement.clientWidth"
        )
        return wide


@contextmanager
def window(
    chromium: Chromium, site: Site, *, language: str = "en", is_logged_in: bool = True, **given: Any
) -> Iterator[Opened]:
    """A window with cookies apart from others'; `given` is as for Playwright's `new_context`."""
    context: BrowserContext = chromium.new_context(base_url=site.address, **given)
    try:
        context.set_default_timeout(TIMEOUT_MS)
        cookies = {LANGUAGE_COOKIE: language}
        if is_logged_in:
            cookies[COOKIE] = site.session
        context.add_cookies(
            [{"name": name, "value": value, "url": site.address} for name, value in cookies.items()]
        )
        page = context.new_page()
        faults: list[str] = []

        def hear(message: ConsoleMessage) -> None:
            if message.type == "error":
                faults.append(message.text)

        def see(request: Request) -> None:
            parts = urlsplit(request.url)
            if f"{parts.scheme}://{parts.netloc}" != site.address:
                faults.append(f"a request to {request.url[:200]}")

        page.on("console", hear)
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("request", see)
        page.add_init_script(REPORTS)
        yield Opened(page, faults)
    finally:
        context.close()
