"""Google's client, grpcio, as a peer of the session over a socket."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import grpc
import pytest

from trocket.grpc_protocol.engine import Engine
from trocket.grpc_protocol.session import Asked, GrpcSession, GrpcStatus, HalfClosed

from .client import SEND, TELEMETRY
from .test_session import ENGINES

UNKNOWN = "/apache.rocketmq.v2.MessagingService/Nothing"
DEADLINE_S = 20.0


def serve(listener: socket.socket, engine: Callable[[], Engine], seen: list[Any]) -> None:
    """Serve one connection: sends are echoed, telemetry is answered twice for each message."""
    sock, _ = listener.accept()
    session = GrpcSession(engine(), {SEND, TELEMETRY}, streams={TELEMETRY})
    with closing(sock):
        sock.sendall(session.output()[0])
        while data := sock.recv(65_536):
            for event in session.receive(data):
                seen.append(event)
                match event:
                    case Asked(call, b"fail"):
                        session.finish(call, GrpcStatus.RESOURCE_EXHAUSTED, "zu viel, é")
                    case Asked(_, b"wait"):
                        pass
                    case Asked(call, message) if call.path == SEND:
                        session.answer(call, message)
                    case Asked(call, message):
                        session.send(call, message, message.upper())
                    case HalfClosed(call):
                        session.finish(call)
            sock.sendall(session.output()[0])


@contextmanager
def channel_to(engine: Callable[[], Engine], seen: list[Any]) -> Iterator[grpc.Channel]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener, engine, seen), daemon=True)
        thread.start()
        with grpc.insecure_channel(f"127.0.0.1:{listener.getsockname()[1]}") as channel:
            yield channel
        thread.join(DEADLINE_S)
        assert not thread.is_alive()


@pytest.mark.parametrize("engine", ENGINES)
def test_calls_of_grpcio(engine: Callable[[], Engine]) -> None:
    seen: list[Any] = []
    with channel_to(engine, seen) as channel:
        send = channel.unary_unary(SEND)
        assert send(b"question", timeout=DEADLINE_S) == b"question"
        assert send(b"", timeout=DEADLINE_S) == b""
        large = bytes(range(256)) * 4_000  # above the windows and frames of both sides
        assert send(large, timeout=DEADLINE_S) == large
        telemetry = channel.stream_stream(TELEMETRY)
        assert [*telemetry(iter([b"a", b"b"]), timeout=DEADLINE_S)] == [b"a", b"A", b"b", b"B"]
        with pytest.raises(grpc.RpcError) as refusal:
            send(b"fail", timeout=DEADLINE_S)
        assert refusal.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert refusal.value.details() == "zu viel, é"
        with pytest.raises(grpc.RpcError) as refusal:
            channel.unary_unary(UNKNOWN)(b"", timeout=DEADLINE_S)
        assert refusal.value.code() is grpc.StatusCode.UNIMPLEMENTED
        with pytest.raises(grpc.RpcError) as late:
            send(b"wait", timeout=0.2)
        assert late.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        pending = send.future(b"wait", timeout=DEADLINE_S)
        pending.cancel()
        assert send(b"after", timeout=DEADLINE_S) == b"after"
    waiting = [
        event.call for event in seen if isinstance(event, Asked) and event.message == b"wait"
    ]
    assert waiting[0].timeout_s == pytest.approx(0.2, abs=0.1)
    assert all(call.is_answered for call in waiting)
