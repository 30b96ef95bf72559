"""Measures of the benchmarks of scale: CPU for each request, idle CPU, memory, pauses.

Requests are sent as prepared frames over plain sockets, a number of them in flight, so that this
process takes less CPU than the server that is measured.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from trocket.bench.frames import ROCKETMQ_TYPE, build_frame
from trocket.bench.kit import percentiles, socket_address
from trocket.bench.load import FIRST_TIMEOUT_S, RECEIVE_SIZE_BYTES, connect
from trocket.bench.scale_curve import Curve, Point
from trocket.interop.process import LineProcess, PeerError
from trocket.interop.usage import cpu_seconds
from trocket.remoting.codec import FrameDecoder

IN_FLIGHT: Final = 32
PROBE_TIMEOUT_S: Final = 60.0
"""For the end of a probe, on a busy machine."""

QUIET_PERCENT: Final = 10.0
QUIET_S: Final = 2.0
QUIET_TIMEOUT_S: Final = 300.0
"""For the files of 50,000 queues on a busy disk."""

DECADE: Final = 10
DECADES: Final = 3

_SCHEDULER: Final = 2
"""CPUCLOCK_SCHED in the kernel's numbers of clocks: all time that a process ran."""


def cpu_s(pid: int) -> float:
    """CPU seconds of a process and all threads that it ever had, by the kernel's clock of it.

    That counts nanoseconds, where /proc counts ticks of 10 ms.

    Raises: PeerError: there is no such process.
    """
    try:
        return time.clock_gettime(~pid << 3 | _SCHEDULER)
    except OSError:  # another system, or no such process
        return cpu_seconds(pid)


@dataclass(frozen=True)
class Pace:
    """How long and how often things are measured.

    Attributes:
      seconds: of each measurement over a time.
      rest_s: before it; the checkpoint, which makes the files of new queues, comes after ten
        seconds.
      count: requests of a round.
      rounds: of each cost of a request, or of each start: the median, the smallest and the largest
        stand in a point.
      settle_s: after a request, until its consequences have been paid for.
    """

    seconds: float
    rest_s: float
    count: int
    rounds: int
    settle_s: float


Found: TypeAlias = Callable[[Curve], None]
"""Is called with a curve each time that it has a new point, the last of its points."""


@dataclass(frozen=True)
class Task:
    """What a part of the benchmark of a broker measures.

    Attributes:
      sizes: each larger than the one before.
      folder: for all files; it does not exist yet.
      peers: that are started; only by the parts that compare starts.
      found: see `Found`.
    """

    sizes: Sequence[int]
    folder: Path
    pace: Pace
    peers: Sequence[str]
    found: Found

    def curves(self, per: str) -> Curves:
        """No curves yet, by the number that is named."""
        return Curves(per, self.found)


class Request(NamedTuple):
    """A request: its code, its fields, and its body."""

    code: int
    fields: Mapping[str, object]
    body: bytes = b""

    def frame(self, opaque: int) -> bytes:
        """The bytes to send."""
        texts = {name: str(value) for name, value in self.fields.items()}
        return build_frame(self.code, texts, self.body, opaque=opaque, serialize_type=ROCKETMQ_TYPE)


class RefusedError(Exception):
    """An answer had another code than success."""


def sizes(most: int, *, least: int = 1) -> tuple[int, ...]:
    """Sizes over three decades up to `most`, each a tenth of the next; none is below `least`."""
    found = [most // DECADE**power for power in range(DECADES, -1, -1)]
    return tuple(dict.fromkeys(max(each, least) for each in found))


def doublings(most: int) -> tuple[int, ...]:
    """1, 2, 4, … up to `most`."""
    return tuple(1 << power for power in range(most.bit_length()))


class Caller:
    """One connection of a client.

    Args:
      address: HOST:PORT.
    """

    def __init__(self, address: str) -> None:
        self.socket: socket.socket = connect(socket_address(address), timeout_s=FIRST_TIMEOUT_S)
        self._decoder = FrameDecoder()
        self._opaque = 0

    def __enter__(self) -> Caller:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, requests: Iterable[Request]) -> int:
        """Send requests without waiting for their answers; returns how many there were."""
        frames = []
        for request in requests:
            self._opaque += 1
            frames.append(request.frame(self._opaque))
        self.socket.sendall(b"".join(frames))
        return len(frames)

    def receive(self, count: int) -> None:
        """Wait for this number of answers; requests from the server are passed over.

        Raises: RefusedError: an answer says no. OSError: the connection broke.
          RemoteProtocolError: an answer is none.
        """
        while count > 0:
            data = self.socket.recv(RECEIVE_SIZE_BYTES)
            if not data:
                raise ConnectionError("the server closed the connection")
            for command in self._decoder.receive_data(data):
                if command.is_response:
                    if command.code:
                        raise RefusedError(f"code {command.code}: {command.remark}")
                    count -= 1
            if self._decoder.error is not None:
                raise self._decoder.error

    def call(self, *requests: Request) -> None:
        """Send requests and wait for all answers. Raises: as `receive`."""
        self.receive(self.send(requests))

    def call_all(self, requests: Iterable[Request], in_flight: int = IN_FLIGHT) -> None:
        """The same for any number of requests, `in_flight` at a time. Raises: as `receive`."""
        rest = iter(requests)
        while some := list(islice(rest, in_flight)):
            self.call(*some)


def cpu_us(pid: int, caller: Caller, requests: Callable[[int], Request], pace: Pace) -> list[float]:
    """Microseconds of a process's CPU for each request, in each round.

    Args:
      requests: makes the request of a number, 0 to `pace.count` - 1.
    Raises: as `Caller.receive`.
    """
    found, count = [], pace.count
    for _ in range(pace.rounds):
        before_s = cpu_s(pid)
        caller.call_all(map(requests, range(count)))
        found.append((cpu_s(pid) - before_s) * 1e6 / count)
    return found


def cpu_percent(pid: int, seconds: float) -> float:
    """Percent of one core that a process uses, measured for some seconds."""
    before_s, begin_s = cpu_s(pid), time.perf_counter()
    time.sleep(seconds)
    return 100 * (cpu_s(pid) - before_s) / (time.perf_counter() - begin_s)


def with_a_core_each(grows_as: float | None, processes: int) -> float | None:
    """A claim that holds while each process has a core; None: there are fewer of them.

    Processes that share a core serve fewer requests at a time, and share its caches.
    """
    return grows_as if processes <= (os.cpu_count() or 1) else None


def wait_until_quiet(pid: int) -> None:
    """Wait until a process has paid for what it was asked: it uses a tenth of a core or less.

    Raises: TimeoutError: it does not come to rest.
    """
    end_s = time.monotonic() + QUIET_TIMEOUT_S
    while cpu_percent(pid, QUIET_S) > QUIET_PERCENT:
        if time.monotonic() > end_s:
            raise TimeoutError(f"process {pid} uses more than {QUIET_PERCENT:g} % of a core")


class Probed(NamedTuple):
    """A broker with one producer, which sends 50 messages a second.

    Attributes:
      cpu_percent: of the broker, of one core.
      p99_ms, max_ms: how long a send took.
    """

    cpu_percent: float
    p99_ms: float
    max_ms: float


def probed(
    pid: int, address: str, topic: str, seconds: float, meanwhile: Callable[[float], None] | None
) -> Probed:
    """Measure a broker while a producer in another process sends to a topic with four queues.

    Args:
      meanwhile: called with `seconds`; when it returns, the producer ends. None: nothing else
        happens.

    Raises: PeerError: the producer failed.
    """
    command = [sys.executable, "-m", "trocket.bench.send_probe", address, topic, str(seconds)]
    with tempfile.TemporaryDirectory() as folder:
        probe = LineProcess(command, folder=Path(folder), name="probe")
        try:
            before_s, begin_s = cpu_s(pid), time.perf_counter()
            (meanwhile or time.sleep)(seconds)
            share = 100 * (cpu_s(pid) - before_s) / (time.perf_counter() - begin_s)
            with contextlib.suppress(PeerError):  # its time is over, too
                probe.write_line("end")
            line = probe.wait_line(
                lambda line: line.startswith("["), timeout_s=seconds + PROBE_TIMEOUT_S
            )
        finally:
            probe.kill()
    found = percentiles(json.loads(line))
    return Probed(share, found.p99, found.most)


class Curves:
    """Curves that grow by a point at each size.

    Args:
      per: names the number, as `Curve` has it.
      found: is called with the curve after each point that is added.
    """

    def __init__(self, per: str, found: Found) -> None:
        self._per = per
        self._found = found
        self._curves: dict[str, Curve] = {}

    def add(
        self,
        what: str,
        unit: str,
        grows_as: float | None,
        size: int,
        costs: float | Sequence[float],
    ) -> None:
        """Add a point; `what`, `unit` and `grows_as` as `Curve` has them."""
        values = [costs] if isinstance(costs, (int, float)) else costs
        self.add_point(what, unit, grows_as, Point.of(size, values))

    def add_point(self, what: str, unit: str, grows_as: float | None, point: Point) -> None:
        """Add a point that is made already."""
        known = self._curves.get(what)
        points = (point,) if known is None else (*known.points, point)
        self._curves[what] = Curve(what, self._per, unit, grows_as, points)
        self._found(self._curves[what])

    def add_probes(self, of_sends: str, size: int, probes: Sequence[Probed]) -> None:
        """Add points of the p99 and of the slowest send of some windows.

        Of 50 sends a second a window has few slow ones, so one window says little.
        """
        self.add(f"p99 of {of_sends}", "ms", 0, size, [each.p99_ms for each in probes])
        self.add(f"slowest of {of_sends}", "ms", 1, size, [each.max_ms for each in probes])

    def all(self) -> list[Curve]:
        """The curves, in the order of their first points."""
        return list(self._curves.values())
