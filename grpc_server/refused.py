"""Refused: an answer that is nothing but a status of RocketMQ's, and the codes of brokers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..grpc_protocol.enums import Code
from ..remoting.codec import RemotingCommand
from ..remoting.response_codes import ResponseCode
from .link import NoAnswer, Why


class Refused(Exception):
    """Raised by a method: the call is answered with this code and text."""

    def __init__(self, code: Code, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


_CODES: Final[Mapping[int, Code]] = {
    ResponseCode.SUCCESS: Code.OK,
    ResponseCode.SYSTEM_BUSY: Code.TOO_MANY_REQUESTS,
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: Code.NOT_IMPLEMENTED,
    ResponseCode.TOPIC_NOT_EXIST: Code.TOPIC_NOT_FOUND,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: Code.CONSUMER_GROUP_NOT_FOUND,
    ResponseCode.NO_PERMISSION: Code.FORBIDDEN,
    ResponseCode.LMQ_QUOTA_EXCEEDED: Code.LITE_TOPIC_QUOTA_EXCEEDED,
    ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED: Code.LITE_SUBSCRIPTION_QUOTA_EXCEEDED,
    # A message that the broker does not take; Apache's proxy answers INTERNAL_SERVER_ERROR, which
    # clients repeat in vain.
    ResponseCode.MESSAGE_ILLEGAL: Code.BAD_REQUEST,
}
"""Source: proxy/grpc/v2/common/ResponseBuilder.java of 5.5.0; the last one is ours."""


_UNANSWERED: Final[Mapping[Why, Code]] = {
    Why.ENDED: Code.TOO_MANY_REQUESTS,
    Why.UNREACHABLE: Code.INTERNAL_SERVER_ERROR,
    Why.LOST: Code.INTERNAL_SERVER_ERROR,
    Why.LATE: Code.PROXY_TIMEOUT,
}


def refusal_of(answer: RemotingCommand) -> Refused:
    """What the answer of a broker, which is no success, says to a gRPC client."""
    if isinstance(answer, NoAnswer):
        return Refused(_UNANSWERED[answer.why], answer.remark or answer.why.value)
    code = _CODES.get(answer.code, Code.INTERNAL_SERVER_ERROR)
    return Refused(code, answer.remark or f"the broker answered with code {answer.code}")
