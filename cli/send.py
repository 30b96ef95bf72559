"""`trocket send`: one message, lines of standard input, or JSON lines."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from .message_lines import BadLineError, from_json
from .session import (
    SHARED,
    Shared,
    TopicName,
    emit,
    fail,
    new_client,
    read_pairs,
    run,
    usage,
)

if TYPE_CHECKING:
    from ..client import Client, Delivery, Message, Producer, SendResult

UNDER_WAY_MAX: Final = 256
"""Sends in flight; results are printed in the order of the input."""
READ_SIZE: Final = 64 * 1024
"""Bytes per read of standard input."""
LINE_SIZE_MAX: Final = 16 * 1024 * 1024
"""Longest line in bytes: the size limit of a frame."""


def send(
    topic: TopicName,
    body: Annotated[
        str,
        typer.Argument(
            metavar="BODY",
            help="The body; `-` sends each line of standard input as a body. With --json and no "
            "BODY, each line is a message as `trocket consume --json` prints it.",
        ),
    ] = "",
    tag: Annotated[str, typer.Option("--tag", help="Set the message's tag.")] = "",
    key: Annotated[
        list[str] | None, typer.Option("--key", help="Add a key for look-ups (repeatable).")
    ] = None,
    prop: Annotated[
        list[str] | None,
        typer.Option("--property", metavar="NAME=VALUE", help="Add a property (repeatable)."),
    ] = None,
    delay_level: Annotated[
        int, typer.Option("--delay-level", min=0, help="Delay by level: 1 (1 s) to 18 (2 h).")
    ] = 0,
    delay: Annotated[
        float, typer.Option("--delay", min=0, metavar="S", help="Delay by S seconds (5.x brokers).")
    ] = 0.0,
    sharding_key: Annotated[
        str, typer.Option("--sharding-key", help="Keep messages with this key in order.")
    ] = "",
    batch: Annotated[
        int, typer.Option("--batch", min=1, help="Put this number of messages in one request.")
    ] = 1,
    count: Annotated[int, typer.Option("--count", min=1, help="Send BODY this often.")] = 1,
    group: Annotated[str, typer.Option("--group", help="Set the producer group.")] = "",
    shared: Shared = SHARED,
) -> None:
    """Send messages; print the id, broker, queue and offset of each, separated by tabs.

    Stops with status 1 at the first message that is not confirmed.
    """
    if not body and not shared.as_json:
        usage("nothing to send: give a BODY, `-` for lines, or --json for lines of JSON")
    if count > 1 and body in ("", "-"):
        usage("--count needs a BODY: standard input is read once")
    if not body and (tag or key or prop or delay_level or delay or sharding_key):
        usage("in JSON lines, put the tag, keys, properties and delay into each message")
    more = {
        "tags": tag or None,
        "keys": tuple(key or ()),
        "properties": read_pairs(prop or (), "--property"),
        "delay_level": delay_level,
        "delay_s": delay or None,
        "sharding_key": sharding_key or None,
    }

    async def main() -> None:
        from ..client.sending.producer import DEFAULT_GROUP, Producer

        source = _Source(topic, body, count, more)
        async with (
            new_client(shared.url, shared.timeout_s, waits=True) as client,
            Producer(client, group=group or DEFAULT_GROUP) as producer,
        ):
            await _find(client, topic)
            if batch > 1:
                await _send_batches(producer, source, batch, as_json=shared.as_json)
            else:
                await _send_each(producer, source, as_json=shared.as_json)

    run(main)


async def _find(client: Client, topic: str) -> None:
    """Look up the topic without waiting for it, so that a slip is said at once; sends may wait.

    Raises: ClientError: no name server answers, or the topic is not there and is not created.
    """
    from ..client.connection.waiting import Window
    from ..remoting.send_template import DEFAULT_TOPIC_QUEUE_NUMS

    full = client.with_namespace(topic)
    await client.publish_info(full, DEFAULT_TOPIC_QUEUE_NUMS, Window(client.now_s, 0))


def _read_some() -> bytes:
    """Some bytes of standard input; b"" at its end."""
    stdin: Any = sys.stdin.buffer  # its declared type lacks read1
    try:
        number = stdin.fileno()
    except OSError:
        return bytes(stdin.read1(READ_SIZE))
    # Not the buffer's own read: a read that Ctrl-C abandons would hold the buffer's lock for ever.
    return os.read(number, READ_SIZE)


class _Source:
    """The messages to send, in lists, as they become available.

    Args:
      topic: the topic to send to.
      body: the argument BODY: a body, "-" or "".
      count: how often to send a body.
      more: further fields of each message.
    """

    def __init__(self, topic: str, body: str, count: int, more: dict[str, Any]) -> None:
        self._topic = topic
        self._body = body
        self._left = count
        self._more = more
        self._rest: bytes | None = b""
        self._line_count = 0
        self._bad_line = ""

    def __aiter__(self) -> _Source:
        return self

    async def __anext__(self) -> list[Message]:
        if self._body not in ("", "-"):
            return self._repeated()
        if self._bad_line:
            # The messages before the bad line were sent and reported.
            fail(self._bad_line)
        return self._read(await self._lines())

    def _repeated(self) -> list[Message]:
        from ..client import Message

        if self._left == 0:
            raise StopAsyncIteration
        count = min(self._left, UNDER_WAY_MAX)
        self._left -= count
        body = self._body.encode("utf-8", "surrogateescape")
        return [Message(self._topic, body, **self._more)] * count

    async def _lines(self) -> list[bytes]:
        """The next lines of standard input, without line ends."""
        from anyio import to_thread

        if self._rest is None:
            raise StopAsyncIteration
        # Ctrl-C must end the command even while a read waits for input.
        data = await to_thread.run_sync(_read_some, abandon_on_cancel=True)
        *lines, rest = (self._rest + data).split(b"\n")
        if len(rest) > LINE_SIZE_MAX:
            fail(f"a line of standard input has more than {LINE_SIZE_MAX} bytes")
        self._rest = rest
        if not data:
            lines.append(rest)
            self._rest = None
        return [line.removesuffix(b"\r") for line in lines]

    def _read(self, lines: list[bytes]) -> list[Message]:
        from ..client import Message

        messages: list[Message] = []
        for line in lines:
            self._line_count += 1
            if not line:
                continue
            if self._body == "-":
                messages.append(Message(self._topic, line, **self._more))
                continue
            try:
                messages.append(from_json(line, self._topic))
            except BadLineError as error:
                self._bad_line = f"line {self._line_count} of standard input: {error}"
                break
        return messages


async def _send_each(producer: Producer, source: _Source, *, as_json: bool) -> None:
    under_way: deque[Delivery] = deque()
    async for messages in source:
        for message in messages:
            under_way.append(await producer.send_soon(message))
            while under_way and (len(under_way) >= UNDER_WAY_MAX or under_way[0].is_done):
                _print_result(await under_way.popleft(), as_json=as_json)
        # Report all sends before waiting for more input, which may take long.
        while under_way:
            _print_result(await under_way.popleft(), as_json=as_json)


async def _send_batches(producer: Producer, source: _Source, size: int, *, as_json: bool) -> None:
    waiting: list[Message] = []
    async for messages in source:
        waiting += messages
        while len(waiting) >= size:
            await _send_batch(producer, waiting[:size], as_json=as_json)
            del waiting[:size]
    if waiting:
        await _send_batch(producer, waiting, as_json=as_json)


async def _send_batch(producer: Producer, messages: Sequence[Message], *, as_json: bool) -> None:
    result = await producer.send_batch(messages)
    ids = result.message_id.split(",")
    places = result.offset_message_id.split(",")
    for index, message_id in enumerate(ids):
        offset = result.queue_offset + index if result.queue_offset >= 0 else -1
        place = places[index] if index < len(places) else ""
        _print_message(result, message_id, offset, place, as_json=as_json)


def _print_result(result: SendResult, *, as_json: bool) -> None:
    _print_message(
        result, result.message_id, result.queue_offset, result.offset_message_id, as_json=as_json
    )


def _print_message(
    result: SendResult, message_id: str, offset: int, place: str, *, as_json: bool
) -> None:
    queue = result.queue
    if not as_json:
        typer.echo(f"{message_id}\t{queue.broker_name}\t{queue.queue_id}\t{offset}")
        return
    line: dict[str, object] = {
        "status": result.status.name,
        "messageId": message_id,
        "brokerName": queue.broker_name,
        "queueId": queue.queue_id,
        "queueOffset": offset,
        "msgId": place,
    }
    if result.recall_handle:
        line["recallHandle"] = result.recall_handle
    emit(line)
