"""A static topic on two brokers, made and moved by mqadmin 5.5.0, used by the official client.

"Nothing lost": every message that was acknowledged before, during and after the move is received by
a group that consumed all the time, and by one that starts afterwards.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from trocket.interop.apache import ApacheCluster
from trocket.interop.java_peer import JavaPeer
from trocket.interop.mqadmin import AdminJvm
from trocket.interop.mqadmin_outline import failure
from trocket.interop.trocket_peer import TrocketBroker, TrocketPair
from trocket.interop.wire import WireClient, wait_for_route
from trocket.remoting.bodies import TopicRouteData

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("java")]

VERSION = "5.5.0"
OURS = "trocket"
TOPIC = "Static"
GET_ROUTEINFO_BY_TOPIC = 105
QUEUES = 4
GAP = 10_000
"""Logic offsets of a moved queue begin at a multiple of it.

Source: RemappingStaticTopicSubCommand, blockSeqSize.
"""
MESSAGE_COUNT = 900
RATE_PER_S = 150.0
TIMEOUT_S = 90.0
FIRST, SECOND = "broker-a", "broker-b"

PAIRS = [
    pytest.param((OURS, OURS), id=f"{OURS}-{OURS}", marks=pytest.mark.matrix),
    pytest.param((OURS, VERSION), id=f"{OURS}-{VERSION}", marks=pytest.mark.matrix),
    pytest.param((VERSION, OURS), id=f"{VERSION}-{OURS}"),
]


@dataclass(frozen=True)
class Brokers:
    """Two running brokers with one name server; the first is the name server's kind, too."""

    first: TrocketPair | ApacheCluster
    second: TrocketBroker | ApacheCluster

    @property
    def namesrv(self) -> str:
        return self.first.namesrv_address

    def route(self) -> TopicRouteData:
        with WireClient(self.namesrv) as wire:
            answer = wire.call(GET_ROUTEINFO_BY_TOPIC, {"topic": TOPIC}).checked()
        return TopicRouteData.from_body(answer.body)

    def leaders(self) -> dict[int, str]:
        """The broker of each logic queue, as the route says."""
        mappings = self.route().topic_queue_mapping_by_broker or {}
        return {
            int(queue_id): name
            for name, mapping in mappings.items()
            for queue_id in mapping["currIdMap"]
        }


@contextlib.contextmanager
def running(kinds: tuple[str, str], folder: Path) -> Iterator[Brokers]:
    one, two = folder / "one", folder / "two"
    keys: dict[str, object] = {"brokerName": FIRST}
    first = (
        TrocketPair(one, broker_keys=keys)
        if kinds[0] == OURS
        else ApacheCluster(kinds[0], one, broker_keys=keys)
    )
    keys = {"brokerName": SECOND, "namesrvAddr": first.namesrv_address}
    second = (
        TrocketBroker(two, store=two / "store", broker_keys=keys)
        if kinds[1] == OURS
        else ApacheCluster(kinds[1], two, broker_keys=keys)
    )
    with contextlib.closing(first), contextlib.closing(second):
        first.start()
        second.start_broker()
        for name in (FIRST, SECOND):
            wait_for_route(first.namesrv_address, name, timeout_s=TIMEOUT_S)
        yield Brokers(first, second)


@pytest.fixture(params=PAIRS)
def brokers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Brokers]:
    with running(request.param, tmp_path) as made:
        yield made


@pytest.fixture
def admin(tmp_path: Path) -> Iterator[AdminJvm]:
    jvm = AdminJvm(VERSION, tmp_path / "admin")
    with contextlib.closing(jvm):
        yield jvm


@pytest.fixture
def peer(tmp_path: Path) -> Iterator[JavaPeer]:
    with JavaPeer(VERSION, tmp_path / "client") as made:
        yield made


def play(admin: AdminJvm, brokers: Brokers, *words: str) -> str:
    printed, is_whole = admin.play([*words, "-n", brokers.namesrv])
    assert is_whole, printed
    assert not failure(printed), printed
    return printed


def wait_acknowledged(peer: JavaPeer, count: int) -> None:
    peer.wait(
        lambda: len(peer.acknowledged) >= count,
        timeout_s=TIMEOUT_S,
        what=f"{count} acknowledged messages",
    )


def wait_consumed(peer: JavaPeer, group: str) -> None:
    wanted = {seen.key for seen in peer.acknowledged}
    keys = peer.keys_by_group[group]
    peer.wait(lambda: keys >= wanted, timeout_s=TIMEOUT_S, what=f"all messages in {group}")


def test_nothing_is_lost_when_a_static_topic_is_moved(
    brokers: Brokers, admin: AdminJvm, peer: JavaPeer
) -> None:
    play(admin, brokers, "updateStaticTopic", "-t", TOPIC, "-qn", "4", "-b", f"{FIRST},{SECOND}")
    assert sorted(brokers.leaders().values()) == [FIRST, FIRST, SECOND, SECOND]
    peer.start_consuming("c1", [TOPIC], namesrv_address=brokers.namesrv, group="always")
    peer.start_consuming("c2", [TOPIC], namesrv_address=brokers.namesrv, group="always")
    peer.start_sending(
        "p", TOPIC, namesrv_address=brokers.namesrv, mode="sync", message_count=MESSAGE_COUNT,
        thread_count=4, keys=True, rate_per_s=RATE_PER_S, deadline_s=int(TIMEOUT_S),
    )  # fmt: skip
    wait_acknowledged(peer, MESSAGE_COUNT // 3)
    play(admin, brokers, "remappingStaticTopic", "-t", TOPIC, "-b", SECOND)
    assert brokers.leaders() == dict.fromkeys(range(QUEUES), SECOND)
    peer.wait_sent("p", timeout_s=TIMEOUT_S)
    assert len({seen.key for seen in peer.acknowledged}) == MESSAGE_COUNT
    assert {seen.queue_id for seen in peer.acknowledged} == set(range(QUEUES))
    wait_consumed(peer, "always")
    peer.start_consuming("c3", [TOPIC], namesrv_address=brokers.namesrv, group="later")
    wait_consumed(peer, "later")
    status = play(admin, brokers, "topicStatus", "-t", TOPIC)
    assert "__syslo__global__" in status
    for by in ("c1", "c2"):
        peer.stop_consuming(by)  # they commit their offsets
    progress = play(admin, brokers, "consumerProgress", "-g", "always")
    lines = [line.split() for line in progress.splitlines() if line.startswith(TOPIC)]
    assert {line[1] for line in lines} == {"__syslo__global__"}
    # Consumed to the end. mqadmin converts the broker's offset of a moved queue, not the group's.
    assert {(int(line[3]) - int(line[4])) % GAP for line in lines} == {0}
    assert len(lines) == QUEUES
    print(f"{len(peer.failure_texts)} attempts failed")
