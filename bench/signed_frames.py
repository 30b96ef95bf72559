"""Signed sends, and brokers with an account that may send them.

As `frames.py`, without trocket's code. Each frame has another unique key, so each is signed anew.

Source: RocketMQ 5.3.3 AclClientRPCHook, AclUtils.combineRequestContent.
"""

from __future__ import annotations

import hmac
import time
from base64 import b64encode
from typing import Final

from trocket.bench.frames import (
    UNIQUE_MARK,
    SendTemplate,
    Taken,
    send_fields,
)
from trocket.interop.accounts import SUPER, Account, Grant, acl_2_keys, create_accounts
from trocket.interop.peer import Cluster
from trocket.interop.wire import Keys, WireClient

ACCESS_KEY: Final = "benchmark"
SECRET_KEY: Final = "benchmark-secret"
GROUP: Final = "benchmark_producer"
_MARK: Final = "~" * 28
_BODY: Final = bytes(48 + number % 10 for number in range(128))


def guarded_keys() -> dict[str, object]:
    """Keys of broker.conf for a broker with accounts; Apache's and ours take the same."""
    return acl_2_keys(SUPER.keys)


def create_account(cluster: Cluster, topic: str) -> None:
    """Create the user that signs the sends, with the right to publish to one topic.

    Raises: PeerError: the broker refuses it.
    """
    grants = (Grant(f"Topic:{topic}", ("Pub",)),)
    with WireClient(cluster.broker_address, keys=SUPER.keys) as wire:
        create_accounts(wire, [Account(Keys(ACCESS_KEY, SECRET_KEY), grants)])


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
