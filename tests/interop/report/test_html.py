"""The page: everything of a run in one file, safe, and readable on a screen and on a phone."""

from __future__ import annotations

import dataclasses
import os
import re
import time
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from trocket.interop.report.cells import Kind, Run, Verdict
from trocket.interop.report.html import to_html

from .browser import Browser, chromium_or_skip
from .sample import HOSTILE, sample_run

SHOTS_VARIABLE = "TROCKET_SCREENSHOTS"
"""Names a folder in which the screenshots are kept, to be looked at."""


class Reader(HTMLParser):
    """What is in a page: tags with their attributes, and all text outside scripts and styles."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._inside: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self._inside.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in ("script", "style"):
            self._inside.pop()

    def handle_data(self, data: str) -> None:
        if not self._inside:
            self.text += data

    def count(self, class_: str) -> int:
        return sum(class_ in (attrs.get("class") or "").split() for _, attrs in self.tags)


def test_every_cell_is_a_mark_and_what_did_not_pass_has_a_card() -> None:
    run = sample_run()
    page = Reader(to_html(run).decode())
    counts = run.counts()
    assert page.count("mark") == len(run.cells)
    assert page.count("card") == len(run.cells) - counts[Verdict.PASSED]
    targets = {attrs["popovertarget"] for _, attrs in page.tags if "popovertarget" in attrs}
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert targets <= set(ids)
    assert len(ids) == len(set(ids))
    for name, version in run.versions.items():
        assert f"{name}{version}" in page.text


def test_nothing_that_a_cell_says_becomes_a_part_of_the_page() -> None:
    page = to_html(sample_run()).decode()
    tags = Reader(page).tags
    assert [attrs for tag, attrs in tags if tag == "script"] == [{}]
    assert not [attrs for _, attrs in tags if any(name.startswith("on") for name in attrs)]
    assert "alert(" in Reader(page).text
    assert re.search("[\x00-\x08\x0b-\x1f\ud800-\udfff]", page) is None
    assert HOSTILE not in page


def test_nothing_is_loaded_from_elsewhere() -> None:
    page = to_html(sample_run()).decode()
    loading = ("src", "srcset", "action", "data", "poster", "background")
    for tag, attrs in Reader(page).tags:
        assert tag not in ("link", "iframe", "img", "object", "embed", "base")
        assert not [name for name in loading if name in attrs]
        assert (attrs.get("href") or "#").startswith("#")
    assert re.search(r"url\(|@import|https?://|fetch\(|XMLHttpRequest", page) is None


def test_a_run_without_cells_is_a_page_too() -> None:
    assert "0 cells" in to_html(Run("2026-11-22T03:00:00Z", 0.0, {})).decode()


# ---- in a browser ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(chromium_or_skip(), tmp_path_factory.mktemp("browser")) as browser:
        yield browser


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "run.html"
    path.write_bytes(to_html(sample_run()))
    return path


def shoot(browser: Browser, name: str, tmp_path: Path) -> None:
    folder = Path(os.environ.get(SHOTS_VARIABLE) or tmp_path)
    path = folder / f"{name}.png"
    browser.screenshot(path)
    assert path.stat().st_size > 10_000


@pytest.mark.slow
@pytest.mark.parametrize("is_dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize(("width", "height"), [(1280, 1000), (390, 844)])
def test_it_fits_a_screen_and_a_phone(
    browser: Browser, page: Path, tmp_path: Path, width: int, height: int, is_dark: bool
) -> None:
    browser.show(page, width, height, is_dark=is_dark)
    name = f"{width}-{'dark' if is_dark else 'light'}"
    shoot(browser, f"{name}-top", tmp_path)
    assert browser.evaluate("innerWidth") == width
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    browser.evaluate("document.querySelector('#scenario').scrollIntoView()")
    shoot(browser, f"{name}-matrix", tmp_path)
    # The wide matrix scrolls in its own box, and its first column stays.
    boxes = "[...document.querySelectorAll('.scroll')]"
    assert browser.evaluate(
        f"{boxes}.every(box => box.getBoundingClientRect().right <= innerWidth)"
    )
    if width < 600:
        assert browser.evaluate(f"{boxes}[0].scrollWidth > {boxes}[0].clientWidth")
        left = "document.querySelector('tbody th').getBoundingClientRect().left"
        before = browser.evaluate(left)
        browser.evaluate(f"{boxes}[0].scrollLeft = 300")
        assert browser.evaluate(f"{boxes}[0].scrollLeft") == 300
        assert abs(browser.evaluate(left) - before) <= 1


@pytest.mark.slow
def test_a_phone_that_is_turned_is_not_kept_waiting(browser: Browser, tmp_path: Path) -> None:
    run = sample_run()
    # As large as a full run with many failures: a selector with :has took minutes here.
    cells = [
        dataclasses.replace(cell, feature=f"{cell.feature}_{n}", verdict=Verdict.FAILED)
        for n in range(2)
        for cell in run.cells
    ]
    page = tmp_path / "large.html"
    page.write_bytes(to_html(dataclasses.replace(run, cells=tuple(cells))))
    browser.show(page, 844, 390)
    began_s = time.monotonic()
    browser.show_size(390, 844)
    assert browser.evaluate("document.documentElement.scrollWidth") <= 390
    assert time.monotonic() - began_s < 20


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("has_scripts", [True, False], ids=["scripts", "no scripts"])
def test_a_failure_opens_a_card_with_its_frames(
    browser: Browser, page: Path, tmp_path: Path, width: int, has_scripts: bool
) -> None:
    browser.call("Emulation.setScriptExecutionDisabled", value=not has_scripts)
    try:
        browser.show(page, width, 844)
        browser.click("#scenario td .failed")
    finally:
        browser.call("Emulation.setScriptExecutionDisabled", value=False)
    shoot(browser, f"{width}-card", tmp_path)
    card = "document.querySelector(':popover-open')"
    assert "SEND_MESSAGE_V2 310" in browser.evaluate(f"{card}.innerText")
    assert browser.evaluate(f"{card}.getBoundingClientRect().right") <= width
    assert browser.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.slow
def test_rows_are_chosen_by_verdict_and_by_name(browser: Browser, page: Path) -> None:
    rows = "[...document.querySelectorAll('#scenario tbody')].filter(e => e.checkVisibility())"
    browser.show(page, 1280, 844)
    everything = browser.evaluate(f"{rows}.length")
    browser.click("[for=show-failed]")
    cells = [cell for cell in sample_run().failed if cell.kind is Kind.SCENARIO]
    failed = list(dict.fromkeys(cell.feature for cell in cells))
    assert browser.evaluate(f"{rows}.map(e => e.dataset.name)") == failed != []
    browser.click("[for=show-all]")
    assert browser.evaluate(f"{rows}.length") == everything
    browser.click("[for=faults]")
    subs = "[...document.querySelectorAll('tr.sub')].filter(e => e.checkVisibility())"
    assert browser.evaluate(f"{subs}.length") == 0
    browser.click("#search")
    browser.call("Input.insertText", text="BATCH")
    assert browser.evaluate(f"{rows}.map(e => e.dataset.name)") == [
        "send_batch",
        "send_auto_batched",
    ]
