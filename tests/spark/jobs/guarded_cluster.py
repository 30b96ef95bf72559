"""A name server and a broker that speak TLS only, and check the signature of each request.

Our broker has neither yet. So what clients connect to are relays, on another address of this
machine under which the broker is registered; and what is not signed is refused before it is
processed.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import trio
import trustme

from trocket.remoting.codec import RemotingCommand
from trocket.remoting.errors import RequestRefused
from trocket.remoting.request_codes import RequestCode
from trocket.remoting.response_codes import ResponseCode
from trocket.remoting.signature import SIGNATURE, sign
from trocket.testing import Broker, Fault
from trocket.testing.loop_thread import LoopThread

ACCESS_KEY, SECRET_KEY = "spark-jobs", "a-secret-of-the-test"
HOST = "127.0.0.2"
"""Of the relays: they have the ports of the servers, which are at 127.0.0.1."""


@contextmanager
def guarded_cluster() -> Iterator[tuple[Broker, str, trustme.CA]]:
    """The broker, `host:port` of the name server's relay, and who vouches for both."""
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(HOST).configure_cert(context)
    with Broker(config={"brokerIP1": HOST}) as broker:
        addresses = (broker.namesrv_address, broker.broker_address)
        ports = [int(address.rpartition(":")[2]) for address in addresses]
        loop = LoopThread("relays")
        loop.start(partial(_relays, ports, context))
        try:
            yield broker, f"{HOST}:{ports[0]}", authority
        finally:
            loop.close()


async def _relays(
    ports: Sequence[int], context: ssl.SSLContext, *, task_status: trio.TaskStatus[None]
) -> None:
    async with trio.open_nursery() as nursery:
        for port in ports:
            serve = partial(trio.serve_ssl_over_tcp, ssl_context=context, host=HOST,
                            https_compatible=True)  # fmt: skip
            await nursery.start(serve, partial(_relay, port), port)
        task_status.started()


async def _relay(port: int, near: trio.abc.Stream) -> None:
    async def copy(source: Any, target: trio.abc.Stream) -> None:
        with trio.CancelScope() as both:
            scopes.append(both)
            try:
                async for data in source:
                    await target.send_all(data)
            except (trio.BrokenResourceError, ssl.SSLError):
                pass
        for scope in scopes:
            scope.cancel()

    scopes: list[trio.CancelScope] = []
    async with (
        near,
        await trio.open_tcp_stream("127.0.0.1", port) as far,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(copy, near, far)
        nursery.start_soon(copy, far, near)


def check_signatures(broker: Any) -> Fault:
    """From now on what is not signed by the account is refused; its `hits` count all requests."""

    def act(process: Any, request: RemotingCommand, channel: Any) -> Any:
        fields = dict(request.ext_fields)
        received = fields.pop(SIGNATURE, None)
        sign(fields, bytes(request.body), ACCESS_KEY, SECRET_KEY)
        if received != fields[SIGNATURE]:
            raise RequestRefused(ResponseCode.NO_PERMISSION, "not signed by the account")
        return process(request, channel)

    for is_namesrv, code in ((True, RequestCode.GET_ROUTEINFO_BY_TOPIC), (False, None)):
        fault: Fault = broker.faults._add(Fault(code, None, act), is_namesrv)
    return fault


def write_files(folder: Path, authority: trustme.CA) -> tuple[str, str]:
    """The files of --secrets-file and --tls-ca-file."""
    secrets, ca = folder / "tools.yml", folder / "ca.pem"
    secrets.write_text(f"accessKey: {ACCESS_KEY}\nsecretKey: {SECRET_KEY}\n")
    authority.cert_pem.write_to_path(ca)
    return str(secrets), str(ca)
