"""Requests that the console refuses: of other hosts and sites, without a right, too long."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from trocket.console.origins import is_known_host, is_own_origin
from trocket.console.pages.table import CHANGES, NAMES, PAGES
from trocket.console.passwords import hash_password
from trocket.console.roles import Role
from trocket.console.sessions import TRIES_MAX
from trocket.testing import Broker

from .running import Browser, logged_in, running_console

CHANGE_NAMES = [change.name for change in CHANGES]
PAGE_NAMES = [page.name for page in PAGES]


@pytest.fixture(scope="module")
def passwords(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("console") / "passwords"
    roles = [role.name.lower() for role in Role]
    path.write_text("".join(f"{role}:{role}:{hash_password(role)}\n" for role in roles))
    return path


@pytest.fixture(scope="module")
def with_passwords(stocked: Broker, passwords: Path) -> Iterator[Browser]:
    with running_console(stocked.url, passwords=passwords) as (_, browser):
        yield browser


@pytest.mark.parametrize(
    ("host", "is_known"),
    [
        ("127.0.0.1:8082", True),
        ("localhost", True),
        ("LOCALHOST:1", True),
        ("[::1]:8082", True),
        ("mq.example.org:8082", True),
        ("evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("localhost.evil.example:8082", False),
        ("[::2]", False),
        ("", False),
    ],
)
def test_a_host_is_known_by_its_name(host: str, is_known: bool) -> None:
    assert is_known_host(host, {"mq.example.org"}) is is_known


@pytest.mark.parametrize(
    ("headers", "is_own"),
    [
        ({"sec-fetch-site": "same-origin", "host": "h"}, True),
        ({"sec-fetch-site": "none", "host": "h"}, True),
        ({"sec-fetch-site": "same-site", "host": "h", "origin": "http://h"}, False),
        ({"sec-fetch-site": "cross-site", "host": "h", "origin": "http://h"}, False),
        ({"host": "h:1", "origin": "http://h:1"}, True),
        ({"host": "h:1", "origin": "http://h:2"}, False),
        ({"host": "h:1", "origin": "null"}, False),
        ({"host": "", "origin": "://"}, False),
        ({"host": "h"}, False),
    ],
)
def test_an_origin_is_what_the_browser_says(headers: dict[str, str], is_own: bool) -> None:
    assert is_own_origin(headers) is is_own


def test_a_request_to_another_host_is_refused(browser: Browser) -> None:
    answer = browser.request("GET", "/overview", headers={"Host": "evil.example"})
    assert answer.status == 421
    assert "--allow-host" in answer.text


@pytest.mark.parametrize("page", PAGE_NAMES)
@pytest.mark.parametrize("form", ["", ".json"])
def test_every_page_needs_a_session(browser: Browser, page: str, form: str) -> None:
    answer = Browser(browser.port).get(page + form)
    if form:
        assert answer.status == 401
        assert answer.tree["error"] == "no_session"
    else:
        assert answer.status == 303
        assert answer.headers["location"] == f"/login?next={page}"


@pytest.mark.parametrize("change", CHANGE_NAMES)
def test_every_change_needs_a_session(browser: Browser, change: str) -> None:
    assert Browser(browser.port).post(change, group="billing").status == 401


@pytest.mark.parametrize("change", [*CHANGE_NAMES, "login", "logout", "language"])
@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "", "Origin": "http://evil.example"},
        {"Sec-Fetch-Site": ""},
    ],
)
def test_every_change_of_another_site_is_refused(
    browser: Browser, change: str, headers: dict[str, str]
) -> None:
    answer = browser.request("POST", f"/{change}", {"group": "billing"}, headers)
    assert answer.status == 403
    assert "origin" in answer.text


@pytest.mark.parametrize("change", CHANGES, ids=lambda each: each.name)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_every_change_needs_its_role(with_passwords: Browser, change, method: str) -> None:
    for role in Role:
        person = Browser(with_passwords.port)
        name = role.name.lower()
        assert person.post("login", name=name, password=name).status == 303
        answer = person.request(method, f"/{change.name}", {} if method == "POST" else None)
        # With the role, it is the missing fields that are refused.
        assert answer.status == (403 if role < change.role else 400), role


@pytest.mark.parametrize("change", CHANGE_NAMES)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_every_change_is_refused_where_all_is_read_only(
    stocked: Broker, change: str, method: str
) -> None:
    with running_console(stocked.url, is_read_only=True) as (console, browser):
        logged_in(console, browser)
        answer = browser.request(method, f"/{change}", {} if method == "POST" else None)
        assert answer.status == 403
        assert "--read-only" in answer.text


def test_tries_to_log_in_are_limited(stocked: Broker) -> None:
    with running_console(stocked.url) as (console, browser):
        for _ in range(TRIES_MAX):
            assert browser.post("login", password="guess").status == 403
        assert browser.post("login", password=console.logins.token).status == 429


def test_a_session_ends_with_log_out(stocked: Broker) -> None:
    with running_console(stocked.url) as (console, browser):
        logged_in(console, browser)
        assert browser.get("topics").status == 200
        kept = dict(browser.cookies)
        assert browser.post("logout").status == 303
        browser.cookies = kept
        assert browser.get("topics").status == 303


def test_a_trusted_proxy_names_the_person(stocked: Broker) -> None:
    options = {"trusted_header": "X-User", "trusted_role": "operate"}
    with running_console(stocked.url, **options, trusted_proxies=frozenset({"127.0.0.1"})) as (
        _,
        browser,
    ):
        answer = browser.request("GET", "/topics", headers={"X-User": "ann"})
        assert answer.status == 200
        assert "ann: may look and operate" in answer.text
        assert browser.get("topics").status == 303
    with running_console(stocked.url, **options, trusted_proxies=frozenset({"10.9.9.9"})) as (
        _,
        browser,
    ):
        assert browser.request("GET", "/topics", headers={"X-User": "ann"}).status == 303


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/../etc/passwd", 404),
        ("/static/x/../../app.py", 404),
        ("/static/x/%2e%2e%2fapp.py", 404),
        ("/static/x/app.py", 404),
        ("/topic?topic=" + "a" * 9_000, 414),
        ("/topic?" + "&".join(f"a{n}=" for n in range(300)), 400),
        ("/topic", 400),
        ("/topic?topic=%00%E2%80%AE", 502),
        ("/broker?name=no-such-broker", 502),
        ("/undo?number=99999999999999999999999", 400),
        ("/undo?number=-1", 400),
        ("/undo?number=7", 404),
        ("/reset?group=billing&topic=orders&to=time&at=next+week", 400),
        ("/reset?group=billing&topic=orders&to=time&at=99999-01-01", 400),
        ("/reset?group=billing&topic=orders&to=offset&queue=broker-a&offset=1", 400),
        ("/reset?group=billing&topic=orders&to=offset&queue=broker-a:0&offset=-1", 400),
        ("/reset?group=billing&topic=orders&to=nowhere", 400),
    ],
)  # fmt: skip
def test_a_bad_request_is_answered_in_words(browser: Browser, path: str, status: int) -> None:
    answer = browser.request("GET", path)
    assert answer.status == status
    assert browser.get("topics").status == 200


def test_a_query_of_a_mebibyte_is_cut_off(browser: Browser) -> None:
    # The server does not read it to its end, so the browser may see a reset.
    with contextlib.suppress(ConnectionError):
        assert browser.request("GET", "/topic?topic=" + "a" * (1 << 20)).status == 400
    assert browser.get("topics").status == 200


def test_every_answer_has_the_headers_that_keep_others_out(browser: Browser) -> None:
    for path in ("overview", "overview.json", "login", "nothing"):
        headers = browser.get(path).headers
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
        assert not any(each in policy for each in ("unsafe", "nonce", "http", "*", "data:"))
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert "access-control-allow-origin" not in headers


def test_after_log_in_only_pages_of_the_console_follow(stocked: Broker) -> None:
    for wanted in ("//evil.example", "https://evil.example", "/etc", "overview\r\nX: y", "login"):
        with running_console(stocked.url) as (console, browser):
            answer = browser.post("login", password=console.logins.token, next=wanted)
            assert answer.headers["location"] == "/overview"
    assert "topics" in NAMES


@pytest.mark.parametrize("path", ["/login", "/language", "/reset"])
def test_a_form_of_too_many_fields_is_answered_in_words(browser: Browser, path: str) -> None:
    fields = {f"a{number}": "" for number in range(300)}
    answer = browser.request("POST", path, fields)
    assert answer.status == 400
    assert "more than 200 fields" in answer.text
    many = {"next": "topics?" + "&".join(f"{name}=" for name in fields), "language": "en"}
    assert browser.request("POST", "/language", many).status == 400
