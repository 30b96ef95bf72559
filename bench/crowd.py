"""Load of many clients, timers, long polls or pops at once: latency, and lost messages.

    python -m trocket.bench.crowd                   # all four
    python -m trocket.bench.crowd --case clients --clients 300
    python -m trocket.bench.crowd --case pops --peer apache-5.5.0

clients      1,000 producers and 1,000 consumers over 1,000 topics, all connected: rebalance
             settles, every message is consumed by exactly one member of its group
delayed      100,000 timer messages that are due at one moment
long-polls   100,000 parked pulls
pops         100,000 messages that are popped and not acknowledged; then 10,000 waiting pops on
             100 connections, over 20 topics and 50 groups, which come again when their time is over

In `delayed` and `long-polls` a probe sends one message after the other; its p99 is the result. For
`pops` that is the p99 of a process (`pop_probe.py`) that has a pop waiting, sends a message, gets
it by the pop and acknowledges it: alone, and with each part of the crowd. The broker runs in a
separate process, this process runs all other clients.

The exit status is 1 if a message was lost, doubled or early, if a pop was refused, or if the p99 of
the last cycles is above `--limit-ms`.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from math import inf
from pathlib import Path
from typing import Annotated

import trio
import typer
from rich.console import Console

from trocket.bench import pop_probe
from trocket.bench.crowd_peer import Peer, answer_code, create_topic, until
from trocket.bench.frames import pop_fields, pull_fields, send_fields
from trocket.bench.kit import (
    Columns,
    chosen,
    make_cluster,
    percentiles,
    resident_mb,
    running,
    show,
)
from trocket.client.errors import ClientError
from trocket.interop.peer import Cluster
from trocket.interop.usage import cpu_seconds
from trocket.remoting.bodies import (
    ConsumerData,
    GetConsumerListByGroupResponseBody,
    HeartbeatData,
    ProducerData,
    SubscriptionData,
)
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.message_codec import decode_messages
from trocket.remoting.receipt import decode_offsets
from trocket.remoting.request_codes import RequestCode as Code
from trocket.remoting.response_codes import ResponseCode

QUEUES = 4
GROUP_SIZE = 10
"""Consumers of one group, and topics that it subscribes to."""
MESSAGES_PER_PRODUCER = 20
SETTLE_TIMEOUT_S = 120.0
DELIVER_TIMEOUT_S = 180.0
IN_FLIGHT = 256
PROBE_PAUSE_S = 0.005
POLLS_PER_CONNECTION = 1_000
"""Also the number of queues. It divides the number of pulls."""
CONNECTIONS = 100
TOPICS = 20
GROUPS = 50
"""1,000 topics and groups in all: ten pops wait for each, as of a group with ten clients."""
INVISIBLE_MS = 3_600_000
"""Longer than the bench."""
STORED_S = 12.0
"""Check points wait in memory for ten seconds before they are stored."""
PROPERTIES = "UNIQ_KEY\x01{:032X}\x02WAIT\x01true\x02"


@dataclass
class CrowdResult:
    """The result of one case.

    Attributes:
      is_right: whether no message was lost, duplicated or early.
      seconds: how long the load lasted.
      p50_ms, p99_ms, max_ms: latencies of the probe's sends.
      idle_mb, crowd_mb: the broker's resident memory before and with the crowd.
    """

    case: str
    is_right: bool
    seconds: float
    idle_mb: float
    crowd_mb: float
    broker_cpu_s: float
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    max_ms: float = 0.0
    notes: dict[str, object] = field(default_factory=dict)

    def take(self, times_s: list[float]) -> None:
        """Take the latencies of a probe."""
        self.p50_ms, self.p99_ms, _, self.max_ms = percentiles(times_s, 1000)
        self.notes["probes"] = len(times_s)


class Probe:
    """Sends one small message after the other, and records the latencies."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self.times_s: list[float] = []

    async def run(self) -> None:
        fields = send_fields("crowd", "Probe", 0, PROPERTIES.format(0))
        while True:
            start_s = time.perf_counter()
            answer = await self._peer.ask(Code.SEND_MESSAGE_V2, fields, b"x" * 128)
            if answer.code:
                raise RuntimeError(f"the probe was refused: {answer.remark}")
            self.times_s.append(time.perf_counter() - start_s)
            await trio.sleep(PROBE_PAUSE_S)


# ---- 1,000 and 1,000 -------------------------------------------------------------------------


class Consumer:
    """A member of a group that takes its share of the queues of ten topics."""

    def __init__(self, number: int, address: str, crowd: Crowd) -> None:
        self.client_id = f"consumer-{number:04d}@crowd"
        self.group = f"group-{number // GROUP_SIZE}"
        first = number // GROUP_SIZE * GROUP_SIZE
        self.topics = [f"crowd-{first + each}" for each in range(GROUP_SIZE)]
        self.queues: set[tuple[str, int]] = set()
        self._consuming: set[tuple[str, int]] = set()
        self._address = address
        self._crowd = crowd
        self._changed = trio.Event()

    async def run(self, nursery: trio.Nursery) -> None:
        peer = await Peer.connect(self._address, nursery, self._on_request)
        data = ConsumerData(
            group_name=self.group,
            subscription_data_set=[
                SubscriptionData(topic=topic, sub_string="*", sub_version=1)
                for topic in self.topics
            ],
        )
        beat = HeartbeatData(client_id=self.client_id, consumer_data_set=[data])
        await peer.ask(Code.HEART_BEAT, {}, beat.to_body())
        while True:
            self._changed = trio.Event()
            answer = await peer.ask(Code.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": self.group})
            members = sorted(
                GetConsumerListByGroupResponseBody.from_body(answer.body).consumer_id_list
            )
            self._share(members, peer, nursery)
            await self._changed.wait()

    def _on_request(self, code: int) -> None:
        if code == Code.NOTIFY_CONSUMER_IDS_CHANGED:
            self._crowd.changes += 1
            self._changed.set()

    def _share(self, members: list[str], peer: Peer, nursery: trio.Nursery) -> None:
        """Every tenth queue, as AllocateMessageQueueAveragelyByCircle has it."""
        if self.client_id not in members:
            return
        queues = [(topic, queue) for topic in self.topics for queue in range(QUEUES)]
        mine = set(queues[members.index(self.client_id) :: len(members)])
        # A queue may return while its last pull is still parked; that task then continues.
        for queue in mine - self._consuming:
            nursery.start_soon(self._consume, peer, queue)
        self._consuming |= mine
        self.queues = mine

    async def _consume(self, peer: Peer, queue: tuple[str, int]) -> None:
        offset = 0
        while queue in self.queues:
            fields = pull_fields(self.group, *queue, offset, wait_s=5)
            answer = await peer.ask(Code.PULL_MESSAGE, fields)
            if queue not in self.queues:
                break
            for message in decode_messages(answer.body) if answer.code == 0 else ():
                self._crowd.received[message.unique_key or ""] += 1
            offset = int(answer.ext_fields.get("nextBeginOffset", offset))
        self._consuming.discard(queue)


class Crowd:
    """The sent and received messages of all clients."""

    def __init__(self) -> None:
        self.received: Counter[str] = Counter()
        self.sent: set[str] = set()
        self.changes = 0


async def produce(number: int, address: str, nursery: trio.Nursery, crowd: Crowd) -> None:
    peer = await Peer.connect(address, nursery)
    beat = HeartbeatData(
        client_id=f"producer-{number}@crowd", producer_data_set=[ProducerData(group_name="crowd")]
    )
    await peer.ask(Code.HEART_BEAT, {}, beat.to_body())
    for each in range(MESSAGES_PER_PRODUCER):
        key = f"{number * MESSAGES_PER_PRODUCER + each:032X}"
        properties = f"UNIQ_KEY\x01{key}\x02"
        fields = send_fields("crowd", f"crowd-{number}", each % QUEUES, properties)
        answer = await peer.ask(Code.SEND_MESSAGE_V2, fields, b"x" * 128)
        if answer.code == 0:
            crowd.sent.add(key)


async def clients(cluster: Cluster, count: int) -> list[CrowdResult]:
    """`count` producers and as many consumers at once."""
    pid, address = cluster.pids[0], cluster.broker_address
    idle_mb, cpu_s, start_s = resident_mb(pid), cpu_seconds(pid), time.perf_counter()
    crowd = Crowd()
    async with trio.open_nursery() as nursery:
        admin = await Peer.connect(address, nursery)
        for number in range(count):
            await create_topic(admin, f"crowd-{number}", QUEUES)
        consumers = [Consumer(number, address, crowd) for number in range(count)]
        joined_s = time.perf_counter()
        for consumer in consumers:
            nursery.start_soon(consumer.run, nursery)
        with trio.fail_after(SETTLE_TIMEOUT_S):
            await until(lambda: is_settled(consumers))
        settled_s = time.perf_counter() - joined_s
        async with trio.open_nursery() as producers:
            for number in range(count):
                producers.start_soon(produce, number, address, nursery, crowd)
        with trio.move_on_after(DELIVER_TIMEOUT_S):
            await until(lambda: len(crowd.received) >= len(crowd.sent))
        crowd_mb = resident_mb(pid)
        nursery.cancel_scope.cancel()
    doubled = sum(times > 1 for times in crowd.received.values())
    lost = len(crowd.sent - crowd.received.keys())
    outcome = CrowdResult(
        "clients",
        not lost and not doubled and len(crowd.sent) == count * MESSAGES_PER_PRODUCER,
        time.perf_counter() - start_s,
        idle_mb,
        crowd_mb,
        cpu_seconds(pid) - cpu_s,
        notes={
            "connections": 2 * count,
            "rebalance settled after s": round(settled_s, 1),
            "notifications": crowd.changes,
            "sent": len(crowd.sent),
            "received": len(crowd.received),
            "lost": lost,
            "doubled": doubled,
        },
    )
    return [outcome]


def is_settled(consumers: list[Consumer]) -> bool:
    """Whether each holds its own share: before all have joined, a few may hold everything."""
    held = [queue for consumer in consumers for queue in consumer.queues]
    return len(set(held)) == len(held) and all(
        len(consumer.queues) == QUEUES for consumer in consumers
    )


# ---- a hundred thousand ----------------------------------------------------------------------


async def delayed(cluster: Cluster, count: int) -> list[CrowdResult]:
    """`count` timer messages, all due at one moment."""
    pid, address = cluster.pids[0], cluster.broker_address
    idle_mb, cpu_s = resident_mb(pid), cpu_seconds(pid)
    async with trio.open_nursery() as nursery:
        peer = await Peer.connect(address, nursery)
        probe = Probe(await Peer.connect(address, nursery))
        # Time enough for the sends, at 0.7 ms each, so that none arrives after the due time.
        due_ms = int(time.time() * 1000) + 2_000 + count * 7 // 10
        open_sends = trio.Semaphore(IN_FLIGHT)
        refused: Counter[int] = Counter()

        def take(answer: RemotingCommand | ClientError) -> None:
            refused[answer_code(answer)] += 1
            open_sends.release()

        for number in range(count):
            await open_sends.acquire()
            properties = PROPERTIES.format(number) + f"TIMER_DELIVER_MS\x01{due_ms}\x02"
            fields = send_fields("crowd", "Later", number % QUEUES, properties)
            peer.submit(RemotingCommand(Code.SEND_MESSAGE_V2, fields, b"x" * 128), take)
        if time.time() * 1000 > due_ms:
            raise RuntimeError("the sends took too long for this measurement")
        crowd_mb = resident_mb(pid)
        early = await _stored(peer, "Later")
        await trio.sleep(max(0.0, due_ms / 1000 - time.time() - 1))
        nursery.start_soon(probe.run)
        with trio.move_on_after(DELIVER_TIMEOUT_S):
            while await _stored(peer, "Later") < count:  # noqa: ASYNC110 - it is asked
                await trio.sleep(0.05)
        seconds = time.time() - due_ms / 1000
        late = await _stored(peer, "Later")
        nursery.cancel_scope.cancel()
    outcome = CrowdResult(
        "delayed",
        early == 0 and late == count == refused[0],
        seconds,
        idle_mb,
        crowd_mb,
        cpu_seconds(pid) - cpu_s,
        notes={"messages": count, "delivered": late, "before their time": early},
    )
    outcome.take(probe.times_s)
    return [outcome]


async def _stored(peer: Peer, topic: str) -> int:
    found = 0
    for queue_id in range(QUEUES):
        answer = await peer.ask(Code.GET_MAX_OFFSET, {"topic": topic, "queueId": queue_id})
        found += int(answer.ext_fields.get("offset", 0))
    return found


async def long_polls(cluster: Cluster, count: int, wait_s: int = 60) -> list[CrowdResult]:
    """`count` parked pulls, a thousand on each connection, over as many queues."""
    pid, address = cluster.pids[0], cluster.broker_address
    idle_mb, cpu_s, start_s = resident_mb(pid), cpu_seconds(pid), time.perf_counter()
    answered: Counter[int] = Counter()
    async with trio.open_nursery() as nursery:
        admin = await Peer.connect(address, nursery)
        await create_topic(admin, "Quiet", POLLS_PER_CONNECTION)

        def take(answer: RemotingCommand | ClientError) -> None:
            answered[answer_code(answer)] += 1

        for number in range(count // POLLS_PER_CONNECTION):
            peer = await Peer.connect(address, nursery)
            for queue in range(POLLS_PER_CONNECTION):
                fields = pull_fields(f"quiet-{number}", "Quiet", queue, 0, wait_s=wait_s)
                peer.submit(RemotingCommand(Code.PULL_MESSAGE, fields), take)
        probe = Probe(await Peer.connect(address, nursery))
        with trio.move_on_after(wait_s / 2):
            await probe.run()
        crowd_mb, early = resident_mb(pid), answered.total()
        # One message wakes one pull of each group.
        properties = PROPERTIES.format(1)
        await admin.ask(
            Code.SEND_MESSAGE_V2, send_fields("crowd", "Quiet", 7, properties), b"hello"
        )
        with trio.move_on_after(DELIVER_TIMEOUT_S):
            await until(lambda: answered.total() >= count)
        nursery.cancel_scope.cancel()
    woken = answered[0]
    outcome = CrowdResult(
        "long-polls",
        early == 0 and woken == count // POLLS_PER_CONNECTION and answered.total() == count,
        time.perf_counter() - start_s,
        idle_mb,
        crowd_mb,
        cpu_seconds(pid) - cpu_s,
        notes={
            "pulls": count,
            "ended early": early,
            "woken by one message": woken,
            "answers by code": dict(answered),
        },
    )
    outcome.take(probe.times_s)
    return [outcome]


# ---- pops ------------------------------------------------------------------------------------


class Waiting:
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
            if not self._ends:  # otherwise the connections end, too
                self.answers[answer_code(answer)] += 1
                self._pop(peer, group, topic)

        fields = pop_fields(group, topic, poll_ms=pop_probe.POLL_MS)
        peer.submit(RemotingCommand(Code.POP_MESSAGE, fields, b""), take)


async def waiting_pops(peer: Peer) -> int:
    """The crowd's waiting pops, as the broker counts them."""
    count = 0
    for topic in range(TOPICS):
        for group in range(GROUPS):
            fields = {"topic": f"Crowd-{topic}", "consumerGroup": f"crowd-{group}", "queueId": -1}
            answer = await peer.ask(Code.POLLING_INFO, fields)
            count += int(answer.ext_fields.get("pollingNum", 0))
    return count


async def hide(peer: Peer, topic: str, count: int) -> int:
    """Store messages, pop them, and acknowledge none; return the number that was popped."""
    open_sends = trio.Semaphore(IN_FLIGHT)

    def take(answer: RemotingCommand | ClientError) -> None:
        if answer_code(answer):
            raise RuntimeError(f"a send was refused: {answer}")
        open_sends.release()

    for number in range(count):
        await open_sends.acquire()
        fields = send_fields("crowd", topic, number % QUEUES, PROPERTIES.format(number))
        peer.submit(RemotingCommand(Code.SEND_MESSAGE_V2, fields, b"x" * 128), take)
    await until(lambda: open_sends.value == IN_FLIGHT, every_s=0.01)
    popped = 0
    while popped < count:
        fields = pop_fields("hidden", topic, poll_ms=0, invisible_ms=INVISIBLE_MS)
        answer = await peer.ask(Code.POP_MESSAGE, fields)
        if answer.code:
            break
        popped += sum(map(len, decode_offsets(answer.ext_fields["msgOffsetInfo"]).values()))
    return popped


async def cycles(case: str, cluster: Cluster, seconds: float) -> CrowdResult:
    """One phase of the case `pops`. Raises: CalledProcessError: the probe failed."""
    pid, address = cluster.pids[0], cluster.broker_address
    idle_mb, cpu_s, start_s = resident_mb(pid), cpu_seconds(pid), time.perf_counter()
    command = [sys.executable, "-m", pop_probe.__name__, address, "--seconds", str(seconds)]
    done = await trio.run_process(command, capture_stdout=True)
    times = pop_probe.Times(**json.loads(done.stdout))
    took_s, cpu_s = time.perf_counter() - start_s, cpu_seconds(pid) - cpu_s
    outcome = CrowdResult(case, True, took_s, idle_mb, resident_mb(pid), cpu_s)
    outcome.take(times.cycles)
    parts = {"send": times.sends, "arrival": times.arrivals, "ack": times.acks}
    for name, each in parts.items():
        outcome.notes[f"p99 {name}"] = round(percentiles(each, 1000).p99, 2)
    outcome.notes["CPU %"] = round(100 * cpu_s / took_s, 1)
    return outcome


async def pops(
    cluster: Cluster,
    count: int,
    *,
    seconds: float = 30.0,
    stored_s: float = STORED_S,
    limit_ms: float = inf,
) -> list[CrowdResult]:
    """`count` invisible messages, then also a tenth as many waiting pops."""
    crowd, waiting = Waiting(), count // 10
    async with trio.open_nursery() as nursery:
        admin = await Peer.connect(cluster.broker_address, nursery)
        for topic in (pop_probe.TOPIC, "Hidden", *(f"Crowd-{number}" for number in range(TOPICS))):
            await create_topic(admin, topic, QUEUES)
        alone = await cycles("pops: none", cluster, seconds)
        hidden = await hide(admin, "Hidden", count)
        await trio.sleep(stored_s)
        invisible = await cycles("pops: invisible", cluster, seconds)
        crowd.start(
            [await Peer.connect(cluster.broker_address, nursery) for _ in range(CONNECTIONS)],
            waiting,
        )
        await trio.sleep(2.0)
        last = await cycles("pops: and waiting", cluster, seconds)
        found = await waiting_pops(admin)
        crowd.end()
        nursery.cancel_scope.cancel()
    invisible.is_right = hidden == count
    invisible.notes["popped"] = hidden
    last.is_right = (
        found >= waiting * 9 // 10
        and set(crowd.answers) <= {int(ResponseCode.POLLING_TIMEOUT)}
        and last.p99_ms <= limit_ms
    )
    last.notes |= {"waiting": found, "answers by code": dict(crowd.answers)}
    return [alone, invisible, last]


CASES: dict[str, Callable[..., Awaitable[list[CrowdResult]]]] = {
    "clients": clients,
    "delayed": delayed,
    "long-polls": long_polls,
    "pops": pops,
}


def run_case(case: str, count: int, peer: str, **of_pops: float) -> list[CrowdResult]:
    """One case against a fresh broker, phase by phase."""
    with (
        tempfile.TemporaryDirectory(prefix="trocket-crowd-") as folder,
        running(make_cluster(peer, Path(folder) / "cluster")) as cluster,
    ):
        return trio.run(partial(CASES[case], cluster, count, **(of_pops if case == "pops" else {})))


def _probed(ms: float) -> str:
    return f"{ms:.1f}" if ms else ""


COLUMNS: Columns[CrowdResult] = {
    "case": lambda one: one.case,
    "right": lambda one: "yes" if one.is_right else "NO",
    "s": lambda one: f"{one.seconds:.1f}",
    "RSS MB idle": lambda one: f"{one.idle_mb:.0f}",
    "RSS MB": lambda one: f"{one.crowd_mb:.0f}",
    "CPU s": lambda one: f"{one.broker_cpu_s:.1f}",
    "p50 ms": lambda one: _probed(one.p50_ms),
    "p99 ms": lambda one: _probed(one.p99_ms),
    "max ms": lambda one: _probed(one.max_ms),
    "more": lambda one: ", ".join(f"{name} {value}" for name, value in one.notes.items()),
}


def main(
    case: Annotated[
        list[str] | None, typer.Option(help="Run clients, delayed, long-polls or pops.")
    ] = None,
    clients_count: Annotated[
        int, typer.Option("--clients", help="Run this number of producers and consumers.")
    ] = 1_000,
    count: Annotated[int, typer.Option(help="Of timers, pulls, or invisible messages.")] = 100_000,
    seconds: Annotated[float, typer.Option(min=1, help="Measure each phase of pops.")] = 30.0,
    limit_ms: Annotated[float, typer.Option(help="Fail if the p99 of pops is above.")] = 50.0,
    peer: Annotated[str, typer.Option(help="Measure trocket or apache-VERSION.")] = "trocket",
    json_: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Load a broker with a crowd, and print what it costs and whether anything was lost."""
    names = chosen(case, CASES, "--case")
    if clients_count % GROUP_SIZE:
        raise typer.BadParameter(f"--clients {clients_count}: groups have {GROUP_SIZE} members")
    outcomes: list[CrowdResult] = []
    for name in names:
        with Console(file=sys.stderr).status(name):
            number = clients_count if name == "clients" else count
            outcomes += run_case(name, number, peer, seconds=seconds, limit_ms=limit_ms)
    show(outcomes, COLUMNS, as_json=json_)
    raise typer.Exit(not all(one.is_right for one in outcomes))


if __name__ == "__main__":
    typer.run(main)
