"""The question whether a broker still listens, asked of real sockets."""

from __future__ import annotations

import socket

import pytest

from trocket.controller.probe import is_refused


async def test_a_port_that_no_one_listens_on_refuses() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert await is_refused(f"127.0.0.1:{port}")
    assert await is_refused(f"localhost:{port}")


async def test_one_that_accepts_and_says_nothing_may_be_alive(autojump_clock: object) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert not await is_refused(f"127.0.0.1:{server.getsockname()[1]}")


@pytest.mark.parametrize("address", ["", "x", "h:", "[::1", "127.0.0.1:99999", "no such host:1"])
async def test_what_cannot_be_asked_may_be_alive(address: str, autojump_clock: object) -> None:
    assert not await is_refused(address)
