"""EtcdGateway: requests to etcd's HTTP/JSON gateway, by h11 on trio.

Each request has a short time limit at each member, and the members are tried in turn, the one that
answered last first. A request that was sent but not answered may have been carried out, so only
those are sent here that may be carried out twice.

Source: https://etcd.io/docs/v3.6/dev-guide/api_grpc_gateway: keys and values in Base64, 64-bit
numbers as strings, members with default values left out.
"""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

import msgspec
import trio

from ..remoting.opener import split_address
from .state_store import UnavailableError

REQUEST_TIMEOUT_S: Final = 0.3
"""For a request at one member. An fsync of a good disk takes a hundredth of it; a member that needs
longer is too slow to elect by."""

READ_TIMEOUT_S: Final = 3.0
"""For reading all sets, at one member."""

RESPONSE_SIZE_MAX: Final = 32 * 1024 * 1024
"""Bytes of an answer: 4,096 sets of some hundred members each."""

REQUESTS_MAX: Final = 16
"""Requests at a time; etcd writes those together that come together."""

IDLE_MAX: Final = 4
"""Connections that are kept for the next request."""

_RECEIVED_SIZE: Final = 64 * 1024
_UNAUTHENTICATED: Final = 16
"""gRPC's status of a token that has expired."""
_NOT_FOUND: Final = 5

OpenStream = Callable[[str, int], Awaitable[trio.abc.Stream]]
"""Connects to a host and port. Raises: OSError."""


class NotFoundError(UnavailableError):
    """There is no such lease."""


class _RefusedError(UnavailableError):
    """An answer with an error.

    Attributes:
      status: gRPC's.
    """

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


class Account(NamedTuple):
    """A user of etcd; without a name there are no accounts."""

    user: str = ""
    password: str = ""


class _Connection:
    """A connection to a member, for one request after the other."""

    def __init__(self, stream: trio.abc.Stream, host: str) -> None:
        import h11

        self._h11 = h11
        self._stream = stream
        self._host = host
        self._http = h11.Connection(h11.CLIENT)

    async def send(self, path: str, body: bytes, token: str) -> None:
        headers = [
            ("Host", self._host),
            ("Content-Type", "application/json"),
            ("Content-Length", str(len(body))),
        ]
        if token:
            headers.append(("Authorization", token))
        h11 = self._h11
        data = self._http.send(h11.Request(method="POST", target=path, headers=headers)) or b""
        data += self._http.send(h11.Data(data=body)) or b""
        data += self._http.send(h11.EndOfMessage()) or b""
        await self._stream.send_all(data)

    async def event(self) -> Any:
        """The next part of the answer, one of h11's events.

        Raises: h11.RemoteProtocolError; OSError, trio.BrokenResourceError: the connection is lost.
        """
        while (event := self._http.next_event()) is self._h11.NEED_DATA:
            self._http.receive_data(bytes(await self._stream.receive_some(_RECEIVED_SIZE)))
        return event

    async def answer(self) -> tuple[int, bytes]:
        """Status and body. Raises: as `event`; UnavailableError: it is too long."""
        status, body = 0, bytearray()
        while True:
            event = await self.event()
            if isinstance(event, self._h11.Response):
                status = event.status_code
            elif isinstance(event, self._h11.Data):
                body += event.data
                if len(body) > RESPONSE_SIZE_MAX:
                    raise UnavailableError(f"etcd's answer is over {RESPONSE_SIZE_MAX} bytes")
            elif isinstance(event, self._h11.EndOfMessage):
                return status, bytes(body)
            elif not isinstance(event, self._h11.InformationalResponse):
                raise UnavailableError(f"etcd closed the connection of {self._host}")

    def reuse(self) -> bool:
        """Make ready for the next request; False: the connection has ended."""
        try:
            self._http.start_next_cycle()
        except self._h11.LocalProtocolError:
            return False
        return True

    async def close(self) -> None:
        """Close it at once, also in a cancelled task."""
        with trio.CancelScope(shield=True):
            await trio.aclose_forcefully(self._stream)


class EtcdGateway:
    """See the module. Owner: one store.

    Args:
      endpoints: `http://host:port` or `https://host:port`, at least one.
      account: the user whose rights it has there; `Account()`: etcd has no accounts.
      tls: for https; None: the defaults.
      open_stream: connects; for members in the same loop.
      timeout_s: for a request at one member.
    """

    def __init__(
        self,
        endpoints: tuple[str, ...],
        *,
        account: Account = Account(),  # noqa: B008 - immutable
        tls: ssl.SSLContext | None = None,
        open_stream: OpenStream | None = None,
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> None:
        self._endpoints = list(endpoints)
        self._timeout_s = timeout_s
        self._account = account
        self._tls = tls
        self._open_stream: OpenStream = open_stream or trio.open_tcp_stream
        self._token = ""
        self._idle: dict[str, list[_Connection]] = {each: [] for each in endpoints}
        self._places = trio.CapacityLimiter(REQUESTS_MAX)

    async def call(
        self, path: str, request: object, timeout_s: float | None = None
    ) -> dict[str, Any]:
        """Send a request until a member answers it.

        Args:
          path: such as "/v3/kv/range".
          timeout_s: at each member; None: the usual one.
        Raises:
          NotFoundError: there is no such lease.
          UnavailableError: no member answered in time, or a member refused it. It is not known
            whether it was carried out.
        """
        body = msgspec.json.encode(request)
        limit_s = timeout_s or self._timeout_s
        async with self._places:
            failures = []
            for endpoint in tuple(self._endpoints):
                try:
                    with trio.fail_after(limit_s):
                        answer = await self._ask(endpoint, path, body)
                except trio.TooSlowError:
                    failures.append(f"{endpoint}: no answer within {limit_s:g} s")
                except _RefusedError as error:
                    if error.status == _NOT_FOUND:
                        raise NotFoundError(str(error)) from error
                    failures.append(f"{endpoint}: {error}")
                except UnavailableError as error:
                    failures.append(f"{endpoint}: {error}")
                else:
                    return answer
                self._put_last(endpoint)
        raise UnavailableError(f"etcd does not answer: {'; '.join(failures)}")

    def _put_last(self, endpoint: str) -> None:
        if endpoint == self._endpoints[0]:
            self._endpoints.append(self._endpoints.pop(0))

    async def wait_for(self, path: str, request: object, is_wanted: Callable[[Any], bool]) -> None:
        """Send a request whose answers go on, such as a watch, and read them until one is wanted.

        It waits without a limit, and also ends when the member ends the answers.

        Raises: UnavailableError: the member is gone, or has refused it.
        """
        endpoint = self._endpoints[0]
        try:
            with trio.fail_after(self._timeout_s):
                await self._authenticate(endpoint)
                connection = await self._connect(endpoint)
        except trio.TooSlowError as error:
            self._put_last(endpoint)
            raise UnavailableError(f"{endpoint}: no answer") from error
        except UnavailableError:
            self._put_last(endpoint)
            raise
        try:
            await self._read_until(connection, path, msgspec.json.encode(request), is_wanted)
        finally:
            await connection.close()

    async def _read_until(
        self, connection: _Connection, path: str, body: bytes, is_wanted: Callable[[Any], bool]
    ) -> None:
        import h11

        left = b""
        try:
            await connection.send(path, body, self._token)
            while True:
                event = await connection.event()
                if isinstance(event, h11.Data):
                    *lines, left = (left + bytes(event.data)).split(b"\n")
                    if len(left) > RESPONSE_SIZE_MAX:
                        raise UnavailableError("etcd sent a line that is too long")
                    if any(is_wanted(_decoded(line)) for line in lines if line):
                        return
                elif isinstance(event, (h11.EndOfMessage, h11.ConnectionClosed)):
                    return
        except (h11.RemoteProtocolError, OSError, trio.BrokenResourceError) as error:
            raise UnavailableError(f"etcd: {error}") from error

    async def close(self) -> None:
        """Close the connections that are kept."""
        for connections in self._idle.values():
            while connections:
                await connections.pop().close()

    async def _authenticate(self, endpoint: str) -> None:
        if not self._account.user or self._token:
            return
        request = {"name": self._account.user, "password": self._account.password}
        body = msgspec.json.encode(request)
        status, answer = await self._exchange(endpoint, "/v3/auth/authenticate", body, "")
        self._token = str(_checked(status, answer).get("token", ""))

    async def _ask(self, endpoint: str, path: str, body: bytes) -> dict[str, Any]:
        await self._authenticate(endpoint)
        status, answer = await self._exchange(endpoint, path, body, self._token)
        try:
            return _checked(status, answer)
        except _RefusedError as error:
            if error.status != _UNAUTHENTICATED or not self._token:
                raise
        self._token = ""  # it has expired
        await self._authenticate(endpoint)
        return _checked(*await self._exchange(endpoint, path, body, self._token))

    async def _exchange(
        self, endpoint: str, path: str, body: bytes, token: str
    ) -> tuple[int, bytes]:
        import h11

        idle = self._idle[endpoint]
        while True:
            is_new = not idle
            connection = await self._connect(endpoint) if is_new else idle.pop()
            is_reusable = False
            try:
                await connection.send(path, body, token)
                answer = await connection.answer()
                is_reusable = connection.reuse() and len(idle) < IDLE_MAX
                return answer
            except (h11.RemoteProtocolError, OSError, trio.BrokenResourceError) as error:
                if is_new:
                    raise UnavailableError(f"etcd: {error}") from error
                # etcd had closed it meanwhile.
            finally:
                if is_reusable:
                    idle.append(connection)
                else:
                    await connection.close()

    async def _connect(self, endpoint: str) -> _Connection:
        scheme, _, address = endpoint.partition("://")
        host, port = split_address(address)
        try:
            stream = await self._open_stream(host, port)
            if scheme == "https":
                stream = await self._encrypted(stream, host)
        except (OSError, ssl.SSLError, trio.BrokenResourceError) as error:
            raise UnavailableError(f"cannot connect: {error.__cause__ or error}") from error
        return _Connection(stream, address)

    async def _encrypted(self, stream: trio.abc.Stream, host: str) -> trio.abc.Stream:
        context = self._tls or ssl.create_default_context()
        secure = trio.SSLStream(stream, context, server_hostname=host, https_compatible=True)
        try:
            await secure.do_handshake()
        except BaseException:
            with trio.CancelScope(shield=True):
                await trio.aclose_forcefully(secure)
            raise
        return secure


def _decoded(text: bytes) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnavailableError(f"etcd's answer is not JSON: {error}") from error


def _checked(status: int, body: bytes) -> dict[str, Any]:
    """The answer of a request. Raises: _RefusedError, UnavailableError."""
    tree = _decoded(body) if body.strip() else {}
    if not isinstance(tree, dict):
        raise UnavailableError("etcd's answer is no object")
    if status == 200 and "error" not in tree:
        return tree
    text = tree.get("message") or tree.get("error") or f"HTTP status {status}"
    code = tree.get("code")
    raise _RefusedError(str(text), code if isinstance(code, int) else 0)
