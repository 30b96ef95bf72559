"""Soak test of the client: sends and consumes for a long time while the broker restarts repeatedly.

This process has a producer (pipelined, at a set rate) and a push consumer on asyncio. `trocket up`
is alternately stopped and killed. In the end all confirmed messages must be consumed, and after the
warm-up, memory, tasks and descriptors of this process must not grow.

    python -m trocket.bench.soak                      30 minutes, half of the measured rate
    python -m trocket.bench.soak --minutes 3 --rate 2000 --restart-s 20
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
from collections import deque
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from trocket import (
    ClientError,
    ConsumeFromWhere,
    Delivery,
    Message,
    Producer,
    PushConsumer,
)
from trocket.bench.kit import resident_mb, running
from trocket.interop.process import PeerError
from trocket.interop.trocket_peer import TrocketCluster

BODY_SIZE = 128
TICK_S = 0.02
CALIBRATE_S = 5.0
CATCH_UP_S = 120.0
SAMPLE_S = 5.0
TOPIC = "Soak"

SENT, CONFIRMED, CONSUMED = 1, 2, 4


@dataclass
class Sample:
    """The process's resources at a moment: seconds since the start, MB, tasks, open files."""

    at_s: float
    resident_mb: float
    tasks: int
    descriptors: int


class Ledger:
    """The state of each message, one byte each, allocated at the start to keep memory constant."""

    def __init__(self, count_max: int) -> None:
        self.states = bytearray(count_max)
        self.sent = 0
        self.confirmed = 0
        self.consumed = 0
        self.repeated = 0
        self.failures = 0
        self.last_failure = ""
        self.bad_stops: list[str] = []

    def confirm(self, number: int) -> None:
        if not self.states[number] & CONFIRMED:
            self.states[number] |= CONFIRMED
            self.confirmed += 1

    def consume(self, number: int) -> None:
        if self.states[number] & CONSUMED:
            self.repeated += 1
            return
        self.states[number] |= CONSUMED
        self.consumed += 1

    def lost(self) -> int:
        """The number of messages that were confirmed, but not consumed."""
        return sum(self.states.count(state) for state in (CONFIRMED, SENT | CONFIRMED))


async def calibrate(url: str) -> float:
    """Messages per second of a pipelined producer at full speed."""
    async with Producer(url) as producer:
        count, start_s = 0, time.perf_counter()
        while time.perf_counter() - start_s < CALIBRATE_S:
            await producer.send_soon(Message("Calibrate", bytes(BODY_SIZE)))
            count += 1
        await producer.drain()
        return count / (time.perf_counter() - start_s)


async def produce(producer: Producer, ledger: Ledger, rate: float, until_s: float) -> None:
    """Send at a rate; unconfirmed messages are sent again until they are confirmed."""
    waiting: deque[tuple[int, Delivery]] = deque()
    again: deque[int] = deque()
    start_s = time.monotonic()
    due = 0.0
    while time.monotonic() < until_s or waiting or again:
        now_s = time.monotonic()
        if now_s < until_s:
            # After an outage, continue at the same rate instead of making up for lost time.
            due = min(due + rate * TICK_S, rate)
        while again or due >= 1:
            if again:
                number = again.popleft()
            else:
                number, due = ledger.sent, due - 1
                if number >= len(ledger.states):
                    return
                ledger.sent += 1
                ledger.states[number] |= SENT
            body = number.to_bytes(8, "big").ljust(BODY_SIZE, b"x")
            try:
                waiting.append((number, await producer.send_soon(Message(TOPIC, body))))
            except ClientError as error:
                ledger.failures += 1
                ledger.last_failure = str(error)
                again.append(number)
                await asyncio.sleep(0.1)
        for _ in range(len(waiting)):
            number, delivery = waiting.popleft()
            if not delivery.is_done:
                waiting.append((number, delivery))
            elif delivery.error is None:
                ledger.confirm(number)
            else:
                ledger.failures += 1
                ledger.last_failure = str(delivery.error)
                again.append(number)
        elapsed_s = time.monotonic() - start_s
        await asyncio.sleep(TICK_S - elapsed_s % TICK_S)


async def consume(consumer: PushConsumer, ledger: Ledger) -> None:
    async for message in consumer:
        ledger.consume(int.from_bytes(message.body[:8], "big"))


async def restart(cluster: TrocketCluster, ledger: Ledger, every_s: float, until_s: float) -> int:
    """Alternately stop and kill the broker, and start it again; return the number of restarts."""
    count = 0
    while time.monotonic() + every_s < until_s:
        await asyncio.sleep(every_s)
        end = cluster.kill_broker if count % 2 else cluster.stop_broker
        try:
            await asyncio.to_thread(end)
        except PeerError as error:
            # It did not stop in time and was killed: that must lose nothing, but is reported.
            ledger.bad_stops.append(str(error)[-500:])
        await asyncio.to_thread(cluster.start)
        count += 1
    return count


async def watch(samples: list[Sample], start_s: float, ledger: Ledger, bar: Progress) -> None:
    task = bar.add_task("", total=None)
    while True:
        samples.append(
            Sample(
                time.monotonic() - start_s,
                resident_mb(os.getpid()),
                len(asyncio.all_tasks()),
                _open_files(),
            )
        )
        last = samples[-1]
        bar.update(
            task,
            description=f"{last.at_s:5.0f} s: {ledger.confirmed:,} confirmed, "
            f"{ledger.consumed:,} consumed, {ledger.failures} failures, "
            f"{last.resident_mb:.1f} MB, {last.tasks} tasks, {last.descriptors} files",
        )
        await asyncio.sleep(SAMPLE_S)


async def soak(
    cluster: TrocketCluster, minutes: float, rate: float, restart_s: float, bar: Progress
) -> dict[str, object]:
    url = cluster.namesrv_address
    measured = 0.0
    if not rate:
        measured = await calibrate(url)
        rate = measured / 2
    ledger = Ledger(round(rate * minutes * 60 * 1.1) + 10_000)
    samples: list[Sample] = []
    start_s = time.monotonic()
    until_s = start_s + minutes * 60
    async with (
        Producer(url) as producer,
        PushConsumer(
            url,
            group="soak",
            subscriptions={TOPIC: "*"},
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        ) as consumer,
    ):
        consuming = asyncio.create_task(consume(consumer, ledger))
        watching = asyncio.create_task(watch(samples, start_s, ledger, bar))
        restarting = asyncio.create_task(restart(cluster, ledger, restart_s, until_s))
        producing = asyncio.create_task(produce(producer, ledger, rate, until_s))
        # gather() raises the first failure at once.
        restarts, _ = await asyncio.gather(restarting, producing)
        end_s = time.monotonic() + CATCH_UP_S
        while ledger.lost() and time.monotonic() < end_s:  # noqa: ASYNC110 - a bench, not a test
            await asyncio.sleep(0.5)
        watching.cancel()
        consumer.stop()
        await consuming
    warm = [s for s in samples if s.at_s > min(120.0, minutes * 20)]
    half = len(warm) // 2
    return {
        "minutes": minutes,
        "measured_per_s": round(measured),
        "rate_per_s": round(rate),
        "restarts": restarts,
        "bad_stops": ledger.bad_stops,
        "sent": ledger.sent,
        "confirmed": ledger.confirmed,
        "consumed": ledger.consumed,
        "consumed_again": ledger.repeated,
        "failed_tries": ledger.failures,
        "last_failure": ledger.last_failure,
        "lost": ledger.lost(),
        "after_warm_up": asdict(warm[0]),
        "first_half_max": _most(warm[:half]),
        "second_half_max": _most(warm[half:]),
        "end": asdict(warm[-1]),
    }


def _open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def _most(samples: list[Sample]) -> dict[str, float]:
    return {
        "resident_mb": max(s.resident_mb for s in samples),
        "tasks": max(s.tasks for s in samples),
        "descriptors": max(s.descriptors for s in samples),
    }


def main(
    minutes: Annotated[float, typer.Option(min=0.5, help="Run for this time.")] = 30.0,
    rate: Annotated[
        float, typer.Option(help="Send this often per second; 0: half of the measured maximum.")
    ] = 0.0,
    restart_s: Annotated[float, typer.Option(help="Restart the broker every S seconds.")] = 60.0,
) -> None:
    """Run the soak test, and print the figures as JSON; status 1 if a message was lost."""
    with (
        tempfile.TemporaryDirectory() as name,
        Progress(console=Console(stderr=True)) as bar,
        running(TrocketCluster(Path(name) / "cluster")) as cluster,
    ):
        figures = asyncio.run(soak(cluster, minutes, rate, restart_s, bar))
    print(json.dumps(figures, indent=2))
    sys.exit(1 if figures["lost"] else 0)


if __name__ == "__main__":
    typer.run(main)
