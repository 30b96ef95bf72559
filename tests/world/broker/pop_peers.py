"""Simulated consumers that pop; they report requests and answers to the models."""

from __future__ import annotations

from base64 import b64encode
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from trocket.remoting.bodies import BatchAck, BatchAckMessageRequestBody
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.message import MessageExt
from trocket.remoting.message_codec import decode_messages
from trocket.remoting.receipt import (
    QueueKey,
    Receipt,
    TopicForm,
    decode_offsets,
    decode_start_offsets,
)

from ..broken import Broken
from .machine import Link, Machine
from .oracle import Oracle, Place, number_of
from .peers import TOPIC, BrokerClient
from .pop_groups import Ask, Delivery, PopGroup
from .pop_order import Entry, PopOrderGroup

POP, ACK, CHANGE, BATCH_ACK = 200050, 200051, 200053, 200151
NO_MESSAGE = 208
NO_MESSAGE_CODES = frozenset({17, 209, 210})
"""The topic is not there until the first message; found nothing, and may not wait."""


class Popped(NamedTuple):
    """A message, where it is in the log, and its receipt."""

    message: MessageExt
    place: Place
    receipt: Receipt


class PopAnswer(NamedTuple):
    """The answer to a pop, read as Apache's client reads it.

    Attributes:
      pop_ms: when the messages were popped.
      popped: the messages.
      counts: in order: how often each was consumed before, by queue and offset.
    """

    pop_ms: int
    popped: list[Popped]
    counts: Mapping[Place, Mapping[int, int]]


def read_answer(answer: RemotingCommand, group: str) -> PopAnswer:
    """The messages of an answer with code 0. Raises: Broken: its parts contradict each other."""
    fields = answer.ext_fields
    starts = decode_start_offsets(fields["startOffsetInfo"])
    offsets = decode_offsets(fields["msgOffsetInfo"])
    pop_ms, invisible_ms = int(fields["popTime"]), int(fields["invisibleTime"])
    messages = decode_messages(answer.body)
    popped: list[Popped] = []
    for message in messages:
        text = message.properties.get("POP_CK")
        if message.topic != TOPIC:
            raise Broken("answer", f"a pop of {TOPIC} was answered with {message.topic}")
        if text is not None:
            receipt = Receipt.from_text(text)
        else:
            key = QueueKey(TopicForm.NORMAL, message.queue_id)
            receipt = Receipt(
                starts[key], pop_ms, invisible_ms, int(fields["reviveQid"]), key.form, "b",
                key.queue_id, message.queue_offset,
            )  # fmt: skip
        place = (receipt.form.real_topic(TOPIC, group), receipt.queue_id)
        popped.append(Popped(message, place, receipt))
    said = {(key, offset) for key, each in offsets.items() for offset in each}
    there = {(QueueKey(r.form, r.queue_id), r.offset) for _, _, r in popped}
    if said != there or set(starts) != set(offsets):
        raise Broken("answer", f"msgOffsetInfo has {said}, the body {there}, starts {starts}")
    wrong = [r for _, _, r in popped if starts[QueueKey(r.form, r.queue_id)] != r.start_offset]
    if wrong or any((r.pop_time, r.invisible_time) != (pop_ms, invisible_ms) for _, _, r in popped):
        raise Broken("answer", f"receipts are not those of the answer: {popped}, {fields}")
    return PopAnswer(pop_ms, popped, _counts(fields.get("orderCountInfo") or ""))


def _counts(text: str) -> dict[Place, dict[int, int]]:
    """orderCountInfo: of each message `form qo<queue>%<offset> times`."""
    counts: defaultdict[Place, dict[int, int]] = defaultdict(dict)
    for entry in text.split(";") if text else ():
        _, key, times = entry.split(" ")
        if key.startswith("qo"):
            queue_id, _, offset = key[2:].partition("%")
            counts[TOPIC, int(queue_id)][int(offset)] = int(times)
    return counts


class _PoppingClient(BrokerClient):
    """What both kinds of pop consumers do.

    Attributes:
      asks: pops that are not answered, with the connection each was sent on.
    """

    def __init__(self, machine: Machine, oracle: Oracle, name: str) -> None:
        super().__init__(machine, oracle, name)
        self.asks: dict[Ask, Link | None] = {}

    async def hang_up(self) -> None:
        self.give_up()
        await super().hang_up()

    def give_up(self) -> None:
        """Take the pops so far as lost: their answers do not count any more."""
        for ask in self.asks:
            ask.lost = True
        self.asks.clear()

    async def connect(self) -> None:
        if not self.is_connected:
            self.give_up()
        await super().connect()

    def held(self) -> list[Any]:
        """Pops that wait on the broker."""
        return list(self.asks) if self.is_connected else []

    def pop(
        self,
        ask: Ask,
        fields: Mapping[str, object],
        on_answer: Callable[[RemotingCommand], None],
        *,
        lost: bool,
    ) -> None:
        """Send a pop.

        Args:
          lost: its answer is thrown away, as if the connection had broken.
        """
        link = self.link
        if lost:
            ask.lost = True
        else:
            self.asks[ask] = link

        def answered(answer: RemotingCommand) -> None:
            if self.asks.get(ask) is link and not ask.lost:
                del self.asks[ask]
                on_answer(answer)

        if not self.is_connected:
            ask.lost = True  # it died between
        self.write(self.command(POP, fields, b"", answered))
        self.machine.exchange()

    def read(self, answer: RemotingCommand, group: str) -> PopAnswer | None:
        """The messages of an answer to a pop; None: it has none. Raises: Broken."""
        if answer.code in NO_MESSAGE_CODES:
            return None
        if answer.code != 0:
            raise Broken("answer", f"a pop of {self.name} got {answer.code}: {answer.remark}")
        return read_answer(answer, group)

    def was_lost(self, answer: RemotingCommand, place: Place, offset: int) -> bool:
        """Whether a request was refused because a power cut took its message. Raises: Broken."""
        if answer.code == 0:
            return False
        if answer.code == NO_MESSAGE and offset not in self.oracle.log[place]:
            return True
        raise Broken("answer", f"{self.name}'s {place} {offset} got {answer.code}: {answer.remark}")

    def pop_fields(
        self, group: str, ask: Ask, count_max: int, poll_ms: int, tags: tuple[str, ...]
    ) -> dict[str, object]:
        """The fields of a pop."""
        return {
            "consumerGroup": group, "topic": TOPIC, "queueId": ask.queue_id,
            "maxMsgNums": count_max, "invisibleTime": ask.invisible_ms, "pollTime": poll_ms,
            "bornTime": self.machine.now_ms, "initMode": 0, "expType": "TAG",
            "exp": " || ".join(tags) or "*",
        }  # fmt: skip

    def receipt_fields(self, group: str, popped: Popped) -> dict[str, object]:
        """The fields that an acknowledgement and a change have in common."""
        return {
            "consumerGroup": group, "topic": popped.place[0], "queueId": popped.place[1],
            "extraInfo": popped.receipt.to_text(), "offset": popped.receipt.offset,
        }  # fmt: skip


class PopConsumer(_PoppingClient):
    """A member of a group that pops.

    Attributes:
      inbox: what it has popped and not acknowledged.
    """

    def __init__(self, machine: Machine, oracle: Oracle, group: PopGroup, name: str) -> None:
        super().__init__(machine, oracle, name)
        self.group = group
        self.inbox: list[tuple[Popped, Delivery]] = []

    async def pop_some(
        self, queue_id: int, count_max: int, invisible_ms: int, poll_ms: int, *, lost: bool
    ) -> None:
        """Pop; an answer that comes at once, or later, fills the inbox."""
        await self.connect()
        if not self.is_connected:
            return
        group = self.group
        ask = group.asked(queue_id, self.machine.now_ms, poll_ms, invisible_ms)

        def on_answer(answer: RemotingCommand) -> None:
            read = self.read(answer, group.name)
            if read is None:
                group.found_nothing(ask, self.machine.now_ms)
                return
            if len(read.popped) > count_max:
                raise Broken("answer", f"{len(read.popped)} messages, {count_max} were asked for")
            logged = [self._in_log(each) for each in read.popped]
            deliveries = group.found(ask, logged, read.pop_ms)
            self.inbox += zip(read.popped, deliveries, strict=True)

        fields = self.pop_fields(group.name, ask, count_max, poll_ms, group.tags)
        self.pop(ask, fields, on_answer, lost=lost)

    def _in_log(self, popped: Popped) -> MessageExt:
        """The message as the log has it; a returned one comes with the topic that was asked for."""
        place, offset = popped.place, popped.receipt.offset
        known = self.oracle.log[place].get(offset)
        if place[0] == TOPIC:
            self.oracle.saw(popped.message, self.machine.now_ms)
            return popped.message
        if known is None:  # it was not observed yet; the observer will check it
            return replace(popped.message, topic=place[0], queue_offset=offset)
        if number_of(known) != number_of(popped.message):
            raise Broken("P2", f"{popped.message.body!r} was popped at {place} {offset}: {known}")
        return known

    # ---- acknowledging -------------------------------------------------------------------

    def take(self, which: int, count: int) -> list[tuple[Popped, Delivery]]:
        """Take some messages of the inbox, from position `which` on; 0: all."""
        if not self.inbox:
            return []
        start = which % len(self.inbox)
        end = start + count if count else len(self.inbox)
        taken = self.inbox[start:end]
        del self.inbox[start:end]
        return taken

    async def ack(self, which: int, count: int) -> None:
        """Acknowledge some messages, one behind the other."""
        await self.connect()
        frames = []
        for popped, delivery in self.take(which, count):
            if not self.is_connected:
                break
            self.group.acking(delivery)

            def answered(answer: RemotingCommand, delivery: Delivery = delivery) -> None:
                if not self.was_lost(answer, delivery.place, delivery.offset):
                    self.group.acked(delivery, self.machine.now_ms)

            fields = self.receipt_fields(self.group.name, popped)
            frames.append(self.command(ACK, fields, b"", answered))
        self.write(b"".join(frames))
        self.machine.exchange()

    async def ack_batch(self, which: int, count: int) -> None:
        """Acknowledge some messages in one request."""
        await self.connect()
        taken = self.take(which, count)
        if not taken or not self.is_connected:
            return
        for _, delivery in taken:
            self.group.acking(delivery)

        def answered(answer: RemotingCommand) -> None:
            if answer.code != 0:
                raise Broken("answer", f"a batch is not acknowledged: {answer.remark}")
            for _, delivery in taken:
                self.group.acked(delivery, self.machine.now_ms)

        body = batch_ack(self.group.name, [popped.receipt for popped, _ in taken])
        self.write(self.command(BATCH_ACK, {}, body, answered))
        self.machine.exchange()

    async def change(self, which: int, invisible_ms: int, *, suspend: bool) -> None:
        """Give one message another invisible time."""
        await self.connect()
        taken = self.take(which, 1)
        if not taken or not self.is_connected:
            return
        (popped, delivery), now_ms = taken[0], self.machine.now_ms
        group = self.group
        new = group.changing(delivery, now_ms, invisible_ms, suspend=suspend)

        def answered(answer: RemotingCommand) -> None:
            if self.was_lost(answer, delivery.place, delivery.offset):
                group.not_changed(delivery, new)
                return
            fields = answer.ext_fields
            receipt = popped.receipt._replace(
                start_offset=popped.receipt.offset,
                pop_time=int(fields["popTime"]),
                invisible_time=int(fields["invisibleTime"]),
                revive_queue_id=int(fields["reviveQid"]),
            )
            group.changed(
                delivery, new, self.machine.now_ms,
                pop_ms=receipt.pop_time, invisible_ms=receipt.invisible_time,
            )  # fmt: skip
            self.inbox.append((popped._replace(receipt=receipt), new))

        fields = self.receipt_fields(group.name, popped) | {
            "invisibleTime": invisible_ms, "suspend": str(suspend).lower()
        }  # fmt: skip
        self.write(self.command(CHANGE, fields, b"", answered))
        self.machine.exchange()


def batch_ack(group: str, receipts: list[Receipt]) -> bytes:
    """The body of a BATCH_ACK_MESSAGE for receipts of any pops."""
    by_pop: defaultdict[Receipt, int] = defaultdict(int)
    for receipt in receipts:
        bit = receipt.offset - receipt.start_offset
        by_pop[receipt._replace(offset=0)] |= 1 << bit
    acks = [
        BatchAck(
            group=group, topic=TOPIC, retry=pop.form.value, start_offset=pop.start_offset,
            queue_id=pop.queue_id, revive_queue_id=pop.revive_queue_id, pop_time=pop.pop_time,
            invisible_time=pop.invisible_time,
            bit_set=b64encode(bits.to_bytes(-(-bits.bit_length() // 8), "little")).decode(),
        )
        for pop, bits in by_pop.items()
    ]  # fmt: skip
    return BatchAckMessageRequestBody(broker_name="b", acks=acks).to_body()


class PopOrderConsumer(_PoppingClient):
    """A member of a group that pops in order.

    Attributes:
      inbox: what it has popped and not acknowledged, by queue.
    """

    def __init__(self, machine: Machine, oracle: Oracle, group: PopOrderGroup, name: str) -> None:
        super().__init__(machine, oracle, name)
        self.group = group
        self.inbox: dict[Place, list[tuple[Popped, Entry]]] = {}
        self._attempts = 0

    async def pop_some(
        self,
        queue_id: int,
        count_max: int,
        invisible_ms: int,
        poll_ms: int,
        *,
        again: bool,
        lost: bool,
    ) -> None:
        """Pop.

        Args:
          again: in the attempt of the pop before.
        """
        await self.connect()
        if not self.is_connected:
            return
        group = self.group
        if not again:
            self._attempts += 1
        attempt = f"{self.name}-{self._attempts}"
        ask = group.asked(queue_id, attempt, self.machine.now_ms, poll_ms, invisible_ms)

        def on_answer(answer: RemotingCommand) -> None:
            read = self.read(answer, group.name)
            if read is None:
                group.found_nothing(ask, self.machine.now_ms)
                return
            for popped in read.popped:
                self.oracle.saw(popped.message, self.machine.now_ms)
            messages = [popped.message for popped in read.popped]
            entries = {
                entry.place: entry for entry in group.found(ask, messages, read.pop_ms, read.counts)
            }
            for place, entry in entries.items():
                self.inbox[place] = [(each, entry) for each in read.popped if each.place == place]

        fields = self.pop_fields(group.name, ask, count_max, poll_ms, ()) | {
            "order": "true", "attemptId": attempt
        }  # fmt: skip
        self.pop(ask, fields, on_answer, lost=lost)

    async def ack(self, queue_id: int, count: int) -> None:
        """Acknowledge the first messages of a queue, one after the other; 0: all."""
        await self.connect()
        inbox = self.inbox.get((TOPIC, queue_id), [])
        for popped, entry in inbox[: count or len(inbox)]:
            if not self.is_connected:
                return
            offset = popped.receipt.offset
            self.group.acking(entry, offset)
            answer = await self.ask(ACK, self.receipt_fields(self.group.name, popped))
            if answer is None:
                return
            if not self.was_lost(answer, entry.place, offset):
                self.group.acked(entry, offset, self.machine.now_ms)
            inbox.pop(0)

    async def change(self, queue_id: int, which: int, invisible_ms: int) -> None:
        """Give one message of a queue another invisible time."""
        await self.connect()
        inbox = self.inbox.get((TOPIC, queue_id), [])
        if not inbox or not self.is_connected:
            return
        popped, entry = inbox[which % len(inbox)]
        offset = popped.receipt.offset
        self.group.changing(entry, offset, self.machine.now_ms, invisible_ms)
        fields = self.receipt_fields(self.group.name, popped) | {"invisibleTime": invisible_ms}
        answer = await self.ask(CHANGE, fields)
        if answer is not None and not self.was_lost(answer, entry.place, offset):
            said = answer.ext_fields
            visible_ms = int(said["popTime"]) + int(said["invisibleTime"])
            self.group.changed(entry, offset, visible_ms)
