"""A name server and brokers whose answers a test writes by hand, in memory streams."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Final, TypeAlias

import anyio.abc
import trio
import trio.testing

from tests.kit.client import RECEIVE_SIZE, Inbox
from trocket.remoting.bodies import TopicRouteData
from trocket.remoting.bodies.route import BrokerData, QueueData
from trocket.remoting.codec import RemotingCommand, encode
from trocket.remoting.request_codes import RequestCode
from trocket.remoting.response_codes import ResponseCode
from trocket.testing.memory_stream import MemoryStream

NAME_SERVER: Final = 9876
SECOND_NAME_SERVER: Final = 9877
FIRST_BROKER: Final = 10911
URL: Final = f"rocketmq://127.0.0.1:{NAME_SERVER}"
URL_OF_TWO: Final = f"{URL};127.0.0.1:{SECOND_NAME_SERVER}"
NAME_SERVERS: Final = {NAME_SERVER: "ns1", SECOND_NAME_SERVER: "ns2"}

Answer: TypeAlias = RemotingCommand | Callable[[RemotingCommand], RemotingCommand | None] | None
"""An answer, a function that makes one, or None: the connection is closed instead."""


def refusal(code: int, remark: str = "refused") -> RemotingCommand:
    """An answer with another response code than success."""
    return RemotingCommand(code, remark=remark)


class ScriptedBrokers:
    """Brokers that answer each request by the next answer of its code; the last one repeats.

    Requests without an answer wait for ever. Routes, heartbeats and leaving members are answered.

    Attributes:
      names: the brokers.
      requests: all requests but those, by code.
      heartbeats: number of heartbeats.
      topics: the topics that have a route.
      places: the brokers of a topic; default: all.
      malformed: the topics whose routes cannot be read.
      queue_count: of each topic at each broker.
      forgetful: the name servers that know no topic.
      connection_counts: of connections that were made, by server.
      log: the server and the code of each request, in order.
      down: the servers that refuse connections.
      hanging: the servers that take connections and requests, and answer nothing.
      frozen: the servers that do so until their event is set, and then answer everything.
      lost: the servers that close a connection at its first request.
    """

    def __init__(self, nursery: trio.Nursery, names: Iterable[str], topics: Iterable[str]) -> None:
        self.names = list(names)
        self.topics = set(topics)
        self.places: dict[str, list[str]] = {}
        self.requests: dict[int, list[RemotingCommand]] = defaultdict(list)
        self.malformed: set[str] = set()
        self.queue_count = 4
        self.forgetful: set[str] = set()
        self.connection_counts: Counter[str] = Counter()
        self.heartbeats = 0
        self.down: set[str] = set()
        self.hanging: set[str] = set()
        self.frozen: dict[str, trio.Event] = {}
        self.lost: set[str] = set()
        self.log: list[tuple[str, int]] = []
        self._inboxes: dict[str, list[Inbox]] = defaultdict(list)
        self._streams: dict[str, list[trio.abc.Stream]] = defaultdict(list)
        self._reached: dict[str, trio.Event] = defaultdict(trio.Event)
        self._turns: dict[trio.abc.Stream, trio.Lock] = defaultdict(trio.Lock)
        self._answers: dict[int, deque[Answer]] = {}
        self._nursery = nursery

    def answer(self, code: int, *answers: Answer) -> None:
        """Set the answers to the requests of a code from now on."""
        self._answers[code] = deque(answers)

    def fields(self, code: int) -> list[dict[str, str]]:
        """The fields of all requests of a code."""
        return [dict(each.ext_fields) for each in self.requests[code]]

    def address_of(self, name: str) -> str:
        """`host:port` of a server."""
        ports = {**{FIRST_BROKER + i: each for i, each in enumerate(self.names)}, **NAME_SERVERS}
        return next(f"127.0.0.1:{port}" for port, each in ports.items() if each == name)

    async def cut(self, name: str) -> None:
        """End the connections that a server has."""
        for stream in self._streams.pop(name, []):
            await stream.aclose()

    async def reached(self, name: str) -> None:
        """Wait until a client has connected to a server."""
        await self._reached[name].wait()

    async def push(self, name: str, request: RemotingCommand) -> None:
        """Send a request to every client that is connected to a server; see `answers`."""
        for stream in self._streams[name]:
            await self._send(stream, request)

    def answers(self, name: str) -> list[RemotingCommand]:
        """The answers to what was pushed to the clients of a server."""
        return [answer for inbox in self._inboxes[name] for answer in inbox.unasked]

    async def dial(self, host: str, port: int) -> anyio.abc.ByteStream:
        """Connect; for the option `dial` of clients."""
        name = NAME_SERVERS.get(port) or self.names[port - FIRST_BROKER]
        if name in self.down:
            raise ConnectionRefusedError("refused")
        self.connection_counts[name] += 1
        self._reached[name].set()
        near, far = trio.testing.memory_stream_pair()
        self._streams[name].append(far)
        self._nursery.start_soon(self._serve, far, name)
        return MemoryStream(near)

    async def _serve(self, stream: trio.abc.Stream, name: str) -> None:
        inbox = Inbox()
        self._inboxes[name].append(inbox)
        # `cut` has closed it, or the client has.
        with suppress(trio.ClosedResourceError, trio.BrokenResourceError):
            while data := bytes(await stream.receive_some(RECEIVE_SIZE)):
                inbox.receive_data(data)
                while inbox.pushed:
                    request = inbox.pushed.pop(0)
                    if name in self.lost:
                        await stream.aclose()
                        return
                    if name in self.hanging:
                        continue
                    if name in self.frozen:
                        await self.frozen[name].wait()
                    self.log.append((name, request.code))
                    try:
                        answer = self._answer_to(request, name)
                    except ConnectionResetError:
                        await stream.aclose()
                        return
                    if answer is not None and not request.is_oneway:
                        answer.opaque = request.opaque
                        answer.flag = 1
                        await self._send(stream, answer)

    async def _send(self, stream: trio.abc.Stream, command: RemotingCommand) -> None:
        async with self._turns[stream]:
            await stream.send_all(encode(command))

    def _answer_to(self, request: RemotingCommand, name: str) -> RemotingCommand | None:
        code = request.code
        if code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            topic = request.ext_fields["topic"]
            if name in self.forgetful:
                return refusal(ResponseCode.TOPIC_NOT_EXIST, f"no route of {topic}")
            return self._route(topic)
        if code == RequestCode.HEART_BEAT:
            self.heartbeats += 1
            return RemotingCommand(ResponseCode.SUCCESS)
        if code == RequestCode.UNREGISTER_CLIENT:
            return RemotingCommand(ResponseCode.SUCCESS)
        self.requests[code].append(request)
        answers = self._answers.get(code)
        if not answers:
            return None
        answer = answers.popleft() if len(answers) > 1 else answers[0]
        if answer is None:
            raise ConnectionResetError
        if callable(answer):
            return answer(request)
        return RemotingCommand(
            answer.code, dict(answer.ext_fields), answer.body, remark=answer.remark
        )

    def _route(self, topic: str) -> RemotingCommand:
        if topic not in self.topics:
            return refusal(ResponseCode.TOPIC_NOT_EXIST, f"no route of {topic}")
        if topic in self.malformed:
            return RemotingCommand(ResponseCode.SUCCESS, body=b"?")
        count = self.queue_count
        route = TopicRouteData(
            queue_datas=[
                QueueData(name, count, count, 6) for name in self.places.get(topic, self.names)
            ],
            broker_datas=[
                BrokerData("c", name, {0: f"127.0.0.1:{FIRST_BROKER + index}"})
                for index, name in enumerate(self.names)
                if name in self.places.get(topic, self.names)
            ],
        )
        return RemotingCommand(ResponseCode.SUCCESS, body=route.to_body())


@asynccontextmanager
async def scripted(
    names: Iterable[str] = ("b",), topics: Iterable[str] = ("T",)
) -> AsyncIterator[ScriptedBrokers]:
    """Brokers for an `async with` block."""
    async with trio.open_nursery() as nursery:
        yield ScriptedBrokers(nursery, names, topics)
        nursery.cancel_scope.cancel()
