"""A member of an orderly group, as a process: it handles messages until SIGTERM.

    python orderly_member.py async|cancelled|closed|thread|blocking URL TOPIC GROUP LOG

At SIGTERM `cancelled` cancels its handlers, `closed` closes the consumer beside them, and the
others stop and wait for them. `thread` and `blocking` have plain handlers. Each handler appends
`begin NANOSECONDS QUEUE OFFSET PID` to the log of all members, and `end …` when it is over; the
times are those of the machine's monotonic clock.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import trocket
from trocket import ConsumeFromWhere, blocking

HANDLER_S = (0.02, 0.6)


def write(log: int, word: str, message: Any) -> None:
    # One write: it is appended whole.
    line = f"{word} {time.monotonic_ns()} {message.queue_id} {message.queue_offset} {os.getpid()}\n"
    os.write(log, line.encode())


def consumer_of(module: Any, url: str, topic: str, group: str) -> Any:
    return module.PushConsumer(
        url,
        group=group,
        subscriptions={topic: "*"},
        is_orderly=True,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        # Any place among the members: a new one takes queues of each other one.
        instance_name=f"{random.randrange(10_000)}-{os.getpid()}",
    )


async def run_async(kind: str, url: str, topic: str, group: str, log: int) -> None:
    async def handle(message: Any) -> None:
        write(log, "begin", message)
        try:
            await asyncio.sleep(random.uniform(*HANDLER_S))
        finally:
            write(log, "end", message)

    handler = partial(handle_in_thread, log) if kind == "thread" else handle
    async with consumer_of(trocket, url, topic, group) as consumer:
        running = asyncio.create_task(consumer.run(handler))
        closing: list[asyncio.Task[None]] = []

        def leave() -> None:
            if kind == "cancelled":
                running.cancel()
            elif kind == "closed":
                closing.append(asyncio.create_task(consumer.close()))
            else:
                consumer.stop()

        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, leave)
        print("ready", flush=True)
        await asyncio.wait([running])
        await asyncio.gather(*closing)


def handle_in_thread(log: int, message: Any) -> None:
    write(log, "begin", message)
    try:
        threading.Event().wait(random.uniform(*HANDLER_S))
    finally:
        write(log, "end", message)


def run_blocking(url: str, topic: str, group: str, log: int) -> None:
    with consumer_of(blocking, url, topic, group) as consumer:
        signal.signal(signal.SIGTERM, lambda *_: consumer.stop())
        print("ready", flush=True)
        consumer.run(partial(handle_in_thread, log))


def main(kind: str, url: str, topic: str, group: str, path: str) -> None:
    log = os.open(Path(path), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    if kind == "blocking":
        run_blocking(url, topic, group, log)
    else:
        asyncio.run(run_async(kind, url, topic, group, log))


if __name__ == "__main__":
    main(*sys.argv[1:])
