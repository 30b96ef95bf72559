"""Speed of the store without a broker: appends, group commit, recovery, pulls.

Each case prints a ratio against a peer measured in the same run: appends against many queues, group
commit against the bare fsync rate of the disk, and so on. Files lie in a folder that is removed
afterwards; `--folder` says on which disk (a RAM disk would make group commit meaningless).

    python -m trocket.bench.store
    python -m trocket.bench.store --case group-commit --json
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import trio
import typer

from trocket.bench.frames import ROCKETMQ_TYPE, SendTemplate
from trocket.bench.kit import Columns, chosen, show
from trocket.bench.pulls import pull_cpu_us
from trocket.common.sql92.expression import compile_expression
from trocket.remoting.answer_template import AnswerTemplate
from trocket.remoting.bodies import TopicConfig
from trocket.remoting.codec import FRAME_SIZE_MAX
from trocket.store.config import FlushDiskType, MessageStoreConfig
from trocket.store.message_store import MessageStore
from trocket.store.offsets import PhysicalOffset
from trocket.store.reading.record_filter import RecordFilter
from trocket.store.services import QUEUE_WRITE_COUNT, run_services

BATCH = 64
"""Messages between two commits, as in a busy turn of the broker."""

SENDERS = 64
ROUNDS = 5
HOST = bytes(8)
PROPERTIES = b"UNIQ_KEY\x017F0000010B2A18B4AAC2123456780000\x02WAIT\x01true\x02"
TOPIC = "StoreBench"
QUEUE_COUNT = 4


@dataclass(frozen=True)
class Figure:
    """One figure and its reference."""

    case: str
    value: float
    unit: str
    peer: str
    ratio: float | None
    note: str = ""


def new_store(folder: Path, **changes: object) -> MessageStore:
    """A loaded store in an empty folder, with RocketMQ's default sizes unless changed."""
    shutil.rmtree(folder, ignore_errors=True)
    config = MessageStoreConfig(store_path_root_dir=str(folder))
    for name, value in changes.items():
        setattr(config, name, value)
    store = MessageStore(config)
    store.load()
    return store


def append(store: MessageStore, body: bytes, batches: int, queues: list[tuple[str, int]]) -> float:
    """Put `batches` times BATCH messages over the queues in turn; messages per second."""
    put = store.put_message
    count = len(queues)
    number = 0
    start_s = time.perf_counter()
    for _ in range(batches):
        store.begin_burst()
        for _ in range(BATCH):
            topic, queue_id = queues[number % count]
            number += 1
            put(
                topic,
                queue_id,
                body,
                PROPERTIES,
                born_timestamp_ms=1,
                born_host=HOST,
                store_host=HOST,
                tags_code=0,
            )
        store.commit()
        if number % (QUEUE_WRITE_COUNT * BATCH) == 0:
            for queue in store.queue_store.unwritten(QUEUE_WRITE_COUNT):
                queue.write()
    return number / (time.perf_counter() - start_s)


def append_case(folder: Path, body_size: int) -> Figure:
    """The write path alone: one core, no services, with consume queue units."""
    rates = []
    for _ in range(ROUNDS):
        store = new_store(folder)
        queues = [(TOPIC, queue_id) for queue_id in range(QUEUE_COUNT)]
        append(store, bytes(body_size), 200, queues)
        rates.append(append(store, bytes(body_size), 1500, queues))
        store.close()
    goal = 150_000
    rate = statistics.median(rates)
    spread = f"{min(rates):,.0f} … {max(rates):,.0f}"
    return Figure(f"append {body_size} B", rate, "msg/s", f"goal {goal:,}", rate / goal, spread)


def many_queues_case(folder: Path) -> Figure:
    """1 000 topics of 8 queues against one topic of 4, in turn."""
    many = [(f"{TOPIC}{number}", queue_id) for number in range(1000) for queue_id in range(8)]
    few = [(TOPIC, queue_id) for queue_id in range(QUEUE_COUNT)]
    rates: dict[int, list[float]] = {len(many): [], len(few): []}
    for _ in range(ROUNDS):
        for queues in (few, many):
            store = new_store(folder)
            append(store, bytes(1024), 2 * len(many) // BATCH, queues)
            rates[len(queues)].append(append(store, bytes(1024), 1500, queues))
            store.close()
    rate = statistics.median(rates[len(many)])
    peer = statistics.median(rates[len(few)])
    return Figure(
        "append 1024 B to 8,000 queues", rate, "msg/s", f"4 queues {peer:,.0f}", rate / peer
    )


def bare_fsync_rate(
    folder: Path, size: int, seconds: float, *, written: bool, room: int = 256 << 20
) -> float:
    """pwrite of `size` bytes and fdatasync, one after the other, into a preallocated file.

    Args:
      written: the file was filled with zeros before; otherwise its blocks are only reserved, as
        those of a new commit log file.
      room: bytes of the file.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "bare"
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        os.posix_fallocate(fd, 0, room)
        if written:
            for position in range(0, room, 1 << 20):
                os.pwrite(fd, bytes(1 << 20), position)
        os.fsync(fd)
        data, position, count = os.urandom(size), 0, 0
        start_s = time.perf_counter()
        while time.perf_counter() - start_s < seconds:
            os.pwrite(fd, data, position)
            os.fdatasync(fd)
            count += 1
            position += size
            if position + size > room:
                position = 0
        return count / (time.perf_counter() - start_s)
    finally:
        os.close(fd)
        path.unlink()


@contextmanager
def slower_fsync(more_ms: float) -> Iterator[None]:
    """Delay every fdatasync of this process, to simulate a slower disk."""
    fdatasync = os.fdatasync

    def slower(fd: int) -> None:
        fdatasync(fd)
        time.sleep(more_ms / 1000)

    os.fdatasync = slower  # type: ignore[assignment]
    try:
        yield
    finally:
        os.fdatasync = fdatasync


def _setter(event: trio.Event) -> Callable[[bool], None]:
    return lambda _: event.set()


def _put_all(store: MessageStore, body: bytes) -> PhysicalOffset:
    """Put a message of each sender, one by one; the physical offset of the last one."""
    physical_offset = PhysicalOffset(0)
    for number in range(SENDERS):
        _, physical_offset, _ = store.put_message(
            TOPIC,
            number % QUEUE_COUNT,
            body,
            PROPERTIES,
            born_timestamp_ms=1,
            born_host=HOST,
            store_host=HOST,
            tags_code=0,
        )
    return physical_offset


def _runs_of_all(store: MessageStore, body: bytes) -> Callable[[], PhysicalOffset] | None:
    """A function like `_put_all` that takes the senders' frames, as a broker with the C extension.

    Returns: None: there is no extension.
    """
    runs = store.runs
    if runs is None:
        return None
    store.begin_burst()
    _put_all(store, body)  # a run needs queues
    store.commit()
    template = SendTemplate.for_topic(
        TOPIC,
        queue_count=QUEUE_COUNT,
        body=body,
        born_timestamp_ms=time.time_ns() // 1_000_000,
        broker="broker-a",
        serialize_type=ROCKETMQ_TYPE,
    )
    frames = bytes(template.next_frames(SENDERS))
    answers = AnswerTemplate(("msgId", "queueId", "queueOffset"))
    rules = runs.rules(
        {TOPIC: TopicConfig(TOPIC, QUEUE_COUNT, QUEUE_COUNT)},
        set(),
        added=b"",
        store_host=HOST,
        id_prefix=HOST.hex().encode(),
        answer_parts=answers.binary_parts,
        json_answer_parts=answers.json_parts,
    )

    def put() -> PhysicalOffset:
        run = runs.append(rules, frames, 0, FRAME_SIZE_MAX, HOST)
        if run is None or run.send_count < SENDERS:  # at the end of a file of the log
            return _put_all(store, body)
        return PhysicalOffset(store.writer.burst.append_offset - 1)

    return put


async def _group_commit(store: MessageStore, body: bytes, seconds: float) -> float:
    """SENDERS senders, each waiting for its send's fsync before the next one; sends per second."""
    done = 0
    put_run = _runs_of_all(store, body)

    async def senders() -> None:
        nonlocal done
        while True:
            store.begin_burst()
            physical_offset = put_run() if put_run is not None else _put_all(store, body)
            store.commit()
            flushed = trio.Event()
            store.flusher.when_flushed(physical_offset, _setter(flushed))
            await flushed.wait()
            done += SENDERS

    async with trio.open_nursery() as nursery:
        await nursery.start(run_services, store)
        nursery.start_soon(senders)
        await trio.sleep(seconds / 4)
        before, start_s = done, time.perf_counter()
        await trio.sleep(seconds)
        rate = (done - before) / (time.perf_counter() - start_s)
        nursery.cancel_scope.cancel()
    return rate


def group_commit_case(
    folder: Path,
    body_size: int,
    seconds: float,
    *,
    warm: bool = False,
    more_ms: float = 0.0,
    rounds: int = ROUNDS,
) -> Figure:
    """64 closed-loop senders under SYNC_FLUSH against 64 times the bare rate for the same bytes.

    Args:
      warm: the log file was filled with zeros before, as with warmMapedFileEnable; the bare rate
        remains that of reserved blocks.
      more_ms: the delay of every fdatasync, both the store's and the bare ones.
    """
    with slower_fsync(more_ms):
        return _group_commit_case(folder, body_size, seconds, warm, more_ms, rounds)


def _group_commit_case(
    folder: Path, body_size: int, seconds: float, warm: bool, more_ms: float, rounds: int
) -> Figure:
    record_size = 91 + len(TOPIC) + len(PROPERTIES) + body_size
    ratios, rates, bares = [], [], []
    for _ in range(rounds):
        bare = bare_fsync_rate(folder, SENDERS * record_size, seconds, written=False)
        store = new_store(
            folder, flush_disk_type=FlushDiskType.SYNC_FLUSH, mapped_file_size_commit_log=256 << 20
        )
        if warm:
            store.log.create(0)
            store.log.prepared_base = 0
            store.log.warm(0)
            store.log.adopt(0)
        try:
            rate = trio.run(_group_commit, store, bytes(body_size), seconds)
        finally:
            store.close()
        bare += bare_fsync_rate(folder, SENDERS * record_size, seconds, written=False)
        bare /= 2
        bares.append(bare)
        rates.append(rate)
        ratios.append(rate / SENDERS / bare)
    bare, rate = statistics.median(bares), statistics.median(rates)
    special = ", warm" * warm + (f", disk {more_ms:g} ms slower" if more_ms else "")
    return Figure(
        f"group commit, {SENDERS} senders, {body_size} B{special}",
        rate,
        "msg/s",
        f"{SENDERS} x bare fsync {bare:,.0f}/s",
        statistics.median(ratios),
        f"{min(ratios):.2f} … {max(ratios):.2f}",
    )


def recovery_case(folder: Path, gib: float) -> Figure:
    """Open a store after a kill and without a checkpoint, so that its whole log is scanned."""
    store = new_store(folder)
    queues = [(TOPIC, queue_id) for queue_id in range(QUEUE_COUNT)]
    record_size = 91 + len(TOPIC) + len(PROPERTIES) + 1024
    batches = int(gib * (1 << 30)) // record_size // BATCH
    append(store, bytes(1024), batches, queues)
    store.flusher.flush()
    size = store.max_physical_offset
    store.queue_store.close()
    store.log.close()
    store.disk.unlock(f"{folder}/lock")  # dropped, not closed: as after a kill
    shutil.rmtree(folder / "consumequeue", ignore_errors=True)
    config = store.config
    (folder / "checkpoint").unlink(missing_ok=True)
    again = MessageStore(config)
    start_s = time.perf_counter()
    again.load()
    took_s = time.perf_counter() - start_s
    whole = again.max_physical_offset == size
    again.close()
    goal_s = 10.0 * size / (1 << 30)
    return Figure(
        f"recovery of {size / (1 << 30):.2f} GiB, 1024 B",
        took_s,
        "s",
        f"goal {goal_s:.1f}",
        took_s / goal_s,
        f"{batches * BATCH / took_s:,.0f} records/s" + ("" if whole else "; NOT ALL FOUND"),
    )


def pull_case(folder: Path, in_flight: int, seconds: float) -> Figure:
    """Pulls of 32 x 1 KiB over loopback: CPU of the broker's process for each."""
    shutil.rmtree(folder, ignore_errors=True)
    cpu_us, pulls_per_s = pull_cpu_us(
        folder, body_size=1024, count=32, in_flight=in_flight, seconds=seconds
    )
    goal = 60.0
    return Figure(
        f"pull of 32 x 1024 B, {in_flight} in flight",
        cpu_us,
        "us CPU",
        f"goal {goal:.0f}",
        cpu_us / goal,
        f"{pulls_per_s:,.0f} pulls/s",
    )


def filter_case(folder: Path) -> Figure:
    """Gets with an SQL92 filter that a quarter of the messages match, one core."""
    expression = compile_expression("price > 49 AND symbol = 'A'")
    wanted = RecordFilter(expression.matches, lambda: time.perf_counter() < 0.0)
    store = new_store(folder)
    count = 200 * BATCH
    for number in range(count):
        own = b"price\x01%d\x02symbol\x01%c\x02" % (number // 2 % 100, b"AB"[number % 2])
        store.put_message(
            TOPIC,
            0,
            bytes(128),
            PROPERTIES + own,
            born_timestamp_ms=1,
            born_host=HOST,
            store_host=HOST,
            tags_code=0,
        )
        if number % BATCH == BATCH - 1:
            store.commit()
    rates = []
    for _ in range(ROUNDS):
        offset = found = 0
        start_s = time.perf_counter()
        while offset < count:
            result = store.get_message(TOPIC, 0, offset, 32, record_filter=wanted)
            offset = result.next_begin_offset
            found += result.count
        rates.append(count / (time.perf_counter() - start_s))
    store.close()
    goal = 50_000
    rate = statistics.median(rates)
    return Figure(
        "get with an SQL92 filter, 128 B",
        rate,
        "msg/s",
        f"goal {goal:,}",
        rate / goal,
        f"{min(rates):,.0f} … {max(rates):,.0f}; {found} of {count:,} match",
    )


COLUMNS: Columns[Figure] = {
    "case": lambda one: one.case,
    "figure": lambda one: f"{one.value:,.1f}",
    "unit": lambda one: one.unit,
    "against": lambda one: one.peer,
    "ratio": lambda one: "" if one.ratio is None else f"{one.ratio:.2f}",
    "spread": lambda one: one.note,
}


def main(
    case: Annotated[
        str, typer.Option(help="Run append, queues, group-commit, recovery, pull or filter.")
    ] = "all",
    folder: Annotated[
        Path | None, typer.Option(help="Use this folder's disk. Default: the temporary folder's.")
    ] = None,
    seconds: Annotated[float, typer.Option(help="Measure each rate for this time.")] = 2.0,
    gib: Annotated[float, typer.Option(help="Recover a log of this size.")] = 1.0,
    json_: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Measure the store, and print each figure with its reference."""
    with tempfile.TemporaryDirectory(prefix="trocket-bench-", dir=folder) as scratch:
        root = Path(scratch) / "store"
        cases: dict[str, list[Callable[[], Figure]]] = {
            "append": [lambda: append_case(root, 128), lambda: append_case(root, 1024)],
            "queues": [lambda: many_queues_case(root)],
            "group-commit": [
                lambda: group_commit_case(root, 128, seconds),
                lambda: group_commit_case(root, 1024, seconds),
                lambda: group_commit_case(root, 128, seconds, warm=True),
                lambda: group_commit_case(root, 1024, seconds, warm=True),
                lambda: group_commit_case(root, 1024, seconds, more_ms=4.0),
            ],
            "recovery": [lambda: recovery_case(root, gib)],
            "filter": [lambda: filter_case(root)],
            "pull": [
                lambda: pull_case(Path(scratch) / "broker", 1, seconds),
                lambda: pull_case(Path(scratch) / "broker", 16, seconds),
            ],
        }
        ones = chosen(None if case == "all" else [case], cases, "--case")
        outcomes = [measure() for each in ones.values() for measure in each]
    show(outcomes, COLUMNS, as_json=json_)


if __name__ == "__main__":
    typer.run(main)
