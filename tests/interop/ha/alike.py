"""Comparison of master and slave: the log's bytes, what is read, topics, groups, offsets."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import zip_longest
from pathlib import Path

from trocket.interop.log_on_disk import Stored
from trocket.interop.wire import Acknowledged, WireClient

from ...kit.waiting import wait_until
from .. import golden_stores
from .load import TOPICS
from .pair import Pair

Queue = tuple[str, int]

QUEUES: list[Queue] = [
    (topic, number) for topic, count in TOPICS.items() for number in range(count)
]
READER = "ha-readers"
GROUP = "ha-consumers"
RETRY_TIMES = 7
COPY_TIMEOUT_S = 180.0
SYNC_TIMEOUT_S = 120.0
"""Apache's 5.5.0 slave asks for topics, groups and offsets 10 s after its start and each 60 s. The
first time it often has not heard of its master: that it registers when it starts may fail."""
TOLD_MAX = 5


def make_tables(client: WireClient) -> None:
    """Make topics and a group on a master."""
    for topic, count in TOPICS.items():
        client.create_topic(topic, queue_count=count)
    client.create_group(GROUP, consumeEnable=True, retryQueueNums=1, retryMaxTimes=RETRY_TIMES)


def write_topics(folder: Path) -> None:
    """Give a slave that has not been started the topics, as from a copy of its master's files.

    Args:
      folder: of its store.
    """
    golden_stores.write_topics(
        folder, TOPICS, version={"stateVersion": 0, "timestamp": 0, "counter": 1}
    )


def commit_offsets(client: WireClient, first: int) -> None:
    """Pull from each queue, as a consumer does, and commit another offset in it."""
    for number, queue in enumerate(QUEUES):
        client.pull(GROUP, *queue, 0)
        client.commit_offset(GROUP, *queue, first + number)


def offsets(client: WireClient) -> dict[Queue, int | None]:
    """What a broker says is committed."""
    return {queue: client.consumer_offset(GROUP, *queue) for queue in QUEUES}


def ends(client: WireClient) -> dict[Queue, tuple[int, int]]:
    """Min and max offset of each queue."""
    return {queue: (client.min_offset(*queue), client.max_offset(*queue)) for queue in QUEUES}


def wait_copied(pair: Pair) -> None:
    """Wait until the slave has every message that its master has."""
    with pair.ask_master() as master, pair.ask_slave() as slave:
        wait_until(
            lambda: ends(slave) == ends(master),
            timeout_s=COPY_TIMEOUT_S,
            what=lambda: f"the slave has all: master {ends(master)}, slave {ends(slave)}",
        )


def assert_logs_are_equal(pair: Pair) -> int:
    """Wait until all files of both logs are equal, byte for byte; the number of files with bytes.

    A file that one side has allocated ahead counts as one of zeros.
    """

    def found() -> list[str]:
        master, slave = (_files(folder) for folder in pair.logs)
        return list(differences(master, slave))

    wait_until(lambda: not found(), timeout_s=COPY_TIMEOUT_S, what=lambda: f"{found()[:TOLD_MAX]}")
    return sum(any(data) for data in _files(pair.logs[0]).values())


def _files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def differences(master: Mapping[str, bytes], slave: Mapping[str, bytes]) -> Iterator[str]:
    """The first one of each file; zeros stand for what is not there."""
    for name in sorted(master.keys() | slave.keys()):
        size = max(len(master.get(name, b"")), len(slave.get(name, b"")))
        one, other = (files.get(name, b"").ljust(size, b"\0") for files in (master, slave))
        if one != other:
            at = next(at for at in range(size) if one[at] != other[at])
            yield f"{name} at {at}: master {one[at : at + 32]!r}, slave {other[at : at + 32]!r}"


def assert_reads_are_equal(pair: Pair, acknowledged: Collection[Acknowledged]) -> int:
    """Read every queue at both and count the messages; all that was acknowledged is there."""
    places: dict[tuple[str, int, int], int] = {}
    with pair.ask_master() as master, pair.ask_slave() as slave:
        assert ends(master) == ends(slave)
        for queue in QUEUES:
            both = (client.pull_all(READER, *queue) for client in (master, slave))
            for ours, theirs in zip_longest(*both):
                assert ours == theirs, queue
                stored = Stored.of(ours)
                places[stored.place] = stored.physical_offset
    for one in acknowledged:
        assert places.get((one.topic, one.queue_id, one.queue_offset)) == one.physical_offset, one
    return len(places)


def assert_tables_are_copied(pair: Pair) -> None:
    """Wait until the slave has its master's topics, group and offsets."""
    with pair.ask_master() as master, pair.ask_slave() as slave:
        expected = offsets(master)
        assert None not in expected.values(), expected

        def found() -> list[object]:
            topics, group = slave.topics(), slave.groups().get(GROUP, {})
            counts = {topic: topics.get(topic, {}).get("readQueueNums") for topic in TOPICS}
            return [counts, group.get("retryMaxTimes"), offsets(slave)]

        wait_until(
            lambda: found() == [TOPICS, RETRY_TIMES, expected],
            timeout_s=SYNC_TIMEOUT_S,
            what=lambda: f"expected {expected}, found {found()}",
        )
