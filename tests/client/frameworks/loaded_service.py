"""A service that is ended by SIGTERM while its handlers take 0 to 20 s.

    python loaded_service.py async|thread|blocking URL TOPIC GROUP CLOSE_TIMEOUT_S

It sends `NUMBER SECONDS`, and its handlers take these seconds: an async function, a plain function
that the async consumer runs in threads, or a plain function of the blocking consumer. It prints
`confirmed NUMBER`, and `handled NUMBER` at the end of a handler.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import signal
import sys
import threading
from contextlib import suppress
from typing import Any

import trocket
from trocket import ClosedError, ConsumeFromWhere, Message, blocking

LONGEST_S = 20.0
LONG_SHARE = 0.1
CONCURRENCY = 20
SEND_PAUSE_S = 0.01


def say(word: str, message: Any) -> None:
    # One write: lines of several threads must not mix.
    sys.stdout.write(f"{word} {message.partition(' ')[0]}\n")
    sys.stdout.flush()


def bodies() -> Any:
    for number in itertools.count():
        seconds = random.uniform(0, LONGEST_S) if random.random() < LONG_SHARE else 0
        yield f"{number} {seconds:.2f}"


def seconds_of(message: Any) -> float:
    return float(message.text.partition(" ")[2])


async def handle(message: Any) -> None:
    await asyncio.sleep(seconds_of(message))
    say("handled", message.text)


def handle_in_thread(message: Any) -> None:
    threading.Event().wait(seconds_of(message))
    say("handled", message.text)


def consumer_of(module: Any, url: str, topic: str, group: str, close_timeout_s: str) -> Any:
    return module.PushConsumer(
        url,
        group=group,
        subscriptions={topic: "*"},
        close_timeout_s=float(close_timeout_s),
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    )


async def run_async(handler: Any, url: str, topic: str, *names: str) -> None:
    async def send(producer: trocket.Producer) -> None:
        for body in bodies():
            await producer.send(Message(topic, body))
            say("confirmed", body)
            await asyncio.sleep(SEND_PAUSE_S)

    async with (
        trocket.Producer(url) as producer,
        consumer_of(trocket, url, topic, *names) as consumer,
    ):
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, consumer.stop)
        sending = asyncio.create_task(send(producer))
        await consumer.run(handler, concurrency=CONCURRENCY)
        sending.cancel()


def run_blocking(url: str, topic: str, *names: str) -> None:
    def send(producer: blocking.Producer) -> None:
        with suppress(ClosedError):
            for body in bodies():
                producer.send(Message(topic, body))
                say("confirmed", body)
                threading.Event().wait(SEND_PAUSE_S)

    with blocking.Producer(url) as producer, consumer_of(blocking, url, topic, *names) as consumer:
        signal.signal(signal.SIGTERM, lambda *_: consumer.stop())
        threading.Thread(target=send, args=(producer,)).start()
        consumer.run(handle_in_thread, concurrency=CONCURRENCY)


def main(kind: str, *names: str) -> None:
    if kind == "blocking":
        run_blocking(*names)
    else:
        asyncio.run(run_async(handle if kind == "async" else handle_in_thread, *names))


if __name__ == "__main__":
    main(*sys.argv[1:])
