"""A service that sends and consumes until SIGTERM, as a program of one framework.

    python service.py asyncio|uvloop|trio|anyio|threads|uvicorn URL TOPIC GROUP

It prints `confirmed BODY` and `handled BODY`, the latter at the end of a handler. Under uvicorn it
prints `port PORT` and `loop MODULE` instead of the former, and sends what is posted to
`/orders/BODY`.
"""

from __future__ import annotations

import asyncio
import itertools
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio

import trocket
from trocket import ConsumeFromWhere, Message, Producer, blocking

HANDLER_S = 0.02
"""Long enough that SIGTERM comes while handlers run."""
GRACEFUL_SHUTDOWN_S = 10


def say(what: str, body: str) -> None:
    # One write: lines of several threads must not mix.
    sys.stdout.write(f"{what} {body}\n")
    sys.stdout.flush()


async def handle(message: Any) -> None:
    await anyio.sleep(HANDLER_S)
    say("handled", message.text)


def clients(url: str, topic: str, group: str, module: Any) -> tuple[Any, Any]:
    """A producer and a consumer, of `trocket` or of `trocket.blocking`."""
    return module.Producer(url, group="service"), module.PushConsumer(
        url,
        group=group,
        subscriptions={topic: "*"},
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    )


async def send_for_ever(producer: Producer, topic: str) -> None:
    for number in itertools.count():
        await producer.send(Message(topic, str(number)))
        say("confirmed", str(number))


def run_asyncio(
    url: str,
    topic: str,
    group: str,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> None:
    async def serve() -> None:
        producer, consumer = clients(url, topic, group, trocket)
        async with producer, consumer, asyncio.TaskGroup() as tasks:
            tasks.create_task(consumer.run(handle))
            tasks.create_task(send_for_ever(producer, topic))

    async def main() -> None:
        task = asyncio.create_task(serve())
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        await asyncio.wait([task])

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main())


def run_uvloop(url: str, topic: str, group: str) -> None:
    import uvloop

    run_asyncio(url, topic, group, uvloop.new_event_loop)


def run_trio(url: str, topic: str, group: str) -> None:
    import trio

    async def main() -> None:
        with trio.open_signal_receiver(signal.SIGTERM) as signals:
            async with trio.open_nursery() as outer:

                async def serve() -> None:
                    producer, consumer = clients(url, topic, group, trocket)
                    async with producer, consumer, trio.open_nursery() as nursery:
                        nursery.start_soon(consumer.run, handle)
                        nursery.start_soon(send_for_ever, producer, topic)

                outer.start_soon(serve)
                async for _ in signals:
                    outer.cancel_scope.cancel()

    trio.run(main)


def run_anyio(url: str, topic: str, group: str) -> None:
    async def main() -> None:
        with anyio.open_signal_receiver(signal.SIGTERM) as signals:
            async with anyio.create_task_group() as outer:

                async def serve() -> None:
                    producer, consumer = clients(url, topic, group, trocket)
                    async with producer, consumer, anyio.create_task_group() as tasks:
                        tasks.start_soon(consumer.run, handle)
                        tasks.start_soon(send_for_ever, producer, topic)

                outer.start_soon(serve)
                async for _ in signals:
                    outer.cancel_scope.cancel()

    anyio.run(main)


def run_threads(url: str, topic: str, group: str) -> None:
    is_over = threading.Event()

    def handle(message: Any) -> None:
        threading.Event().wait(HANDLER_S)
        say("handled", message.text)

    def send() -> None:
        for number in itertools.count():
            if is_over.is_set():
                return
            producer.send(Message(topic, str(number)))
            say("confirmed", str(number))

    def stop(*_: object) -> None:
        raise SystemExit(0)

    signal.signal(signal.SIGTERM, stop)
    producer, consumer = clients(url, topic, group, blocking)
    with producer, consumer:
        sender = threading.Thread(target=send)
        sender.start()
        try:
            consumer.run(handle)
        finally:
            is_over.set()
            sender.join()


def run_uvicorn(url: str, topic: str, group: str) -> None:
    import uvicorn
    from fastapi import FastAPI

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        say("loop", type(asyncio.get_running_loop()).__module__)
        producer, consumer = clients(url, topic, group, trocket)
        async with producer, consumer:
            app.state.producer = producer
            task = asyncio.create_task(consumer.run(handle))
            yield
            task.cancel()
            await asyncio.wait([task])

    app = FastAPI(lifespan=lifespan)

    @app.post("/orders/{body}")
    async def order(body: str) -> dict[str, str]:
        result = await app.state.producer.send(Message(topic, body))
        return {"status": result.status.name}

    # uvicorn raises the signal again when it has stopped; without a handler, it is the status.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    listening = socket.create_server(("127.0.0.1", 0))
    say("port", str(listening.getsockname()[1]))
    config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=GRACEFUL_SHUTDOWN_S)
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    hosts = {
        "asyncio": run_asyncio,
        "trio": run_trio,
        "anyio": run_anyio,
        "threads": run_threads,
        "uvloop": run_uvloop,
        "uvicorn": run_uvicorn,
    }
    hosts[sys.argv[1]](*sys.argv[2:])
