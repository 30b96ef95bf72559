"""Costs of a name server, by the number of brokers, topics and clients.

    python -m trocket.bench.scale_namesrv                     # all parts, some minutes
    python -m trocket.bench.scale_namesrv --part routes --part lists --json routes.json
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

Each point is printed when it is measured, but a curve of `memory` as a whole. With `--json` it is
then in the file, so a run that is stopped keeps what it has; a run with the same file adds to it.
"""

from __future__ import annotations

import gc
import os
import resource
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Final

import trio
import typer

from trocket.bench.kit import chosen, resident_mb
from trocket.bench.scale_curve import Curve
from trocket.bench.scale_meter import Curves, Found
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
from trocket.bench.scale_record import Record
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


async def registrations(size: Size, found: Found) -> list[Curve]:
    """Registrations and heartbeats, by a broker's own topics and by the other brokers."""
    return await _by_own_topics(size, found) + await _by_other_brokers(size, found)


async def _by_own_topics(size: Size, found: Found) -> list[Curve]:
    curves = Curves("topics of the broker", found)
    measure = partial(cpu_us, round_s=size.round_s)
    for topics in size.decades(TOPICS):
        server = Simulated()
        await registered(server, [Broker(each, topics) for each in range(1, FEW_BROKERS)])
        broker = Broker(0, topics)
        ask = partial(asking, server, broker.peer)
        (whole,), gone = broker.whole(is_one=True), ask([broker.unregistration()])
        point = await measure(topics, ask([whole]), before=gone)
        curves.add_point("103, all topics, first", "us", 1, point)
        changed = [broker.whole(counter, is_one=True)[0] for counter in range(2)]
        for what, frames in {
            "103, all topics, again": [whole],
            "103, all topics, other DataVersion": changed,
            "103, one topic of them, changed": [broker.one_topic(each) for each in range(VERSIONS)],
            "322, unchanged": [broker.version_query()],
            "904": [broker.heartbeat()],
        }.items():
            await server.ask(whole, broker.peer)
            grows_as = float("all topics" in what)
            curves.add_point(what, "us", grows_as, await measure(topics, ask(frames)))
    return curves.all()


async def _by_other_brokers(size: Size, found: Found) -> list[Curve]:
    curves = Curves("brokers", found)
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
            curves.add_point(what, "us", 0, await measure(brokers, ask(frames)))
    return curves.all()


async def routes(size: Size, found: Found) -> list[Curve]:
    """Route answers."""
    measure = partial(cpu_us, round_s=size.round_s)
    by_topics = Curves("topics of the cluster", found)
    by_others = Curves("brokers without the topic", found)
    by_owners = Curves("brokers with the topic", found)
    asked = [route_question("topic-0")]
    for topics in size.decades(TOPICS):
        server = Simulated()
        await registered(server, [Broker(each, topics) for each in range(FEW_BROKERS)])
        point = await measure(topics, asking(server, Peer(), asked))
        by_topics.add_point("105, of 10 brokers", "us", 0, point)
    for brokers in size.decades(BROKERS):
        server = Simulated()
        await registered(server, [Broker(0, 2)])
        others = [Broker(each, min(FEW_TOPICS, size.most), "other") for each in range(1, brokers)]
        await registered(server, others)
        point = await measure(brokers, asking(server, Peer(), asked))
        by_others.add_point("105, of 1 broker", "us", 0, point)
        server = Simulated()
        await registered(server, [Broker(each, 2) for each in range(brokers)])
        ask, owner = asking(server, Peer(), asked), Broker(0, 2)
        by_owners.add_point("105", "us", 1, await measure(brokers, ask))
        changes = [owner.one_topic(each) for each in range(VERSIONS)]
        change = asking(server, owner.peer, changes)
        point = await measure(brokers, ask, before=change)
        by_owners.add_point("105, the first after a change", "us", 1, point)
    return by_topics.all() + by_others.all() + by_owners.all()


async def lists(size: Size, found: Found) -> list[Curve]:
    """What names every broker, or every topic."""
    measure = partial(cpu_us, round_s=size.round_s)
    infos, names = Curves("brokers", found), Curves("topics of the cluster", found)
    for brokers in size.decades(BROKERS):
        server = Simulated()
        await registered(server, [Broker(each, 2) for each in range(brokers)])
        asked = [question(Code.GET_BROKER_CLUSTER_INFO)]
        point = await measure(brokers, asking(server, Peer(), asked))
        infos.add_point("106, all brokers", "us", 1, point)
    for topics in size.decades(TOPICS):
        server = Simulated()
        await registered(server, [Broker(0, topics)])
        asked = [question(Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)]
        point = await measure(topics, asking(server, Peer(), asked))
        names.add_point("206, all topics", "us", 1, point)
    return infos.all() + names.all()


async def leaving(size: Size, found: Found) -> list[Curve]:
    """What it costs that a broker or a client leaves."""
    measure = partial(cpu_us, round_s=size.round_s)
    by_topics, by_brokers = Curves("topics of the broker", found), Curves("brokers", found)
    for topics in size.decades(TOPICS):
        server, broker = Simulated(), Broker(0, topics)
        await registered(server, [Broker(each, topics) for each in range(1, FEW_BROKERS)])
        join = asking(server, broker.peer, broker.whole(is_one=True))
        leave = asking(server, broker.peer, [broker.unregistration()])
        point = await measure(topics, leave, before=join)
        by_topics.add_point("104, unregistration", "us", 1, point)
    for brokers in size.decades(BROKERS):
        server, broker = Simulated(), Broker(0, min(FEW_TOPICS, size.most))
        await registered(
            server, [Broker(each, min(FEW_TOPICS, size.most)) for each in range(1, brokers)]
        )
        join = asking(server, broker.peer, broker.whole())
        leave = asking(server, broker.peer, [broker.unregistration()])
        point = await measure(brokers, leave, before=join)
        by_brokers.add_point("104, of 100 topics", "us", 0, point)
        await join()
        point = await measure(brokers, _end_of(server))
        what = "the end of a client's connection, in the route table"
        by_brokers.add_point(what, "us", 0, point)
    return by_topics.all() + by_brokers.all()


def _end_of(server: Simulated) -> Callable[[], Awaitable[None]]:
    client = Peer()

    async def end() -> None:
        server.controller.routes.channel_closed(client)

    return end


async def memory(size: Size, found: Found) -> list[Curve]:
    """The route table's share of a process's memory, each table in a process for itself."""
    shared, own = Curves("(broker, topic)", found), Curves("topics of the cluster", found)
    for curves, most, brokers, name in (
        (shared, TOPICS, min(BROKERS, size.most), "the same topics"),
        (own, OWN_TOPICS, min(FEW_BROKERS, size.most), "topics of their own"),
    ):
        topics = size.decades(most)
        grown = await _grown_mb(brokers, topics, size, is_shared=curves is shared)
        for each, table_mb in zip(topics, grown, strict=True):
            what = f"table of {brokers:,} brokers with {name}"
            curves.add(what, "MB", 1, brokers * each, table_mb)
    return shared.all() + own.all()


async def _grown_mb(
    brokers: int, topics: Sequence[int], size: Size, *, is_shared: bool
) -> list[float]:
    grow = partial(grown_mb, brokers, topics, is_shared=is_shared)
    if not size.is_apart:
        return await grow()
    with ProcessPoolExecutor(1, get_context("spawn")) as child:
        return await trio.to_thread.run_sync(child.submit(trio.run, grow).result)


async def clients(size: Size, found: Found) -> list[Curve]:
    """Connections in memory: both ends are in this process."""
    server = Simulated()
    await registered(server, [Broker(each, 2) for each in range(FEW_BROKERS)])
    asked = route_question("topic-0")
    curves = Curves("clients", found)
    measure = partial(cpu_us, round_s=size.round_s)
    async with running(server) as crowd:
        before_mb = resident_mb(os.getpid())
        for number in size.decades(CLIENTS):
            await crowd.grow(number, asked)
            gc.collect()
            grown_mb = resident_mb(os.getpid()) - before_mb
            curves.add("connections, both ends", "MB", 1, number, grown_mb)
            longest = LongestStep()
            trio.lowlevel.add_instrument(longest)
            begin_s, cpu_s = time.perf_counter(), time.process_time()
            await trio.sleep(size.idle_s)
            spent = (time.process_time() - cpu_s) / (time.perf_counter() - begin_s)
            trio.lowlevel.remove_instrument(longest)
            curves.add("all clients idle", "% of a core", 1, number, 100 * spent)
            curves.add("the longest step meanwhile", "ms", 1, number, 1000 * longest.seconds)
            point = await measure(number, partial(crowd.come_and_go, asked))
            curves.add_point("one more connects, asks and closes", "us", 0, point)
            point = await measure(number, partial(crowd.ask, crowd.streams[0], asked))
            curves.add_point("105 over a connection", "us", 0, point)
    return curves.all()


PARTS: Final[dict[str, Callable[[Size, Found], Awaitable[list[Curve]]]]] = {
    "registrations": registrations,
    "routes": routes,
    "lists": lists,
    "leaving": leaving,
    "memory": memory,
    "clients": clients,
    "process": process,
}


def measure(size: Size, part: str, found: Found) -> list[Curve]:
    """The curves of one part. Raises: RuntimeError: a request was refused."""
    return trio.run(PARTS[part], size, found)


def main(
    part: Annotated[list[str] | None, typer.Option(help="Measure this part.")] = None,
    most: Annotated[int, typer.Option(min=2, help="Of brokers, topics and clients.")] = CLIENTS,
    json_: Annotated[
        Path | None, typer.Option("--json", help="Save each point here; may be continued.")
    ] = None,
) -> None:
    """Measure a name server by the number of brokers, topics and clients."""
    parts = chosen(part, PARTS, "--part")
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
    size = Size(most) if most > SMALL else Size(most, round_s=0.005, idle_s=1.0, requests=20)
    facts = {"descriptors of a process": descriptors}
    with Record("name server", list(parts), json_, facts) as record:
        for name in parts:
            record.begin(name)
            measure(size, name, record.found)
    raise typer.Exit(record.status)


if __name__ == "__main__":
    typer.run(main)
