"""Exchange: one call while it is served, as the methods use it.

A method is a plain function, called in the turn in which its request came. It answers at once, or
asks the broker and answers when that has.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
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
from .refused import Refused, refusal_of
from .service import Right, Service
from .signing import is_genuine, read_authorization

_failures = FailureLog(logging.getLogger(__name__))

_SUCCESS: Final = int(ResponseCode.SUCCESS)

Function = Callable[["Exchange", Any], None]
"""Serves a request, or a message of a stream. Raises Refused."""

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
    """

    function: Function
    refuse: Refuse
    request: type[Any]
    answer: type[Any]
    needs_client: bool = True


class Answers(Protocol):
    """The part of a connection that an exchange uses."""

    def answer(self, exchange: Exchange, *messages: bytes) -> None:
        """Send an answer, and end it."""

    def send(self, exchange: Exchange, message: bytes) -> None:
        """Send a message of an answer that goes on."""

    def finish(self, exchange: Exchange, status: GrpcStatus, text: str) -> None:
        """End an answer with a status of gRPC."""


class Exchange:
    """A call, its client and its answers.

    Attributes:
      call: its place in the session, and its metadata.
      client: who calls.
      method: how it is served.
      credentials: the account that the call is from; None: the broker has no accounts.
      on_cancelled: called when the client gives the call up before its answer has ended, or its
        connection is lost.
    """

    __slots__ = (
        "_connection",
        "call",
        "client",
        "credentials",
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

    def serve(self, data: bytes) -> None:
        """Serve a request, or a message of a stream."""
        request = self.method.request()
        try:
            request.ParseFromString(data)
        except DecodeError:
            text = f"the request is no {self.method.request.DESCRIPTOR.name}"
            self.finish(GrpcStatus.INTERNAL, text)
            return
        self._guard(self._serve, request)

    def _serve(self, request: Any) -> None:
        is_open = not (self.service.directory.has_accounts and self.method.needs_client)
        if not is_open and self.credentials is None:
            self.credentials = self._authenticated()
        self.method.function(self, request)

    def _authenticated(self) -> Credentials:
        """The account that the call is signed by. Raises: Refused: UNAUTHORIZED."""
        metadata = self.call.metadata
        signed = read_authorization(metadata.get("authorization", ""))
        secret = self.service.directory.secret(signed.access_key)
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
            refusal = self.service.directory.refusal(account.access_key, right, self.client.host)
            if refusal is not None:
                raise Refused(Code.FORBIDDEN, refusal)

    def _guard(self, function: Callable[..., None], *args: Any) -> None:
        """Call a part of a method; an error becomes the call's answer."""
        try:
            function(*args)
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

    # The broker's part

    def ask(
        self,
        code: RequestCode,
        fields: Mapping[str, str],
        then: Callable[[RemotingCommand], None],
        body: bytes = b"",
    ) -> int:
        """Ask the broker; `then` gets its answer, whatever its code, and may raise as a method.

        Returns: the request's opaque.
        """
        command = self.command(code, fields, body)
        return self.client.link.ask(command, lambda answer: self._guard(then, answer))

    def command(
        self, code: RequestCode, fields: Mapping[str, str], body: bytes = b""
    ) -> RemotingCommand:
        """A request to the broker, signed by the account that the call is from."""
        account = self.credentials
        if account is not None:
            signed = dict(fields)
            sign(signed, body, account.access_key, account.secret_key)
            fields = signed
        return self.client.command(code, fields, body)

    def ask_for_success(
        self,
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

        return self.ask(code, fields, successful, body)

    def tell(
        self, code: RequestCode, fields: Mapping[str, str] = NO_EXT_FIELDS, body: bytes = b""
    ) -> None:
        """Ask the broker for something whose outcome does not change the answer."""
        self.client.link.ask(self.command(code, fields, body), lambda answer: None)

    # The answer

    def status(self, code: Code = Code.OK, text: str = "") -> Any:
        """A message Status."""
        return self.service.status(code, text)

    def answer(self, *answers: Any) -> None:
        """Send messages as the answer, and end it."""
        self._connection.answer(self, *(each.SerializeToString() for each in answers))

    def answer_encoded(self, answer: bytes) -> None:
        """Send an encoded message as the answer, and end it."""
        self._connection.answer(self, answer)

    def succeed(self, **fields: Any) -> None:
        """Send the answer of a unary method: success, and these fields."""
        self.answer(self.method.answer(status=self.status(), **fields))

    def send(self, message: Any) -> None:
        """Send a message of an answer that goes on."""
        self._connection.send(self, message.SerializeToString())

    def finish(self, status: GrpcStatus = GrpcStatus.OK, text: str = "") -> None:
        """End the answer with a status of gRPC."""
        self._connection.finish(self, status, text)


def refuse_unary(exchange: Exchange, refused: Refused) -> None:
    """Answer with a message that has nothing but the status."""
    exchange.answer(exchange.method.answer(status=exchange.status(refused.code, refused.text)))
