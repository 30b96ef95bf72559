"""A load of gRPC calls that costs its machine little: HTTP/2 by ngh2, and no more of a client.

    python -m trocket.bench.grpc_load 127.0.0.1:10911 Load send 64 128

Arguments as those of the official client's load (GrpcLoad.java): address, topic, `send` or
`receive`, calls in flight, bytes of a body. It prints each second what is done so far, {"done": N,
"failed": N, "p99_ms": T of that second}, until it is killed. A receive is one of 32 messages; each
message is acknowledged, unless `--keep` is given. `--rate` receives no more often than that.
"""

from __future__ import annotations

import json
import select
import socket
import time
from typing import Annotated, Any, Final

import ngh2
import typer

from trocket.bench.kit import percentile, socket_address
from trocket.grpc_protocol.enums import ClientType, Code, MessageType
from trocket.grpc_protocol.schema import PACKAGE, SERVICE, Messages
from trocket.grpc_protocol.session import with_prefixes

GROUP: Final = "load"
CLIENT_ID: Final = "load@1"
WINDOW: Final = 1 << 28
READ_SIZE: Final = 1 << 20
RECEIVE_TIMEOUT_S: Final = 30
POLL_S: Final = 5
INVISIBLE_S: Final = 600

M: Final = Messages()


def _headers(name: str) -> list[tuple[bytes, bytes]]:
    return [
        (b":method", b"POST"), (b":scheme", b"http"),
        (b":path", f"/{PACKAGE}.{SERVICE}/{name}".encode()), (b":authority", b"load"),
        (b"content-type", b"application/grpc"), (b"te", b"trailers"),
        (b"grpc-timeout", b"%dS" % RECEIVE_TIMEOUT_S), (b"x-mq-language", b"PYTHON"),
        (b"x-mq-protocol", b"v2"), (b"x-mq-client-version", b"5.2.0"),
        (b"x-mq-date-time", b"20261128T000000Z"), (b"x-mq-client-id", CLIENT_ID.encode()),
        (b"x-mq-namespace", b""), (b"x-mq-request-id", b"0" * 32),
    ]  # fmt: skip


class Load:
    """Keeps calls in flight on one connection."""

    def __init__(
        self, address: str, topic: str, size: int, *, keeps: bool, rate: float, batch: int
    ) -> None:
        self._socket = socket.create_connection(socket_address(address))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._h2 = ngh2.Connection(ngh2.Role.CLIENT)
        self._h2.initiate_connection({ngh2.Setting.INITIAL_WINDOW_SIZE: WINDOW})
        self._h2.set_local_window_size(WINDOW)
        self._topic, self._size, self._keeps = topic, size, keeps
        self._rate, self._batch = rate, batch
        self._begun: dict[int, tuple[str, float]] = {}
        self._parts: dict[int, list[bytes]] = {}
        self._number = 0
        self.done = self.failed = self._open = 0
        self.latencies_ms: list[float] = []

    def call(self, name: str, message: Any, *, ends: bool = True) -> None:
        """Begin a call."""
        stream = self._h2.send_request(_headers(name))
        self._h2.send_data(stream, with_prefixes([message.SerializeToString()]), end_stream=ends)
        if ends:
            self._begun[stream] = name, time.perf_counter()

    def introduce(self, client_type: ClientType) -> None:
        """Send settings, as clients do before anything else."""
        settings = M.Settings(client_type=client_type)
        if client_type is ClientType.PRODUCER:
            settings.publishing.topics.add(name=self._topic)
        else:
            settings.subscription.group.name = GROUP
            entry = settings.subscription.subscriptions.add()
            entry.topic.name, entry.expression.type, entry.expression.expression = (
                self._topic, 1, "*",
            )  # fmt: skip
        self.call("Telemetry", M.TelemetryCommand(settings=settings), ends=False)

    def send(self) -> None:
        """Begin a send."""
        messages = [self._message() for _ in range(self._batch)]
        self.call("SendMessage", M.SendMessageRequest(messages=messages))

    def _message(self) -> Any:
        self._number += 1
        message = M.Message(body=b"x" * self._size)
        message.topic.name = self._topic
        message.system_properties.message_id = f"{self._number:034X}"
        message.system_properties.message_type = MessageType.NORMAL
        message.system_properties.born_timestamp.seconds = int(time.time())
        message.system_properties.born_host = "load"
        return message

    def receive(self) -> None:
        """Begin a receive."""
        request = M.ReceiveMessageRequest(batch_size=32)
        request.group.name = GROUP
        request.message_queue.topic.name, request.message_queue.id = self._topic, -1
        request.filter_expression.type, request.filter_expression.expression = 1, "*"
        request.invisible_duration.seconds = INVISIBLE_S
        request.long_polling_timeout.seconds = POLL_S
        self.call("ReceiveMessage", request)

    def run(self, mode: str, in_flight: int) -> None:
        """Keep calls in flight for ever, and print each second what is done."""
        self.introduce(ClientType.PRODUCER if mode == "send" else ClientType.SIMPLE_CONSUMER)
        begin = self.send if mode == "send" else self.receive
        begin_s = shown_s = time.perf_counter()
        count = 0
        while True:
            now_s = time.perf_counter()
            if now_s - shown_s >= 1:
                shown_s += 1
                self._show()
            while self._open < in_flight and (
                not self._rate or count < self._rate * (now_s - begin_s)
            ):
                begin()
                count += 1
                self._open += 1
            self._exchange()

    def _exchange(self) -> None:
        while data := self._h2.data_to_send():
            self._socket.sendall(data)
        readable, _, _ = select.select([self._socket], [], [], 0.005 if self._rate else 1.0)
        if not readable:
            return
        data = self._socket.recv(READ_SIZE)
        if not data:
            raise SystemExit("the server closed the connection")
        self._h2.receive_data(data)
        for event in self._h2.events():
            if isinstance(event, ngh2.DataReceived):
                self._parts.setdefault(event.stream_id, []).append(event.data)
            elif isinstance(event, ngh2.StreamClosed) and event.stream_id in self._begun:
                self._end(event.stream_id)

    def _end(self, stream: int) -> None:
        name, begun_s = self._begun.pop(stream)
        body = b"".join(self._parts.pop(stream, []))
        if name != "AckMessage":
            self._open -= 1
        if name == "SendMessage":
            self.latencies_ms.append(1e3 * (time.perf_counter() - begun_s))
            is_done = M.SendMessageResponse.FromString(body[5:]).status.code == Code.OK
            self._count(is_done, self._batch)
        elif name == "AckMessage":
            self._count(M.AckMessageResponse.FromString(body[5:]).status.code == Code.OK)
        else:
            self._take(body)

    def _count(self, is_done: bool, messages: int = 1) -> None:
        self.done += messages if is_done else 0
        self.failed += 0 if is_done else messages

    def _take(self, body: bytes) -> None:
        while body:
            size = int.from_bytes(body[1:5], "big")
            part = M.ReceiveMessageResponse.FromString(body[5 : 5 + size])
            body = body[5 + size :]
            if not part.HasField("message"):
                continue
            if self._keeps:
                self.done += 1
                continue
            system = part.message.system_properties
            ack = M.AckMessageRequest()
            ack.group.name, ack.topic.name = GROUP, self._topic
            ack.entries.add(message_id=system.message_id, receipt_handle=system.receipt_handle)
            self.call("AckMessage", ack)

    def _show(self) -> None:
        ordered, self.latencies_ms = sorted(self.latencies_ms), []
        p99_ms = round(percentile(ordered, 0.99), 2) if ordered else 0.0
        line = {"done": self.done, "failed": self.failed, "p99_ms": p99_ms}
        print(json.dumps(line), flush=True)


def main(
    address: str,
    topic: str,
    mode: str,
    in_flight: Annotated[int, typer.Argument()] = 64,
    size: Annotated[int, typer.Argument()] = 128,
    keep: Annotated[bool, typer.Option(help="Acknowledge nothing.")] = False,
    rate: Annotated[float, typer.Option(help="Calls a second; 0: as many as there can be.")] = 0.0,
    batch: Annotated[int, typer.Option(help="Messages of a send.")] = 1,
) -> None:
    """Send, or receive, until the process is killed."""
    Load(address, topic, size, keeps=keep, rate=rate, batch=batch).run(mode, in_flight)


if __name__ == "__main__":
    typer.run(main)
