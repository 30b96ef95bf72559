"""What processors share: reading a request's body or message, and saving what it changed.

Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ...remoting.bodies import Body, out_of_range
from ...remoting.codec import RemotingCommand
from ...remoting.errors import RemoteProtocolError, RequestRefused
from ...remoting.message import MessageExt
from ...remoting.message_codec import decode_record
from ...remoting.response_codes import ResponseCode
from ...remoting.steps import Steps, at_once
from ...store.errors import StoreError, StoreIOError
from ...store.message_store import MessageStore
from ...store.offsets import PhysicalOffset
from ...store.state.state_file import StateFile

BodyT = TypeVar("BodyT", bound=Body)


def read_body(
    request: RemotingCommand,
    read: Callable[[bytes], BodyT],
    bound: Callable[[BodyT], None] = lambda body: None,
) -> BodyT:
    """The body of a request; `read_body_in_steps` at once.

    Args:
      request: whose body.
      read: a body class's `from_request`.
      bound: as `read_body_in_steps`.
    Raises: RequestRefused: as `read_body_in_steps`.
    """

    def steps(body: bytes) -> Steps[BodyT]:
        return read(body)
        yield  # what makes it a generator

    return at_once(read_body_in_steps(request, steps, bound))


def read_body_in_steps(
    request: RemotingCommand,
    read: Callable[[bytes], Steps[BodyT]],
    bound: Callable[[BodyT], None] = lambda body: None,
) -> Steps[BodyT]:
    """Steps to the body of a request.

    Args:
      request: whose body.
      read: a body class's `from_request_in_steps`.
      bound: refuses or shortens a body with too many items; called before they are looked at one
        by one.
    Raises: RequestRefused: SYSTEM_ERROR, the body is not what the request needs. RocketMQ ends in
      a NullPointerException or fastjson's own error here, with the same code. INVALID_PARAMETER,
      a number is outside of the range that its member declares.
    """
    try:
        body = yield from read(request.body)
    except RemoteProtocolError as error:
        raise RequestRefused(
            ResponseCode.SYSTEM_ERROR, f"the body of request {request.code} cannot be read: {error}"
        ) from error
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
    """The message that a request names by its place in the commit log.

    Args:
      physical_offset: as it came, any number.
      failed: begins the remark when it is damaged or cannot be read.
      missing: the remark when none starts there.
    Raises: RequestRefused: SYSTEM_ERROR.
    """
    try:
        record = store.message_at(PhysicalOffset(physical_offset))
        if record is not None:
            return decode_record(record)
    except (StoreError, RemoteProtocolError) as error:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"{failed}{error}") from error
    raise RequestRefused(ResponseCode.SYSTEM_ERROR, missing)


async def until_saved(file: StateFile) -> None:
    """Wait until what an administrator changed will last.

    Raises: RequestRefused: SYSTEM_ERROR, the change could not be saved: the disk is full, or the
      folder cannot be written.
    """
    try:
        await file.saved()
    except StoreIOError as error:
        raise unsaved(error) from error


def unsaved(error: StoreIOError) -> RequestRefused:
    """What an administrator is told whose change holds until the broker stops, but not longer."""
    return RequestRefused(
        ResponseCode.SYSTEM_ERROR, f"the change was made but could not be saved: {error}"
    )
