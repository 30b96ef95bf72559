"""Checks of each request before a page sees it, and the headers of each answer.

An ASGI middleware. What it refuses is answered in one line of text.
"""

from __future__ import annotations

from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .origins import SAFE_METHODS, is_known_host, is_own_origin
from .settings import ConsoleSettings

QUERY_SIZE_MAX: Final = 8 << 10
"""Bytes of a query: an SQL92 expression and a cursor fit several times."""
FORM_SIZE_MAX: Final = 6 << 20
"""Bytes of a form: a message's body of 4 MiB with its escapes."""

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}


class Guard:
    """Refuses requests to other hosts, from other sites, and those that are too long."""

    def __init__(self, app: ASGIApp, settings: ConsoleSettings) -> None:
        self._app = app
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                # Pages tell of messages: no cache keeps them.
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        refused = self._refusal(scope)
        answer = self._app if refused is None else refused
        await answer(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope) -> PlainTextResponse | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if not is_known_host(host, self._settings.allowed_hosts):
            return PlainTextResponse(
                "This console does not answer for the host of this request. Start it with "
                "--allow-host NAME for each name by which people reach it.\n",
                421,
            )
        if len(scope["query_string"]) > QUERY_SIZE_MAX:
            return PlainTextResponse(f"The query is longer than {QUERY_SIZE_MAX} bytes.\n", 414)
        if scope["method"] not in SAFE_METHODS:
            if not is_own_origin(headers):
                return PlainTextResponse(
                    "A change must come from a page of this console: the browser names another "
                    "origin, or none.\n",
                    403,
                )
            length = headers.get("content-length", "")
            if not length.isascii() or not length.isdigit() or int(length[:12]) > FORM_SIZE_MAX:
                return PlainTextResponse(
                    f"A form needs a Content-Length of at most {FORM_SIZE_MAX}.\n", 413
                )
        return None
