"""The clients of a failover run: senders in order, and a consumer, with default options."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

import trio

from trocket.bench.failover_features import Features
from trocket.bench.failover_java import JavaProducer
from trocket.bench.failover_ledger import Ledger
from trocket.client import (
    ClientError,
    Message,
    Producer,
    PullConsumer,
    SendStatus,
)
from trocket.interop.controller_mode import BROKER_NAME
from trocket.interop.process import PeerError
from trocket.remoting.bodies import MessageQueue

TOPIC: Final = "Failover"
GROUP: Final = "failover"
RETRY_S: Final = 0.02
"""Between two tries of a send that failed; a producer is to find the new master soon."""
POLL_S: Final = 1.0
POLL_COUNT: Final = 64
ERRORS_MAX: Final = 20
"""Kinds of errors that a report names."""
ERROR_CHARS_MAX: Final = 200
NUMBER: Final = re.compile(r"[0-9]+(\.[0-9]+)*(:[0-9]+)?( m?s)?")
"""Times and addresses, without which errors of one kind have one text."""
END_S: Final = 30.0
"""For the clients to end."""


@dataclass(frozen=True)
class Confirmed:
    """A confirmed send: when (monotonic seconds), and at which broker, `host:port`."""

    at_s: float
    address: str


class Clients:
    """Senders and a consumer in a thread. Use it as a context manager: they end with it.

    Args:
      namesrv_address: HOST:PORT.
      count: senders, each with a client and a queue to itself.
      rate: sends in a second of each sender, at most.
      with_features: delays, transactions, pops and retries beside.

    Attributes:
      ledger: what they were promised and saw.
      features: what they promised and gave; None: they are left out.
      java: a Java producer beside; None: there is none.
      java_s: from the last switch to its first send that another broker confirmed.
      errors: texts of errors of sends and polls, and how often they came.
    """

    def __init__(
        self, namesrv_address: str, *, count: int, rate: float, with_features: bool = False
    ) -> None:
        self.ledger = Ledger(count)
        self.features: Features | None = None
        self.java: JavaProducer | None = None
        self.java_s: float | None = None
        if with_features:
            self.features = Features(namesrv_address, lambda: self._sends.is_set(), self._note)
        self.errors: Counter[str] = Counter()
        self._namesrv = namesrv_address
        self._count = count
        self._period_s = 1 / rate
        self._sends = threading.Event()
        self._changed = threading.Condition()
        self._last: Confirmed | None = None
        self._longest_s = 0.0
        self._over: trio.CancelScope | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name="failover clients", daemon=True)

    def __enter__(self) -> Self:
        self._sends.set()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._token is not None and self._over is not None:
            self._token.run_sync_soon(self._over.cancel)
        self._thread.join(END_S)

    # ---- what the run waits for ----------------------------------------------------------

    def wait_confirmed(self, *, after_s: float, lost: str, timeout_s: float) -> Confirmed | None:
        """The first confirmed send after a moment, not by a broker that is lost.

        Args:
          lost: its `host:port`; "": any broker will do.

        Returns: None: there was none in time.
        Raises: PeerError: the clients crashed.
        """
        until_s = time.monotonic() + timeout_s
        with self._changed:
            while True:
                if self._is_over:
                    raise PeerError("the clients ended, by an error that stderr has")
                last = self._last
                if last is not None and last.at_s > after_s and last.address != lost:
                    return last
                rest_s = until_s - time.monotonic()
                if rest_s <= 0:
                    return None
                self._changed.wait(rest_s)

    def take_longest_s(self) -> float:
        """The longest time without a confirmed send since the last call of this."""
        with self._changed:
            longest_s, self._longest_s = self._longest_s, 0.0
            return longest_s

    def stop_sending(self) -> None:
        """No sender begins another number; the consumer goes on."""
        self._sends.clear()

    # ---- the thread ----------------------------------------------------------------------

    def _run(self) -> None:
        try:
            trio.run(self._main)
        finally:
            with self._changed:
                self._is_over = True
                self._changed.notify_all()

    async def _main(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        with trio.CancelScope() as self._over:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._consume)
                if self.features is not None:
                    nursery.start_soon(self.features.run)
                for client in range(self._count):
                    nursery.start_soon(self._send, client)

    async def _send(self, client: int) -> None:
        """One number after the other, each until it is confirmed."""
        queue = MessageQueue(TOPIC, BROKER_NAME, client)
        async with Producer(self._namesrv, group=f"failover-{client}") as producer:
            due_s = trio.current_time()
            while self._sends.is_set():
                number = self.ledger.next_number(client)
                try:
                    result = await producer.send(Message(TOPIC, f"{client}:{number}"), queue=queue)
                except ClientError as error:
                    self._note(error)
                    await trio.sleep(RETRY_S)
                    continue
                if result.status is not SendStatus.SEND_OK:
                    self.errors[f"send: {result.status.name}"] += 1
                    await trio.sleep(RETRY_S)
                    continue
                self.ledger.confirm(client, result.queue_offset)
                self._confirmed(stored_at(result.offset_message_id))
                due_s = max(due_s + self._period_s, trio.current_time() - 1)
                await trio.sleep_until(due_s)

    def _confirmed(self, address: str) -> None:
        now_s = time.monotonic()
        with self._changed:
            if self._last is not None:
                self._longest_s = max(self._longest_s, now_s - self._last.at_s)
            self._last = Confirmed(now_s, address)
            self._changed.notify_all()

    async def _consume(self) -> None:
        async with PullConsumer(
            self._namesrv, group=GROUP, consume_from_where="first", auto_commit_s=1.0
        ) as consumer:
            consumer.subscribe(TOPIC)
            while True:
                try:
                    messages = await consumer.poll(POLL_COUNT, timeout_s=POLL_S)
                except ClientError as error:
                    self._note(error)
                    await trio.sleep(RETRY_S)
                    continue
                for each in messages:
                    client, _, number = each.body.decode().partition(":")
                    self.ledger.consume(int(client), each.queue_offset, int(number))

    def _note(self, error: ClientError) -> None:
        line = f"{type(error).__name__}: {error}".splitlines()[0]
        text = NUMBER.sub("N", line)[:ERROR_CHARS_MAX]
        if text in self.errors or len(self.errors) < ERRORS_MAX:
            self.errors[text] += 1
        else:
            self.errors["others"] += 1


def stored_at(offset_message_id: str) -> str:
    """The broker that gave a message its id, `host:port`: IPv4 address, port, offset in hex.

    Source: RocketMQ MessageDecoder.createMessageId.
    """
    raw = bytes.fromhex(offset_message_id)
    return f"{'.'.join(map(str, raw[:4]))}:{int.from_bytes(raw[4:8], 'big')}"
