"""The harness's own small client, against a broker that is busy for a while."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from trocket.interop import wire
from trocket.interop.process import PeerError
from trocket.interop.wire import Outgoing, WireClient
from trocket.remoting.codec import RemotingCommand, decode_frame, encode

BUSY = 2


@contextmanager
def broker(refusals: dict[bytes, int]) -> Iterator[tuple[str, list[bytes]]]:
    """A broker that refuses a body as busy some times, and records what it accepts."""
    taken: list[bytes] = []

    def answer(request: RemotingCommand) -> RemotingCommand:
        if refusals.get(request.body, 0):
            refusals[request.body] -= 1
            return request.answer(BUSY, "[OVERLOAD]system busy")
        taken.append(request.body)
        place = {"msgId": "7F00000100002A9F0000000000000000", "queueId": "0"}
        return RemotingCommand(
            0, {**place, "queueOffset": str(len(taken) - 1)}, opaque=request.opaque, flag=1
        )

    def serve(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection, connection.makefile("rb") as incoming:
            while size := incoming.read(4):
                body = incoming.read(int.from_bytes(size, "big"))
                connection.sendall(encode(answer(decode_frame(size + body))))

    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}", taken
        finally:
            thread.join(10)


def test_what_a_busy_broker_refused_is_sent_again_and_told_in_its_place():
    with broker({b"b": 3}) as (address, taken), WireClient(address) as client:
        places = client.send_all([Outgoing("T", 0, body) for body in (b"a", b"b", b"c")])
    assert taken == [b"a", b"c", b"b"]
    assert [place.queue_offset for place in places] == [0, 2, 1]


def test_a_broker_that_stays_busy_is_an_error(monkeypatch):
    monkeypatch.setattr(wire, "BUSY_S", 0.0)
    with (
        broker({b"b": 1_000_000}) as (address, _),
        WireClient(address) as client,
        pytest.raises(PeerError, match="system busy"),
    ):
        client.send_all([Outgoing("T", 0, b"b")])
