"""A program whose workers are processes of multiprocessing.

    python workers.py fork|spawn URL TOPIC

Each worker sends by clients that it makes, and reports what the parent's clients say. The program
prints one line for each report, sorted.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import sys
from typing import Any

from trocket import ForkedError, Message, Producer, blocking

WORKERS = 3
DEADLINE_S = 30.0

parents: list[Any] = []
"""Open clients of the parent: only a forked child has them."""


def work(url: str, topic: str, number: int) -> list[str]:
    return [*asyncio.run(use_parents(topic)), *asyncio.run(send(url, topic, number))]


async def use_parents(topic: str) -> list[str]:
    reports = []
    for producer in parents:
        name = type(producer).__module__.split(".")[1]
        try:
            sent = producer.send(Message(topic, "by the parent's producer"))
            if name == "client":
                await sent
        except ForkedError as error:
            is_clear = "create another one there" in str(error)
            reports.append(f"{name}: forked" if is_clear else str(error))
    return reports


async def send(url: str, topic: str, number: int) -> list[str]:
    async with Producer(url) as producer:
        result = await producer.send(Message(topic, f"async {number}"))
    with blocking.Producer(url) as blocking_producer:
        blocking_producer.send(Message(topic, f"blocking {number}"))
    return [result.status.name]


async def main(method: str, url: str, topic: str) -> None:
    async with Producer(url) as producer:
        with blocking.Producer(url) as blocking_producer:
            await producer.send(Message(topic, "async parent"))
            blocking_producer.send(Message(topic, "blocking parent"))
            parents[:] = [producer, blocking_producer]
            with multiprocessing.get_context(method).Pool(WORKERS) as pool:
                # A client that is passed on is refused where the mistake is.
                try:
                    pool.apply(print, (producer,))
                except TypeError as error:
                    print(error)
                jobs = [pool.apply_async(work, (url, topic, each)) for each in range(WORKERS)]
                reports = [report for job in jobs for report in job.get(DEADLINE_S)]
            await producer.send(Message(topic, "async parent"))
            blocking_producer.send(Message(topic, "blocking parent"))
    print("\n".join(sorted(reports)))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
