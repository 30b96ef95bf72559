"""Signed sends, and a broker with accounts that accepts them.

As `frames.py`, without trocket's code. Each frame has another unique key, so each is signed anew.

Source: RocketMQ 5.3.3 AclClientRPCHook, AclUtils.combineRequestContent.
"""

from __future__ import annotations

import hmac
import json
import time
from base64 import b64encode
from pathlib import Path
from typing import Final

from trocket.bench.frames import (
    UNIQUE_MARK,
    SendTemplate,
    Taken,
    send_fields,
)
from trocket.interop.peer import Cluster
from trocket.interop.trocket_peer import TrocketBroker

ACCESS_KEY: Final = "benchmark"
SECRET_KEY: Final = "benchmark-secret"
GROUP: Final = "benchmark_producer"
_MARK: Final = "~" * 28
_BODY: Final = bytes(48 + number % 10 for number in range(128))


def guarded_broker(folder: Path) -> Cluster:
    """A stopped broker whose only users are a super user and, with a right to send, no other.

    The sends are a super user's unless the broker's accounts are changed.
    """
    return TrocketBroker(
        folder,
        store=folder / "store",
        broker_keys={
            "authenticationEnabled": "true",
            "authorizationEnabled": "true",
            "initAuthenticationUser": json.dumps(
                {"username": ACCESS_KEY, "password": SECRET_KEY}, separators=(",", ":")
            ),
        },
    )


class SignedSends:
    """Signed sends to the queues of a topic; see `SendTemplate`."""

    def __init__(self, topic: str, queue_count: int, broker: str, serialize_type: int) -> None:
        born_timestamp_ms = time.time_ns() // 1_000_000
        account = {"AccessKey": ACCESS_KEY, "Signature": _MARK}
        self._inner = SendTemplate.for_topic(
            topic,
            queue_count=queue_count,
            body=_BODY,
            born_timestamp_ms=born_timestamp_ms,
            broker=broker,
            serialize_type=serialize_type,
            group=GROUP,
            more=account,
        )
        properties = f"UNIQ_KEY\x01{UNIQUE_MARK}\x02WAIT\x01true\x02"
        self._contents: list[tuple[bytes, bytes]] = []
        for queue in range(queue_count):
            fields = send_fields(
                GROUP, topic, queue, properties, born_timestamp_ms=born_timestamp_ms
            ) | {"f": "0", "n": broker, "AccessKey": ACCESS_KEY}
            content = "".join(fields[name] for name in sorted(fields)).encode() + _BODY
            begin, _, end = content.partition(UNIQUE_MARK.encode())
            self._contents.append((begin + UNIQUE_MARK[:-8].encode(), end))
        self._position = self._inner.frames[0].index(_MARK.encode())
        self._size = len(self._inner.frames[0])

    @property
    def opaque_next(self) -> int:
        """The opaque of the next request."""
        return self._inner.opaque_next

    def next_frames(self, count: int) -> bytearray:
        """`count` signed requests with consecutive opaques."""
        first = self._inner.opaque_next
        buffer = self._inner.next_frames(count)
        at, key = self._position, SECRET_KEY.encode()
        for opaque in range(first, first + count):
            begin, end = self._contents[opaque % len(self._contents)]
            digest = hmac.digest(key, begin + b"%08X" % opaque + end, "sha1")
            buffer[at : at + 28] = b64encode(digest)
            at += self._size
        return buffer

    def take(self, incoming: bytearray) -> Taken:
        """Remove the complete answers from the start of `incoming`. Raises: BadAnswerError."""
        return self._inner.take(incoming)
