"""EndTransaction, and what brokers ask clients: checks, stacks, test deliveries.

A transaction's id says where its half message is, so the service keeps nothing of it. Apache's
proxy keeps a table, and refuses an end that comes after its restart.

Source: proxy/grpc/v2/transaction/EndTransactionActivity.java, channel/GrpcClientChannel.java of
5.5.0.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from ...grpc_protocol.enums import Code, TransactionResolution, TransactionSource
from ...remoting.bodies.base import Body
from ...remoting.codec import RemotingCommand
from ...remoting.headers import decode, encode_header
from ...remoting.headers.message import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
)
from ...remoting.message_codec import decode_messages
from ...remoting.request_codes import RequestCode
from ...remoting.response_codes import ResponseCode
from ...remoting.sys_flag import TRANSACTION_COMMIT_TYPE, TRANSACTION_ROLLBACK_TYPE
from ..client import Client
from ..exchange import Exchange
from ..link import Link
from ..messages import received_message
from ..refused import Refused
from ..rules import topic_of
from ..service import Service

_ID: Final = re.compile(r"([0-9A-F]{1,16})-([0-9A-F]{1,16})-(.{1,255})")
_UNKNOWN: Final = "cannot found transaction data"
_OFFSET_MAX: Final = (1 << 63) - 1

_RESOLUTIONS: Final = {
    TransactionResolution.COMMIT: TRANSACTION_COMMIT_TYPE,
    TransactionResolution.ROLLBACK: TRANSACTION_ROLLBACK_TYPE,
}


class _Half(NamedTuple):
    """Where a half message is."""

    broker_name: str
    physical_offset: int
    queue_offset: int


def transaction_id(broker_name: str, physical_offset: int, queue_offset: int) -> str:
    """The id of a transaction, by its half message."""
    return f"{physical_offset:X}-{queue_offset:X}-{broker_name}"


def _half_of(text: str) -> _Half:
    found = _ID.fullmatch(text)
    if found is None:
        raise Refused(Code.INTERNAL_SERVER_ERROR, _UNKNOWN)
    half = _Half(found[3], int(found[1], 16), int(found[2], 16))
    if max(half.physical_offset, half.queue_offset) > _OFFSET_MAX:
        raise Refused(Code.INTERNAL_SERVER_ERROR, _UNKNOWN)
    return half


def end_transaction(exchange: Exchange, request: Any) -> None:
    """Commit a transaction, or roll it back."""
    topic = topic_of(request.topic)
    if not request.transaction_id.strip():
        raise Refused(Code.INVALID_TRANSACTION_ID, "transaction id cannot be empty")
    half = _half_of(request.transaction_id)
    if request.resolution not in _RESOLUTIONS:
        # The client does not know yet: the broker, which would not answer, will ask again.
        exchange.succeed()
        return
    header = EndTransactionRequestHeader(
        producer_group=topic,
        tran_state_table_offset=half.queue_offset,
        commit_log_offset=half.physical_offset,
        commit_or_rollback=_RESOLUTIONS[request.resolution],
        from_transaction_check=request.source == TransactionSource.SOURCE_SERVER_CHECK,
        msg_id=request.message_id,
        transaction_id=request.message_id,
        topic=topic,
    )
    exchange.ask_for_success(
        half.broker_name,
        RequestCode.END_TRANSACTION,
        encode_header(header),
        lambda answer: exchange.succeed(),
    )


# ---- what brokers ask --------------------------------------------------------------------


def broker_asks(service: Service, client: Client, link: Link, command: RemotingCommand) -> None:
    """Pass a request of a broker on to a client, as a command of its stream."""
    serve = _SERVED.get(command.code)
    if serve is not None:
        serve(service, client, link, command)
    elif not command.is_oneway:
        link.answer(
            command.answer(
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                f"a gRPC client is not asked with code {command.code}",
            )
        )


def _tell(service: Service, client: Client, **command: Any) -> bool:
    """Send a command to a client; whether it has a stream."""
    if client.telemetry is None:
        return False
    client.telemetry.send(service.messages.TelemetryCommand(**command))
    return True


def _check_transaction(
    service: Service, client: Client, link: Link, command: RemotingCommand
) -> None:
    header = decode(CheckTransactionStateRequestHeader, command.ext_fields)
    for record in decode_messages(command.body, inflate=False):
        message = received_message(service.messages, record, record.topic, attempt=1)
        order = service.messages.RecoverOrphanedTransactionCommand(
            message=message,
            transaction_id=transaction_id(
                link.broker, header.commit_log_offset, header.tran_state_table_offset
            ),
        )
        _tell(service, client, recover_orphaned_transaction_command=order)


class RunningInfoOfGrpc(Body):
    """What is known of a gRPC consumer: its threads' stacks."""

    jstack: str = ""


def _print_stack(service: Service, client: Client, link: Link, command: RemotingCommand) -> None:
    nonce = str(next(service.numbers))

    def reported(report: Any) -> None:
        stack = report.thread_stack_trace.thread_stack_trace
        link.answer(command.answer(body=RunningInfoOfGrpc(jstack=stack).to_body()))

    order = service.messages.PrintThreadStackTraceCommand(nonce=nonce)
    if _tell(service, client, print_thread_stack_trace_command=order):
        _wait_for_report(client, nonce, reported)
    else:
        _answer_no_stream(client, link, command)


class ConsumedDirectly(Body):
    """The outcome of a test delivery."""

    order: bool = False
    auto_commit: bool = True
    consume_result: str = "CR_SUCCESS"
    remark: str | None = None
    spent_time_mills: int = 0


def _verify_message(service: Service, client: Client, link: Link, command: RemotingCommand) -> None:
    nonce = str(next(service.numbers))

    def reported(report: Any) -> None:
        is_consumed = report.status.code == Code.OK
        result = ConsumedDirectly(
            consume_result="CR_SUCCESS" if is_consumed else "CR_LATER",
            remark=report.status.message,
        )
        link.answer(command.answer(body=result.to_body()))

    for record in decode_messages(command.body, inflate=False):
        attempt = record.reconsume_times + 1
        message = received_message(service.messages, record, record.topic, attempt=attempt)
        order = service.messages.VerifyMessageCommand(nonce=nonce, message=message)
        if _tell(service, client, verify_message_command=order):
            _wait_for_report(client, nonce, reported)
        else:
            _answer_no_stream(client, link, command)
        return


_SERVED: Final[Mapping[int, Callable[[Service, Client, Link, RemotingCommand], None]]] = {
    RequestCode.CHECK_TRANSACTION_STATE: _check_transaction,
    RequestCode.GET_CONSUMER_RUNNING_INFO: _print_stack,
    RequestCode.CONSUME_MESSAGE_DIRECTLY: _verify_message,
}

REPORTS_MAX: Final = 100
"""What the broker may have asked a client that it has not reported; the oldest is forgotten."""


def _wait_for_report(client: Client, nonce: str, reported: Callable[[Any], None]) -> None:
    if len(client.reports) >= REPORTS_MAX:
        del client.reports[next(iter(client.reports))]
    client.reports[nonce] = reported


def _answer_no_stream(client: Client, link: Link, command: RemotingCommand) -> None:
    text = f"the client {client.id} has no telemetry stream now"
    link.answer(command.answer(ResponseCode.SYSTEM_ERROR, text))
