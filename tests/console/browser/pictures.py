"""The pictures of the documents: pages of the console for `examples/lost_messages`.

python -m tests.console.browser.pictures docs/assets/console
"""

from __future__ import annotations

import sys
from pathlib import Path
from urllib.parse import urlencode

from playwright.sync_api import Browser as Chromium

from tests.kit.waiting import wait_until
from trocket.console.login import COOKIE

from ..lost_messages import example, passed_over
from ..running import logged_in, running_console
from .windows import Site, chromium, window

SIZE = {"width": 1100, "height": 780}


def take(browser: Chromium, site: Site, pages: dict[str, str], folder: Path) -> None:
    """Write a picture of each page."""
    for name, address in pages.items():
        with window(browser, site, viewport=SIZE, color_scheme="light") as opened:
            opened.page.goto(f"{site.address}/{address}")
            opened.page.screenshot(path=folder / f"{name}.png")


def main(folder: Path) -> None:
    """Write all pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    with example() as namesrv, running_console(namesrv) as (console, browser):
        logged_in(console, browser)
        wait_until(lambda: browser.get("overview.json").tree["findings"], "findings")
        pages = {
            "overview": "overview",
            "group": "group?group=billing",
            "message": "message?"
            + urlencode({"topic": "orders", "id": passed_over(browser)[0], "group": "billing"}),
            "reset": "reset?" + urlencode({"group": "billing", "topic": "orders", "to": "begin"}),
        }
        site = Site(
            f"http://127.0.0.1:{browser.port}", namesrv, console.logins.token,
            browser.cookies[COOKIE], {},
        )  # fmt: skip
        with chromium() as window_of:
            take(window_of, site, pages, folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
