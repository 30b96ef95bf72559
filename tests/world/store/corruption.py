"""Damage that no crash makes: bits, sectors, files.

A store is stopped or killed, one thing on its disk is damaged, and everything is read back. Each
message must be right, or its loss must be reported: load raises, or the store is read-only and says
why, or a get raises CorruptRecordError, or a warning in the log names the file. Never wrong data,
never a silent loss.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import NamedTuple

from trocket.disk.errors import CorruptRecordError, StoreError, StoreIOError
from trocket.disk.json_config import load_newest
from trocket.store.message_store import MessageStore
from trocket.store.offsets import PhysicalOffset

from ..file_system import SECTOR, Image
from ..recording_disk import RecordingDisk
from .checks import CONFIG, TIME_MAX, finish_index, parse_config, survey
from .history import Expectation, Sent
from .runs import Run, record_run
from .session import ROOT, Step, sim_config
from .workloads import WORKLOADS

FOLDERS = ("commitlog", "consumequeue", "index", "config", "")
"""Where files lie; "" is the data folder itself: checkpoint, abort and the like."""

PAGE = 4096

KINDS = ("bit", "sector", "page", "random", "ones", "truncated", "missing", "duplicated", "swapped")


class Damage(NamedTuple):
    """What was done to which file."""

    kind: str
    path: str
    detail: str

    def __str__(self) -> str:
        return f"{self.kind} {self.path} {self.detail}"


def files_in(image: Image, folder: str) -> list[str]:
    """The files of one sort."""
    prefix = f"{ROOT}/{folder}/" if folder else f"{ROOT}/"
    return sorted(
        path
        for path in image.files
        if path.startswith(prefix)
        and (folder or "/" not in path[len(prefix) :])
        and not path.endswith("/lock")
    )


def damage(image: Image, random: Random, folder: str, kind: str) -> Damage | None:
    """Damage one file; None when there is none to damage so."""
    paths = files_in(image, folder)
    if not paths:
        return None
    path = random.choice(paths)
    data = image.files[path]
    if kind not in ("missing", "duplicated", "swapped") and not data:
        return None
    if kind in ("random", "ones"):
        data[:] = random.randbytes(len(data)) if kind == "random" else b"\xff" * len(data)
        return Damage(kind, path, "all of it")
    if kind == "page":
        start = random.randrange(len(data)) // PAGE * PAGE
        end = min(start + PAGE, len(data))
        data[start:end] = random.randbytes(end - start)
        return Damage(kind, path, f"[{start}, {end})")
    if kind == "bit":
        used = [at for at, byte in enumerate(data) if byte] or [0]
        at = random.choice(used) if random.random() < 0.9 else random.randrange(len(data))
        bit = random.randrange(8)
        data[at] ^= 1 << bit
        return Damage(kind, path, f"byte {at} bit {bit}")
    if kind == "sector":
        start = random.randrange(len(data)) // SECTOR * SECTOR
        end = min(start + SECTOR, len(data))
        data[start:end] = bytes(end - start)
        return Damage(kind, path, f"[{start}, {end})")
    if kind == "truncated":
        size = random.randrange(len(data))
        del data[size:]
        return Damage(kind, path, f"to {size} bytes")
    if kind == "missing":
        del image.files[path]
        return Damage(kind, path, "")
    if kind == "duplicated":
        name = next_name(path, len(data))
        if name in image.files:
            return None
        image.files[name] = data[:]
        return Damage(kind, path, f"as {name}")
    others = [each for each in paths if each != path and image.files[each] != data]
    if not others:
        return None
    other = random.choice(others)
    image.files[path], image.files[other] = image.files[other], data
    return Damage(kind, path, f"with {other}")


def next_name(path: str, size: int) -> str:
    """A name under which the store would look at the copy."""
    folder, _, name = path.rpartition("/")
    if not name.isdigit():
        return f"{path}.copy"
    step = 1 if len(name) == 17 else size
    return f"{folder}/{int(name) + step:0{len(name)}d}"


class Collector(logging.Handler):
    """Keeps the warnings and errors of the store, and of its files below it."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one."""
        self.lines.append(record.getMessage())


@contextmanager
def collected() -> Iterator[list[str]]:
    """The store's warnings while the block runs."""
    logger = logging.getLogger("trocket")
    collector = Collector()
    level, propagate = logger.level, logger.propagate
    logger.setLevel(logging.WARNING)
    logger.propagate = False
    logger.addHandler(collector)
    try:
        yield collector.lines
    finally:
        logger.removeHandler(collector)
        logger.setLevel(level)
        logger.propagate = propagate


class Victim(NamedTuple):
    """A store to damage: its run, its disk, what it promised."""

    run: Run
    image: Image
    expected: Expectation
    is_clean: bool


def victim(seed: int) -> Victim:
    """A store that was stopped (even seeds) or killed, with two versions of its configuration."""
    is_clean = seed % 2 == 0
    workload = ("put", "roll", "delay", "index", "batch", "mixed")[seed // 2 % 6]
    make, length = WORKLOADS[workload]
    steps: list[Step] = [
        each for each in make(Random(f"victim:{seed}"), length) if each[0] not in ("crash", "save")
    ]
    steps[1:1] = [("save",), ("save",)]
    steps.append(("stop",) if is_clean else ("flush",))
    config = sim_config(sync=seed % 3 == 0, enabled_append_prop_crc=True)
    run = record_run(workload, "M1" if seed % 3 == 0 else "M0", seed, steps, config)
    if run.problem:
        raise AssertionError(run.failure(run.session.moment, "run", run.problem).text())
    moment = run.session.moment
    expected = run.history.expectation(moment, power=False)
    return Victim(run, run.session.disk.system.everything(), expected, is_clean)


def check_damage(case: Victim, image: Image, harm: Damage) -> tuple[str, str]:
    """(what came of it, what is wrong: "" for nothing)."""
    disk = RecordingDisk.of_image(image)
    store = case.run.new_store(disk)
    with collected() as warnings:
        problem = check_json(case, disk, harm, warnings)
        if problem:
            return "wrong", problem
        if harm.path.startswith(f"{ROOT}/config/"):
            return ("reported" if warnings else "right"), ""
        try:
            store.load()
        except StoreError as error:
            return ("refused", "") if ROOT in str(error) else ("wrong", f"unclear: {error}")
        try:
            outcome, problem = read_back(case, store, harm, warnings)
        except StoreIOError as error:
            return "wrong", f"reading raises {error}"
    return outcome, problem


def read_back(
    case: Victim, store: MessageStore, harm: Damage, warnings: list[str]
) -> tuple[str, str]:
    """Read everything of a store that started."""
    found = survey(store, case.expected)
    if found.wrong:
        return "wrong", found.wrong[0]
    is_reported = store.read_only or any(ROOT in line for line in warnings)
    if found.lost and not is_reported:
        return "wrong", f"{len(found.lost)} are lost silently, first {found.lost[0]}"
    present = set(found.present)
    log_only_lost = False
    for each, _ in case.expected.log_only:
        try:
            view = store.message_at(PhysicalOffset(each.physical_offset))
        except CorruptRecordError:
            continue
        if view is not None and view != each.record:
            return "wrong", f"N1: message_at answers something else for {each}"
        if view is None:
            log_only_lost = True
            if not is_reported:
                return "wrong", f"{each} is lost silently"
        else:
            present.add(each)
    problem = check_lookups(store, case, present, harm)
    if problem:
        return "wrong", problem
    if found.lost or found.refused or log_only_lost or store.read_only:
        return "reported", ""
    return "right", ""


def check_lookups(store: MessageStore, case: Victim, present: set[Sent], harm: Damage) -> str:
    """Look-ups by key find nothing wrong; they may miss when the index was hit."""
    if not store.read_only:
        finish_index(store)
    may_miss = harm.path.startswith(f"{ROOT}/index/") or store.read_only or store.index.is_broken
    everything = {each.record for each in case.run.history.sent}
    by_key: dict[tuple[str, str], set[bytes]] = {}
    holding: dict[tuple[str, str], set[bytes]] = {}
    for each in case.run.history.sent:
        for name in each.keys:
            holding.setdefault((each.topic, name), set()).add(each.record)
            right = by_key.setdefault((each.topic, name), set())
            if each in present:
                right.add(each.record)
    names = [*by_key]
    for topic, name in names[:: max(len(names) // 8, 1)]:
        try:
            buffers = store.query_by_key(topic, name, 64, 0, TIME_MAX).buffers
        except CorruptRecordError:
            continue
        found = {bytes(each) for each in buffers}
        if found - everything:
            return f"N7: key {name!r} of {topic} finds what never was sent"
        right = by_key[topic, name]
        if found - holding[topic, name]:
            return f"N7: key {name!r} of {topic} finds messages that do not hold it"
        if right - found and not may_miss:
            return f"N7: key {name!r} of {topic} misses {len(right - found)} of {len(right)}"
    return ""


def check_json(case: Victim, disk: RecordingDisk, harm: Damage, warnings: list[str]) -> str:
    """The configuration: the newest text, or the one before and a word about it, or a refusal."""
    texts = [each.text for each in case.run.history.saved]
    try:
        found = load_newest(disk, f"{ROOT}/{CONFIG}", parse_config)
    except CorruptRecordError:
        return "" if harm.path.startswith(f"{ROOT}/config/") else "the configuration is refused"
    text = None if found is None else found[0]
    if text == texts[-1]:
        return ""
    if text in texts:
        if any(CONFIG in line for line in warnings):
            return ""
        return "the configuration's last version is lost silently"
    return f"the configuration is {text and text[:30]!r}"
