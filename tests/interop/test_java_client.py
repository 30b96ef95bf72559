"""The official Java client, 5.5.0 and 4.9.7, sends to and consumes from a running broker.

What "nothing lost" means here: every acknowledged message is received by each group, with the
unique key and at the queue offset that were acknowledged. Repeats are counted and printed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from trocket.interop.java_peer import JavaPeer, MessageSeen
from trocket.interop.peer import Cluster
from trocket.interop.process import PeerError

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("java")]

VERSIONS = ["5.5.0", pytest.param("4.9.7", marks=pytest.mark.matrix)]
MODES = ["sync", "async", "oneway", "batch"]
TOPICS = ["AutoCreated", "CreatedBefore"]
MESSAGE_COUNT = 10_000
PRODUCER_MESSAGE_COUNT = MESSAGE_COUNT // (len(MODES) * len(TOPICS))
ONEWAY_RATE_PER_S = 1_000.0
TOTAL_TIMEOUT_S = 120.0
GROUPS = {"group-one": ["one"], "group-two": ["two-a", "two-b"]}


@pytest.fixture
def cluster(make_cluster: Callable[[], Cluster]) -> Cluster:
    """A running name server and broker."""
    cluster = make_cluster()
    cluster.start()
    return cluster


@pytest.fixture(params=VERSIONS)
def peer(request: pytest.FixtureRequest, tmp_path: Path, cluster: Cluster) -> Iterator[JavaPeer]:
    """A JVM of each client version, with two groups (three consumers) waiting for messages."""
    with JavaPeer(request.param, tmp_path / "client") as peer:
        peer.create_topic(
            "CreatedBefore",
            namesrv_address=cluster.namesrv_address,
            broker_address=cluster.broker_address,
            queue_count=8,
        )
        for group, consumers in GROUPS.items():
            for by in consumers:
                peer.start_consuming(
                    by, TOPICS, namesrv_address=cluster.namesrv_address, group=group
                )
        yield peer


def start_producers(peer: JavaPeer, cluster: Cluster, *, rate_per_s: float) -> list[str]:
    """One producer for each mode and topic; returns their ids."""
    producers = []
    for topic in TOPICS:
        for mode in MODES:
            by = f"{mode}-{topic}"
            peer.start_sending(
                by,
                topic,
                namesrv_address=cluster.namesrv_address,
                mode=mode,
                message_count=PRODUCER_MESSAGE_COUNT,
                thread_count=4 if mode == "sync" else 1,
                keys=True,
                tags="TagA,TagB",
                rate_per_s=ONEWAY_RATE_PER_S if mode == "oneway" else rate_per_s,
                deadline_s=int(TOTAL_TIMEOUT_S),
            )
            producers.append(by)
    return producers


def wait_consumed(peer: JavaPeer, expected: set[str]) -> None:
    """Wait until each group has received every one of these keys."""
    for group in GROUPS:
        keys = peer.keys_by_group[group]
        try:
            peer.wait(
                lambda keys=keys: len(keys) >= len(expected) and keys >= expected,
                timeout_s=TOTAL_TIMEOUT_S,
                what=f"all {len(expected)} messages in {group}",
            )
        except PeerError:
            missing = sorted(expected - keys)
            pytest.fail(f"{group} lacks {len(missing)} of {len(expected)}: {missing[:10]}")


def stop_consumers(peer: JavaPeer) -> None:
    """Shut the consumers down: nothing is reported afterwards."""
    for consumers in GROUPS.values():
        for by in consumers:
            peer.stop_consuming(by)


def contents(messages: list[MessageSeen]) -> set[tuple[str, str, int, str]]:
    """What a message says, wherever it is stored."""
    return {(seen.topic, seen.key, seen.crc, seen.tags) for seen in messages}


def assert_places_are_as_acknowledged(peer: JavaPeer) -> None:
    """Each acknowledged (topic, queue, offset) holds the message it was acknowledged for.

    In a batch from 5.5.0 every message bears the batch's unique key, so there the body's key alone
    counts.
    """
    places = {seen.place: seen for seen in peer.acknowledged}
    assert len(places) == len(peer.acknowledged), "two acknowledged messages have one place"
    for group in GROUPS:
        found = {seen.place: seen for seen in peer.received_by_group(group)}
        for place, acknowledged in places.items():
            received = found.get(place)
            assert received is not None, f"{group}: nothing at {place}, acknowledged {acknowledged}"
            assert received.key == acknowledged.key, f"{group}: another message at {place}"
            if not acknowledged.by.startswith("batch"):
                assert received.unique == acknowledged.unique, f"{group}: another attempt {place}"


def repeats(messages: list[MessageSeen]) -> int:
    """How many of these are further copies of a message already counted."""
    return sum(count - 1 for count in Counter(seen.key for seen in messages).values())


def test_two_groups_receive_exactly_what_was_sent_in_every_mode(
    cluster: Cluster, peer: JavaPeer
) -> None:
    producers = start_producers(peer, cluster, rate_per_s=0.0)
    peer.wait_sent(*producers, timeout_s=TOTAL_TIMEOUT_S)
    wait_consumed(peer, {seen.key for seen in peer.acknowledged + peer.sent_oneway})
    stop_consumers(peer)
    sent = contents(peer.acknowledged + peer.sent_oneway)
    assert len(sent) == MESSAGE_COUNT
    for group in GROUPS:
        assert contents(peer.received_by_group(group)) == sent
    # Only an attempt that failed in the client's eyes may have left a second copy.
    assert repeats(peer.received_by_group("group-one")) <= len(peer.failure_texts)
    assert_places_are_as_acknowledged(peer)


def test_nothing_acknowledged_is_lost_when_the_broker_is_restarted_and_killed(
    cluster: Cluster, peer: JavaPeer
) -> None:
    producers = start_producers(peer, cluster, rate_per_s=400.0)
    answered_count = MESSAGE_COUNT * 3 // 4

    def wait_acknowledged(least: int) -> None:
        peer.wait(
            lambda: len(peer.acknowledged) >= least,
            timeout_s=TOTAL_TIMEOUT_S,
            what=f"{least} acknowledged messages",
        )

    wait_acknowledged(answered_count // 4)
    cluster.stop_broker()
    cluster.start_broker()
    wait_acknowledged(answered_count // 2)
    cluster.kill_broker()
    cluster.start_broker()
    peer.wait_sent(*producers, timeout_s=TOTAL_TIMEOUT_S)
    assert len(contents(peer.acknowledged)) == answered_count
    wait_consumed(peer, {seen.key for seen in peer.acknowledged})
    stop_consumers(peer)
    for group in GROUPS:
        received = contents(peer.received_by_group(group))
        assert contents(peer.acknowledged) <= received
        assert received <= contents(peer.acknowledged + peer.sent_oneway)
        count = repeats(peer.received_by_group(group))
        print(f"{cluster.label} {group}: {count} repeats, {len(received)} messages")
    print(f"{len(peer.failure_texts)} attempts failed")
    assert_places_are_as_acknowledged(peer)
