"""The errors of the client.

::

    ClientError
    ├── ConfigurationError      an invalid argument, URL or name, or a package that is not
    │                           installed (also a ValueError)
    ├── MessageRefusedError     a message that no broker would accept (also a ValueError)
    ├── ClosedError             the client is closed, or was never opened
    ├── ForkedError             the client was opened in the parent of this process
    ├── WrongLoopError          the client was opened in another event loop
    ├── ConnectError            no connection to an address, or it was lost before the answer
    ├── RequestTimeoutError     no answer within the time limit
    ├── BadAnswerError          an answer that violates the protocol
    ├── ServerError             a broker or name server refused: `code`, `remark`, `address`
    │   ├── RouteNotFoundError      no name server knows the topic
    │   ├── AccessDeniedError       the credentials are missing, wrong or insufficient
    │   ├── BusyError               the broker is overloaded; try again later
    │   └── ExpiredReceiptError     a popped message is not this consumer's any more
    ├── SendError               a message was not confirmed; see `attempts`
    ├── UndeliveredError        messages of `send_soon` were given up; see `errors`
    ├── AlreadySettledError     a message was acknowledged, or is to be redelivered, already
    ├── ReplyTimeoutError       no reply to a request message arrived in time
    └── HandlerTimeoutError     a message handler did not return in time (only logged)

The text of an error says what was tried, at which address, how often, and what to do. Errors of the
wire protocol (`trocket.remoting.errors`) do not leave the client: they are the `__cause__` of one
of these.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TypeVar

from ..remoting.errors import MissingPackageError, RemoteProtocolError, RequestRefused
from ..remoting.request_codes import RequestCode
from ..remoting.response_codes import ResponseCode


class ClientError(Exception):
    """Base of all errors of the client."""


class ConfigurationError(ClientError, ValueError):
    """An argument, a URL or a name is invalid, or a package that an option needs is missing."""


class MessageRefusedError(ClientError, ValueError):
    """No broker would accept the message: it is too large, for example. It was not sent."""


class ClosedError(ClientError):
    """The client is closed, or was never opened by `async with` (or `with`)."""


class ForkedError(ClientError):
    """The client was opened in the parent of this process; open another one in the child."""


class WrongLoopError(ClientError):
    """The client was opened in another event loop; open one in each loop."""


class ConnectError(ClientError):
    """A connection could not be made, or was lost before the answer.

    Args:
      address: the address that was tried, `host:port`.
      reason: the error of the operating system or of the peer.
      is_connection_lost: there is no connection to the address, which the client logs once; False:
        another reason, such as an address that is unknown.
      is_final: waiting does not help: the address is wrong, or TLS refuses the peer.
    """

    def __init__(
        self,
        address: str,
        reason: str,
        *,
        is_connection_lost: bool = False,
        is_final: bool = False,
    ) -> None:
        super().__init__(f"{address}: {reason}")
        self.is_connection_lost = is_connection_lost
        self.is_final = is_final
        self.address = address
        self.reason = reason


class RequestTimeoutError(ClientError):
    """A server did not answer in time; it may have executed the request.

    Args:
      what: name of the request.
      address: address of the server, `host:port`.
      timeout_s: the time limit, in seconds.
    """

    def __init__(self, what: str, address: str, timeout_s: float) -> None:
        super().__init__(f"{address} did not answer {what} within {timeout_s:.3g} s")
        self.address = address
        self.timeout_s = timeout_s


class BadAnswerError(ClientError):
    """An answer violates the protocol; the address may not be that of a RocketMQ server.

    Args:
      address: address of the server, `host:port`; "" if unknown.
      reason: what is wrong with the answer.
    """

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"{address or 'a server'} sent an unreadable answer: {reason}")
        self.address = address
        self.reason = reason


class ServerError(ClientError):
    """A server answered with a response code other than success.

    Args:
      code: the response code; a number that ResponseCode may not have.
      remark: the text of the answer; it may be empty.
      address: address of the server, `host:port`.
      what: name of the request.
    """

    def __init__(self, code: int, remark: str, address: str, what: str) -> None:
        super().__init__(
            f"{address} refused {what}: {code_name(code)}: {remark or 'no reason given'}"
        )
        self.code = code
        self.remark = remark
        self.address = address


class RouteNotFoundError(ServerError):
    """No name server knows the topic, and brokers do not create it automatically."""


class AccessDeniedError(ServerError):
    """The credentials are missing or wrong, or do not permit the request."""


class BusyError(ServerError):
    """The broker is overloaded; try again later."""


class ExpiredReceiptError(ServerError):
    """The receipt of a popped message is not valid any more: the message is delivered again."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One failed attempt to send a message.

    Attributes:
      broker_name: name of the broker.
      elapsed_s: seconds until the attempt failed.
      error: the reason.
    """

    broker_name: str
    elapsed_s: float
    error: ClientError


class SendError(ClientError):
    """A message was not confirmed. If an attempt timed out, the message may be stored all the same.

    Args:
      topic: topic of the message.
      attempts: all attempts, in order; the error of the last one is also the `__cause__`.

    Attributes:
      tries: the text of all attempts: each broker, its address, and the reason.
    """

    def __init__(self, topic: str, attempts: Sequence[Attempt]) -> None:
        self.tries: str = "; ".join(_attempt_texts(attempts))
        count = len(attempts)
        super().__init__(f"a message to {topic} was not confirmed in {count} tries: {self.tries}")
        self.topic = topic
        self.attempts: tuple[Attempt, ...] = tuple(attempts)


def _attempt_texts(attempts: Sequence[Attempt]) -> Iterator[str]:
    """One text for each attempt, or for several in succession that failed in the same way."""
    number = 1
    for _, same in groupby(attempts, lambda each: (each.broker_name, str(each.error))):
        group = list(same)
        last = group[-1]
        if len(group) == 1:
            yield f"{number}. {last.broker_name} after {last.elapsed_s:.3g} s: {last.error}"
        else:
            yield f"{number}. to {number + len(group) - 1}. {last.broker_name}: {last.error}"
        number += len(group)


class UndeliveredError(ClientError):
    """Messages of `send_soon` were given up, and the program did not look at their Delivery.

    Args:
      errors: the reason for each message.
    """

    def __init__(self, errors: Sequence[ClientError]) -> None:
        super().__init__(f"{len(errors)} messages were not delivered; the first: {errors[0]}")
        self.errors: tuple[ClientError, ...] = tuple(errors)


class AlreadySettledError(ClientError):
    """A message is settled a second time: acknowledged, or to be redelivered, already.

    Args:
      message_id: id of the message.
      settlement: how it was settled: "acknowledged", for example.
      verb: what was called: "ack", for example.
    """

    def __init__(self, message_id: str, settlement: str, verb: str) -> None:
        super().__init__(
            f"{verb} of message {message_id}, which is {settlement} already: settle each message"
            " once, or look at is_settled before"
        )
        self.message_id = message_id
        self.settlement = settlement


class ReplyTimeoutError(ClientError):
    """A request message was stored, but no reply arrived in time.

    Args:
      topic: topic of the request.
      timeout_s: the time limit, in seconds.
    """

    def __init__(self, topic: str, timeout_s: float) -> None:
        super().__init__(
            f"no reply to a request to {topic} within {timeout_s:.3g} s: is a consumer running"
            " that replies?"
        )
        self.topic = topic
        self.timeout_s = timeout_s


class HandlerTimeoutError(ClientError):
    """A message handler did not return in time; the message is redelivered.

    Args:
      message_id: id of the message.
      timeout_s: the time limit, in seconds.
    """

    def __init__(self, message_id: str, timeout_s: float) -> None:
        super().__init__(f"the handler of message {message_id} did not return in {timeout_s:.3g} s")
        self.message_id = message_id
        self.timeout_s = timeout_s


ErrorT = TypeVar("ErrorT", bound=ClientError)


def copy_of(error: ErrorT) -> ErrorT:
    """Another exception with the same values.

    One object that is raised in several tasks would collect the tracebacks of all of them.
    """
    own = type(error).__new__(type(error), *error.args)
    own.args = error.args
    own.__dict__.update(error.__dict__)
    own.__cause__ = error.__cause__
    return own


def code_name(code: int) -> str:
    """The name and number of a response code, for error messages."""
    try:
        return f"{ResponseCode(code).name} ({code})"
    except ValueError:
        return f"code {code}"


_BY_CODE: dict[int, type[ServerError]] = {
    ResponseCode.TOPIC_NOT_EXIST: RouteNotFoundError,
    ResponseCode.NO_PERMISSION: AccessDeniedError,
    ResponseCode.SYSTEM_BUSY: BusyError,
}


def server_error(code: int, remark: str | None, address: str, what: str) -> ServerError:
    """The error for an answer whose response code is not success.

    Brokers of 4.x report missing credentials as SYSTEM_ERROR with the name of a Java exception.
    """
    remark = remark or ""
    kind = _BY_CODE.get(code, ServerError)
    if kind is ServerError and "AclException" in remark:
        kind = AccessDeniedError
    return kind(code, remark, address, what)


def name_server_error(error: ServerError, code: int) -> ServerError:
    """The error for a refusal by what the program gave as a name server.

    A broker is given instead so often that the text names this mistake.
    """
    is_broker = code == RequestCode.GET_ROUTEINFO_BY_TOPIC and is_not_supported(error)
    if not is_broker:
        return error
    remark = (
        "it does not look up topics, so it is no name server, but probably a broker: give the"
        " address of the name server, whose default port is 9876 (a broker's is 10911)"
    )
    return ServerError(error.code, remark, error.address, RequestCode(code).name)


def is_not_supported(error: ClientError) -> bool:
    """Whether a server does not know a request at all."""
    return isinstance(error, ServerError) and error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


@contextlib.contextmanager
def reading_answer(address: str = "") -> Iterator[None]:
    """Translate errors of decoding in the block.

    Raises:
      BadAnswerError: the answer of the server at `address` cannot be decoded.
      ConfigurationError: a message is compressed in a way that needs a package, which the text
        names.
    """
    try:
        yield
    except RequestRefused as error:
        raise BadAnswerError(address, error.remark) from error
    except RemoteProtocolError as error:
        raise BadAnswerError(address, str(error)) from error
    except MissingPackageError as error:
        raise ConfigurationError(str(error)) from error
