"""Producers on plain sockets that keep many sends on their way, and remember every answer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from trocket.interop.process import PeerError
from trocket.interop.wire import Answer, Outgoing, WireClient
from trocket.remoting.message import Message
from trocket.remoting.message_codec import encode_batch

TOPICS = ("KillA", "KillB")
QUEUES = 3
CONNECTIONS = 3
TOGETHER = 16

DEADLINE_S = 30.0
OK, DISK_TIMEOUT, SLAVE_TIMEOUT, NO_SLAVE = 0, 10, 12, 11
STORED = (OK, DISK_TIMEOUT, SLAVE_TIMEOUT, NO_SLAVE)
"""The answers that name a place: the message is in the master's file."""


@dataclass(frozen=True)
class Sent:
    """One message as it was sent; its body is like no other's."""

    topic: str
    queue_id: int
    body: bytes
    properties: dict[str, str]


@dataclass(frozen=True)
class Answered:
    """One message and what was answered for it."""

    sent: Sent
    code: int
    queue_offset: int
    physical_offset: int

    @property
    def place(self) -> tuple[str, int, int]:
        """Topic, queue id, queue offset."""
        return self.sent.topic, self.sent.queue_id, self.queue_offset


@dataclass
class Load:
    """Sends to one broker until it is stopped or the broker is gone.

    Args:
      address: HOST:PORT of the broker.
      seed: of bodies and queues.

    Attributes:
      sent: what was handed to the system, by body.
      answers: those that name a place, in the order in which they came.
      refused: bodies for which the broker said that nothing was stored.
      together: sends of a connection that are on their way at once.
    """

    address: str
    seed: str
    sent: dict[bytes, Sent] = field(default_factory=dict)
    answers: list[Answered] = field(default_factory=list)
    refused: set[bytes] = field(default_factory=set)
    together: int = TOGETHER

    def __post_init__(self) -> None:
        self._changed = threading.Condition()
        self._stopping = False
        self._troubles: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._run, args=(number,), name=f"producer-{number}")
            for number in range(CONNECTIONS)
        ]
        for thread in self._threads:
            thread.start()

    def count(self, code: int) -> int:
        """Messages that were answered so."""
        return sum(each.code == code for each in self.answers)

    def wait(self, is_done: Callable[[], bool]) -> None:
        """Wait until something is so; looked at after each answer.

        Raises: AssertionError: it is not within 30 s, or no sender runs any more.
        """
        with self._changed:
            done = self._changed.wait_for(lambda: is_done() or not self._is_sending(), DEADLINE_S)
            assert done, f"not within {DEADLINE_S:g} s; {self.story()}"
            assert is_done(), f"no sender runs any more; {self.story()}"

    def wait_for(self, code: int, more: int) -> None:
        """Wait for more messages with these answers."""
        until = self.count(code) + more
        self.wait(lambda: self.count(code) >= until)

    def pass_time(self, seconds: float) -> None:
        """Let the load go on for a moment."""
        with self._changed:
            self._changed.wait_for(lambda: False, seconds)

    def end(self) -> None:
        """Have no more sent, and take the answers that still come."""
        self._stopping = True
        for thread in self._threads:
            thread.join(DEADLINE_S)
        assert not any(thread.is_alive() for thread in self._threads), self.story()
        assert self._troubles == []

    def story(self) -> str:
        """The counts, for an error text."""
        codes = {code: self.count(code) for code in STORED}
        return f"seed {self.seed}: answered {codes}, refused {len(self.refused)}"

    def _is_sending(self) -> bool:
        return any(thread.is_alive() for thread in self._threads)

    def _run(self, number: int) -> None:
        random = Random(f"{self.seed}:{number}")
        try:
            with WireClient(self.address) as wire:
                self._send(wire, random, f"{self.seed}:{number}")
        except PeerError:
            pass  # the broker was killed
        except BaseException as error:  # noqa: BLE001
            self._troubles.append(error)

    def _send(self, wire: WireClient, random: Random, name: str) -> None:
        waiting: dict[int, list[Sent]] = {}
        count = 0
        is_broken = False
        while waiting or not (self._stopping or is_broken):
            while len(waiting) < self.together and not (self._stopping or is_broken):
                messages, outgoing = make(random, f"{name}:{count}")
                count += 1
                for message in messages:
                    self.sent[message.body] = message
                try:
                    waiting[wire.start_send(outgoing)] = messages
                except PeerError:  # answers that came before may still be read
                    is_broken = True
            opaque, answer = wire.receive()
            self._note(waiting.pop(opaque), answer)

    def _note(self, messages: list[Sent], answer: Answer) -> None:
        with self._changed:
            if answer.code in STORED:
                offsets = [int(each[-16:], 16) for each in answer.fields["msgId"].split(",")]
                first = int(answer.fields["queueOffset"])
                for position, (message, physical) in enumerate(zip(messages, offsets, strict=True)):
                    assert int(answer.fields["queueId"]) == message.queue_id
                    self.answers.append(Answered(message, answer.code, first + position, physical))
            else:
                self.refused.update(message.body for message in messages)
            self._changed.notify_all()


def make(random: Random, name: str) -> tuple[list[Sent], Outgoing]:
    """The next send: mostly one message, sometimes a batch."""
    topic, queue_id = random.choice(TOPICS), random.randrange(QUEUES)
    if random.random() < 0.9:
        size = random.randrange(random.choice((100, 2000, 9000)))
        sent = one(random, topic, queue_id, name, size)
        return [sent], Outgoing(topic, queue_id, sent.body, text(sent.properties))
    messages = [
        one(random, topic, queue_id, f"{name}:{position}", random.randrange(300))
        for position in range(random.randrange(2, 6))
    ]
    body = encode_batch(
        [Message(topic, each.body, properties=each.properties) for each in messages]
    )
    return messages, Outgoing(topic, queue_id, body, batch=True)


def one(random: Random, topic: str, queue_id: int, name: str, size: int) -> Sent:
    """One message with everything that the queues and the index hold."""
    body = name.encode() + b" " + random.randbytes(size)
    unique = name.replace(":", "-")
    properties = {"UNIQ_KEY": unique, "KEYS": f"k{unique}", "TAGS": random.choice("ABC")}
    return Sent(topic, queue_id, body, properties)


def text(properties: dict[str, str]) -> str:
    """Properties as the wire has them."""
    return "".join(f"{name}\1{value}\2" for name, value in properties.items())
