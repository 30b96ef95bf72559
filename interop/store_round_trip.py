"""A data folder that our broker and Apache's open in turn, after clean stops and after kills.

    ours      creates topics, a group, messages                        stopped
    apache's  queried; more messages are sent                          stopped
    ours      queried; more messages; stopped, started, under load     killed
    apache's  queried; under load                                      killed
    ours      queried; more messages                                   stopped

Before each start the log is read from its files (`log_on_disk`): what the broker must serve. A
round trip only records; the checks of `store_differ` compare.
"""

from __future__ import annotations

import random
import shutil
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ..remoting.message import Message
from ..remoting.message_codec import encode_batch
from ..store.config import MessageStoreConfig
from ..store.message_store import MessageStore
from .apache import ApacheCluster
from .log_on_disk import Place, Stored, by_queue, read_log
from .maven import JAVA_SMALL
from .process import PeerError
from .trocket_peer import TrocketBroker
from .wire import SYSTEM_BUSY, Acknowledged, Outgoing, WireClient, acknowledged

SIZES: dict[str, dict[str, int]] = {
    "small files": {
        "mappedFileSizeCommitLog": 65_536,
        "mappedFileSizeConsumeQueue": 400,
        "maxHashSlotNum": 500,
        "maxIndexNum": 1_500,
    },
    "default sizes": {},
}
FREE_BYTES_MIN = 8 << 30
"""Disk space for round trips with default sizes, whose log files of 1 GiB are allocated ahead."""

TOPICS = {"Orders": 4, "Events": 8, "Single_1-a": 1}
GROUP = "chain-consumers"
GROUP_MEMBERS = {"consumeEnable": True, "retryQueueNums": 2, "retryMaxTimes": 7}
READER = "chain-readers"
MOMENTS = {
    "apache after our stop": "apache",
    "ours after apache's stop": "ours",
    "apache after our kill": "apache",
    "ours after apache's kill": "ours",
}
"""The visits of a round trip in order, and the broker of each."""

FIRST_LOAD_COUNT = 1_200
LOAD_COUNT = 300
KILL_LOAD_COUNT_MAX = 20_000
KILLED_AFTER_COUNT = 300
BURST = 50
KEYS_ASKED_COUNT = 40
DISPATCH_TIMEOUT_S = 30.0

BATCH_ENTRY = b"of a batch "
"""The beginning of the bodies of messages in batches."""

KEEP_ALL = {"fileReservedTime": 1_000_000, "diskMaxUsedSpaceRatio": 95}
APACHE_KEYS = {
    "namesrvAddr": None,
    "waitTimeMillsInSendQueue": 10_000,
    "enablePropertyFilter": False,
    **KEEP_ALL,
}
FULL_DISKS = (
    "-Drocketmq.broker.diskSpaceWarningLevelRatio=0.99",
    "-Drocketmq.broker.diskSpaceCleanForciblyRatio=0.98",
)
"""Apache's broker refuses sends on a disk that is 90 % full, which is not tested here."""

COMPRESSED = 1
"""Bit of a message's sysFlag: the body is a zlib stream."""


def apache_on_store(
    version: str, folder: Path, store: Path, keys: Mapping[str, object]
) -> ApacheCluster:
    """Apache's broker alone, on a store that our broker may open, too.

    Args:
      folder: for all but the store.
      keys: of broker.conf, over APACHE_KEYS.
    """
    paths = {"storePathRootDir": store, "storePathCommitLog": store / "commitlog"}
    return ApacheCluster(
        version,
        folder,
        broker_java=(*JAVA_SMALL, *FULL_DISKS),
        broker_keys={**APACHE_KEYS, **paths, **keys},
    )


@dataclass
class Visit:
    """What one broker served at one moment, and what it should have served.

    Attributes:
      asked: the broker: "trocket" or "apache-VERSION".
      expected: the log before the broker started.
      served, ends: each queue's records and its (min, max) offset.
      lookups: by (topic, key, is it the unique key) the places found; `searched`: the log then.
      times: by (topic, queue id, timestamp) the queue offset.
      acknowledged: all answers to sends so far, of both brokers.
      after_kill: the previous broker was killed.
      seconds: duration, including the broker's start; None: the visit was broken off.
    """

    asked: str
    expected: list[Stored]
    served: dict[tuple[str, int], list[Stored]] = field(default_factory=dict)
    ends: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    searched: list[Stored] = field(default_factory=list)
    lookups: dict[tuple[str, str, bool], list[Place]] = field(default_factory=dict)
    times: dict[tuple[str, int, int], int] = field(default_factory=dict)
    topics: dict[str, tuple[object, ...]] = field(default_factory=dict)
    group: dict[str, object] = field(default_factory=dict)
    offset: int | None = None
    offset_expected: int | None = None
    acknowledged: list[Acknowledged] = field(default_factory=list)
    after_kill: bool = False
    started_monotonic_s: float = field(default_factory=time.monotonic)
    seconds: float | None = None

    def end(self) -> None:
        """Record the end of the queries."""
        self.seconds = time.monotonic() - self.started_monotonic_s


class RoundTrip:
    """One round trip (see the module).

    Args:
      version: of Apache's broker.
      folder: for the store and the logs; `run` removes the store.
    """

    def __init__(self, version: str, sizes: str, folder: Path) -> None:
        self.store = folder / "store"
        self.visits: dict[str, Visit] = {}
        keys: dict[str, object] = dict(SIZES[sizes])
        self.version = version
        self.sizes = sizes
        self._random = random.Random(f"{version} {sizes}")
        self._load = Load(f"{version} {sizes}")
        self._acknowledged: list[Acknowledged] = []
        self._offset = 0
        self._offset_kept: int | None = None
        self.ours = TrocketBroker(
            folder / "ours", store=self.store, broker_keys={**keys, **KEEP_ALL}
        )
        self.apaches = apache_on_store(version, folder / "apaches", self.store, keys)

    def run(self) -> RoundTrip:
        """Make all steps and return itself. Raises: whatever failed on the way."""
        try:
            self._begin()
            self._visit_apaches("apache after our stop", self.apaches.stop_broker)
            self._visit_ours("ours after apache's stop")
            self._load_and_kill(self.ours)
            self._visit_apaches("apache after our kill", None)
            self._visit_ours("ours after apache's kill")
        finally:
            self.ours.close()
            self.apaches.close()
            shutil.rmtree(self.store, ignore_errors=True)
        return self

    # ---- the steps -----------------------------------------------------------------------

    def _begin(self) -> None:
        self.ours.start_broker()
        with WireClient(self.ours.broker_address) as client:
            for topic, count in TOPICS.items():
                client.create_topic(topic, queue_count=count)
            client.create_group(GROUP, **GROUP_MEMBERS)
            # Apache's 5.5.0 fails on sends without a body, but serves such messages.
            self._send(client, FIRST_LOAD_COUNT, empty_bodies=True)
            self._commit_offset(client)
        self.ours.stop_broker()

    def _visit_apaches(self, moment: str, stop: Callable[[], None] | None) -> None:
        """Query Apache's broker, send, and stop it by `stop`; None: kill it under load."""
        visit = self.visits[moment] = self._new_visit(self.apaches.label)
        self.apaches.start_broker()
        with WireClient(self.apaches.broker_address) as client:
            self._wait_dispatched(client, visit)
            self._ask(client, visit)
            visit.searched = visit.expected
            for topic, key, unique in self._questions(visit.searched):
                records = client.query_message(topic, key, unique=unique)
                places = [Stored.of(record).place for record in records]
                visit.lookups[topic, key, unique] = places
            visit.end()
            if stop is not None:
                self._send(client, LOAD_COUNT)
                self._commit_offset(client)
                stop()
        if stop is None:
            self._load_and_kill(self.apaches)

    def _visit_ours(self, moment: str) -> None:
        """Query our broker, send, and stop it; then look up keys in the store itself."""
        visit = self.visits[moment] = self._new_visit(self.ours.label)
        self.ours.start_broker()
        with WireClient(self.ours.broker_address) as client:
            self._ask(client, visit)
            self._send(client, LOAD_COUNT)
            self._commit_offset(client)
        self.ours.stop_broker()
        visit.searched = read_log(self.store)
        visit.lookups.update(self._look_up_in_our_store(visit.searched))
        visit.end()

    def _load_and_kill(self, peer: TrocketBroker | ApacheCluster) -> None:
        """Send without end, and kill the broker after `KILLED_AFTER_COUNT` answers."""
        peer.start_broker()
        with WireClient(peer.broker_address) as client:
            asked: list[Outgoing] = []  # the client's opaques count from 1

            def send_until_it_is_gone() -> None:
                for message in self._load.messages(KILL_LOAD_COUNT_MAX):
                    asked.append(message)
                    try:
                        client.start_send(message)
                    except PeerError:
                        return

            sender = threading.Thread(target=send_until_it_is_gone)
            sender.start()
            killed = False
            try:
                for count in range(KILL_LOAD_COUNT_MAX):
                    if count == KILLED_AFTER_COUNT:
                        peer.kill_broker()
                        killed = True
                    opaque, answer = client.receive()
                    if answer.code != SYSTEM_BUSY:  # Apache's, when it is slower than we send
                        place = acknowledged(asked[opaque - 1], answer.checked())
                        self._acknowledged.append(place)
            except PeerError:
                if not killed:
                    peer.kill_broker()
                    raise
                # All answers sent before the kill have been read.
            sender.join()

    # ---- queries -------------------------------------------------------------------------

    def _new_visit(self, asked: str) -> Visit:
        return Visit(
            asked,
            read_log(self.store),
            acknowledged=list(self._acknowledged),
            offset_expected=self._offset_kept,
            after_kill=(self.store / "abort").exists(),
        )

    def _ask(self, client: WireClient, visit: Visit) -> None:
        queues = by_queue(visit.expected)
        for queue, records in queues.items():
            visit.ends[queue] = client.min_offset(*queue), client.max_offset(*queue)
            visit.served[queue] = [Stored.of(raw) for raw in client.pull_all(READER, *queue)]
            for record in self._random.sample(records, min(3, len(records))):
                for timestamp in (-1, 0, 1):
                    time_ms = record.store_timestamp_ms + timestamp
                    visit.times[*queue, time_ms] = client.offset_by_time(*queue, time_ms)
        table = client.topics()
        for topic in TOPICS:
            members = table.get(topic, {})
            names = ("readQueueNums", "writeQueueNums", "perm")
            visit.topics[topic] = tuple(members.get(name) for name in names)
        group = client.groups().get(GROUP, {})
        visit.group = {name: group.get(name) for name in GROUP_MEMBERS}
        visit.offset = client.consumer_offset(GROUP, "Orders", 1)

    def _questions(self, log: list[Stored]) -> Iterator[tuple[str, str, bool]]:
        """Keys and unique keys from the whole log, including its first and last."""
        keyed = [record for record in log if record.keys]
        for record in [*self._random.sample(keyed, KEYS_ASKED_COUNT), keyed[0], keyed[-1]]:
            for key in record.keys:
                yield record.place[0], key, False
            if record.unique:
                yield record.place[0], record.unique, True
        yield "Orders", "no such key", False

    def _wait_dispatched(self, client: WireClient, visit: Visit) -> None:
        """Wait until Apache's broker has dispatched the log's last message to its queue and index.

        After a kill it does so in the background, while it already answers.
        """
        last = max(visit.expected, key=lambda record: record.physical_offset)
        deadline_s = time.monotonic() + DISPATCH_TIMEOUT_S
        pause = threading.Event()
        topic, queue_id, queue_offset = last.place
        while client.max_offset(topic, queue_id) <= queue_offset or not client.query_message(
            topic, last.unique, unique=True
        ):
            if time.monotonic() > deadline_s:
                return  # the checks will report what is missing
            pause.wait(0.05)

    def _look_up_in_our_store(
        self, log: list[Stored]
    ) -> Iterator[tuple[tuple[str, str, bool], list[Place]]]:
        """The lookups in our store, opened without a broker."""
        names = {
            "mappedFileSizeCommitLog": "mapped_file_size_commit_log",
            "mappedFileSizeConsumeQueue": "mapped_file_size_consume_queue",
            "maxHashSlotNum": "max_hash_slot_num",
            "maxIndexNum": "max_index_num",
        }
        config = MessageStoreConfig(store_path_root_dir=str(self.store))
        for key, size in SIZES[self.sizes].items():
            setattr(config, names[key], size)
        store = MessageStore(config)
        store.load()
        try:
            while store.index.is_behind:
                store.index.work(1.0)
            for topic, key, unique in self._questions(log):
                found = store.query_by_key(topic, key, 64, 0, 1 << 60)
                places = [Stored.of(bytes(buffer)).place for buffer in found.buffers]
                yield (topic, key, unique), places
        finally:
            store.close()

    # ---- sending -------------------------------------------------------------------------

    def _commit_offset(self, client: WireClient) -> None:
        self._offset += 11
        client.commit_offset(GROUP, "Orders", 1, self._offset)
        self._offset_kept = self._offset

    def _send(self, client: WireClient, count: int, *, empty_bodies: bool = False) -> None:
        messages = self._load.messages(count, empty_bodies=empty_bodies)
        self._acknowledged += client.send_all(messages, together=BURST)


class Load:
    """A generator of messages of many kinds; the same seed gives the same messages."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)
        self._number = 0

    def messages(self, count: int, *, empty_bodies: bool = False) -> Iterator[Outgoing]:
        """Sends with several keys or none, tags, batches, compressed and empty bodies."""
        queues = [(topic, queue) for topic, n in TOPICS.items() for queue in range(n)]
        for _ in range(count):
            self._number += 1
            number = self._number
            topic, queue_id = queues[number % len(queues)]
            if number % 40 == 0:
                entries = [(BATCH_ENTRY + b"%d" % i, _properties(number, i)) for i in range(5)]
                body = encode_batch(
                    [Message(topic, body, properties=properties) for body, properties in entries]
                )
                yield Outgoing(topic, queue_id, body, batch=True)
                continue
            body = b"%d " % number + self._random.randbytes(number % 300)
            if empty_bodies and number % 17 == 0:
                body = b""
            sys_flag = 0
            if number % 23 == 0 and body:
                body, sys_flag = zlib.compress(body * 20), COMPRESSED
            members = _properties(number, None)
            text = "".join(f"{name}\x01{value}\x02" for name, value in members.items())
            yield Outgoing(topic, queue_id, body, text, sys_flag=sys_flag)


def _properties(number: int, entry: int | None) -> dict[str, str]:
    """A unique key, a tag, and up to three keys: one alone, one shared by ten, one not ASCII."""
    properties = {"UNIQ_KEY": f"{number:024X}{0 if entry is None else entry + 1:08X}"}
    if number % 7:
        keys = [f"order{number}", f"customer{number // 10}"]
        if number % 11 == 0:
            keys.append(f"schlüssel-{number % 40}")
        properties["KEYS"] = " ".join(keys)
    properties["TAGS"] = f"Tag{number % 3}"
    return properties
