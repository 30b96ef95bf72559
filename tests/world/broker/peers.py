"""Simulated producers, consumers and an observer, which tell the oracle what they ask and hear."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from trocket.common.java_hash import java_hash_code
from trocket.remoting.bodies import (
    ConsumerData,
    GetConsumerListByGroupResponseBody,
    HeartbeatData,
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageQueue,
    ProducerData,
    SubscriptionData,
)
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.message import Message, MessageExt
from trocket.remoting.message_codec import decode_messages, decode_record, encode_batch

from ...kit import pull_fields, send_fields
from ..broken import Broken
from .groups import Group
from .machine import Link, Machine, OnAnswer
from .oracle import Key, Oracle, Place, number_of
from .transactions import Decision, Transaction, Transactions

TOPIC = "T"
QUEUES = 2
TRIES_MAX = 2
"""Retries after which a message is dead; RocketMQ's default of 16 would take a day."""
LEVELS_S = [1, 5, 10, 30, *(60 * n for n in range(1, 11)), 1200, 1800, 3600, 7200]

NOTHING_STORED = frozenset({2, 3, 13, 14, 16, 17, 29})
"""Codes that say it of a send."""

SEND, PULL, QUERY_OFFSET, UPDATE_OFFSET = 310, 11, 14, 15
HEART_BEAT, UNREGISTER, SEND_BACK, END, MEMBERS, CHECK, CHANGED = 34, 35, 36, 37, 38, 39, 40
LOCK, UNLOCK, SEND_BATCH, RECALL = 41, 42, 320, 370


def level_ms(level: int) -> int:
    """How long a delay level waits."""
    return 1000 * LEVELS_S[min(level, len(LEVELS_S)) - 1] if level > 0 else 0


class BrokerClient:
    """A client with one connection, made when it is needed and again after it was lost."""

    def __init__(self, machine: Machine, oracle: Oracle, name: str) -> None:
        self.name = name
        self.machine = machine
        self.oracle = oracle
        self.link: Link | None = None

    @property
    def is_connected(self) -> bool:
        """Whether it could send."""
        return self.link is not None and not self.link.closed and not self.machine.is_dead

    async def connect(self) -> None:
        """Have a connection, and say who we are on a new one."""
        if self.is_connected or self.machine.is_dead:
            return
        self.link = await self.machine.connect(self.on_request, "192.0.2.1:4000")
        await self.ask(HEART_BEAT, {}, self.heartbeat().to_body())

    async def hang_up(self) -> None:
        """Lose the connection."""
        if self.link is not None and not self.link.closed:
            self.link.hang_up()
            await self.machine.settle()

    def heartbeat(self) -> HeartbeatData:
        """Who we are."""
        return HeartbeatData(client_id=self.name)

    def on_request(self, command: RemotingCommand) -> None:
        """The broker asks or tells something."""

    def command(
        self,
        code: int,
        fields: Mapping[str, object],
        body: bytes,
        on_answer: OnAnswer | None,
    ) -> bytes:
        """A request as bytes; without `on_answer` it is oneway."""
        if self.link is None or not self.is_connected:
            return b""
        texts = {name: str(value) for name, value in fields.items()}
        request = RemotingCommand(code, texts, body)
        session = self.link.session
        return session.oneway(request) if on_answer is None else session.request(request, on_answer)

    def write(self, data: bytes) -> None:
        """Send bytes, if there is anybody."""
        if self.is_connected:
            assert self.link is not None
            self.link.to_broker += data

    async def ask(
        self, code: int, fields: Mapping[str, object], body: bytes = b""
    ) -> RemotingCommand | None:
        """The answer; None: the broker died before it came."""
        if not self.is_connected:
            return None
        answers: list[RemotingCommand] = []
        self.write(self.command(code, fields, body, answers.append))
        self.machine.exchange()
        if not answers:
            await self.machine.settle()
        if answers:
            return answers[0]
        if self.is_connected:
            raise Broken("answer", f"request {code} of {self.name} got none: {fields}")
        return None

    def tell(self, code: int, fields: Mapping[str, object], body: bytes = b"") -> None:
        """Send a oneway request."""
        self.write(self.command(code, fields, body, None))
        self.machine.exchange()


class Producer(BrokerClient):
    """Sends, and answers for its transactions."""

    def __init__(
        self, machine: Machine, oracle: Oracle, transactions: Transactions, name: str
    ) -> None:
        super().__init__(machine, oracle, name)
        self.transactions = transactions
        self.checks: list[RemotingCommand] = []
        self.timers: list[tuple[Key, str]] = []

    def heartbeat(self) -> HeartbeatData:
        return HeartbeatData(client_id=self.name, producer_data_set=[ProducerData(group_name="PG")])

    def on_request(self, command: RemotingCommand) -> None:
        if command.code == CHECK:
            half = decode_record(command.body)
            times = int(half.properties["TRANSACTION_CHECK_TIMES"])
            self.transactions.asked(number_of(half), times, self.machine.now_ms)
            self.checks.append(command)

    # ---- plain sends ---------------------------------------------------------------------

    def _fields(self, queue_id: int, properties: str, sys_flag: int = 0) -> dict[str, object]:
        now_ms = self.machine.now_ms
        return send_fields(TOPIC, queue_id, d=QUEUES, f=sys_flag, g=now_ms, i=properties)

    def _new(self, tag: str, queue_id: int, *, once: bool = True, delay_ms: int = 0) -> Key:
        key = Key(TOPIC, self.oracle.new_number(tag))
        now_ms = self.machine.now_ms
        self.oracle.ask(key, queue_id, now_ms=now_ms, not_before_ms=now_ms + delay_ms, once=once)
        return key

    def _answered(self, key: Key, answer: RemotingCommand) -> None:
        if answer.code == 0:
            offset = int(answer.ext_fields["queueOffset"])
            self.oracle.promise_place(key, self.name, offset, now_ms=self.machine.now_ms)
        elif answer.code in NOTHING_STORED:
            self.oracle.refuse(key)

    def send(self, queue_id: int, tags: Iterable[str], *, oneway: bool = False) -> None:
        """Send messages one behind the other, without waiting for the answers in between."""
        frames = []
        for tag in tags:
            key = self._new(tag, queue_id)

            def answered(answer: RemotingCommand, key: Key = key) -> None:
                self._answered(key, answer)

            fields = self._fields(queue_id, properties_of(key, tag))
            on_answer = None if oneway else answered
            frames.append(self.command(SEND, fields, b"m%d" % key.number, on_answer))
        self.write(b"".join(frames))

    def send_batch(self, queue_id: int, tags: Iterable[str]) -> None:
        """Send messages as one batch."""
        keys, messages = [], []
        for tag in tags:
            key = self._new(tag, queue_id)
            keys.append(key)
            properties = {"UNIQ_KEY": f"K{key.number}", "TAGS": tag}
            messages.append(Message(TOPIC, b"m%d" % key.number, properties=properties))

        def answered(answer: RemotingCommand) -> None:
            first = int(answer.ext_fields.get("queueOffset", 0))
            for position, key in enumerate(keys):
                if answer.code == 0:
                    offset = first + position
                    self.oracle.promise_place(key, self.name, offset, now_ms=self.machine.now_ms)
                elif answer.code in NOTHING_STORED:
                    self.oracle.refuse(key)

        fields = self._fields(queue_id, "") | {"m": "true"}
        self.write(self.command(SEND_BATCH, fields, encode_batch(messages), answered))

    def send_later(self, queue_id: int, tag: str, level: int) -> None:
        """Send a message with a delay level."""
        self._send_waiting(queue_id, tag, f"DELAY\1{level}\2", level_ms(level))

    def send_timer(self, queue_id: int, tag: str, name: str, delay_ms: int) -> None:
        """Send a message that says when it is due."""
        number = delay_ms
        if name == "TIMER_DELAY_SEC":
            number //= 1000
        elif name == "TIMER_DELIVER_MS":
            number += self.machine.clock.wall_ms()
        self._send_waiting(queue_id, tag, f"{name}\1{number}\2", delay_ms)

    def _send_waiting(self, queue_id: int, tag: str, when: str, delay_ms: int) -> None:
        key = self._new(tag, queue_id, once=False, delay_ms=delay_ms)

        def answered(answer: RemotingCommand) -> None:
            now_ms = self.machine.now_ms
            if answer.code == 0:
                self.oracle.promise(key, now_ms=now_ms, due_ms=now_ms + delay_ms)
                if "recallHandle" in answer.ext_fields:
                    self.timers.append((key, answer.ext_fields["recallHandle"]))
            elif answer.code in NOTHING_STORED:
                self.oracle.refuse(key)

        fields = self._fields(queue_id, properties_of(key, tag) + when)
        self.write(self.command(SEND, fields, b"m%d" % key.number, answered))

    async def recall(self, which: int) -> None:
        """Take a timer message back."""
        if not self.timers or not self.is_connected:
            return
        key, handle = self.timers[-1 - which % len(self.timers)]
        self.oracle.taking_back(key)
        fields = {"producerGroup": "PG", "topic": TOPIC, "recallHandle": handle}
        answer = await self.ask(RECALL, fields)
        if answer is not None and answer.code == 0:
            self.oracle.took_back(key, self.machine.now_ms)

    # ---- transactions --------------------------------------------------------------------

    def prepare(self, queue_id: int, tag: str, decision: Decision, level: int) -> int:
        """Send a half message; its number."""
        key = Key(TOPIC, self.oracle.new_number(tag))
        self.transactions.sent(Transaction(key, queue_id, decision, level_ms(level), {}))
        properties = properties_of(key, tag) + "PGROUP\1PG\2TRAN_MSG\1true\2"
        if level:
            properties += f"DELAY\1{level}\2"

        def answered(answer: RemotingCommand) -> None:
            if answer.code == 0:
                fields = answer.ext_fields
                half = {
                    "tranStateTableOffset": fields["queueOffset"],
                    "commitLogOffset": str(int(fields["msgId"][-16:], 16)),
                }
                self.transactions.stored(key.number, half, self.machine.now_ms)

        fields = self._fields(queue_id, properties, 4)
        self.write(self.command(SEND, fields, b"m%d" % key.number, answered))
        return key.number

    def end(self, number: int, decision: Decision) -> None:
        """Say what becomes of a transaction whose sending was answered."""
        transaction = self.transactions.all[number]
        if transaction.half:
            self._end(number, decision, {**transaction.half, "fromTransactionCheck": "false"})

    def answer_checks(self, *, knows: bool = True) -> None:
        """Answer the checks that came; with knows=False: that the outcome is not known yet."""
        checks, self.checks = self.checks, []
        for check in checks:
            number = number_of(decode_record(check.body))
            fields = {
                "tranStateTableOffset": check.ext_fields["tranStateTableOffset"],
                "commitLogOffset": check.ext_fields["commitLogOffset"],
                "fromTransactionCheck": "true",
            }
            decision = self.transactions.all[number].decision if knows else Decision.UNKNOWN
            self._end(number, decision, fields)

    def _end(self, number: int, decision: Decision, fields: dict[str, str]) -> None:
        if not self.is_connected:
            return
        self.transactions.ending(number, decision, self.machine.now_ms)
        key = f"K{number}"
        fields = fields | {
            "producerGroup": "PG", "commitOrRollback": str(decision.value), "msgId": key,
            "transactionId": key,
        }  # fmt: skip

        def answered(answer: RemotingCommand) -> None:
            if answer.code == 0:
                self.transactions.ended(number, self.machine.now_ms)
            else:
                self.transactions.not_ended(number)

        self.write(self.command(END, fields, b"", answered))


def properties_of(key: Key, tag: str) -> str:
    """The properties of a plain message."""
    return f"UNIQ_KEY\1K{key.number}\2" + (f"TAGS\1{tag}\2" if tag else "")


class Consumer(BrokerClient):
    """A member of a group."""

    def __init__(self, machine: Machine, oracle: Oracle, group: Group, name: str) -> None:
        super().__init__(machine, oracle, name)
        self.group = group
        self.next: dict[Place, int] = {}
        self.inbox: dict[Place, list[MessageExt]] = {}
        self.pulls: dict[Place, int] = {}  # asked for and not answered: the offset
        self.must_rebalance = True
        self._locked_until: dict[Place, int] = {}

    def heartbeat(self) -> HeartbeatData:
        subscriptions = [
            subscription(TOPIC, self.group.tags), subscription(self.retry_topic, ()),
        ]  # fmt: skip
        data = ConsumerData(group_name=self.group.name, subscription_data_set=subscriptions)
        return HeartbeatData(client_id=self.name, consumer_data_set=[data])

    @property
    def retry_topic(self) -> str:
        """Where the group's retries come."""
        return f"%RETRY%{self.group.name}"

    def on_request(self, command: RemotingCommand) -> None:
        if command.code == CHANGED:
            self.must_rebalance = True

    async def connect(self) -> None:
        if not self.is_connected and not self.machine.is_dead:
            self.forget()
        await super().connect()

    def forget(self) -> None:
        """Start anew: a process that lost its connection may be another one."""
        self.next.clear()
        self.inbox.clear()
        self.pulls.clear()
        self._locked_until.clear()
        self.must_rebalance = True

    # ---- who consumes what ---------------------------------------------------------------

    async def rebalance(self) -> None:
        """Take this member's share of the queues."""
        self.must_rebalance = False
        answer = await self.ask(MEMBERS, {"consumerGroup": self.group.name})
        if answer is None:
            return
        members = sorted(GetConsumerListByGroupResponseBody.from_body(answer.body).consumer_id_list)
        if self.name not in members:
            raise Broken("members", f"{self.name} is connected, and not among {members}")
        mine = members.index(self.name)
        queues = [(TOPIC, queue_id) for queue_id in range(QUEUES)]
        share = {place for n, place in enumerate(queues) if n * len(members) // QUEUES == mine}
        if len(members) > QUEUES:
            share = {place for n, place in enumerate(queues) if n == mine}
        if mine == 0:
            share.add((self.retry_topic, 0))
        for place in sorted(set(self.next) - share):
            await self.give_up(place)
        for place in sorted(share - set(self.next)):
            await self.take(place)

    async def take(self, place: Place) -> None:
        """Begin with a queue where the group is."""
        answer = await self.ask(QUERY_OFFSET, self._place_fields(place))
        if answer is None:
            return
        offset = int(answer.ext_fields["offset"]) if answer.code == 0 else -1
        self.group.told_offset(place, offset)
        self.next[place] = max(offset, 0)
        self.inbox[place] = []
        self.pulls.pop(place, None)  # whose answer would be of before

    async def give_up(self, place: Place) -> None:
        """Leave a queue to another member."""
        await self.commit(place)
        self.next.pop(place, None)
        self.inbox.pop(place, None)
        self.pulls.pop(place, None)
        if place in self._locked_until:
            await self.unlock(place)

    def _place_fields(self, place: Place) -> dict[str, object]:
        return {"consumerGroup": self.group.name, "topic": place[0], "queueId": place[1]}

    async def leave(self) -> None:
        """Say goodbye."""
        for place in list(self.next):
            await self.give_up(place)
        fields = {"clientID": self.name, "consumerGroup": self.group.name}
        await self.ask(UNREGISTER, fields)
        await self.hang_up()

    # ---- locks ---------------------------------------------------------------------------

    async def lock(self, place: Place) -> None:
        """Ask for a queue's lock, or renew it."""
        answer = await self.ask(LOCK, {}, self._lock_body(place))
        if answer is None:
            return
        held = LockBatchResponseBody.from_body(answer.body).lock_ok_mq_set
        granted = [(queue.topic, queue.queue_id) for queue in held] == [place]
        self.group.locks.answered(place, self.name, granted, self.machine.now_ms)
        if granted:
            if not self.has_lock(place) and place in self.next:
                await self.take(place)  # another member may have had it meanwhile
            self._locked_until[place] = self.machine.now_ms + 30_000

    async def renew_locks(self) -> None:
        """Have the locks for what came, or begin again where the group is."""
        for place in sorted(self.inbox):
            if self.group.in_order and self.inbox[place] and not self.has_lock(place):
                await self.lock(place)

    def has_lock(self, place: Place) -> bool:
        """Whether this member may believe so; clients give a lock half of its time."""
        return self._locked_until.get(place, -1) >= self.machine.now_ms

    async def unlock(self, place: Place) -> None:
        """Give a queue's lock back, whether we have it or not."""
        self._locked_until.pop(place, None)
        if await self.ask(UNLOCK, {}, self._lock_body(place)) is not None:
            self.group.locks.gave_back(place, self.name, self.machine.now_ms)

    def _lock_body(self, place: Place) -> bytes:
        queue = MessageQueue(topic=place[0], broker_name="b", queue_id=place[1])
        return LockBatchRequestBody(
            consumer_group=self.group.name, client_id=self.name, mq_set=[queue]
        ).to_body()

    # ---- consuming -----------------------------------------------------------------------

    async def poll(self, hold_ms: int, count_max: int) -> None:
        """Pull every queue of ours that is not being pulled."""
        await self.connect()
        if self.must_rebalance:
            await self.rebalance()
        for place in sorted(self.next):
            if place in self.pulls or not self.is_connected:
                continue
            if self.group.in_order and not self.has_lock(place):
                await self.lock(place)
                if not self.has_lock(place):
                    continue
            self._pull(place, hold_ms, count_max)
        self.machine.exchange()

    def _pull(self, place: Place, hold_ms: int, count_max: int) -> None:
        start = self.pulls[place] = self.next[place]
        fields = self._place_fields(place) | {
            "queueOffset": start, "maxMsgNums": count_max, "sysFlag": 2, "commitOffset": 0,
            "suspendTimeoutMillis": hold_ms, "subVersion": 1,
        }  # fmt: skip
        link = self.link

        def answered(answer: RemotingCommand) -> None:
            if self.pulls.get(place) != start or self.link is not link:
                return  # the queue was given up meanwhile
            del self.pulls[place]
            if "nextBeginOffset" in answer.ext_fields:
                self._pulled(place, start, answer)

        self.write(self.command(PULL, fields, b"", answered))

    def _pulled(self, place: Place, start: int, answer: RemotingCommand) -> None:
        end = int(answer.ext_fields["nextBeginOffset"])
        messages = decode_messages(answer.body) if answer.code == 0 else []
        self.group.pulled(place, start, end, messages, self.machine.now_ms)
        self.next[place] = end
        self.inbox[place] += messages

    def check_held_pulls(self) -> None:
        """A pull is not held while there is something for it."""
        if not self.is_connected:
            return
        for place, start in self.pulls.items():
            message = self.group.would_get(place, start)
            if message is not None:
                raise Broken("N6", f"{self.name}'s pull of {place} {start}: {message.body!r} waits")

    async def consume(self, *, failing: int, level: int) -> None:
        """Consume what came; of each queue the first `failing` messages are sent back."""
        for place in sorted(self.inbox):
            if self.group.in_order and not self.has_lock(place):
                continue
            inbox = self.inbox[place]
            while inbox:
                message = inbox[0]
                back = failing > 0 and not self.group.in_order
                if back:
                    failing -= 1
                    if not await self.send_back(message, level):
                        break
                self.group.done(message, consumed=not back)
                inbox.pop(0)
            await self.commit(place)

    async def send_back(self, message: MessageExt, level: int) -> bool:
        """Have a message tried again; False: that is not certain."""
        if not self.is_connected:
            return False
        times = message.reconsume_times
        dead = times >= TRIES_MAX or level < 0
        topic = f"%DLQ%{self.group.name}" if dead else self.retry_topic
        delay_ms = 0 if dead else level_ms(level or 3 + times)
        key, now_ms = Key(topic, number_of(message), times + 1), self.machine.now_ms
        self.oracle.ask(key, 0, now_ms=now_ms, not_before_ms=now_ms + delay_ms)
        fields = {
            "offset": message.physical_offset, "group": self.group.name, "delayLevel": level,
            "originMsgId": message.unique_key, "originTopic": message.topic, "unitMode": "false",
            "maxReconsumeTimes": TRIES_MAX,
        }  # fmt: skip
        answer = await self.ask(SEND_BACK, fields)
        if answer is None:
            return False
        if answer.code != 0:
            raise Broken("N6", f"{message.body!r} is not taken back: {answer.remark}")
        self.oracle.promise(key, now_ms=now_ms, due_ms=now_ms + delay_ms)
        return True

    async def commit(self, place: Place) -> None:
        """Note how far we are: what came and is not consumed is not passed over."""
        if not self.is_connected or place not in self.next:
            return
        inbox = self.inbox[place]
        offset = inbox[0].queue_offset if inbox else self.next[place]
        self.tell(UPDATE_OFFSET, self._place_fields(place) | {"commitOffset": offset})
        surely = not self.machine.is_dead
        self.group.committed(place, offset, self.machine.now_ms, surely=surely)


def subscription(topic: str, tags: tuple[str, ...]) -> SubscriptionData:
    """A subscription by tags; to everything without any."""
    return SubscriptionData(
        topic=topic,
        sub_string=" || ".join(tags) or "*",
        tags_set=set(tags),
        code_set={java_hash_code(tag) for tag in tags},
        sub_version=1,
    )


class Observer(BrokerClient):
    """Reads every queue, so that the oracle knows all that is visible."""

    async def read(self, place: Place, start: int) -> list[MessageExt]:
        """What a queue has from an offset on."""
        found: list[MessageExt] = []
        while True:
            offset = start + len(found)
            fields = pull_fields(*place, consumerGroup="AUDIT", sysFlag=4, queueOffset=offset)
            answer = await self.ask(PULL, fields)
            if answer is None or answer.code != 0:
                return found
            found += decode_messages(answer.body)
