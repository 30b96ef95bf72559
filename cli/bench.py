"""`trocket bench`: the throughput and latency of a cluster, for sending and for reading."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ..common.terminal import show
from .completion import topic_names
from .missing import note_topic
from .session import SHARED, Shared, emit, fail, new_client, run

if TYPE_CHECKING:
    from ..client import Client, MessageQueue

QUEUES: Final = 8
"""Queues of the topic that the command creates."""
STALLED_S: Final = 10.0
"""Reading fails after this time without a message."""
POLL_COUNT: Final = 1000
"""Messages per poll."""
SIZE_MAX: Final = 16 * 1024 * 1024
"""Bytes of a body: no frame is larger (com.rocketmq.remoting.frameMaxLength)."""


class Mode(StrEnum):
    """What is measured."""

    BOTH = "both"
    SEND = "send"
    CONSUME = "consume"


def bench(
    mode: Annotated[Mode, typer.Argument(help="What to measure.")] = Mode.BOTH,
    topic: Annotated[
        str,
        typer.Option(
            "--topic",
            help="Use this topic and keep it. Default: create one, then delete it.",
            autocompletion=topic_names,
            callback=note_topic,
        ),
    ] = "",
    count: Annotated[
        int, typer.Option("--count", min=1, help="Send or read this number.")
    ] = 10_000,
    size: Annotated[
        int, typer.Option("--size", min=1, max=SIZE_MAX, help="Make bodies of this size.")
    ] = 128,
    under_way: Annotated[
        int, typer.Option("--under-way", min=1, help="Keep this number of sends in flight.")
    ] = 64,
    shared: Shared = SHARED,
) -> None:
    """Measure sending and reading against any cluster: messages per second, milliseconds each.

    Measures one client: one process, with one connection to each broker.
    """
    if mode is Mode.CONSUME and not topic:
        raise typer.BadParameter("consume needs --topic with a topic that already has messages")

    async def main() -> list[dict[str, Any]]:
        from ..client import Admin

        async with new_client(shared.url, shared.timeout_s) as client, Admin(client) as admin:
            name = topic or f"trocket_bench_{client.next_unique_id()}"
            if not topic:
                await admin.create_topic(name, QUEUES)
            try:
                return await _measure(client, name, mode, count, size, under_way)
            finally:
                if not topic:
                    await _delete(admin.delete_topic, name, shared.timeout_s)

    results = run(main)
    if shared.as_json:
        emit(results)
        return
    show(
        ["", "Messages", "Seconds", "Messages/s", "MB/s", "p50 ms", "p99 ms", "Max ms"],
        [
            [
                each["what"],
                each["messages"],
                f"{each['seconds']:.2f}",
                f"{each['messagesPerSecond']:,.0f}",
                f"{each['megabytesPerSecond']:.2f}",
                *(_ms(each.get(name)) for name in ("p50Ms", "p99Ms", "maxMs")),
            ]
            for each in results
        ],
    )


async def _delete(delete: Callable[[str], Any], name: str, timeout_s: float) -> None:
    import anyio

    # The topic is deleted after Ctrl-C, too: shielded, so that the request is still sent.
    with anyio.move_on_after(timeout_s, shield=True):
        await delete(name)


async def _measure(
    client: Client, topic: str, mode: Mode, count: int, size: int, under_way: int
) -> list[dict[str, Any]]:
    from ..client import PullConsumer
    from ..common.topic_names import TOOLS_GROUP

    results = []
    async with PullConsumer(client, group=TOOLS_GROUP, auto_commit=False) as consumer:
        begins: dict[MessageQueue, int] = {}
        if mode is Mode.BOTH and topic in await _known(client, topic):
            begins = {q: await consumer.end_offset(q) for q in await consumer.queues(topic)}
        if mode is not Mode.CONSUME:
            results.append(await _send(client, topic, count, size, under_way))
        if mode is not Mode.SEND:
            queues = await consumer.queues(topic)
            offsets = {q: begins.get(q, await consumer.begin_offset(q)) for q in queues}
            results.append(await _consume(consumer, offsets, count))
    return results


async def _known(client: Client, topic: str) -> list[str]:
    """The topic in a list, or an empty list if it does not exist yet."""
    from ..client import RouteNotFoundError

    with contextlib.suppress(RouteNotFoundError):
        await client.route(client.with_namespace(topic))
        return [topic]
    return []


async def _send(
    client: Client, topic: str, count: int, size: int, under_way: int
) -> dict[str, Any]:
    import anyio

    from ..client import Message, Producer

    message = Message(topic, b"x" * size)
    spans: list[float] = []
    left = count
    async with Producer(client) as producer:
        # The route and the connection are set up before the measurement starts.
        await producer.queues(topic)
        with _progress("sending", count) as progress:

            async def work() -> None:
                nonlocal left
                while left > 0:
                    left -= 1
                    start_s = anyio.current_time()
                    await producer.send(message)
                    spans.append(anyio.current_time() - start_s)
                    progress(len(spans))

            begin_s = anyio.current_time()
            async with anyio.create_task_group() as group:
                for _ in range(min(under_way, count)):
                    group.start_soon(work)
            seconds = anyio.current_time() - begin_s
    spans.sort()
    return {
        **_rates("send", count, count * size, seconds),
        "p50Ms": spans[len(spans) // 2] * 1000,
        "p99Ms": spans[len(spans) * 99 // 100] * 1000,
        "maxMs": spans[-1] * 1000,
    }


async def _consume(consumer: Any, offsets: dict[MessageQueue, int], count: int) -> dict[str, Any]:
    import anyio

    ends = {queue: await consumer.end_offset(queue) for queue in offsets}
    count = min(count, sum(ends[queue] - offset for queue, offset in offsets.items()))
    done = size = 0
    with _progress("consuming", count) as progress:
        begin_s = anyio.current_time()
        consumer.assign(offsets)
        for queue, offset in offsets.items():
            consumer.seek(queue, offset)
        while done < count:
            messages = await consumer.poll(POLL_COUNT, timeout_s=STALLED_S)
            if not messages:
                fail(f"received only {done} of {count} messages, and none for {STALLED_S:g} s")
            done += len(messages)
            size += sum(len(message.body) for message in messages)
            progress(done)
        seconds = anyio.current_time() - begin_s
    return _rates("consume", done, size, seconds)


def _rates(what: str, count: int, size: int, seconds: float) -> dict[str, Any]:
    seconds = max(seconds, 1e-9)
    return {
        "what": what,
        "messages": count,
        "bytes": size,
        "seconds": seconds,
        "messagesPerSecond": count / seconds,
        "megabytesPerSecond": size / seconds / 1e6,
    }


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


@contextlib.contextmanager
def _progress(label: str, total: int) -> Iterator[Callable[[int], None]]:
    """A progress bar on standard error, if that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total)
        step = max(total // 100, 1)

        def progress(done: int) -> None:
            if done % step == 0 or done >= total:
                bar.update(task, completed=done)

        yield progress
