"""A client's connection to a broker, as `bench/crowd.py` has thousands of them in one process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf

import trio

from trocket.client.connection.connection import Connection, OnAnswer
from trocket.client.connection.transport import connect_tcp
from trocket.client.errors import ClientError
from trocket.remoting.codec import RemotingCommand, encode
from trocket.remoting.request_codes import RequestCode as Code
from trocket.remoting.session import opaques


class Peer:
    """One connection; `on_request` is called with the code of each request from the broker."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._numbers = opaques()

    @classmethod
    async def connect(
        cls,
        address: str,
        nursery: trio.Nursery,
        on_request: Callable[[int], None] = lambda code: None,
    ) -> Peer:
        host, _, port = address.rpartition(":")
        transport = await connect_tcp(host, int(port))
        connection = Connection(transport, address, lambda _, request: on_request(request.code))
        nursery.start_soon(connection.run)
        return cls(connection)

    def submit(self, command: RemotingCommand, take: OnAnswer) -> None:
        """Send a request; `take` gets its answer."""
        command.opaque = next(self._numbers)
        self._connection.submit(encode(command), command.opaque, take, inf, command.code)

    async def ask(
        self, code: int, fields: Mapping[str, object], body: bytes = b""
    ) -> RemotingCommand:
        """Send a request and wait for its answer."""
        texts = {name: str(value) for name, value in fields.items()}
        command = RemotingCommand(code, texts, body, opaque=next(self._numbers))
        return await self._connection.call(command, inf)


async def create_topic(peer: Peer, topic: str, queue_count: int) -> None:
    fields: dict[str, object] = {
        "topic": topic, "defaultTopic": "TBW102", "readQueueNums": queue_count,
        "writeQueueNums": queue_count, "perm": 6, "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0, "order": "false",
    }  # fmt: skip
    answer = await peer.ask(Code.UPDATE_AND_CREATE_TOPIC, fields)
    if answer.code:
        raise RuntimeError(f"topic {topic}: {answer.remark}")


def answer_code(answer: RemotingCommand | ClientError) -> int:
    """The code of an answer. Raises: ClientError: there is none."""
    if isinstance(answer, ClientError):
        raise answer
    return answer.code


async def until(holds: Callable[[], bool], *, every_s: float = 0.1) -> None:
    """Poll until a condition holds."""
    while not holds():  # noqa: ASYNC110 - it has no event
        await trio.sleep(every_s)
