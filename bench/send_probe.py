"""A probe that sends at a low fixed rate beside a load: the latency that one more client sees.

The official benchmark programs print the mean and the maximum of their send times, not a
percentile. Latencies are counted from the time at which a send was due, not from when it was made:
a broker that stalls also delays the sends that were due meanwhile. The probe is a thread of the
bench and competes for the CPU like any other client, so its latencies include the time it waits for
a core.
"""

from __future__ import annotations

import threading
import time
from types import TracebackType

from trocket.interop.process import PeerError
from trocket.interop.wire import SUCCESS, Outgoing, WireClient

RATE_PER_S = 50.0
"""Enough for a p99 over half a minute (15 slower sends), and some 2 % of a core."""

BODY = bytes(128)
TIMEOUT_S = 10.0
STOP_TIMEOUT_S = 2 * TIMEOUT_S
QUEUE_COUNT = 4


class SendProbe:
    """Sends to one topic while its block runs; not reusable.

    Attributes:
      latencies_ms: of the sends that succeeded, in the order of sending.
      refused: sends that were answered with another code, such as SYSTEM_BUSY.

    Args:
      broker_address: HOST:PORT.
      topic: has `QUEUE_COUNT` queues or more.
    Raises: PeerError: at the end of the block, if the broker did not answer.
    """

    def __init__(self, broker_address: str, topic: str) -> None:
        self.latencies_ms: list[float] = []
        self.refused = 0
        self._address = broker_address
        self._topic = topic
        self._stopping = threading.Event()
        self._error: PeerError | None = None
        self._thread = threading.Thread(target=self._run, name="send-probe", daemon=True)

    def __enter__(self) -> SendProbe:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopping.set()
        self._thread.join(STOP_TIMEOUT_S)
        if kind is None and self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            with WireClient(self._address, timeout_s=TIMEOUT_S) as wire:
                self._send_at_rate(wire)
        except PeerError as error:
            self._error = error

    def _send_at_rate(self, wire: WireClient) -> None:
        start_s = time.perf_counter()
        number = 0
        while True:
            due_s = start_s + number / RATE_PER_S
            if self._stopping.wait(max(0.0, due_s - time.perf_counter())):
                return
            wire.start_send(Outgoing(self._topic, number % QUEUE_COUNT, BODY))
            _, answer = wire.receive()
            if answer.code == SUCCESS:
                self.latencies_ms.append((time.perf_counter() - due_s) * 1000)
            else:
                self.refused += 1
            number += 1
