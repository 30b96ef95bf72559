"""HTTP/1.1 server for metrics and health, and for the control port of tests, by h11.

It serves few readers with few requests: a Prometheus, a probe. Everything is bounded, so that a
stranger on the port costs little: connections, the size and time of a request, its time without
one.

Java counterpart: the PrometheusHttpServer of OpenTelemetry, which Apache's broker starts.
"""

from __future__ import annotations

import gzip
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from ...common.supervision import FailureLog, contained
from ..refusals import Refusals
from ..tls_server import ServerTls
from .answers import Answer, text_answer

if TYPE_CHECKING:
    import h11

logger = logging.getLogger(__name__)
_failures = FailureLog(logger)

CONNECTIONS_MAX: Final = 50
"""Connections at a time. For a further one, the oldest that waits for a request is closed, so that
silent ones do not keep a Prometheus out, which keeps one open."""

LIMIT: Final = "HTTP_CONNECTIONS_MAX"
"""The name of that limit in the log and the metrics."""

WHERE: Final = "the port for metrics"
"""The name of this port in the log."""

REQUEST_SIZE_MAX: Final = 16 * 1024
"""Bytes of a request's line and headers."""

IDLE_S: Final = 120.0
"""Seconds until the next request of a connection; Prometheus asks every 15 to 60."""

SEND_S: Final = 10.0
"""Seconds until a reader has taken an answer."""

LINGER_S: Final = 1.0
LINGER_SIZE_MAX: Final = 1024 * 1024
"""How long, and how many bytes, a refused request is still read."""

COMPRESSED_SIZE_MIN: Final = 4 * 1024
"""Bytes from which on an answer is compressed, for a reader that accepts it."""

_RECEIVED_SIZE: Final = 4096


Handle = Callable[[str], Awaitable[Answer]]
"""Answers a request by its path, which may have a query."""


class HttpRequest(NamedTuple):
    """A whole request.

    Attributes:
      method: such as "POST".
      target: the path, which may have a query.
      headers: by name, in small letters; of several with one name, the last.
      body: b"" if it has none.
    """

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes


class Interface(NamedTuple):
    """Requests of any method, with a body; the alternative to `Handle`.

    Attributes:
      handle: answers a request; `method` is any.
      refuse: the answer to what is no request, from a status and a text.
      body_size_max: bytes of a body; a larger one is refused with 413.
      where: the name of the port in the log.
    """

    handle: Callable[[HttpRequest], Awaitable[Answer]]
    refuse: Callable[[int, str], Answer]
    body_size_max: int
    where: str


def reading(handle: Handle) -> Interface:
    """GET and HEAD without a body, as readers of metrics send them."""

    async def read(request: HttpRequest) -> Answer:
        if request.method not in {"GET", "HEAD"}:
            text = f"{request.method} is not served, only GET and HEAD are"
            return text_answer(405, text)
        return await handle(request.target)

    return Interface(read, text_answer, 0, WHERE)


class HttpServer:
    """Serves one socket.

    Args:
      handle: answers GET and HEAD; an `Interface` answers other requests, too, each on a connection
        that is closed afterwards.
      refusals: counts closed connections; None: they are logged only.
      tls: encrypts the connections; None: they are plain.
    """

    def __init__(
        self,
        handle: Handle | Interface,
        *,
        refusals: Refusals | None = None,
        tls: ServerTls | None = None,
    ) -> None:
        self._interface = handle if isinstance(handle, Interface) else reading(handle)
        self._refusals = refusals or Refusals()
        self._tls = tls
        self._places: dict[_Place, None] = {}

    async def serve(self, listener: socket.socket) -> None:
        """Accept connections until cancelled; the listener stays open."""
        copy = listener.dup()
        copy.setblocking(False)
        trio_listener = trio.SocketListener(trio.socket.from_stdlib_socket(copy))
        await trio.serve_listeners(self.serve_stream, [trio_listener])

    async def serve_stream(self, stream: trio.abc.Stream) -> None:
        """Serve one connection until it ends."""
        if len(self._places) >= CONNECTIONS_MAX and not self._make_room():
            # Without an answer: scrapers retry, and writing to it could block.
            await stream.aclose()
            return
        place = _Place()
        self._places[place] = None
        try:
            with contained(_failures, "a request for metrics", "Its connection is closed"):
                async with stream:
                    with place.scope:
                        secure: trio.abc.Stream | None = stream
                        if self._tls is not None:
                            secure = await self._tls.wrap(
                                stream, self._interface.where, self._refusals
                            )
                        if secure is not None:
                            await _Connection(secure, self._interface, place).run()
        finally:
            self._places.pop(place, None)

    def _make_room(self) -> bool:
        """Close the oldest connection that waits for a request; False if there is none."""
        waiting = next((place for place in self._places if place.is_waiting), None)
        what = f"a connection for metrics is closed, because {len(self._places)} are open"
        self._refusals.note(LIMIT, self._interface.where, what)
        if waiting is None:
            return False
        del self._places[waiting]
        waiting.scope.cancel()
        return True


class _Place:
    """The place of one connection among CONNECTIONS_MAX."""

    def __init__(self) -> None:
        self.scope = trio.CancelScope()
        self.is_waiting = True  # for a request


class _Connection:
    """The requests of one connection, one after the other."""

    def __init__(self, stream: trio.abc.Stream, interface: Interface, place: _Place) -> None:
        import h11

        self._place = place

        self._stream = stream
        self._interface = interface
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=REQUEST_SIZE_MAX)

    async def run(self) -> None:
        try:
            await self._serve()
        except trio.TooSlowError:
            pass  # the peer sends no request, or does not read its answer
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the reader has left

    async def _serve(self) -> None:
        """Serve requests until the connection ends, or an invalid request arrives."""
        import h11

        try:
            while await self._serve_one():
                self._http.start_next_cycle()
        except h11.RemoteProtocolError as error:
            if self._http.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
                text = f"not an HTTP request: {error}"
                await self._send(self._interface.refuse(error.error_status_hint, text))
                await self._linger()

    async def _serve_one(self) -> bool:
        """Serve a request; returns whether another one may follow.

        Raises: h11.RemoteProtocolError: it is invalid. trio.TooSlowError: it did not come in time.
        """
        import h11

        with trio.fail_after(IDLE_S):
            request = await self._next()
            if not isinstance(request, h11.Request):
                return False
            # Content-Length and Transfer-Encoding together are the means of request smuggling
            # behind a proxy.
            if _has_two_lengths(request):
                await self._send(self._interface.refuse(400, _TWO_LENGTHS))
                await self._linger()
                return False
            body, event = b"", await self._next()
            while isinstance(event, h11.Data):
                body += event.data
                if len(body) > self._interface.body_size_max:
                    break
                event = await self._next()
        # From here on it is served, and not closed to make room for another.
        self._place.is_waiting = False
        if not isinstance(event, h11.EndOfMessage):
            await self._send(self._interface.refuse(413, self._too_large))
            await self._linger()
            return False
        method = request.method.decode("ascii")
        headers = {name.decode("ascii"): value.decode("latin-1") for name, value in request.headers}
        target = request.target.decode("ascii", "replace")
        answer = await self._interface.handle(HttpRequest(method, target, headers, body))
        await self._send(answer, method, _accepts_gzip(request))
        self._place.is_waiting = True
        return self._http.our_state is h11.DONE and self._http.their_state is h11.DONE

    @property
    def _too_large(self) -> str:
        size_max = self._interface.body_size_max
        if not size_max:
            return "requests with a body are not served"
        return f"the body has more than {size_max} bytes"

    async def _linger(self) -> None:
        """Read what was not read yet: a close before would destroy the answer on its way."""
        if isinstance(self._stream, trio.abc.HalfCloseableStream):  # TLS has no half of a stream
            await self._stream.send_eof()
        left = LINGER_SIZE_MAX
        with trio.move_on_after(LINGER_S):
            while left > 0 and (data := await self._stream.receive_some(_RECEIVED_SIZE)):
                left -= len(data)

    async def _next(self) -> object:
        import h11

        while True:
            event = self._http.next_event()
            if event is not h11.NEED_DATA:
                return event
            self._http.receive_data(bytes(await self._stream.receive_some(_RECEIVED_SIZE)))

    async def _send(self, answer: Answer, method: str = "GET", may_compress: bool = False) -> None:
        import h11

        body = answer.body
        headers = [("Content-Type", answer.content_type), ("Cache-Control", "no-store")]
        if may_compress and len(body) >= COMPRESSED_SIZE_MIN:
            # In a thread, so that compressing a large page does not hold up requests.
            body = await trio.to_thread.run_sync(gzip.compress, body, 1)
            headers += [("Content-Encoding", "gzip"), ("Vary", "Accept-Encoding")]
        headers.append(("Content-Length", str(len(body))))
        if self._interface.body_size_max:
            # A client that kept it open would send its next request on one that is just ending.
            headers.append(("Connection", "close"))
        data = self._http.send(h11.Response(status_code=answer.status, headers=headers)) or b""
        if method != "HEAD":
            data += self._http.send(h11.Data(data=body)) or b""
        data += self._http.send(h11.EndOfMessage()) or b""
        with trio.fail_after(SEND_S):
            await self._stream.send_all(data)


_TWO_LENGTHS: Final = (
    "a request with both Content-Length and Transfer-Encoding is not served: a proxy may read its "
    "end elsewhere"
)
"""Source: RFC 9112, 6.1: such a request ought to be handled as an error."""


def _has_two_lengths(request: h11.Request) -> bool:
    """Whether a request says twice, in different ways, where it ends."""
    names = {name for name, _ in request.headers}
    return {b"content-length", b"transfer-encoding"} <= names


def _accepts_gzip(request: h11.Request) -> bool:
    return any(name == b"accept-encoding" and b"gzip" in value for name, value in request.headers)
