"""A console in a thread of this process, and a browser without a window."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

from trocket.cli.stopped_store.files import read_conf_file
from trocket.cli.stopped_store.serving import opened_store
from trocket.cli.stopped_store.shown import client_of, shown_store
from trocket.client import Client, ClientOptions, Credentials
from trocket.console.beside import serving_in_thread
from trocket.console.clock import Clock
from trocket.console.console import Console
from trocket.console.settings import SILENT_TIMEOUT_S, ConsoleSettings

from ..own_log import BROKER_THREAD

TIMEOUT_S = 30
THREAD = f"{BROKER_THREAD}console"
"""A thread whose lines are not those of a test, as of a fixture's broker."""


class Answer(NamedTuple):
    """An answer to a request."""

    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def tree(self) -> Any:
        return json.loads(self.text)


class Browser:
    """Sends requests as a browser does, with the cookies that it got."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.cookies: dict[str, str] = {}

    def request(
        self,
        method: str,
        path: str,
        fields: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_S)
        sent = {"Sec-Fetch-Site": "same-origin", **(headers or {})}
        if self.cookies:
            sent["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        body = urlencode(fields) if fields is not None else None
        try:
            connection.request(method, path, body, {k: v for k, v in sent.items() if v})
            answer = connection.getresponse()
            for value in answer.headers.get_all("set-cookie") or ():
                name, _, rest = value.partition("=")
                self.cookies[name] = rest.partition(";")[0]
            text = answer.read().decode()
            return Answer(answer.status, dict(answer.headers.items()), text)
        finally:
            connection.close()

    def get(self, page: str, **query: object) -> Answer:
        return self.request("GET", f"/{page}{'?' + urlencode(query) if query else ''}")

    def tree(self, page: str, **query: object) -> Any:
        """A page that is there, as JSON."""
        answer = self.get(page, **query)
        assert answer.status == 200, (page, query, answer.text)
        return answer.tree

    def post(self, page: str, **fields: str) -> Answer:
        return self.request("POST", f"/{page}", fields)


@contextmanager
def running_console(
    url: str, *, clock: Clock | None = None, **settings: Any
) -> Iterator[tuple[Console, Browser]]:
    """A console of a cluster, and a browser that is not logged in."""

    def open_client(account: Credentials | None = None) -> Client:
        known: ClientOptions = {"silent_timeout_s": SILENT_TIMEOUT_S}
        if account is not None:
            known["credentials"] = account
        return Client(url, **known)

    made = ConsoleSettings(port=0, **settings)
    with _running(made, open_client, clock=clock, open_client=open_client) as both:
        yield both


@contextmanager
def store_console(
    folder: Path, conf: Path | None = None, **settings: Any
) -> Iterator[tuple[Console, Browser]]:
    """A console of a stopped broker's store, and a browser that is not logged in."""
    given = None if conf is None else read_conf_file(str(conf))
    with (
        opened_store(str(folder), given) as store,
        _running(
            ConsoleSettings(port=0, stopped=shown_store(store), **settings),
            lambda: client_of(store),
        ) as both,
    ):
        yield both


@contextmanager
def _running(
    made: ConsoleSettings, client_of: Callable[[], Client], **options: Any
) -> Iterator[tuple[Console, Browser]]:
    with serving_in_thread(made, client_of, name=THREAD, **options) as (console, port):
        yield console, Browser(port)


def logged_in(console: Console, browser: Browser) -> Browser:
    """The browser, logged in with the token."""
    answer = browser.request("GET", f"/login?token={console.logins.token}")
    assert answer.status == 303
    return browser
