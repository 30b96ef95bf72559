"""A gRPC client of grpcio, and requests as RocketMQ's clients send them."""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import Any, Final

import grpc
import pytest

from trocket.broker import grpc_clients
from trocket.grpc_protocol.enums import ClientType, MessageType
from trocket.grpc_protocol.schema import METHODS, SERVER_STREAMS, Messages
from trocket.grpc_server.rules import Rules
from trocket.grpc_server.server import PREFIX

MESSAGES: Final = Messages()
TIMEOUT_S: Final = 20.0
LEAST_POLL_MS: Final = 200
"""How long a receive waits at least, inside `brief_polls`; 5 s by default."""
DATE: Final = "20261128T120000Z"


class Caller:
    """A client on its own connection."""

    def __init__(
        self,
        address: str,
        client_id: str = "me@1",
        *,
        credentials: tuple[str, str] | None = None,
        trust: grpc.ChannelCredentials | None = None,
    ) -> None:
        self.endpoints = endpoints(address)
        options = [("grpc.use_local_subchannel_pool", 1)]
        self._channel = (
            grpc.insecure_channel(address, options)
            if trust is None
            else grpc.secure_channel(address, trust, options)
        )
        self._metadata = [("x-mq-client-id", client_id), ("x-mq-language", "PYTHON")]
        if credentials is not None:
            key, secret = credentials
            signature = hmac.new(secret.encode(), DATE.encode(), "sha1").hexdigest().upper()
            signed = f"Credential={key}, SignedHeaders=x-mq-date-time, Signature={signature}"
            self._metadata.append(("x-mq-date-time", DATE))
            self._metadata.append(("authorization", f"MQv2-HMAC-SHA1 {signed}"))

    def __enter__(self) -> Caller:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._channel.close()

    def call(self, name: str, timeout_s: float = TIMEOUT_S, **fields: Any) -> Any:
        """Call a method; returns its answer, or its answers as a list."""
        given = self.start(name, timeout_s, **fields)
        return list(given) if name in SERVER_STREAMS else given.result()

    def start(self, name: str, timeout_s: float = TIMEOUT_S, **fields: Any) -> Any:
        """Call a method, and do not wait for its answer."""
        request, answer = (getattr(MESSAGES, each) for each in METHODS[name])
        path, decode = PREFIX + name, answer.FromString
        encoded = request(**fields)
        metadata = self._metadata
        if name in SERVER_STREAMS:
            stream = self._channel.unary_stream(path, request.SerializeToString, decode)
            return stream(encoded, timeout_s, metadata)
        unary = self._channel.unary_unary(path, request.SerializeToString, decode)
        return unary.future(encoded, timeout_s, metadata)

    def telemetry(self, commands: Iterable[Any], timeout_s: float = TIMEOUT_S) -> Iterator[Any]:
        """Open the stream of commands."""
        kind = MESSAGES.TelemetryCommand
        path = PREFIX + "Telemetry"
        stream = self._channel.stream_stream(path, kind.SerializeToString, kind.FromString)
        given: Iterator[Any] = stream(iter(commands), timeout_s, self._metadata)
        return given

    def send(self, topic: str, body: bytes, **system: Any) -> Any:
        """Send a message; returns the entry of the answer."""
        answer = self.call("SendMessage", messages=[message(topic, body, **system)])
        assert answer.status.code == 20000, answer
        (entry,) = answer.entries
        return entry

    def receive(
        self, topic: str, group: str, timeout_s: float = TIMEOUT_S, **fields: Any
    ) -> list[Any]:
        """Receive messages, waiting for some 5 s."""
        *parts, last = self.call(
            "ReceiveMessage", timeout_s, **receive_fields(topic, group, **fields)
        )
        assert last.HasField("delivery_timestamp")
        assert parts[0].status.code in (20000, 40401), parts
        return [each.message for each in parts[1:]]

    def finds_nothing(self, topic: str, group: str, **fields: Any) -> bool:
        """Receive, as briefly as the server allows; returns whether nothing came."""
        least = {"nanos": LEAST_POLL_MS * 1_000_000}
        return not self.receive(topic, group, long_polling_timeout=least, **fields)

    def settings(self, **fields: Any) -> Any:
        """A command with this client's settings."""
        return MESSAGES.TelemetryCommand(settings=MESSAGES.Settings(**fields))

    def consumer_settings(self, group: str, *topics: str) -> Any:
        """The settings of a simple consumer."""
        entries = [{"topic": {"name": topic}, "expression": EVERYTHING} for topic in topics]
        return self.settings(
            client_type=ClientType.SIMPLE_CONSUMER,
            subscription={"group": {"name": group}, "subscriptions": entries},
        )

    def producer_settings(self, *topics: str) -> Any:
        """The settings of a producer."""
        return self.settings(
            client_type=ClientType.PRODUCER,
            publishing={"topics": [{"name": topic} for topic in topics]},
        )


@contextmanager
def brief_polls() -> Iterator[None]:
    """Have brokers and proxies that start let receives wait briefly."""
    with pytest.MonkeyPatch.context() as patch:
        brief = partial(Rules, grpc_client_consumer_min_long_polling_timeout_millis=LEAST_POLL_MS)
        patch.setattr(grpc_clients, "Rules", brief)
        yield


def rules_now() -> Rules:
    """The rules of a broker that starts now; a test may have changed them."""
    rules: Rules = vars(grpc_clients)["Rules"]()
    return rules


EVERYTHING: Final = {"type": 1, "expression": "*"}


def endpoints(address: str) -> Any:
    """A message Endpoints."""
    host, _, port = address.rpartition(":")
    return MESSAGES.Endpoints(scheme=1, addresses=[{"host": host, "port": int(port)}])


def message(topic: str, body: bytes = b"body", **system: Any) -> Any:
    """A message Message with an id."""
    system = {"message_id": "01AB", "message_type": MessageType.NORMAL} | system
    properties = system.pop("user_properties", {})
    return MESSAGES.Message(
        topic={"name": topic}, body=body, system_properties=system, user_properties=properties
    )


def receive_fields(topic: str, group: str, **fields: Any) -> dict[str, Any]:
    """The fields of a receive, which wait for some 5 s."""
    usual = {
        "group": {"name": group},
        "message_queue": {"topic": {"name": topic}, "id": -1},
        "filter_expression": EVERYTHING,
        "batch_size": 32,
        "invisible_duration": {"seconds": 15},
        "long_polling_timeout": {"seconds": 5},
    }
    return usual | fields
