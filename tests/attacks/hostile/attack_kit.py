"""Tools of hostile clients: raw frames, connections, the servers that are attacked.

The frames are not built by trocket's codec, so that they can be invalid.
"""

from __future__ import annotations

import json
import random
import struct
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import trio

MIB: Final = 1 << 20
SOURCE: Final = "127.0.0.66"
"""The address that attacks come from. Linux has all of 127.0.0.0/8."""
TOPICS_MAX: Final = 20_000
"""Topics that the attacks create in all: each is a line of the broker's table."""
SYSTEM_TOPICS: Final = (
    "rmq_sys_wheel_timer",
    "SCHEDULE_TOPIC_XXXX",
    "RMQ_SYS_TRANS_HALF_TOPIC",
    "RMQ_SYS_TRANS_OP_HALF_TOPIC",
    "TRANS_CHECK_MAX_TIME_TOPIC",
)
HOSTILE_NUMBERS: Final = ("-1", "0", "2147483648", "-9223372036854775808", "9" * 30, "", "1e9", "x")
DESTRUCTIVE_CODES: Final = frozenset({25, 104, 205, 207, 215, 216, 222, 227, 318})
"""Administrative codes that affect other clients; random requests omit them."""


@dataclass
class Target:
    """The attacked servers, and the counts of rounds and failures.

    Attributes:
      broker, namesrv, ha: (host, port).
      victim: the honest clients' topic; attacks pull from it, but never change it.
      queues: its number of queues.
      rounds, failures: counts by attack; a failure is a connection that the server closed, or a
        cancelled round.
    """

    broker: tuple[str, int]
    namesrv: tuple[str, int]
    ha: tuple[str, int]
    victim: str
    queues: int
    random: random.Random
    rounds: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    topics: int = 0


@dataclass(frozen=True)
class Attack:
    """One kind of hostile client: `run` is a round, repeated after `pause_s` seconds."""

    name: str
    run: Callable[[Target], Awaitable[None]]
    pause_s: float


def frame(
    code: int, fields: Mapping[str, str], body: bytes = b"", *, opaque: int = 1, flag: int = 0
) -> bytes:
    """A request with a JSON header."""
    head = {"code": code, "flag": flag, "language": "JAVA", "opaque": opaque, "version": 500}
    return raw_frame(json.dumps(head | {"extFields": fields}).encode(), body)


def raw_frame(header: bytes, body: bytes = b"") -> bytes:
    """A frame with any bytes as its JSON header."""
    return struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body


def send_fields(
    topic: str, properties: str = "", *, queue_id: int = -1, nums: str = "4"
) -> dict[str, str]:
    """Fields of SEND_MESSAGE_V2 (310) and SEND_BATCH_MESSAGE (320)."""
    return {
        "a": "hostile", "b": topic, "c": "TBW102", "d": nums, "e": str(queue_id), "f": "0",
        "g": "1700000000000", "h": "0", "i": properties, "j": "0", "k": "false", "m": "false",
    }  # fmt: skip


def pull_fields(
    topic: str, queue_id: int, *, wait_s: float, offset: int = 1 << 40, subscription: str = "*"
) -> dict[str, str]:
    """Fields of PULL_MESSAGE (11) with a subscription; with `wait_s`, a long poll."""
    return {
        "consumerGroup": "hostile", "topic": topic, "queueId": str(queue_id),
        "queueOffset": str(offset), "maxMsgNums": "32", "sysFlag": "6" if wait_s else "4",
        "commitOffset": "0", "suspendTimeoutMillis": str(int(wait_s * 1000)),
        "subscription": subscription, "subVersion": "0", "expressionType": "TAG",
    }  # fmt: skip


def pop_fields(topic: str, group: str) -> dict[str, str]:
    """Fields of POP_MESSAGE (200050): a long poll from the topic's end on, for another tag."""
    return {
        "consumerGroup": group, "topic": topic, "queueId": "-1", "maxMsgNums": "32",
        "invisibleTime": "60000", "pollTime": "15000", "bornTime": "0", "initMode": "1",
        "expType": "TAG", "exp": "nothing", "order": "false",
    }  # fmt: skip


async def connect(address: tuple[str, int]) -> trio.SocketStream:
    """Connect from SOURCE, so that the limits of one address concern the attacks alone."""
    return await trio.open_tcp_stream(*address, local_address=SOURCE)


async def deliver(address: tuple[str, int], data: bytes, *, read_s: float = 2.0) -> bytes:
    """Send bytes on a new connection, and read answers for `read_s` seconds."""
    came = b""
    async with await connect(address) as stream:
        await stream.send_all(data)
        with trio.move_on_after(read_s):
            while piece := await stream.receive_some(65_536):
                came = (came + piece)[-MIB:]
    return came


async def hoard(
    address: tuple[str, int], count: int, each: Callable[[trio.SocketStream], Awaitable[None]]
) -> None:
    """Run `each` on many connections at once."""

    async def one() -> None:
        async with await connect(address) as stream:
            await each(stream)

    failures: list[BaseException] = []

    async def guarded() -> None:
        try:
            await one()
        except* (OSError, trio.BrokenResourceError, trio.ClosedResourceError) as errors:
            failures.extend(errors.exceptions)

    async with trio.open_nursery() as nursery:
        for _ in range(count):
            nursery.start_soon(guarded)
    if failures:
        raise OSError(f"{len(failures)} of {count} connections failed: {failures[0]}")
