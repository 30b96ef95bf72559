"""A client of raw sockets, with none of the project's code: it is to judge that code."""

from __future__ import annotations

import json
import socket
import struct
from typing import Any

SEND, PULL = 310, 11
_BODY_AT = 84
"""Where a record says how long its body is, with IPv4 hosts (RocketMQ's MessageDecoder)."""


class RawClient:
    """One connection, one request at a time.

    Args:
      address: HOST:PORT.
    """

    def __init__(self, address: str, *, timeout_s: float = 60.0) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout_s)
        self._opaque = 0

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(
        self, code: int, fields: dict[str, str], body: bytes = b""
    ) -> tuple[dict[str, Any], bytes]:
        """Send a request; the header and the body of its answer. Raises: OSError."""
        self._opaque += 1
        header = json.dumps(
            {
                "code": code, "flag": 0, "language": "OTHER", "version": 433,
                "opaque": self._opaque, "serializeTypeCurrentRPC": "JSON", "extFields": fields,
            }
        ).encode()  # fmt: skip
        size = 4 + len(header) + len(body)
        self._socket.sendall(struct.pack(">ii", size, len(header)) + header + body)
        (size,) = struct.unpack(">i", self._read(4))
        frame = self._read(size)
        (header_size,) = struct.unpack(">i", frame[:4])
        header_size &= 0xFFFFFF
        answer: dict[str, Any] = json.loads(frame[4 : 4 + header_size])
        return answer, frame[4 + header_size :]

    def send(self, topic: str, queue_id: int, body: bytes) -> tuple[int, int, int, str]:
        """Send a message: code, queue id and queue offset (-1 when refused), remark."""
        fields = {
            "a": "PG", "b": topic, "c": "TBW102", "d": "2", "e": str(queue_id), "f": "0", "g": "1",
            "h": "0", "i": f"UNIQ_KEY\x01{body[:16].decode()}\x02", "j": "0", "k": "false",
            "m": "false",
        }  # fmt: skip
        answer, _ = self.ask(SEND, fields, body)
        fields = answer.get("extFields") or {}
        return (
            int(answer["code"]),
            int(fields.get("queueId", -1)),
            int(fields.get("queueOffset", -1)),
            str(answer.get("remark", "")),
        )

    def pull_all(self, topic: str, queue_id: int) -> tuple[int, dict[int, bytes]]:
        """All messages of a queue: the last answer's code, bodies by queue offset."""
        found: dict[int, bytes] = {}
        offset = 0
        while True:
            fields = {
                "consumerGroup": "CG", "topic": topic, "queueId": str(queue_id),
                "queueOffset": str(offset), "maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0",
                "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
                "expressionType": "TAG",
            }  # fmt: skip
            answer, records = self.ask(PULL, fields)
            following = int((answer.get("extFields") or {}).get("nextBeginOffset", offset))
            if answer["code"] != 0:
                return int(answer["code"]), found
            found |= _bodies(records)
            offset = following

    def _read(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            data = self._socket.recv(size - len(parts))
            if not data:
                raise ConnectionResetError("the broker has closed the connection")
            parts += data
        return bytes(parts)


def _bodies(records: bytes) -> dict[int, bytes]:
    found = {}
    at = 0
    while at < len(records):
        (size,) = struct.unpack_from(">i", records, at)
        (queue_offset,) = struct.unpack_from(">q", records, at + 20)
        (body_size,) = struct.unpack_from(">i", records, at + _BODY_AT)
        start = at + _BODY_AT + 4
        found[queue_offset] = records[start : start + body_size]
        at += size
    return found
