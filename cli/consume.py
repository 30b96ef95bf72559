"""`trocket consume`: a topic's messages as lines, stored ones and new ones."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from .completion import group_names
from .message_lines import as_json as json_of
from .message_lines import as_text
from .session import (
    SHARED,
    Shared,
    TopicName,
    emit,
    fail,
    is_offset,
    new_client,
    read_time,
    run,
    usage,
)

if TYPE_CHECKING:
    from ..client import Client, MessageQueue, MessageSelector, PullConsumer, ReceivedMessage

PULL_COUNT: Final = 32
"""Messages per pull."""
POLL_S: Final = 60.0
"""Longest wait for messages before the loop checks again whether it is done."""

Group = Annotated[
    str,
    typer.Option(
        "--group",
        autocompletion=group_names,
        help="Read as a member of this group: share its queues and commit its offsets. "
        "Without it, nothing on the brokers changes.",
    ),
]
Start = Annotated[
    str,
    typer.Option(
        "--from",
        metavar="WHERE",
        help="Start at begin, end, an offset, or a time: ISO 8601, `2h` (ago), ms since 1970. "
        "Default: begin; with --follow: end. With --group, it applies to a new group only.",
    ),
]
Pop = Annotated[
    bool,
    typer.Option(
        "--pop",
        help="With --group: pop the messages (brokers from 5.0 on), so that the broker, not the "
        "members, shares them out.",
    ),
]
InvisibleS = Annotated[
    float,
    typer.Option(
        "--invisible",
        metavar="S",
        help="With --pop: give a message to no one else for S seconds, above 0 to 3 days.",
    ),
]
NoAck = Annotated[
    bool,
    typer.Option(
        "--no-ack",
        help="With --pop: only print; the group gets the messages again after --invisible.",
    ),
]

_QUEUE: Final = re.compile(r"(?:(.+):)?([0-9]{1,9})", re.ASCII)


def consume(
    topic: TopicName,
    group: Group = "",
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Wait for new messages, until Ctrl-C.")
    ] = False,
    tag: Annotated[
        str, typer.Option("--tag", metavar="EXPR", help="Read only these tags: 'A || B'.")
    ] = "",
    sql: Annotated[
        str, typer.Option("--sql", metavar="EXPR", help='Filter with SQL92: "price > 10".')
    ] = "",
    key: Annotated[str, typer.Option("--key", help="Print only messages with this key.")] = "",
    start: Start = "",
    queue: Annotated[
        str, typer.Option("--queue", metavar="[BROKER:]ID", help="Read only this queue.")
    ] = "",
    limit: Annotated[
        int,
        typer.Option(
            "--limit", min=0, metavar="N", help="Stop after N messages. Default: no limit."
        ),
    ] = 0,
    idle: Annotated[
        float,
        typer.Option("--idle", min=0, metavar="S", help="Stop after S seconds without a message."),
    ] = 0.0,
    raw: Annotated[bool, typer.Option("--raw", help="Print only bodies, one a line.")] = False,
    shared: Shared = SHARED,
    *,
    pop: Pop = False,
    invisible: InvisibleS = 60.0,
    no_ack: NoAck = False,
) -> None:
    """Print the messages of a topic; without --group and --follow, those stored now.

    With --json, print one object a line, which `trocket send --json` reads.
    """
    if tag and sql:
        usage("give --tag or --sql, not both")
    if raw and shared.as_json:
        usage("give --raw or --json, not both")
    if group and queue:
        usage("--queue does not work with --group: a group's queues are shared by its members")
    if start and start not in ("begin", "end") and group and is_offset(start):
        usage("--from OFFSET does not work with --group; use `trocket offset reset`")
    if queue and _QUEUE.fullmatch(queue) is None:
        usage(f"--queue: {queue!r} is neither ID nor BROKER:ID")
    if pop or no_ack:
        _check_pops(group, start, invisible, is_popped=pop)
    out = _Output(key, limit, raw=raw, as_json=shared.as_json)

    async def main() -> None:
        async with new_client(shared.url, shared.timeout_s) as client:
            selector = _selector(tag, sql)
            if pop:
                pops = _Pops(group, start, idle, invisible, is_acknowledged=not no_ack)
                await _by_pops(client, topic, selector, pops, out)
            elif group:
                await _as_member(client, topic, group, selector, start, idle, out)
            else:
                where = start or ("end" if follow else "begin")
                await _as_reader(client, topic, selector, where, queue, idle, out, follow=follow)

    run(main)


def _check_pops(group: str, start: str, invisible: float, *, is_popped: bool) -> None:
    if not is_popped:
        usage("--no-ack works with --pop only; without --group no message is acknowledged")
    if not group:
        usage("--pop needs --group: the broker pops messages for a group")
    if start not in ("", "begin", "end"):
        usage("--from TIME does not work with --pop: give begin or end")
    from ..remoting.pop_requests import INVISIBLE_S_MAX

    if not 0 < invisible <= INVISIBLE_S_MAX:
        usage(f"--invisible: {invisible:g} is not above 0 and at most {INVISIBLE_S_MAX} (3 days)")


class _Output:
    """Prints messages up to the wanted count."""

    def __init__(self, key: str, count: int, *, raw: bool, as_json: bool) -> None:
        self._key = key
        self._left = count or -1
        self._print = self._raw if raw else self._json if as_json else self._text

    @property
    def is_done(self) -> bool:
        """Whether the wanted number of messages was printed."""
        return self._left == 0

    def print(self, message: ReceivedMessage) -> None:
        """Print a message if it has the key."""
        if self._left == 0 or (self._key and self._key not in message.keys):
            return
        self._left -= self._left > 0
        self._print(message)

    def wanted(self, most: int) -> int:
        """Number of messages that are still wanted, at most `most`."""
        return min(self._left, most) if self._left >= 0 else most

    @staticmethod
    def flush() -> None:
        """Flush standard output, so that a pipe's reader sees the lines."""
        sys.stdout.flush()

    @staticmethod
    def _raw(message: ReceivedMessage) -> None:
        sys.stdout.flush()
        sys.stdout.buffer.write(message.body + b"\n")

    @staticmethod
    def _json(message: ReceivedMessage) -> None:
        emit(json_of(message))

    @staticmethod
    def _text(message: ReceivedMessage) -> None:
        typer.echo(as_text(message))


def _selector(tag: str, sql: str) -> MessageSelector:
    from ..client import Sql, Tag

    return Sql(sql) if sql else Tag(tag) if tag else "*"


# Without a group


async def _as_reader(
    client: Client,
    topic: str,
    selector: MessageSelector,
    start: str,
    chosen: str,
    idle_s: float,
    out: _Output,
    *,
    follow: bool,
) -> None:
    from ..client import PullConsumer
    from ..common.topic_names import TOOLS_GROUP

    place = _place(start, client.wall_ms())
    async with PullConsumer(client, group=TOOLS_GROUP, auto_commit=False) as consumer:
        queues = _matching(await consumer.queues(topic), chosen, topic)
        offsets = {queue: await place(consumer, queue) for queue in queues}
        if follow:
            await _follow(consumer, offsets, selector, idle_s, out)
        else:
            await _read_to_the_end(consumer, offsets, selector, out)


def _place(start: str, now_ms: int) -> Callable[[PullConsumer, MessageQueue], Any]:
    """A function that finds the offset to read a queue from."""
    if start == "begin":
        return lambda consumer, queue: consumer.begin_offset(queue)
    if start == "end":
        return lambda consumer, queue: consumer.end_offset(queue)
    if is_offset(start):
        wanted = int(start)

        async def at(consumer: PullConsumer, queue: MessageQueue) -> int:
            begin, end = await consumer.begin_offset(queue), await consumer.end_offset(queue)
            return min(max(wanted, begin), end)

        return at
    at_ms = read_time(start, "--from", now_ms)
    return lambda consumer, queue: consumer.offset_at(queue, at_ms)


def _matching(queues: list[MessageQueue], chosen: str, topic: str) -> list[MessageQueue]:
    if not chosen:
        return queues
    found = _QUEUE.fullmatch(chosen)
    assert found is not None  # checked with the flags
    broker, number = found[1], int(found[2])
    left = [q for q in queues if q.queue_id == number and broker in (None, q.broker_name)]
    if not left:
        fail(f"topic {topic} has no readable queue {chosen}")
    return left


async def _read_to_the_end(
    consumer: PullConsumer,
    offsets: dict[MessageQueue, int],
    selector: MessageSelector,
    out: _Output,
) -> None:
    """Print what is stored now, queue by queue; an error ends it."""
    for queue, offset in offsets.items():
        end = await consumer.end_offset(queue)
        while offset < end and not out.is_done:
            pulled = await consumer.pull(queue, offset, count=PULL_COUNT, selector=selector)
            for message in pulled.messages:
                if message.queue_offset < end:
                    out.print(message)
            out.flush()
            if pulled.next_offset <= offset:
                break
            offset = pulled.next_offset


async def _follow(
    consumer: PullConsumer,
    offsets: dict[MessageQueue, int],
    selector: MessageSelector,
    idle_s: float,
    out: _Output,
) -> None:
    """Print new messages; an unreachable broker is logged to standard error and retried."""
    consumer.assign(offsets, selector)
    for queue, offset in offsets.items():
        consumer.seek(queue, offset)
    while not out.is_done:
        messages = await consumer.poll(timeout_s=idle_s or POLL_S)
        if not messages and idle_s:
            return
        for message in messages:
            out.print(message)
        out.flush()


# As a member of a group


async def _as_member(
    client: Client,
    topic: str,
    group: str,
    selector: MessageSelector,
    start: str,
    idle_s: float,
    out: _Output,
) -> None:
    import anyio

    from ..client import PushConsumer

    options = _first_offsets(start, client.wall_ms())
    # An unknown topic is an error here; the consumer itself would wait until it is created.
    await client.route(client.with_namespace(topic))
    async with PushConsumer(
        client, group=group, subscriptions={topic: selector}, **options
    ) as consumer:
        while not out.is_done:
            message = None
            with anyio.move_on_after(idle_s or POLL_S):
                message = await consumer.receive()
            if message is None:
                if idle_s:
                    return
                continue
            out.print(message)
            out.flush()
            # Messages that --key filters out are acknowledged, too: the group has passed them.
            message.ack()


def _first_offsets(start: str, now_ms: int) -> Any:
    """The consumer's options for the first offset of a new group."""
    from ..client import ConsumeFromWhere

    if start == "begin":
        return {"consume_from_where": ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET}
    if start in ("", "end"):
        return {"consume_from_where": ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET}
    return {
        "consume_from_where": ConsumeFromWhere.CONSUME_FROM_TIMESTAMP,
        "consume_timestamp_ms": read_time(start, "--from", now_ms),
    }


# By pops


class _Pops(NamedTuple):
    """The flags of --pop."""

    group: str
    start: str
    idle_s: float
    invisible_s: float
    is_acknowledged: bool


async def _by_pops(
    client: Client, topic: str, selector: MessageSelector, pops: _Pops, out: _Output
) -> None:
    from ..client import SimpleConsumer
    from ..client.options.simple_options import WAIT_S
    from ..remoting.receipt import POP_COUNT_MAX

    options = _first_offsets(pops.start, client.wall_ms())
    async with SimpleConsumer(
        client, group=pops.group, subscriptions={topic: selector}, **options
    ) as consumer:
        while not out.is_done:
            messages = await consumer.receive(
                out.wanted(POP_COUNT_MAX),
                invisible_s=pops.invisible_s,
                wait_s=pops.idle_s or WAIT_S,
            )
            if not messages and pops.idle_s:
                return
            for message in messages:
                out.print(message)
            out.flush()
            if pops.is_acknowledged and messages:
                # Messages that --key filters out, too: the group has passed them.
                await consumer.ack_all(messages)
