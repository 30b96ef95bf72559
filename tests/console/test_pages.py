"""Every page of a cluster, in its three forms and both languages."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from typing import Any

import pytest

from trocket.console.pages.table import PAGES
from trocket.console.texts import LANGUAGES, language_of, texts_of
from trocket.testing import Broker

from .running import Browser, logged_in, running_console

QUERIES: dict[str, dict[str, str]] = {
    "topic": {"topic": "orders"},
    "group": {"group": "billing"},
    "dead_letters": {"group": "billing"},
    "popped": {"group": "billing"},
    "broker": {"name": "broker-a"},
    "messages": {"topic": "orders"},
    "search": {"q": "4"},
    "tail": {"topic": "orders"},
}
ELSEWHERE = {"member", "message"}
"""Pages that need a member or a message: their own tests have one."""
TEMPLATES = Path(__file__).resolve().parents[2] / "console" / "templates"


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("page", PAGES, ids=lambda each: each.name)
def test_every_page_is_shown(browser: Browser, page: Any, language: str) -> None:
    if page.name in ELSEWHERE:
        return
    query = QUERIES.get(page.name, {})
    browser.cookies["trocket_console_language"] = language
    shown = browser.get(page.name, **query)
    assert shown.status == 200, shown.text
    assert f'<html lang="{"zh-CN" if language == "zh" else "en"}">' in shown.text
    for value in query.values():
        assert value in shown.text
    tree = browser.get(f"{page.name}.json", **query)
    assert tree.status == 200
    assert isinstance(tree.tree, dict)
    if page.table:
        table = browser.get(f"{page.name}.csv", **query)
        assert table.status == 200
        rows = list(csv.reader(io.StringIO(table.text)))
        assert len({len(row) for row in rows}) <= 1
    del browser.cookies["trocket_console_language"]


def test_a_topic_says_what_its_queues_hold(browser: Browser) -> None:
    page = browser.get("topic.json", topic="orders").tree
    count = sum(queue["end"] - queue["begin"] for queue in page["queues"])
    assert count >= 40
    assert f"{count} messages are there" in browser.get("topic", topic="orders").text


def test_a_page_of_what_is_not_there_says_so(browser: Browser) -> None:
    answer = browser.get("topic", topic="missing")
    assert answer.status == 502
    assert "missing" in answer.text


def test_a_cell_is_no_formula_of_a_spreadsheet() -> None:
    import msgspec

    from trocket.console.rendering import to_csv

    class Row(msgspec.Struct):
        name: str
        lag: int

    class Table(msgspec.Struct):
        rows: list[Row]

    table = Table([Row("=cmd()", -1), Row('a,"b"\n', 2)])
    assert to_csv(table, "rows") == 'name,lag\r\n\'=cmd(),-1\r\n"a,""b""\n",2\r\n'


def test_both_languages_have_the_same_texts() -> None:
    english, chinese = (texts_of(each) for each in LANGUAGES)
    assert english.keys == chinese.keys
    for key in english.keys:
        fields = [set(re.findall(r"{(\w+)}", str(texts(key)))) for texts in (english, chinese)]
        assert fields[0] == fields[1], key


def test_every_text_is_used_and_every_used_text_is_there() -> None:
    source = "".join(path.read_text() for path in TEMPLATES.iterdir())
    for page in (TEMPLATES.parent).rglob("*.py"):
        source += page.read_text()
    keys = texts_of("en").keys
    used = set(re.findall(r"\bt\('([a-z_.]+)'[,)]", source))
    assert used <= keys
    prefixes = set(re.findall(r"\bt\('([a-z_]+\.)' ~", source))
    prefixes |= {"error.", "done.", "finding_word."}
    prefixes |= set(re.findall(r"\bt\('([a-z_]+\.[a-z]+_)' ~", source))
    ends = set(re.findall(r"' ~ name ~ '(_[a-z]+)'", source))
    for key in keys - used:
        assert key.startswith(tuple(prefixes)) or key.endswith(tuple(ends)), key
    shown = set(re.findall(r"head\(\[(.*?)\]\)", source))
    columns = {
        name for each in shown for name in re.findall(r"\('([a-z_]+)', (?:true|false)\)", each)
    }
    assert {f"column.{name}" for name in columns} <= keys
    errors = set(re.findall(r"PageError\(\d+, \"([a-z_]+)\"", source))
    assert {f"error.{name}" for name in errors} <= keys


@pytest.mark.parametrize(
    ("accepted", "language"),
    [
        ("zh-CN,zh;q=0.9,en;q=0.8", "zh"),
        ("en-US,en;q=0.9,zh;q=0.8", "en"),
        ("de, zh;q=0.1", "zh"),
        ("fr", "en"),
        ("", "en"),
        ("zh;q=x, en;q=0.1", "en"),
        ("zh;q=2", "en"),
        ("*", "en"),
    ],
)
def test_the_language_is_the_readers(accepted: str, language: str) -> None:
    assert language_of(accepted) == language


def test_a_prefix_is_before_every_path(stocked: Broker) -> None:
    with running_console(stocked.url, prefix="/mq") as (console, browser):
        answer = browser.request("GET", f"/mq/login?token={console.logins.token}")
        assert (answer.status, answer.headers["location"]) == (303, "/mq/overview")
        page = browser.get("mq/overview")
        assert page.status == 200
        paths = re.findall(r'(?:href|src|action|data-events)="(/[^"]*)"', page.text)
        assert paths
        assert all(path.startswith("/mq/") for path in paths)
        assert browser.get("overview").status == 404


def test_files_of_a_page_are_kept_by_the_browser(browser: Browser) -> None:
    page = browser.get("overview").text
    for path in re.findall(r'(?:href|src)="/(static/[^"]*)"', page):
        answer = browser.get(path)
        assert answer.status == 200
        assert "immutable" in answer.headers["cache-control"]


def test_no_page_has_a_script_or_a_style_of_its_own_line(browser: Browser) -> None:
    for path in TEMPLATES.iterdir():
        text = path.read_text()
        assert not re.search(r"\sstyle=|\son[a-z]+=|<style|<script(?! src)", text), path.name


def test_live_parts_come_again_with_each_sample(stocked: Broker) -> None:
    import http.client

    with running_console(stocked.url) as (console, browser):
        logged_in(console, browser)
        connection = http.client.HTTPConnection("127.0.0.1", browser.port, timeout=30)
        cookies = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
        connection.request("GET", "/overview.events", headers={"Cookie": cookies})
        answer = connection.getresponse()
        assert answer.headers["content-type"].startswith("text/event-stream")
        events: list[bytes] = []
        while len(events) < 2:
            line = answer.readline()
            assert line, "the stream ended"
            if line.startswith(b"data: "):
                events.append(line)
        assert all(b"orders" in each for each in events)
        assert console.account.samples.viewers == 1
        connection.close()
        answer.close()
