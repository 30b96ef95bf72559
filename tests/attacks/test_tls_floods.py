"""Floods of TLS: half handshakes, whole ones, renegotiations. Others are served meanwhile."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest
import trio

from trocket.common.connection_policy import ConnectionPolicy
from trocket.remoting import tls_server
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.connection import CROWDED_FIRST_FRAME_S, ConnectionLimits
from trocket.remoting.tls_config import TlsConfig

from ..remoting.test_connection import ECHO
from ..remoting.tls_support import Certificates, Listening, client_context, listening

HALF_HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
"""The beginning of a ClientHello of 512 bytes."""


@pytest.fixture
def config(tmp_path: Path) -> TlsConfig:
    return Certificates(tmp_path).server()


async def ends(stream: trio.SocketStream) -> bool:
    """Whether the server ends a connection; what it still sends is dropped."""
    try:
        while await stream.receive_some(1024):
            pass
    except trio.BrokenResourceError:
        pass
    return True


async def test_half_handshakes_end_each_other_and_nobody_else(
    config: TlsConfig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tls_server, "HANDSHAKES_MAX", 20)
    with trio.fail_after(60):
        async with listening(config) as running:
            plain, secure = await running.plain(), await running.secure()
            halves = []
            for _ in range(60):
                halves.append(await running.connect())
                await halves[-1].send_all(HALF_HELLO)
            for half in halves[:40]:
                assert await ends(half)
            for peer in (plain, secure):
                assert await peer.ask(RemotingCommand(ECHO)) is not None
            assert await running.serves(running.secure())
            assert await running.serves(running.plain())
    assert "handshakes are unfinished, which is the limit" in caplog.text


@pytest.mark.slow
async def test_a_flood_of_whole_handshakes_delays_nobody_for_ever(config: TlsConfig) -> None:
    context = client_context()
    done = 0

    async def shake(running: Listening) -> None:
        nonlocal done
        for _ in range(2):
            peer = await running.secure(context)
            await peer.stream.aclose()
            done += 1

    with trio.fail_after(60):
        async with listening(config) as running, trio.open_nursery() as nursery:
            honest = await running.plain()
            for _ in range(20):
                nursery.start_soon(shake, running)
            while done < 40:
                assert await honest.ask(RemotingCommand(ECHO)) is not None


@pytest.mark.parametrize(
    "data",
    [
        b"\x16" + bytes(4_000),
        b"\x16\x03\x01\x40\x00" + b"\x01" * 16_384,  # a message of type 1 that has no sense
        b"\x16\x03\x01\xff\xff" + bytes(70_000),  # longer than a record may be
        b"\x16\x03\x01\x00\x04\x01\xff\xff\xff",  # announces a ClientHello of 16 MiB
    ],
    ids=["zeros", "no hello", "a long record", "16 MiB hello"],
)
async def test_garbage_that_begins_like_tls_costs_its_connection(
    config: TlsConfig, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with trio.fail_after(60):
        async with listening(config) as running:
            stranger = await running.connect()
            try:
                await stranger.send_all(data)
                await stranger.send_eof()
            except trio.BrokenResourceError:
                pass  # it was closed before everything was sent
            assert await ends(stranger)
            assert await running.serves(running.secure())
            assert await running.serves(running.plain())
    assert "closed before its TLS handshake was complete" in caplog.text


@pytest.mark.skipif(not shutil.which("openssl"), reason="needs the command openssl")
async def test_no_client_can_make_the_server_negotiate_again(config: TlsConfig) -> None:
    """A renegotiation costs the server ten times what it costs the client (CVE-2011-1473)."""
    with trio.fail_after(60):
        async with listening(config) as running:
            command = ["openssl", "s_client", "-tls1_2", "-connect", f"127.0.0.1:{running.port}"]
            process: trio.Process = await trio.lowlevel.open_process(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )
            assert process.stdin is not None
            assert process.stdout is not None
            said = b""
            try:
                while b"---\nNo client certificate" not in said and b"Verify return" not in said:
                    said += await process.stdout.receive_some(65_536)
                await process.stdin.send_all(b"R\n")
                while data := await process.stdout.receive_some(65_536):
                    said += data
            finally:
                process.kill()
                await process.wait()
            assert b"RENEGOTIATING" in said
            assert b"no renegotiation" in said
            context = client_context()
            context.maximum_version = ssl.TLSVersion.TLSv1_2
            assert await running.serves(running.secure(context))


@pytest.mark.slow
async def test_in_a_crowd_silent_connections_give_way_before_they_said_what_they_speak(
    config: TlsConfig,
) -> None:
    policy = ConnectionPolicy(connections_max=10)
    with trio.fail_after(60):
        async with listening(config, limits=ConnectionLimits(policy=policy)) as running:
            honest = await running.secure()
            assert await honest.ask(RemotingCommand(ECHO)) is not None
            silent = [await running.connect() for _ in range(9)]
            began_s = trio.current_time()
            # The oldest; younger ones stay if their places are no longer needed.
            assert await ends(silent[0])
            assert trio.current_time() - began_s < CROWDED_FIRST_FRAME_S + 10
            assert await honest.ask(RemotingCommand(ECHO)) is not None
            assert await running.serves(running.secure())
            assert running.server.refusals.counts["connectionsMax"] >= 1
