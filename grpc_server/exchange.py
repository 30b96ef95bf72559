"""Exchange: one call while it is served, as the methods use it.

A method is a plain function, called in the turn in which its request came. It answers at once, or
asks a broker and answers when that has.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from google.protobuf.message import DecodeError

from ..common.supervision import FailureLog
from ..grpc_protocol.enums import Code
from ..grpc_protocol.session import Call, GrpcStatus
from ..remoting.codec import NO_EXT_FIELDS, RemotingCommand
from ..remoting.errors import RemotingError, RequestRefused
from ..remoting.request_codes import RequestCode
from ..remoting.response_codes import ResponseCode
from ..remoting.signature import Credentials, sign
from .client import Client
from .link import Served
from .refused import Refused, refusal_of
from .service import Awaited, Right, Service
from .signing import is_genuine, read_authorization

_failures = FailureLog(logging.getLogger(__name__))

_SUCCESS: Final = int(ResponseCode.SUCCESS)

Function = Callable[["Exchange", Any], None]
"""Serves a request, or a message of a stream. Raises Refused."""

FromBytes = Callable[["Exchange", bytes], bool]
"""Serves an encoded request that is as most are; whether it did. Raises Refused."""

Refuse = Callable[["Exchange", Refused], None]
"""Answers a request that is refused."""


class Method(NamedTuple):
    """A method that is served.

    Attributes:
      function: serves a request.
      refuse: answers a refused one.
      request: the class of its requests.
      answer: the class of its answers.
      needs_client: whether a caller has to give a client id, and an account if there are some.
      from_bytes: tried before the request is decoded; None: there is no such way.
    """

    function: Function
    refuse: Refuse
    request: type[Any]
    answer: type[Any]
    needs_client: bool = True
    from_bytes: FromBytes | None = None


class Answers(Protocol):
    """The part of a connection that an exchange uses."""

    def answer(self, exchange: Exchange, *messages: bytes) -> None:
        """Send an answer, and end it."""

    def send(self, exchange: Exchange, message: bytes) -> None:
        """Send a message of an answer that goes on."""

    def finish(self, exchange: Exchange, status: GrpcStatus, text: str) -> None:
        """End an answer with a status of gRPC."""

    def serve_later(self, served: Served) -> None:
        """Have something served after the calls that came together."""

    def serve_asked(self) -> None:
        """Serve it now, inside a turn."""


class Exchange:
    """A call, its client and its answers.

    Attributes:
      call: its place in the session, and its metadata.
      client: who calls.
      method: how it is served.
      credentials: the account that the call is from; None: there are no accounts.
      failed: the brokers that the call could not reach.
      on_cancelled: called when the client gives the call up before its answer has ended, or its
        connection is lost.
    """

    __slots__ = (
        "_connection",
        "call",
        "client",
        "credentials",
        "failed",
        "method",
        "on_cancelled",
        "service",
    )

    def __init__(
        self,
        connection: Answers,
        service: Service,
        call: Call,
        client: Client,
        method: Method,
    ) -> None:
        self._connection = connection
        self.service = service
        self.call = call
        self.client = client
        self.method = method
        self.on_cancelled: Callable[[], None] | None = None
        self.credentials: Credentials | None = None
        self.failed: tuple[str, ...] = ()

    def serve(self, data: bytes) -> None:
        """Serve a request, or a message of a stream."""
        self.guard(self._serve, data)

    def _serve(self, data: bytes) -> None:
        method = self.method
        if self.credentials is None and method.needs_client and self.service.backend.has_accounts:
            self.credentials = self._authenticated()
        if method.from_bytes is not None and method.from_bytes(self, data):
            return
        request = method.request()
        try:
            request.ParseFromString(data)
        except DecodeError:
            self.finish(GrpcStatus.UNKNOWN, f"the request is no {method.request.DESCRIPTOR.name}")
            return
        method.function(self, request)

    def _authenticated(self) -> Credentials:
        """The account that the call is signed by. Raises: Refused: UNAUTHORIZED."""
        metadata = self.call.metadata
        signed = read_authorization(metadata.get("authorization", ""))
        secret = self.service.backend.secret(signed.access_key)
        if secret is None or not is_genuine(signed, secret, metadata):
            # One text for both, so that it does not say which users there are.
            raise Refused(Code.UNAUTHORIZED, "check signature failed.")
        return Credentials(signed.access_key, secret)

    def require(self, *rights: Right) -> None:
        """Refuse a call whose account does not have all of these. Raises: Refused: FORBIDDEN."""
        account = self.credentials
        if account is None:
            return
        for right in rights:
            refusal = self.service.backend.refusal(account.access_key, right, self.client.host)
            if refusal is not None:
                raise Refused(Code.FORBIDDEN, refusal)

    def guard(self, function: Callable[..., None], *args: Any) -> None:
        """Call a part of a method; an error becomes the call's answer."""
        try:
            function(*args)
        except Awaited as awaited:
            awaited.when_done(partial(self.resume, function, *args))
        except Refused as refused:
            self.method.refuse(self, refused)
        except RequestRefused as refused:
            answer = RemotingCommand(refused.code, remark=refused.remark)
            self.method.refuse(self, refusal_of(answer))
        except RemotingError as error:
            self.method.refuse(self, Refused(Code.INTERNAL_SERVER_ERROR, str(error)))
        except Exception as error:  # noqa: BLE001 - our bug: other calls are served
            meaning = "That call is answered with an error; others are still served"
            _failures.note(f"serving {self.call.path}", meaning, error)
            text = f"{type(error).__name__}: {error}"
            self.method.refuse(self, Refused(Code.INTERNAL_SERVER_ERROR, text))

    def resume(self, function: Callable[..., None], *args: Any) -> None:
        """Call a part of a method, inside a turn, unless the client has gone."""
        if not self.call.is_answered:
            self.guard(function, *args)
            self._connection.serve_asked()  # no call that came with it does

    # The broker's part

    def ask(
        self,
        broker: str,
        code: RequestCode,
        fields: Mapping[str, str],
        then: Callable[[RemotingCommand], None],
        body: bytes = b"",
        *,
        timeout_s: float | None = None,
    ) -> int:
        """Ask a broker; `then` gets its answer, whatever its code, and may raise as a method.

        Args:
          timeout_s: how long it may take, if not as long as the client waits.
        Returns: the request's opaque.
        """
        command = self.command(code, fields, body)
        return self.client.links.to(broker).ask(
            command, partial(self.guard, then), timeout_s or self.call.timeout_s
        )

    def ask_for_others(
        self, broker: str, code: RequestCode, then: Callable[[RemotingCommand], None], body: bytes
    ) -> None:
        """Ask a broker for several calls; `then` does not raise, and is called even if this call
        was given up."""
        command = self.command(code, NO_EXT_FIELDS, body)
        self.client.links.to(broker).ask(command, then, self.call.timeout_s)

    def command(
        self, code: RequestCode, fields: Mapping[str, str], body: bytes = b""
    ) -> RemotingCommand:
        """A request to a broker, signed by the account that the call is from."""
        account = self.credentials
        if account is not None:
            signed = dict(fields)
            sign(signed, body, account.access_key, account.secret_key)
            fields = signed
        return self.client.command(code, fields, body)

    def ask_for_success(
        self,
        broker: str,
        code: RequestCode,
        fields: Mapping[str, str],
        then: Callable[[RemotingCommand], None],
        body: bytes = b"",
    ) -> int:
        """`ask`, where every answer but success refuses the call."""

        def successful(answer: RemotingCommand) -> None:
            if answer.code != _SUCCESS:
                raise refusal_of(answer)
            then(answer)

        return self.ask(broker, code, fields, successful, body)

    def ask_each(
        self,
        brokers: Collection[str],
        code: RequestCode,
        body: bytes,
        then: Callable[[], None],
    ) -> None:
        """Ask several brokers at once; `then` is called after the first success, and the call is
        refused as by the first of them if there is none. One that hangs keeps no call waiting."""
        left = len(brokers)
        first: Refused | None = None
        is_done = False

        def answered(answer: RemotingCommand) -> None:
            nonlocal left, first, is_done
            left -= 1
            if is_done:
                return
            if answer.code == _SUCCESS:
                is_done = True
                then()
                return
            first = first or refusal_of(answer)
            if not left:
                raise first

        for broker in brokers:
            self.ask(broker, code, NO_EXT_FIELDS, answered, body)
        if not brokers:
            then()

    def serve_later(self, served: Served) -> None:
        """Have something served after the calls that came together; inside a turn."""
        self._connection.serve_later(served)

    def tell(
        self,
        broker: str,
        code: RequestCode,
        fields: Mapping[str, str] = NO_EXT_FIELDS,
        body: bytes = b"",
    ) -> None:
        """Ask a broker for something whose outcome does not change the answer."""
        self.client.links.to(broker).ask(self.command(code, fields, body), lambda answer: None)

    # The answer

    def status(self, code: Code = Code.OK, text: str = "") -> Any:
        """A message Status."""
        return self.service.status(code, text)

    def answer(self, *answers: Any) -> None:
        """Send messages as the answer, and end it."""
        self._connection.answer(self, *(each.SerializeToString() for each in answers))

    def answer_encoded(self, *answers: bytes) -> None:
        """Send encoded messages as the answer, and end it."""
        self._connection.answer(self, *answers)

    def succeed(self, **fields: Any) -> None:
        """Send the answer of a unary method: success, and these fields."""
        self.answer(self.method.answer(status=self.status(), **fields))

    def send(self, message: Any) -> None:
        """Send a message of an answer that goes on."""
        self._connection.send(self, message.SerializeToString())

    def finish(self, status: GrpcStatus = GrpcStatus.OK, text: str = "") -> None:
        """End the answer with a status of gRPC."""
        self._connection.finish(self, status, text)


def unserved(exchange: Exchange, request: Any) -> None:
    """Answer a call of a method that the service declares and does not serve, as gRPC does."""
    path = exchange.call.path.removeprefix("/")
    exchange.finish(GrpcStatus.UNIMPLEMENTED, f"Method {path} is unimplemented")


def refuse_unary(exchange: Exchange, refused: Refused) -> None:
    """Answer with a message that has nothing but the status."""
    exchange.answer(exchange.method.answer(status=exchange.status(refused.code, refused.text)))
