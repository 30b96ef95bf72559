"""Cost of a pull for a broker in a separate process: prepared PULL_MESSAGE frames, closed loop."""

from __future__ import annotations

import itertools
import socket
import struct
import time
from pathlib import Path

from trocket.bench.frames import (
    OPAQUE_FIRST,
    ROCKETMQ_TYPE,
    SendTemplate,
    build_frame,
    pull_fields,
    take_answers,
)
from trocket.bench.kit import running, socket_address
from trocket.interop.trocket_peer import TrocketCluster
from trocket.interop.usage import cpu_seconds

PULL_MESSAGE = 11
HEARTBEAT = 34

TOPIC = "PullBench"
GROUP = "PullBenchGroup"
ANSWER_TIMEOUT_S = 10.0
QUEUE_COUNT = 4
"""Records of the queues alternate in the log, so each record of a pull is a separate buffer."""

_ANSWER_HEAD = struct.Struct(">iih")


def fill(peer: socket.socket, body_size: int, messages: int) -> None:
    """Send `count` messages to the queues in turn, 64 in flight."""
    template = SendTemplate.for_topic(
        TOPIC,
        queue_count=QUEUE_COUNT,
        body=bytes(body_size),
        born_timestamp_ms=time.time_ns() // 1_000_000,
        broker="broker-a",
        serialize_type=ROCKETMQ_TYPE,
    )
    left = messages
    incoming = bytearray()
    while left:
        burst = min(left, 64)
        peer.sendall(template.next_frames(burst))
        left -= burst
        while burst:
            data = peer.recv(1 << 18)
            if not data:
                raise ConnectionError("the broker closed the connection")
            incoming += data
            burst -= len(take_answers(incoming)[0])


def pull_cpu_us(
    folder: Path, *, body_size: int, count: int, in_flight: int, seconds: float
) -> tuple[float, float]:
    """CPU of the broker's process per pull, and pulls per second on one connection.

    Args:
      folder: for the broker's files.
      count: messages of each pull; every answer is checked to be SUCCESS and of full size.
      in_flight: pulls asked for before the first is answered, as a client with several queues does.

    Returns: (microseconds, pulls per second).

    Raises: PeerError, OSError: the broker ended. ValueError: an answer was not what it should be.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with running(TrocketCluster(folder)) as cluster:
        address = socket_address(cluster.broker_address)
        with socket.create_connection(address, timeout=ANSWER_TIMEOUT_S) as peer:
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            rounds = 50
            fill(peer, body_size, rounds * count * QUEUE_COUNT)
            frames = [
                build_frame(
                    PULL_MESSAGE,
                    pull_fields(GROUP, TOPIC, queue_id, number * count, count=count),
                    b"",
                    opaque=OPAQUE_FIRST,
                    serialize_type=ROCKETMQ_TYPE,
                )
                for number in range(rounds)
                for queue_id in range(QUEUE_COUNT)
            ]
            load = _Pulls(peer, frames, count * body_size, in_flight)
            load.run(seconds / 4)
            cpu_s, start_s = cpu_seconds(cluster.pids[0]), time.perf_counter()
            pulls = load.run(seconds)
            took_s = time.perf_counter() - start_s
            cpu_s = cpu_seconds(cluster.pids[0]) - cpu_s
    return cpu_s / pulls * 1e6, pulls / took_s


class _Pulls:
    """A closed loop of pulls on one connection."""

    def __init__(
        self, peer: socket.socket, frames: list[bytes], size_min: int, in_flight: int
    ) -> None:
        self._peer = peer
        self._frames = itertools.cycle(frames)
        self._size_min = size_min
        self._incoming = bytearray()
        self._ask(in_flight)

    def _ask(self, count: int) -> None:
        self._peer.sendall(b"".join(itertools.islice(self._frames, count)))

    def run(self, seconds: float) -> int:
        """Pull for `seconds`, and return the number of answers."""
        pulls, end_s = 0, time.perf_counter() + seconds
        incoming = self._incoming
        while time.perf_counter() < end_s:
            data = self._peer.recv(1 << 20)
            if not data:
                raise ConnectionError("the broker closed the connection")
            incoming += data
            done = at = 0
            while len(incoming) - at >= _ANSWER_HEAD.size:
                length, _, code = _ANSWER_HEAD.unpack_from(incoming, at)
                if at + 4 + length > len(incoming):
                    break
                if code != 0 or length < self._size_min:
                    text = bytes(incoming[at : at + 200])
                    raise ValueError(f"code {code}, {length} bytes: {text!r}")
                at += 4 + length
                done += 1
            if done:
                del incoming[:at]
                self._ask(done)
                pulls += done
        return pulls
