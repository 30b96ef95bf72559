"""A master and its slave on disks that remember, and what any power cut leaves of both.

One life is one run of both, with a link in memory and fsyncs that take time. Every operation of
either disk goes into one list, every answer is noted with the length of that list. So for each
moment a pair of images can be made after the run, as if both had lost their power just then; what
had been answered by then must be on both.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from random import Random
from typing import Any, NamedTuple

import trio
import trio.testing

from tests.store.queue_differences import differences
from tests.trio_order import run_by
from tests.world.file_system import POWER_KINDS, FileSystem, Image, Op
from tests.world.recording_disk import RecordingDisk
from tests.world.store.hole import is_hole_unavoidable
from trocket.common.clock import ManualClock
from trocket.remoting.message_codec import decode_messages
from trocket.store.config import BrokerRole
from trocket.store.message_store import MessageStore
from trocket.store.services import checkpoint_now
from trocket.store.status import PutMessageStatus

from ...kit import TrioClock
from ..support import ROOT, open_store, put, small_config
from .support import Network, Node

MASTER, SLAVE = 0, 1
ROLES = (BrokerRole.SYNC_MASTER, BrokerRole.SLAVE)
SMALL: dict[str, Any] = {"mapped_file_size_commit_log": 4096, "mapped_file_size_consume_queue": 100}
QUEUES = 3
STEPS = 20
FSYNC_S = (0.0, 0.0005, 0.004, 0.03)
LINK_S = (0.0, 0.0005, 0.003, 0.02)

Images = tuple[Image, Image]


class Message(NamedTuple):
    """One message, and where its put said that it is."""

    queue_id: int
    queue_offset: int
    physical_offset: int
    body: bytes
    properties: bytes

    @property
    def place(self) -> tuple[int, int]:
        return self.queue_id, self.queue_offset


class Answered(NamedTuple):
    """A message that was answered SEND_OK after a number of operations."""

    moment: int
    message: Message


class JointDisk(RecordingDisk):
    """One of two disks with a list of operations in common."""

    def __init__(self, image: Image, machine: int, ops: list[tuple[int, Op]]) -> None:
        super().__init__(FileSystem(image), recording=False)
        self._machine = machine
        self._ops = ops

    def do(self, *op: Any) -> None:
        """Do one operation, and remember whose it was."""
        self._ops.append((self._machine, op))
        super().do(*op)


class SlowNode(Node):
    """A node whose fsyncs take some time; what is written meanwhile they may have or not."""

    def __init__(self, *args: Any, random: Random, **changes: Any) -> None:
        super().__init__(*args, **changes)
        self._random = random

    async def start(self) -> MessageStore:
        """Open the store and run what belongs to it."""
        changes: dict[str, Any] = {"broker_role": self.role, **self.changes}
        self.store = open_store(self.disk, clock=TrioClock(), **changes)
        flusher, random = self.store.flusher, self._random
        in_thread = flusher.flush_in_thread

        async def run(sync: Callable[[], None]) -> None:
            with trio.CancelScope(shield=True):  # as the thread
                await trio.sleep(random.choice(FSYNC_S))
                sync()
                await trio.sleep(random.choice(FSYNC_S))

        async def flush_in_thread(*, threaded: bool) -> None:
            await in_thread(threaded=True)

        flusher._thread.run = run  # type: ignore[assignment, method-assign]
        flusher.flush_in_thread = flush_in_thread  # type: ignore[method-assign]
        await self._nursery.start(self._run)
        return self.store


class Life:
    """One run of both, from what the last power cut left to the next one.

    Args:
      images: both disks as they are found.
      seed: of what happens.
      sync: flushDiskType of both is SYNC_FLUSH.
      kept: what was answered in earlier lives.

    Attributes:
      ops: operations of both disks: whose, and what.
      answered: what was answered SEND_OK, in earlier lives, too.
      log: the master's log in the end; every image's log is a first part of it.
    """

    def __init__(
        self, images: Images, seed: str, *, sync: bool, kept: list[Message] | None = None
    ) -> None:
        self.images = images
        self.sync = sync
        self.random = Random(seed)
        self.ops: list[tuple[int, Op]] = []
        self.answered = [Answered(0, message) for message in kept or []]
        self.log = b""
        self._seed = seed
        self._count = 0

    def run(self) -> None:
        """Let both work for a while."""
        in_virtual_time(self._main, self._seed)

    async def _main(self) -> None:
        async with trio.open_nursery() as nursery:
            network = Network(nursery)
            nodes: list[Node] = [
                SlowNode(
                    nursery,
                    network,
                    ROLES[machine],
                    JointDisk(copy_of(self.images[machine]), machine, self.ops),
                    random=self.random,
                    sync=self.sync,
                    **SMALL,
                )
                for machine in (MASTER, SLAVE)
            ]
            for node in nodes:
                await node.start()
            await trio.sleep(self.random.choice([0, 1]))
            steps = [self._send] * 7 + [self._wait] * 3 + [self._cut, self._slow, self._checkpoint]
            for _ in range(STEPS):
                await self.random.choice(steps)(nodes, network)
            self.log = log_of(nodes[MASTER].store)
            nursery.cancel_scope.cancel()

    async def _send(self, nodes: Sequence[Node], network: Network) -> None:
        store = nodes[MASTER].store
        for _ in range(self.random.randrange(1, 5)):
            self._count += 1
            body = b"%s %d " % (self._seed.encode(), self._count)
            body += self.random.randbytes(self.random.randrange(600))
            properties = b"KEYS\1k%d\2TAGS\1A\2" % self._count
            queue_id = self.random.randrange(QUEUES)
            refusal, physical, queue_offset = put(
                store, body, queue_id=queue_id, properties=properties, tags_code=65
            )
            assert refusal is None, refusal
            store.on_visible(store.commit())
            message = Message(queue_id, queue_offset, physical, body, properties)

            def answer(status: PutMessageStatus, message: Message = message) -> None:
                if status is PutMessageStatus.PUT_OK:
                    self.answered.append(Answered(len(self.ops), message))

            store.when_replicated(physical, answer)
            if self.random.random() < 0.5:
                await trio.sleep(self.random.choice(LINK_S))

    async def _wait(self, nodes: Sequence[Node], network: Network) -> None:
        await trio.sleep(self.random.choice([0.1, 0.7, 6]))

    async def _cut(self, nodes: Sequence[Node], network: Network) -> None:
        """Break the connection, now or some bytes later; there is a new one soon."""
        if self.random.random() < 0.5:
            network.cut_after = self.random.randrange(3000)
        else:
            network.cut()
        nodes[SLAVE].ha.set_master(f"192.0.2.1:{self.random.randrange(1, 65536)}")

    async def _slow(self, nodes: Sequence[Node], network: Network) -> None:
        network.piece_size = self.random.choice([100, 700, 1 << 20])
        network.delay_s = self.random.choice(LINK_S)

    async def _checkpoint(self, nodes: Sequence[Node], network: Network) -> None:
        await checkpoint_now(self.random.choice(nodes).store)

    # ---- after it ----------------------------------------------------------------------------

    def answered_by(self, moment: int) -> list[Message]:
        """The messages answered SEND_OK after a number of operations."""
        return [each.message for each in self.answered if each.moment <= moment]


def in_virtual_time(main: Callable[[], Awaitable[Any]], seed: str = "") -> Any:
    """Run one life; what trio does in which order depends on the seed alone."""
    return run_by(seed, main, trio.testing.MockClock(autojump_threshold=0))


def power_cuts(
    life: Life, kinds: list[tuple[str, ...]], share: float, random: Random
) -> Iterator[tuple[int, tuple[str, str], Images]]:
    """Pairs of images, at random moments.

    Args:
      kinds: of images: for the master, and for the slave.
      share: of all moments.

    Yields: the moment, the kind of each image, and the images.
    """
    systems = [FileSystem(copy_of(image)) for image in life.images]
    for moment in range(len(life.ops) + 1):
        if random.random() < share:
            found, names = [], []
            for machine, system in enumerate(systems):
                kind = random.choice(kinds[machine])
                own = moment < len(life.ops) and life.ops[moment][0] == machine
                image = system.crash_image(kind, random, life.ops[moment][1] if own else ("",))
                if image is None:  # nothing to cut, or all of it is on the device
                    kind, image = "all", system.everything()
                names.append(kind)
                found.append(image)
            yield moment, (names[0], names[1]), (found[0], found[1])
        if moment < len(life.ops):
            machine, op = life.ops[moment]
            systems[machine].apply(op)


def check_alone(
    life: Life, machine: int, kind: str, image: Image, owed: list[Message]
) -> bytes | None:
    """Open one machine's store as a power cut left it; what it owes is there.

    Returns: its log; None when it had to start read-only, and owes as much.
    """
    config = small_config(sync=life.sync, broker_role=ROLES[machine], **SMALL)
    is_hole = is_hole_unavoidable(config, image)
    disk = RecordingDisk.of_image(copy_of(image))
    store = open_store(
        disk, clock=ManualClock(), sync=life.sync, broker_role=ROLES[machine], **SMALL
    )
    check_owed(store, owed)
    if store.read_only:
        assert kind in POWER_KINDS, "read-only after a kill"
        assert is_hole, "read-only where it need not be"
        return None
    log = log_of(store)
    assert log == life.log[: len(log)], "it is no first part of the master's log"
    assert list(differences(store.log, store.queue_store, store.config)) == []
    return log


def check_owed(store: MessageStore, owed: list[Message]) -> None:
    """Everything is where its answer said."""
    found = readable(store)
    for each in owed:
        assert found.get(each.place) == each, f"{each.place} is lost or differs"


def check_together(life: Life, images: Images, owed: list[Message]) -> None:
    """Both start again: the slave goes on where it was, and the next send is answered by both."""

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nodes = await reopened(nursery, life, images)
            master, slave = (node.store for node in nodes)
            await in_step(master, slave)
            assert nodes[SLAVE].ha.state().is_connected
            refusal, physical, _ = put(master, b"after it", queue_id=0)
            assert refusal is None, refusal
            master.on_visible(master.commit())
            outcomes: list[PutMessageStatus] = []
            master.when_replicated(physical, outcomes.append)
            await in_step(master, slave)
            await trio.sleep(0.1)
            assert outcomes == [PutMessageStatus.PUT_OK]
            assert log_of(slave) == log_of(master), "the logs differ"
            for store in (master, slave):
                check_owed(store, owed)
            nursery.cancel_scope.cancel()

    in_virtual_time(main)


async def reopened(
    nursery: trio.Nursery, life: Life, images: Images, *, new_on_master: int = 0
) -> list[Node]:
    """Both on what a power cut left, the master with some new messages before its slave is back."""
    network = Network(nursery)
    nodes = []
    for machine in (MASTER, SLAVE):
        disk = RecordingDisk.of_image(copy_of(images[machine]))
        nodes.append(Node(nursery, network, ROLES[machine], disk, sync=life.sync, **SMALL))
        store = await nodes[machine].start()
        if machine == MASTER:
            for number in range(new_on_master):
                put(store, b"new %d" % number, queue_id=number % QUEUES)
                store.on_visible(store.commit())
    return nodes


async def in_step(master: MessageStore, slave: MessageStore) -> None:
    """Wait until the slave has its master's log, on the device under SYNC_FLUSH, and said so."""
    await trio.sleep(1)
    with trio.fail_after(60):
        while slave.durability.sendable_offset < master.max_physical_offset:
            await slave.activity.wait_for_more()


def readable(store: MessageStore) -> dict[tuple[int, int], Message]:
    """The messages of topic T as consumers get them."""
    found = {}
    for queue_id in range(QUEUES):
        offset = store.min_offset("T", queue_id)
        while offset < store.max_offset("T", queue_id):
            result = store.get_message("T", queue_id, offset, 32)
            for buffer in result.buffers:
                for each in decode_messages(buffer, check_crc=True):
                    properties = each.properties_bytes
                    found[queue_id, each.queue_offset] = Message(
                        queue_id, each.queue_offset, each.physical_offset, each.body, properties
                    )
            assert result.next_begin_offset > offset
            offset = result.next_begin_offset
    return found


def log_of(store: MessageStore) -> bytes:
    """The bytes of a log that begins at 0."""
    data = b"".join(bytes(store.log.view(base) or b"") for base in store.log.files)
    return data[: store.max_physical_offset]


def copy_of(image: Image) -> Image:
    return Image({path: data[:] for path, data in image.files.items()}, set(image.folders))


def empty() -> Images:
    """Two new disks."""
    return Image({}, {ROOT}), Image({}, {ROOT})
