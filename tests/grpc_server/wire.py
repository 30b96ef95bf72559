"""A gRPC connection to a broker in memory, for what no honest client does."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import trio
import trio.testing

from trocket.grpc_protocol.schema import METHODS
from trocket.grpc_server.server import PREFIX
from trocket.remoting.server import RemotingServer

from ..grpc_protocol.client import Answer, Client, Header, headers_of
from ..kit import Broker
from .caller import MESSAGES


class Wire:
    """The client's end of a connection.

    Attributes:
      client: HTTP/2 without its bytes.
      stream: the bytes.
      has_ended: the server has closed the connection.
    """

    def __init__(self, stream: trio.abc.Stream, client: Client) -> None:
        self.client = client
        self.stream = stream
        self.has_ended = False
        self._arrived = trio.Event()

    async def run(self) -> None:
        """Receive until the end."""
        with suppress(trio.ClosedResourceError, trio.BrokenResourceError):
            while data := await self.stream.receive_some(65_536):
                self.client.take(bytes(data))
                self._arrived.set()
        self.has_ended = True

    async def wait_until(self, is_true: Callable[[], bool], within_s: float = 30.0) -> None:
        """Wait for something that arrives. Raises: trio.TooSlowError."""
        with trio.fail_after(within_s):
            while not is_true():
                self._arrived = trio.Event()
                await self._arrived.wait()

    async def flush(self) -> None:
        """Send what there is, and let the server answer."""
        await self.send(self.client.output())

    async def send(self, data: bytes) -> None:
        """Send bytes, and let the server answer; what it no longer takes is dropped."""
        try:
            if data:
                await self.stream.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        await trio.testing.wait_all_tasks_blocked()

    def begin(self, name: str, *, headers: Sequence[Header] | None = None, **fields: Any) -> Answer:
        """Begin a call; `flush` sends it."""
        request = getattr(MESSAGES, METHODS[name][0])(**fields)
        stream = self.client.call(PREFIX + name, request.SerializeToString(), headers=headers)
        return self.client.answers[stream]

    async def call(
        self, name: str, *, headers: Sequence[Header] | None = None, **fields: Any
    ) -> Answer:
        """Call a method, and return its answer as far as it has come."""
        answer = self.begin(name, headers=headers, **fields)
        await self.flush()
        return answer


def parsed(name: str, answer: Answer) -> list[Any]:
    """The messages of an answer."""
    kind = getattr(MESSAGES, METHODS[name][1])
    return [kind.FromString(each) for each in answer.messages]


def as_client(name: str, client_id: str) -> list[Header]:
    """The headers of a call by a client."""
    return headers_of(PREFIX + name, ("x-mq-client-id", client_id))


@asynccontextmanager
async def wired(
    broker: Broker | RemotingServer, *, window: int | None = None, address: str = "127.0.0.1:40000"
) -> AsyncIterator[Wire]:
    """A connection to a broker, or to another server of gRPC, until the block ends."""
    near, far = trio.testing.memory_stream_pair()
    server = broker.controller.server if isinstance(broker, Broker) else broker
    assert server is not None
    wire = Wire(far, Client(window=window))
    async with trio.open_nursery() as nursery:

        async def serve() -> None:
            await server.serve_stream(near, address, speaks_http2=True)

        nursery.start_soon(serve)
        nursery.start_soon(wire.run)
        await wire.flush()
        yield wire
        await far.aclose()
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
