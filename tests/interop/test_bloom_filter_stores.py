"""Bit maps of consume queue extensions and consumerFilter.json, handed to and fro with Apache's.

Groups are there by plain heartbeats, and pull by what these registered. That Apache's broker looks
at our bits is shown by taking some away.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from trocket.broker.filters.consumer_filter_manager import ConsumerFilterManager
from trocket.broker.filters.filter_bit_maps import FilterBitMaps
from trocket.common.clock import ManualClock
from trocket.interop.apache import ApacheCluster
from trocket.interop.maven import JAVA_SMALL
from trocket.interop.trocket_peer import TrocketBroker
from trocket.interop.wire import PULL_MESSAGE, SUCCESS, Outgoing, WireClient, split_records
from trocket.remoting.message_codec import decode_messages
from trocket.store.config import MessageStoreConfig
from trocket.store.message_store import MessageStore
from trocket.store.queues.consume_queue_ext import ExtendedConsumeQueue

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("java")]

SIZES = {
    "mapped_file_size_commit_log": 65_536,
    "mapped_file_size_consume_queue": 400,
    "mapped_file_size_consume_queue_ext": 8_192,
    "max_hash_slot_num": 500,
    "max_index_num": 1_500,
}
KEYS: dict[str, object] = {
    "mappedFileSizeCommitLog": 65_536,
    "mappedFileSizeConsumeQueue": 400,
    "mappedFileSizeConsumeQueueExt": 8_192,
    "maxHashSlotNum": 500,
    "maxIndexNum": 1_500,
    "enableConsumeQueueExt": True,
    "enableCalcFilterBitMap": True,
    "enablePropertyFilter": True,
    "diskMaxUsedSpaceRatio": 95,
}
APACHE_KEYS: dict[str, object] = {"namesrvAddr": None, "waitTimeMillsInSendQueue": 10_000}
FULL_DISKS = (
    "-Drocketmq.broker.diskSpaceWarningLevelRatio=0.99",
    "-Drocketmq.broker.diskSpaceCleanForciblyRatio=0.98",
)
HEART_BEAT = 34
TOPIC, COUNT = "Prices", 48
SEEN_VERSION = 7
DISPATCH_TIMEOUT_S = 20.0

Message = dict[str, str]
GROUPS: dict[str, tuple[str, Callable[[Message], bool]]] = {
    "above": ("price > 10", lambda m: int(m["price"]) > 10),
    "range": (
        "price BETWEEN 3 AND 20 AND region = 'eu'",
        lambda m: 3 <= int(m["price"]) <= 20 and m.get("region") == "eu",
    ),
    "nowhere": ("region IS NULL", lambda m: "region" not in m),
    "errors": ("region > 3", lambda m: False),
}


def message(number: int) -> Message:
    found = {"price": str(number % 30)}
    if number % 3:
        found["region"] = "eu" if number % 3 == 1 else "us"
    return found


class Unit(NamedTuple):
    """A stored message and its extension unit."""

    address: int
    bit_map: bytes | None
    store_timestamp_ms: int
    properties: bytes


def heartbeat(client: WireClient) -> None:
    """Of one client that is in all groups."""
    consumers = [
        {
            "groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "unitMode": False,
            "subscriptionDataSet": [
                {
                    "topic": TOPIC, "subString": text, "subVersion": SEEN_VERSION,
                    "expressionType": "SQL92", "classFilterMode": False, "tagsSet": [],
                    "codeSet": [],
                }
            ],
        }
        for group, (text, _) in GROUPS.items()
    ]  # fmt: skip
    body = {"clientID": "c1", "producerDataSet": [], "consumerDataSet": consumers}
    client.call(HEART_BEAT, {}, json.dumps(body).encode()).checked()


def send(client: WireClient, first: int) -> None:
    """So many messages, the numbers as bodies."""
    sent = []
    for number in range(first, first + COUNT):
        fields = {"UNIQ_KEY": f"{number:032X}", **message(number)}
        properties = "".join(f"{name}\x01{value}\x02" for name, value in fields.items())
        sent.append(Outgoing(TOPIC, 0, b"%d" % number, properties))
    assert [place.queue_offset for place in client.send_all(sent, together=1)] == [
        *range(first, first + COUNT)
    ]
    deadline_s = time.monotonic() + DISPATCH_TIMEOUT_S
    while client.max_offset(TOPIC, 0) < first + COUNT:  # Apache's queues come behind its log
        assert time.monotonic() < deadline_s


def pulled(client: WireClient, group: str) -> Iterator[int]:
    """The numbers of all messages that a group is given."""
    offset, end = 0, client.max_offset(TOPIC, 0)
    while offset < end:
        fields = {
            "consumerGroup": group, "topic": TOPIC, "queueId": 0, "queueOffset": offset,
            "maxMsgNums": 32, "sysFlag": 0, "commitOffset": 0, "suspendTimeoutMillis": 0,
            "subVersion": SEEN_VERSION,
        }  # fmt: skip
        answer = client.call(PULL_MESSAGE, fields)
        if answer.code == SUCCESS:
            for record in split_records(answer.body):
                yield int(decode_messages(record)[0].body)
        before, offset = offset, int(answer.fields["nextBeginOffset"])
        assert offset > before


def check(client: WireClient, count: int, *, without: int = -1) -> None:
    """Each group is given what it matches, but one message."""
    for group, (_, wants) in GROUPS.items():
        numbers = [number for number in range(count) if number != without]
        expected = [number for number in numbers if wants(message(number))]
        assert list(pulled(client, group)) == expected, group


def units(store: Path, copy: Path) -> list[Unit]:
    """What lies in the topic's queue, read from a copy of the store."""
    shutil.copytree(store, copy)
    opened = MessageStore(MessageStoreConfig(store_path_root_dir=str(copy), **SIZES))
    opened.load()
    queue = opened.queue_store.queues[TOPIC, 0]
    assert isinstance(queue, ExtendedConsumeQueue)
    found = []
    for offset in range(queue.max_offset):
        physical_offset, size, address = queue.unit_at(offset)
        record = opened.log.read(physical_offset, size)
        unit = queue.ext.unit_at(address)
        assert record is not None
        assert unit is not None
        (decoded,) = decode_messages(record)
        del record
        found.append(Unit(address, unit.bit_map, unit.store_timestamp_ms, decoded.properties_bytes))
    opened.close()
    shutil.rmtree(copy)
    return found


def filters_of(store: Path) -> ConsumerFilterManager:
    """What consumerFilter.json says, all of it valid here."""
    filters = ConsumerFilterManager(clock=ManualClock(), save=lambda name, text: None)
    text = (store / "config" / "consumerFilter.json").read_bytes()
    assert filters.decode(text) == len(GROUPS)
    return filters


def check_bits(filters: ConsumerFilterManager, found: list[Unit]) -> None:
    """Each message has the bits that we give it, and was stored after all groups were there.

    A broker of ours that was held up for 20 ms leaves some bit maps out.
    """
    maps = FilterBitMaps(filters, monotonic_s=lambda: 0.0)
    born_ms = [data.born_ms for data in filters.topics[TOPIC].values()]
    assert min(unit.store_timestamp_ms for unit in found) > max(born_ms)
    made = [unit for unit in found if unit.bit_map is not None]
    assert len(made) > len(found) * 2 / 3
    assert [unit.bit_map for unit in made] == [
        maps.bit_map_of(TOPIC, unit.properties) for unit in made
    ]


def take_bits_away(store: Path, unit: Unit) -> None:
    """Let an extension unit say that no filter matches its message."""
    position = unit.address + (1 << 63)
    folder = store / "consumequeue_ext" / TOPIC / "0"
    size = SIZES["mapped_file_size_consume_queue_ext"]
    path = folder / f"{position - position % size:020d}"
    data = bytearray(path.read_bytes())
    assert unit.bit_map is not None
    begin = position % size + 20
    assert data[begin : begin + len(unit.bit_map)] == unit.bit_map
    data[begin : begin + len(unit.bit_map)] = bytes(len(unit.bit_map))
    path.write_bytes(data)


@pytest.mark.matrix
def test_each_broker_uses_the_others_bit_maps(tmp_path: Path) -> None:
    store = tmp_path / "store"
    paths = {"storePathRootDir": store, "storePathCommitLog": store / "commitlog"}
    apaches = ApacheCluster(
        "5.5.0",
        tmp_path / "apaches",
        broker_java=(*JAVA_SMALL, *FULL_DISKS),
        broker_keys={**APACHE_KEYS, **paths, **KEYS},
    )
    ours = TrocketBroker(
        tmp_path / "ours", store=store, broker_keys={**KEYS, "verifyOldRecords": False}
    )
    try:
        apaches.start_broker()
        with WireClient(apaches.broker_address) as client:
            client.create_topic(TOPIC, queue_count=1)
            heartbeat(client)
            send(client, 0)
            check(client, COUNT)
        apaches.stop_broker()
        theirs = filters_of(store)
        assert theirs.encode() == (store / "config" / "consumerFilter.json").read_bytes()
        found = units(store, tmp_path / "copy")
        assert all(unit.bit_map for unit in found)
        check_bits(theirs, found)

        ours.start_broker()
        with WireClient(ours.broker_address) as client:
            heartbeat(client)
            check(client, COUNT)
            send(client, COUNT)
            check(client, 2 * COUNT)
        ours.stop_broker()
        saved = filters_of(store)
        assert {group: data.born_ms for group, data in saved.topics[TOPIC].items()} == {
            group: data.born_ms for group, data in theirs.topics[TOPIC].items()
        }
        found = units(store, tmp_path / "copy")
        check_bits(saved, found)

        wants = GROUPS["above"][1]
        given = [number for number in range(COUNT, 2 * COUNT) if found[number].bit_map is not None]
        hidden = next(number for number in given if wants(message(number)))
        take_bits_away(store, found[hidden])
        apaches.start_broker()
        with WireClient(apaches.broker_address) as client:
            heartbeat(client)
            check(client, 2 * COUNT, without=hidden)
    finally:
        ours.close()
        apaches.close()
