"""Reading the body of a request.

Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ...remoting.codec import RemotingCommand
from ...remoting.errors import RemoteProtocolError, RequestRefused
from ...remoting.response_codes import ResponseCode

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
