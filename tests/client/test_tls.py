"""The client over TLS, before a relay that ends it."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import anyio.abc
import anyio.streams.tls
import pytest
import trustme

from trocket import Client, ConnectError
from trocket.remoting.request_codes import RequestCode
from trocket.testing import Broker

from .conftest import Play

AUTHORITY = trustme.CA()


def client_context(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


@asynccontextmanager
async def relay(address: str) -> AsyncIterator[int]:
    """A TLS port for a plain one; it closes as Netty does, without a goodbye."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    AUTHORITY.issue_cert("127.0.0.1").configure_cert(context)
    host, _, port = address.rpartition(":")

    async def copy(source: anyio.abc.ByteStream, target: anyio.abc.ByteStream) -> None:
        try:
            async for data in source:
                await target.send(data)
        except anyio.BrokenResourceError:
            pass

    async def serve(raw: anyio.abc.SocketStream) -> None:
        try:
            near = await anyio.streams.tls.TLSStream.wrap(
                raw, server_side=True, ssl_context=context, standard_compatible=False
            )
        except (anyio.BrokenResourceError, anyio.EndOfStream, ssl.SSLError, OSError):
            await anyio.aclose_forcefully(raw)
            return
        async with (
            near,
            await anyio.connect_tcp(host, int(port)) as far,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(copy, near, far)
            await copy(far, near)
            tasks.cancel_scope.cancel()

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, serve)
        yield listener.extra(anyio.abc.SocketAttribute.local_port)
        tasks.cancel_scope.cancel()


def test_requests_go_through_tls(play: Play, broker: Broker, topic: str) -> None:
    async def scenario() -> None:
        async with (
            relay(broker.namesrv_address) as port,
            Client(f"127.0.0.1:{port}", tls=client_context(AUTHORITY)) as client,
        ):
            answer = await client.request_name_server(
                RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER
            )
            assert topic.encode() in answer.body

    play(scenario)


def test_a_server_with_an_untrusted_certificate_is_refused(play: Play, broker: Broker) -> None:
    async def scenario() -> None:
        stranger = client_context(trustme.CA())
        async with (
            relay(broker.namesrv_address) as port,
            Client(f"127.0.0.1:{port}", tls=stranger) as client,
        ):
            with pytest.raises(ConnectError, match=rf"127\.0\.0\.1:{port}.*certificate"):
                await client.request_name_server(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)

    play(scenario)


def test_a_plain_server_is_no_tls_server(play: Play, broker: Broker) -> None:
    async def scenario() -> None:
        url = f"rocketmq://{broker.namesrv_address}?tls=true"
        async with Client(url, connect_timeout_s=2.0) as client:
            with pytest.raises(ConnectError, match=broker.namesrv_address):
                await client.request_name_server(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)

    play(scenario)
