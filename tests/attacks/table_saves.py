"""A simulated broker whose tables cannot be saved now and then, while its log takes every write.

Steps are drawn from a seed: sends into old and new topics, batches, what is sent back, an
administrator's topics, wider topics and deletions; saves of one table, or of all, fail at one of
their calls, for one time or until the disk is mended; and the broker is killed. What was answered
with success must be there afterwards, and what was refused must not be stored.
"""

from __future__ import annotations

import errno
from collections import defaultdict
from random import Random
from typing import Any

import trio

from trocket.disk.memory_disk import MemoryDisk
from trocket.remoting.message import Message
from trocket.remoting.message_codec import decode_messages, encode_batch

from ..kit import (
    Broker,
    Client,
    broker_and_client,
    embedded_broker,
    pull_fields,
    send_fields,
    topic_fields,
)

SEND, BATCH, PULL, SEND_BACK, CREATE, DELETE = 310, 320, 11, 36, 17, 215
CALLS = ("pwrite", "sync", "rename", "sync_folder", "unlink")
FILES = ("topics.json", "subscriptionGroup.json", "deleted_topics", "/config")
QUEUES_MAX = 6
SMALL: dict[str, Any] = {"mapped_file_size_consume_queue": 100 * 20}
"""Each of some hundred queues has a file, which takes all of its memory from the beginning."""


class Broken(Exception):
    """The broker has broken a promise."""


class Play:
    """One run.

    Args:
      seed: of all choices.
    """

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._disk = MemoryDisk()
        self._is_failing = False
        self._promised: dict[tuple[str, int], dict[int, bytes]] = defaultdict(dict)
        self._refused: set[bytes] = set()
        self._queues: dict[str, int] = {}  # of topics that an administrator made
        self._deleted: set[str] = set()
        self._count = 0

    async def run(self, lives: int, steps: int) -> None:
        """Live so often, each time until a kill.

        Raises: Broken.
        """
        for _ in range(lives):
            async with broker_and_client(self._disk, **SMALL) as (broker, client):
                await self._check(broker, client)
                for _ in range(self._random.randrange(steps)):
                    await self._step(client)
                killed = self._disk.copy()
                self._disk.fault = None
            self._disk, self._is_failing = killed, False
        async with embedded_broker(self._disk, **SMALL) as broker:
            await self._check(broker, await broker.connect())

    async def _step(self, client: Client) -> None:
        steps = [
            (8, self._send), (2, self._batch), (2, self._send_back), (2, self._create),
            (1, self._delete), (2, self._fail_or_mend), (1, self._wait),
        ]  # fmt: skip
        weights = [weight for weight, _ in steps]
        await self._random.choices([step for _, step in steps], weights)[0](client)

    def _topic(self) -> str:
        known = sorted({topic for topic, _ in self._promised} | self._queues.keys())
        known = [topic for topic in known if not topic.startswith("%")]
        if known and self._random.random() < 0.6:
            return self._random.choice(known)
        self._count += 1
        return f"T{self._count}"

    def _body(self) -> bytes:
        self._count += 1
        return b"m%d" % self._count

    def _heard(self, topic: str, fields: dict[str, str], code: int, bodies: list[bytes]) -> None:
        if code != 0:
            self._refused |= set(bodies)
            return
        self._deleted.discard(topic)
        for number, body in enumerate(bodies):
            offset = int(fields["queueOffset"]) + number
            self._promised[topic, int(fields["queueId"])][offset] = body

    async def _send(self, client: Client) -> None:
        topic, body = self._topic(), self._body()
        queue_id = self._random.randrange(self._queues.get(topic, 4))
        answer = await client.ask(SEND, send_fields(topic, queue_id), body)
        self._heard(topic, dict(answer.ext_fields), answer.code, [body])

    async def _batch(self, client: Client) -> None:
        topic, bodies = self._topic(), [self._body(), self._body()]
        batch = encode_batch([Message(topic, body) for body in bodies])
        answer = await client.ask(BATCH, send_fields(topic, m="true"), batch)
        self._heard(topic, dict(answer.ext_fields), answer.code, bodies)

    async def _send_back(self, client: Client) -> None:
        """A new message, which is dead at once, perhaps of a new group."""
        body = self._body()
        sent = await client.ask(SEND, send_fields("Base"), body)
        if sent.code != 0:
            self._refused.add(body)
            return
        self._promised["Base", 0][int(sent.ext_fields["queueOffset"])] = body
        group = f"G{self._random.randrange(self._count)}"
        offset = int(sent.ext_fields["msgId"][16:], 16)
        fields = {"group": group, "offset": offset, "delayLevel": -1, "maxReconsumeTimes": 0}
        if (await client.ask(SEND_BACK, fields)).code == 0:
            dead = self._promised[f"%DLQ%{group}", 0]
            dead[len(dead)] = body

    async def _create(self, client: Client) -> None:
        topic = self._topic()
        count = min(max(self._queues.get(topic, 4), 4) + self._random.randrange(2), QUEUES_MAX)
        answer = await client.ask(CREATE, topic_fields(topic, count))
        if answer.code == 0:
            self._queues[topic] = count
            self._deleted.discard(topic)

    async def _delete(self, client: Client) -> None:
        topic = self._topic()
        if topic == "Base":
            return
        answer = await client.ask(DELETE, {"topic": topic})
        # What was refused may have been done in part: of this topic nothing is promised any more.
        self._queues.pop(topic, None)
        for key in [key for key in self._promised if key[0] == topic]:
            del self._promised[key]
        if answer.code == 0:
            self._deleted.add(topic)

    async def _fail_or_mend(self, client: Client) -> None:
        if self._is_failing:
            self._disk.fault, self._is_failing = None, False
            return
        name, call = self._random.choice(FILES), self._random.choice(CALLS)
        is_once = self._random.random() < 0.3

        def fault(operation: str, path: str) -> OSError | None:
            if operation != call or name not in path:
                return None
            if is_once:
                self._disk.fault = None
            return OSError(errno.ENOSPC, "no space left on device")

        self._disk.fault, self._is_failing = fault, True

    async def _wait(self, client: Client) -> None:
        await trio.sleep(self._random.choice((0.1, 1.5, 3)))

    async def _check(self, broker: Broker, client: Client) -> None:
        topics = broker.controller.topics
        for topic in self._deleted:
            if topics.select(topic) is not None:
                raise Broken(f"{topic} was deleted and is back")
        for topic, count in self._queues.items():
            known = topics.select(topic)
            if known is None or known.write_queue_nums < count:
                raise Broken(f"{topic} was made with {count} queues: {known}")
        for (topic, queue_id), promised in self._promised.items():
            found = await _bodies(client, topic, queue_id)
            for offset, body in promised.items():
                if found.get(offset) != body:
                    raise Broken(f"lost: {topic} {queue_id} {offset}: {found.get(offset)!r}")
        for topic, queue_id in broker.controller.store.queue_store.queues:
            refused = self._refused & set((await _bodies(client, topic, queue_id)).values())
            if refused:
                raise Broken(f"refused, and stored in {topic} {queue_id}: {refused}")


async def _bodies(client: Client, topic: str, queue_id: int) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    offset = 0
    while True:
        fields = pull_fields(topic, queue_id, sysFlag=4, queueOffset=offset)
        answer = await client.ask(PULL, fields)
        if answer.code != 0:
            return found
        found |= {each.queue_offset: each.body for each in decode_messages(answer.body)}
        offset = int(answer.ext_fields["nextBeginOffset"])
