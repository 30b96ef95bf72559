"""One run of a real store on a recording disk, step by step, with everything noted."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from random import Random
from typing import Any

from trocket.common.java_hash import tags_code
from trocket.disk.errors import StoreError, StoreIOError
from trocket.disk.json_config import save_json
from trocket.remoting.errors import RemoteProtocolError
from trocket.remoting.message import Message
from trocket.remoting.message_batch import iter_batch
from trocket.remoting.message_codec import decode_record, encode_batch
from trocket.store.config import FlushDiskType, MessageStoreConfig
from trocket.store.format import UNIT
from trocket.store.message_store import MessageStore
from trocket.store.offsets import PhysicalOffset
from trocket.store.retention_service import Retention
from trocket.store.services import _write_queues, checkpoint_now

from ...trio_order import run_by
from ..broken import Broken
from ..clock import WorldClock
from ..file_system import POWER_KINDS, FileSystem, Image
from ..recording_disk import RecordingDisk
from .checks import CONFIG, check_config, check_store
from .history import History, Key, SavedText, Sent

ROOT = "/data"
HOST = bytes((127, 0, 0, 1, 0, 0, 0x2A, 0x9F))
HOST_V6 = bytes(15) + b"\x01\x00\x00\x2a\x9f"
DELAYS_MS = (1_000, 5_000, 10_000, 30_000)
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
PREPARED, COMMIT, ROLLBACK = 4, 8, 12
MEMORY = 1 << 30

Step = tuple[Any, ...]
"""A method of `Session` and its arguments. Steps mean something in any order, so that a failing
run can be made shorter by leaving steps out."""


def sim_config(*, sync: bool, **changes: object) -> MessageStoreConfig:
    """4 KiB log files, 5 units per queue file, 50 entries per index file."""
    config = MessageStoreConfig(
        store_path_root_dir=ROOT,
        mapped_file_size_commit_log=4096,
        mapped_file_size_consume_queue=100,
        max_hash_slot_num=20,
        max_index_num=50,
        file_reserved_time=1,
        delete_when=";".join(f"{hour:02d}" for hour in range(24)),
        flush_disk_type=FlushDiskType.SYNC_FLUSH if sync else FlushDiskType.ASYNC_FLUSH,
    )
    for name, value in changes.items():
        setattr(config, name, value)
    return config


class Session:
    """Runs steps.

    Args:
      seed: for the bytes of bodies.
      is_faulty: calls may fail: refusals are then noted and not held against the store.

    Attributes:
      is_running: a store is open. It is not after a clean stop, and after a load that failed.
      fatal: why the last load failed.
    """

    def __init__(self, config: MessageStoreConfig, seed: int, *, is_faulty: bool = False) -> None:
        self.config = config
        self.disk = RecordingDisk(FileSystem(Image({}, {ROOT})))
        self.clock = WorldClock()
        self.history = History()
        self._seed = seed
        self.random = Random(seed)
        self.is_faulty = is_faulty
        self.is_running = False
        self.fatal: StoreError | None = None
        self.store: MessageStore | None = None
        self._retention: Retention | None = None
        self._pending: list[Sent] = []
        self._unsynced: list[Sent] = []
        self._deletions: dict[str, int] = {}
        self._undone: dict[Key, int] = {}
        self._number = 0

    @property
    def moment(self) -> int:
        """How many operations there were."""
        return len(self.disk.journal)

    @property
    def is_sync(self) -> bool:
        """Whether the store runs under SYNC_FLUSH."""
        return self.config.flush_disk_type is FlushDiskType.SYNC_FLUSH

    def note(self, text: str) -> None:
        """Remember an event for the story of a failure."""
        self.history.events.append((self.moment, text))

    def play(self, steps: Iterable[Step]) -> None:
        """Open the store and do the steps. Raises: Broken: a promise does not hold."""
        run_by(self._seed, partial(self._run, steps), self.clock.time)

    async def _run(self, steps: Iterable[Step]) -> None:
        self.open()
        for name, *arguments in steps:
            self.clock.advance(self.random.randrange(40))
            if not self.is_running:
                self.open()
            if not self.is_running:
                return  # the load failed; the process has ended
            result = getattr(self, name)(*arguments)
            if result is not None:
                await result
            self._note_synced()

    # ---- opening and closing -------------------------------------------------------------

    def open(self) -> None:
        """Load the store; what it shows then is promised for good."""
        if self.is_running:
            return
        self.note("load")
        self.store = None
        store = MessageStore(self.config, clock=self.clock, disk=self.disk, memory_bytes=MEMORY)
        self.fatal = None
        try:
            store.load()
        except StoreError as error:
            self.note(f"load fails: {error}")
            if not self.is_faulty:
                raise Broken("load", f"{type(error).__name__}: {error}") from error
            self.fatal = error
            return
        self.store = store
        self.is_running = True
        self._retention = Retention(store)

    def stop(self) -> None:
        """A clean stop."""
        assert self.store is not None
        self._commit_pending()
        self.note("close")
        self.store.close()
        self._note_synced()
        self.is_running = False
        self._pending = []

    def crash(self, kind: str) -> None:
        """The process or the machine dies, the store is opened again and looked at."""
        seed = self.random.randrange(1 << 30)
        power = kind in POWER_KINDS
        moment = self.moment
        self.note(f"crash {kind}")
        expected = self.history.expectation(moment, power=power)
        self.disk.crash(kind, seed)
        self.is_running = False
        self._pending = []
        self._unsynced = []
        self.clock.advance(5_000)
        for each in self.history.sent:
            if power and not each.is_promised(moment, power=True):
                each.release(moment + 1)
        self.open()
        if self.store is None:
            return
        finding = check_store(self.store, expected)
        problems = finding.violations + check_config(self.disk, self.config, expected)
        if self.store.read_only:
            problems.append(f"N1: the store is read-only: {self.store.trouble}")
        if problems:
            promise, _, problem = problems[0].partition(": ")
            raise Broken(promise, f"{problem}, after crash {kind}")
        present = set(finding.present)
        for each in self.history.sent:
            if each in present:
                each.promise(self.moment, power=True)
            elif each.gone_at > self.moment and not each.is_deletable:
                each.release(moment + 1)
                each.gone_at = self.moment
            if each in present and each.queue_offset >= 0:
                # A crash may undo a deletion: the queue goes on from its older messages.
                self._undone[each.topic, each.queue_id] = each.generation
        for version in self.history.saved:
            version.end = min(version.end, self.moment)
        self.note(f"open again, {len(present)} messages")

    # ---- putting -------------------------------------------------------------------------

    def put(
        self,
        topic: str,
        queue_id: int,
        size: int,
        *,
        padding: int = 0,
        level: int = 0,
        sys_flag: int = 0,
        v6: bool = False,
        nul: bool = False,
        key: str = "",
        tag: str = "",
    ) -> None:
        """Put one message; `padding` bytes make its properties long, `nul` puts a NUL into them."""
        store = self._store()
        self._number += 1
        number = self._number
        unique = f"U{number:07d}"
        pad = bytes(self.random.choices(range(33, 127), k=padding))
        properties = {
            b"UNIQ_KEY": unique.encode(), b"KEYS": key.encode(), b"TAGS": tag.encode(),
            b"DELAY": b"%d" % level if level else b"", b"pad": pad, b"nul": b"a\0b" if nul else b"",
        }  # fmt: skip
        store.begin_burst()
        code = tags_code(tag) if tag else 0
        if topic == SCHEDULE_TOPIC and level:
            code = store.store_time_ms + DELAYS_MS[level - 1]
        asked: dict[str, Any] = {
            "topic": topic, "queue_id": queue_id, "flag": number & 0xFFFF,
            "body": b"%06d:" % number + self.random.randbytes(size),
            "properties_bytes": b"".join(
                b"%s\1%s\2" % (name, value) for name, value in properties.items() if value
            ),
            "born_timestamp_ms": self.clock.wall_ms() - 3,
            "store_timestamp_ms": store.store_time_ms,
            "prepared_transaction_offset": 77 if sys_flag in (COMMIT, ROLLBACK) else 0,
        }  # fmt: skip
        before = self.moment
        try:
            refusal, physical_offset, queue_offset = store.put_message(
                topic, queue_id, asked["body"], asked["properties_bytes"],
                born_timestamp_ms=asked["born_timestamp_ms"],
                born_host=HOST_V6 if v6 else HOST, store_host=HOST, tags_code=code,
                flag=asked["flag"], sys_flag=sys_flag,
                prepared_transaction_offset=asked["prepared_transaction_offset"],
            )  # fmt: skip
        except StoreIOError as error:
            self._refused(f"put raises {error}")
            return
        if refusal is not None:
            self._refused(f"put answers {refusal.status.name}: {refusal.remark}")
            return
        keys = () if sys_flag == ROLLBACK else (unique, *key.split())
        in_queue = not sys_flag & PREPARED
        asked["queue_offset"] = queue_offset if in_queue else 0
        asked["physical_offset"] = physical_offset
        asked["sys_flag"] = sys_flag | (0x10 if v6 else 0)
        self._add(number, asked, code, keys, before, in_queue=in_queue)

    def put_with(self, topic: str, queue_id: int, size: int, more: dict[str, Any]) -> None:
        """`put` with everything else as one argument."""
        self.put(topic, queue_id, size, **more)

    def batch(self, topic: str, queue_id: int, sizes: list[int]) -> None:
        """Put several messages at once."""
        store = self._store()
        first_number = self._number + 1
        messages = []
        for size in sizes:
            self._number += 1
            properties = {"UNIQ_KEY": f"U{self._number:07d}"}
            body = b"%06d:" % self._number + self.random.randbytes(size)
            messages.append(Message(topic, body, properties=properties))
        store.begin_burst()
        before = self.moment
        body = encode_batch(messages)
        refusal, offsets, first = store.put_batch(
            topic, queue_id, body, b"WAIT\1true", born_timestamp_ms=5, born_host=HOST,
            store_host=HOST,
        )  # fmt: skip
        if refusal is not None:
            self._refused(f"put_batch answers {refusal.status.name}: {refusal.remark}")
            return
        entries = list(iter_batch(body))
        for position, ((_, each_body, _), at) in enumerate(zip(entries, offsets, strict=True)):
            number = first_number + position
            asked = {
                "topic": topic, "queue_id": queue_id, "body": bytes(each_body),
                "queue_offset": first + position, "physical_offset": at,
                "store_timestamp_ms": store.store_time_ms,
                "properties_bytes": b"UNIQ_KEY\1U%07d\2WAIT\1true" % number,
            }  # fmt: skip
            self._add(number, asked, 0, (f"U{number:07d}",), before)

    def _add(
        self,
        number: int,
        asked: dict[str, Any],
        code: int,
        keys: tuple[str, ...],
        before: int,
        *,
        in_queue: bool = True,
    ) -> None:
        topic, offset = asked["topic"], asked["queue_offset"] if in_queue else -1
        generation = self._undone.get((topic, asked["queue_id"]), self._deletions.get(topic, 0))
        each = Sent(
            number, topic, asked["queue_id"], generation, offset,
            asked["physical_offset"], code, keys, asked, before,
        )  # fmt: skip
        self.note(
            f"put #{number} {topic}/{each.queue_id} offset {offset} at {each.physical_offset}"
        )
        self._pending.append(each)
        self.history.sent.append(each)

    def _refused(self, text: str) -> None:
        self.note(text)
        if not self.is_faulty:
            raise Broken("refused", text)

    def commit(self) -> None:
        """One write for all that was put; ASYNC_FLUSH acknowledges it."""
        self._commit_pending()

    def _commit_pending(self) -> None:
        store, pending = self._store(), self._pending
        if not pending:
            return
        self._pending = []
        self.note(f"commit #{pending[0].number}..#{pending[-1].number}")
        try:
            store.commit()
        except StoreIOError as error:
            for each in pending:
                each.gone_at = self.moment
            self._refused(f"commit raises {error}")
            return
        for each in pending:
            self._take_record(each)
            if not self.is_sync:
                each.promise(self.moment, power=False)
            else:
                store.flusher.when_flushed(
                    PhysicalOffset(each.physical_offset), partial(self._ack, each)
                )
        self._unsynced += pending
        self.note("committed")

    def _ack(self, each: Sent, is_flushed: bool) -> None:
        if is_flushed:
            each.promise(self.moment, power=True)
            self.note(f"ack #{each.number}")
        else:
            self.note(f"#{each.number} is not acknowledged: no fsync")
            if not self.is_faulty:
                raise Broken("refused", "when_flushed calls back with False")

    def _take_record(self, each: Sent) -> None:
        """Read back what commit wrote, and see that it is what was asked for."""
        size = self.config.mapped_file_size_commit_log
        position = each.physical_offset % size
        path = f"{ROOT}/commitlog/{each.physical_offset - position:020d}"
        data = self.disk.system.names[path].data
        length = int.from_bytes(data[position : position + 4], "big")
        each.record = bytes(data[position : position + length])
        each.unit = UNIT.pack(each.physical_offset, length, each.tags_code)
        try:
            record = decode_record(each.record, 0, check_crc=True)
        except RemoteProtocolError as error:
            raise Broken("N1", f"{each} was committed, not in the log: {error}") from error
        for name, wanted in each.asked.items():
            found = getattr(record, name)
            if name == "properties_bytes":  # a checksum may follow
                found = found[: len(wanted)]
            if found != wanted:
                raise Broken("N1", f"{name} of {each} is {found!r} in the log, not {wanted!r}")

    # ---- the services' steps -------------------------------------------------------------

    def flush(self) -> None:
        """fsync of the log."""
        self.note("flush")
        self._store().flusher.flush()

    async def checkpoint(self) -> None:
        """One round of the checkpoint service."""
        self.note("checkpoint")
        await checkpoint_now(self._store())

    async def queues(self, count_min: int) -> None:
        """One round of the queue file service."""
        self.note("write queues")
        try:
            await _write_queues(self._store(), count_min)
        except StoreIOError as error:
            self._refused(f"queues: {error}")

    def prepare(self) -> None:
        """Make the next commit log file before it is needed."""
        store = self._store()
        base = store.writer.next_file_base
        if base in store.log.files or base == store.log.prepared_base or store.read_only:
            return
        self.note(f"prepare {base}")
        try:
            store.log.create(base)
            store.log.prepared_base = base
        except StoreIOError as error:
            self._refused(f"prepare: {error}")

    def index(self) -> None:
        """Build index entries, and write out full files."""
        index = self._store().index
        self.note("index")
        index.work(3600.0)
        try:
            index.finish_full_files()
        except StoreIOError as error:
            index.is_broken = True
            self._refused(f"index: {error}")

    def sleep(self, hours: float) -> None:
        """Let time pass."""
        self.note(f"sleep {hours} h")
        self.clock.advance(int(hours * 3_600_000))
        self._store().begin_burst()

    def retain(self) -> None:
        """One look of retention: whole log files of expired messages may go, the newest never."""
        assert self._retention is not None
        file_size = self.config.mapped_file_size_commit_log
        expired_ms = self.clock.wall_ms() - self.config.file_reserved_time * 3_600_000
        by_file: dict[int, list[Sent]] = {}
        for each in self.history.sent:
            if each.record and each.gone_at > self.moment:
                by_file.setdefault(each.physical_offset // file_size, []).append(each)
        count = 0
        for number in sorted(by_file)[:-1]:
            newest_ms = max(each.asked["store_timestamp_ms"] for each in by_file[number])
            if newest_ms > expired_ms:
                break
            for each in by_file[number]:
                each.release(self.moment + 1)
                each.is_deletable = True
                count += 1
        self.note(f"retention may delete {count} messages")
        try:
            self._retention.clean()
        except StoreIOError as error:
            self._refused(f"retention: {error}")
        self.note(f"the log begins at {self._store().log.min_offset}")

    def delete(self, topic: str) -> None:
        """Delete a topic: its messages need not be there any more, but may be until retention."""
        self._commit_pending()
        self.note(f"delete {topic}")
        self._deletions[topic] = self._deletions.get(topic, 0) + 1
        for key in [key for key in self._undone if key[0] == topic]:
            del self._undone[key]
        for each in self.history.sent:
            if each.topic == topic and each.queue_offset >= 0:
                each.release(self.moment + 1)
                each.is_deletable = True
        try:
            self._store().delete_topics([topic])
        except StoreIOError as error:
            self._refused(f"delete: {error}")

    def save(self) -> None:
        """Save a configuration file."""
        number = len(self.history.saved)
        text = b'{"version":%d,"filler":"%s"}' % (number, b"x" * self.random.randrange(900))
        self.history.saved.append(SavedText(text, self.moment))
        self.note(f"save version {number}")
        try:
            save_json(self.disk, f"{ROOT}/{CONFIG}", text)
        except StoreIOError as error:
            self._refused(f"save: {error}")
            return
        self.history.saved[-1].end = self.moment
        self.note("saved")

    # ---- bookkeeping ---------------------------------------------------------------------

    def _store(self) -> MessageStore:
        assert self.store is not None
        return self.store

    def _note_synced(self) -> None:
        """What the store says is on the device survives power cuts from now on; so does what it
        shows under SYNC_FLUSH."""
        store = self.store
        if store is None:
            return
        flushed = store.flusher.flushed_offset
        left = []
        for each in self._unsynced:
            shown = self.is_sync and (
                0 <= each.queue_offset < store.max_offset(each.topic, each.queue_id)
            )
            if each.end <= flushed or shown:
                each.promise(self.moment, power=True)
            else:
                left.append(each)
        self._unsynced = left
