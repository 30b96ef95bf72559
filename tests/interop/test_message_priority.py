"""Priority messages on our broker and on Apache's: the queues of sends, the order of pops."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Final

import pytest

from trocket.common.clock import SystemClock
from trocket.common.message_properties import PROPERTY_PRIORITY
from trocket.interop.apache import ApacheCluster
from trocket.interop.maven import fetch_jars
from trocket.interop.store_round_trip import KEEP_ALL, apache_on_store
from trocket.interop.trocket_peer import TrocketBroker
from trocket.interop.wire import UPDATE_AND_CREATE_TOPIC, Answer, Outgoing, WireClient
from trocket.remoting.message_codec import decode_messages

pytestmark = [pytest.mark.interop, pytest.mark.slow]

POP = 200050
QUEUES: Final = 4
DEADLINE_S: Final = 60.0
SENDS: Final = (
    f"{PROPERTY_PRIORITY}\x012",
    f"{PROPERTY_PRIORITY}\x010",
    f"{PROPERTY_PRIORITY}\x0199",
    f"{PROPERTY_PRIORITY}\x01-1",
    f"{PROPERTY_PRIORITY}\x01x",
    f"{PROPERTY_PRIORITY}\x01+2",
    f"{PROPERTY_PRIORITY}\x012147483648",
    f"{PROPERTY_PRIORITY}\x013\x02__SHARDINGKEY\x01k",
    f"{PROPERTY_PRIORITY}\x013\x02TAGS\x01A",
)


def create(client: WireClient, topic: str) -> None:
    fields: dict[str, object] = {
        "topic": topic, "defaultTopic": "TBW102", "readQueueNums": QUEUES,
        "writeQueueNums": QUEUES, "perm": 6, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0,
        "order": False, "attributes": "+message.type=PRIORITY",
    }  # fmt: skip
    client.call(UPDATE_AND_CREATE_TOPIC, fields).checked()


def pop(client: WireClient, topic: str) -> Answer:
    fields: dict[str, object] = {
        "consumerGroup": "G", "topic": topic, "queueId": -1, "maxMsgNums": 1,
        "invisibleTime": 600_000, "pollTime": 0, "bornTime": SystemClock().wall_ms(),
        "initMode": 0, "order": False,
    }  # fmt: skip
    return client.call(POP, fields)


def ends(client: WireClient, topic: str, count: int) -> list[int]:
    """The ends of the queues; Apache's broker indexes what is stored a moment later."""
    deadline_s = time.monotonic() + DEADLINE_S
    pause = threading.Event()
    while True:
        found = [client.max_offset(topic, queue_id) for queue_id in range(QUEUES)]
        if sum(found) == count or time.monotonic() > deadline_s:
            return found
        pause.wait(0.05)


def popped_queue(client: WireClient, topic: str) -> int:
    """The queue of the next message."""
    (message,) = decode_messages(pop(client, topic).checked().body)
    return message.queue_id


def seen_on(broker: TrocketBroker | ApacheCluster) -> list[object]:
    """What a broker does with priorities: queues of sends, properties kept, queues of pops."""
    broker.start_broker()
    with WireClient(broker.broker_address) as client:
        create(client, "T")
        create(client, "P")
        sends = [
            Outgoing("T", 1, b"x", f"UNIQ_KEY\x01{number:032}\x02{properties}\x02")
            for number, properties in enumerate(SENDS)
        ]
        seen: list[object] = [place.queue_id for place in client.send_all(sends, together=1)]
        assert sum(ends(client, "T", len(sends))) == len(sends)
        for queue_id in range(QUEUES):
            for record in client.pull_all("reader", "T", queue_id):
                (message,) = decode_messages(record)
                found = message.properties
                seen.append((found["UNIQ_KEY"], queue_id, found.get(PROPERTY_PRIORITY)))
        ranks = [
            Outgoing("P", 0, b"x", f"UNIQ_KEY\x01{rank:032}\x02{PROPERTY_PRIORITY}\x01{rank}\x02")
            for rank in (1, 3, 0, 2, 3)
        ]
        client.send_all(ranks, together=1)
        seen.append(ends(client, "P", len(ranks)))
        seen.append([popped_queue(client, "P") for _ in ranks])
    return seen


@pytest.mark.usefixtures("java")
def test_both_brokers_place_and_pop_by_priority_alike(tmp_path: Path) -> None:
    fetch_jars("5.5.0", "server")
    ours = TrocketBroker(tmp_path / "ours", store=tmp_path / "store", broker_keys=KEEP_ALL)
    apaches = apache_on_store(
        "5.5.0",
        tmp_path / "apaches",
        tmp_path / "apache-store",
        {"mappedFileSizeCommitLog": 1 << 20},
    )
    try:
        found = seen_on(ours)
        assert found[-1] == [3, 3, 2, 1, 0]
        assert found == seen_on(apaches)
    finally:
        ours.close()
        apaches.close()
