"""One workload of bench/client.py with trocket's client: async on asyncio or trio, or blocking.

Arguments: the API (asyncio, trio or blocking), the name server's HOST:PORT, a topic, the workload.
Each line of standard input, SECONDS COUNT, is a window to measure: sends for that time, or COUNT
messages consumed by a new group. Prints {"per_s": ..., "cpu_us": ...} for each.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import NamedTuple

import anyio.to_thread

import trocket
import trocket.blocking
from trocket import ConsumeFromWhere, Message

BODY = bytes(128)
IN_FLIGHT = 256
BATCH = 32
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


class Window(NamedTuple):
    """A period to measure: its length for producers, its number of messages for consumers."""

    seconds: float
    total: int


def windows() -> Iterator[Window]:
    for line in sys.stdin:
        seconds, total = line.split()
        yield Window(float(seconds), int(total))


async def async_windows() -> AsyncIterator[Window]:
    lines = windows()
    while (window := await anyio.to_thread.run_sync(next, lines, None)) is not None:
        yield window


def print_rates(count: int, start_s: float, cpu_s: float) -> None:
    elapsed_s = time.perf_counter() - start_s
    cpu_us = (time.process_time() - cpu_s) / count * 1e6
    print(json.dumps({"per_s": count / elapsed_s, "cpu_us": cpu_us}), flush=True)


async def produce(namesrv: str, topic: str, workload: str) -> None:
    options = trocket.ProducerOptions(send_buffer_count_max=IN_FLIGHT)
    async with trocket.Producer(namesrv, **options) as producer:

        async def awaited() -> int:
            await producer.send(Message(topic, BODY))
            return 1

        async def pipelined() -> int:
            await producer.send_soon(Message(topic, BODY))
            return 1

        async def batch() -> int:
            await producer.send_batch([Message(topic, BODY) for _ in range(BATCH)])
            return BATCH

        step: Callable[[], Awaitable[int]]
        step = {"awaited": awaited, "pipelined": pipelined, "batch": batch}[workload]
        async for window in async_windows():
            start_s, cpu_s = time.perf_counter(), time.process_time()
            count = 0
            while time.perf_counter() - start_s < window.seconds:
                count += await step()
            await producer.drain()
            print_rates(count, start_s, cpu_s)


async def consume(namesrv: str, topic: str) -> None:
    options = trocket.PushConsumerOptions(consume_from_where=FIRST)
    async for window in async_windows():
        group = f"bench_{time.time_ns()}"
        async with trocket.PushConsumer(
            namesrv, group=group, subscriptions={topic: "*"}, **options
        ) as consumer:
            count = 0
            start_s = cpu_s = 0.0
            async for _ in consumer:
                if not count:
                    start_s, cpu_s = time.perf_counter(), time.process_time()
                count += 1
                if count == window.total:
                    break
            print_rates(count, start_s, cpu_s)


def produce_blocking(namesrv: str, topic: str, workload: str) -> None:
    options = trocket.ProducerOptions(send_buffer_count_max=IN_FLIGHT)
    with trocket.blocking.Producer(namesrv, **options) as producer:

        def awaited() -> int:
            producer.send(Message(topic, BODY))
            return 1

        def pipelined() -> int:
            producer.send_soon(Message(topic, BODY))
            return 1

        def batch() -> int:
            producer.send_batch([Message(topic, BODY) for _ in range(BATCH)])
            return BATCH

        step = {"awaited": awaited, "pipelined": pipelined, "batch": batch}[workload]
        for window in windows():
            start_s, cpu_s = time.perf_counter(), time.process_time()
            count = 0
            while time.perf_counter() - start_s < window.seconds:
                count += step()
            producer.drain()
            print_rates(count, start_s, cpu_s)


def consume_blocking(namesrv: str, topic: str) -> None:
    options = trocket.PushConsumerOptions(consume_from_where=FIRST)
    for window in windows():
        group = f"bench_{time.time_ns()}"
        with trocket.blocking.PushConsumer(
            namesrv, group=group, subscriptions={topic: "*"}, **options
        ) as consumer:
            count = 0
            start_s = cpu_s = 0.0
            for _ in consumer:
                if not count:
                    start_s, cpu_s = time.perf_counter(), time.process_time()
                count += 1
                if count == window.total:
                    break
            print_rates(count, start_s, cpu_s)


def main() -> None:
    api, namesrv, topic, workload = sys.argv[1:]
    if api == "blocking":
        if workload == "consume":
            consume_blocking(namesrv, topic)
        else:
            produce_blocking(namesrv, topic, workload)
    elif workload == "consume":
        anyio.run(consume, namesrv, topic, backend=api)
    else:
        anyio.run(produce, namesrv, topic, workload, backend=api)


if __name__ == "__main__":
    main()
