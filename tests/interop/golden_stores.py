"""The recorded stores of Apache's brokers: unpacked, with their sizes and what they hold."""

from __future__ import annotations

import json
import lzma
import tarfile
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trocket.disk.json_config import parse

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

Queue = tuple[str, int]


def unpack(golden: Path, name: str, folder: Path) -> Path:
    """The data folder, laid out in `folder`."""
    with tarfile.open(golden / "store" / f"{name}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder / name


def sizes(golden: Path, name: str) -> dict[str, object]:
    """The keys of broker.conf that a store was written with."""
    text = (golden / "store" / f"{name.partition('-')[2]}.conf").read_text()
    return {key: value for key, _, value in (line.partition("=") for line in text.splitlines())}


def manifest(golden: Path, name: str) -> dict[str, list[dict[str, Any]]]:
    """What Apache's own classes say of a store, by kind of line."""
    plain = golden / "store" / f"{name}.manifest.jsonl"
    if plain.exists():
        text = plain.read_text()
    else:
        text = lzma.decompress(plain.with_suffix(".jsonl.xz").read_bytes()).decode()
    lines: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in map(json.loads, text.splitlines()):
        lines[line["kind"]].append(line)
    return lines


def queue_of(line: dict[str, Any]) -> Queue:
    """The queue that a line of the manifest was read from."""
    return line.get("cqTopic", line["topic"]), line.get("cqQueueId", line["queueId"])


def consumer_offsets(store: Path) -> dict[tuple[str, str, int], int]:
    """What a store's consumerOffset.json keeps, by (group, topic, queue id)."""
    path = store / "config" / "consumerOffset.json"
    if not path.exists():
        return {}
    offsets: dict[tuple[str, str, int], int] = {}
    for key, by_queue in parse(path.read_bytes())["offsetTable"].items():
        topic, _, group = key.partition("@")
        for queue_id, offset in by_queue.items():
            offsets[group, topic, int(queue_id)] = offset
    return offsets


def add_topics(store: Path, queues: set[Queue]) -> None:
    """Give a store that no broker wrote the topics.json with which a broker serves its queues."""
    counts: dict[str, int] = {}
    for topic, queue_id in queues:
        counts[topic] = max(counts.get(topic, 0), queue_id + 1)
    write_topics(store, counts, version={})


def write_topics(store: Path, counts: Mapping[str, int], *, version: Mapping[str, int]) -> None:
    """Write a topics.json with these queue counts."""
    table = {
        topic: {
            "topicName": topic,
            "readQueueNums": count,
            "writeQueueNums": count,
            "perm": 6,
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": 0,
            "order": False,
        }
        for topic, count in counts.items()
    }
    path = store / "config" / "topics.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"dataVersion": version, "topicConfigTable": table}))
