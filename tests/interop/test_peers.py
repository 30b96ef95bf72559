"""The clusters that the harness knows by name: each starts, takes messages and keeps them."""

from __future__ import annotations

import socket
import threading
import time
from pathlib import Path

import pytest

from trocket.interop.apache import ApacheCluster
from trocket.interop.peer import Cluster
from trocket.interop.peers import (
    APACHE_VERSIONS,
    DOCKER_VERSIONS,
    PEERS,
    check_peer,
    open_cluster,
    parse_peer,
    peer_version,
)
from trocket.interop.process import PeerError
from trocket.interop.wire import Outgoing, WireClient

TOPIC = "PeersTopic"
TIMEOUT_S = 60.0
BODIES = (b"first of a peer", b"second of a peer", b"third of a peer")


def give_and_take(cluster: Cluster, number: int) -> None:
    """Send one message and pull it, with those of before."""
    with WireClient(cluster.broker_address) as client:
        if number == 0:
            client.create_topic(TOPIC, queue_count=2)
        (place,) = client.send_all([Outgoing(TOPIC, 1, BODIES[number], "TAGS\x01a\x02")])
        assert (place.topic, place.queue_id, place.queue_offset) == (TOPIC, 1, number)
        take(client, number + 1)


def take(client: WireClient, count: int) -> None:
    """Pull the messages as soon as they are there; the broker dispatches them later."""
    deadline_s = time.monotonic() + TIMEOUT_S
    pause = threading.Event()
    while client.max_offset(TOPIC, 1) < count:
        assert time.monotonic() < deadline_s, f"{client.max_offset(TOPIC, 1)} of {count} are there"
        pause.wait(0.05)
    records = list(client.pull_all("PeersGroup", TOPIC, 1))
    assert len(records) == count
    for body, record in zip(BODIES, records, strict=False):
        assert body in record


def restart_and_kill(cluster: Cluster) -> None:
    """Stop the broker, start it, kill it, start it; messages are sent after each start."""
    cluster.stop_broker()
    cluster.start()
    give_and_take(cluster, 1)
    cluster.kill_broker()
    cluster.start()
    give_and_take(cluster, 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "trocket",
        *(
            pytest.param(f"apache-{version}", marks=[pytest.mark.interop, pytest.mark.matrix])
            for version in APACHE_VERSIONS
        ),
    ],
)
def test_a_peer_takes_and_keeps_messages_over_a_stop_and_a_kill(name: str, tmp_path: Path) -> None:
    assert check_peer(name) is None
    cluster = open_cluster(name, tmp_path / "cluster")
    try:
        assert cluster.label == name
        cluster.start()
        give_and_take(cluster, 0)
        restart_and_kill(cluster)
        assert cluster.pids
    finally:
        cluster.close()
    assert cluster.pids == []


@pytest.mark.slow
@pytest.mark.interop
def test_clients_are_told_of_the_filter_server_of_420(tmp_path: Path) -> None:
    cluster = open_cluster("apache-4.2.0", tmp_path / "cluster", {"filterServerNums": 1})
    assert isinstance(cluster, ApacheCluster)
    try:
        cluster.start()
        assert len(cluster.pids) == 3
        (address,) = cluster.filter_servers()
        WireClient(address).close()
        cluster.kill_broker()
        cluster.start()
        (again,) = cluster.filter_servers()
        assert again != address
        WireClient(again).close()
    finally:
        cluster.close()


@pytest.mark.slow
def test_keys_are_those_of_the_broker(tmp_path: Path) -> None:
    cluster = open_cluster("trocket", tmp_path / "cluster", {"autoCreateTopicEnable": False})
    try:
        cluster.start()
        with WireClient(cluster.broker_address) as client:
            client.start_send(Outgoing("Unknown", 0, b"x"))
            _, answer = client.receive()
        assert answer.code == 17  # TOPIC_NOT_EXIST
    finally:
        cluster.close()


# ---- clusters of others ------------------------------------------------------------------


@pytest.mark.slow
def test_an_external_cluster_is_asked_but_never_stopped(tmp_path: Path) -> None:
    owned = open_cluster("trocket", tmp_path / "cluster")
    try:
        owned.start()
        url = f"rocketmq://{owned.namesrv_address}"
        assert check_peer(url) is None
        external = open_cluster(url, tmp_path / "external")
        assert external.label == url
        assert external.namesrv_address == owned.namesrv_address
        assert external.broker_address == owned.broker_address
        assert external.pids == []
        external.start()
        give_and_take(external, 0)
        for refused in (external.stop_broker, external.kill_broker):
            with pytest.raises(PeerError, match=r"does not run .* cannot"):
                refused()
        external.close()
        give_and_take(external, 1)
    finally:
        owned.close()


def test_an_external_cluster_that_does_not_answer_cannot_be_started(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # and does not listen
        url = f"rocketmq://127.0.0.1:{unused.getsockname()[1]}"
        reason = check_peer(url)
        assert reason is not None
        assert reason.startswith(
            f"{url} does not answer, and the harness cannot start it: cannot connect to 127.0.0.1:"
        )
        cluster = open_cluster(url, tmp_path / "external")
        for refused in (cluster.start, cluster.start_broker):
            with pytest.raises(PeerError, match="the harness cannot start it"):
                refused()


def test_a_server_that_is_no_name_server_is_reported(tmp_path: Path) -> None:
    owned = socket.create_server(("127.0.0.1", 0))

    def hang_up() -> None:
        connection, _ = owned.accept()
        connection.close()

    thread = threading.Thread(target=hang_up)
    thread.start()
    reason = check_peer(f"rocketmq://127.0.0.1:{owned.getsockname()[1]}")
    thread.join()
    owned.close()
    assert reason is not None
    assert "the harness cannot start it" in reason


# ---- names -------------------------------------------------------------------------------


def test_the_peers_that_are_tried() -> None:
    assert PEERS[0] == "trocket"
    assert len(PEERS) == 1 + len(APACHE_VERSIONS) + len(DOCKER_VERSIONS)
    for name in PEERS:
        peer = parse_peer(name)
        assert peer.name == name
        assert peer.version == peer_version(name) != ""


def test_other_versions_and_clusters_have_names_too() -> None:
    assert parse_peer("apache-4.9.4").kind == "apache"
    assert parse_peer("docker-5.1.0").version == "5.1.0"
    assert parse_peer("rocketmq://host").kind == "external"
    assert peer_version("rocketmq://host:9876") == ""


@pytest.mark.parametrize(
    "name",
    ["", "kafka", "apache", "apache-", "apache-5", "apache-../x", "docker-latest", "apache-5.5.0 "],
)
def test_other_names_are_refused_with_those_there_are(name: str, tmp_path: Path) -> None:
    with pytest.raises(PeerError, match=r"there is no peer .*trocket, apache-5\.5\.0"):
        open_cluster(name, tmp_path / "cluster")
    with pytest.raises(PeerError, match="there is no peer"):
        check_peer(name)


@pytest.mark.parametrize(
    "url",
    [
        "rocketmq://",
        "rocketmq://:9876",
        "rocketmq://host:0",
        "rocketmq://host:65536",
        "rocketmq://host:port",
        "rocketmq://user@host",
        "rocketmq://host/path",
    ],
)
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(PeerError, match="is no rocketmq://HOST:PORT"):
        parse_peer(url)


@pytest.mark.interop
def test_a_version_without_a_filter_server_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PeerError, match=r"5\.5\.0 has no filter server"):
        ApacheCluster("5.5.0", tmp_path, filter_server=True)
