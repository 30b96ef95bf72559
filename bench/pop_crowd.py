"""Waiting pops and invisible messages at once: memory of the broker, latency of one more client.

    python -m trocket.bench.pop_crowd
    python -m trocket.bench.pop_crowd --waiting 2000 --invisible 10000 --seconds 10 --json

100,000 messages are popped and not acknowledged, with an invisible time that outlasts the bench.
10,000 pops wait on 100 connections, over 20 topics and 50 groups; each that is answered because its
time is over comes again at once, as consumers do. Beside them a probe has a pop waiting, sends a
message at a steady rate, gets it by the pop, and acknowledges it. It is measured before and with
the crowd. Broker and probe run in separate processes, this process runs all
other clients.

The exit status is 1 if a message was lost or a pop refused, or if the p99 of the probe's cycle is
above `--limit-ms`.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import trio
import typer
from rich.console import Console

from trocket.bench.crowd import (
    IN_FLIGHT,
    PROPERTIES,
    QUEUES,
    Peer,
    answer_code,
    create_topic,
    until,
)
from trocket.bench.frames import send_fields
from trocket.bench.kit import Columns, make_cluster, percentile, resident_mb, running, show
from trocket.bench.pop_probe import BODY, POLL_MS, TOPIC, Times, pop_fields
from trocket.client.errors import ClientError
from trocket.interop.usage import cpu_seconds
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.receipt import decode_offsets
from trocket.remoting.request_codes import RequestCode as Code
from trocket.remoting.response_codes import ResponseCode

CONNECTIONS = 100
TOPICS = 20
GROUPS = 50
"""1,000 topics and groups in all: ten pops wait for each, as of a group with ten clients."""
INVISIBLE_MS = 3_600_000
SETTLE_S = 12.0
"""Check points wait in memory for ten seconds before they are stored."""


@dataclass
class Phase:
    """What was measured in one phase.

    Attributes:
      waiting, invisible: pops that wait, as the broker counts them; messages popped and not
        acknowledged.
      rss_mb: the broker's resident memory at the end of the phase.
      cpu_percent: of one core, the broker.
      probes: cycles of the probe.
      p50_ms, p99_ms, max_ms: from the begin of the send until the message is acknowledged.
      send_p99_ms, arrive_p99_ms, ack_p99_ms: until the send is answered; from then until the pop
        is answered; of the acknowledgement.
    """

    phase: str
    waiting: int
    invisible: int
    rss_mb: float
    cpu_percent: float
    probes: int
    p50_ms: float
    p99_ms: float
    max_ms: float
    send_p99_ms: float
    arrive_p99_ms: float
    ack_p99_ms: float


class Crowd:
    """The waiting pops: each comes again when its time is over.

    Attributes:
      answers: by code; only those of pops whose time is over are right.
    """

    def __init__(self) -> None:
        self.answers: Counter[int] = Counter()
        self._ends = False

    def start(self, peers: list[Peer], count: int) -> None:
        """Have this number of pops wait, spread over peers, topics and groups."""
        for number in range(count):
            topic, group = number % TOPICS, number // TOPICS % GROUPS
            self._pop(peers[number % len(peers)], f"crowd-{group}", f"Crowd-{topic}")

    def end(self) -> None:
        """Let no pop come again; further answers are not counted."""
        self._ends = True

    def _pop(self, peer: Peer, group: str, topic: str) -> None:
        def take(answer: RemotingCommand | ClientError) -> None:
            if self._ends:
                return  # and so do the connections
            self.answers[answer_code(answer)] += 1
            self._pop(peer, group, topic)

        fields = pop_fields(group, topic, poll_ms=POLL_MS)
        peer.submit(RemotingCommand(Code.POP_MESSAGE, fields, b""), take)


async def waiting_pops(peer: Peer) -> int:
    """The crowd's waiting pops, as the broker counts them."""
    count = 0
    for topic in range(TOPICS):
        for group in range(GROUPS):
            fields = {
                "topic": f"Crowd-{topic}",
                "consumerGroup": f"crowd-{group}",
                "queueId": -1,
            }
            answer = await peer.ask(Code.POLLING_INFO, fields)
            count += int(answer.ext_fields.get("pollingNum", 0))
    return count


async def store(peer: Peer, topic: str, count: int) -> None:
    """Store messages, IN_FLIGHT sends at a time."""
    open_sends = trio.Semaphore(IN_FLIGHT)

    def take(answer: RemotingCommand | ClientError) -> None:
        if answer_code(answer):
            raise RuntimeError(f"a send was refused: {answer}")
        open_sends.release()

    for number in range(count):
        await open_sends.acquire()
        fields = send_fields("crowd", topic, number % QUEUES, PROPERTIES.format(number))
        peer.submit(RemotingCommand(Code.SEND_MESSAGE_V2, fields, BODY), take)
    await until(lambda: open_sends.value == IN_FLIGHT, every_s=0.01)


async def pop_all(peer: Peer, topic: str, count: int) -> int:
    """Pop messages and acknowledge none; return their number."""
    popped = 0
    while popped < count:
        fields = pop_fields("hidden", topic, poll_ms=0, invisible_ms=INVISIBLE_MS)
        answer = await peer.ask(Code.POP_MESSAGE, fields)
        if answer.code:
            break
        popped += sum(map(len, decode_offsets(answer.ext_fields["msgOffsetInfo"]).values()))
    return popped


async def probe(address: str, seconds: float) -> Times:
    """Run the probe in a separate process. Raises: CalledProcessError: it failed."""
    command = [sys.executable, "-m", "trocket.bench.pop_probe", address, "--seconds", str(seconds)]
    done = await trio.run_process(command, capture_stdout=True)
    return Times(**json.loads(done.stdout))


async def measure(
    address: str,
    pid: int,
    *,
    waiting: int,
    invisible: int,
    seconds: float,
    settle_s: float = SETTLE_S,
) -> tuple[list[Phase], Counter[int]]:
    """Measure without and with the crowd; return also the answers to the crowd's pops by code."""
    crowd = Crowd()
    phases: list[Phase] = []

    async def phase(name: str, hidden: int = 0, *, crowded: bool = False) -> None:
        cpu_s, begin_s = cpu_seconds(pid), time.perf_counter()
        times = await probe(address, seconds)
        share = 100 * (cpu_seconds(pid) - cpu_s) / (time.perf_counter() - begin_s)
        count = await waiting_pops(admin) if crowded else 0
        phases.append(phase_of(name, times, count, hidden, resident_mb(pid), share))

    async with trio.open_nursery() as nursery:
        admin = await Peer.connect(address, nursery)
        for topic in (TOPIC, "Hidden", *(f"Crowd-{number}" for number in range(TOPICS))):
            await create_topic(admin, topic, QUEUES)
        await phase("alone")
        await store(admin, "Hidden", invisible)
        hidden = await pop_all(admin, "Hidden", invisible)
        await trio.sleep(settle_s)
        await phase("invisible messages", hidden)
        peers = [await Peer.connect(address, nursery) for _ in range(CONNECTIONS)]
        crowd.start(peers, waiting)
        await trio.sleep(2.0)
        await phase("and waiting pops", hidden, crowded=True)
        crowd.end()
        nursery.cancel_scope.cancel()
    return phases, crowd.answers


def phase_of(
    name: str, times: Times, waiting: int, invisible: int, rss_mb: float, cpu_percent: float
) -> Phase:
    """The figures of a phase."""

    def ms(values: list[float], share: float) -> float:
        return percentile(sorted(values), share) * 1000

    return Phase(
        phase=name,
        waiting=waiting,
        invisible=invisible,
        rss_mb=rss_mb,
        cpu_percent=cpu_percent,
        probes=len(times.cycles),
        p50_ms=ms(times.cycles, 0.50),
        p99_ms=ms(times.cycles, 0.99),
        max_ms=max(times.cycles) * 1000,
        send_p99_ms=ms(times.sends, 0.99),
        arrive_p99_ms=ms(times.arrivals, 0.99),
        ack_p99_ms=ms(times.acks, 0.99),
    )


COLUMNS: Columns[Phase] = {
    "phase": lambda one: one.phase,
    "waiting pops": lambda one: f"{one.waiting:,}",
    "invisible": lambda one: f"{one.invisible:,}",
    "RSS MB": lambda one: f"{one.rss_mb:.0f}",
    "CPU %": lambda one: f"{one.cpu_percent:.1f}",
    "probes": lambda one: f"{one.probes:,}",
    "p50 ms": lambda one: f"{one.p50_ms:.2f}",
    "p99 ms": lambda one: f"{one.p99_ms:.2f}",
    "max ms": lambda one: f"{one.max_ms:.1f}",
    "p99 send": lambda one: f"{one.send_p99_ms:.2f}",
    "p99 arrival": lambda one: f"{one.arrive_p99_ms:.2f}",
    "p99 ack": lambda one: f"{one.ack_p99_ms:.2f}",
}


def main(
    waiting: Annotated[int, typer.Option(min=0, help="Have this number of pops wait.")] = 10_000,
    invisible: Annotated[
        int, typer.Option(min=0, help="Pop this number of messages without acknowledgement.")
    ] = 100_000,
    seconds: Annotated[float, typer.Option(min=1, help="Measure each phase so long.")] = 30.0,
    limit_ms: Annotated[float, typer.Option(help="Fail if the probe's p99 is above this.")] = 50.0,
    peer: Annotated[str, typer.Option(help="Measure trocket or apache-VERSION.")] = "trocket",
    json_: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Measure memory and latency with waiting pops and invisible messages."""
    with (
        tempfile.TemporaryDirectory(prefix="trocket-pop-crowd-") as folder,
        Console(stderr=True).status(f"{waiting:,} waiting pops, {invisible:,} invisible messages"),
        running(make_cluster(peer, Path(folder) / "cluster")) as cluster,
    ):
        phases, answers = trio.run(
            partial(measure, waiting=waiting, invisible=invisible, seconds=seconds),
            cluster.broker_address,
            cluster.pids[0],
        )
    facts = {
        "answers to waiting pops by code": dict(answers),
        "load at the end": os.getloadavg()[0],
        "python": sys.version.split()[0],
    }
    show(phases, COLUMNS, as_json=json_, title=f"pop crowd: {peer}", facts=facts)
    last = phases[-1]
    is_right = (
        last.invisible == invisible
        and last.waiting >= waiting * 9 // 10
        and set(answers) <= {int(ResponseCode.POLLING_TIMEOUT)}
        and last.p99_ms <= limit_ms
    )
    if not is_right:
        Console(stderr=True).print(f"not as it should be: answers {dict(answers)}, {last}")
    raise typer.Exit(not is_right)


if __name__ == "__main__":
    typer.run(main)
