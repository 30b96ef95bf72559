"""The pages of messages: searches, one message with its life and its body, and masks."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest

from trocket.blocking import Producer
from trocket.client import Message
from trocket.console.bodies.decoder import DecoderFailure
from trocket.console.bodies.views import ViewKind, ViewProblem
from trocket.console.masks import BodyState
from trocket.console.texts import texts_of
from trocket.operations.message_life import (
    GapReason,
    OutcomeKind,
    RefusalReason,
    Source,
    StageKind,
    StageState,
    VerdictKey,
)
from trocket.operations.message_search.problems import Problem
from trocket.operations.message_search.search_box import Meaning
from trocket.operations.unpacking import Unreadable
from trocket.testing import Broker

from .page_lives import words_of
from .running import Browser, logged_in, running_console

SCRIPT = "<script>alert(1)</script>"
HOSTILE = (SCRIPT, "javascript:alert(1)", "a\u202eb", "a\x00b", '"><img src=x onerror=alert(1)>')


def sent(broker: Broker, topic: str, body: bytes, **fields: Any) -> str:
    """The id of a message that was sent."""
    with Producer(broker.url, group="shop") as producer:
        return producer.send(Message(topic, body, **fields)).message_id


def indexed(browser: Browser, message_id: str, topic: str = "orders") -> str:
    """The id, once the index has it, which is a moment after the answer to the send."""
    for _ in range(1_000):
        page = browser.get("message.json", id=message_id, topic=topic).tree
        if page["life"]["message"] is not None:
            return message_id
    raise AssertionError(f"{message_id} is not in the index")


def test_a_search_says_how_many_were_scanned(stocked: Broker, browser: Browser) -> None:
    stocked.create_topic("few", queues=2)
    for number in range(10):
        sent(stocked, "few", b"x", tags="paid" if number < 4 else "refund")
    page = browser.get("messages.json", topic="few", tag="refund").tree
    assert len(page["messages"]) == 6
    assert page["isComplete"]
    shown = browser.get("messages", topic="few", tag="paid")
    assert "4 messages found among 10 that were scanned" in shown.text
    found = browser.get("messages.json", topic="few", sql="TAGS = 'sent'").tree
    assert (found["messages"], found["scanned"]) == ([], 10)


def test_a_search_goes_on_where_its_cursor_is(stocked: Broker, browser: Browser) -> None:
    stocked.create_topic("many", queues=1)
    with Producer(stocked.url, group="shop") as producer:
        for number in range(120):
            producer.send(Message("many", b"%d" % number))
    bodies: list[str] = []
    query = {"topic": "many", "order": "oldest"}
    for _ in range(10):
        page = browser.get("messages", **query).text
        bodies += re.findall(r"<td class=\"wide\" data-h=\"Body\"><code>(\d+)</code>", page)
        link = re.search(r'href="/messages\?([^"]*cursor[^"]*)"', page)
        if link is None:
            break
        query = dict(parse_qsl(html.unescape(link.group(1))))
    assert bodies == [str(number) for number in range(120)]


def test_a_key_is_found_by_the_index(browser: Browser) -> None:
    page = browser.get("messages.json", topic="orders", key="17").tree
    assert [each["body"] for each in page["messages"]] == ['{"id": 17}']
    assert page["byIndex"]


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ({"topic": "missing"}, "no_topic"),
        ({"topic": "orders", "sql": "a >"}, "bad_sql"),
        ({"topic": "orders", "queue": "x"}, "not_a_number"),
        ({"topic": "orders", "offset": "3"}, "needs_queue"),
        ({"topic": "orders", "broker": "broker-a", "queue": "0", "offset": "99"}, "offset_above"),
        ({"topic": "orders", "from": "2999-01-01"}, "time_in_future"),
        ({"topic": "orders", "from": "yesterday"}, "no_time"),
        ({"topic": "orders", "cursor": "abc"}, "bad_cursor"),
        ({"topic": "orders", "text": "x" * 5_000}, "too_long"),
    ],
)
def test_a_search_that_cannot_be_says_why(
    browser: Browser, query: dict[str, str], error: str
) -> None:
    answer = browser.get("messages.json", **query)
    assert answer.status == 400
    assert answer.tree["error"] == error
    assert browser.get("messages", **query).status == 400


def test_the_box_leads_to_what_was_typed(stocked: Broker, browser: Browser) -> None:
    message_id = sent(stocked, "orders", b"x")
    browser.get("overview")
    for text, place in (
        ("orders", "/topic?topic=orders"),
        ("broker-a", "/broker?name=broker-a"),
        (f" {message_id} ", f"/message?id={message_id}"),
    ):
        answer = browser.get("search", q=text)
        assert (answer.status, answer.headers["location"]) == (303, place)
    assert "messages of orders with this key" in browser.get("search", q="order-1042").text


def test_a_message_has_its_life_and_its_groups(stocked: Broker, browser: Browser) -> None:
    message_id = sent(stocked, "orders", b'{"a": [1, 2]}', tags="refund", keys="k-1")
    indexed(browser, message_id)
    page = browser.get("message", id=message_id, topic="orders")
    assert page.status == 200
    text = words_of(page.text)
    assert "In the commit log" in text
    assert "In its queue" in text
    assert '"a": [' in text
    tree = browser.get("message.json", id=message_id, topic="orders").tree
    assert tree["life"]["message"]["topic"] == "orders"
    for kind in ViewKind:
        shown = browser.get("message", id=message_id, topic="orders", **{"as": kind.value})
        assert shown.status == 200
    assert browser.get("message", id=message_id, **{"as": "xml"}).status == 400
    body = browser.get("body", id=message_id, topic="orders")
    assert (body.text, body.headers["content-type"]) == (
        '{"a": [1, 2]}', "application/octet-stream",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("message_id", "verdict"),
    [
        ("0" * 32, "NOT_FOUND"),
        ("not an id", ""),
        ("0A00000900002A9F0000000000000000", "FOREIGN_BROKER"),
    ],
)
def test_an_id_without_a_message_has_its_sentence(
    browser: Browser, message_id: str, verdict: str
) -> None:
    page = browser.get("message.json", id=message_id, topic="orders")
    assert page.status == 200
    assert page.tree["life"]["message"] is None
    if verdict:
        assert page.tree["life"]["verdict"]["key"] == verdict
    assert browser.get("message", id=message_id, topic="orders").status == 200


@pytest.mark.parametrize("text", HOSTILE)
def test_strings_of_clients_are_shown_as_text(stocked: Broker, browser: Browser, text: str) -> None:
    keys = text.replace(" ", "_")
    message_id = (
        sent(stocked, "orders", text.encode(), tags="t", keys=keys, properties={"p": text})
        if "\x00" not in text
        else sent(stocked, "orders", text.encode())
    )
    indexed(browser, message_id)
    for page in (
        browser.get("message", id=message_id, topic="orders"),
        browser.get("message", id=message_id, topic="orders", **{"as": "text"}),
        browser.get("messages", topic="orders"),
    ):
        assert page.status == 200
        assert SCRIPT not in page.text
        assert "<img" not in page.text
        assert "\u202e" not in page.text
        assert "\x00" not in page.text
        assert 'href="javascript' not in page.text
    assert browser.get("message.json", id=message_id, topic="orders").status == 200
    answer = browser.get("search", q=text)
    assert answer.status in (200, 303, 400)
    assert SCRIPT not in answer.text


@pytest.mark.parametrize(
    "body",
    [b"", b"\xff\xfe\x00", b"[" * 10_000, b"x" * (1 << 20), b"\x1f\x8b\x08damaged"],
    ids=["empty", "no UTF-8", "deep", "long", "damaged"],
)
def test_every_body_is_shown_in_every_way(stocked: Broker, browser: Browser, body: bytes) -> None:
    message_id = indexed(browser, sent(stocked, "orders", body or b" "))
    for kind in ("", *(each.value for each in ViewKind)):
        query = {"as": kind} if kind else {}
        page = browser.get("message", id=message_id, topic="orders", **query)
        assert page.status == 200
        assert len(page.text) < 400_000


@pytest.fixture(scope="module")
def masked(stocked: Broker) -> Iterator[Browser]:
    masks = ("orders:$.card", "orders:properties.secret")
    with running_console(stocked.url, masks=masks) as (console, browser):
        yield logged_in(console, browser)


def test_masks_hide_everywhere(stocked: Broker, masked: Browser) -> None:
    card, secret = "4111-1111-1111-1111", "open-sesame"
    body = json.dumps({"id": 7, "card": card}).encode()
    message_id = sent(stocked, "orders", body, properties={"secret": secret}, tags="masked")
    query = {"id": indexed(masked, message_id), "topic": "orders"}
    pages = [
        masked.get("message", **query),
        masked.get("message.json", **query),
        masked.get("body", **query),
        masked.get("messages", topic="orders", tag="masked"),
        masked.get("messages.json", topic="orders", tag="masked"),
        masked.get("messages.csv", topic="orders", tag="masked"),
        *(masked.get("message", **query, **{"as": kind.value}) for kind in ViewKind),
    ]
    for page in pages:
        assert page.status == 200
        assert card not in page.text
        assert card.encode().hex(" ") not in page.text
        assert secret not in page.text
    found = masked.get("messages.json", topic="orders", text=card).tree
    assert found["messages"] == []
    assert "Parts of this body are masked" in pages[0].text


def test_an_edited_copy_is_sent(stocked: Broker, browser: Browser) -> None:
    message_id = sent(stocked, "orders", b'{"a": 1}', tags="t", keys="k", properties={"p": "v=w"})
    indexed(browser, message_id)
    form = html.unescape(browser.get("send", id=message_id, topic="orders").text)
    assert '{"a": 1}' in form
    assert "p=v=w" in form
    done = browser.post(
        "send", topic="orders", body='{"a": 2}\r\n', tags="u", keys="k l", properties="p=v=w\n\nq=1"
    )
    assert done.status == 303, done.text
    page = browser.request("GET", done.headers["location"])
    assert "The message was sent to orders" in page.text
    newest = max(stocked.messages("orders"), key=lambda each: each.store_timestamp_ms)
    assert newest.body == b'{"a": 2}\n'
    assert (newest.tags, newest.keys) == ("u", "k l")
    assert {"p": "v=w", "q": "1"}.items() <= newest.properties.items()
    change = browser.get("audit.json").tree["changes"][0]
    assert (change["what"], change["of"]) == ("send", {"topic": "orders"})


def test_a_copy_is_not_changed_in_silence(stocked: Broker, browser: Browser) -> None:
    properties = {"p": "a\nb=c", "q=r": "1", "kept": "\u2028x", "nul": "\0"}
    message_id = sent(stocked, "orders", b"a\r\nb\r\n", properties=properties)
    form = browser.get("send", id=indexed(browser, message_id), topic="orders").text
    assert "they are left out here: p, q=r, nul" in form
    assert 'name="crlf" value="1"' in form
    fields = {"body": "a\r\nb\r\n", "properties": "kept=\u2028x", "crlf": "1"}
    assert browser.post("send", topic="orders", **fields).status == 303
    newest = max(stocked.messages("orders"), key=lambda each: each.store_timestamp_ms)
    assert newest.body == b"a\r\nb\r\n"
    assert newest.properties["kept"] == "\u2028x"
    for body in (b"a\0b", b"a\rb", b"\xff"):
        message_id = sent(stocked, "orders", body)
        form = browser.get("send", id=indexed(browser, message_id), topic="orders").text
        assert "The body of that message is no text" in form


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"properties": "no sign"}, "is not name=value"),
        ({"properties": "=v"}, "is not name=value"),
        ({"properties": "KEYS=x"}, "cannot be sent"),
        ({"tags": "a||b"}, "cannot be sent"),
        ({"topic": "missing topic"}, ""),
    ],
)
def test_a_message_that_cannot_be_sent_says_why(
    browser: Browser, fields: dict[str, str], error: str
) -> None:
    answer = browser.post("send", **{"topic": "orders", "body": "x", **fields})
    assert answer.status in (400, 502)
    assert error in html.unescape(answer.text)


def test_a_masked_message_is_not_copied(stocked: Broker, masked: Browser) -> None:
    message_id = sent(stocked, "orders", b'{"card": "4111"}')
    indexed(masked, message_id)
    assert masked.get("send", id=message_id, topic="orders").status == 403


def test_a_decoder_of_the_users_shows_bodies(
    stocked: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shop.py").write_text(
        "def show(topic, properties, body): return f'{topic}: {body.hex()}'\n"
        "def fail(topic, properties, body): raise ValueError('<b>no</b>')\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    query = {"id": sent(stocked, "orders", b"decoded"), "topic": "orders", "as": "decoded"}
    for function, expected in (
        ("show", f"orders: {b'decoded'.hex()}"),
        ("fail", "The decoder raised an error"),
    ):
        with running_console(stocked.url, decoder=f"shop:{function}") as (console, browser):
            logged_in(console, browser)
            indexed(browser, query["id"])
            page = browser.get("message", **query)
            assert page.status == 200
            assert expected in page.text
            assert "<b>" not in page.text.partition("<main")[2].partition("<h2>")[0]
    with running_console(stocked.url) as (console, browser):
        logged_in(console, browser)
        assert browser.get("message", **query).status == 400


def test_every_key_of_a_life_has_its_text() -> None:
    keys = texts_of("en").keys
    wanted = {
        "verdict": VerdictKey,
        "stage": StageKind,
        "outcome": OutcomeKind,
        "source": Source,
        "refusal": RefusalReason,
        "gap": GapReason,
        "view": ViewKind,
        "view_problem": ViewProblem,
        "unreadable": Unreadable,
        "decoder": DecoderFailure,
        "error": Problem,
    }
    for section, kinds in wanted.items():
        assert {f"{section}.{each.value}" for each in kinds} <= keys, section
    assert {
        f"stage_state.{each.value}" for each in StageState if each is not StageState.DONE
    } <= keys
    assert {f"mask.{each.value}" for each in BodyState if each is not BodyState.SHOWN} <= keys
    assert {f"meaning.{each.value}" for each in Meaning if each is not Meaning.KEY} <= keys
