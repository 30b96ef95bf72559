"""How late a message returns whose acknowledgement was lost; for `bench/pop.py`.

Messages are sent a quarter of a second apart, so that they become due at any moment of the broker's
rounds. A consumer pops them in a long poll and does not acknowledge; it notes for each how long
after its invisible time it comes again.
"""

from __future__ import annotations

import json
import socket
import struct
import time
from typing import Final

from trocket.bench.frames import OPAQUE_FIRST
from trocket.bench.pop_load import pop_frame
from trocket.interop.wire import Outgoing, WireClient, split_records
from trocket.remoting.message_codec import decode_record

TOPIC: Final = "PopDelayBench"
INVISIBLE_MS: Final = 5_000
POLL_MS: Final = 5_000
SEND_INTERVAL_S: Final = 0.25
GIVE_UP_S: Final = 60.0
"""After the last send."""

_HEAD = struct.Struct(">ii")


def measure_delays(address: str, *, group: str, messages: int) -> list[float]:
    """Delays in seconds after the invisible times, in ascending order.

    Args:
      address: HOST:PORT of the broker.

    Raises: TimeoutError: a message did not return in a minute. PeerError, OSError.
    """
    with WireClient(address) as producer, _Popper(address, group) as popper:
        producer.create_topic(TOPIC, queue_count=4)
        popper.pop()
        start_s = time.monotonic()
        sent = 0
        while len(popper.delays_s) < messages:
            elapsed_s = time.monotonic() - start_s
            if sent < messages and elapsed_s >= sent * SEND_INTERVAL_S:
                body = b"%d %d" % (time.time_ns(), sent)
                producer.send_all([Outgoing(TOPIC, sent % 4, body)])
                sent += 1
            popper.wait(SEND_INTERVAL_S / 5)
            if elapsed_s > messages * SEND_INTERVAL_S + GIVE_UP_S:
                raise TimeoutError(
                    f"{len(popper.delays_s)} of {messages} messages returned in a minute"
                )
    return sorted(popper.delays_s)


class _Popper:
    """A consumer that acknowledges nothing.

    Attributes:
      delays_s: of the messages that came again.
    """

    def __init__(self, address: str, group: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=10.0)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._group = group
        self._incoming = bytearray()
        self._due_ms: dict[bytes, int] = {}
        self.delays_s: list[float] = []

    def __enter__(self) -> _Popper:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def pop(self) -> None:
        """Send a pop."""
        frame = pop_frame(
            self._group, opaque=OPAQUE_FIRST, invisible_ms=INVISIBLE_MS, topic=TOPIC,
            poll_ms=POLL_MS,
        )  # fmt: skip
        self._socket.sendall(frame)

    def wait(self, seconds: float) -> None:
        """Take the answer if it comes in this time, and pop again."""
        self._socket.settimeout(seconds)
        try:
            data = self._socket.recv(1 << 18)
        except TimeoutError:
            return
        finally:
            self._socket.settimeout(10.0)
        if not data:
            raise ConnectionError("the broker closed the connection")
        self._incoming += data
        if len(self._incoming) < _HEAD.size:
            return
        length, mark = _HEAD.unpack_from(self._incoming)
        if 4 + length > len(self._incoming):
            return
        now_ms = time.time_ns() / 1e6
        end = 8 + (mark & 0xFFFFFF)
        header = json.loads(self._incoming[8:end])
        body = bytes(self._incoming[end : 4 + length])
        del self._incoming[: 4 + length]
        if header["code"] == 0:
            due_ms = int(header["extFields"]["popTime"]) + INVISIBLE_MS
            for record in split_records(body):
                message = decode_record(record)
                first = self._due_ms.pop(message.body, None)
                if message.reconsume_times == 0:
                    self._due_ms[message.body] = due_ms
                elif first is not None and message.reconsume_times == 1:
                    self.delays_s.append((now_ms - first) / 1000)
        self.pop()
