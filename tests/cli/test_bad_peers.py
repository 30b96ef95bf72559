"""Strangers and rude clients on the ports of a real process, while others are served."""

from __future__ import annotations

import random
import re
import signal
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from trocket.interop.usage import resident_bytes
from trocket.remoting.codec import FRAME_SIZE_MAX, RemotingCommand, decode_frame, encode

from .conftest import Command

pytestmark = pytest.mark.slow

FREE_PORTS = ("--namesrv-port", "0", "--broker-port", "0", "--metrics-port", "0")
DEADLINE_S = 20.0
RESIDENT_GROWTH_MAX = 64 * 2**20
GET_MAX_OFFSET = 30

STRANGERS = {
    "a record of TLS that is no hello": b"\x16\x03\x01\x00\x40" + bytes(64),
    "an HTTP request": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a frame longer than 16 MiB": struct.pack(">ii", FRAME_SIZE_MAX + 1, 100),
    "a header longer than its frame": struct.pack(">ii", 20, 17),
    "a header of almost 16 MiB": struct.pack(">ii", FRAME_SIZE_MAX, FRAME_SIZE_MAX - 4),
    "a negative length": b"\xff" * 8,
    "broken JSON": struct.pack(">ii", 10, 6) + b'{"code',
    "an unknown serialization": struct.pack(">ii", 6, 9 << 24 | 2) + b"{}",
}


def address_of(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


@contextmanager
def connected(address: tuple[str, int]) -> Iterator[socket.socket]:
    with socket.create_connection(address, timeout=DEADLINE_S) as sock:
        yield sock


def ask(sock: socket.socket, command: RemotingCommand) -> RemotingCommand:
    sock.sendall(encode(command))
    data = b""
    while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
        more = sock.recv(65_536)
        assert more, "the connection was closed"
        data += more
    return decode_frame(data)


def max_offset(sock: socket.socket) -> int:
    fields = {"topic": "BenchmarkTest", "queueId": "0"}
    return int(ask(sock, RemotingCommand(GET_MAX_OFFSET, fields)).ext_fields["offset"])


def closed(sock: socket.socket) -> bool:
    try:
        while sock.recv(4096):  # TLS says why
            pass
    except TimeoutError:
        return False
    except ConnectionError:
        pass
    return True


def test_whatever_a_stranger_sends_costs_it_its_connection_and_nobody_else_anything(
    start: Callable[..., Command], home: Path
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    noise = random.Random(seed)
    command = start(
        "up", "--home", str(home), "--namesrv-port", "0", "--broker-port", "0", "--json"
    )
    facts = command.ready()
    before = resident_bytes(facts["pid"])
    with connected(address_of(facts["broker"])) as good:
        offset = max_offset(good)
        for port in ("broker", "namesrv"):
            for data in STRANGERS.values():
                with connected(address_of(facts[port])) as stranger:
                    stranger.sendall(data)
                    assert closed(stranger)
                    assert max_offset(good) == offset
        for _ in range(20):
            with connected(address_of(facts["broker"])) as stranger:
                # A first byte that makes the length impossible, then anything.
                stranger.sendall(b"\x7f" + noise.randbytes(noise.randrange(4, 4096)))
                assert closed(stranger)
        assert max_offset(good) == offset
    assert resident_bytes(facts["pid"]) - before < RESIDENT_GROWTH_MAX
    status, _, error = command.end(signal.SIGTERM)
    assert status == 0
    assert "Traceback" not in error
    left_out = sum(map(int, re.findall(r"\((\d+) more of these were left out\)", error)))
    count = len(re.findall(r"closed: |closed before its TLS handshake was complete: ", error))
    assert count + left_out == 2 * len(STRANGERS) + 20
    assert "TLS handshake" in error
    assert "HTTP" in error


def test_clients_that_never_read_cost_bounded_memory(
    start: Callable[..., Command], home: Path
) -> None:
    command = start(
        "up", "--home", str(home), "--namesrv-port", "0", "--broker-port", "0", "--json"
    )
    facts = command.ready()
    before = resident_bytes(facts["pid"])
    question = encode(RemotingCommand(GET_MAX_OFFSET, {"topic": "T" * 100, "queueId": "0"})) * 100
    with ExitStack() as stack:
        good = stack.enter_context(connected(address_of(facts["broker"])))
        for _ in range(5):
            rude = stack.enter_context(connected(address_of(facts["broker"])))
            rude.setblocking(False)
            try:
                for _ in range(5_000):
                    rude.send(question)
            except BlockingIOError:
                pass  # it is no longer read from
            else:
                pytest.fail("the broker read 70 MB of requests from a client that reads no answers")
            assert max_offset(good) >= 0
        assert resident_bytes(facts["pid"]) - before < RESIDENT_GROWTH_MAX
    assert command.end(signal.SIGTERM)[0] == 0
