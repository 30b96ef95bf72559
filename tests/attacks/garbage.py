"""Files of a broker's data folder, replaced by garbage: what the broker makes of them.

A broker leaves a folder with messages of every kind. One file of it, whichever the disk has, is
replaced. A start must then give every message that was acknowledged, or report the loss in a
warning, or refuse with an error that names a file. Sends get sane store times. The start after that
has nothing to complain of, or refuses as the one before.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

import trio

from trocket.broker.controller import BrokerController
from trocket.disk.errors import StoreError
from trocket.disk.json_config import unsealed
from trocket.disk.memory_disk import MemoryDisk
from trocket.remoting import loop_monitor
from trocket.remoting.message_codec import decode_messages

from ..kit import (
    Client,
    TrioClock,
    broker_client,
    embedded_broker,
    heartbeat,
    pull_fields,
    send_fields,
    subscribed,
)

ROOT = "/store"
SEND, PULL, UPDATE_OFFSET, HEART_BEAT, END_TRANSACTION = 310, 11, 15, 34, 37
QUEUE_COUNT = 4
DELIVERED_S = 20.0
"""By then all that was due is delivered."""

OPTIONS: dict[str, Any] = {
    "mapped_file_size_commit_log": 16 * 1024,
    "mapped_file_size_consume_queue": 400,
    "max_hash_slot_num": 20,
    "max_index_num": 12,
    "enabled_append_prop_crc": True,
    "enable_property_filter": True,
}

NUMBERS = (
    "9223372036854775808", "9223372036854775807", "-1", "-9223372036854775809",
    "1000000000000000", "2147483648", "1e999", "NaN", "1.5", '"x"', "null", "[]", "{}", "true",
)  # fmt: skip
"""What a number in JSON is replaced by."""

HEARTBEAT = heartbeat("CG", subscribed("T", "a = 1", expressionType="SQL92"))
"""A group that filters: the broker saves its expression."""

KINDS = ("random", "page", "zeros", "ones", "truncated", "empty", "number")


def properties(**more: object) -> str:
    """Properties as a header has them."""
    return "".join(f"{name}\x01{value}\x02" for name, value in more.items())


@dataclass
class Left:
    """What a broker left behind.

    Attributes:
      disk: the folder.
      acked: body by (queue id, queue offset) of topic T.
      to_come: bodies that must come to T sooner or later.
      half: header that commits the open transaction.
    """

    disk: MemoryDisk
    acked: dict[tuple[int, int], bytes] = field(default_factory=dict)
    to_come: set[bytes] = field(default_factory=set)
    half: dict[str, object] = field(default_factory=dict)


async def left_behind(random: Random, *, clean: bool) -> Left:
    """Run a broker with messages of all kinds, and stop or kill it."""
    left = Left(MemoryDisk())
    async with broker_client(disk=left.disk, **OPTIONS) as client:
        await client.ask(HEART_BEAT, {}, HEARTBEAT)
        first = await client.ask(SEND, send_fields(i=properties(DELAY=1)), b"delivered")
        assert first.code == 0, first.remark
        left.to_come.add(b"delivered")
        for number in range(60):
            body = b"%d" % number + bytes(random.randrange(600))
            queue_id = random.randrange(QUEUE_COUNT)
            keys = properties(KEYS=f"k{number}", UNIQ_KEY=f"{number:032X}")
            answer = await client.ask(SEND, send_fields(queue_id=queue_id, i=keys), body)
            assert answer.code == 0, answer.remark
            left.acked[queue_id, int(answer.ext_fields["queueOffset"])] = body
            if number == 30:
                await trio.sleep(11)  # a checkpoint
        for queue_id in range(QUEUE_COUNT):
            fields = {"consumerGroup": "CG", "topic": "T", "queueId": queue_id, "commitOffset": 2}
            await client.ask(UPDATE_OFFSET, fields)
        now_ms = TrioClock().wall_ms()
        for body, extra in (
            (b"delayed", {"DELAY": 3}),
            (b"timer", {"TIMER_DELIVER_MS": now_ms + 15_000}),
        ):
            answer = await client.ask(SEND, send_fields(i=properties(**extra)), body)
            assert answer.code == 0, answer.remark
            left.to_come.add(body)
        half = properties(TRAN_MSG="true", PGROUP="PG", UNIQ_KEY="A" * 32)
        answer = await client.ask(SEND, send_fields(i=half, f=4), b"half")
        assert answer.code == 0, answer.remark
        left.half = {
            "producerGroup": "PG",
            "tranStateTableOffset": answer.ext_fields["queueOffset"],
            "commitLogOffset": int(answer.ext_fields["msgId"][16:], 16),
            "commitOrRollback": 8,
            "msgId": "A" * 32,
            "transactionId": "A" * 32,
        }
        await trio.sleep(11)  # offsets are saved, and the checkpoint vouches for all
        killed = left.disk.copy()
    if not clean:
        left.disk = killed
    left.disk.process_death()
    return left


def replace(disk: MemoryDisk, random: Random) -> str:
    """Replace one file, and its `.bak` with it sometimes; says what was done."""
    sorts: dict[str, list[str]] = {}
    for name in sorted(disk.contents):  # each sort in turn: most of the files are index files
        folder = name.removeprefix(f"{ROOT}/").rpartition("/")[0].partition("/")[0]
        sorts.setdefault(folder if folder not in ("", "config") else name, []).append(name)
    path = random.choice(sorts[random.choice(sorted(sorts))])
    kind = random.choice(KINDS)
    done = [_replaced(disk, path, kind, random)]
    spare = f"{path}.bak"
    if spare in disk.contents and random.random() < 0.3:
        done.append(_replaced(disk, spare, kind, random))
    return ", ".join(done)


def _replaced(disk: MemoryDisk, path: str, kind: str, random: Random) -> str:
    data = disk.contents[path]
    size = len(data)
    detail = ""
    if kind == "random":
        data[:] = random.randbytes(size)
    elif kind == "page":
        start = random.randrange(max(size, 1)) // 4096 * 4096
        data[start : start + 4096] = random.randbytes(min(4096, size - start))
        detail = f" at {start}"
    elif kind in ("zeros", "ones"):
        data[:] = (b"\0" if kind == "zeros" else b"\xff") * size
    elif kind == "truncated":
        del data[random.randrange(max(size, 1)) :]
        detail = f" to {len(data)} B"
    elif kind == "empty":
        data.clear()
    else:
        text = unsealed(bytes(data))[0].decode("latin-1")
        found = list(re.finditer(r"(?<=:)\s*-?\d+", text))
        if not found:
            return _replaced(disk, path, "random", random)
        hit, number = random.choice(found), random.choice(NUMBERS)
        detail = f": {text[max(hit.start() - 30, 0) : hit.end()]!r} is {number}"
        data[:] = (text[: hit.start()] + number + text[hit.end() :]).encode("latin-1")
    return f"{kind} {path}{detail}"


class LogCapture(logging.Handler):
    """Warnings and errors of the broker, but for those about a busy machine."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []
        self.tracebacks: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.name == loop_monitor.__name__:
            return
        line = record.getMessage()
        self.lines.append(line)
        if record.exc_info:
            self.tracebacks.append(f"{line}: {record.exc_info[1]!r}")


@contextmanager
def captured_log() -> Iterator[LogCapture]:
    """Captures the broker's log while the block runs."""
    logger, handler = logging.getLogger("trocket"), LogCapture()
    propagate, logger.propagate = logger.propagate, False
    logger.addHandler(handler)
    try:
        yield handler
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagate


def store_errors(error: BaseException) -> list[StoreError]:
    """The store's errors in a group; empty where it holds any other."""
    if isinstance(error, BaseExceptionGroup):
        parts = [store_errors(each) for each in error.exceptions]
        return [each for part in parts for each in part] if all(parts) else []
    return [error] if isinstance(error, StoreError) else []


@dataclass
class Outcome:
    """What came of one start.

    Attributes:
      refusal: why it did not start; "": it did.
      lines: the captured log.
      lost: acknowledged messages that are not there, or cannot be read.
      wrong: what must never be.
      read_only: it started read-only.
      disk: what it left.
    """

    refusal: str = ""
    lines: list[str] = field(default_factory=list)
    lost: list[object] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    read_only: bool = False
    disk: MemoryDisk | None = None


async def start(disk: MemoryDisk, left: Left, *, clean: bool, first: bool) -> Outcome:
    """Start a broker on the folder, read everything, send; then stop or kill it.

    Args:
      first: of two; the second has what the first sent.
    """
    outcome = Outcome()
    disk.process_death()
    with captured_log() as said:
        try:
            async with embedded_broker(disk=disk, **OPTIONS) as broker:
                outcome.lines = list(said.lines)  # what the start itself says
                await _use(broker.controller, await broker.connect(), left, outcome, first=first)
                killed = disk.copy()
        except Exception as error:  # noqa: BLE001 - whatever ends a start is judged
            errors = store_errors(error)
            if not errors:
                outcome.wrong.append(f"the start or the run ends with {error!r}")
            elif not all(ROOT in str(each) for each in errors):
                outcome.wrong.append(f"the refusal names no file: {errors}")
            outcome.refusal = "; ".join(map(str, errors))
        else:
            outcome.disk = disk if clean else killed
        outcome.wrong += [f"a traceback: {each}" for each in said.tracebacks]
        if first:
            outcome.lines = said.lines
    return outcome


async def _use(
    controller: BrokerController, client: Client, left: Left, outcome: Outcome, *, first: bool
) -> None:
    outcome.read_only = controller.store.read_only
    before_ms = TrioClock().wall_ms()
    answer = await client.ask(SEND, send_fields(b="Fresh", i=""), b"fresh")
    if answer.code != 0:
        if not outcome.read_only:
            outcome.wrong.append(f"a send is refused: {answer.remark}")
    else:
        store_ms = controller.store.store_time_at(
            "Fresh", int(answer.ext_fields["queueId"]), int(answer.ext_fields["queueOffset"])
        )
        if not before_ms <= store_ms <= before_ms + 1000:
            outcome.wrong.append(f"a message has the store time {store_ms}, it is {before_ms}")
    if first and not outcome.read_only:
        answer = await client.ask(END_TRANSACTION, left.half)
        if answer.code != 0:
            outcome.lost.append(f"the transaction: {answer.remark}")
    await trio.sleep(DELIVERED_S)
    bodies = set()
    for queue_id in range(QUEUE_COUNT):
        found = await _read(client, queue_id, outcome)
        bodies |= set(found.values())
        for (of, offset), body in left.acked.items():
            if of == queue_id and found.get(offset) != body:
                if offset in found:
                    outcome.wrong.append(f"{queue_id}, {offset} has {found[offset][:20]!r}")
                outcome.lost.append((queue_id, offset))
    if not outcome.read_only:
        outcome.lost += sorted(left.to_come - bodies)


async def _read(client: Client, queue_id: int, outcome: Outcome) -> dict[int, bytes]:
    """Bodies by offset of all that can be read of a queue of T."""
    found: dict[int, bytes] = {}
    offset = 0
    for _ in range(200):
        fields = pull_fields("T", queue_id, queueOffset=offset, sysFlag=4, consumerGroup="Reader")
        answer = await client.ask(PULL, fields)
        following = offset + 1
        if answer.code == 0:
            messages = decode_messages(answer.body, check_crc=True)
            found |= {message.queue_offset: message.body for message in messages}
            following = int(answer.ext_fields["nextBeginOffset"])
        elif answer.code in (19, 20, 21):
            following = int(answer.ext_fields["nextBeginOffset"])
            if following <= offset:
                return found
        elif offset > 60:
            return found
        offset = max(following, offset + 1)
    outcome.wrong.append(f"queue {queue_id} has no end")
    return found


def judge(first: Outcome, second: Outcome | None) -> list[str]:
    """What is wrong with two starts, one after the other; the second of what the first left."""
    wrong = list(first.wrong)
    if first.lost and all(line.startswith("index file") for line in first.lines):
        wrong.append(f"nothing tells that {len(first.lost)} are lost: {first.lost[:3]}")
    if second is None:
        return wrong
    wrong += [f"the second start: {each}" for each in second.wrong]
    if first.refusal:
        if second.refusal != first.refusal:
            wrong.append(f"refused with {first.refusal}, then with {second.refusal!r}")
    elif second.refusal:
        wrong.append(f"the second start is refused: {second.refusal}")
    elif second.lines and not second.read_only:
        wrong.append(f"the second start still complains: {second.lines[:3]}")
    return wrong
