"""Our broker, started on each store that Apache's brokers recorded, serves it over the wire.

Needs no Java: the recordings and what Apache's own classes say of them lie beside the checkout.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from trocket.interop.trocket_peer import TrocketBroker
from trocket.interop.wire import WireClient
from trocket.remoting.message import MessageExt
from trocket.remoting.message_codec import decode_messages

from . import golden_stores
from .golden_stores import Queue, queue_of

pytestmark = pytest.mark.slow

GROUP = "interop-reader"
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
WITHOUT_TOPICS = ("edge", "crc")
"""Written by DefaultMessageStore itself: there is no topics.json."""


@dataclass(frozen=True)
class Served:
    """What our broker said of one store, and what the manifest says."""

    written_by: str
    lines: dict[str, list[dict[str, Any]]]
    kept_offsets: dict[tuple[str, str, int], int]
    records: dict[Queue, list[bytes]]
    ends: dict[Queue, tuple[int, int, int]]
    offsets_by_time: dict[tuple[str, int, int], int]
    offsets: dict[tuple[str, str, int], int | None]
    stopped_cleanly: bool

    def messages(self, queue: Queue) -> list[MessageExt]:
        return decode_messages(b"".join(self.records[queue]), check_crc=True)


def ask(broker: TrocketBroker, lines, kept, written_by: str) -> Served:
    queues = {queue_of(line) for line in (*lines["queue"], *lines["message"])}
    times = [(line["topic"], line["queueId"], line["timestamp"]) for line in lines["time"]]
    with WireClient(broker.broker_address) as client:
        served = Served(
            written_by,
            lines,
            kept,
            records={queue: list(client.pull_all(GROUP, *queue)) for queue in queues},
            ends={
                queue: (
                    client.min_offset(*queue),
                    client.max_offset(*queue),
                    client.earliest_store_time(*queue),
                )
                for queue in queues
            },
            offsets_by_time={time: client.offset_by_time(*time) for time in times},
            offsets={key: client.consumer_offset(*key) for key in kept},
            stopped_cleanly=True,
        )
    broker.stop_broker()
    return served


@pytest.fixture(scope="module", params=golden_stores.NAMES)
def served(
    request: pytest.FixtureRequest, golden: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """One start of our broker for each store; everything is asked before it is stopped."""
    name = request.param
    folder = tmp_path_factory.mktemp(name)
    store = golden_stores.unpack(golden, name, folder)
    lines = golden_stores.manifest(golden, name)
    if name.endswith(WITHOUT_TOPICS):
        golden_stores.add_topics(store, {queue_of(line) for line in lines["message"]})
    kept = golden_stores.consumer_offsets(store)
    keys = {**golden_stores.sizes(golden, name), "fileReservedTime": 1_000_000}
    broker = TrocketBroker(folder / "broker", store=store, broker_keys=keys)
    try:
        broker.start_broker()
        yield ask(broker, lines, kept, name.partition("-")[0])
    finally:
        broker.close()


def test_every_message_is_served_as_apache_wrote_it(served: Served) -> None:
    expected = defaultdict(list)
    for line in served.lines["message"]:
        expected[queue_of(line)].append(line)
    assert expected
    assert {queue for queue, records in served.records.items() if records} == set(expected)
    for queue, lines in expected.items():
        records, messages = served.records[queue], served.messages(queue)
        # What was still waiting for its time when the writer stopped is delivered by ours.
        delivered = messages[len(lines) :]
        assert {message.properties.get("REAL_TOPIC") for message in delivered} <= {queue[0]}
        records, messages = records[: len(lines)], messages[: len(lines)]
        assert [
            (len(record), message.physical_offset)
            for record, message in zip(records, messages, strict=True)
        ] == [(line["size"], line["physicalOffset"]) for line in lines]
        assert [m.store_timestamp_ms for m in messages] == [x["storeTimestamp"] for x in lines]
        bodies = [hashlib.sha1(message.body).hexdigest() for message in messages]
        assert bodies == [line["bodySha1"] for line in lines]
        # A manifest that was pulled from a broker lacks the records' own sums.
        if "rawSha1" in lines[0]:
            sums = [hashlib.sha1(record).hexdigest() for record in records]
            assert sums == [line["rawSha1"] for line in lines]


def test_every_acknowledged_message_is_there_though_the_writer_was_killed(served: Served) -> None:
    there = {
        (message.topic, message.queue_id, message.queue_offset): (
            message.physical_offset,
            message.properties.get("UNIQ_KEY"),
        )
        for queue in served.records
        for message in served.messages(queue)
    }
    for line in served.lines["acked"]:
        place = line["topic"], line["queueId"], line["queueOffset"]
        assert there[place] == (line["physicalOffset"], line["uniqId"])


def test_queues_begin_and_end_where_apaches_do(served: Served) -> None:
    assert served.lines["queue"]
    delayed_topics = {
        line["props"]["REAL_TOPIC"]
        for line in served.lines["message"]
        if line["topic"] == SCHEDULE_TOPIC
    }
    for line in served.lines["queue"]:
        minimum, maximum, earliest_ms = served.ends[line["topic"], line["queueId"]]
        assert minimum == line["minOffset"], line
        if maximum > line["maxOffset"]:
            assert line["topic"] in delayed_topics, line
        else:
            assert maximum == line["maxOffset"], line
        if "earliestMessageTime" in line:
            assert earliest_ms == line["earliestMessageTime"], line


def test_a_time_is_answered_with_the_first_message_at_or_after_it(served: Served) -> None:
    # 4.9.7 answers the nearest message, before or after; 5.x, and we, the first at or after it.
    if served.written_by.startswith("5"):
        for line in served.lines["time"]:
            time = line["topic"], line["queueId"], line["timestamp"]
            assert served.offsets_by_time[time] == line["offset"], line
    assert served.stopped_cleanly


def test_consumers_go_on_where_apaches_broker_left_them(served: Served) -> None:
    assert served.offsets == served.kept_offsets
