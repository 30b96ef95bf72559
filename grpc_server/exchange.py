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
from .client import Client
from .refused import Refused, refusal_of
from .service import Service

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
    """

    function: Function
    refuse: Refuse
    request: type[Any]
    answer: type[Any]


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
      call: of the session.
      client: who calls.
      method: how it is served.
      on_cancelled: called when the client gives the call up before its answer has ended, or its
        connection is lost.
    """

    __slots__ = ("_connection", "call", "client", "method", "on_cancelled", "service")

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

    def serve(self, data: bytes) -> None:
        """Serve a request, or a message of a stream."""
        request = self.method.request()
        try:
            request.ParseFromString(data)
        except DecodeError:
            text = f"the request is no {self.method.request.DESCRIPTOR.name}"
            self.finish(GrpcStatus.INTERNAL, text)
            return
        self._guard(self.method.function, self, request)

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
        command = self.client.command(code, fields, body)
        return self.client.link.ask(command, lambda answer: self._guard(then, answer))

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
        self.client.link.ask(self.client.command(code, fields, body), lambda answer: None)

    # The answer

    def status(self, code: Code = Code.OK, text: str = "") -> Any:
        """A message Status."""
        return self.service.status(code, text)

    def answer(self, *answers: Any) -> None:
        """Send messages as the answer, and end it."""
        self._connection.answer(self, *(each.SerializeToString() for each in answers))

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
