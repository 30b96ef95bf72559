"""A translator before a server's session in memory, by the test's clock."""

from __future__ import annotations

import itertools
from typing import Any

from trocket.client.grpc.client_profile import PATH, Profile
from trocket.client.grpc.translator import Translator
from trocket.common.message_properties import properties_to_string
from trocket.grpc_protocol.engine_ngh2 import Ngh2Engine
from trocket.grpc_protocol.enums import Code
from trocket.grpc_protocol.schema import CLIENT_STREAMS, METHODS
from trocket.grpc_protocol.session import Asked, Call, Cancelled, GrpcSession
from trocket.remoting.bodies import (
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    SubscriptionData,
)
from trocket.remoting.codec import RemotingCommand, encode
from trocket.remoting.headers.base import encode_header
from trocket.remoting.pop_requests import (
    Place,
    pop_header,
)
from trocket.remoting.request_codes import RequestCode
from trocket.remoting.response_codes import ResponseCode
from trocket.remoting.session import Answered

ADDRESS = "192.0.2.1:8081"
NOW_MS = 1_795_850_000_000
GROUP, TOPIC = "G", "T"
PLACE = Place(TOPIC, "b")
SUBSCRIPTION = SubscriptionData(topic=TOPIC, sub_string="*")
NOTHING: dict[str, str] = {}


class World:
    """A translator, and the server's end of its connection."""

    def __init__(self, **options: Any) -> None:
        self.now_s = 100.0
        credentials = options.pop("credentials", None)
        namespace = options.pop("namespace", "")
        self.profile = Profile("me@1", namespace, credentials, lambda: NOW_MS)
        self.translator: Translator[str] = Translator(
            self.profile, ADDRESS, lambda: self.now_s, is_secure=False
        )
        paths = {PATH + name for name in METHODS}
        streams = {PATH + name for name in CLIENT_STREAMS}
        self.server = GrpcSession(Ngh2Engine(), paths, streams=streams)
        self.opaques = itertools.count(1)
        self.events: list[Any] = []
        self.calls: list[tuple[str, Any, Call]] = []
        self.cancelled: list[str] = []
        self.exchange()

    def exchange(self) -> None:
        while True:
            sent = self.translator.output()
            self.events += self.translator.events()
            for event in self.server.receive(sent) if sent else ():
                self._note(event)
            answered, events = self.server.output()
            for event in events:
                self._note(event)
            if answered:
                self.events += self.translator.receive_data(answered)
            if not sent and not answered:
                return

    def _note(self, event: Any) -> None:
        match event:
            case Asked(call, message):
                name = call.path.removeprefix(PATH)
                kind = getattr(self.profile.messages, METHODS[name][0])
                self.calls.append((name, kind.FromString(message), call))
            case Cancelled(call):
                self.cancelled.append(call.path.removeprefix(PATH))
            case _:
                pass

    def ask(self, command: RemotingCommand, timeout_s: float = 3.0) -> None:
        """Send a request; its waiter is its opaque's text."""
        command.opaque = next(self.opaques)
        code, waiter = command.code, f"{command.opaque}"
        self.translator.expect(command.opaque, code, waiter, self.now_s, timeout_s)
        self.translator.outgoing(encode(command))
        self.exchange()

    def asked(self, name: str) -> tuple[Any, Call]:
        """The next call, which has to be of this method."""
        found, request, call = self.calls.pop(0)
        assert found == name
        return request, call

    def answer(self, call: Call, **fields: Any) -> None:
        name = call.path.removeprefix(PATH)
        kind = getattr(self.profile.messages, METHODS[name][1])
        message = kind(**fields).SerializeToString()
        if name in CLIENT_STREAMS:
            self.server.send(call, message)
        else:
            self.server.answer(call, message)
        self.exchange()

    def answered(self) -> RemotingCommand:
        """The answer to the only request that has one."""
        (event,) = self.take()
        assert isinstance(event, Answered)
        return event.answer

    def take(self) -> list[Any]:
        self.exchange()
        events, self.events = self.events, []
        return events

    def pass_time(self, seconds: float) -> list[Any]:
        """Let time pass; returns what became of requests."""
        self.now_s += seconds
        found: list[Any] = []
        if self.translator.next_due_s <= self.now_s:
            found += self.translator.expire(self.now_s)
        return [*found, *self.take()]

    # ---- usual steps ----

    def announce(
        self, consumer_type: ConsumeType = ConsumeType.CONSUME_POP, **settings: Any
    ) -> Call:
        """A heartbeat of a consumer, up to its answer; returns the call of its telemetry."""
        self.ask(heartbeat(consumers=[consumer(consumer_type)]))
        _, telemetry = self.asked("Telemetry")
        self.answer(telemetry, status=OK, settings=settings or {"subscription": {}})
        _, beat = self.asked("Heartbeat")
        self.answer(beat, status=OK)
        assert self.answered().code == ResponseCode.SUCCESS
        return telemetry

    def pop(self, poll_ms: int = 15_000, timeout_s: float = 25.0) -> tuple[Any, Call]:
        self.ask(pop_command(poll_ms), timeout_s)
        return self.asked("ReceiveMessage")

    def receive(self, *messages: Any) -> RemotingCommand:
        """Pop, and have the server give messages."""
        _, call = self.pop()
        make = self.profile.messages.ReceiveMessageResponse
        answers = [make(status=OK), *(make(message=each) for each in messages)]
        last = make()
        last.delivery_timestamp.FromMilliseconds(NOW_MS)
        self.server.answer(call, *(each.SerializeToString() for each in (*answers, last)))
        return self.answered()

    def message(self, body: bytes = b"body", **system: Any) -> Any:
        usual: dict[str, Any] = {
            "message_id": "ID", "receipt_handle": "opaque handle", "queue_id": 1,
            "queue_offset": 7, "delivery_attempt": 1, "born_host": "192.0.2.9:1234",
            "store_host": "broker.example",
        }  # fmt: skip
        return self.profile.messages.Message(
            topic={"name": TOPIC}, body=body, system_properties=usual | system
        )


OK = {"code": Code.OK}


def consumer(kind: ConsumeType = ConsumeType.CONSUME_POP) -> ConsumerData:
    return ConsumerData(group_name=GROUP, consume_type=kind, subscription_data_set=[SUBSCRIPTION])


def heartbeat(*, producers: Any = (), consumers: Any = ()) -> RemotingCommand:
    body = HeartbeatData(
        client_id="me@1", producer_data_set=list(producers), consumer_data_set=list(consumers)
    )
    return RemotingCommand(RequestCode.HEART_BEAT, body=body.to_body())


def pop_command(poll_ms: int) -> RemotingCommand:
    header = pop_header(
        PLACE, GROUP, SUBSCRIPTION, count=32, invisible_ms=60_000, poll_ms=poll_ms, init_mode=1
    )
    return RemotingCommand(RequestCode.POP_MESSAGE, encode_header(header))


def send_command(properties: dict[str, str], body: bytes = b"body") -> RemotingCommand:
    fields = {
        "a": "PG", "b": "ns%T", "e": "0", "f": "0", "g": str(NOW_MS),
        "i": properties_to_string({"UNIQ_KEY": "ID", "WAIT": "true"} | properties),
    }  # fmt: skip
    return RemotingCommand(RequestCode.SEND_MESSAGE_V2, fields, body)
