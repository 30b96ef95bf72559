"""Helpers of processors: reading a request's body or message. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from ...common.steps import Steps, at_once
from ...disk.errors import StoreError
from ...remoting.bodies import Body, out_of_range
from ...remoting.codec import RemotingCommand
from ...remoting.errors import RemoteProtocolError, RequestRefused
from ...remoting.message import MessageExt
from ...remoting.message_codec import decode_record
from ...remoting.response_codes import ResponseCode
from ...store.message_store import MessageStore
from ...store.offsets import PhysicalOffset

BodyT = TypeVar("BodyT", bound=Body)

NO_BODY: Final = (b"", b"null")
"""Bodies in which Java's JSON reader finds no object."""


def read_body(
    request: RemotingCommand,
    read: Callable[[bytes], BodyT],
    bound: Callable[[BodyT], None] = lambda body: None,
) -> BodyT:
    """Read the body of a request; the counterpart of `read_body_in_steps` without steps.

    Args:
      read: a body class's `from_request`.
      bound: see `read_body_in_steps`.
    Raises: RequestRefused: as `read_body_in_steps`.
    """

    def steps(body: bytes) -> Steps[BodyT]:
        return read(body)
        yield  # makes this a generator

    return at_once(read_body_in_steps(request, steps, bound))


def read_body_in_steps(
    request: RemotingCommand,
    read: Callable[[bytes], Steps[BodyT]],
    bound: Callable[[BodyT], None] = lambda body: None,
) -> Steps[BodyT]:
    """Steps that read the body of a request.

    Args:
      read: a body class's `from_request_in_steps`.
      bound: refuses or shortens a body with too many items; called before the items are checked.
    Raises: RequestRefused: SYSTEM_ERROR if the body does not have the form that the request needs;
      RocketMQ fails with a NullPointerException or fastjson's error, with the same code.
      INVALID_PARAMETER: a number is outside of the range that its member declares.
    """
    try:
        body = yield from read(request.body)
    except RemoteProtocolError as error:
        raise RequestRefused(
            ResponseCode.SYSTEM_ERROR, f"the body of request {request.code} cannot be read: {error}"
        ) from error
    # Before the items: a body with too many is not worth checking.
    bound(body)
    fault = out_of_range(body)
    if fault is not None:
        raise RequestRefused(
            ResponseCode.INVALID_PARAMETER, f"the body of request {request.code}: {fault}"
        )
    return body


def stored_message(
    store: MessageStore, physical_offset: int, *, failed: str, missing: str
) -> MessageExt:
    """The message that a request names by its physical offset.

    Args:
      physical_offset: from the request, any number.
      failed: begins the remark if the record is damaged or cannot be read.
      missing: the remark if no record starts there.
    Raises: RequestRefused: SYSTEM_ERROR if there is no readable record.
    """
    try:
        record = store.message_at(PhysicalOffset(physical_offset))
        if record is not None:
            return decode_record(record)
    except (StoreError, RemoteProtocolError) as error:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"{failed}{error}") from error
    raise RequestRefused(ResponseCode.SYSTEM_ERROR, missing)
