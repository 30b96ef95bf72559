"""Sends numbers in order, or takes them in order, as a user of trocket's client on asyncio.

Arguments and lines are those of interop/clients/java/src/Numbers.java.
"""

from __future__ import annotations

import sys
import threading
from functools import partial
from typing import Any

import anyio
import anyio.from_thread
import anyio.to_thread

from trocket import ClientError, ConsumeFromWhere, Message, Producer, PushConsumer, SendStatus

RETRY_S = 0.05


def say(line: str) -> None:
    print(line, flush=True)


async def send(words: list[str], over: anyio.Event) -> None:
    namesrv, topic, pause_ms, firsts = words
    numbers = [int(first) for first in firsts.split(",")]
    async with Producer(namesrv, group="chaos-python") as producer:
        say("ready")
        while not over.is_set():
            wait_s = int(pause_ms) / 1000
            for key, number in enumerate(numbers):
                try:
                    result = await producer.send(
                        Message(topic, f"{key}:{number}"), selector=partial(_of_key, key)
                    )
                except ClientError as error:
                    say(f"failed {type(error).__name__}: {' '.join(str(error).split())}")
                    wait_s = RETRY_S
                    continue
                if result.status is not SendStatus.SEND_OK:
                    say(f"failed {result.status.name}")
                    wait_s = RETRY_S
                    continue
                say(f"sent {key} {number} {result.queue.queue_id} {result.queue_offset}")
                numbers[key] += 1
            await anyio.sleep(wait_s)


def _of_key(key: int, queues: Any, message: Message) -> Any:
    return queues[key % len(queues)]


async def take(words: list[str], over: anyio.Event) -> None:
    namesrv, group, topics = words

    async def handle(message: Any) -> None:
        place = f"{message.topic} {message.queue_id} {message.queue_offset}"
        say(f"took {place} {message.text}")

    async with (
        PushConsumer(
            namesrv,
            group=group,
            subscriptions=dict.fromkeys(topics.split(","), "*"),
            is_orderly=True,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        ) as consumer,
        anyio.create_task_group() as tasks,
    ):
        say("ready")
        tasks.start_soon(consumer.run, handle)
        await over.wait()
        consumer.stop()


async def main() -> None:
    over = anyio.Event()
    async with anyio.from_thread.BlockingPortal() as portal:

        def read() -> None:
            sys.stdin.buffer.readline()
            portal.call(over.set)

        threading.Thread(target=read, daemon=True).start()
        await (send if sys.argv[1] == "send" else take)(sys.argv[2:], over)
    say("done")


if __name__ == "__main__":
    anyio.run(main)
