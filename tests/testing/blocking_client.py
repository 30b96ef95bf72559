"""A client of a few lines: one blocking socket, requests one after the other."""

from __future__ import annotations

import socket
from collections.abc import Mapping

from trocket.common.message_properties import properties_to_bytes
from trocket.remoting.bodies import ClusterInfo, ConsumerData, HeartbeatData, TopicRouteData
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.message import MessageExt
from trocket.remoting.message_codec import decode_messages
from trocket.remoting.request_codes import RequestCode as Code
from trocket.remoting.response_codes import ResponseCode

from ..kit.client import Inbox

TIMEOUT_S = 10.0

__all__ = ["Client", "ClusterInfo", "Code", "ConsumerData", "HeartbeatData", "ResponseCode"]


class Client(Inbox):
    """One connection to one server."""

    def __init__(self, address: str, timeout_s: float = TIMEOUT_S) -> None:
        super().__init__()
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout_s)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def begin(self, code: int, fields: Mapping[str, object], body: bytes = b"") -> int:
        texts = {name: str(value) for name, value in fields.items()}
        command = RemotingCommand(code, texts, body)
        self.socket.sendall(self.session.request(command, None))
        return command.opaque

    def end(self, opaque: int) -> RemotingCommand:
        while (answer := self.taken(opaque)) is None:
            self.receive()
        return answer

    def receive(self) -> None:
        """Take in what comes next; raises TimeoutError, and ConnectionError at the end."""
        data = self.socket.recv(1 << 20)
        if not data:
            raise ConnectionError("closed by the server")
        self.receive_data(data)

    def ask(self, code: int, fields: Mapping[str, object], body: bytes = b"") -> RemotingCommand:
        return self.end(self.begin(code, fields, body))

    def send(
        self, topic: str, body: bytes = b"x", queue_id: int = 0, **properties: str
    ) -> RemotingCommand:
        return self.ask(Code.SEND_MESSAGE_V2, send_fields(topic, queue_id, **properties), body)

    def pull(self, topic: str, queue_id: int = 0, offset: int = 0, wait_ms: int = 0) -> list[bytes]:
        return [message.body for message in self.pull_messages(topic, queue_id, offset, wait_ms)]

    def pull_messages(
        self, topic: str, queue_id: int = 0, offset: int = 0, wait_ms: int = 0
    ) -> list[MessageExt]:
        answer = self.ask(Code.PULL_MESSAGE, pull_fields(topic, queue_id, offset, wait_ms))
        return decode_messages(answer.body) if answer.code == 0 else []

    def route(self, topic: str) -> TopicRouteData | None:
        answer = self.ask(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
        return TopicRouteData.from_body(answer.body) if answer.code == 0 else None

    def wait_for_route(self, topic: str) -> TopicRouteData:
        """A broker that made a topic by itself tells its name servers a moment later."""
        while (route := self.route(topic)) is None:
            pass
        return route


def send_fields(topic: str, queue_id: int = 0, **properties: str) -> dict[str, object]:
    """The header of SEND_MESSAGE_V2."""
    return {
        "a": "PG", "b": topic, "c": "TBW102", "d": 4, "e": queue_id, "f": 0, "g": 1,
        "h": 0, "i": properties_to_bytes(properties).decode(), "j": 0, "k": "false", "m": "false",
    }  # fmt: skip


def pull_fields(
    topic: str, queue_id: int = 0, offset: int = 0, wait_ms: int = 0, group: str = "CG"
) -> dict[str, object]:
    """The header of PULL_MESSAGE: everything, held if `wait_ms`."""
    return {
        "consumerGroup": group, "topic": topic, "queueId": queue_id, "queueOffset": offset,
        "maxMsgNums": 32, "sysFlag": 4 | (2 if wait_ms else 0), "commitOffset": 0,
        "suspendTimeoutMillis": wait_ms, "subscription": "*", "subVersion": 0,
        "expressionType": "TAG",
    }  # fmt: skip
