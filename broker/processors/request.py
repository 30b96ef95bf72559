"""What processors share: reading a request's body, and saving what it changed.

Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from ...remoting.codec import RemotingCommand
from ...remoting.errors import RemoteProtocolError, RequestRefused
from ...remoting.response_codes import ResponseCode
from ...store.errors import StoreIOError

T = TypeVar("T")


def read_body(request: RemotingCommand, read: Callable[[bytes], T]) -> T:
    """The body of a request.

    Args:
      request: whose body.
      read: a body class's `from_body`.
    Raises: RequestRefused: SYSTEM_ERROR, the body is not what the request needs. RocketMQ ends in
      a NullPointerException or fastjson's own error here, with the same code.
    """
    try:
        return read(request.body)
    except RemoteProtocolError as error:
        raise RequestRefused(
            ResponseCode.SYSTEM_ERROR, f"the body of request {request.code} cannot be read: {error}"
        ) from error


@contextmanager
def saved() -> Iterator[None]:
    """Around a change that an administrator wants to last.

    Raises: RequestRefused: SYSTEM_ERROR, the change could not be saved: the disk is full, or the
      folder cannot be written.
    """
    try:
        yield
    except StoreIOError as error:
        raise RequestRefused(
            ResponseCode.SYSTEM_ERROR, f"the change was made but could not be saved: {error}"
        ) from error
