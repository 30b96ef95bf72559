"""Clients of the simulated cluster: they report what they see to the oracle."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import TYPE_CHECKING, Any

import trio

from trocket.remoting.bodies import TopicRouteData
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.errors import RemotingError
from trocket.remoting.message import Message, MessageExt
from trocket.remoting.message_codec import decode_messages, encode_batch

from ...kit import pull_fields, send_fields
from ..broken import Broken
from ..clock import WorldClock
from .network import NetworkClient
from .oracle import QUEUES, TOPIC, Sent
from .process import Process

if TYPE_CHECKING:
    from .cluster import Cluster

SEND, SEND_BATCH, PULL, QUERY_OFFSET, UPDATE_OFFSET, MAX_OFFSET = 310, 320, 11, 14, 15, 30
ROUTE = 105
OK, FLUSH_DISK_TIMEOUT, SLAVE_NOT_AVAILABLE, FLUSH_SLAVE_TIMEOUT = 0, 10, 11, 12
STORED = frozenset({OK, FLUSH_DISK_TIMEOUT, SLAVE_NOT_AVAILABLE, FLUSH_SLAVE_TIMEOUT})
NOTHING_STORED = frozenset({2, 3, 13, 14, 16, 17, 29})
"""Codes that say it of a send."""

GROUP = "G"
TIMEOUT_S = 3.0

DELAYS_MS = (0, 1_000, 5_000)
"""By delay level: the beginning of messageDelayLevel."""

UNROUTED = "TBW102"
"""A topic that every broker registers, before anybody has sent anything."""


class ClusterClient:
    """A client: a process with separate connections.

    Attributes:
      addresses: of the brokers of the group by broker id, from a name server; empty: unknown.
    """

    def __init__(self, cluster: Cluster, name: str, host: str, random: Random) -> None:
        self.name = name
        self.cluster = cluster
        self.clock = WorldClock(cluster.clock.time)
        self.oracle = cluster.oracle
        self.random = random
        self.addresses: dict[int, str] = {}
        self.process = Process(name, host)
        self.client = NetworkClient(cluster.network, self.process)

    async def ask(
        self, address: str, code: int, fields: Mapping[str, Any], body: bytes = b""
    ) -> RemotingCommand | None:
        """The answer; None: there was none."""
        texts = {name: str(value) for name, value in fields.items()}
        request = RemotingCommand(code, texts, body)
        try:
            return await self.client.call(address, request, TIMEOUT_S)
        except RemotingError:
            channel = self.client._channels.get(address)
            if channel is not None:
                channel.close("no answer")  # it may be half open
            return None

    async def find(self) -> str:
        """The master's address; "": no name server knows one."""
        if 0 not in self.addresses:
            names = [each.address for each in self.cluster.namesrvs]
            self.random.shuffle(names)
            for address in names:
                answer = await self.ask(address, ROUTE, {"topic": UNROUTED})
                if answer is not None and answer.code == OK:
                    route = TopicRouteData.from_body(answer.body)
                    for broker in route.broker_datas:
                        self.addresses = dict(broker.broker_addrs)
                    break
        return self.addresses.get(0, "")

    def forget(self) -> None:
        """Ask the name servers again."""
        self.addresses = {}


class Producer(ClusterClient):
    """Sends each message once, born by its own clock."""

    async def run(self, count: int, pause_s: float) -> None:
        """Send messages, or batches of some."""
        for _ in range(count):
            await trio.sleep(round(self.random.random() * pause_s, 2))
            await self.send()

    async def send(self) -> None:
        """Send one message, some at a time, or a batch."""
        address = await self.find()
        if not address:
            return
        how = self.random.choices(("one", "some", "batch", "later"), self.cluster.plan.workload)[0]
        if how == "batch":
            await self._send_batch(address)
        elif how == "some":
            async with trio.open_nursery() as nursery:
                for _ in range(self.random.randint(2, 4)):
                    nursery.start_soon(self._send, address, self._new(0))
        else:
            level = self.random.choice((1, 1, 2)) if how == "later" else 0
            await self._send(address, self._new(level))

    def _new(self, level: int, queue_id: int | None = None) -> Sent:
        random = self.random
        queue_id = random.randrange(QUEUES) if queue_id is None else queue_id
        size = random.choice((5, 5, 20, 200, 500))
        return self.oracle.new(
            self.name, queue_id, size, level, self.cluster.not_before_ms(DELAYS_MS[level])
        )

    def _fields(self, queue_id: int, properties: str, **more: object) -> dict[str, object]:
        own = {"d": QUEUES, "g": self.clock.wall_ms(), "i": properties}
        return send_fields(TOPIC, queue_id, **own, **more)

    async def _send(self, address: str, sent: Sent) -> None:
        properties = "".join(f"{key}\1{value}\2" for key, value in properties_of(sent).items())
        await self._ask(address, SEND, self._fields(sent.queue_id, properties), sent.body, [sent])

    async def _send_batch(self, address: str) -> None:
        queue_id = self.random.randrange(QUEUES)
        batch = [self._new(0, queue_id) for _ in range(self.random.randint(2, 3))]
        body = encode_batch(
            [Message(TOPIC, each.body, properties=properties_of(each)) for each in batch]
        )
        await self._ask(address, SEND_BATCH, self._fields(queue_id, "", m="true"), body, batch)

    async def _ask(
        self, address: str, code: int, fields: dict[str, object], body: bytes, batch: list[Sent]
    ) -> None:
        cluster = self.cluster
        names = f"{self.name} m{batch[0].number}" + (f"+{len(batch) - 1}" if batch[1:] else "")
        wounds = cluster.wounds
        answer = await self.ask(address, code, fields, body)
        cluster.note(f"{names} in {batch[0].queue_id} at {address}: {answer_text(answer)}")
        if answer is None or answer.code not in STORED:
            self.forget()
        if answer is not None:
            self._heard(address, answer, batch, wounds)

    def _heard(self, address: str, answer: RemotingCommand, batch: list[Sent], wounds: int) -> None:
        """Note what an answer promises.

        Args:
          wounds: the cluster's when the messages were sent.
        """
        cluster = self.cluster
        if answer.code in NOTHING_STORED:
            for sent in batch:
                self.oracle.refuse(sent)
        elif answer.code in STORED:
            cluster.answers[answer.code] += 1
            offset = int(answer.ext_fields["queueOffset"])
            places = [int(each[-16:], 16) for each in answer.ext_fields["msgId"].split(",")]
            is_full = answer.code == OK
            for step, sent in enumerate(batch):
                if answer.code != FLUSH_DISK_TIMEOUT:  # it may come, or not
                    self.oracle.promise(
                        sent, offset + step, is_full=is_full, machine=address, now_ms=cluster.now_ms
                    )
            if is_full and wounds == cluster.wounds:
                for sent, place in zip(batch, places, strict=True):
                    cluster.check_replicas(sent, place, address)


class Consumer(ClusterClient):
    """A member of the group, with its queues."""

    def __init__(
        self, cluster: Cluster, name: str, host: str, random: Random, queue_ids: list[int]
    ) -> None:
        super().__init__(cluster, name, host, random)
        self.queue_ids = queue_ids
        self.next: dict[int, int] = {}

    def _saw(self, message: MessageExt, epoch: int, address: str) -> None:
        cluster = self.cluster
        self.oracle.saw(
            message,
            epoch=epoch,
            machine=address,
            now_ms=cluster.now_ms,
            forward_ms=cluster.forward_ms,
        )

    async def run(self) -> None:
        """Consume until cancelled."""
        while True:
            await trio.sleep(round(0.2 + 1.3 * self.random.random(), 2))
            address = await self.find()
            if not address:
                continue
            for queue_id in self.queue_ids:
                if not await self.consume(address, queue_id):
                    # Whoever answers next may be another broker: begin where it says.
                    self.forget()
                    self.next.clear()
                    break
            if self.random.random() < 0.3:
                await self.look_at_slave()

    async def consume(self, address: str, queue_id: int, hold_ms: int | None = None) -> bool:
        """Pull once, consume, and note that; False: begin again."""
        if self._is_left_behind(address):
            return False
        if queue_id not in self.next:
            offset = await self.committed(address, queue_id)
            if offset is None:
                return False
            self.next[queue_id] = offset
        start = self.next[queue_id]
        if hold_ms is None:
            hold_ms = self.random.choice((0, 0, 1000))
        found = await self.pull(address, queue_id, start, hold_ms)
        if found is None:
            return False
        messages, end = found
        for message in messages:
            self.oracle.consume(message)
        self.next[queue_id] = end
        if end != start:
            fields = place_fields(queue_id) | {"commitOffset": end}
            if await self.ask(address, UPDATE_OFFSET, fields) is None:
                return False
        return True

    def _is_left_behind(self, address: str) -> bool:
        """Whether this still is a consumer of a master that was replaced, whose queues may have
        been longer: docs/operations.md has consumers started again before that comes back."""
        return address in self.cluster.replaced

    async def committed(self, address: str, queue_id: int) -> int | None:
        """Where the group is, as a broker says; None: it does not say. N6."""
        answer = await self.ask(address, QUERY_OFFSET, place_fields(queue_id))
        if answer is None or answer.code not in (OK, 22):
            return None
        offset = int(answer.ext_fields["offset"]) if answer.code == OK else 0
        fields = {"topic": TOPIC, "queueId": queue_id}
        end = await self.ask(address, MAX_OFFSET, fields)
        if end is None or end.code != OK:
            return None
        if offset > int(end.ext_fields["offset"]) and not self.cluster.hides_messages:
            raise Broken("N6", f"{GROUP} is at {offset} of {queue_id} at {address}, beyond {end}")
        return offset

    async def pull(
        self, address: str, queue_id: int, start: int, hold_ms: int
    ) -> tuple[list[MessageExt], int] | None:
        """Messages from an offset on and where they end; None: there was no good answer."""
        epoch = self.oracle.epoch
        fields = pull_fields(
            TOPIC, queue_id, consumerGroup=GROUP, queueOffset=start, suspendTimeoutMillis=hold_ms
        )
        answer = await self.ask(address, PULL, fields)
        if answer is None or "nextBeginOffset" not in answer.ext_fields:
            return None
        if self._is_left_behind(address):
            return None
        end = int(answer.ext_fields["nextBeginOffset"])
        messages = decode_messages(answer.body, check_crc=True) if answer.code == OK else []
        self.cluster.note(
            f"{self.name} of {queue_id} from {start} at {address}: {answer.code}, "
            f"{len(messages)}, {end}"
        )
        offsets = [message.queue_offset for message in messages]
        if offsets and offsets != list(range(start, end)):
            raise Broken("N3", f"a pull of {queue_id} from {start} to {end} gave {offsets}")
        if not offsets and end > start and start >= self.oracle.min_offsets[queue_id]:
            raise Broken("N6", f"a pull of {queue_id} at {start} passes over to {end}: {answer}")
        for message in messages:
            self._saw(message, epoch, address)
        return messages, end

    async def look_at_slave(self) -> None:
        """Read something from a slave: what it shows, it shows as the master does."""
        if self.cluster.are_slaves_astray:
            return
        slaves = [self.addresses[number] for number in sorted(self.addresses) if number]
        if slaves:
            queue_id = self.random.choice(self.queue_ids)
            start = self.random.randint(0, self.next.get(queue_id, 0))
            await self.peek(self.random.choice(slaves), queue_id, start)

    async def peek(self, address: str, queue_id: int, start: int) -> None:
        """As `pull`, from a broker that may be behind; its end is no end of the group's."""
        epoch = self.oracle.epoch
        fields = pull_fields(TOPIC, queue_id, consumerGroup=GROUP, queueOffset=start, sysFlag=4)
        answer = await self.ask(address, PULL, fields)
        if answer is not None and answer.code == OK and not self.cluster.are_slaves_astray:
            for message in decode_messages(answer.body, check_crc=True):
                self._saw(message, epoch, address)


def properties_of(sent: Sent) -> dict[str, str]:
    """The properties of a message."""
    found = {"UNIQ_KEY": f"U{sent.number}", "KEYS": f"K{sent.number}", "TAGS": "a"}
    if sent.level:
        found["DELAY"] = str(sent.level)
    return found


def place_fields(queue_id: int) -> dict[str, object]:
    """The fields that say which queue of the group is meant."""
    return {"consumerGroup": GROUP, "topic": TOPIC, "queueId": queue_id}


def answer_text(answer: RemotingCommand | None) -> str:
    """For people."""
    if answer is None:
        return "no answer"
    if answer.code in STORED:
        return f"{answer.code}, offset {answer.ext_fields.get('queueOffset')}"
    return f"{answer.code}, {answer.remark}"
