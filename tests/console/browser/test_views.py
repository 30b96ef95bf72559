"""Every page in Chromium: light and dark, on a screen and on a phone, in both languages."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser as Chromium

from tests.kit.matrix import first_of
from trocket.console.pages.table import CHANGES, PAGES
from trocket.console.texts import LANGUAGES

from .windows import NARROW, WIDE, Opened, Site, window

VIEWS = [view.name for view in (*PAGES, *CHANGES)]
AXE = Path(__file__).parent / "vendor" / "axe-core" / "axe.min.js"
AXE_VERSION = "4.14.1"
AXE_SHA256 = "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c"

pytestmark = pytest.mark.slow


def test_axe_is_the_released_file() -> None:
    text = AXE.read_bytes()
    assert text.startswith(f"/*! axe v{AXE_VERSION}\n".encode())
    assert sha256(text).hexdigest() == AXE_SHA256
    assert b"Mozilla Public License, version 2.0" in (AXE.parent / "LICENSE").read_bytes()


def looks(opened: Opened) -> Any:
    """The page in light and dark, on a screen and on a phone, by turns."""
    for scheme in ("light", "dark"):
        opened.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")  # type: ignore[arg-type]
        for size in (WIDE, NARROW):
            opened.page.set_viewport_size(size)
            yield f"{scheme}, {size['width']} px"


def violations(opened: Opened, look: str) -> list[str]:
    """What axe finds wrong: its rule, and where; in the dark by the rules of colours alone.

    Only colours differ between light and dark, and no rule reads files of styles.
    """
    options: dict[str, object] = {"resultTypes": ["violations"], "preload": False}
    if look.startswith("dark"):
        options["runOnly"] = {"type": "tag", "values": ["cat.color"]}
    found = opened.page.evaluate(
        "async options => (await axe.run(document, options)).violations", options
    )
    return [
        f"{each['id']}: {node['html'][:150]} {node['failureSummary']}"
        for each in found
        for node in each["nodes"]
    ]


@pytest.mark.parametrize("language", first_of(LANGUAGES))  # others have other texts alone
@pytest.mark.parametrize("name", VIEWS)
def test_axe_finds_nothing(shown: Chromium, site: Site, name: str, language: str) -> None:
    with window(shown, site, language=language, bypass_csp=True) as opened:
        opened.page.add_init_script(path=AXE)
        answer = opened.page.goto(site.page(name), wait_until="load")
        assert answer is not None
        assert answer.status == 200, f"add the page to QUERIES: {opened.page.inner_text('main')}"
        for look in looks(opened):
            assert violations(opened, look) == [], look


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("name", VIEWS)
def test_a_page_is_no_wider_than_its_screen_and_asks_no_other_host(
    shown: Chromium, site: Site, name: str, language: str
) -> None:
    with window(shown, site, language=language) as opened:
        opened.page.goto(site.page(name), wait_until="load")
        for look in looks(opened):
            assert not opened.is_too_wide, look
        assert opened.faults == []


def test_the_log_in_and_an_error_are_pages_like_others(shown: Chromium, site: Site) -> None:
    with window(shown, site, bypass_csp=True, is_logged_in=False) as opened:
        opened.page.add_init_script(path=AXE)
        opened.page.goto("/overview")
        assert "/login" in opened.page.url
        for look in looks(opened):
            assert violations(opened, look) == [], look
            assert not opened.is_too_wide, look
    with window(shown, site, bypass_csp=True) as opened:
        opened.page.add_init_script(path=AXE)
        opened.page.goto("/topic?topic=missing")
        for look in looks(opened):
            assert violations(opened, look) == [], look
            assert not opened.is_too_wide, look


def test_what_breaks_the_rules_of_a_page_is_noticed(shown: Chromium, site: Site) -> None:
    image = '<p style="width: 4000px">x</p><img src="http://127.0.0.2:9/x.png">'
    add = "(html) => { document.body.insertAdjacentHTML('beforeend', html) }"
    with window(shown, site) as opened:
        opened.page.goto("/overview")
        with opened.page.expect_console_message(lambda message: "CSP img-src" in message.text):
            opened.page.evaluate(add, image)
        assert any("CSP style-src" in fault for fault in opened.faults), opened.faults
    with window(shown, site, bypass_csp=True) as opened:
        opened.page.goto("/overview")
        with opened.page.expect_request("http://127.0.0.2:9/x.png"):
            opened.page.evaluate(add, image)
        assert opened.faults[0] == "a request to http://127.0.0.2:9/x.png"
        assert opened.is_too_wide
