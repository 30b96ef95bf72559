"""The web application: routes, log-in, event streams."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final
from urllib.parse import parse_qsl

import msgspec
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from ..client import AccessDeniedError, ClientError, ConfigurationError
from ..common.texts import one_line
from ..operations.message_search.problems import SearchError
from .console import Console
from .errors import GoTo, PageError
from .guard import Guard
from .login import COOKIE, Session
from .pages.page import Ask, Change, Page
from .pages.table import CHANGES, DOWNLOADS, NAMES, PAGES
from .rendering import STATIC, Renderer, json_of, plain_text, to_csv, to_json
from .roles import Person, Role
from .texts import LANGUAGES, Texts, language_of, texts_of

LANGUAGE_COOKIE: Final = "trocket_console_language"
FIELDS_MAX: Final = 200
"""Fields of a form or a query."""
YEAR_S: Final = 365 * 86_400
VIEWERS_MAX: Final = 200
"""Open event streams: more people do not watch one cluster, and each holds a connection."""
KEEP_ALIVE_S: Final = 20.0
"""Between two signs of life of a stream without changes: proxies end silent ones after a minute."""

Endpoint = Callable[[Request], Awaitable[Response]]
Failure = PageError | SearchError | ClientError
FAILURES: Final = (PageError, SearchError, ClientError)


class App:
    """The requests of a console, as Starlette's endpoints."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._prefix = console.settings.prefix
        self._stopped = console.settings.stopped
        shown = {page.name for page in PAGES if self._stopped is None or not page.needs_broker}
        self._renderer = Renderer(
            self._prefix, shown, self._stopped, has_clock=console.clock is not None
        )

    def routes(self) -> list[Route]:
        """All routes: of pages in three forms, of changes, of log-in and files."""
        routes = [
            Route(f"{self._prefix}/", self._to_overview),
            Route(f"{self._prefix}/login", self._login, methods=["GET", "POST"]),
            Route(f"{self._prefix}/logout", self._logout, methods=["POST"]),
            Route(f"{self._prefix}/language", self._language, methods=["POST"]),
            Route(f"{self._prefix}/static/{{version}}/{{name}}", self._static),
        ]
        for page in PAGES:
            path = f"{self._prefix}/{page.name}"
            routes.append(Route(path, self._page(page, "html")))
            routes.append(Route(f"{path}.json", self._page(page, "json")))
            if page.table:
                routes.append(Route(f"{path}.csv", self._page(page, "csv")))
            if page.is_live:
                routes.append(Route(f"{path}.events", self._events(page)))
        routes += [Route(f"{self._prefix}/{name}", self._download(name)) for name in DOWNLOADS]
        for change in CHANGES:
            path = f"{self._prefix}/{change.name}"
            routes.append(Route(path, self._change(change), methods=["GET", "POST"]))
        return routes

    # Pages

    def _page(self, page: Page, form: str) -> Endpoint:
        async def respond(request: Request) -> Response:
            session = self._session(request)
            self._check_is_known(page)
            fields = _fields(request.url.query)
            shown = await page.view(self._ask(session, fields))
            if form == "json":
                return Response(to_json(shown), media_type="application/json")
            if form == "csv":
                return Response(to_csv(shown, page.table), media_type="text/csv; charset=utf-8")
            section = page.section or page.name
            return self._html(
                request, page.name, section, session.person, page=shown, fields=fields,
                rows=page.rows(shown, fields),
            )  # fmt: skip

        return respond

    def _check_is_known(self, page: Page) -> None:
        if self._stopped is not None and page.needs_broker:
            raise PageError(409, "needs_broker", path=self._stopped.path)

    def _download(self, name: str) -> Endpoint:
        async def respond(request: Request) -> Response:
            session = self._session(request)
            file = await DOWNLOADS[name](self._ask(session, _fields(request.url.query)))
            headers = {"Content-Disposition": f'attachment; filename="{file.name}"'}
            return Response(file.data, media_type="application/octet-stream", headers=headers)

        return respond

    def _events(self, page: Page) -> Endpoint:
        async def respond(request: Request) -> Response:
            session = self._session(request)
            self._check_is_known(page)
            if self._console.streams.count >= VIEWERS_MAX:
                raise PageError(503, "too_many_viewers", limit=VIEWERS_MAX)
            ask = self._ask(session, _fields(request.url.query))
            return StreamingResponse(
                self._stream(request, page, session, ask), media_type="text/event-stream"
            )

        return respond

    async def _stream(
        self, request: Request, page: Page, session: Session, ask: Ask
    ) -> AsyncIterator[bytes]:
        t, section = self._texts(request), page.section or page.name
        streams = self._console.streams
        try:
            with streams.opened():
                yield b"retry: 5000\n\n"
                async with page.follow(ask) as following:
                    while True:
                        with streams.waiting(KEEP_ALIVE_S) as waited:
                            await following()
                        if streams.have_ended:
                            return
                        if self._console.logins.session_of(request) != session:
                            return  # the session has ended meanwhile
                        if waited.cancelled_caught:
                            yield b":\n\n"
                            continue
                        yield await self._event(page, ask, t, section)
        except FAILURES:
            return  # the browser asks again, and gets the page that says why

    async def _event(self, page: Page, ask: Ask, t: Texts, section: str) -> bytes:
        shown = await page.view(ask)
        rows = page.rows(shown, ask.query)
        block = self._renderer.live_block(
            page.name, t, section, page=shown, person=ask.person, fields=ask.query, rows=rows
        )
        return b"data: " + msgspec.json.encode(block) + b"\n\n"

    # Changes

    def _change(self, change: Change) -> Endpoint:
        async def respond(request: Request) -> Response:
            session = self._session(request)
            self._check_may_change(session.person, change)
            fields = await _sent(request)
            ask = self._ask(session, fields)
            if request.method == "GET":
                shown = await change.preview(ask)
                section = change.section or change.name
                return self._html(
                    request, change.name, section, session.person, page=shown, fields=fields
                )
            done = await change.carry_out(ask)
            query = {**done.query, "done": done.key, **{
                f"done_{name}": str(value) for name, value in done.values.items()
            }}  # fmt: skip
            return RedirectResponse(self._renderer.url(done.page, **query), 303)

        return respond

    def _check_may_change(self, person: Person, change: Change) -> None:
        if self._stopped is not None:
            raise PageError(403, "stopped_store", path=self._stopped.path)
        if self._console.settings.is_read_only:
            raise PageError(403, "read_only")
        if person.role < change.role:
            raise PageError(403, "role_too_low", role=change.role.name.lower())

    # People

    def _session(self, request: Request) -> Session:
        session = self._console.logins.session_of(request)
        if session is None:
            raise PageError(401, "no_session")
        return session

    async def _login(self, request: Request) -> Response:
        fields = await _sent(request)
        error: PageError | None = None
        if request.method == "POST" or "token" in fields:
            secret = fields.get("token") or fields.get("password", "")
            try:
                session = await self._console.logins.log_in(
                    request, fields.get("name", ""), secret.strip()
                )
            except PageError as caught:
                error = caught
            else:
                answer = RedirectResponse(self._after_login(fields), 303)
                answer.set_cookie(
                    COOKIE, session, path=f"{self._prefix}/", httponly=True, samesite="strict",
                    secure=request.url.scheme == "https",
                )  # fmt: skip
                return answer
        status = 200 if error is None else error.status
        return self._html(
            request, "login", "", None, status, error=error, next=fields.get("next", ""),
            has_passwords=self._console.logins.has_passwords,
            has_accounts=self._console.logins.has_accounts,
        )  # fmt: skip

    def _after_login(self, fields: Mapping[str, str]) -> str:
        """Where to go on: a page of this console, whatever the field says."""
        wanted = fields.get("next", "")
        page, _, query = wanted.partition("?")
        if page in NAMES:
            return self._renderer.url(page, **_fields(query))
        return self._renderer.url("overview")

    async def _logout(self, request: Request) -> Response:
        self._console.logins.log_out(request)
        answer = RedirectResponse(self._renderer.url("login"), 303)
        answer.delete_cookie(COOKIE, path=f"{self._prefix}/")
        return answer

    async def _language(self, request: Request) -> Response:
        fields = await _sent(request)
        language = fields.get("language", "")
        answer = RedirectResponse(self._after_login(fields), 303)
        if language in LANGUAGES:
            answer.set_cookie(
                LANGUAGE_COOKIE, language, max_age=YEAR_S, path=f"{self._prefix}/",
                httponly=True, samesite="strict",
            )  # fmt: skip
        return answer

    # Other answers

    async def _to_overview(self, request: Request) -> Response:
        return RedirectResponse(self._renderer.url("overview"), 303)

    async def _static(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in STATIC:
            return self._failed(request, PageError(404, "no_page"))
        return Response(
            self._renderer.files[name],
            media_type=STATIC[name],
            headers={"Cache-Control": f"public, max-age={YEAR_S}, immutable"},
        )

    async def not_found(self, request: Request, error: Exception) -> Response:
        """The answer to a path that is none."""
        return self._failed(request, PageError(404, "no_page"))

    async def not_allowed(self, request: Request, error: Exception) -> Response:
        """The answer to a method that a path does not have."""
        return self._failed(request, PageError(405, "no_method"))

    async def go_to(self, request: Request, other: Any) -> Response:
        """The answer where another page is it."""
        return RedirectResponse(self._renderer.url(other.page, **other.query), 303)

    async def failed(self, request: Request, error: Any) -> Response:
        """The answer to a request that fails by one of FAILURES: in words."""
        return self._failed(request, error)

    def _failed(self, request: Request, error: Failure) -> Response:
        status, key, values = _explained(error)
        is_page = not request.url.path.endswith((".json", ".csv", ".events"))
        if status == 401 and is_page and request.method == "GET":
            path = request.url.path.removeprefix(f"{self._prefix}/")
            query = f"?{request.url.query}" if request.url.query else ""
            return RedirectResponse(self._renderer.url("login", next=path + query), 303)
        t = self._texts(request)
        if not is_page:
            body = {"error": key, "text": plain_text(t(f"error.{key}", **values))}
            return Response(json_of(body), status, media_type="application/json")
        session = self._console.logins.session_of(request)
        person = None if session is None else session.person
        return self._html(request, "error", "", person, status, key=key, values=values)

    def _texts(self, request: Request) -> Texts:
        chosen = request.cookies.get(LANGUAGE_COOKIE, "")
        if chosen not in LANGUAGES:
            chosen = language_of(request.headers.get("accept-language", ""))
        return texts_of(chosen)

    def _html(
        self,
        request: Request,
        template: str,
        section: str,
        person: Person | None,
        status: int = 200,
        **values: object,
    ) -> Response:
        query = request.url.query
        path = request.url.path.removeprefix(f"{self._prefix}/")
        html = self._renderer.html(
            template,
            self._texts(request),
            section,
            person=person,
            roles=Role,
            here=path + (f"?{query}" if query else ""),
            cluster=self._cluster,
            is_read_only=self._console.settings.is_read_only or self._stopped is not None,
            done=_done(query),
            **values,
        )
        return Response(html, status, media_type="text/html; charset=utf-8")

    @property
    def _cluster(self) -> str:
        """What is shown, for the head of the pages."""
        if self._stopped is not None:
            return self._stopped.path
        return ", ".join(self._console.account.admin.client.url.name_servers)

    def _ask(self, session: Session, fields: Mapping[str, str]) -> Ask:
        opened = session.opened
        account = self._console.account if opened is None else opened.account
        return Ask(self._console, account, session.person, fields)


async def _sent(request: Request) -> dict[str, str]:
    """The fields of a form that was sent, or else of the query. Raises: PageError."""
    if request.method == "POST":
        return _fields((await request.body()).decode("utf-8", "replace"))
    return _fields(request.url.query)


def _fields(encoded: str) -> dict[str, str]:
    """The fields of a query or a form. Raises: PageError: there are too many."""
    try:
        return dict(parse_qsl(encoded, keep_blank_values=True, max_num_fields=FIELDS_MAX))
    except ValueError:
        raise PageError(400, "too_many_fields", limit=FIELDS_MAX) from None


def _done(query: str) -> tuple[str, dict[str, str]] | None:
    """What the change before did, as its answer sent the browser here; None: nothing."""
    if "done=" not in query:
        return None
    try:
        fields = _fields(query)
    except PageError:
        return None
    key = fields.get("done", "")
    values = {
        name.removeprefix("done_"): value
        for name, value in fields.items()
        if name.startswith("done_")
    }
    texts, key_of_text = texts_of(LANGUAGES[0]), f"done.{key}"
    is_whole = key_of_text in texts.keys and texts.names(key_of_text) <= values.keys()
    return (key, values) if is_whole else None


def _explained(error: Failure) -> tuple[int, str, Mapping[str, object]]:
    if isinstance(error, PageError):
        return error.status, error.key, error.values
    if isinstance(error, SearchError):
        return 400, error.problem.value, error.data
    text = one_line(error)
    if isinstance(error, AccessDeniedError) or isinstance(error.__cause__, AccessDeniedError):
        return 403, "access_denied", {"text": text}
    if isinstance(error, ConfigurationError):
        return 400, "wrong_value", {"text": text}
    return 502, "cluster", {"text": text}


def make_app(console: Console) -> Starlette:
    """The application of a running console."""
    app = App(console)
    return Starlette(
        routes=app.routes(),
        middleware=[Middleware(Guard, settings=console.settings)],
        exception_handlers={
            404: app.not_found,
            405: app.not_allowed,
            GoTo: app.go_to,
            **dict.fromkeys(FAILURES, app.failed),
        },
    )
