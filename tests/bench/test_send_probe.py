"""The probe's latencies count from the time a send was due, and its refusals are apart."""

from __future__ import annotations

import json
import socket
import struct
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from trocket.bench.send_probe import RATE_PER_S, SendProbe
from trocket.interop.process import LineProcess, PeerError

BUSY = 2
DEADLINE_S = 20.0
INTERVAL_MS = 1000 / RATE_PER_S
FIXED = struct.Struct(">iihBhiii")


class Broker:
    """Receives as many requests as it has codes, then answers them in turn, and no others.

    Args:
      newest_first: answer the last request with the first code.
      as_json: answer with headers in JSON, as Apache's broker does.

    Attributes:
      answered, ignored: set when it has answered, and when a further request arrives.
    """

    def __init__(
        self, codes: list[int], *, newest_first: bool = False, as_json: bool = False
    ) -> None:
        self._codes = codes
        self._newest_first = newest_first
        self._as_json = as_json
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.answered = threading.Event()
        self.ignored = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._listener.close()
        self._thread.join(DEADLINE_S)

    def _serve(self) -> None:
        connection, _ = self._listener.accept()
        with connection, connection.makefile("rb") as stream:
            opaques = []
            for _ in self._codes:
                length, *_, opaque, _, _ = FIXED.unpack(stream.read(FIXED.size))
                stream.read(length + 4 - FIXED.size)
                opaques.append(opaque)
            if self._newest_first:
                opaques.reverse()
            for code, opaque in zip(self._codes, opaques, strict=True):
                connection.sendall(self._answer(code, opaque))
            self.answered.set()
            while stream.read(1):
                self.ignored.set()

    def _answer(self, code: int, opaque: int) -> bytes:
        if self._as_json:
            members = {"code": code, "flag": 1, "opaque": opaque}
            header = json.dumps(members, separators=(",", ":")).encode()
            return struct.pack(">ii", 4 + len(header), len(header)) + header
        size = FIXED.size - 8 + 4
        return FIXED.pack(4 + size, 1 << 24 | size, code, 0, 0, opaque, 1, 0) + bytes(4)


@pytest.fixture
def brokers() -> Iterator[list[Broker]]:
    found: list[Broker] = []
    yield found
    for broker in found:
        broker.close()


@pytest.mark.slow
def test_a_stall_delays_every_send_that_was_due_meanwhile(brokers: list[Broker]) -> None:
    broker = Broker([0] * 10)
    brokers.append(broker)
    with SendProbe(broker.address, "Probe") as probe:
        assert broker.answered.wait(DEADLINE_S)
    # All ten are answered after the tenth has arrived: the first has waited for nine intervals.
    for number, waited_ms in enumerate(probe.latencies_ms[:10]):
        assert waited_ms >= (9 - number) * INTERVAL_MS


@pytest.mark.slow
@pytest.mark.parametrize("newest_first", [False, True])
@pytest.mark.parametrize("as_json", [False, True])
def test_refusals_are_counted_and_have_no_latency(
    brokers: list[Broker], newest_first: bool, as_json: bool
) -> None:
    broker = Broker([BUSY, 0, BUSY], newest_first=newest_first, as_json=as_json)
    brokers.append(broker)
    with SendProbe(broker.address, "Probe") as probe:
        assert broker.answered.wait(DEADLINE_S)
    assert probe.refused == 2


@pytest.mark.slow
def test_sends_without_an_answer_count_with_the_time_they_waited(brokers: list[Broker]) -> None:
    broker = Broker([0])
    brokers.append(broker)
    with SendProbe(broker.address, "Probe") as probe:
        assert broker.ignored.wait(DEADLINE_S)
    assert max(probe.latencies_ms) > 1000


@pytest.mark.parametrize("code", [1, 14])
def test_another_code_is_an_error(brokers: list[Broker], code: int) -> None:
    broker = Broker([code])
    brokers.append(broker)
    probe = SendProbe(broker.address, "Probe")
    with pytest.raises(PeerError, match=f"code {code}"), probe:
        assert broker.answered.wait(DEADLINE_S)


@pytest.mark.slow
def test_a_line_ends_the_probe_of_a_process(brokers: list[Broker], tmp_path: Path) -> None:
    broker = Broker([0] * 3)
    brokers.append(broker)
    hours = str(3 * 3600.0)
    command = [sys.executable, "-m", "trocket.bench.send_probe", broker.address, "Probe", hours]
    probe = LineProcess(command, folder=tmp_path, name="probe")
    try:
        assert broker.answered.wait(DEADLINE_S)
        probe.write_line("end")
        line = probe.wait_line(lambda line: line.startswith("["), timeout_s=DEADLINE_S)
    finally:
        probe.kill()
    assert len(json.loads(line)) >= 3
