"""A broker on a small disk that is filled to the brim under load, and killed while it is full.

`test_full_disk.py` plays it. What was answered is kept by topic, queue and offset: all of it
must be readable after each kill, and nothing of what was refused.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from trocket.interop.trocket_peer import COMMAND, TrocketBroker

from .raw_client import RawClient

DISK_SIZE_MIB = 128
QUEUES = 2
SENDERS = 4
FIRST_ACKS = 60
"""Messages of a round before its disk is filled."""
FULL_REFUSALS = 30
"""Refusals of a round while its disk is full."""
BACK_ACKS = 10
"""Messages into new topics of a round when there is room again."""
DEADLINE_S = 120.0
KEYS: dict[str, object] = {
    "mappedFileSizeCommitLog": 2 << 20,
    "mappedFileSizeConsumeQueue": 2000,
    "maxHashSlotNum": 1000,
    "maxIndexNum": 4000,
    # The disk is to be really full, and not only said to be.
    "diskMaxUsedSpaceRatio": 95,
    "diskSpaceCleanForciblyRatio": 100,
    "diskSpaceWarningLevelRatio": 100,
    "cleanFileForciblyEnable": False,
    "defaultTopicQueueNums": QUEUES,
}


class TmpfsDisk:
    """A small separate file system."""

    command = COMMAND

    def __init__(self, folder: Path) -> None:
        self.root = folder / "disk"
        self.root.mkdir()
        size = f"size={DISK_SIZE_MIB}m"
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(self.root)],
            check=True,
            capture_output=True,
        )
        self._ballast = self.root / "ballast"

    def fill(self) -> None:
        """Take all the room there is."""
        with self._ballast.open("ab", buffering=0) as file:
            for size in (1 << 20, 4096):
                with contextlib.suppress(OSError):
                    while True:
                        file.write(bytes(size))

    def free(self) -> None:
        """Give it back."""
        self._ballast.unlink(missing_ok=True)

    def close(self) -> None:
        """Unmount it."""
        subprocess.run(["umount", "-l", str(self.root)], check=False, capture_output=True)


class QuotaDisk:
    """A folder; the broker's own calls fail while it is full, see quota_broker.py."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "disk"
        self.root.mkdir()
        self._full = folder / "full"
        script = str(Path(__file__).with_name("quota_broker.py"))
        self.command = (sys.executable, script, str(self._full))

    def fill(self) -> None:
        """Take all the room there is."""
        self._full.touch()

    def free(self) -> None:
        """Give it back."""
        self._full.unlink(missing_ok=True)

    def close(self) -> None:
        """There is nothing to unmount."""


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[TmpfsDisk | QuotaDisk]:
    """A disk that can be filled: a tmpfs where this process may mount one."""
    disk: TmpfsDisk | QuotaDisk
    try:
        disk = TmpfsDisk(folder)
    except (OSError, subprocess.CalledProcessError):
        (folder / "quota").mkdir()
        disk = QuotaDisk(folder / "quota")
    try:
        yield disk
    finally:
        disk.close()


@dataclass
class Figures:
    """What came of all rounds.

    Attributes:
      codes: answers by code.
      lost, wrong: acknowledged messages that could not be read, or were others.
      unwanted: messages that were refused and could be read.
      came_back: rounds in which sends into new topics came back by themselves.
    """

    fills: int = 0
    kills: int = 0
    came_back: int = 0
    acknowledged: int = 0
    topics: int = 0
    codes: Counter[int] = field(default_factory=Counter)
    lost: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    unwanted: list[str] = field(default_factory=list)


class Load:
    """Senders that make a new topic with every other message, and what they were answered."""

    def __init__(self, address: str, name: str, seed: int) -> None:
        self.acknowledged: dict[tuple[str, int, int], bytes] = {}
        self.refused: dict[bytes, tuple[str, int, str]] = {}
        self.codes: Counter[int] = Counter()
        self.new_acks = 0
        self._address = address
        self._name = name
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._send, args=(number, Random(seed + number)))
            for number in range(SENDERS)
        ]

    @property
    def refusals(self) -> int:
        """Answers that were no success."""
        return self.codes.total() - self.codes[0]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _send(self, sender: int, random: Random) -> None:
        topics = [f"Old{sender}"]
        with contextlib.suppress(OSError), RawClient(self._address) as client:
            for number in range(1_000_000):
                if self._over.is_set():
                    return
                is_new = number % 2 == 0
                topic = f"{self._name}-{sender}-{number}" if is_new else random.choice(topics)
                body = f"{self._name}.{sender}.{number}".encode().ljust(random.randint(30, 600))
                code, queue_id, offset, remark = client.send(topic, number % QUEUES, body)
                with self._lock:
                    self.codes[code] += 1
                    if code == 0:
                        self.acknowledged[topic, queue_id, offset] = body
                        self.new_acks += is_new
                    elif code != 10:  # FLUSH_DISK_TIMEOUT promises nothing, either way
                        self.refused[body] = (topic, code, remark)
                if code == 0 and is_new:
                    topics.append(topic)

    def until(self, what: str, condition: Callable[[], bool]) -> None:
        """Wait until enough was answered."""
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < deadline, f"{self._name}: never {what}; {self.codes}"
            assert any(thread.is_alive() for thread in self._threads), f"{self._name}: all ended"
            self._over.wait(0.005)


class FullDisk:
    """Rounds of one broker.

    Args:
      folder: for its files.
      flush: SYNC_FLUSH or ASYNC_FLUSH.
    """

    def __init__(self, folder: Path, disk: TmpfsDisk | QuotaDisk, flush: str, seed: int) -> None:
        self.figures = Figures()
        self._disk = disk
        self._seed = seed
        self._acknowledged: dict[tuple[str, int, int], bytes] = {}
        self._refused: dict[bytes, tuple[str, int, str]] = {}
        self._broker = TrocketBroker(
            folder / "broker",
            store=disk.root / "store",
            broker_keys={**KEYS, "flushDiskType": flush},
            command=disk.command,
        )

    def close(self) -> None:
        """Kill the broker."""
        self._broker.close()

    def play(self, fills: int) -> Figures:
        """Fill the disk so often, and check after each kill what can be read."""
        figures = self.figures
        self._broker.start_broker()
        for number in range(fills):
            name = f"F{number}"
            with Load(self._broker.broker_address, name, self._seed * 1000 + number) as load:
                self._play_round(load, comes_back=number % 2 == 1)
            self._disk.free()
            figures.codes += load.codes
            self._acknowledged |= load.acknowledged
            self._refused |= load.refused
            self._broker.start_broker()
            self._check(load.acknowledged, load.refused)
        self._check(self._acknowledged, self._refused)
        figures.acknowledged = len(self._acknowledged)
        figures.topics = len({topic for topic, _, _ in self._acknowledged})
        return figures

    def _play_round(self, load: Load, *, comes_back: bool) -> None:
        """Fill the disk under load and kill the broker, in between give it room if it shall."""
        figures = self.figures
        load.until("acknowledged", lambda: load.codes[0] >= FIRST_ACKS)
        self._disk.fill()
        figures.fills += 1
        seen = load.refusals
        load.until("refused", lambda: load.refusals >= seen + FULL_REFUSALS)
        if comes_back:
            self._disk.free()
            acks = load.new_acks
            load.until("back", lambda: load.new_acks >= acks + BACK_ACKS)
            figures.came_back += 1
        self._broker.kill_broker()
        figures.kills += 1

    def _check(
        self,
        acknowledged: dict[tuple[str, int, int], bytes],
        refused: dict[bytes, tuple[str, int, str]],
    ) -> None:
        queues: dict[tuple[str, int], dict[int, bytes]] = defaultdict(dict)
        for (topic, queue_id, offset), body in acknowledged.items():
            queues[topic, queue_id][offset] = body
        refused_topics = {topic for topic, _, _ in refused.values()}
        for topic in refused_topics:
            for queue_id in range(QUEUES):
                queues.setdefault((topic, queue_id), {})
        with RawClient(self._broker.broker_address) as client:
            for (topic, queue_id), promised in queues.items():
                code, found = client.pull_all(topic, queue_id)
                for offset, body in promised.items():
                    place = f"{topic} {queue_id} {offset} (pull: {code})"
                    if offset not in found:
                        self.figures.lost.append(place)
                    elif found[offset] != body:
                        self.figures.wrong.append(place)
                self.figures.unwanted += [
                    f"{topic} {queue_id} {offset}: {refused[body][1:]}"
                    for offset, body in found.items()
                    if body in refused
                ]
