"""A probe that sends at a low fixed rate beside a load: the latency that one more client sees.

The official benchmark programs print the mean and the maximum of their send times, not a
percentile. The probe sends when a send is due, whether or not earlier ones were answered, and
counts from that time: a broker that stalls also delays the sends that become due meanwhile. It is a
thread of the bench and competes for the CPU like any other client, so its latencies include the
time it waits for a core.

    python -m trocket.bench.send_probe HOST:PORT TOPIC SECONDS

does it in a process, which does not wait for the interpreter of the bench, and prints the
latencies in ms as a JSON list. A line on its standard input ends it earlier.
"""

from __future__ import annotations

import json
import select
import socket
import sys
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType

from trocket.bench.frames import BadAnswerError, SendTemplate, take_answers
from trocket.bench.kit import socket_address
from trocket.bench.load import RECEIVE_SIZE_BYTES, connect
from trocket.interop.process import PeerError

RATE_PER_S = 50.0
"""Enough for a p99 over half a minute (15 slower sends), and some 2 % of a core."""

QUEUE_COUNT = 4
LAST_ANSWERS_S = 2.0
"""How long to wait for answers after the last send."""


class SendProbe:
    """Sends to one topic while its block runs; not reusable.

    Attributes:
      latencies_ms: of the sends that succeeded, and the waiting time so far of those without an
        answer at the end.
      refused: sends that were answered with SYSTEM_BUSY.

    Args:
      broker_address: HOST:PORT.
      topic: has `QUEUE_COUNT` queues or more.
    Raises: PeerError: at the end of the block, if the connection broke or a send failed.
    """

    def __init__(self, broker_address: str, topic: str) -> None:
        self.latencies_ms: list[float] = []
        self.refused = 0
        self._address = broker_address
        self._topic = topic
        self._due_s: dict[int, float] = {}
        self._received = bytearray()
        self._stopping = threading.Event()
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="send-probe")
        self._done: Future[None] | None = None

    def __enter__(self) -> SendProbe:
        self._done = self._executor.submit(self._run)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopping.set()
        self._executor.shutdown()
        if kind is None and self._done is not None:
            self._done.result()

    def _run(self) -> None:
        try:
            with connect(socket_address(self._address)) as connection:
                self._send_at_rate(connection)
                end_s = time.perf_counter() + LAST_ANSWERS_S
                while self._due_s and time.perf_counter() < end_s:
                    self._receive(connection, until_s=time.perf_counter() + 1 / RATE_PER_S)
            now_s = time.perf_counter()
            self.latencies_ms += [(now_s - due_s) * 1000 for due_s in self._due_s.values()]
        except (OSError, BadAnswerError) as error:
            raise PeerError(f"the probe of {self._address} failed: {error}") from error

    def _send_at_rate(self, connection: socket.socket) -> None:
        template = SendTemplate.for_topic(self._topic, queue_count=QUEUE_COUNT)
        start_s = time.perf_counter()
        number = 0
        while not self._stopping.is_set():
            due_s = start_s + number / RATE_PER_S
            self._receive(connection, until_s=due_s)
            self._due_s[template.opaque_next] = due_s
            connection.sendall(template.next_frames(1))
            number += 1

    def _receive(self, connection: socket.socket, *, until_s: float) -> None:
        """Take the answers that arrive until a time."""
        while (rest_s := until_s - time.perf_counter()) > 0:
            if not select.select([connection], [], [], rest_s)[0]:
                return
            received = connection.recv(RECEIVE_SIZE_BYTES)
            if not received:
                raise ConnectionResetError("the broker closed the connection")
            now_s = time.perf_counter()
            self._received += received
            opaques, refused = take_answers(self._received)
            self.latencies_ms += [(now_s - self._due_s.pop(opaque)) * 1000 for opaque in opaques]
            for opaque in refused:
                del self._due_s[opaque]
            self.refused += len(refused)


def main(broker_address: str, topic: str, seconds: str) -> None:
    """Send for some seconds, or until a line comes, and print the latencies. Raises: PeerError."""
    ended = threading.Event()

    def read_line() -> None:
        if sys.stdin.readline():  # "" is the end of the input, which says nothing
            ended.set()

    threading.Thread(target=read_line, daemon=True).start()
    with SendProbe(broker_address, topic) as probe:
        ended.wait(float(seconds))
    print(json.dumps(probe.latencies_ms))


if __name__ == "__main__":
    main(*sys.argv[1:])
