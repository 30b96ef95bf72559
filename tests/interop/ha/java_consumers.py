"""Official Java consumers read on from the slave when the master is killed, and then from the
master when it is back."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trocket.interop.java_peer import JavaPeer

from ...kit.waiting import wait_until
from .alike import QUEUES, assert_tables_are_copied, commit_offsets, make_tables, wait_copied
from .load import TOPICS, Load
from .pair import Pair, Roles

FIRST, COUNT, MORE = 200, 4_000, 400
CACHED_MAX = 64
PULLED_MAX = 32
HELD_AFTER = 300
RUNNING, FRESH = "running", "fresh"
TIMEOUT_S = 90.0


@dataclass(frozen=True)
class JavaConsumers:
    """Who replicates, and the version of the official client."""

    roles: Roles
    version: str

    def __str__(self) -> str:
        return f"{self.roles}, client {self.version}"

    def play(self, folder: Path) -> str:
        """Kill the master while a consumer has taken a part; what it was, for people."""
        with Pair(self.roles, folder) as pair, JavaPeer(self.version, folder / "client") as peer:
            fill(pair)
            consume(peer, RUNNING, pair, hold_after=HELD_AFTER)
            wait_received(peer, RUNNING, HELD_AFTER)
            pair.kill(pair.master)
            # It may have so much from the master, and has the rest from the slave.
            assert 2 * len(QUEUES) * (CACHED_MAX + PULLED_MAX) < COUNT - HELD_AFTER
            peer.resume(RUNNING)
            consume(peer, FRESH, pair)
            for by in (RUNNING, FRESH):
                wait_received(peer, by, COUNT)
                wait_committed(pair, by)

            pair.master.start_broker()
            with Load(pair.master.broker_address, MORE, first=COUNT) as load:
                load.wait_share(1.0)
            for by in (RUNNING, FRESH):
                wait_received(peer, by, COUNT + MORE)
                keys = peer.keys_by_group[by]
                assert keys == {f"load-{number}" for number in range(COUNT + MORE)}
            repeats = [len(peer.received[by]) - COUNT - MORE for by in (RUNNING, FRESH)]
        return f"{COUNT + MORE} messages each, repeats {repeats}"


def fill(pair: Pair) -> None:
    """Start both, and send messages until both have them."""
    pair.master.start()
    with pair.ask_master() as master:
        make_tables(master)
        for numbers in (range(FIRST), range(FIRST, COUNT)):
            with Load(pair.master.broker_address, len(numbers), first=numbers.start) as load:
                load.wait_share(1.0)
            if numbers.start == 0:
                # Before there is a second log file: Apache's master sends but its last one to a
                # slave that has nothing.
                commit_offsets(master, 3)
                pair.slave.start_broker()
            wait_copied(pair)
    assert_tables_are_copied(pair)


def consume(peer: JavaPeer, group: str, pair: Pair, *, hold_after: int = 0) -> None:
    """Start the only consumer of a group of its name."""
    peer.start_consuming(
        group,
        list(TOPICS),
        namesrv_address=pair.master.namesrv_address,
        group=group,
        cached_max=CACHED_MAX,
        hold_after=hold_after,
    )


def wait_received(peer: JavaPeer, group: str, count: int) -> None:
    """Wait until a group has received `count` different messages."""
    keys = peer.keys_by_group[group]
    peer.wait(lambda: len(keys) >= count, timeout_s=TIMEOUT_S, what=f"{count} messages in {group}")


def wait_committed(pair: Pair, group: str) -> None:
    """Wait until the slave knows that a group has consumed all."""
    with pair.ask_slave() as slave:
        expected = {queue: slave.max_offset(*queue) for queue in QUEUES}
        wait_until(
            lambda: expected == {queue: slave.consumer_offset(group, *queue) for queue in QUEUES},
            timeout_s=TIMEOUT_S,
            what=lambda: f"{group} commits {expected} at the slave",
        )
