"""What a broker's connections cost, by their number."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Final

from trocket.bench.frames import OPAQUE_FIRST
from trocket.bench.kit import resident_mb, running
from trocket.bench.scale_curve import Curve
from trocket.bench.scale_meter import (
    Caller,
    Curves,
    Pace,
    Task,
    cpu_percent,
    cpu_s,
    probed,
    wait_until_quiet,
)
from trocket.bench.scale_tables import (
    BROKER_KEYS,
    PROBE,
    PROBE_QUEUES,
    create_topics,
    heartbeat,
)
from trocket.common.process import raise_open_files_limit
from trocket.interop.trocket_peer import TrocketPair

GROUP_SIZE: Final = 10
"""Consumers of a group: each that joins is a notice to all others of it."""
HEARTBEAT_S: Final = 30.0
"""Between two heartbeats of a client, as clients of RocketMQ have it by default."""
IN_FLIGHT: Final = 64
"""Connections that wait for the answer to a heartbeat."""
TICK_S: Final = 0.05


class Crowd:
    """Connected consumers, ten in a group, that do nothing but send heartbeats."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._callers: list[Caller] = []
        self._frames: list[bytes] = []
        self._next = 0

    def join(self, numbers: Iterable[int]) -> None:
        """Connect consumers, each in the group of its number; each sends its first heartbeat."""
        for number in numbers:
            caller = Caller(self._address)
            beat = heartbeat(number, number // GROUP_SIZE, PROBE)
            self._callers.append(caller)
            self._frames.append(beat.frame(OPAQUE_FIRST))
            caller.call(beat)

    def close(self) -> None:
        for caller in self._callers:
            caller.socket.close()

    def beat(self, count: int) -> None:
        """Send `count` heartbeats, of one connection after the other, and take the answers."""
        while count > 0:
            some = self._places(min(count, IN_FLIGHT, len(self._callers)))
            for place in some:
                self._callers[place].socket.sendall(self._frames[place])
            for place in some:
                self._callers[place].receive(1)
            count -= len(some)

    def _places(self, count: int) -> Sequence[int]:
        size, first = len(self._callers), self._next
        self._next = (first + count) % size
        return [place % size for place in range(first, first + count)]

    def beat_as_usual(self, seconds: float) -> None:
        """Send each connection's heartbeat once in 30 s, evenly spread, for some seconds."""
        begin_s, done = time.perf_counter(), 0
        while (passed_s := time.perf_counter() - begin_s) < seconds:
            due = int(len(self._callers) * passed_s / HEARTBEAT_S)
            if due > done:
                self.beat(due - done)
                done = due
            time.sleep(TICK_S)


def connections(task: Task) -> list[Curve]:
    """A broker with more and more connections of consumers in groups of ten.

    Both ends are on this machine, so each process needs a descriptor for each of them.
    """
    raise_open_files_limit()
    curves, pace = task.curves("connections of the broker"), task.pace
    with running(TrocketPair(task.folder, broker_keys=BROKER_KEYS)) as cluster:
        pid, address = cluster.pids[0], cluster.broker_address
        with Caller(address) as caller:
            create_topics(caller, [PROBE], PROBE_QUEUES)
        bare_mb, known = resident_mb(pid), 0
        crowd = Crowd(address)
        try:
            for size in task.sizes:
                _grow(curves, pid, crowd, known, size)
                known = size
                time.sleep(pace.rest_s)
                crowd_mb = resident_mb(pid) - bare_mb
                curves.add("memory above that of none", "MB", 1, size, crowd_mb)
                _measure(curves, pid, address, crowd, size, pace)
        finally:
            crowd.close()
    return curves.all()


def _grow(curves: Curves, pid: int, crowd: Crowd, known: int, size: int) -> None:
    """Connect the first member of each new group, which makes the group, then the others."""
    firsts = [number for number in range(known, size) if number % GROUP_SIZE == 0]
    others = [number for number in range(known, size) if number % GROUP_SIZE]
    if firsts:
        before_s = cpu_s(pid)
        crowd.join(firsts)
        wait_until_quiet(pid)  # tables are saved with the new groups, and topics are registered
        group_us = (cpu_s(pid) - before_s) * 1e6 / len(firsts)
        curves.add("a new group, with its first connection", "µs CPU", 1, size, group_us)
    if others:
        before_s = cpu_s(pid)
        crowd.join(others)
        joined_us = (cpu_s(pid) - before_s) * 1e6 / len(others)
        curves.add("a further connection, with its first heartbeat", "µs CPU", 0, size, joined_us)


def _measure(curves: Curves, pid: int, address: str, crowd: Crowd, size: int, pace: Pace) -> None:
    beats = max(pace.count, size)
    costs = []
    for _ in range(pace.rounds):
        before_s = cpu_s(pid)
        crowd.beat(beats)
        costs.append((cpu_s(pid) - before_s) * 1e6 / beats)
    curves.add("a heartbeat", "µs CPU", 0, size, costs)
    curves.add("idle, without heartbeats", "% CPU", 1, size, cpu_percent(pid, pace.seconds))
    probes = [
        probed(pid, address, PROBE, pace.seconds, crowd.beat_as_usual) for _ in range(pace.rounds)
    ]
    busy = [each.cpu_percent for each in probes]
    curves.add("with heartbeats and 50 sends a second", "% CPU", 1, size, busy)
    curves.add_probes("those sends", size, probes)
