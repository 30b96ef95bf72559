"""The page of the report on lag and store: what it says, and how it looks in a browser."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from tests.kit.chromium import chromium_or_skip
from tests.spark.jobs.browser import Browser
from trocket.spark.jobs.lag_rows import Held, Place, lag_rows
from trocket.spark.jobs.report_page import page, size, span

SHOTS_VARIABLE = "TROCKET_SCREENSHOTS"
"""A folder for the screenshots, for who wants to look at them."""

AT_MS = 1_795_334_400_000
HOSTILE = "<script>alert(1)</script>\x1b[2J"


def sample() -> dict[str, Any]:
    """A report with some of everything: long names, losses, slopes, many days and topics."""
    lag = []
    for number, (group, topic, queues) in enumerate([
        ("warehouse-reconciliation-nightly-consumer", "TopicOrder", 8),
        ("billing", "TopicPayment", 4),
        ("search", HOSTILE, 16),
        ("idle", "TopicOrder", 2),
    ]):  # fmt: skip
        for queue in range(queues):
            waits = 0 if group == "idle" else (queue * 7919 + 13) % 5000 // (number + 1)
            lag.append({
                "group": group, "topic": topic, "brokerName": "broker-a", "queueId": queue,
                "committed": 100, "begin": 350 if number == 1 and queue < 2 else 0,
                "end": 100 + waits, "lag": waits, "lost": 250 if number == 1 and queue < 2 else 0,
                "next_unread_ms": AT_MS - 60_000 * queue if waits else None,
                "age_s": 60.0 * queue if waits else None, "is_at_risk": False,
                "slope": -1.5 if number == 0 else 0.25 if number == 1 else None,
                "eta_s": waits / 1.5 if number == 0 else None,
            })  # fmt: skip
    topics = ["TopicOrder", "TopicPayment", HOSTILE, *(f"TopicOfService{n}" for n in range(7))]
    return {
        "at_ms": AT_MS,
        "source": "/backup/2026-11-22/broker-a/store",
        "bytes_of": "records",
        "retention_hours": 72.0,
        "lag": lag,
        "bytes": [
            {"topic": topic, "day": f"2026-11-{day:02}", "messages": 1000 + day,
             "bytes": (place + 3) * (day % 5 + 1) * 1_234_567 // (place * place + 1)}
            for place, topic in enumerate(topics) for day in range(3, 22) if day != 9
        ],
        "arrivals_step_ms": 3_600_000,
        "arrivals": [
            {"topic": topic, "at_ms": AT_MS - hour * 3_600_000,
             "messages": 50 + hour % 7 * (place + 1)}
            for place, topic in enumerate(topics[:4]) for hour in range(80) if hour != 5
        ],
        "queues": [
            {"topic": "TopicOrder", "brokerName": "broker-a", "queueId": queue,
             "messages": 90_000 if queue == 3 else 8000 + queue * 300, "bytes": 1 << 20}
            for queue in range(8)
        ] + [{"topic": "TopicPayment", "brokerName": "broker-a", "queueId": queue,
              "messages": 5000, "bytes": 1 << 20} for queue in range(4)],
        "hot_keys": [{"topic": "TopicOrder", "key": f"customer-{n}", "messages": 9000 // (n + 1),
                      "share": 0.4 / (n + 1)} for n in range(10)],
        "duplicates": [{"topic": "TopicOrder", "uniqKey": f"7F00000124A551B6EF5F6C42A3AC{n:04X}",
                        "copies": 2, "first_ms": AT_MS - 9000, "last_ms": AT_MS - 6000}
                       for n in range(3)],
        "duplicate_count": 1234,
    }  # fmt: skip


def test_the_page_loads_nothing_and_names_are_text() -> None:
    text = page(sample()).decode()
    tags: list[str] = []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, attrs: tags.append(tag)  # type: ignore[method-assign]
    parser.feed(text)
    assert "svg" in tags
    assert "script" not in tags
    assert "\x1b" not in text
    assert re.search(r"<(link|iframe|img|object|embed|base)\b|\bsrc=|@import|url\(", text) is None
    assert re.search(r"https?://", text) is None
    for word in ("250 lost", "falls by 12.0/s", "grows by 1.0/s", "fullest 4.7 times", "1,234"):
        assert word in text


def test_a_report_of_little_is_a_page_too() -> None:
    report = sample() | {"lag": [], "queues": [], "hot_keys": [], "duplicates": []}
    report |= {"duplicate_count": 0, "bytes": report["bytes"][:1]}
    text = page(report).decode()
    assert "No group has committed an offset." in text
    assert "Losing data" not in text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.44, "0.4 s"), (59, "59 s"), (600, "10 min"), (10_000, "3 h"), (864_000, "10.0 days")],
)
def test_spans_of_time(seconds: float, text: str) -> None:
    assert span(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1500, "1.5 kB"),
        (30_000_000, "30.0 MB"),
        (1 << 60, "1152922 TB"),
    ],
)
def test_sizes(count: int, text: str) -> None:
    assert size(count) == text


# ---- lag rows ----------------------------------------------------------------------------

QUEUE = Place("T", "b", 0)


def rows(committed: int, held: Held, stored: dict[tuple[Place, int], int], **more: Any) -> Any:
    (row,) = lag_rows(
        {("g", QUEUE): committed}, {QUEUE: held}, stored, at_ms=AT_MS, retention_s=3600, **more
    )
    return row


def test_a_group_behind_the_first_message_has_lost_some_and_goes_on_there() -> None:
    row = rows(10, Held(30, 50), {(QUEUE, 30): AT_MS - 9000})
    assert (row.lag, row.lost, row.age_s, row.is_at_risk) == (20, 20, 9.0, False)


def test_what_retention_is_about_to_delete_is_at_risk() -> None:
    stored = {(QUEUE, 10): AT_MS - 2_881_000}
    assert rows(10, Held(0, 50), stored).is_at_risk
    assert not rows(10, Held(0, 50), {(QUEUE, 10): AT_MS - 2_879_000}).is_at_risk


def test_a_group_that_has_all_waits_for_nothing() -> None:
    row = rows(50, Held(0, 50), {})
    assert (row.lag, row.lost, row.next_unread_ms, row.age_s) == (0, 0, None, None)


def test_two_reports_give_a_slope_and_the_time_until_nothing_is_left() -> None:
    was = {"group": "g", "topic": "T", "brokerName": "b", "queueId": 0, "lag": 100}
    before = {"at_ms": AT_MS - 10_000, "lag": [was]}
    row = rows(10, Held(0, 50), {}, before=before)
    assert (row.slope, row.eta_s) == (-6.0, pytest.approx(40 / 6))
    assert rows(10, Held(0, 210), {}, before=before).slope == 10.0
    assert rows(10, Held(0, 50), {}, before=before | {"at_ms": AT_MS}).slope is None
    assert rows(10, Held(0, 50), {}, before=before | {"lag": [was | {"group": "h"}]}).slope is None


def test_a_deleted_topic_is_no_row() -> None:
    assert lag_rows({("g", QUEUE): 1}, {}, {}, at_ms=1, retention_s=1) == []


# ---- in a browser ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(chromium_or_skip(), tmp_path_factory.mktemp("browser")) as browser:
        yield browser


@pytest.mark.slow
@pytest.mark.parametrize("is_dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize(("width", "height"), [(1280, 1000), (390, 844)])
def test_it_fits_a_screen_and_a_phone(
    browser: Browser, tmp_path: Path, width: int, height: int, is_dark: bool
) -> None:
    path = tmp_path / "report.html"
    path.write_bytes(page(sample()))
    browser.show(path, width, height, is_dark=is_dark)
    assert browser.evaluate("innerWidth") == width
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    # What is too wide scrolls in its own box, and no shape is squeezed to nothing.
    plots = "[...document.querySelectorAll('svg, .scroll')].filter(n => !n.closest('table'))"
    boxes = f"{plots}.map(n => n.getBoundingClientRect())"
    assert browser.evaluate(f"{boxes}.every(box => box.right <= innerWidth && box.height > 4)")
    # Only the phone's text would be small: shapes hold none.
    assert browser.evaluate("document.querySelectorAll('svg text').length") == 0
    sizes = "[...document.querySelectorAll('td, th, span, div')]"
    least = f"{sizes}.map(n => parseFloat(getComputedStyle(n).fontSize))"
    assert browser.evaluate(f"Math.min(...{least})") >= 11
    shots = os.environ.get(SHOTS_VARIABLE)
    if shots:
        bottom = browser.evaluate("document.documentElement.scrollHeight")
        browser.show_size(width, bottom)
        browser.screenshot(Path(shots) / f"report-{width}-{'dark' if is_dark else 'light'}.png")


def test_its_links_lead_to_places_and_time_has_a_plot() -> None:
    text = page(sample()).decode()
    targets = {unquote(each) for each in re.findall(r'href="#([^"]+)"', text)}
    places = set(re.findall(r' id="([^"]+)"', text))
    assert {"lag", "messages-over-time", "queues-TopicOrder"} <= targets
    # A topic whose messages are all gone has no queues to show.
    assert {each for each in targets - places if not each.startswith("queues-")} == set()
    assert 'aria-label="messages over time"' in text
    assert "Messages over time" not in page(sample() | {"arrivals": []}).decode()
    assert ">broker-a/7</span>" in text
