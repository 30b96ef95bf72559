"""Topics of batches (`queue.type=BatchCQ`) with the official Java clients.

Runs against Apache's own broker too (TROCKET_INTEROP_PEER=apache-5.5.0): what is asked of ours here
is what Apache's does.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from trocket.interop.java_peer import JavaPeer
from trocket.interop.peer import Cluster
from trocket.interop.wire import UPDATE_AND_CREATE_TOPIC, WireClient

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("java")]

TOPIC = "OfBatches"
QUEUE_COUNT = 4
COUNTS = {"batch": 960, "sync": 200}
TIMEOUT_S = 120.0


def create_topic(cluster: Cluster) -> None:
    with WireClient(cluster.broker_address) as client:
        fields = {
            "topic": TOPIC, "defaultTopic": "TBW102", "readQueueNums": QUEUE_COUNT,
            "writeQueueNums": QUEUE_COUNT, "perm": 6, "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": 0, "order": False, "attributes": "+queue.type=BatchCQ",
        }  # fmt: skip
        client.call(UPDATE_AND_CREATE_TOPIC, fields).checked()


def send(peer: JavaPeer, cluster: Cluster, name: str, modes: list[str]) -> None:
    """Producers of these modes, until all is acknowledged."""
    producers = [f"{name}-{mode}" for mode in modes]
    for by, mode in zip(producers, modes, strict=True):
        peer.start_sending(
            by,
            TOPIC,
            namesrv_address=cluster.namesrv_address,
            mode=mode,
            message_count=COUNTS[mode],
            keys=True,
        )
    peer.wait_sent(*producers, timeout_s=TIMEOUT_S)


def stored_messages(cluster: Cluster) -> int:
    with WireClient(cluster.broker_address) as client:
        return sum(client.max_offset(TOPIC, queue_id) for queue_id in range(QUEUE_COUNT))


def stored_records(cluster: Cluster) -> int:
    with WireClient(cluster.broker_address) as client:
        return sum(
            sum(1 for _ in client.pull_all("counts", TOPIC, queue_id))
            for queue_id in range(QUEUE_COUNT)
        )


@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_batches_and_single_messages_are_all_consumed_also_after_a_restart(
    make_cluster: Callable[[], Cluster], tmp_path: Path, ending: str
) -> None:
    cluster = make_cluster()
    cluster.start()
    create_topic(cluster)
    with JavaPeer("5.5.0", tmp_path / "client") as peer:
        send(peer, cluster, "early", ["batch", "sync"])
        if ending == "stop":
            cluster.stop_broker()
        else:
            cluster.kill_broker()
        cluster.start_broker()
        send(peer, cluster, "late", ["batch", "sync"])
        peer.start_consuming("c", [TOPIC], namesrv_address=cluster.namesrv_address, group="group-c")
        expected = {seen.key for seen in peer.acknowledged}
        keys = peer.keys_by_group["group-c"]
        peer.wait(lambda: keys >= expected, timeout_s=TIMEOUT_S, what="all messages")
        peer.stop_consuming("c")
        count = 2 * sum(COUNTS.values())
        assert len(expected) == stored_messages(cluster) == count
        # 32 messages to a batch: each is one record.
        assert stored_records(cluster) == 2 * (COUNTS["batch"] // 32 + COUNTS["sync"])
        places = [seen.place for seen in peer.received_by_group("group-c")]
        assert len(set(places)) == len(places) == count


def test_an_old_clients_batches_can_be_consumed_by_old_and_new_clients(
    make_cluster: Callable[[], Cluster], tmp_path: Path
) -> None:
    cluster = make_cluster()
    cluster.start()
    create_topic(cluster)
    with (
        JavaPeer("4.9.7", tmp_path / "old") as old,
        JavaPeer("5.5.0", tmp_path / "new") as new,
    ):
        send(old, cluster, "old", ["batch", "sync"])
        expected = {seen.key for seen in old.acknowledged}
        for peer, group in ((old, "group-old"), (new, "group-new")):
            address = cluster.namesrv_address
            peer.start_consuming("c", [TOPIC], namesrv_address=address, group=group)
            keys = peer.keys_by_group[group]
            peer.wait(
                lambda keys=keys: keys >= expected, timeout_s=TIMEOUT_S, what=f"all in {group}"
            )
            peer.stop_consuming("c")
        assert stored_records(cluster) == stored_messages(cluster) == sum(COUNTS.values())
