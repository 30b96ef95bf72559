"""Queues of batches and consume queue extensions, handed to and fro with Apache's broker.

One store, small files; each broker in turn is asked for everything, gets more, and is stopped or
killed. Asked is by plain requests: for every record of every queue, and for one tag's.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from trocket.interop.apache import ApacheCluster
from trocket.interop.maven import JAVA_SMALL
from trocket.interop.trocket_peer import TrocketBroker
from trocket.interop.wire import (
    PULL_MESSAGE,
    SUCCESS,
    UPDATE_AND_CREATE_TOPIC,
    WITH_SUBSCRIPTION,
    Outgoing,
    WireClient,
    split_records,
)
from trocket.remoting.message import Message
from trocket.remoting.message_codec import decode_messages, encode_batch, iter_batch
from trocket.remoting.sys_flag import INNER_BATCH

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("java")]

KEYS: dict[str, object] = {
    "mappedFileSizeCommitLog": 65_536,
    "mappedFileSizeConsumeQueue": 400,
    "mapperFileSizeBatchConsumeQueue": 460,
    "mappedFileSizeConsumeQueueExt": 512,
    "enableConsumeQueueExt": True,
    "maxHashSlotNum": 500,
    "maxIndexNum": 1_500,
    "fileReservedTime": 1_000_000,
    "diskMaxUsedSpaceRatio": 95,
}
APACHE_KEYS: dict[str, object] = {"namesrvAddr": None, "waitTimeMillsInSendQueue": 10_000}
FULL_DISKS = (
    "-Drocketmq.broker.diskSpaceWarningLevelRatio=0.99",
    "-Drocketmq.broker.diskSpaceCleanForciblyRatio=0.98",
)
BATCHES, PLAIN = "Batches", "Plain"
ROUND_COUNT = 60
Bodies = list[tuple[int, bytes]]


class Relay:
    """The store and what must be in it."""

    def __init__(self, folder: Path) -> None:
        self.store = folder / "store"
        self.ours = TrocketBroker(folder / "ours", store=self.store, broker_keys=KEYS)
        paths = {"storePathRootDir": self.store, "storePathCommitLog": self.store / "commitlog"}
        self.apaches = ApacheCluster(
            "5.5.0",
            folder / "apaches",
            broker_java=(*JAVA_SMALL, *FULL_DISKS),
            broker_keys={**APACHE_KEYS, **paths, **KEYS},
        )
        self.batches: Bodies = []
        self.plain: Bodies = []
        self.tagged: list[bytes] = []
        self._number = 0

    def begin(self) -> None:
        """Our broker makes the topics."""
        self.ours.start_broker()
        with WireClient(self.ours.broker_address) as client:
            client.create_topic(PLAIN, queue_count=1)
            fields = {
                "topic": BATCHES, "defaultTopic": "TBW102", "readQueueNums": 1,
                "writeQueueNums": 1, "perm": 6, "topicFilterType": "SINGLE_TAG",
                "topicSysFlag": 0, "order": False, "attributes": "+queue.type=BatchCQ",
            }  # fmt: skip
            client.call(UPDATE_AND_CREATE_TOPIC, fields).checked()

    def load(self, client: WireClient) -> None:
        """Batches of one to five messages, single messages, and tagged ones in a plain queue."""
        sent, sizes = [], []
        for _ in range(ROUND_COUNT):
            self._number += 1
            bodies = [b"%d.%d" % (self._number, part) for part in range(self._number % 5 + 1)]
            unique = f"UNIQ_KEY\x01{self._number:032X}\x02"
            if self._number % 3:
                batch = encode_batch([Message(BATCHES, body) for body in bodies])
                sent.append(Outgoing(BATCHES, 0, batch, unique, batch=True))
            else:
                bodies = bodies[:1]
                sent.append(Outgoing(BATCHES, 0, bodies[0], unique))
            end = self.batches[-1][0] + 1 if self.batches else 0
            self.batches += [(end + part, body) for part, body in enumerate(bodies)]
            sizes.append(end)
            tag = self._number % 4
            body = b"plain %d" % self._number
            sent.append(Outgoing(PLAIN, 0, body, f"{unique}TAGS\x01Tag{tag}\x02"))
            sizes.append(len(self.plain))
            self.plain.append((len(self.plain), body))
            if tag == 1:
                self.tagged.append(body)
        places = client.send_all(sent, together=1)
        assert [place.queue_offset for place in places] == sizes

    def check(self, client: WireClient) -> None:
        """Everything is served at its place, and of one tag exactly that."""
        assert list(messages(client.pull_all("check", BATCHES, 0))) == self.batches
        assert list(messages(client.pull_all("check", PLAIN, 0))) == self.plain
        assert [body for _, body in messages(pull_tagged(client, "Tag1"))] == self.tagged
        inside = self.batches[-2][0]
        answer = client.pull("check", BATCHES, 0, inside).checked()
        assert int(answer.fields["nextBeginOffset"]) == len(self.batches)

    def close(self) -> None:
        self.ours.close()
        self.apaches.close()


def messages(records: Iterator[bytes]) -> Iterator[tuple[int, bytes]]:
    """(queue offset, body) of each message, those of an inner batch one by one."""
    for record in records:
        (message,) = decode_messages(record, check_crc=True)
        if message.sys_flag & INNER_BATCH:
            for part, (_, body, _) in enumerate(iter_batch(message.body)):
                yield message.queue_offset + part, body
        else:
            yield message.queue_offset, message.body


def pull_tagged(client: WireClient, tag: str) -> Iterator[bytes]:
    """The records of the plain topic that a consumer of one tag is given."""
    offset, end = 0, client.max_offset(PLAIN, 0)
    while offset < end:
        fields = {
            "consumerGroup": "check", "topic": PLAIN, "queueId": 0, "queueOffset": offset,
            "maxMsgNums": 32, "sysFlag": WITH_SUBSCRIPTION, "commitOffset": 0,
            "suspendTimeoutMillis": 0, "subscription": tag, "subVersion": 0,
            "expressionType": "TAG",
        }  # fmt: skip
        answer = client.call(PULL_MESSAGE, fields)
        if answer.code == SUCCESS:
            yield from split_records(answer.body)
        before, offset = offset, int(answer.fields["nextBeginOffset"])
        assert offset > before


@pytest.fixture
def relay(tmp_path: Path) -> Iterator[Relay]:
    """A store that was never opened."""
    relay = Relay(tmp_path)
    yield relay
    relay.close()


@pytest.mark.matrix
def test_each_broker_goes_on_with_the_others_store(relay: Relay) -> None:
    relay.begin()
    with WireClient(relay.ours.broker_address) as client:
        relay.load(client)
        relay.check(client)
    relay.ours.stop_broker()
    for ending in ("stop_broker", "kill_broker"):
        for broker in (relay.apaches, relay.ours):
            broker.start_broker()
            with WireClient(broker.broker_address) as client:
                relay.check(client)
                relay.load(client)
                relay.check(client)
            getattr(broker, ending)()
    relay.apaches.start_broker()
    with WireClient(relay.apaches.broker_address) as client:
        relay.check(client)
    folders = {path.name for path in (relay.store / "batchconsumequeue").iterdir()}
    assert folders == {BATCHES}
    assert len(list((relay.store / "consumequeue_ext" / PLAIN / "0").iterdir())) > 3
