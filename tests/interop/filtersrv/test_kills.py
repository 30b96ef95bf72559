"""Filter servers, workers and brokers that are killed in the middle of a consume.

Nothing that matches is lost, nothing else comes, and no process is left over. `make test` kills
each three times under a consumer on plain sockets; `make interop` twenty times, and some under the
official client too. TROCKET_KILL_SEED plays the same moments again.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest

from trocket.interop.process import PeerError
from trocket.interop.wire import WireClient, wait_for_route

from ...kit.waiting import wait_until
from . import sites
from .consumption import Consumption
from .java_consumers import JavaConsumers
from .material import (
    KEEP_FIFTH,
    KEEP_FIFTH_SOURCE,
    QUEUE_COUNT,
    STEP,
    TOPIC,
    fifths,
    numbered,
)
from .processes import Orphans, command_line, descendants, kill_alone, watched_processes
from .sites import Site
from .wire_consumer import WireConsumer

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("java")]

SEED = int(os.environ.get("TROCKET_KILL_SEED", random.SystemRandom().randrange(2**32)))

KILLS_FAST, KILLS = 3, 20
KILLS_SLOW = 3
"""Where each takes long: a broker looks for its filter servers 5 s after its start; the official
client waits 3 s, and 30 s for a pull that was sent at the moment when its connection closed.
"""
CHUNK = 200
OUTSTANDING_MAX = 400
"""Messages that match and have not come: so few that there is always something under way."""
CAME_SINCE_MAX = 60
"""A kill comes when at most this many of the messages sent since the last kill have come."""
RECOVERY_TIMEOUT_S = 90.0
ROUTE_TIMEOUT_S = 60.0
JAVA_VERSION = "4.9.7"
JAVA_INTERVAL_S = 1.0
"""The client's 30 s would let each kill of a filter server take as long."""
PAUSE_S = 0.02
PULL_S = 0.004
"""A kill comes within so long after a pull was sent; most are answered by then."""
FROM_STDIN = "--config-from-stdin"
"""In the command line of a filter server that the broker started, and in no other."""


class Consumer(Protocol):
    """Who consumes TOPIC by KEEP_FIFTH."""

    @property
    def seen(self) -> Consumption:
        """What came."""

    @property
    def pids(self) -> list[int]:
        """Its processes."""

    def go_on(self, while_pulling: Callable[[], None] = lambda: None) -> None:
        """Let it consume for a moment, and call this meanwhile."""

    def troubles(self) -> str:
        """What went wrong meanwhile, for people."""

    def close(self) -> None:
        """End it."""


class JavaConsumer:
    """The official client."""

    def __init__(self, site: Site, folder: Path) -> None:
        self._consumers = JavaConsumers(JAVA_VERSION, folder)
        self._pause = threading.Event()
        self.seen = self._consumers.start(
            "killed",
            namesrv_address=site.cluster.namesrv_address,
            topic=TOPIC,
            class_name=KEEP_FIFTH,
            source=KEEP_FIFTH_SOURCE,
            interval_s=JAVA_INTERVAL_S,
        )

    @property
    def pids(self) -> list[int]:
        return self._consumers.pids

    def go_on(self, while_pulling: Callable[[], None] = lambda: None) -> None:
        while_pulling()
        self._pause.wait(PAUSE_S)

    def troubles(self) -> str:
        return ""

    def close(self) -> None:
        self._consumers.close()


class Feed:
    """Sends numbers upwards, as many as the consumer needs to have something to do."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._next = 0
        self._unsure: list[int] = []
        self.sent: set[int] = set()
        self.sent_twice: set[int] = set()

    def finish(self) -> None:
        """Send once more what a kill has made unsure."""
        wait_until(self._is_sure, timeout_s=RECOVERY_TIMEOUT_S, what="the broker takes messages")

    def _is_sure(self) -> bool:
        self.send(STEP)
        return not self._unsure

    @property
    def next_number(self) -> int:
        """The first that has not been sent."""
        return self._next

    def top_up(self, came_count: int) -> None:
        """Send some more, if so few are on their way that match."""
        if len(self.sent) // STEP - came_count < OUTSTANDING_MAX:
            self.send(CHUNK)

    def send(self, count: int) -> None:
        """Send this many, behind those that may have arrived or not."""
        again, self._unsure = self._unsure, []
        fresh = range(self._next, self._next + count)
        self._next += count
        self.sent_twice |= set(again)
        numbers = [*again, *fresh]
        try:
            with WireClient(self._site.cluster.broker_address) as wire:
                wire.send_all(map(numbered, numbers))
            self.sent |= set(numbers)
        except PeerError:
            self._unsure = numbers


class Victims(Protocol):
    """What is killed."""

    def is_whole(self) -> bool:
        """Whether it is there."""

    def kill(self) -> None:
        """Kill one."""


def kept_pids(site: Site) -> list[int]:
    """The filter servers that the broker started."""
    return [pid for pid in descendants(site.cluster.pids[0]) if FROM_STDIN in command_line(pid)]


class FilterServers:
    """One of those that the broker keeps."""

    def __init__(self, site: Site, choose: random.Random) -> None:
        self._site = site
        self._choose = choose

    def is_whole(self) -> bool:
        return self._site.is_whole()

    def kill(self) -> None:
        kill_alone(self._choose.choice(sorted(kept_pids(self._site))))


class Workers:
    """Any process below a filter server: the JVM that filters, or what it is wrapped in."""

    def __init__(self, site: Site, choose: random.Random) -> None:
        self._site = site
        self._choose = choose

    def _pids(self) -> list[int]:
        return sorted(descendants(*self._site.server_pids))

    def is_whole(self) -> bool:
        return bool(self._pids())

    def kill(self) -> None:
        kill_alone(self._choose.choice(self._pids()))


class Brokers:
    """The broker alone, not what it has started; it is started again."""

    def __init__(self, site: Site, choose: random.Random) -> None:
        self._site = site

    def is_whole(self) -> bool:
        return self._site.is_whole()

    def kill(self) -> None:
        kill_alone(self._site.cluster.pids[0])
        self._site.cluster.kill_broker()  # lets go of it
        self._site.cluster.start_broker()


@pytest.fixture
def orphans() -> Iterator[Orphans]:
    """Watches what the test starts; at its end nothing of it may be left."""
    with watched_processes() as found:
        yield found


@dataclass(frozen=True)
class Case:
    """What is killed where."""

    name: str
    made_by: sites.OpenSite
    victims_of: Callable[[Site, random.Random], Victims]


FILTER_SERVER = Case("filter-server", sites.kept_by_the_broker, FilterServers)
ONE_OF_TWO = Case("one-of-two-filter-servers", sites.two_kept_by_the_broker, FilterServers)
WORKER = Case("worker", sites.by_hand, Workers)
BROKER = Case("broker", sites.by_hand, Brokers)
BROKER_AND_ALL = Case("broker-and-its-filter-server", sites.kept_by_the_broker, Brokers)


def played(case: Case, consumer_name: str, kill_count: int, *, fast: bool = False) -> Any:
    return pytest.param(
        case,
        consumer_name,
        kill_count,
        id=f"{case.name}-{consumer_name}-{kill_count}",
        marks=() if fast else pytest.mark.matrix,
    )


@pytest.mark.parametrize(
    ("case", "consumer_name", "kill_count"),
    [
        played(FILTER_SERVER, "wire", KILLS_FAST, fast=True),
        *(played(case, "wire", KILLS_FAST) for case in (WORKER, BROKER)),
        *(played(case, "wire", KILLS) for case in (FILTER_SERVER, ONE_OF_TWO, WORKER, BROKER)),
        played(BROKER_AND_ALL, "wire", KILLS_SLOW),
        *(played(case, "java", KILLS) for case in (WORKER, BROKER)),
        *(played(case, "java", KILLS_SLOW) for case in (FILTER_SERVER, ONE_OF_TWO, BROKER_AND_ALL)),
    ],
)
def test_nothing_is_lost_and_nothing_else_comes(
    orphans: Orphans, tmp_path: Path, case: Case, consumer_name: str, kill_count: int
) -> None:
    choose = random.Random(f"{SEED} {case.name} {consumer_name}")
    print(f"{case.name} under {consumer_name}: TROCKET_KILL_SEED={SEED}")
    site = case.made_by(tmp_path / "site")
    try:
        site.start()
        with WireClient(site.cluster.broker_address) as wire:
            wire.create_topic(TOPIC, queue_count=QUEUE_COUNT)
        wait_for_route(site.cluster.namesrv_address, TOPIC, timeout_s=ROUTE_TIMEOUT_S)
        consumer: Consumer
        if consumer_name == "wire":
            consumer = WireConsumer(site, choose)
        else:
            consumer = JavaConsumer(site, tmp_path / "java")
        try:
            play(site, consumer, case.victims_of(site, choose), kill_count, choose)
            check_processes(site, consumer, orphans)
        finally:
            consumer.close()
    finally:
        site.close()


def play(
    site: Site, consumer: Consumer, victims: Victims, kill_count: int, choose: random.Random
) -> None:
    """Kill so often while messages come; then all that match must have come, and no other."""
    feed = Feed(site)
    started_s = flow(feed, consumer, victims, choose.randint(1, CAME_SINCE_MAX))
    pauses_s = []
    pause = threading.Event()
    for _ in range(kill_count):
        moment_s = choose.uniform(0.0, PULL_S)

        def kill(moment_s: float = moment_s) -> None:
            pause.wait(moment_s)
            victims.kill()

        consumer.go_on(kill)
        pauses_s.append(flow(feed, consumer, victims, choose.randint(1, CAME_SINCE_MAX)))
    feed.finish()
    finish(feed, consumer)
    pauses = " ".join(f"{pause_s:.1f}" for pause_s in pauses_s)
    print(
        f"{kill_count} kills, {len(feed.sent)} messages, {len(feed.sent_twice)} sent twice;"
        f" first after {started_s:.1f} s, then {pauses} s after each kill;"
        f" {consumer.seen.figures()}; {consumer.troubles()}"
    )


def flow(feed: Feed, consumer: Consumer, victims: Victims, wanted: int) -> float:
    """Consume until enough of the messages sent from now on have come, and there is a victim.

    Returns: seconds until the first came.
    """
    began_s = time.monotonic()
    first_s = 0.0
    consumer.seen.watch(feed.next_number)
    while consumer.seen.watched_count < wanted or not victims.is_whole():
        now_s = time.monotonic()
        assert now_s < began_s + RECOVERY_TIMEOUT_S, f"{consumer.seen.watched_count} of {wanted}"
        feed.top_up(consumer.seen.distinct_count)
        consumer.go_on()
        if not first_s and consumer.seen.watched_count:
            first_s = time.monotonic() - began_s
    return first_s


def finish(feed: Feed, consumer: Consumer) -> None:
    """Consume to the end."""
    end_s = time.monotonic() + RECOVERY_TIMEOUT_S
    wanted = fifths(feed.sent)
    while consumer.seen.distinct_count < len(wanted):
        assert time.monotonic() < end_s, f"lost: {consumer.seen.missing(wanted)[:20]}"
        consumer.go_on()
    assert consumer.seen.distinct() == wanted


def check_processes(site: Site, consumer: Consumer, orphans: Orphans) -> None:
    """Nothing that was killed has left a process."""
    orphans.wait_none(*site.pids, *consumer.pids)
    wait_until(
        lambda: len(kept_pids(site)) == site.kept_count,
        timeout_s=RECOVERY_TIMEOUT_S,
        what="as many filter servers as there were",
    )
