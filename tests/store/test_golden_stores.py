"""Stores that Apache's brokers wrote open here, and say what Apache's own classes say of them."""

from __future__ import annotations

import hashlib
import json
import lzma
import tarfile
from bisect import bisect_left
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from trocket.common.java_hash import hash_prefix
from trocket.remoting.message_codec import decode_messages
from trocket.remoting.sys_flag import TRANSACTION_MASK, TRANSACTION_ROLLBACK_TYPE
from trocket.store.config import MessageStoreConfig
from trocket.store.index.index_entries import entries_of
from trocket.store.message_store import MessageStore
from trocket.store.offline.dump import dump_index
from trocket.store.offline.layout import read_layout
from trocket.store.offline.read_only import ReadOnlyDisk
from trocket.store.offline.selection import Selection
from trocket.store.reading.visible_log import VisibleLog
from trocket.store.status import GetMessageStatus

NAMES = [
    "4.9.7-edge",
    "4.9.7-ext",
    "4.9.7-killed",
    "4.9.7-mix",
    "5.5.0-crc",
    "5.5.0-edge",
    "5.5.0-ext",
    "5.5.0-killed",
    "5.5.0-mix",
]

KEYS = {
    "mappedFileSizeCommitLog": "mapped_file_size_commit_log",
    "mappedFileSizeConsumeQueue": "mapped_file_size_consume_queue",
    "maxMessageSize": "max_message_size",
    "maxHashSlotNum": "max_hash_slot_num",
    "maxIndexNum": "max_index_num",
}


def unpack(golden: Path, name: str, folder: Path) -> MessageStoreConfig:
    """The store laid out in a folder, and the configuration it was written with."""
    with tarfile.open(golden / "store" / f"{name}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    config = MessageStoreConfig(store_path_root_dir=str(folder / name))
    text = (golden / "store" / f"{name.split('-')[1]}.conf").read_text()
    for line in text.splitlines():
        key, _, value = line.partition("=")
        if key in KEYS:
            setattr(config, KEYS[key], int(value))
    return config


def manifest(golden: Path, name: str) -> list[dict]:
    """The manifest's lines."""
    plain = golden / "store" / f"{name}.manifest.jsonl"
    if plain.exists():
        text = plain.read_text()
    else:
        text = lzma.decompress(plain.with_suffix(".jsonl.xz").read_bytes()).decode()
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture(params=NAMES)
def opened(request, golden, tmp_path):
    """(store, the manifest's lines by kind) for each golden store."""
    store = MessageStore(unpack(golden, request.param, tmp_path))
    store.load()
    while store.index.is_behind:
        store.index.work(1.0)
    lines = defaultdict(list)
    for line in manifest(golden, request.param):
        lines[line["kind"]].append(line)
    yield store, lines
    store.close()


@pytest.mark.slow
def test_what_apache_says_of_a_store_is_said_of_it_here(opened):
    store, lines = opened
    for line in lines["store"]:
        assert store.min_physical_offset == line["minPhyOffset"]
        assert store.max_physical_offset == line["maxPhyOffset"]
    assert lines["queue"]
    for line in lines["queue"]:
        topic, queue_id = line["topic"], line["queueId"]
        assert store.min_offset(topic, queue_id) == line["minOffset"], line
        assert store.max_offset(topic, queue_id) == line["maxOffset"], line
        if "earliestMessageTime" in line:
            assert store.earliest_store_time(topic, queue_id) == line["earliestMessageTime"]
    assert lines["message"]
    for line in lines["message"]:
        check_message(store, line)
    for line in lines["index"]:
        check_index(store, line)
    differences = Counter(check_time(store, line) for line in lines["time"])
    del differences["as here"]
    assert differences == TIMES_OF_OTHERS.get(lines["about"][0]["store"], {})


TIMES_OF_OTHERS = {
    "4.9.7-edge": {"another of the same time": 3, "the newest": 10, "by file time": 4},
    "4.9.7-ext": {"the nearest": 2, "the newest": 2},
    "4.9.7-mix": {"another of the same time": 3, "the nearest": 5, "the newest": 12},
}
"""How many look-ups by time Apache answers with another message than we do, and with which. We do
as 5.x does, so that only 4.9.7 differs: it answers the nearest message, before or after, any of
several with that time, and in a queue of several files only one of the file that was modified last
before that time (on the machine of the recording)."""


def check_time(store, line):
    """Check a look-up by time; the difference between Apache's answer and ours."""
    topic, queue_id, wanted = line["topic"], line["queueId"], line["timestamp"]
    first, end = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
    times = [store.store_time_at(topic, queue_id, offset) for offset in range(first, end)]
    ours = first + bisect_left(times, wanted)
    assert store.offset_by_time(topic, queue_id, wanted) == ours, line
    theirs = line["offset"]
    if theirs == ours:
        return "as here"
    # Where one message only has that time, or all are later, there is but one answer.
    assert times.count(wanted) != 1, line
    assert wanted >= times[0], line
    if times[theirs - first] == wanted:
        return "another of the same time"
    if ours == end and theirs == end - 1:
        return "the newest"
    if theirs == ours - 1:
        assert wanted - times[theirs - first] <= times[ours - first] - wanted, line
        return "the nearest"
    assert topic == "EdgeCq", line
    assert theirs == 19, line  # 20 units to a file: the last of the first
    return "by file time"


def check_message(store, line):
    topic = line.get("cqTopic", line["topic"])
    queue_id = line.get("cqQueueId", line["queueId"])
    offset = line["queueOffset"]
    if "INNER_MULTI_QUEUE_OFFSET" in line.get("props", {}) and topic != line["topic"]:
        names = line["props"]["INNER_MULTI_DISPATCH"].split(",")
        offset = int(line["props"]["INNER_MULTI_QUEUE_OFFSET"].split(",")[names.index(topic)])
    count = int(line.get("props", {}).get("INNER_NUM", 1))
    for inside in range(offset + 1, offset + count):
        result = store.get_message(topic, queue_id, inside, 1)
        assert hashlib.sha1(result.buffers[0]).hexdigest() == line["rawSha1"]
    result = store.get_message(topic, queue_id, offset, 1)
    assert result.status is GetMessageStatus.FOUND
    assert (result.count, result.next_begin_offset) == (count, offset + count)
    (buffer,) = result.buffers
    assert len(buffer) == line["size"]
    if "rawSha1" in line:
        assert hashlib.sha1(buffer).hexdigest() == line["rawSha1"]
    (message,) = decode_messages(buffer, check_crc=True)
    assert message.physical_offset == line["physicalOffset"]
    assert message.store_timestamp_ms == line["storeTimestamp"]
    assert hashlib.sha1(message.body).hexdigest() == line["bodySha1"]


def check_index(store, line):
    end_ms = min(line["end"], 1 << 60)
    found = store.query_by_key(line["topic"], line["key"], line["max"], line["begin"], end_ms)
    messages = [decode_messages(buffer)[0] for buffer in found.buffers]
    # A message that has a key twice is found twice by Apache, and once here.
    theirs = list(dict.fromkeys(tuple(entry[:4]) for entry in line["found"]))
    assert [(m.topic, m.queue_id, m.queue_offset, m.physical_offset) for m in messages] == theirs, (
        line
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["5.5.0-crc", "5.5.0-edge", "5.5.0-ext", "5.5.0-mix"])
def test_the_index_of_apaches_store_has_the_entries_that_are_made_here(name, golden, tmp_path):
    config = unpack(golden, name, tmp_path)
    layout = read_layout(ReadOnlyDisk(), config.store_path_root_dir)
    rows = dump_index(ReadOnlyDisk(), layout, Selection(), None)
    theirs = [(row["keyHash"], row["physicalOffset"]) for row in rows if row["kind"] == "entry"]
    store = MessageStore(config)
    store.load()
    ours = [
        (code, offset)
        for record in VisibleLog(store.log, lambda: store.dispatched_offset).records(0)
        if record.sys_flag & TRANSACTION_MASK != TRANSACTION_ROLLBACK_TYPE
        for code, offset, _ in entries_of(
            hash_prefix(f"{record.topic}#"), record.properties, record.physical_offset, 0
        )
    ]
    store.close()
    assert ours == theirs


@pytest.mark.slow
def test_an_apache_store_goes_on_here_and_opens_again(golden, tmp_path):
    config = unpack(golden, "5.5.0-mix", tmp_path)
    store = MessageStore(config)
    store.load()
    before = store.max_offset("TopicPlain", 0)
    refusal, physical, offset = store.put_message(
        "TopicPlain",
        0,
        b"one more",
        b"KEYS\x01onemore\x02",
        born_timestamp_ms=1,
        born_host=bytes(8),
        store_host=bytes(8),
        tags_code=0,
    )
    assert refusal is None
    assert offset == before
    store.commit()
    store.close()
    again = MessageStore(config)
    again.load()
    assert again.max_offset("TopicPlain", 0) == before + 1
    assert bytes(again.message_at(physical)).find(b"one more") > 0
    assert len(again.query_by_key("TopicPlain", "onemore", 8, 0, 1 << 60).buffers) == 1
    again.close()
