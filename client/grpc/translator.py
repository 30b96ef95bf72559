"""Translator: the session of a connection to a gRPC server; to the client, a broker's.

It takes the frames that the client sends, makes calls of them, and makes answers of theirs; and it
makes requests of a broker of the server's commands. Its owner calls `expire` when `next_due_s` has
come.

A request is answered when all of its calls are. One whose waiter does not wait any more is given
up: its calls are reset.

==========  ==============  =================  ================================================
state       accepts bytes   accepts requests   next states
==========  ==============  =================  ================================================
OPEN        yes             yes, unless it     FAILED: HTTP/2 has ended, or the peer speaks
                            `is_leaving`       something else; CLOSED: `close`
FAILED      no              no                 CLOSED: `close`
CLOSED      no              no                 nothing
==========  ==============  =================  ================================================
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import inf
from typing import Any, Final, Generic, TypeAlias, TypeVar

from google.protobuf.message import DecodeError

from ...grpc_protocol.client_session import ClientCall, Ended, GrpcClientSession, Replied
from ...grpc_protocol.engines import new_client_engine
from ...grpc_protocol.enums import ClientType, Code
from ...grpc_protocol.fields import set_resource
from ...grpc_protocol.schema import METHODS
from ...grpc_protocol.session import GrpcStatus
from ...remoting.bodies import ConsumerData, ConsumeType, HeartbeatData
from ...remoting.codec import FrameDecoder, RemotingCommand
from ...remoting.errors import (
    LocalProtocolError,
    RemoteProtocolError,
    RemotingConnectError,
    RemotingTimeoutError,
    RequestRefused,
)
from ...remoting.headers import UnregisterClientRequestHeader
from ...remoting.headers.base import decode
from ...remoting.request_codes import RequestCode
from ...remoting.response_codes import ResponseCode
from ...remoting.session import Answered, State, Unanswered
from . import pops, routes, sends
from .asks import Ask
from .client_profile import PATH, Member, Profile
from .codes import Refused, answer_of, answer_of_failure
from .messages import Corrupted
from .telemetry import State as Stream
from .telemetry import (
    Telemetry,
    check_of,
    report_of,
    stacks_of,
    verification_of,
)

logger = logging.getLogger(__name__)

W = TypeVar("W")

ONEWAY_TIMEOUT_S: Final = 10.0
"""Time limit of a call for whose answer no one waits, as the end of a transaction."""

PONG_S: Final = 5.0
"""Seconds within which a server has to answer a ping, which it is sent when a call gets no answer
in time; otherwise the connection is given up."""

PING_PAUSE_S: Final = 20.0
"""Seconds between two pings: servers of gRPC end connections with more."""

ASKED_MAX: Final = 100
"""Test deliveries that the client has not reported; the oldest is forgotten."""

_TELEMETRY: Final = PATH + "Telemetry"

Translate: TypeAlias = Callable[[Profile, str, RemotingCommand], Ask | list[Ask]]
"""Makes calls of a request, for the server at an address. Raises: Refused; RequestRefused;
RemoteProtocolError: the request is malformed."""

TABLE: Final[Mapping[int, Translate]] = {
    RequestCode.GET_ROUTEINFO_BY_TOPIC: routes.query_route,
    RequestCode.QUERY_ASSIGNMENT: routes.query_assignment,
    RequestCode.SEND_MESSAGE_V2: sends.send_message,
    RequestCode.SEND_BATCH_MESSAGE: sends.send_message,
    RequestCode.END_TRANSACTION: sends.end_transaction,
    RequestCode.RECALL_MESSAGE: sends.recall_message,
    RequestCode.POP_MESSAGE: pops.pop_message,
    RequestCode.ACK_MESSAGE: pops.ack_message,
    RequestCode.BATCH_ACK_MESSAGE: pops.ack_messages,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: pops.change_invisible,
    RequestCode.CONSUMER_SEND_MSG_BACK: pops.bury,
}

_KINDS: Final = {ConsumeType.CONSUME_PASSIVELY: ClientType.PUSH_CONSUMER}

Event: TypeAlias = RemotingCommand | Answered[W] | Unanswered[W]


class _Request(Generic[W]):
    """A request of the client.

    Attributes:
      opaque, code, timeout_s: see `Session.expect`.
      waiter: None: no one waits, as the request is oneway.
      due_s: when it times out.
      quiet_s: when it is answered by `quiet`; inf: never.
      open: its parts that are not answered.
      calls: those that have not ended.
      answer: the first answer of a part that is no success, or the last one.
    """

    __slots__ = (
        "answer", "calls", "code", "due_s", "opaque", "open", "quiet", "quiet_s", "timeout_s",
        "waiter",
    )  # fmt: skip

    def __init__(
        self, opaque: int, code: int, waiter: W | None, now_s: float, timeout_s: float
    ) -> None:
        self.opaque = opaque
        self.code = code
        self.waiter = waiter
        self.timeout_s = timeout_s
        self.due_s = now_s + timeout_s
        self.quiet_s = inf
        self.quiet: RemotingCommand | None = None
        self.open = 0
        self.calls: set[ClientCall] = set()
        self.answer: RemotingCommand | None = None


class _Open:
    """What becomes of a call."""

    __slots__ = ("on_end", "on_message")

    def __init__(
        self, on_message: Callable[[bytes], None], on_end: Callable[[GrpcStatus, str], None]
    ) -> None:
        self.on_message = on_message
        self.on_end = on_end


class Translator(Generic[W]):
    """See `remoting.session.Session`, whose interface it has for the client's connection.

    Args:
      profile: of the client.
      address: `host:port` of the server.
      clock: returns the time in seconds, which `expect` and `expire` are given, too.
      is_secure: the connection uses TLS.

    Attributes:
      state: see the table above.
      error: what the peer did wrong; None: nothing.
      close_reason: the reason why it is CLOSED; "" before.
      next_due_s: when `expire` has to be called; inf: it need not.
    """

    def __init__(
        self, profile: Profile, address: str, clock: Callable[[], float], *, is_secure: bool
    ) -> None:
        self.state = State.OPEN
        self.error: RemoteProtocolError | None = None
        self.close_reason = ""
        self.next_due_s = inf
        self._profile = profile
        self._address = address
        scheme = "https" if is_secure else "http"
        self._session = GrpcClientSession(new_client_engine(), address, scheme=scheme)
        self._frames = FrameDecoder(frame_size_max=1 << 30)  # they are the client's
        self._requests: dict[int, _Request[W]] = {}
        self._oneways = itertools.count(-1, -1)
        self._open: dict[ClientCall, _Open] = {}
        self._streams: dict[Member, Telemetry] = {}
        self._asked: dict[int, tuple[Telemetry, str]] = {}
        self._events: list[Event[W]] = []
        self._clock, self._now_s = clock, clock()
        self._is_leaving = False
        self._pong_due_s = inf
        self._may_ping_s = -inf

    # ---- the client's requests ------------------------------------------------------------

    def expect(self, opaque: int, code: int, waiter: W, now_s: float, timeout_s: float) -> None:
        """Wait for the answer to the request that `outgoing` is given next.

        Raises: RemotingConnectError: the session is not OPEN.
          LocalProtocolError: a request with this opaque is waiting.
        """
        if self.state is not State.OPEN:
            raise RemotingConnectError(f"{self._address}: {self.close_reason or self.error}")
        if opaque in self._requests:
            raise LocalProtocolError(f"another request with opaque {opaque} is waiting")
        self._requests[opaque] = _Request(opaque, code, waiter, now_s, timeout_s)
        self.next_due_s = min(self.next_due_s, now_s + timeout_s)

    def outgoing(self, frame: bytes) -> None:
        """Take a frame that the client sends: a request, or its answer to one of a broker."""
        self._now_s = self._clock()
        for command in self._frames.receive_data(frame):
            if command.is_response:
                self._report(command)
            else:
                self._begin(command)

    def forget(self, opaque: int) -> None:
        """Give up a request: its calls are reset."""
        request = self._requests.pop(opaque, None)
        if request is not None:
            self._cancel(request)

    def _cancel(self, request: _Request[W]) -> None:
        for call in request.calls:
            self._open.pop(call, None)
            self._session.cancel(call)
        request.calls.clear()

    def _begin(self, command: RemotingCommand) -> None:
        request = self._requests.get(command.opaque)
        if command.is_oneway or request is None:
            number = next(self._oneways)
            request = _Request(number, command.code, None, self._now_s, ONEWAY_TIMEOUT_S)
            self._requests[number] = request
            self.next_due_s = min(self.next_due_s, request.due_s)
        try:
            if command.code == RequestCode.HEART_BEAT:
                self._heartbeat(request, command)
            elif command.code == RequestCode.UNREGISTER_CLIENT:
                self._unregister(request, command)
            elif command.code == RequestCode.CHECK_CLIENT_CONFIG:
                # Subscriptions are checked with the settings.
                raise Refused(ResponseCode.SUCCESS, "")
            elif command.code in TABLE:
                made = TABLE[command.code](self._profile, self._address, command)
                asks = made if isinstance(made, list) else [made]
                request.open = len(asks)
                for ask in asks:
                    self._ask(request, command, ask)
            else:
                text = f"gRPC has no counterpart of the request {command.code}"
                raise Refused(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, text)
        except Refused as refused:
            self._finish(request, command.answer(refused.code, refused.text or None))
        except RequestRefused as error:
            self._finish(request, command.answer(error.code, error.remark))
        except (RemoteProtocolError, KeyError) as error:
            text = f"the request cannot be translated: {error}"
            self._finish(request, command.answer(ResponseCode.SYSTEM_ERROR, text))

    def _ask(self, request: _Request[W], command: RemotingCommand, ask: Ask) -> None:
        """Make a call for a request."""
        if ask.method == "SendMessage" and ask.member is not None:
            self._publish(ask.member)
        answers: list[Any] = []
        kind = getattr(self._profile.messages, METHODS[ask.method][1])
        timeout_s = request.timeout_s if ask.timeout_s is None else ask.timeout_s

        def on_message(data: bytes) -> None:
            answers.append(kind.FromString(data))

        def on_end(status: GrpcStatus, text: str) -> None:
            request.calls.discard(call)
            if status is not GrpcStatus.OK:
                self._fail_part(request, command, status, text)
            elif not answers:
                self._fail_part(request, command, GrpcStatus.INTERNAL, "the answer has no message")
            else:
                self._finish_part(request, ask.read(answers))

        if ask.quiet_s is not None:
            request.quiet_s = self._now_s + ask.quiet_s
            request.quiet = command.answer(ResponseCode.POLLING_TIMEOUT)
            self.next_due_s = min(self.next_due_s, request.quiet_s)
        call = self._call(ask.method, ask.request, ask.member, timeout_s, _Open(on_message, on_end))
        request.calls.add(call)

    def _call(
        self, method: str, message: Any, member: Member | None, timeout_s: float, open_: _Open
    ) -> ClientCall:
        metadata = self._profile.metadata(member)
        data = message.SerializeToString()
        call = self._session.call(PATH + method, metadata, data, timeout_s=timeout_s)
        self._open[call] = open_
        return call

    def _fail_part(
        self, request: _Request[W], command: RemotingCommand, status: GrpcStatus, text: str
    ) -> None:
        if self._session.broken is not None:
            return  # `close` answers it
        waiter = request.waiter
        if status is GrpcStatus.DEADLINE_EXCEEDED and waiter is not None:
            error: RemotingTimeoutError | RemotingConnectError = RemotingTimeoutError(
                self._address, request.code, request.timeout_s
            )
        elif status is GrpcStatus.UNAVAILABLE and self._session.going_away and waiter is not None:
            error = RemotingConnectError(f"{self._address}: {text}")
        else:
            self._finish_part(request, answer_of_failure(command, status, text))
            return
        if self._requests.pop(request.opaque, None) is not None:
            self._cancel(request)
            self._events.append(Unanswered(waiter, error))

    def _finish_part(self, request: _Request[W], answer: RemotingCommand) -> None:
        if request.answer is None or request.answer.code == ResponseCode.SUCCESS:
            request.answer = answer
        request.open -= 1
        if request.open <= 0:
            self._finish(request, request.answer)

    def _finish(self, request: _Request[W], answer: RemotingCommand) -> None:
        if self._requests.pop(request.opaque, None) is None:
            return
        self._cancel(request)
        if request.waiter is not None:
            self._events.append(Answered(request.waiter, answer))
        elif answer.code != ResponseCode.SUCCESS:
            text = "%s was refused request %d: %s"
            logger.warning(text, self._address, request.code, answer.remark)

    # ---- members ---------------------------------------------------------------------------

    def _stream(self, member: Member) -> Telemetry:
        return self._streams.setdefault(member, Telemetry(member))

    def _heartbeat(self, request: _Request[W], command: RemotingCommand) -> None:
        """Have the server know all members, and then send a Heartbeat of each."""
        body = HeartbeatData.from_body(command.body)
        members = [self._profile.producer(each.group_name) for each in body.producer_data_set]
        members += [self._consumer(each) for each in body.consumer_data_set]
        if not members:
            raise Refused(ResponseCode.SUCCESS, "")
        request.open = len(members)
        for member in members:
            stream = self._stream(member)
            if stream.call is not None and stream.is_overdue(self._now_s):
                self._open.pop(stream.call, None)
                self._session.cancel(stream.call)
                stream.ended("no settings came in time", self._now_s)
            if stream.call is None:
                self._open_stream(stream)
            elif stream.is_outdated(self._now_s):
                self._session.send(stream.call, self._settings(stream))
            stream.when_ready(partial(self._beat, request, command, member))

    def _consumer(self, data: ConsumerData) -> Member:
        member = self._profile.consumer(data.group_name)
        kind = _KINDS.get(data.consume_type, ClientType.SIMPLE_CONSUMER)
        member.subscribe(kind, data.subscription_data_set)
        return member

    def _beat(
        self, request: _Request[W], command: RemotingCommand, member: Member, reason: str
    ) -> None:
        if request.opaque not in self._requests:
            return
        if reason:
            text = f"the server does not take the settings of {member.group}: {reason}"
            self._finish_part(request, command.answer(ResponseCode.SYSTEM_ERROR, text))
            return
        message = self._profile.messages.HeartbeatRequest(client_type=member.kind)
        if not member.is_producer:
            set_resource(message.group, member.group)

        def read(answers: Sequence[Any]) -> RemotingCommand:
            if answers[0].status.code == Code.UNRECOGNIZED_CLIENT_TYPE:
                # The server has forgotten the settings: the next heartbeat sends them.
                self._stream(member).sent_version = -1
            return answer_of(command, answers[0].status)

        self._ask(request, command, Ask("Heartbeat", message, read, member))

    def _unregister(self, request: _Request[W], command: RemotingCommand) -> None:
        header = decode(UnregisterClientRequestHeader, command.ext_fields)
        if header.producer_group:
            member = self._profile.producer(header.producer_group)
        else:
            member = self._profile.consumer(header.consumer_group or "")
        stream = self._stream(member)
        if stream.state is not Stream.READY:
            self._leave(stream)
            raise Refused(ResponseCode.SUCCESS, "")
        message = self._profile.messages.NotifyClientTerminationRequest()
        if not member.is_producer:
            set_resource(message.group, member.group)

        def read(answers: Sequence[Any]) -> RemotingCommand:
            self._leave(stream)
            return answer_of(command, answers[0].status)

        request.open = 1
        self._ask(request, command, Ask("NotifyClientTermination", message, read, member))

    def _leave(self, stream: Telemetry) -> None:
        call = stream.call
        stream.left()
        if call is not None:
            self._open.pop(call, None)
            self._session.cancel(call)

    def _publish(self, member: Member) -> None:
        """Say a new topic to the server before its first message."""
        stream = self._streams.get(member)
        if stream is not None and stream.call and stream.sent_version != member.version:
            self._session.send(stream.call, self._settings(stream))

    # ---- telemetry -------------------------------------------------------------------------

    def _open_stream(self, stream: Telemetry) -> None:
        call = self._session.call(
            _TELEMETRY,
            self._profile.metadata(stream.member),
            self._settings(stream),
            ends=False,
        )
        stream.opened(call)

        def on_end(status: GrpcStatus, text: str) -> None:
            logger.debug("%s ended telemetry: %s %s", self._address, status.name, text)
            stream.ended(f"{text or 'the stream ended'} ({status.name})", self._now_s)
            self.next_due_s = min(self.next_due_s, stream.reopen_s)

        self._open[call] = _Open(partial(self._command, stream), on_end)

    def _settings(self, stream: Telemetry) -> bytes:
        stream.sent_s, stream.sent_version = self._now_s, stream.member.version
        settings = self._profile.settings(stream.member, self._address)
        command = self._profile.messages.TelemetryCommand(settings=settings)
        return bytes(command.SerializeToString())

    def _tell(self, stream: Telemetry, command: Any) -> None:
        if stream.call is not None:
            self._session.send(stream.call, command.SerializeToString())

    def _command(self, stream: Telemetry, data: bytes) -> None:
        """Take a command of the server."""
        command = self._profile.messages.TelemetryCommand.FromString(data)
        kind = command.WhichOneof("command")
        try:
            if kind == "settings":
                stream.take_settings(command)
            elif kind == "recover_orphaned_transaction_command":
                order = command.recover_orphaned_transaction_command
                check = check_of(self._profile, stream.member, order, self._address)
                self._events.append(check)
            elif kind == "print_thread_stack_trace_command":
                nonce = command.print_thread_stack_trace_command.nonce
                self._tell(stream, stacks_of(self._profile, nonce))
            elif kind == "verify_message_command":
                self._verify(stream, command.verify_message_command)
            elif kind == "reconnect_endpoints_command":
                logger.info("%s asks for a new connection", self._address)
                self._is_leaving = True
        except (Corrupted, LocalProtocolError) as error:
            logger.warning("a command of %s cannot be read: %s", self._address, error)

    def _verify(self, stream: Telemetry, order: Any) -> None:
        opaque = next(self._oneways)
        self._asked[opaque] = stream, order.nonce
        if len(self._asked) > ASKED_MAX:
            del self._asked[next(iter(self._asked))]
        self._events.append(verification_of(stream.member, order, opaque, self._address))

    def _report(self, answer: RemotingCommand) -> None:
        asked = self._asked.pop(answer.opaque, None)
        if asked is not None:
            stream, nonce = asked
            self._tell(stream, report_of(self._profile, nonce, answer))

    # ---- bytes and time ---------------------------------------------------------------------

    def receive_data(self, data: bytes) -> list[Event[W]]:
        """Process received bytes; returns what became of requests, and requests of the server."""
        self._now_s = self._clock()
        self._pong_due_s = inf
        if self.state is State.OPEN:
            self._handle(self._session.receive(data))
        return self.events()

    def events(self) -> list[Event[W]]:
        """The events since the last call of this method, or of `receive_data`."""
        # Calls that were refused at once.
        self._handle(self._session.events())
        events, self._events = self._events, []
        return events

    def output(self) -> bytes:
        """The bytes to send now."""
        data = self._session.output()
        self._look_at_end()
        return data

    @property
    def has_news(self) -> bool:
        """Whether there are events, or the end of the connection is near."""
        is_ending = self.state is not State.OPEN or self.is_leaving
        return is_ending or bool(self._events) or self._session.has_events

    @property
    def is_leaving(self) -> bool:
        """Whether new requests belong on another connection; those under way go on."""
        return self._is_leaving or self._session.going_away is not None

    @property
    def is_idle(self) -> bool:
        """Whether no request is under way."""
        return not self._requests

    def _handle(self, events: Sequence[Any]) -> None:
        for event in events:
            match event:
                case Replied():
                    self._replied(event)
                case Ended():
                    open_ = self._open.pop(event.call, None)
                    if open_ is not None:
                        open_.on_end(event.status, event.text)
                case _:
                    pass
        self._look_at_end()

    def _replied(self, event: Replied) -> None:
        open_ = self._open.get(event.call)
        if open_ is None:
            return
        try:
            open_.on_message(event.message)
        except DecodeError as error:
            self._open.pop(event.call, None)
            self._session.cancel(event.call)
            open_.on_end(GrpcStatus.INTERNAL, f"a message cannot be read: {error}")

    def _look_at_end(self) -> None:
        if self._session.broken is not None and self.state is State.OPEN:
            self.state = State.FAILED
            if self._session.going_away is None:
                self.error = RemoteProtocolError(self._session.broken)

    def expire(self, now_s: float) -> list[Unanswered[W]]:
        """Remove and return the requests that timed out; open streams anew whose time has come."""
        self._now_s = now_s
        late = [each for each in self._requests.values() if each.due_s <= now_s]
        unanswered: list[Unanswered[W]] = []
        for request in late:
            del self._requests[request.opaque]
            self._cancel(request)
            if request.waiter is not None:
                error = RemotingTimeoutError(self._address, request.code, request.timeout_s)
                unanswered.append(Unanswered(request.waiter, error))
        for request in [each for each in self._requests.values() if each.quiet_s <= now_s]:
            if request.quiet is not None:
                self._finish(request, request.quiet)
        for stream in self._streams.values():
            if stream.reopen_s <= now_s and not self.is_leaving:
                self._open_stream(stream)
        if late:
            self._suspect()
        if self._pong_due_s <= now_s and self.state is State.OPEN:
            self.state = State.FAILED
            self.error = RemoteProtocolError(f"no answer to a ping within {PONG_S:g} s")
        self._set_due()
        return unanswered

    def _suspect(self) -> None:
        """Ask a server that has not answered in time whether it is there."""
        if self._pong_due_s == inf and self._may_ping_s <= self._now_s:
            self._session.ping()
            self._pong_due_s = self._now_s + PONG_S
            self._may_ping_s = self._now_s + PING_PAUSE_S

    def _set_due(self) -> None:
        times = [min(each.due_s, each.quiet_s) for each in self._requests.values()]
        if not self.is_leaving:
            times += [each.reopen_s for each in self._streams.values()]
        self.next_due_s = min([*times, self._pong_due_s], default=inf)

    def close(self, reason: str) -> list[Unanswered[W]]:
        """Close the session.

        Returns: the waiting requests, each with a RemotingConnectError that has the reason.
        """
        if self.state is State.CLOSED:
            return []
        self.state, self.close_reason, self.next_due_s = State.CLOSED, reason, inf
        requests, self._requests = self._requests, {}
        self._open.clear()
        lost = RemotingConnectError(f"{self._address}: {reason}")
        return [
            Unanswered(each.waiter, lost) for each in requests.values() if each.waiter is not None
        ]
