"""A real broker that serves given turns of bytes, and everything that it answered and wrote.

    python -m tests.native.player SEED COUNT TURNS KINDS GOLDEN

plays COUNT seeds of each kind (joined by commas), and the recorded requests under GOLDEN ("" leaves
them out), and prints a line of JSON for each. Two processes, one of them with TROCKET_PURE=1, must
print the same. Time stands still but for the jumps between turns, and chance has seeds.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple, Protocol

import trio
import trio.testing

from trocket import native
from trocket.disk.memory_disk import MemoryDisk
from trocket.native import Extension
from trocket.remoting.channel import Buffer
from trocket.remoting.transport import SocketTransport
from trocket.store.config import FlushDiskType
from trocket.store.recovery.checkpoint import Checkpoint

from ..kit import Broker, embedded_broker
from ..trio_order import run_by
from .frames import frame
from .traffic import KINDS, PULL, Delivery, Traffic, topic_frames

PEERS: Final = 4
PAUSES_S: Final = (0.0, 0.0, 0.0, 0.001, 0.3, 1.5, 11.0)
"""Pauses between turns; the longest covers the checkpoint and the writing of queue files."""


class Session(NamedTuple):
    """One broker's life.

    Attributes:
      name: what was played.
      answers: a digest of each turn's answers, over all connections.
      files: a digest of each file that was left, by its path.
      sent, received: bytes.
    """

    name: str
    answers: list[str]
    files: dict[str, str]
    sent: int
    received: int


class Source(Protocol):
    """Where turns come from."""

    def turn(self) -> list[Delivery]:
        """What arrives now."""

    def hears(self, peer: int, data: bytes) -> None:
        """What the broker answered."""

    def closed(self, peer: int) -> None:
        """The broker closed a connection, which is replaced by a new one."""


class Link(SocketTransport):
    """A transport without a socket, as the broker's poller reads one: many in one turn."""

    __slots__ = ("_on_readable", "closed", "received", "to_broker")

    def __init__(self, address: str) -> None:
        self.remote_address = self.local_address = address
        self.closed = False
        self.to_broker = b""
        self.received = bytearray()
        self._on_readable: Callable[[], None] | None = None

    def start_reading(self, on_readable: Callable[[], None]) -> None:
        self._on_readable = on_readable

    def stop_reading(self) -> None:
        self._on_readable = None

    def receive_nowait(self) -> bytes:
        data, self.to_broker = self.to_broker, b""
        return data

    def send_nowait(self, buffers: list[Buffer]) -> list[Buffer]:
        for buffer in buffers:
            self.received += buffer
        return []

    def abort(self) -> None:
        self.closed = True

    def read_by_broker(self, data: bytes) -> None:
        """Have the broker read, inside a turn; a connection that it does not read loses bytes."""
        if self._on_readable is not None:
            self.to_broker = data
            self._on_readable()


class StreamPeer:
    """A connection over a memory stream: a turn for itself."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self.received = bytearray()
        self.closed = False

    async def read(self) -> None:
        """Keep what comes until the broker closes."""
        while data := await self.stream.receive_some():
            self.received += data
        self.closed = True

    async def write(self, data: bytes) -> None:
        """Send, as far as the broker takes it."""
        try:
            await self.stream.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self.closed = True


class Player:
    """The connections of one broker: the last one is a stream, the others are links."""

    def __init__(self, broker: Broker, nursery: trio.Nursery, count: int) -> None:
        self._broker = broker
        self._nursery = nursery
        self._opened = 0
        self._count = count
        self._peers: list[Link | StreamPeer] = []

    async def open_all(self) -> None:
        """Open the connections."""
        for index in range(self._count):
            self._peers.append(await self._open(index))

    async def _open(self, index: int) -> Link | StreamPeer:
        if index == self._count - 1:
            client = await self._broker.connect()
            peer = StreamPeer(client.stream)
            self._nursery.start_soon(peer.read)
            return peer
        self._opened += 1
        link = Link(f"192.0.2.{1 + index}:{40_000 + self._opened}")
        server = self._broker.controller.server
        assert server is not None
        self._nursery.start_soon(server.serve_transport, link)
        await trio.testing.wait_all_tasks_blocked()
        return link

    async def serve(self, deliveries: Sequence[Delivery]) -> None:
        """Let the broker read all of it: in one turn from the links, then from the stream."""
        turn = self._broker.controller.turn
        turn.active = True
        try:
            for each in deliveries:
                peer = self._peers[each.peer]
                if isinstance(peer, Link):
                    peer.read_by_broker(each.data)
        finally:
            turn.end()
        for each in deliveries:
            peer = self._peers[each.peer]
            if isinstance(peer, StreamPeer):
                await peer.write(each.data)
        await trio.testing.wait_all_tasks_blocked()

    async def answers(self, source: Source) -> list[bytes]:
        """Take what each connection received; replace closed ones."""
        taken: list[bytes] = []
        for index, peer in enumerate(self._peers):
            data = bytes(peer.received)
            peer.received.clear()
            taken.append(data)
            source.hears(index, data)
            if peer.closed:
                taken.append(b"closed")
                source.closed(index)
                self._peers[index] = await self._open(index)
        return taken


def play(
    name: str, seed: int, source: Source, turns: int, extension: Extension | None = native.extension
) -> Session:
    """Let a new broker serve turns, in one of four from a certain turn on with a full disk."""
    random = Random(f"player {name}")
    disk, clock = MemoryDisk(), trio.testing.MockClock()
    answers: list[str] = []
    sent = received = 0
    options: dict[str, Any] = {
        "mapped_file_size_commit_log": random.choice((64, 256)) * 1024,
        "mapped_file_size_consume_queue": 20 * random.choice((10, 500)),
        "max_hash_slot_num": random.choice((10, 100)),
        "max_index_num": random.choice((40, 400)),
        "max_message_size": 64 * 1024,
        "flush_disk_type": random.choice(list(FlushDiskType)),
        "enabled_append_prop_crc": random.random() < 0.15,
        "recall_message_enable": True,
    }
    full_at = random.randrange(4 * turns + 1)

    def fail(operation: str, path: str) -> OSError | None:
        is_full = operation in ("pwrite", "allocate") and "/commitlog/" in path
        return OSError(errno.ENOSPC, "the disk is full") if is_full else None

    async def main() -> None:
        nonlocal sent, received
        async with (
            embedded_broker(disk, random=Random(seed), native=extension, **options) as broker,
            trio.open_nursery() as nursery,
        ):
            player = Player(broker, nursery, PEERS)
            await player.open_all()
            await player.serve([Delivery(0, topic_frames())])
            for turn in range(turns):
                disk.fault = fail if turn == full_at else None
                deliveries = source.turn()
                await player.serve(deliveries)
                taken = await player.answers(source)
                answers.append(_digest(*taken))
                sent += sum(len(each.data) for each in deliveries)
                received += sum(map(len, taken))
                clock.jump(random.choice(PAUSES_S))
                await trio.testing.wait_all_tasks_blocked()
            answers.append(_digest(*await player.answers(source)))
            nursery.cancel_scope.cancel()

    run_by(seed, main, clock)
    files = {path: _digest(_compared(path, data)) for path, data in sorted(disk.contents.items())}
    return Session(name, answers, files, sent, received)


def _compared(path: str, data: bytearray) -> bytes:
    """A file's bytes; of the checkpoint what it says, without the store's time.

    A turn of sends moves that time, and C begins one for a frame that turns out to be malformed.
    """
    if not path.endswith("/checkpoint"):
        return bytes(data)
    found = Checkpoint.from_page(bytes(data))
    return repr(replace(found, physic_msg_timestamp_ms=0, logics_msg_timestamp_ms=0)).encode()


def _digest(*pieces: bytes) -> str:
    found = hashlib.blake2b(digest_size=8)
    for piece in pieces:
        found.update(len(piece).to_bytes(8, "big") + piece)
    return found.hexdigest()


class Recorded:
    """Recorded requests in their order, each connection as it was; then pulls of all topics.

    Args:
      path: a file of frames, see the README beside it.
      cut: the size of the pieces in which the bytes arrive; 0: frame by frame.
    """

    def __init__(self, path: Path, cut: int) -> None:
        self._peers: dict[str, int] = {}
        self._deliveries = [
            Delivery(peer, piece)
            for peer, data in self._requests(path)
            for piece in (_pieces(data, cut) if cut else [data])
        ]
        self._deliveries.reverse()

    def _requests(self, path: Path) -> Iterator[tuple[int, bytes]]:
        for line in path.read_text(encoding="utf-8").splitlines():
            record = json.loads(line)
            if record["dir"] == "request" and record["to"].startswith("apache-broker"):
                connection = record["pair"].partition("/")[0]
                peer = self._peers.setdefault(connection, len(self._peers) % PEERS)
                yield peer, bytes.fromhex(record["frame_hex"])
        for queue_id in range(4):
            fields = {
                "consumerGroup": "CG", "topic": "TopicTest", "queueId": str(queue_id),
                "queueOffset": "0", "maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0",
                "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
            }  # fmt: skip
            yield 0, frame(PULL, fields, opaque=queue_id)

    @property
    def count(self) -> int:
        """Turns that are left."""
        return len(self._deliveries)

    def turn(self) -> list[Delivery]:
        return [self._deliveries.pop()] if self._deliveries else []

    def hears(self, peer: int, data: bytes) -> None:
        pass

    def closed(self, peer: int) -> None:
        pass


def _pieces(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


def sessions(
    seed: int, count: int, turns: int, kinds: Sequence[str], golden: str
) -> Iterator[Session]:
    """Play everything, one after the other."""
    if golden:
        for path in sorted(Path(golden, "wire").glob("*.jsonl")):
            for cut in (0, 149):
                recorded = Recorded(path, cut)
                yield play(f"{path.name} in pieces of {cut}", seed, recorded, recorded.count)
    for kind in kinds:
        for each in range(seed, seed + count):
            yield play(f"{kind} {each}", each, Traffic(each, kind, PEERS), turns)


def main(seed: str, count: str, turns: str, kinds: str, golden: str) -> None:
    """Print each session as a line of JSON, after a line that says which code ran."""
    os.getpid = lambda: 1  # it is part of unique keys, and of the lock file
    # What a hostile client does is logged; here it is expected.
    logging.disable(logging.CRITICAL)
    print(json.dumps({"native": native.extension is not None}))
    chosen = [kind for kind in KINDS if kind in kinds.split(",")]
    for session in sessions(int(seed), int(count), int(turns), chosen, golden):
        print(json.dumps(session._asdict()), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
