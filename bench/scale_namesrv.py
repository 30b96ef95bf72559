"""Costs of a name server, by the number of brokers, topics and clients.

    python -m trocket.bench.scale_namesrv                     # all parts, some minutes
    python -m trocket.bench.scale_namesrv --part routes --part lists
    python -m trocket.bench.scale_namesrv --most 100          # small: a few seconds

registrations  103 with all topics, again without a change, and with one changed topic; 322; 904
routes         105, by the topics of the cluster, and by the brokers with and without the topic
lists          106 by brokers, 206 by topics
leaving        a broker that unregisters; a connection that ends
memory         of a table of 1,000 brokers with up to 10,000 topics each, which they share
clients        connections in memory, up to 100,000: memory, CPU while idle, and of one more
process        `trocket namesrv`: connections over loopback, as many as descriptors allow

All parts but the last measure the code of a name server in this process: a request is a frame, and
its cost is that of reading it, serving it and writing the answer, without a socket. The last part
measures the CPU time and memory of a process, and its requests come over sockets.

Times are CPU times, each point the median of five rounds. What is printed has the exponent of each
curve beside the one that is claimed; the exit status is 1 if one grows faster.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import Annotated, Final

import trio
import typer
from rich.console import Console

from trocket.bench.kit import chosen, resident_mb, table
from trocket.bench.scale_curve import COLUMNS, Curve, Point, report
from trocket.bench.scale_namesrv_peers import (
    CLIENTS,
    VERSIONS,
    Broker,
    LongestStep,
    Peer,
    Simulated,
    Size,
    asking,
    cpu_us,
    grown_mb,
    question,
    registered,
    route_question,
    running,
)
from trocket.bench.scale_namesrv_process import process
from trocket.remoting.request_codes import RequestCode as Code

BROKERS: Final = 1_000
TOPICS: Final = 10_000
"""Of a broker."""
OWN_TOPICS: Final = 40_000
"""Of a broker that shares none with others, in the measurement of memory: 400,000 in all."""
FEW_TOPICS: Final = 100
"""Of each broker, where the number of brokers varies."""
FEW_BROKERS: Final = 10
"""Where the number of topics varies."""
SMALL: Final = 100
"""With `--most` no larger, rounds are short: it is a trial, not a measurement."""
WIDTH: Final = 200


def _us(what: str, per: str, grows_as: float, points: list[Point]) -> Curve:
    return Curve(what, per, "us", grows_as, tuple(points))


async def registrations(size: Size) -> list[Curve]:
    """Registrations and heartbeats, by a broker's own topics and by the other brokers."""
    return await _by_own_topics(size) + await _by_other_brokers(size)


async def _by_own_topics(size: Size) -> list[Curve]:
    curves: dict[str, list[Point]] = {}
    measure = partial(cpu_us, round_s=size.round_s)
    for topics in size.decades(TOPICS):
        server = Simulated()
        await registered(server, [Broker(each, topics) for each in range(1, FEW_BROKERS)])
        broker = Broker(0, topics)
        ask = partial(asking, server, broker.peer)
        (whole,), gone = broker.whole(is_one=True), ask([broker.unregistration()])
        point = await measure(topics, ask([whole]), before=gone)
        curves.setdefault("103, all topics, first", []).append(point)
        changed = [broker.whole(counter, is_one=True)[0] for counter in range(2)]
        for what, frames in {
            "103, all topics, again": [whole],
            "103, all topics, other DataVersion": changed,
            "103, one topic of them, changed": [broker.one_topic(each) for each in range(VERSIONS)],
            "322, unchanged": [broker.version_query()],
            "904": [broker.heartbeat()],
        }.items():
            await server.ask(whole, broker.peer)
            curves.setdefault(what, []).append(await measure(topics, ask(frames)))
    return [
        _us(what, "topics of the broker", float("all topics" in what), points)
        for what, points in curves.items()
    ]


async def _by_other_brokers(size: Size) -> list[Curve]:
    curves: dict[str, list[Point]] = {}
    measure = partial(cpu_us, round_s=size.round_s)
    topics = min(FEW_TOPICS, size.most)
    for brokers in size.decades(BROKERS):
        server = Simulated()
        every = [Broker(each, topics) for each in range(brokers)]
        await registered(server, every)
        broker = every[0]
        ask = partial(asking, server, broker.peer)
        for what, frames in {
            "103, all of 100 topics, again": broker.whole(),
            "103, one topic of 100, changed": [broker.one_topic(each) for each in range(VERSIONS)],
            "322, unchanged": [broker.version_query()],
            "904": [broker.heartbeat()],
        }.items():
            curves.setdefault(what, []).append(await measure(brokers, ask(frames)))
    return [_us(what, "brokers", 0, points) for what, points in curves.items()]


async def routes(size: Size) -> list[Curve]:
    """Route answers."""
    measure = partial(cpu_us, round_s=size.round_s)
    by_topics, by_others, by_owners, anew = [], [], [], []
    asked = [route_question("topic-0")]
    for topics in size.decades(TOPICS):
        server = Simulated()
        await registered(server, [Broker(each, topics) for each in range(FEW_BROKERS)])
        by_topics.append(await measure(topics, asking(server, Peer(), asked)))
    for brokers in size.decades(BROKERS):
        server = Simulated()
        await registered(server, [Broker(0, 2)])
        others = [Broker(each, min(FEW_TOPICS, size.most), "other") for each in range(1, brokers)]
        await registered(server, others)
        by_others.append(await measure(brokers, asking(server, Peer(), asked)))
        server = Simulated()
        await registered(server, [Broker(each, 2) for each in range(brokers)])
        ask, owner = asking(server, Peer(), asked), Broker(0, 2)
        by_owners.append(await measure(brokers, ask))
        changes = [owner.one_topic(each) for each in range(VERSIONS)]
        change = asking(server, owner.peer, changes)
        anew.append(await measure(brokers, ask, before=change))
    return [
        _us("105, of 10 brokers", "topics of the cluster", 0, by_topics),
        _us("105, of 1 broker", "brokers without the topic", 0, by_others),
        _us("105", "brokers with the topic", 1, by_owners),
        _us("105, the first after a change", "brokers with the topic", 1, anew),
    ]


async def lists(size: Size) -> list[Curve]:
    """What names every broker, or every topic."""
    measure = partial(cpu_us, round_s=size.round_s)
    infos, names = [], []
    for brokers in size.decades(BROKERS):
        server = Simulated()
        await registered(server, [Broker(each, 2) for each in range(brokers)])
        asked = [question(Code.GET_BROKER_CLUSTER_INFO)]
        infos.append(await measure(brokers, asking(server, Peer(), asked)))
    for topics in size.decades(TOPICS):
        server = Simulated()
        await registered(server, [Broker(0, topics)])
        asked = [question(Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)]
        names.append(await measure(topics, asking(server, Peer(), asked)))
    return [
        _us("106, all brokers", "brokers", 1, infos),
        _us("206, all topics", "topics of the cluster", 1, names),
    ]


async def leaving(size: Size) -> list[Curve]:
    """What it costs that a broker or a client leaves."""
    measure = partial(cpu_us, round_s=size.round_s)
    by_topics, by_brokers, ends = [], [], []
    for topics in size.decades(TOPICS):
        server, broker = Simulated(), Broker(0, topics)
        await registered(server, [Broker(each, topics) for each in range(1, FEW_BROKERS)])
        join = asking(server, broker.peer, broker.whole(is_one=True))
        leave = asking(server, broker.peer, [broker.unregistration()])
        by_topics.append(await measure(topics, leave, before=join))
    for brokers in size.decades(BROKERS):
        server, broker = Simulated(), Broker(0, min(FEW_TOPICS, size.most))
        await registered(
            server, [Broker(each, min(FEW_TOPICS, size.most)) for each in range(1, brokers)]
        )
        join = asking(server, broker.peer, broker.whole())
        leave = asking(server, broker.peer, [broker.unregistration()])
        by_brokers.append(await measure(brokers, leave, before=join))
        await join()
        ends.append(await measure(brokers, _end_of(server)))
    return [
        _us("104, unregistration", "topics of the broker", 1, by_topics),
        _us("104, of 100 topics", "brokers", 0, by_brokers),
        _us("the end of a client's connection, in the route table", "brokers", 0, ends),
    ]


def _end_of(server: Simulated) -> Callable[[], Awaitable[None]]:
    client = Peer()

    async def end() -> None:
        server.controller.routes.channel_closed(client)

    return end


async def memory(size: Size) -> list[Curve]:
    """The route table's share of a process's memory, each table in a process for itself."""
    brokers, few = min(BROKERS, size.most), min(FEW_BROKERS, size.most)
    shared, own = size.decades(TOPICS), size.decades(OWN_TOPICS)
    shared_mb = await _grown_mb(brokers, shared, size, is_shared=True)
    own_mb = await _grown_mb(few, own, size, is_shared=False)
    return [
        Curve(
            f"table of {brokers:,} brokers with the same topics", "(broker, topic)", "MB", 1,
            tuple(Point.of(brokers * n, [mb]) for n, mb in zip(shared, shared_mb, strict=True)),
        ),
        Curve(
            f"table of {few:,} brokers with topics of their own", "topics of the cluster", "MB", 1,
            tuple(Point.of(few * n, [mb]) for n, mb in zip(own, own_mb, strict=True)),
        ),
    ]  # fmt: skip


async def _grown_mb(
    brokers: int, topics: Sequence[int], size: Size, *, is_shared: bool
) -> list[float]:
    grow = partial(grown_mb, brokers, topics, is_shared=is_shared)
    if not size.is_apart:
        return await grow()
    with ProcessPoolExecutor(1, get_context("spawn")) as child:
        return await trio.to_thread.run_sync(child.submit(trio.run, grow).result)


async def clients(size: Size) -> list[Curve]:
    """Connections in memory: both ends are in this process."""
    server = Simulated()
    await registered(server, [Broker(each, 2) for each in range(FEW_BROKERS)])
    asked = route_question("topic-0")
    grown, idle, steps, more, answers = [], [], [], [], []
    async with running(server) as crowd:
        before_mb = resident_mb(os.getpid())
        for number in size.decades(CLIENTS):
            await crowd.grow(number, asked)
            gc.collect()
            grown.append(Point.of(number, [resident_mb(os.getpid()) - before_mb]))
            longest = LongestStep()
            trio.lowlevel.add_instrument(longest)
            begin_s, cpu_s = time.perf_counter(), time.process_time()
            await trio.sleep(size.idle_s)
            spent = (time.process_time() - cpu_s) / (time.perf_counter() - begin_s)
            trio.lowlevel.remove_instrument(longest)
            idle.append(Point.of(number, [100 * spent]))
            steps.append(Point.of(number, [1000 * longest.seconds]))
            more.append(
                await cpu_us(number, partial(crowd.come_and_go, asked), round_s=size.round_s)
            )
            one = crowd.streams[0]
            answers.append(
                await cpu_us(number, partial(crowd.ask, one, asked), round_s=size.round_s)
            )
    return [
        Curve("connections, both ends", "clients", "MB", 1, tuple(grown)),
        Curve("all clients idle", "clients", "% of a core", 1, tuple(idle)),
        Curve("the longest step meanwhile", "clients", "ms", 1, tuple(steps)),
        _us("one more connects, asks and closes", "clients", 0, more),
        _us("105 over a connection", "clients", 0, answers),
    ]


PARTS: Final[Mapping[str, Callable[[Size], Awaitable[list[Curve]]]]] = {
    "registrations": registrations,
    "routes": routes,
    "lists": lists,
    "leaving": leaving,
    "memory": memory,
    "clients": clients,
    "process": process,
}


def measure(size: Size, part: str) -> list[Curve]:
    """The curves of one part. Raises: RuntimeError: a request was refused."""
    return trio.run(PARTS[part], size)


def main(
    part: Annotated[list[str] | None, typer.Option(help="Measure this part.")] = None,
    most: Annotated[int, typer.Option(min=2, help="Of brokers, topics and clients.")] = CLIENTS,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Measure a name server by the number of brokers, topics and clients."""
    parts = chosen(part, PARTS, "--part")
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
    size = Size(most) if most > SMALL else Size(most, round_s=0.005, idle_s=1.0, requests=20)
    curves: list[Curve] = []
    load = os.getloadavg()[0]
    for name in parts:
        Console(stderr=True).print(name)
        curves += measure(size, name)
    facts = {
        "load at the start": load,
        "load at the end": os.getloadavg()[0],
        "python": sys.version.split()[0],
        "descriptors of a process": descriptors,
    }
    if json_:
        print(json.dumps(report(curves, facts), indent=2))
    else:
        Console(width=WIDTH).print(table(COLUMNS, curves, "name server"))
        Console(width=WIDTH).print(facts)
    if not all(each.keeps for each in curves):
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
