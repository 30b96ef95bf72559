"""Telemetry: the stream of a member's settings, and of the server's commands to it.

=========  ==========================================  ==========================================
state      meaning                                     next states
=========  ==========================================  ==========================================
CLOSED     there is no stream                          OPENING: a heartbeat, or `reopen_s`
OPENING    the settings are sent                       READY: the server's came; CLOSED: it ended
READY      the server knows the member                 CLOSED: it ended; LEFT
LEFT       the member has left                         OPENING: a heartbeat
=========  ==========================================  ==========================================

Source: ClientSessionImpl.java, ClientManagerImpl.java of rocketmq-clients 5.2.
"""

from __future__ import annotations

import enum
import json
import sys
import threading
import traceback
from collections.abc import Callable
from math import inf
from typing import Any, Final

from ...common.message_properties import PROPERTY_PRODUCER_GROUP
from ...grpc_protocol.client_session import ClientCall
from ...grpc_protocol.enums import Code
from ...remoting.codec import ONEWAY_FLAG, RemotingCommand
from ...remoting.headers.base import encode_header
from ...remoting.headers.message import CheckTransactionStateRequestHeader
from ...remoting.request_codes import RequestCode
from ...remoting.response_codes import ResponseCode
from .client_profile import Member, Profile
from .codes import is_ok
from .messages import Place, record_of, topic_of

SETTINGS_S: Final = 300.0
"""Seconds after which settings are sent again. Source: ClientManagerImpl, 5 minutes."""

REOPEN_S: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
"""Pauses before a stream that the server has ended is opened anew; the last one holds on."""

OPEN_S: Final = 10.0
"""Seconds that a server has to answer the first settings; the next heartbeat after them opens
another stream."""

STACK_MAX: Final = 1024 * 1024
"""Characters of the stacks that a server is sent."""

Ready = Callable[[str], None]
"""Called once: with "" when the server knows the member, or with the reason why it does not."""


class State(enum.Enum):
    """The state of a stream; see the table above."""

    CLOSED = enum.auto()
    OPENING = enum.auto()
    READY = enum.auto()
    LEFT = enum.auto()


class Telemetry:
    """The stream of one member on one connection.

    Attributes:
      member: whose stream it is.
      call: None: there is none.
      reopen_s: when it is opened anew, by the connection's clock; inf: not by itself.
      sent_s: when the settings were sent last.
      sent_version: the version of the member that they had.
    """

    def __init__(self, member: Member) -> None:
        self.member = member
        self.state = State.CLOSED
        self.call: ClientCall | None = None
        self.reopen_s = inf
        self.sent_s = 0.0
        self.sent_version = -1
        self._failures = 0
        self._waiting: list[Ready] = []

    def is_outdated(self, now_s: float) -> bool:
        """Whether the settings have to be sent again."""
        return self.sent_version != self.member.version or now_s - self.sent_s >= SETTINGS_S

    def is_overdue(self, now_s: float) -> bool:
        """Whether the server has not answered the first settings in time."""
        return self.state is State.OPENING and now_s - self.sent_s > OPEN_S

    def opened(self, call: ClientCall) -> None:
        """Note that its stream is open, with the settings as its first command."""
        self.call, self.state, self.reopen_s = call, State.OPENING, inf

    def when_ready(self, ready: Ready) -> None:
        """Have a function called when the server knows the member, or does not."""
        if self.state is State.READY:
            ready("")
        else:
            self._waiting.append(ready)

    def take_settings(self, command: Any) -> None:
        """Note the settings that the server has given."""
        if command.HasField("status") and not is_ok(command.status):
            self._say(f"{command.status.message or 'no reason given'} ({command.status.code})")
            return
        self.member.given = command.settings
        self.state, self._failures = State.READY, 0
        self._say("")

    def ended(self, reason: str, now_s: float) -> None:
        """Note that the server has ended the stream."""
        self.call = None
        if self.state is not State.LEFT:
            self.state = State.CLOSED
            pause_s = REOPEN_S[min(self._failures, len(REOPEN_S) - 1)]
            self._failures += 1
            self.reopen_s = now_s + pause_s
        self._say(reason)

    def left(self) -> None:
        """Note that the member has left; its call is for the caller to end."""
        self.call, self.state, self.reopen_s = None, State.LEFT, inf
        self._say("the member has left")

    def _say(self, reason: str) -> None:
        self.member.refusal = reason
        waiting, self._waiting = self._waiting, []
        for ready in waiting:
            ready(reason)


def check_of(profile: Profile, member: Member, order: Any, address: str) -> RemotingCommand:
    """The check of a transaction as a broker's request.

    Raises: Corrupted; LocalProtocolError: the message cannot be read.
    """
    message = order.message
    topic = topic_of(message)
    # Half messages have the topic as their group there.
    record = record_of(message, Place(topic, 0, {PROPERTY_PRODUCER_GROUP: member.group}))
    header = CheckTransactionStateRequestHeader(
        commit_log_offset=0,
        tran_state_table_offset=max(message.system_properties.queue_offset, 0),
        msg_id=message.system_properties.message_id,
        transaction_id=order.transaction_id,
        topic=topic,
        broker_name=address,
    )
    return RemotingCommand(
        RequestCode.CHECK_TRANSACTION_STATE,
        encode_header(header),
        record,
        flag=ONEWAY_FLAG,
    )


def verification_of(member: Member, order: Any, opaque: int, address: str) -> RemotingCommand:
    """A test delivery as a broker's request. Raises: as `check_of`."""
    record = record_of(order.message, Place(topic_of(order.message), 0, {}))
    fields = {
        "consumerGroup": member.group,
        "clientId": member.client_id,
        "msgId": order.message.system_properties.message_id,
        "brokerName": address,
    }
    code = RequestCode.CONSUME_MESSAGE_DIRECTLY
    return RemotingCommand(code, fields, record, opaque=opaque)


def report_of(profile: Profile, nonce: str, answer: RemotingCommand) -> Any:
    """What the client has answered to a test delivery: a message TelemetryCommand."""
    code, text = Code.FAILED_TO_CONSUME_MESSAGE, answer.remark or ""
    if answer.code == ResponseCode.SUCCESS:
        result = json.loads(answer.body)
        text = result.get("remark") or ""
        if result.get("consumeResult") == "CR_SUCCESS":
            code = Code.OK
    messages = profile.messages
    return messages.TelemetryCommand(
        status=messages.Status(code=code, message=text),
        verify_message_result=messages.VerifyMessageResult(nonce=nonce),
    )


def stacks_of(profile: Profile, nonce: str) -> Any:
    """The stacks of all threads: a message TelemetryCommand."""
    thread_names = {each.ident: each.name for each in threading.enumerate()}
    parts = [
        f"{thread_names.get(ident, 'a thread')} ({ident})\n{''.join(traceback.format_stack(frame))}"
        for ident, frame in sys._current_frames().items()
    ]
    messages = profile.messages
    return messages.TelemetryCommand(
        status=messages.Status(code=Code.OK),
        thread_stack_trace=messages.ThreadStackTrace(
            nonce=nonce, thread_stack_trace="\n".join(parts)[:STACK_MAX]
        ),
    )
