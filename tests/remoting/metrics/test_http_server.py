"""The HTTP server, on a real socket: readers, strangers, and those who send nothing."""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from trocket.remoting.metrics.http_server import (
    CONNECTIONS_MAX,
    IDLE_S,
    LIMIT,
    REQUEST_SIZE_MAX,
    SEND_S,
    Answer,
    HttpServer,
)
from trocket.remoting.server import open_listener

LONG = b"0123456789" * 1000


async def handle(path: str) -> Answer:
    if path == "/bug":
        raise ZeroDivisionError
    return Answer(200, "text/plain", LONG if path == "/long" else path.encode())


@asynccontextmanager
async def server() -> AsyncIterator[int]:
    """A server; yields its port."""
    listener = open_listener("127.0.0.1", 0)
    with listener:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(HttpServer(handle).serve, listener)
            yield listener.getsockname()[1]
            nursery.cancel_scope.cancel()


async def ask(port: int, request: bytes) -> tuple[bytes, bytes]:
    """Send bytes and read until the server closes; returns headers and body."""
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    async with stream:
        with trio.fail_after(10):
            await stream.send_all(request)
            data = b"".join([part async for part in stream])
    headers, _, body = data.partition(b"\r\n\r\n")
    return headers, body


def get(path: str, *lines: str, method: str = "GET") -> bytes:
    more = "".join(f"{line}\r\n" for line in ("Host: x", "Connection: close", *lines))
    return f"{method} {path} HTTP/1.1\r\n{more}\r\n".encode()


async def test_a_path_is_answered_and_head_has_no_body() -> None:
    async with server() as port:
        headers, body = await ask(port, get("/a?b"))
        assert headers.startswith(b"HTTP/1.1 200")
        assert body == b"/a?b"
        headers, body = await ask(port, get("/long", method="HEAD"))
        assert b"Content-Length: %d" % len(LONG) in headers
        assert body == b""


async def test_several_requests_share_a_connection() -> None:
    async with server() as port:
        two = b"GET /1 HTTP/1.1\r\nHost: x\r\n\r\n" + get("/2")
        _, rest = await ask(port, two)
        assert rest.startswith(b"/1HTTP/1.1 200")
        assert rest.endswith(b"/2")


async def test_long_answers_are_compressed_for_readers_that_accept_it() -> None:
    async with server() as port:
        headers, body = await ask(port, get("/long", "Accept-Encoding: deflate, gzip"))
        assert b"Content-Encoding: gzip" in headers
        assert gzip.decompress(body) == LONG
        assert await ask(port, get("/short", "Accept-Encoding: gzip")) != (b"", b"")
        assert (await ask(port, get("/long")))[1] == LONG


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (get("/", method="POST"), b"405"),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc", b"413"),
        (
            get("/", "Content-Length: 5", "Transfer-Encoding: chunked") + b"0\r\n\r\n",
            b"400",
        ),
        (b"\0\0\0\x10{not http}\r\n\r\n", b"400"),
        (b"GET /" + b"x" * 2 * REQUEST_SIZE_MAX + b" HTTP/1.1\r\nHost: x\r\n\r\n", b"431"),
        (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * REQUEST_SIZE_MAX, b"431"),
    ],
    ids=[
        "method",
        "body",
        "two lengths",
        "frame of another protocol",
        "long path",
        "headers without an end",
    ],
)  # fmt: skip
async def test_what_is_not_served_is_refused(request_bytes: bytes, status: bytes) -> None:
    async with server() as port:
        headers, _ = await ask(port, request_bytes)
        assert headers.split()[1] == status
        assert (await ask(port, get("/still")))[1] == b"/still"


async def test_who_leaves_before_the_refusal_costs_no_line_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    near, far = trio.testing.memory_stream_pair()
    await far.send_all(b"\0\0\0\x10{not http}\r\n\r\n")
    await far.aclose()
    await HttpServer(handle).serve_stream(near)
    assert caplog.text == ""


async def test_a_bug_costs_one_connection(caplog: pytest.LogCaptureFixture) -> None:
    async with server() as port:
        assert await ask(port, get("/bug")) == (b"", b"")
        assert "a request for metrics failed" in caplog.text
        assert (await ask(port, get("/still")))[1] == b"/still"


async def test_silent_connections_give_way_at_the_limit(caplog: pytest.LogCaptureFixture) -> None:
    async with server() as port:
        silent = [await trio.open_tcp_stream("127.0.0.1", port) for _ in range(CONNECTIONS_MAX)]
        with trio.fail_after(10):
            for _ in range(CONNECTIONS_MAX):
                assert await _is_served(port)
            assert await silent[0].receive_some() == b""
        for stream in silent:
            await stream.aclose()
    assert f"because {CONNECTIONS_MAX} are open, which is the limit {LIMIT}" in caplog.text


async def test_connections_whose_answers_are_being_made_stay_at_the_limit() -> None:
    gate = trio.Event()
    count = 0

    async def wait(target: str) -> Answer:
        nonlocal count
        count += 1
        await gate.wait()
        return Answer(200, "text/plain", b"late")

    http = HttpServer(wait)
    async with trio.open_nursery() as nursery:
        ends = []
        for _ in range(CONNECTIONS_MAX):
            near, far = trio.testing.memory_stream_pair()
            nursery.start_soon(http.serve_stream, near)
            ends.append(far)
            await far.send_all(get("/"))
            await trio.testing.wait_all_tasks_blocked()
        near, far = trio.testing.memory_stream_pair()
        await http.serve_stream(near)
        with pytest.raises(trio.BrokenResourceError):
            await far.send_all(get("/"))
        assert count == CONNECTIONS_MAX
        gate.set()
        for far in ends:
            assert (await far.receive_some()).endswith(b"late")
            await far.aclose()


async def _is_served(port: int) -> bool:
    try:
        return (await ask(port, get("/x")))[1] == b"/x"
    except trio.BrokenResourceError:
        return False


async def test_who_sends_nothing_is_closed(
    autojump_clock: trio.testing.MockClock,
) -> None:
    near, far = trio.testing.memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(HttpServer(handle).serve_stream, near)
        began_s = trio.current_time()
        await far.send_all(b"GET / HT")
        assert await far.receive_some() == b""
        assert trio.current_time() - began_s == pytest.approx(IDLE_S)


async def test_who_does_not_read_its_answer_is_closed(
    autojump_clock: trio.testing.MockClock,
) -> None:
    near, far = trio.testing.lockstep_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(HttpServer(handle).serve_stream, near)
        await far.send_all(get("/long"))
        began_s = trio.current_time()
        await trio.testing.wait_all_tasks_blocked()
    assert trio.current_time() - began_s == pytest.approx(SEND_S)


async def test_a_reader_that_leaves_costs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    near, far = trio.testing.memory_stream_pair()
    await far.send_all(b"GET /long HTTP/1.1\r\nHost: x\r\n\r\n")
    await far.aclose()
    await HttpServer(handle).serve_stream(near)
    assert not caplog.records
