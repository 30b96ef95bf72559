"""A cut at every moment, as a crash leaves it: the store is still whole, or it is cut.

The disk and its crash images are those of tests/world, as in ha/test_crash_images.py.
`CUT_IMAGES=10000` goes on with other seeds until it has tried that many images.
"""

from __future__ import annotations

import os
from itertools import count
from random import Random

import pytest

from tests.store.queue_differences import Difference, differences
from tests.world.file_system import KINDS, FileSystem, Image
from tests.world.recording_disk import RecordingDisk
from tests.world.store.session import sim_config
from trocket.common.clock import ManualClock
from trocket.store.format import INDEX_HEAD, INDEX_HEADER_SIZE
from trocket.store.message_store import MessageStore
from trocket.store.recovery.log_cut import FILE_NAME

from .support import ROOT, send

IMAGES = int(os.environ.get("CUT_IMAGES", "400"))
MESSAGES = 40
OTHERS = 12


def opened(disk, sync, cut_at=None):
    store = MessageStore(
        sim_config(
            sync=sync,
            enable_consume_queue_ext=True,
            mapped_file_size_consume_queue_ext=4096,
            mapper_file_size_batch_consume_queue=230,
        ),
        clock=ManualClock(),
        disk=disk,
        memory_bytes=1 << 30,
    )
    store.load(cut_at)
    return store


def log_of(store):
    data = b"".join(bytes(store.log.view(base)) for base in store.log.files)
    return data[: store.max_physical_offset]


class CutStore:
    """A store of some files that is to be cut.

    Attributes:
      image: the folder before that; the store was closed, or killed with everything asked for.
      log: its log.
      cut_at: the offset of the cut, where a record begins or where the log does.
      other: the log of the new master, the same up to `cut_at`.
    """

    def __init__(self, seed: str, *, sync: bool) -> None:
        self.sync = sync
        self._random = random = Random(seed)
        disk = RecordingDisk(FileSystem(Image({}, {ROOT})))
        store = opened(disk, sync)
        store.queue_store.batch_topics.add("B")
        starts = []
        for number in range(MESSAGES):
            if number == MESSAGES // 2 and random.random() < 0.3:
                store.flusher.flush()
                store.delete_topics(["Gone"])
            if random.random() < 0.1:
                store.flusher.flush()
                store.index.work()
            starts.append(store.max_physical_offset)
            self._send(store, number)
        store.flusher.flush()
        self.log = log_of(store)
        self.cut_at = random.choice([0, *starts])
        if random.random() < 0.5:
            store.close()
        elif random.random() < 0.5:
            store.queue_store.write()
        self.image = disk.system.everything()

    def _send(self, store: MessageStore, number: int, text: bytes = b"") -> None:
        body = text + self._random.randbytes(self._random.randrange(600))
        topic = self._random.choice(["T", "T", "B", "Gone"])
        send(
            store, body, topic=topic, queue_id=number % 3, tags_code=65,
            properties=b"KEYS\1k%d\2TAGS\1A\2" % number,
        )  # fmt: skip


def copy_of(image: Image) -> Image:
    return Image({path: data[:] for path, data in image.files.items()}, set(image.folders))


def check(image: Image, begun: CutStore) -> bool:
    """Open the store as a start after the crash does; returns whether it was cut."""
    disk = RecordingDisk.of_image(image)
    store = opened(disk, begun.sync)
    end = store.max_physical_offset
    assert store.trouble == ""
    assert end in (begun.cut_at, len(begun.log))
    is_cut = end == begun.cut_at
    if not is_cut:
        check_store(disk, store, begun)
        store.close()
        store = opened(disk, begun.sync, begun.cut_at)
    check_store(disk, store, begun)
    assert not disk.exists(f"{ROOT}/{FILE_NAME}")
    # What another master has written there comes in the place of what was cut.
    for number in range(OTHERS):
        send(
            store, b"other %d" % number, queue_id=number % 3, tags_code=65,
            properties=b"KEYS\1o\2TAGS\1A\2",
        )  # fmt: skip
    store.flusher.flush()
    assert wrong_queues(store) == []
    log = log_of(store)
    assert log[: begun.cut_at] == begun.log[: begun.cut_at]
    store.index.work()
    assert len(store.query_by_key("T", "o", 100, 0, 1 << 60).buffers) == OTHERS
    store.close()
    again = opened(disk, begun.sync)
    assert log_of(again) == log
    check_index(disk, again)
    return is_cut


def wrong_queues(store: MessageStore) -> list[Difference]:
    """The queues that are not the log's; a deleted topic has none, though it has records."""
    found = differences(store.log, store.queue_store, store.config)
    return [each for each in found if each.key[0] != "Gone"]


def check_store(disk: RecordingDisk, store: MessageStore, begun: CutStore) -> None:
    """Its bytes are those of before; no unit and no index entry points beyond the log."""
    end = store.max_physical_offset
    assert log_of(store) == begun.log[:end]
    tail = b"".join(bytes(store.log.view(base)) for base in store.log.files)[end:]
    assert tail.count(0) == len(tail)
    assert wrong_queues(store) == []
    for queue in store.queue_store.queues.values():
        assert queue.physical_end() <= end
    check_index(disk, store)


def check_index(disk: RecordingDisk, store: MessageStore) -> None:
    """No index file names a message beyond the log."""
    for name in disk.list(f"{ROOT}/index"):
        header = disk.open(f"{ROOT}/index/{name}").pread(INDEX_HEADER_SIZE, 0)
        assert INDEX_HEAD.unpack(header)[3] < max(store.max_physical_offset, 1)


def play(seed: str, *, sync: bool, share: float) -> tuple[int, int]:
    """Cut one store; returns how many crash images of that were opened, and were cut."""
    begun = CutStore(seed, sync=sync)
    disk = RecordingDisk.of_image(copy_of(begun.image), recording=True)
    opened(disk, sync, begun.cut_at)
    system = FileSystem(copy_of(begun.image))
    images = cuts = 0
    for moment in range(len(disk.journal) + 1):
        next_op = disk.journal[moment] if moment < len(disk.journal) else ("",)
        random = Random(f"{seed}:{moment}")
        for kind in KINDS:
            if random.random() >= share:
                continue
            image = system.crash_image(kind, Random(f"{seed}:{moment}:{kind}"), next_op)
            if image is not None:
                images += 1
                cuts += check(image, begun)
        if moment < len(disk.journal):
            system.apply(disk.journal[moment])
    return images, cuts


@pytest.mark.slow
def test_every_crash_leaves_a_whole_store_or_a_cut_one():
    share = 0.05 if IMAGES < 1000 else 1.0
    images = cuts = 0
    for seed in count(1):
        more, cut = play(str(seed), sync=seed % 2 == 0, share=share)
        images, cuts = images + more, cuts + cut
        if images >= IMAGES:
            break
    print(f"{images} crash images of {seed} cuts, {cuts} were cut already")
    assert 0 < cuts < images
