"""Everything that can go wrong for a user of the client.

::

    ClientError
    ├── ConfigurationError      an argument, URL or name that cannot be right, or a package that is
    │                           not installed (a ValueError too)
    ├── MessageRefusedError     a message that no broker would take (a ValueError too)
    ├── ClosedError             the client is closed, or was never opened
    ├── ForkedError             the process forked after the client was opened
    ├── ConnectError            no connection to an address, or it was lost before the answer
    ├── RequestTimeoutError     no answer within the time given
    ├── BadAnswerError          an answer that breaks the protocol's rules
    ├── ServerError             a broker or name server said no: `code`, `remark`, `address`
    │   ├── RouteNotFoundError      no name server knows the topic
    │   ├── AccessDeniedError       credentials are missing, wrong, or not enough
    │   └── BusyError               the broker sheds load; trying later helps
    ├── SendError               a message was not confirmed, after `attempts`
    ├── UndeliveredError        of what `send_soon` took some was given up: `errors`
    ├── ReplyTimeoutError       no reply to a request message came in time
    └── HandlerTimeoutError     a message handler did not return in time (in the log only)

A text says what was tried, with which address, how often, and what to do. Errors of the wire
(`trocket.remoting.errors`) do not leave the client; one of these has them as its cause.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..remoting.errors import MissingPackageError, RemoteProtocolError, RequestRefused
from ..remoting.response_codes import ResponseCode


class ClientError(Exception):
    """Base of all errors of the client."""


class ConfigurationError(ClientError, ValueError):
    """An argument, a URL or a name cannot be right, or a package is missing that it takes."""


class MessageRefusedError(ClientError, ValueError):
    """A message that no broker would take: too large, an illegal topic; nothing was sent."""


class ClosedError(ClientError):
    """The client is closed, or was never opened by `async with` (or `with`)."""


class ForkedError(ClientError):
    """This process was forked off the one that opened the client; open another here."""


class ConnectError(ClientError):
    """A connection could not be made, or was lost before the answer came.

    Args:
      address: `host:port` that was tried.
      reason: what the system or the peer said.
    """

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"{address}: {reason}")
        self.address = address
        self.reason = reason


class RequestTimeoutError(ClientError):
    """No answer within the time given; the request may have been carried out.

    Args:
      what: the request's name.
      address: `host:port` it went to.
      timeout_s: seconds that were waited.
    """

    def __init__(self, what: str, address: str, timeout_s: float) -> None:
        super().__init__(f"{address} did not answer {what} within {timeout_s:.3g} s")
        self.address = address
        self.timeout_s = timeout_s


class BadAnswerError(ClientError):
    """An answer breaks the rules of the protocol: is a RocketMQ server at that address?

    Args:
      address: `host:port` of the server; "": not known.
      reason: what is wrong with it.
    """

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"{address or 'a server'} answered something unreadable: {reason}")
        self.address = address
        self.reason = reason


class ServerError(ClientError):
    """A server answered with another code than success.

    Args:
      code: a ResponseCode, or a number unknown to it.
      remark: the server's text, may be empty.
      address: `host:port` of the server.
      what: the request's name.
    """

    def __init__(self, code: int, remark: str, address: str, what: str) -> None:
        super().__init__(
            f"{address} refused {what}: {code_name(code)}: {remark or 'no reason given'}"
        )
        self.code = code
        self.remark = remark
        self.address = address


class RouteNotFoundError(ServerError):
    """No name server knows the topic, and it cannot be created by sending to it."""


class AccessDeniedError(ServerError):
    """The credentials are missing, wrong, or do not permit this."""


class BusyError(ServerError):
    """The broker sheds load; trying again later helps."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try of a send.

    Attributes:
      broker_name: whom it went to.
      elapsed_s: seconds until it failed.
      error: why.
    """

    broker_name: str
    elapsed_s: float
    error: ClientError


class SendError(ClientError):
    """A message was not confirmed. It may be stored nevertheless if an attempt timed out.

    Args:
      topic: where to.
      attempts: all that were made, in order; the last one's error is the cause too.
    """

    def __init__(self, topic: str, attempts: Sequence[Attempt]) -> None:
        tries = "; ".join(
            f"{number}. {a.broker_name} after {a.elapsed_s:.3g} s: {a.error}"
            for number, a in enumerate(attempts, 1)
        )
        count = len(attempts)
        super().__init__(f"a message to {topic} was not confirmed in {count} tries: {tries}")
        self.topic = topic
        self.attempts: tuple[Attempt, ...] = tuple(attempts)


class UndeliveredError(ClientError):
    """Messages of `send_soon` were given up, and the program had not looked at their Delivery.

    Args:
      errors: why, for each of them.
    """

    def __init__(self, errors: Sequence[ClientError]) -> None:
        super().__init__(f"{len(errors)} messages were not delivered; the first: {errors[0]}")
        self.errors: tuple[ClientError, ...] = tuple(errors)


class ReplyTimeoutError(ClientError):
    """The request message was stored, but no reply came in time.

    Args:
      topic: where the request went.
      timeout_s: seconds that were waited.
    """

    def __init__(self, topic: str, timeout_s: float) -> None:
        super().__init__(
            f"no reply to a request to {topic} within {timeout_s:.3g} s: does a consumer run"
            " that replies?"
        )
        self.topic = topic
        self.timeout_s = timeout_s


class HandlerTimeoutError(ClientError):
    """A message handler did not return in time; the message comes again.

    Args:
      message_id: of the message.
      timeout_s: seconds that it had.
    """

    def __init__(self, message_id: str, timeout_s: float) -> None:
        super().__init__(f"the handler of message {message_id} did not return in {timeout_s:.3g} s")
        self.message_id = message_id
        self.timeout_s = timeout_s


def code_name(code: int) -> str:
    """A response code for people: its name and number."""
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
    """The error for an answer that is not success.

    4.x brokers report missing credentials as SYSTEM_ERROR with the name of a Java exception.
    """
    remark = remark or ""
    kind = _BY_CODE.get(code, ServerError)
    if kind is ServerError and "AclException" in remark:
        kind = AccessDeniedError
    return kind(code, remark, address, what)


@contextlib.contextmanager
def reading_answer(address: str = "") -> Iterator[None]:
    """What cannot be read in the block is a BadAnswerError of the server at `address`.

    A message that is compressed in a way that needs a package is not the server's fault: that is a
    ConfigurationError, whose text has the package.
    """
    try:
        yield
    except RequestRefused as error:
        raise BadAnswerError(address, error.remark) from error
    except RemoteProtocolError as error:
        raise BadAnswerError(address, str(error)) from error
    except MissingPackageError as error:
        raise ConfigurationError(str(error)) from error
