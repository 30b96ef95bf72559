"""Clients of a few lines for tests: a `Session` that keeps what came until a test asks for it.

Tests that must send wrong bytes, or judge the codec itself, speak to their sockets without these.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import trio

from trocket.remoting.codec import RemotingCommand, encode
from trocket.remoting.session import Session

RECEIVE_SIZE: Final = 1 << 16


class Inbox:
    """What came on one connection: answers by opaque, the server's requests in their order.

    Attributes:
      pushed: the server's requests that no test has taken.
    """

    def __init__(self) -> None:
        self.session: Session[None] = Session("the server")
        self.pushed: list[RemotingCommand] = []
        self._answers: dict[int, RemotingCommand] = {}

    @property
    def unasked(self) -> list[RemotingCommand]:
        """Answers that came and that no test has taken."""
        return list(self._answers.values())

    def receive_data(self, data: bytes) -> None:
        """Keep what is complete. Raises: RemoteProtocolError: the bytes are no frames."""
        for event in self.session.receive_data(data):
            if isinstance(event, RemotingCommand):
                self.pushed.append(event)
            else:  # unsolicited ones, too: a test may have made the request's frame by itself
                self._answers[event.answer.opaque] = event.answer
        if self.session.error is not None:
            raise self.session.error

    def taken(self, opaque: int) -> RemotingCommand | None:
        """Take an answer, if it came."""
        return self._answers.pop(opaque, None)


class Client(Inbox):
    """A client over a stream of trio's."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        super().__init__()
        self.stream = stream

    async def send(self, command: RemotingCommand) -> int:
        """Send a request; its opaque, which is set here."""
        await self.write(self.session.request(command, None))
        return command.opaque

    async def answer(self, opaque: int) -> RemotingCommand:
        """The answer to a request. Raises: trio.EndOfChannel: the server closed the connection."""
        while (answer := self.taken(opaque)) is None:
            self.receive_data(await self.read())
        return answer

    async def ask(
        self,
        code: int,
        fields: Mapping[str, object],
        body: bytes = b"",
        serialize_type: int = 0,
    ) -> RemotingCommand:
        """Send a request and wait for its answer. Raises: trio.EndOfChannel."""
        texts = {name: str(value) for name, value in fields.items()}
        opaque = await self.send(RemotingCommand(code, texts, body, serialize_type=serialize_type))
        return await self.answer(opaque)

    async def asked(self) -> RemotingCommand:
        """The server's next request. Raises: trio.EndOfChannel."""
        while not self.pushed:
            self.receive_data(await self.read())
        return self.pushed.pop(0)

    async def reply(self, answer: RemotingCommand) -> None:
        """Answer a request of the server's."""
        await self.write(encode(answer))

    async def write(self, data: bytes) -> None:
        """Send bytes as they are."""
        await self.stream.send_all(data)

    async def read(self) -> bytes:
        """What comes next. Raises: trio.EndOfChannel."""
        data = bytes(await self.stream.receive_some(RECEIVE_SIZE))
        if not data:
            raise trio.EndOfChannel
        return data
