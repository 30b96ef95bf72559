"""One of two brokers is frozen (SIGSTOP): what every client does with the other one.

    python -m trocket.bench.frozen              every door and mode, whichever broker is frozen
    python -m trocket.bench.frozen --java 5.5.0 the same beside Java's push consumer
    python -m trocket.bench.frozen --json

A name server and two brokers are real processes. Messages are sent to the healthy broker all the
time. Consumers run already, or start while the broker is frozen. The figures of each: seconds
until its first message of the healthy broker, the longest pause between two of them, the seconds
that closing takes while the broker is still frozen, and the number of messages whose
acknowledgement at the healthy broker was lost by that.

The exit status is 1 if a figure is above its limit.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

import typer
from rich.console import Console
from rich.table import Table

from trocket import ClientError, Message, MessageQueue, blocking
from trocket.bench.frozen_clients import (
    DOORS,
    FIRST,
    INVISIBLE_S,
    JAVA_MODES,
    MODES,
    POPPING,
    SEND_TIMEOUT_S,
    Record,
    Sent,
    run_consumer,
    run_java,
    send_all,
    send_all_blocking,
)
from trocket.client.errors import RequestTimeoutError
from trocket.client.options.push_options import LEAVE_TIMEOUT_S
from trocket.common.terminal import table
from trocket.interop.process import PeerError
from trocket.interop.trocket_peer import TrocketBroker, TrocketPair

BROKERS: Final = ("broker-a", "broker-b")
STARTS: Final = ("before", "after")
"""Whether a consumer starts before or after the freeze."""
QUEUE_COUNT: Final = 4
"""Of the topic, at each broker."""
FEED_PAUSE_S: Final = 0.05
WITHIN_S: Final = 5.0
"""In this time a consumer has the next message of the healthy broker."""
WATCH_S: Final = 8.0
"""How long the consumers are watched while the broker is frozen: longer than `WITHIN_S`."""
CLOSE_S: Final = LEAVE_TIMEOUT_S
"""The limit of closing when no handler runs."""
SLACK_S: Final = 1.5
"""For the scheduling of a dozen clients on a busy machine."""
DEADLINE_S: Final = 60.0
Cell: TypeAlias = tuple[str, str]
"""Door and mode of a consumer."""
SEND_COUNT: Final = 32
"""Of each door. Every other one has a megabyte: half of them are more than a socket takes."""


class TwoBrokers:
    """A name server and two brokers, as processes; a broker can be frozen."""

    def __init__(self, folder: Path) -> None:
        keys: dict[str, Any] = {
            "defaultMessageRequestMode": "POP", "preallocateCommitLog": False,
        }  # fmt: skip
        first, second = BROKERS
        pair = TrocketPair(folder / "a", broker_keys={**keys, "brokerName": first})
        keys |= {"brokerName": second, "namesrvAddr": pair.namesrv_address}
        other = TrocketBroker(folder / "b", store=folder / "b" / "store", broker_keys=keys)
        self._clusters = dict(zip(BROKERS, (pair, other), strict=True))
        self.folder = folder
        self.url = f"rocketmq://{pair.namesrv_address}"
        self.namesrv_address = pair.namesrv_address

    def start(self) -> None:
        """Start all three. Raises: PeerError."""
        for cluster in self._clusters.values():
            cluster.start()

    def close(self) -> None:
        """End all three."""
        for name, cluster in self._clusters.items():
            self.signal(name, signal.SIGCONT)
            cluster.close()

    def signal(self, broker: str, number: signal.Signals) -> None:
        """Send a signal to a broker's process."""
        for pid in self._clusters[broker].pids[:1]:
            os.kill(pid, number)

    @contextmanager
    def frozen(self, broker: str) -> Iterator[None]:
        """Freeze a broker for a `with` block."""
        self.signal(broker, signal.SIGSTOP)
        try:
            yield
        finally:
            self.signal(broker, signal.SIGCONT)


@contextmanager
def two_brokers(folder: Path) -> Iterator[TwoBrokers]:
    """Two running brokers for a `with` block."""
    brokers = TwoBrokers(folder)
    try:
        brokers.start()
        yield brokers
    finally:
        brokers.close()


@contextmanager
def feed(url: str, topic: str, brokers: list[str]) -> Iterator[None]:
    """Send to the queues of the brokers in turn during a `with` block, which may change the list.

    A message that was begun when the list changed may go to a broker that is not in it any more.
    """
    is_over = threading.Event()

    def send() -> None:
        # What it sent to a broker just before that froze is not confirmed.
        with suppress(ClientError), blocking.Producer(url, group="feed") as producer:
            number = 0
            while not is_over.wait(FEED_PAUSE_S):
                queue_id, index = divmod(number, len(brokers))
                queue = MessageQueue(topic, brokers[index], queue_id % QUEUE_COUNT)
                producer.send_soon(Message(topic, f"feed-{number}"), queue=queue)
                number += 1

    sender = threading.Thread(target=send, name="feed")
    sender.start()
    try:
        yield
    finally:
        is_over.set()
        sender.join()


@dataclass
class Figures:
    """What one consumer did.

    Attributes:
      first_s: seconds until the first message of the healthy broker: from the freeze on, or for a
        consumer that starts later, from its opening on.
      pause_s: the longest pause between two of them afterwards.
      close_s: seconds that closing took.
      lost: messages of the healthy broker that are delivered again, or offsets that are not
        committed, although they were handled.
      crash: the exception that ended the consumer.
    """

    frozen: str
    start: str
    door: str
    mode: str
    first_s: float
    pause_s: float
    close_s: float
    lost: int = 0
    crash: str = ""

    @property
    def faults(self) -> list[str]:
        """What is above its limit."""
        found = []
        if self.crash:
            found.append(self.crash)
        if self.first_s > WITHIN_S:
            found.append(f"the first message after {self.first_s:.1f} s")
        if self.pause_s > WITHIN_S:
            found.append(f"a pause of {self.pause_s:.1f} s")
        if self.close_s > CLOSE_S + SLACK_S:
            found.append(f"closed after {self.close_s:.1f} s")
        if self.lost:
            found.append(f"{self.lost} acknowledgements lost")
        return found


@dataclass
class Round:
    """The figures of one freeze."""

    frozen: str
    start: str
    consumers: list[Figures] = field(default_factory=list)
    sends: list[Sent] = field(default_factory=list)
    producers_close_s: list[float] = field(default_factory=list)

    @property
    def faults(self) -> list[str]:
        """What is above its limit, of our clients."""
        found = [
            f"{each.door} {each.mode}: {fault}"
            for each in self.consumers
            if each.door != "java"
            for fault in each.faults
        ]
        found += [
            f"{sent.door} send after {sent.took_s:.1f} s: {sent.error}"
            for sent in self.sends
            if sent.error or sent.took_s > SEND_TIMEOUT_S
        ]
        found += [
            f"a producer closed after {close_s:.1f} s"
            for close_s in self.producers_close_s
            if close_s > CLOSE_S + SLACK_S
        ]
        return found


def play(brokers: TwoBrokers, frozen: str, start: str, topic: str, java: str = "") -> Round:
    """Freeze a broker beside every consumer, and return the figures.

    Args:
      frozen: the broker.
      start: "before": the consumers run when it is frozen; "after": they start later.
      topic: a new one.
      java: the version of Java's client to run beside ours; "": none.
    """
    healthy = next(name for name in BROKERS if name != frozen)
    round_ = Round(frozen, start)
    with blocking.Admin(brokers.url) as admin:
        admin.create_topic(topic, QUEUE_COUNT)
    records = {(door, mode): Record(f"{topic}-{door}-{mode}") for door in DOORS for mode in MODES}
    threads = [
        threading.Thread(target=run_consumer, args=(*cell, brokers.url, topic, record))
        for cell, record in records.items()
    ]
    for mode in JAVA_MODES if java else ():
        record = records["java", mode] = Record(f"{topic}-java-{mode}")
        arguments = (java, mode, brokers.namesrv_address, topic, brokers.folder, record)
        threads.append(threading.Thread(target=run_java, args=arguments))
    fed = list(BROKERS)
    with feed(brokers.url, topic, fed):
        if start == "before":
            _start(threads)
            _wait_all(records.values(), healthy, 0.0)
        with brokers.frozen(frozen):
            fed.remove(frozen)
            since_s = time.monotonic()
            if start == "after":
                _start(threads)
            # The sends come after the first messages: all clients share one process.
            _wait_all(records.values(), healthy, since_s, WATCH_S)
            senders = _start_senders(brokers.url, topic, round_)
            threading.Event().wait(max(since_s + WATCH_S - time.monotonic(), 0))
            _wait_all(
                [each for (door, _), each in records.items() if door == "java"], healthy, since_s
            )
            until_s = time.monotonic()
            _close(records.values())
            for sender in senders:
                sender.join(DEADLINE_S)
            lost = _lost(brokers.url, topic, healthy, records)
    for thread in threads:
        thread.join(DEADLINE_S)
    round_.consumers += [
        _figures(round_, cell, record, (since_s, until_s), lost[cell])
        for cell, record in records.items()
    ]
    return round_


def _figures(
    round_: Round, cell: Cell, record: Record, span_s: tuple[float, float], lost: int
) -> Figures:
    since_s, until_s = span_s
    healthy = next(name for name in BROKERS if name != round_.frozen)
    begin_s = max(since_s, record.opening_s)
    times = [at_s for at_s in record.times_at(healthy, begin_s) if at_s <= until_s]
    pauses = [later - earlier for earlier, later in itertools.pairwise([*times, until_s])]
    return Figures(
        *(round_.frozen, round_.start, *cell),
        first_s=times[0] - begin_s if times else until_s - begin_s,
        pause_s=max(pauses, default=0.0),
        close_s=record.close_s if record.is_closed.is_set() else DEADLINE_S,
        lost=lost,
        crash=record.crash,
    )


def _start(threads: Sequence[threading.Thread]) -> None:
    for thread in threads:
        thread.start()


def _wait_all(
    records: Iterable[Record], healthy: str, since_s: float, limit_s: float = DEADLINE_S
) -> None:
    """Wait until each consumer has had a message of the healthy broker from `since_s` on.

    One that gets none within `limit_s` is waited for no longer: its figures show it.
    """
    end_s, pause = time.monotonic() + limit_s, threading.Event()
    for record in records:
        while not record.times_at(healthy, since_s) and not record.crash:
            if time.monotonic() > end_s:
                return
            pause.wait(0.02)


def _close(records: Iterable[Record]) -> None:
    for record in records:
        record.is_over.set()
    end_s = time.monotonic() + DEADLINE_S
    for record in records:
        record.is_closed.wait(max(end_s - time.monotonic(), 0))


def _start_senders(url: str, topic: str, round_: Round) -> list[threading.Thread]:
    def in_loop() -> None:
        round_.producers_close_s.append(asyncio.run(send_all(url, topic, SEND_COUNT, round_.sends)))

    def in_threads() -> None:
        round_.producers_close_s.append(send_all_blocking(url, topic, SEND_COUNT, round_.sends))

    senders = [threading.Thread(target=each) for each in (in_loop, in_threads)]
    _start(senders)
    return senders


# Lost acknowledgements


def _lost(url: str, topic: str, healthy: str, records: dict[Cell, Record]) -> dict[Cell, int]:
    """For each consumer that is closed: what it handled at the healthy broker, and gets again."""
    lost = dict.fromkeys(records, 0)
    checks = []
    for cell, record in records.items():
        if cell[1] in POPPING:
            check = threading.Thread(
                target=_count_again, args=(url, topic, healthy, cell, record, lost)
            )
        else:
            check = threading.Thread(target=_count_kept, args=(url, healthy, cell, record, lost))
        if cell[1] != "broadcast":  # which keeps no offsets at brokers
            checks.append(check)
    _start(checks)
    for check in checks:
        check.join(DEADLINE_S)
    return lost


def _count_kept(url: str, healthy: str, cell: Cell, record: Record, lost: dict[Cell, int]) -> None:
    """Compare the offsets that are committed with those of what was handled."""
    with blocking.PullConsumer(url, group=record.name, auto_commit=False) as consumer:
        for queue, offset in record.settled.items():
            if queue.broker_name == healthy:
                lost[cell] += max(offset - (consumer.committed(queue) or 0), 0)


def _count_again(
    url: str, topic: str, healthy: str, cell: Cell, record: Record, lost: dict[Cell, int]
) -> None:
    """Count what comes again, when a message with a lost acknowledgement is visible again."""
    threading.Event().wait(INVISIBLE_S + SLACK_S)
    with blocking.SimpleConsumer(
        url, group=record.name, subscriptions={topic: "*"}, consume_from_where=FIRST
    ) as consumer:
        begin_s = time.monotonic()
        end_s = begin_s + SLACK_S
        while time.monotonic() < end_s:
            try:
                messages = consumer.receive(wait_s=0.2)
            except RequestTimeoutError:  # no broker answered for 3 s, on a busy machine
                end_s = time.monotonic() + SLACK_S
                if end_s > begin_s + DEADLINE_S:
                    raise
                continue
            for message in messages:
                lost[cell] += (
                    message.queue.broker_name == healthy and message.text in record.handled
                )


def play_all(brokers: TwoBrokers, java: str = "") -> Iterator[Round]:
    """Freeze each broker beside running consumers, and beside consumers that start later."""
    for frozen in BROKERS:
        for start in STARTS:
            yield play(brokers, frozen, start, f"Frozen-{frozen}-{start}", java)


def main(
    java: Annotated[str, typer.Option(help="Beside the client of this version of Java's.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Freeze one of two brokers, and print what every client does with the other one."""
    logging.getLogger("trocket").addHandler(logging.NullHandler())  # they warn of the broker
    try:
        with tempfile.TemporaryDirectory() as folder, two_brokers(Path(folder)) as brokers:
            rounds = list(play_all(brokers, java))
    except PeerError as error:
        sys.exit(f"frozen: {error}")
    if as_json:
        print(json.dumps([asdict(each) for each in rounds], indent=2))
    else:
        Console(width=120).print(consumers_table(rounds))
        Console(width=120).print(sends_table(rounds))
    faults = [fault for each in rounds for fault in each.faults]
    if faults:
        sys.exit("frozen: " + "; ".join(faults))


def consumers_table(rounds: Sequence[Round]) -> Table:
    """A row for each consumer."""
    names = ("frozen", "start", "door", "mode", "first s", "pause s", "close s", "lost", "fault")
    rows = [
        (
            *(each.frozen, each.start, each.door, each.mode),
            *(f"{value:.2f}" for value in (each.first_s, each.pause_s, each.close_s)),
            *(str(each.lost), "; ".join(each.faults)),
        )
        for round_ in rounds
        for each in round_.consumers
    ]
    return table(names, rows)


def sends_table(rounds: Sequence[Round]) -> Table:
    """A row for the sends of each freeze."""
    rows = [
        (
            *(round_.frozen, round_.start, str(len(round_.sends))),
            f"{max(sent.took_s for sent in round_.sends):.2f}",
            str(sum(bool(sent.error) for sent in round_.sends)),
            f"{max(round_.producers_close_s):.2f}",
        )
        for round_ in rounds
    ]
    return table(("frozen", "start", "sends", "slowest s", "failed", "close s"), rows)


if __name__ == "__main__":
    typer.run(main)
