"""A client of one server: grpcio's, and requests of HTTP/2 as they are written."""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Iterator, Mapping
from typing import Any, Final

import grpc
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, ResponseReceived, StreamEnded, StreamReset, TrailersReceived

from ...grpc_protocol.schema import METHODS, PACKAGE, SERVER_STREAMS, SERVICE, Messages
from ..process import PeerError
from .call import Call, Raw

MESSAGES: Final = Messages()
ANSWER_TIMEOUT_S: Final = 20.0
"""How long an answer on a stream of commands, or to a written request, is waited for."""

_OPTIONS: Final = (
    ("grpc.use_local_subchannel_pool", 1),
    # Answers of either server are read, however large.
    ("grpc.max_receive_message_length", 64 << 20),
    ("grpc.max_send_message_length", 64 << 20),
)


class Caller:
    """One client on its own connection. Thread-safe as grpcio's channel is.

    Args:
      address: HOST:PORT.
      client_id: sent with each call.
    """

    def __init__(self, address: str, client_id: str) -> None:
        self._channel = grpc.insecure_channel(address, _OPTIONS)
        self._metadata = {
            "x-mq-client-id": client_id,
            "x-mq-language": "JAVA",
            "x-mq-protocol": "v2",
            "x-mq-client-version": "5.2.0",
            "x-mq-date-time": "20261128T120000Z",
            "x-mq-request-id": "d2a6cf3e-0d6f-4a8b-8a16-3f6a3a4e3f70",
        }

    def close(self) -> None:
        """End all calls."""
        self._channel.close()

    def metadata(self, changed: Mapping[str, str | None]) -> list[tuple[str, str]]:
        """The headers of a call."""
        return [
            (name, value)
            for name, value in {**self._metadata, **changed}.items()
            if value is not None
        ]

    def start(self, call: Call, fields: Mapping[str, Any]) -> Any:
        """Begin a call; returns grpcio's future, or its iterator of answers."""
        path = f"/{call.service or f'{PACKAGE}.{SERVICE}'}/{call.method}"
        request, answer = METHODS.get(call.method, ("QueryRouteRequest", "QueryRouteResponse"))
        body = call.body
        if body is None:
            body = getattr(MESSAGES, request)(**fields).SerializeToString()
        decode = getattr(MESSAGES, answer).FromString
        metadata = self.metadata(call.metadata)
        compression = grpc.Compression.Gzip if call.is_gzipped else None
        options: dict[str, Any] = {"metadata": metadata, "compression": compression}
        if call.method in SERVER_STREAMS:
            return self._channel.unary_stream(path, None, decode)(body, call.timeout_s, **options)
        unary = self._channel.unary_unary(path, None, decode)
        return unary.future(body, call.timeout_s, **options)

    def telemetry(self, changed: Mapping[str, str | None]) -> Stream:
        """Open a stream of commands."""
        path = f"/{PACKAGE}.{SERVICE}/Telemetry"
        method = self._channel.stream_stream(path, None, MESSAGES.TelemetryCommand.FromString)
        return Stream(lambda commands: method(commands, metadata=self.metadata(changed)))


def ended(method: str, call: Any) -> tuple[list[Any], str, str]:
    """The answers of a call that was begun, its status and the status' text."""
    answers: list[Any] = []
    try:
        if method in SERVER_STREAMS:
            answers.extend(call)
        else:
            answers.append(call.result())
    except grpc.RpcError:
        pass
    return answers, call.code().name, (call.details() or "").rstrip()


class Stream:
    """A telemetry stream. A thread reads it until it ends.

    Args:
      begin: begins the call with an iterator of encoded commands.
    """

    def __init__(self, begin: Any) -> None:
        self._commands: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._end = threading.Event()
        self._call = begin(iter(self._commands.get, None))
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        try:
            for answer in self._call:
                self._answers.put(answer)
        except grpc.RpcError:
            pass
        self._end.set()
        self._answers.put(None)

    def send(self, command: bytes) -> None:
        """Send an encoded command."""
        self._commands.put(command)

    def close(self) -> None:
        """End the client's side."""
        self._commands.put(None)

    def answers(self, count: int) -> Iterator[Any]:
        """The next commands of the server, `count` at most; fewer if the stream ends.

        Raises: PeerError: one did not come in time.
        """
        for _ in range(count):
            try:
                answer = self._answers.get(timeout=ANSWER_TIMEOUT_S)
            except queue.Empty:
                raise PeerError(f"no command in {ANSWER_TIMEOUT_S} s") from None
            if answer is None:
                return
            yield answer

    def status(self, *, waits: bool) -> tuple[str, str]:
        """Its status of gRPC and the text; "open" if it has not ended.

        Args:
          waits: for its end.
        """
        if not self._end.wait(ANSWER_TIMEOUT_S if waits else 0):
            return "open", ""
        return self._call.code().name, self._call.details() or ""


def write(address: str, raw: Raw) -> dict[str, str]:
    """Send a written request; returns the headers and trailers of the answer that are compared.

    Raises: PeerError: the connection broke, or no answer came in time.
    """
    host, _, port = address.rpartition(":")
    usual: dict[str, str | None] = {
        ":method": "POST",
        ":path": f"/{PACKAGE}.{SERVICE}/QueryRoute",
        ":scheme": "http",
        ":authority": address,
        "content-type": "application/grpc",
        "te": "trailers",
        "x-mq-client-id": "raw",
    }
    headers = [(name, value) for name, value in {**usual, **raw.headers}.items() if value]
    connection = H2Connection(
        H2Configuration(validate_outbound_headers=False, validate_inbound_headers=False)
    )
    found: dict[str, str] = {}
    try:
        with socket.create_connection((host, int(port)), timeout=ANSWER_TIMEOUT_S) as peer:
            connection.initiate_connection()
            connection.send_headers(1, headers)
            connection.send_data(1, raw.body, end_stream=True)
            while True:
                peer.sendall(connection.data_to_send())
                data = peer.recv(1 << 16)
                if not data:
                    raise PeerError("the server closed the connection")
                for event in connection.receive_data(data):
                    if isinstance(event, (ResponseReceived, TrailersReceived)):
                        found |= _texts(event.headers)
                    elif isinstance(event, StreamReset):
                        # A server may have no use for the rest of a request that it answered.
                        return found or {"reset": str(int(event.error_code))}
                    elif isinstance(event, DataReceived):
                        connection.acknowledge_received_data(event.flow_controlled_length, 1)
                    elif isinstance(event, StreamEnded):
                        return found
    except OSError as error:
        raise PeerError(f"the connection broke: {error}") from error


_COMPARED: Final = (":status", "content-type", "grpc-status", "grpc-message")


def _texts(headers: Any) -> dict[str, str]:
    texts = {}
    for name, value in headers:
        key = name.decode() if isinstance(name, bytes) else name
        text = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
        if key in _COMPARED:
            texts[key] = text.rstrip()
    return texts
