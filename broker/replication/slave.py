"""Refusals of a slave: messages, ends of transactions, and changes that the next copy of its
master's tables would undo.

They replace the processors that serve the same requests on a master, which therefore need not check
the role.

Java counterpart: SendMessageProcessor.rejectRequest, PullMessageProcessor.rejectRequest,
EndTransactionProcessor, RecallMessageProcessor, AdminBrokerProcessor.validateSlave of 5.3.3. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from ...remoting.channel import Answer, Channel, Processor
from ...remoting.codec import RemotingCommand
from ...remoting.errors import RequestRefused
from ...remoting.request_codes import RequestCode
from ...remoting.response_codes import ResponseCode
from ..settings.config import BrokerConfig

_REJECTED: Final = (
    ResponseCode.SYSTEM_BUSY,
    "[REJECTREQUEST]system busy, start flow control for a while",
)
"""RocketMQ's remark of all rejected requests; 4.9 answers sends to a slave with code 14."""

NO_CHANGE: Final = (
    ResponseCode.SYSTEM_ERROR,
    (
        "Can't modify topic or subscription group from slave broker, please execute it from "
        "master broker."
    ),
)
"""The refusal of a change of topics or groups."""

_REFUSED: Final = {
    _REJECTED: (
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.CONSUMER_SEND_MSG_BACK,
        RequestCode.SEND_REPLY_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE_V2,
        RequestCode.POP_MESSAGE,
        RequestCode.ACK_MESSAGE,
        RequestCode.BATCH_ACK_MESSAGE,
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
    ),
    (
        ResponseCode.SLAVE_NOT_AVAILABLE,
        "Message store is slave mode, so end transaction is forbidden.",
    ): (RequestCode.END_TRANSACTION, RequestCode.RESUME_CHECK_HALF_MESSAGE),
    NO_CHANGE: (
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
        RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC,
        RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
        RequestCode.SET_MESSAGE_REQUEST_MODE,
    ),
    (ResponseCode.SYSTEM_ERROR, "Can not reset offset in slave broker"): (
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
    ),
}
_RECALL: Final = (
    ResponseCode.SLAVE_NOT_AVAILABLE,
    "recall failed, broker service not available",
)
_PULLS: Final = (
    RequestCode.PULL_MESSAGE,
    RequestCode.LITE_PULL_MESSAGE,
    RequestCode.PEEK_MESSAGE,
)


def slave_refusals(
    config: BrokerConfig, usual: Mapping[int, Processor]
) -> dict[RequestCode, Processor]:
    """The processors that replace a master's on a slave.

    Args:
      config: the broker's; slaveReadEnable decides whether pulls are served.
      usual: the processors of a master.
    """
    refused = {code: refusal for refusal, codes in _REFUSED.items() for code in codes}
    processors = {code: _refuser(*refusal) for code, refusal in refused.items()}
    for code in _PULLS:
        processors[code] = _unless(
            lambda: config.slave_read_enable, usual[code], _refuser(*_REJECTED)
        )
    processors[RequestCode.RECALL_MESSAGE] = _unless(
        lambda: not config.recall_message_enable,  # then the usual processor refuses
        usual[RequestCode.RECALL_MESSAGE],
        _refuser(*_RECALL),
    )
    return processors


def _unless(is_usual: Callable[[], bool], usual: Processor, other: Processor) -> Processor:
    """A processor that is one of two, as settings say at each request."""

    def choose(request: RemotingCommand, channel: Channel) -> Answer:
        return (usual if is_usual() else other)(request, channel)

    return choose


def _refuser(code: ResponseCode, remark: str) -> Processor:
    def refuse(request: RemotingCommand, channel: Channel) -> Answer:
        raise RequestRefused(code, remark)

    return refuse
