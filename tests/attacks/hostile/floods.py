"""Floods: clients that ask for more than their share, of each kind that a limit is for.

`attacks.py` runs them; see there.
"""

from __future__ import annotations

import json
import ssl
import struct
from typing import Final

import trio

from .attack_kit import (
    MIB,
    Attack,
    Target,
    connect,
    deliver,
    frame,
    hoard,
    pull_fields,
    raw_frame,
    send_fields,
)

LORIS: Final = 5_000
"""Connections of the slow loris: as many as one address may have by default."""


async def connection_flood(target: Target) -> None:
    """6,000 connections that say nothing: 1,000 more than one address may have."""

    async def each(stream: trio.SocketStream) -> None:
        await trio.sleep(30)

    await hoard(target.broker, 6_000, each)


async def slow_loris(target: Target) -> None:
    """5,000 connections that send a byte of their first frame each second."""
    data = frame(310, send_fields("Hostile"), bytes(200))

    async def each(stream: trio.SocketStream) -> None:
        for at in range(60):
            await stream.send_all(data[at : at + 1])
            await trio.sleep(1)

    await hoard(target.broker, LORIS, each)


async def large_headers(target: Target) -> None:
    """Headers of 16 MiB: one that is announced alone, one that is sent, one that is deep."""
    for header in (b'{"a":"' + bytes(16 * MIB - 100) + b'"}', b"[" * (16 * MIB - 100)):
        await deliver(target.broker, raw_frame(header), read_s=1)
        await deliver(target.namesrv, raw_frame(header), read_s=1)
    await deliver(target.broker, struct.pack(">ii", 16 * MIB - 1, 16 * MIB - 5) + b"{", read_s=1)


async def waiting_requests(target: Target) -> None:
    """30,000 requests on 3 connections that each wait until a topic is saved (17)."""
    fields = {
        "topic": "HostileWaits", "defaultTopic": "TBW102", "readQueueNums": "4",
        "writeQueueNums": "4", "perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0",
        "order": "false",
    }  # fmt: skip
    data = b"".join(
        frame(17, fields | {"readQueueNums": str(4 + at % 2)}, opaque=at) for at in range(1_000)
    )

    async def each(stream: trio.SocketStream) -> None:
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def read() -> None:
                while await stream.receive_some(MIB):
                    pass

            for _ in range(10):
                await stream.send_all(data)
            await trio.sleep(5)
            nursery.cancel_scope.cancel()

    await hoard(target.broker, 3, each)


async def topic_flood(target: Target) -> None:
    """3,000 first sends, each to a new topic."""
    base = target.random.getrandbits(40)
    frames = [
        frame(310, send_fields(f"HostileFlood{base}x{at}"), b"x", opaque=at) for at in range(3_000)
    ]
    await deliver(target.broker, b"".join(frames), read_s=5)


async def group_flood(target: Target) -> None:
    """3,000 new groups, in heartbeats of 100."""
    base = target.random.getrandbits(40)
    frames = []
    for at in range(30):
        consumers = [consumer(f"hostile{base}x{at}x{number}") for number in range(100)]
        body = {"clientID": "h", "producerDataSet": [], "consumerDataSet": consumers}
        frames.append(frame(34, {}, json.dumps(body).encode(), opaque=at))
    await deliver(target.broker, b"".join(frames), read_s=5)


def consumer(group: str) -> dict[str, object]:
    """The part of a heartbeat for one group."""
    return {
        "groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "unitMode": False,
        "subscriptionDataSet": [{"topic": "Hostile", "subString": "*"}],
    }  # fmt: skip


async def crowded_group(target: Target) -> None:
    """2,000 clients that join one group and leave it again."""
    body = {"clientID": "h", "producerDataSet": [], "consumerDataSet": [consumer("hostileCrowd")]}

    async def each(stream: trio.SocketStream) -> None:
        at = id(stream)
        heartbeat = body | {"clientID": f"h{at}"}
        await stream.send_all(frame(34, {}, json.dumps(heartbeat).encode()))
        with trio.move_on_after(5 + at % 100 / 20):
            while await stream.receive_some(65_536):
                pass

    await hoard(target.broker, 2_000, each)


async def unread_trickle(target: Target) -> None:
    """300 connections that ask for the honest topic's beginning again and again, and read nothing:
    each keeps less than the size at which its requests are no longer read."""
    pull = frame(11, pull_fields(target.victim, 0, wait_s=0, offset=0))

    async def each(stream: trio.SocketStream) -> None:
        with trio.move_on_after(30):
            for _ in range(300):
                await stream.send_all(pull)
                await trio.sleep(0.1)

    await hoard(target.broker, 300, each)


async def new_connections(target: Target) -> None:
    """Connections that are opened, used for one request, and closed, from 20 tasks."""
    ask = frame(105, {"topic": "no such topic"})

    async def one() -> None:
        for _ in range(200):
            async with await connect(target.broker) as stream:
                await stream.send_all(ask)
                await stream.receive_some(1024)

    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(one)


async def half_handshakes(target: Target) -> None:
    """1,000 connections that begin a TLS handshake and stop in its first message."""

    async def each(stream: trio.SocketStream) -> None:
        await stream.send_all(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
        await trio.sleep(30)

    await hoard(target.broker, 1_000, each)


async def handshakes(target: Target) -> None:
    """Whole TLS handshakes, one after the other from each of 10 tasks, and nothing more."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE

    async def one() -> None:
        for _ in range(50):
            async with await connect(target.broker) as stream:
                await trio.SSLStream(stream, context, https_compatible=True).do_handshake()

    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(one)


FLOODS: Final = (
    Attack("connection flood", connection_flood, 2),
    Attack("slow loris", slow_loris, 2),
    Attack("16 MiB headers", large_headers, 0.1),
    Attack("waiting requests", waiting_requests, 1),
    Attack("topic flood", topic_flood, 0.1),
    Attack("group flood", group_flood, 0.1),
    Attack("crowded group", crowded_group, 0.1),
    Attack("unread trickle", unread_trickle, 1),
    Attack("new connections", new_connections, 0.1),
    Attack("half handshakes", half_handshakes, 1),
    Attack("handshakes", handshakes, 0.1),
)
