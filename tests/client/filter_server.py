"""A filter server for tests: it has its own thread and loop, and is registered with a broker."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import msgspec
import trio

from trocket.filtersrv.processors import read_messages, write_messages
from trocket.remoting.channel import Answer, Channel, Deferred
from trocket.remoting.client import RemotingClient
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.errors import RequestRefused
from trocket.remoting.headers import RegisterFilterServerRequestHeader, encode_header
from trocket.remoting.message import MessageExt
from trocket.remoting.request_codes import RequestCode
from trocket.remoting.response_codes import ResponseCode
from trocket.remoting.server import RemotingServer, open_listener
from trocket.testing import Broker
from trocket.testing.loop_thread import LoopThread

HOST = "127.0.0.1"
TIMEOUT_S = 30.0
Key = tuple[str, str]


def is_fifth(message: MessageExt) -> bool:
    """Whether a message's number can be divided by five; what is behind it does not count."""
    return int(message.body.split()[0]) % 5 == 0


class FilterServer:
    """Answers as Apache's of 4.2.0 does, and remembers what it was asked.

    Use: `with FilterServer(broker) as server:`.

    Args:
      broker: where it registers and pulls.
      knows_all: it has a class for every consumer, without an upload.
      without: request codes that it does not know.

    Attributes:
      address: `host:port` that consumers find in the route.
      requests: all that came from consumers.
      classes: what was uploaded: topic and group to the source.
      refusal: the remark that an upload gets; "": it is taken.
      broken: the remark that a pull gets; "": it is answered.
    """

    def __init__(
        self, broker: Broker, *, knows_all: bool = False, without: Collection[int] = ()
    ) -> None:
        self._broker_address = broker.broker_address
        self.requests: list[RemotingCommand] = []
        self.classes: dict[Key, bytes] = {}
        self.refusal = ""
        self.broken = ""
        self.address = ""
        self._knows_all = knows_all
        self._without = without
        self._loop = LoopThread("trocket-broker-filter-server")
        self._door = trio.CancelScope()

    def __enter__(self) -> FilterServer:
        self._loop.start(self._main)
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        """It is gone; the broker notices by the connection."""
        self._loop.close()

    def close_the_door(self) -> None:
        """Stop serving, without the broker noticing."""

        async def close() -> None:
            self._door.cancel()

        self._loop.call(close)

    def register_another(self, address: str) -> None:
        """Have the broker think that there is one more, until this one is gone."""

        async def register() -> None:
            # A broker knows one of each connection.
            client = RemotingClient()
            await self._nursery.start(client.run)
            await self._tell(client, address)

        self._loop.call(register)

    def asked(self, code: int) -> list[RemotingCommand]:
        """The requests of one kind."""
        return [request for request in self.requests if request.code == code]

    @property
    def uploads(self) -> list[RemotingCommand]:
        """Every 302."""
        return self.asked(RequestCode.REGISTER_MESSAGE_FILTER_CLASS)

    @property
    def pulls(self) -> list[RemotingCommand]:
        """Every 11."""
        return self.asked(RequestCode.PULL_MESSAGE)

    async def _main(self, *, task_status: trio.TaskStatus[None]) -> None:
        listener = open_listener(HOST, 0)
        self.address = f"{HOST}:{listener.getsockname()[1]}"
        self._client = RemotingClient()
        processors = {
            RequestCode.PULL_MESSAGE: self._pull,
            RequestCode.REGISTER_MESSAGE_FILTER_CLASS: self._register,
            RequestCode.LIST_MESSAGE_FILTER_CLASSES: self._list,
            RequestCode.REMOVE_MESSAGE_FILTER_CLASS: self._remove,
        }
        server = RemotingServer(
            {
                code: self._seen(process)
                for code, process in processors.items()
                if code not in self._without
            }
        )

        async def serve(*, task_status: trio.TaskStatus[None]) -> None:
            with self._door:
                await server.serve([listener], task_status=task_status)

        async with trio.open_nursery() as self._nursery:
            await self._nursery.start(self._client.run)
            await self._nursery.start(serve)
            await self._tell(self._client, self.address)
            task_status.started()
            await trio.sleep_forever()

    async def _tell(self, client: RemotingClient, address: str) -> None:
        header = RegisterFilterServerRequestHeader(filter_server_addr=address)
        request = RemotingCommand(RequestCode.REGISTER_FILTER_SERVER, encode_header(header))
        answer = await client.call(self._broker_address, request, TIMEOUT_S)
        assert answer.code == ResponseCode.SUCCESS, answer.remark

    def _seen(self, process: Callable[[RemotingCommand], Answer]) -> Any:
        def see(request: RemotingCommand, channel: Channel) -> Answer:
            self.requests.append(request)
            return process(request)

        return see

    def _register(self, request: RemotingCommand) -> Answer:
        if self.refusal:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, self.refusal)
        self.classes[key(request)] = bytes(request.body)
        return request.answer()

    def _pull(self, request: RemotingCommand) -> Answer:
        if key(request) not in self.classes and not self._knows_all:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR, "Find Filter class failed, not registered"
            )
        if self.broken:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, self.broken)

        async def run() -> RemotingCommand:
            wanted = {"consumerGroup": "FILTERSRV_CONSUMER", "sysFlag": "6", "subscription": "*"}
            pull = RemotingCommand(
                RequestCode.PULL_MESSAGE, {**request.ext_fields, **wanted, "commitOffset": "0"}
            )
            answer = await self._client.call(self._broker_address, pull, TIMEOUT_S)
            code, body, fields = answer.code, b"", answer.ext_fields
            if code == ResponseCode.SUCCESS:
                body = matching(answer)
                code = ResponseCode.SUCCESS if body else ResponseCode.PULL_RETRY_IMMEDIATELY
            return request.answer(code, ext_fields=fields, body=body)

        return Deferred(run)

    def _list(self, request: RemotingCommand) -> Answer:
        rows = [
            {
                "topic": topic,
                "consumerGroup": group,
                "className": "org.shop.KeepFifth",
                "classCrc": len(source),
                "language": "java",
                "state": "ready",
                "error": "",
            }
            for (topic, group), source in self.classes.items()
        ]
        return request.answer(body=msgspec.json.encode({"classes": rows}))

    def _remove(self, request: RemotingCommand) -> Answer:
        if self.classes.pop(key(request), None) is None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "there is no such class")
        return request.answer()


def key(request: RemotingCommand) -> Key:
    """What a class is kept by."""
    return request.ext_fields["topic"], request.ext_fields["consumerGroup"]


def matching(answer: RemotingCommand) -> bytes:
    """The fifths of a broker's answer, as a filter server writes them."""
    stored, seen = read_messages(answer.body)
    wanted: Sequence[bool] = [is_fifth(message) for message in seen]
    return write_messages(
        stored,
        seen,
        wanted,
        min_offset=int(answer.ext_fields["minOffset"]),
        max_offset=int(answer.ext_fields["maxOffset"]),
        compress_from=8192,
        compression_level=5,
    )
