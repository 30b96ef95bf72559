"""Cost of pulls for a broker in a separate process: prepared frames, plain sockets.

Cases: pulls of 32 x 1 KiB that find their messages, with 1 and 16 in flight on one connection; and
1,024 queues, or 8, with a held pull each, which sends wake: the work of the broker when the
official Producer and Consumer run on a topic of as many queues.

    python -m trocket.bench.pulls --pin
    python -m trocket.bench.pulls --pin --case wakes --beside ../before    # another checkout

`--beside` alternates between two brokers, see `bench/wire.py`.
"""

from __future__ import annotations

import itertools
import json
import socket
import struct
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Protocol

import typer
from rich.console import Console

from trocket.bench.frames import (
    OPAQUE_FIRST,
    ROCKETMQ_TYPE,
    SEND_MESSAGE_V2,
    UNIQUE_MARK,
    BadAnswerError,
    SendTemplate,
    build_frame,
    pull_fields,
    send_fields,
)
from trocket.bench.kit import (
    by_turns,
    chosen,
    round_ratios,
    running,
    socket_address,
    spread_of,
    spread_text,
)
from trocket.bench.load import Load, Tally, connect, fill
from trocket.bench.wire import checkout_cluster, pin_to_cores
from trocket.common.terminal import table
from trocket.interop.peer import Cluster
from trocket.interop.trocket_peer import TrocketCluster
from trocket.interop.usage import cpu_seconds

PULL_MESSAGE = 11
UPDATE_AND_CREATE_TOPIC = 17
HEARTBEAT = 34

TOPIC = "PullBench"
GROUP = "PullBenchGroup"
QUEUE_COUNT = 4
"""Records of the queues alternate in the log, so each record of a pull is a separate buffer."""

WAKES_TOPIC = "WakesBench"
WAKES_QUEUE_COUNT = 1024
"""As many as BenchmarkTest has, the topic of the official benchmark."""

WAKES_BURST = 10
"""Sends to different queues that arrive together, as a busy broker gets them of 64 threads."""

WAKES_BODY_SIZE = 128
COMMIT_AND_SUSPEND = 1 | 2
"""The sysFlag of a push consumer's pulls. Source: common/sysflag/PullSysFlag.java."""

_ANSWER_HEAD = struct.Struct(">iih")
_ANSWER_START = struct.Struct(">iihBhi")  # length, mark, code, language, version, opaque
_INT = struct.Struct(">i")


class Runs(Protocol):
    """A closed loop of requests to one broker."""

    def run(self, seconds: float) -> int:
        """Load the broker for `seconds`, and return the number of completed requests."""


class Pulls:
    """A connection's driver: pulls again and again, as many as were answered.

    Args:
      size_min: bytes of an answer, at least.
      in_flight: pulls asked for before the first is answered, as a client with several queues does.
    """

    def __init__(
        self, frames: Iterable[bytes], size_min: int, in_flight: int, tally: Tally
    ) -> None:
        self._frames = itertools.cycle(frames)
        self._size_min = size_min
        self._in_flight = in_flight
        self._tally = tally

    def begin(self) -> bytes:
        """The first pulls."""
        return self._next(self._in_flight)

    def take(self, incoming: bytearray, now_s: float) -> bytes:
        """See `Driver`. Raises: BadAnswerError: an answer is not SUCCESS, or too small."""
        done = at = 0
        while len(incoming) - at >= _ANSWER_HEAD.size:
            length, _, code = _ANSWER_HEAD.unpack_from(incoming, at)
            if at + 4 + length > len(incoming):
                break
            if code != 0 or length < self._size_min:
                raise _bad_answer(code, length, incoming, at)
            at += 4 + length
            done += 1
        del incoming[:at]
        self._tally.answered += done
        return self._next(done)

    def _next(self, count: int) -> bytes:
        return b"".join(itertools.islice(self._frames, count))


def full_queues(cluster: Cluster, *, body_size: int, count: int, in_flight: int) -> Load:
    """Fill the queues, and pull their messages again and again.

    Args:
      count: messages of each pull; every answer is checked to be SUCCESS and of full size.
      in_flight: see `Pulls`.
    """
    rounds = 50
    address = socket_address(cluster.broker_address)
    template = SendTemplate.for_topic(TOPIC, queue_count=QUEUE_COUNT, body=bytes(body_size))
    fill(address, template, rounds * count * QUEUE_COUNT)
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
    tally = Tally()
    driver = Pulls(frames, count * body_size, in_flight, tally)
    return Load("pulls", [address], [driver], tally)


class _Wakes:
    """Sends that wake held pulls, one per queue, on a connection for each kind.

    In every step some queues get a message each; when all sends and all woken pulls are answered,
    the consumer pulls these queues again, and the next step begins.

    Args:
      producer, consumer: connected to the broker.
    """

    def __init__(
        self, producer: socket.socket, consumer: socket.socket, queue_count: int = WAKES_QUEUE_COUNT
    ) -> None:
        self._producer = producer
        self._consumer = consumer
        # Each case has a topic and a group of its own: the pulls of one before may still be held.
        self._topic, self._group = f"{WAKES_TOPIC}{queue_count}", f"{GROUP}{queue_count}"
        self._offsets = [0] * queue_count
        self._burst = min(WAKES_BURST, queue_count)
        # Neighbours of a step are far from each other, as queues are with many sending threads.
        self._queues = itertools.cycle(number * 389 % queue_count for number in range(queue_count))
        self._sends = [_send_parts(self._topic, queue_id) for queue_id in range(queue_count)]
        self._sent = 0
        _exchange(consumer, _new_topic(self._topic, queue_count))
        _exchange(consumer, _heartbeat(self._group, self._topic))
        consumer.sendall(b"".join(self._pull(queue_id) for queue_id in range(queue_count)))
        # The pulls are held without an answer: this heartbeat's says that all were received.
        _exchange(consumer, _heartbeat(self._group, self._topic))

    def _pull(self, queue_id: int) -> bytes:
        """The next pull of a queue, as the Java client of 5.5.0 writes it."""
        offset = str(self._offsets[queue_id])
        fields = {
            "consumerGroup": self._group, "topic": self._topic, "queueId": str(queue_id),
            "queueOffset": offset, "maxMsgNums": "32", "sysFlag": str(COMMIT_AND_SUSPEND),
            "commitOffset": offset, "suspendTimeoutMillis": "600000", "subVersion": "1",
            "expressionType": "TAG", "maxMsgBytes": "2147483647", "bname": "broker-a",
        }  # fmt: skip
        return build_frame(PULL_MESSAGE, fields, b"", opaque=queue_id, serialize_type=ROCKETMQ_TYPE)

    def run(self, seconds: float) -> int:
        """Send and pull for `seconds`, and return the number of messages. All pulls stay held."""
        end_s = time.perf_counter() + seconds
        first = self._sent
        while time.perf_counter() < end_s:
            queues = list(itertools.islice(self._queues, self._burst))
            frames = []
            for queue_id in queues:
                before, after = self._sends[queue_id]
                frames.append(b"%b%08X%b" % (before, self._sent, after))
                self._sent += 1
            self._producer.sendall(b"".join(frames))
            _answers(self._producer, len(queues), 0)
            for queue_id in _answers(self._consumer, len(queues), WAKES_BODY_SIZE):
                self._offsets[queue_id] += 1
            self._consumer.sendall(b"".join(map(self._pull, queues)))
        return self._sent - first


def _send_parts(topic: str, queue_id: int) -> tuple[bytes, bytes]:
    """The frame of a send, before and after the variable part of its unique key."""
    frame = build_frame(
        SEND_MESSAGE_V2,
        send_fields(
            "benchmark_producer",
            topic,
            queue_id,
            f"UNIQ_KEY\x01{UNIQUE_MARK}\x02WAIT\x01true\x02",
            queue_count=str(WAKES_QUEUE_COUNT),
        )
        | {"n": "broker-a"},
        bytes(WAKES_BODY_SIZE),
        opaque=queue_id,
        serialize_type=ROCKETMQ_TYPE,
    )
    at = frame.index(UNIQUE_MARK.encode()) + len(UNIQUE_MARK)
    return frame[: at - 8], frame[at:]


def _new_topic(topic: str, queue_count: int) -> bytes:
    fields = {
        "topic": topic, "defaultTopic": "TBW102", "readQueueNums": str(queue_count),
        "writeQueueNums": str(queue_count), "perm": "6", "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0", "order": "false",
    }  # fmt: skip
    return build_frame(
        UPDATE_AND_CREATE_TOPIC, fields, b"", opaque=OPAQUE_FIRST, serialize_type=ROCKETMQ_TYPE
    )


def _heartbeat(group: str, topic: str) -> bytes:
    subscription = {
        "topic": topic, "subString": "*", "subVersion": 1, "expressionType": "TAG",
        "classFilterMode": False, "codeSet": [], "tagsSet": [],
    }  # fmt: skip
    consumer = {
        "groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "subscriptionDataSet": [subscription],
        "unitMode": False,
    }  # fmt: skip
    body = json.dumps({"clientID": "bench", "producerDataSet": [], "consumerDataSet": [consumer]})
    return build_frame(
        HEARTBEAT, {}, body.encode(), opaque=OPAQUE_FIRST, serialize_type=ROCKETMQ_TYPE
    )


def _exchange(peer: socket.socket, frame: bytes) -> None:
    """Send a request and wait for its answer, which must be SUCCESS."""
    peer.sendall(frame)
    _answers(peer, 1, 0)


def _answers(peer: socket.socket, count: int, size_min: int) -> list[int]:
    """Receive exactly `count` answers, and return their opaques.

    Args:
      size_min: bytes of an answer at least.
    Raises: ConnectionError: the broker closed the connection. BadAnswerError: an answer is not
      SUCCESS, or too small.
    """
    incoming, at = bytearray(), 0
    opaques: list[int] = []
    while len(opaques) < count:
        incoming += _received(peer)
        while len(incoming) - at >= _ANSWER_START.size:
            length, mark, code, _, _, opaque = _ANSWER_START.unpack_from(incoming, at)
            if at + 4 + length > len(incoming):
                break
            if mark >> 24 == ROCKETMQ_TYPE:  # otherwise the broker's notification of the group
                if code != 0 or length < size_min:
                    raise _bad_answer(code, length, incoming, at)
                opaques.append(opaque)
            at += 4 + length
    if len(opaques) != count or at != len(incoming):
        raise BadAnswerError(f"{len(opaques)} answers instead of {count}")
    return opaques


def _received(peer: socket.socket) -> bytes:
    data = peer.recv(1 << 20)
    if not data:
        raise ConnectionError("the broker closed the connection")
    return data


def _bad_answer(code: int, length: int, incoming: bytearray, at: int) -> BadAnswerError:
    return BadAnswerError(f"code {code}, {length} bytes: {bytes(incoming[at : at + 200])!r}")


def pull_cpu_us(
    folder: Path, *, body_size: int, count: int, in_flight: int, seconds: float
) -> tuple[float, float]:
    """CPU of the broker's process per pull, and pulls per second on one connection.

    Args:
      folder: for the broker's files.
      count, in_flight: see `full_queues`.

    Returns: (microseconds, pulls per second).

    Raises: PeerError, OSError: the broker ended. BadAnswerError: an answer is not as it should be.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (
        running(TrocketCluster(folder)) as cluster,
        full_queues(cluster, body_size=body_size, count=count, in_flight=in_flight) as load,
    ):
        load.run(seconds / 4)
        start_s = time.perf_counter()
        cpu_us, pulls = cost_us(cluster, load, seconds)
        return cpu_us, pulls / (time.perf_counter() - start_s)


def cost_us(cluster: Cluster, load: Runs, seconds: float) -> tuple[float, int]:
    """CPU of the broker per request of a load in microseconds, and the number of requests."""
    before_s = cpu_seconds(cluster.pids[0])
    count = load.run(seconds)
    return (cpu_seconds(cluster.pids[0]) - before_s) / count * 1e6, count


def _full_queues(cluster: Cluster, stack: ExitStack, in_flight: int) -> Runs:
    load = full_queues(cluster, body_size=1024, count=32, in_flight=in_flight)
    return stack.enter_context(load)


def _wakes(cluster: Cluster, stack: ExitStack, queue_count: int = WAKES_QUEUE_COUNT) -> Runs:
    address = socket_address(cluster.broker_address)
    producer, consumer = (stack.enter_context(connect(address)) for _ in "12")
    return _Wakes(producer, consumer, queue_count)


LOADS: dict[str, Callable[[Cluster, ExitStack], Runs]] = {
    "wakes": _wakes,
    "wakes-8": lambda cluster, stack: _wakes(cluster, stack, 8),
    "pull-1": lambda cluster, stack: _full_queues(cluster, stack, 1),
    "pull-16": lambda cluster, stack: _full_queues(cluster, stack, 16),
}


def measure(
    clusters: list[Cluster], make: Callable[[Cluster, ExitStack], Runs], rounds: int, seconds: float
) -> list[list[float]]:
    """CPU in microseconds per request, of each round and cluster.

    The clusters alternate, and the first to begin changes with each round.
    """
    with ExitStack() as stack:
        loads = [make(cluster, stack) for cluster in clusters]
        for load in loads:
            load.run(seconds / 2)
        costs: list[list[float]] = []
        for order in by_turns(range(len(clusters)), rounds):
            each = {at: cost_us(clusters[at], loads[at], seconds)[0] for at in order}
            costs.append([each[at] for at in range(len(clusters))])
        return costs


def row_of(name: str, costs: list[list[float]]) -> list[str]:
    """A row of the table: the spread of the rounds; beside another checkout also of ratios."""
    sides = [*zip(*costs, strict=True)]
    spreads = [spread_of(side) for side in sides]
    if len(sides) > 1:
        spreads.append(spread_of(round_ratios(*sides)))
    return [name, *map(spread_text, spreads)]


def main(
    case: Annotated[
        list[str] | None, typer.Option(help="Run one of these cases; all by default.")
    ] = None,
    seconds: Annotated[float, typer.Option(help="Measure each round for this time.")] = 3.0,
    rounds: Annotated[int, typer.Option(help="Measure each case this often.", min=1)] = 5,
    pin: Annotated[
        bool, typer.Option(help="Pin the broker to one core, the generator to the others.")
    ] = False,
    beside: Annotated[Path | None, typer.Option(help="Alternate with this checkout.")] = None,
) -> None:
    """Pull from a broker process, and print its CPU per pull or message."""
    loads = chosen(case, LOADS, "--case")
    rows = []
    with tempfile.TemporaryDirectory(prefix="trocket-bench-") as folder, ExitStack() as stack:
        clusters: list[Cluster] = [TrocketCluster(Path(folder, "first"))]
        if beside is not None:
            clusters.append(checkout_cluster(beside, Path(folder, "beside")))
        for cluster in clusters:
            stack.enter_context(running(cluster))
        if pin:
            pin_to_cores(*(cluster.pids[0] for cluster in clusters))
        for name, make in loads.items():
            rows.append(row_of(name, measure(clusters, make, rounds, seconds)))
    columns = ["case", "CPU µs", *(["beside", "ratio"] if beside is not None else [])]
    Console().print(table(columns, rows, title=f"{rounds} rounds of {seconds:g} s"))


if __name__ == "__main__":
    typer.run(main)
