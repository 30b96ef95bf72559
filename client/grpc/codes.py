"""Codes of the gRPC protocol, and of gRPC itself, as the response codes that the client knows.

Source: the inverse of proxy/grpc/v2/common/ResponseBuilder.java of RocketMQ 5.5.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ...grpc_protocol.enums import Code
from ...grpc_protocol.session import GrpcStatus
from ...remoting.codec import RemotingCommand
from ...remoting.response_codes import ResponseCode


class Refused(Exception):
    """A request is answered at once, without a call."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


_ILLEGAL: Final = (
    Code.ILLEGAL_MESSAGE_TAG, Code.ILLEGAL_MESSAGE_KEY, Code.ILLEGAL_MESSAGE_GROUP,
    Code.ILLEGAL_MESSAGE_PROPERTY_KEY, Code.ILLEGAL_MESSAGE_ID, Code.ILLEGAL_DELIVERY_TIME,
    Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, Code.MESSAGE_CORRUPTED, Code.PAYLOAD_TOO_LARGE,
    Code.MESSAGE_BODY_TOO_LARGE, Code.MESSAGE_BODY_EMPTY, Code.MESSAGE_PROPERTIES_TOO_LARGE,
    Code.ILLEGAL_LITE_TOPIC,
)  # fmt: skip
"""A message that the server does not take, whichever way it is sent."""

_CODES: Final[Mapping[int, int]] = {
    Code.OK: ResponseCode.SUCCESS,
    **dict.fromkeys(_ILLEGAL, ResponseCode.MESSAGE_ILLEGAL),
    Code.ILLEGAL_TOPIC: ResponseCode.INVALID_PARAMETER,
    Code.ILLEGAL_CONSUMER_GROUP: ResponseCode.INVALID_PARAMETER,
    Code.ILLEGAL_INVISIBLE_TIME: ResponseCode.INVALID_PARAMETER,
    Code.ILLEGAL_POLLING_TIME: ResponseCode.INVALID_PARAMETER,
    Code.BAD_REQUEST: ResponseCode.INVALID_PARAMETER,
    Code.ILLEGAL_FILTER_EXPRESSION: ResponseCode.SUBSCRIPTION_PARSE_FAILED,
    # The client sends its heartbeat, and with it its settings, and tries again.
    Code.UNRECOGNIZED_CLIENT_TYPE: ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
    Code.CONSUMER_GROUP_NOT_FOUND: ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
    Code.TOPIC_NOT_FOUND: ResponseCode.TOPIC_NOT_EXIST,
    Code.MESSAGE_NOT_FOUND: ResponseCode.POLLING_TIMEOUT,
    Code.INVALID_RECEIPT_HANDLE: ResponseCode.NO_MESSAGE,
    Code.UNAUTHORIZED: ResponseCode.NO_PERMISSION,
    Code.FORBIDDEN: ResponseCode.NO_PERMISSION,
    Code.TOO_MANY_REQUESTS: ResponseCode.SYSTEM_BUSY,
    Code.REQUEST_TIMEOUT: ResponseCode.SYSTEM_BUSY,
    Code.PROXY_TIMEOUT: ResponseCode.SYSTEM_BUSY,
    Code.NOT_IMPLEMENTED: ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
    Code.UNSUPPORTED: ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
    Code.VERSION_UNSUPPORTED: ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
    Code.MASTER_PERSISTENCE_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    Code.SLAVE_PERSISTENCE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
    Code.HA_NOT_AVAILABLE: ResponseCode.SLAVE_NOT_AVAILABLE,
}

_STATUSES: Final[Mapping[GrpcStatus, int]] = {
    GrpcStatus.UNIMPLEMENTED: ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
    GrpcStatus.UNAVAILABLE: ResponseCode.SERVICE_NOT_AVAILABLE,
    GrpcStatus.RESOURCE_EXHAUSTED: ResponseCode.SYSTEM_BUSY,
    GrpcStatus.PERMISSION_DENIED: ResponseCode.NO_PERMISSION,
    GrpcStatus.UNAUTHENTICATED: ResponseCode.NO_PERMISSION,
}


def is_ok(status: Any) -> bool:
    """Whether a message Status is success."""
    return bool(status.code == Code.OK)


def answer_of(command: RemotingCommand, status: Any) -> RemotingCommand:
    """The answer to a request by a message Status."""
    code = _CODES.get(status.code, ResponseCode.SYSTEM_ERROR)
    if code == ResponseCode.SUCCESS:
        return command.answer()
    return command.answer(code, f"{status.message or 'no reason given'} ({_name(status.code)})")


def answer_of_failure(command: RemotingCommand, status: GrpcStatus, text: str) -> RemotingCommand:
    """The answer to a request whose call ended with a status of gRPC other than OK."""
    code = _STATUSES.get(status, ResponseCode.SYSTEM_ERROR)
    return command.answer(code, f"{text or 'no reason given'} (gRPC status {status.name})")


def _name(code: int) -> str:
    try:
        return f"{Code(code).name} {code}"
    except ValueError:
        return f"code {code}"
