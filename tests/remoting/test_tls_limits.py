"""Slow, silent and greedy peers on a port with TLS, and the others meanwhile."""

from __future__ import annotations

import shutil
import ssl
import subprocess

import pytest
import trio
import trio.testing

from trocket.common.connection_policy import ConnectionPolicy
from trocket.remoting import tls_server
from trocket.remoting.channel import OUTBOX_HIGH_WATER
from trocket.remoting.codec import RemotingCommand, encode
from trocket.remoting.connection import ConnectionLimits
from trocket.remoting.tls_server import HANDSHAKE_TIMEOUT_S

from .test_connection import ECHO, RAW, REFUSE
from .tls_support import Certificates, Listening, client_context, listening


def hello() -> bytes:
    """The first message of a client's handshake."""
    outgoing = ssl.MemoryBIO()
    client = client_context().wrap_bio(ssl.MemoryBIO(), outgoing)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


async def is_closed(stream: trio.SocketStream) -> bool:
    """Read until the server closes."""
    try:
        while await stream.receive_some(65_536):
            pass
    except trio.BrokenResourceError:
        pass
    return True


async def test_a_handshake_may_come_byte_by_byte(files: Certificates) -> None:
    async with listening(files.server()) as server:
        stream = await server.connect()
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = client_context().wrap_bio(incoming, outgoing, server_hostname="a")
        request = encode(RemotingCommand(ECHO, opaque=7))
        is_established, answer = False, b""
        while not answer:
            try:
                if not is_established:
                    client.do_handshake()
                    is_established = True
                    client.write(request)
                    for byte in outgoing.read():
                        await stream.send_all(bytes([byte]))
                answer = client.read(65_536)
            except ssl.SSLWantReadError:
                for byte in outgoing.read():
                    await stream.send_all(bytes([byte]))
                incoming.write(bytes(await stream.receive_some(65_536)))
        assert b'"opaque":7' in answer


@pytest.mark.parametrize("size", [1, 50])
async def test_a_handshake_that_does_not_go_on_is_ended(
    files: Certificates,
    caplog: pytest.LogCaptureFixture,
    autojump_clock: trio.testing.MockClock,
    size: int,
) -> None:
    async with listening(files.server()) as server:
        stream = await server.connect()
        start_s = trio.current_time()
        await stream.send_all(hello()[:size])
        assert await is_closed(stream)
        assert trio.current_time() - start_s == pytest.approx(HANDSHAKE_TIMEOUT_S, abs=1)
        assert f"its handshake took more than {HANDSHAKE_TIMEOUT_S:g} s" in caplog.text
        assert await server.serves(server.secure())


async def test_a_peer_that_sends_nothing_is_closed_as_before(
    files: Certificates, caplog: pytest.LogCaptureFixture, autojump_clock: trio.testing.MockClock
) -> None:
    async with listening(files.server(), limits=ConnectionLimits(idle_s=30)) as server:
        assert await is_closed(await server.connect())
        assert "closed: nothing was received for 30 s" in caplog.text


async def test_an_established_connection_may_be_idle_for_its_time(
    files: Certificates, autojump_clock: trio.testing.MockClock
) -> None:
    async with listening(files.server(), limits=ConnectionLimits(idle_s=30)) as server:
        peer = await server.secure()
        await trio.sleep(29)
        assert await peer.ask(RemotingCommand(ECHO)) is not None
        start_s = trio.current_time()
        assert await peer.receive() is None
        assert 30 < trio.current_time() - start_s < 33


async def test_connections_before_their_first_byte_count(
    files: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    limits = ConnectionLimits(policy=ConnectionPolicy(connections_max=3))
    async with listening(files.server(), limits=limits) as server:
        for _ in range(2):
            await server.connect()
        assert await server.serves(server.secure())
        assert not await server.serves(server.plain())
        assert "3 are open, which is the limit" in caplog.text


async def test_a_flood_of_half_handshakes_ends_its_own(
    files: Certificates, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_server, "HANDSHAKES_MAX", 20)
    half = hello()[:100]
    async with listening(files.server()) as server:
        first = await server.connect()
        await first.send_all(half)
        for _ in range(60):
            await (await server.connect()).send_all(half)
        assert await is_closed(first)
        assert "20 handshakes are unfinished, which is the limit, and its was the oldest" in (
            caplog.text
        )
        assert await server.serves(server.secure())
        assert await server.serves(server.plain())


async def test_clients_that_all_come_at_once_are_all_served(
    files: Certificates, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a restart of the server."""
    monkeypatch.setattr(tls_server, "HANDSHAKES_MAX", 20)
    served = []

    async def come(server: Listening) -> None:
        served.append(await server.serves(server.secure()))

    async with listening(files.server()) as server, trio.open_nursery() as nursery:
        for _ in range(150):
            nursery.start_soon(come, server)
    assert served == [True] * 150
    assert not caplog.records


@pytest.mark.parametrize(
    "garbage",
    [
        pytest.param(b"\x16", id="a byte"),
        pytest.param(b"\x16\x03\x01\xff\xff" + bytes(1000), id="a long record"),
        pytest.param(b"\x16\x03\x01\x00\x05\x01\x00\xff\xff\xff" + bytes(100), id="a long hello"),
        pytest.param(b"\x16GET / HTTP/1.1\r\n\r\n", id="text"),
    ],
)
async def test_bytes_that_only_look_like_tls_end_their_connection(
    files: Certificates, caplog: pytest.LogCaptureFixture, garbage: bytes
) -> None:
    async with listening(files.server()) as server:
        stream = await server.connect()
        await stream.send_all(garbage)
        await stream.send_eof()
        assert await is_closed(stream)
        assert await server.serves(server.secure())
    assert len(caplog.records) == 1
    assert "closed before its TLS handshake was complete" in caplog.text


async def test_a_broken_record_ends_an_established_connection(files: Certificates) -> None:
    async with listening(files.server()) as server:
        peer = await server.secure()
        assert await peer.ask(RemotingCommand(ECHO)) is not None
        await server.streams[0].send_all(b"\x17\x03\x03\x00\x20" + bytes(32))
        assert await is_closed(server.streams[0])
        await trio.testing.wait_all_tasks_blocked()
        assert len(server.service.closed) == 1
        assert "connection lost" in server.service.closed[0].close_reason


async def test_a_peer_that_never_reads_is_not_read_from_either(files: Certificates) -> None:
    body = bytes(OUTBOX_HIGH_WATER)
    async with listening(files.server()) as server, trio.open_nursery() as nursery:
        peer = await server.secure()
        commands = [RemotingCommand(ECHO, opaque=n, body=body) for n in range(12)]
        nursery.start_soon(peer.send, *commands)
        with trio.fail_after(10):
            while not any(each.is_backlogged for each in server.server.channels):  # noqa: ASYNC110
                await trio.sleep(0.01)
        await trio.testing.wait_all_tasks_blocked(0.05)
        served = len(server.service.answered)
        assert served < 12
        # Reading again, it gets everything.
        answers = [await peer.receive() for _ in range(12)]
        assert [answer and answer.opaque for answer in answers] == list(range(12))
        assert all(answer and answer.body == body for answer in answers)
        assert server.server.memory.unread_answers.used == 0


async def replies(server: Listening, is_secure: bool, pieces: list[bytes]) -> bytes:
    """The bytes that a server answers to some requests, without those of a later request."""
    peer = await (server.secure() if is_secure else server.plain())
    for piece in pieces:
        await peer.stream.send_all(piece)
    end = b'"opaque":4242'
    await peer.stream.send_all(encode(RemotingCommand(RAW, opaque=4242)))
    data = b""
    while end not in data:
        data += bytes(await peer.stream.receive_some(65_536))
    return data


@pytest.mark.parametrize("size", [1, 7, 1000, 16_384, 100_000])
async def test_the_answers_are_the_same_bytes_as_without_tls(
    files: Certificates, size: int
) -> None:
    """However the requests are cut into records and segments."""
    commands = [
        RemotingCommand(code, {"n": str(n)}, opaque=n, body=bytes(n * 300), serialize_type=n % 2)
        for n, code in enumerate([ECHO, REFUSE, RAW, 31_000, ECHO, ECHO, RAW] * 4)
        if size > 1 or n < 4
    ]
    data = b"".join(map(encode, commands))
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    async with listening(files.server()) as server:
        plain = await replies(server, False, pieces)
        assert await replies(server, True, pieces) == plain


def s_client(port: int, commands: bytes, *arguments: str) -> str:
    """What `openssl s_client` prints when it gets commands on its terminal."""
    done = subprocess.run(
        ["openssl", "s_client", "-connect", f"127.0.0.1:{port}", *arguments],
        input=commands,
        capture_output=True,
        check=False,
        timeout=20,
    )
    return (done.stdout + done.stderr).decode(errors="replace")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the command openssl")
async def test_a_renegotiation_is_refused(files: Certificates) -> None:
    async with listening(files.server()) as server:
        printed = await trio.to_thread.run_sync(s_client, server.port, b"R\n", "-tls1_2")
        assert "RENEGOTIATING" in printed
        assert "no renegotiation" in printed
        assert await server.serves(server.secure())
