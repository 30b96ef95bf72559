"""The invariants of docs/testing.md, on a store that was opened again.

N1 what was promised is there, byte for byte, at its place · N2 one offset has one message ·
N3 no gap between min and max offset · N4 nothing that was refused, or never sent, is readable ·
N5 what was readable stays so · N7 look-ups by key agree with the log · N10 nothing but retention
deletes. N1 and N5 are one rule here: a promise is made when a message is acknowledged and when it
is shown.
"""

from __future__ import annotations

from typing import NamedTuple

from trocket.disk.errors import CorruptRecordError, StoreError
from trocket.disk.json_config import load_newest
from trocket.store.config import MessageStoreConfig
from trocket.store.format import UNIT_SIZE
from trocket.store.message_store import GetMessageStatus, MessageStore
from trocket.store.offsets import PhysicalOffset

from .history import Expectation, Key, Lane, Sent

TIME_MAX = 1 << 60
CONFIG = "config/consumerOffset.json"


class Finding(NamedTuple):
    """The result of a check.

    Attributes:
      violations: sentences that begin with the invariant; empty when all holds.
      present: what is readable now.
    """

    violations: list[str]
    present: list[Sent]


class Survey(NamedTuple):
    """What can be read of a damaged store, message by message.

    Attributes:
      wrong: sentences about what must never be: wrong data, or nothing and no word about it.
      present: what is readable, and right.
      lost: promised, and outside of [min, max) of its queue.
      refused: a get that begins at it raises CorruptRecordError.
    """

    wrong: list[str]
    present: list[Sent]
    lost: list[Sent]
    refused: list[Sent]


def check_store(store: MessageStore, expected: Expectation, *, keys: int = 2) -> Finding:
    """All invariants on a loaded store.

    Args:
      keys: about four times as many keys are looked up, spread over all; 0: none.
    """
    violations: list[str] = []
    present: list[Sent] = []
    for key, lanes in expected.lanes.items():
        problems: list[str] = []
        for lane in lanes:
            found = _check_lane(store, key, lane, problems)
            if found is not None:
                present += found
                break
        else:
            violations += problems
    violations += strange_queues(store, expected)
    for each, promised in expected.log_only:
        view = store.message_at(PhysicalOffset(each.physical_offset))
        if view is not None and view == each.record:
            present.append(each)
        elif promised:
            violations.append(f"N1: {each} is not readable any more")
    if not violations and keys and not store.read_only:
        violations += _check_keys(store, present, expected.deleted, keys)
    return Finding(violations, present)


def survey(store: MessageStore, expected: Expectation) -> Survey:
    """Read message by message, as much as there is. Queues have one lane each."""
    wrong: list[str] = []
    present: list[Sent] = []
    lost: list[Sent] = []
    refused: list[Sent] = []
    for key, lanes in expected.lanes.items():
        lane = lanes[0]
        low, high = store.min_offset(*key), store.max_offset(*key)
        lost += [lane.allowed[at] for at in sorted(lane.required) if not low <= at < high]
        for offset in range(low, high):
            each = lane.allowed.get(offset)
            try:
                result = store.get_message(*key, offset, 1)
            except CorruptRecordError:
                if each is not None:
                    refused.append(each)
                continue
            content = b"".join(result.buffers)
            if each is None or content != each.record:
                status = result.status.name
                wrong.append(f"N2: {key} at {offset} answers {status}, {len(content)} B: {each}")
            else:
                present.append(each)
    wrong += strange_queues(store, expected)
    return Survey(wrong, present, lost, refused)


def strange_queues(store: MessageStore, expected: Expectation) -> list[str]:
    """N4 for whole queues."""
    return [
        f"N4: queue {key} holds messages and none was sent"
        for key in store.queue_store.queues
        if key not in expected.lanes and store.max_offset(*key) > store.min_offset(*key)
    ]


def check_holed_store(store: MessageStore, expected: Expectation) -> Finding:
    """A store with an unavoidable hole: what was promised lies before it and is served, nothing
    wrong is, and puts are refused."""
    found = survey(store, expected)
    violations = found.wrong
    there = set(found.present)
    for key, lanes in expected.lanes.items():
        for offset in sorted(lanes[0].required):
            if lanes[0].allowed[offset] not in there:
                violations.append(f"N1: {key} lacks {lanes[0].allowed[offset]} beside a hole")
    if not store.trouble:
        violations.append("N1: the store is read-only and does not say why")
    return Finding(violations, found.present)


def _check_lane(
    store: MessageStore, key: Key, lane: Lane, problems: list[str]
) -> list[Sent] | None:
    """The messages of one queue; None (and why) when it is not this lane."""
    low, high = store.min_offset(*key), store.max_offset(*key)
    if lane.required and not (low <= min(lane.required) and max(lane.required) < high):
        lost = sorted(each for each in lane.required if not low <= each < high)
        problems.append(
            f"N1: {key} is [{low}, {high}) now and lacks {len(lost)} promised messages, "
            f"the first is {lane.allowed[lost[0]]}"
        )
        return None
    allowed = lane.allowed
    found = [allowed.get(offset) for offset in range(low, high)]
    if None in found:
        problems.append(f"N4: {key} is [{low}, {high}), offset {low + found.index(None)} is new")
        return None
    messages: list[Sent] = found  # type: ignore[assignment]
    try:
        content = read_queue(store, key, low, high)
        units = read_units(store, key, low, high)
    except (GapError, StoreError) as error:
        problems.append(f"N3: {key} is [{low}, {high}): {error}")
        return None
    if content != b"".join([each.record for each in messages]):
        problems.append(_first_difference(key, content, messages))
        return None
    if units != b"".join([each.unit for each in messages]):
        problems.append(f"N3: the units of {key} are not what the log says")
        return None
    return messages


class GapError(Exception):
    """A get between min and max offset did not answer."""


def read_queue(store: MessageStore, key: Key, low: int, high: int) -> bytes:
    """The records of a queue, one after the other, as consumers get them."""
    parts: list[memoryview] = []
    offset = low
    while offset < high:
        result = store.get_message(*key, offset, 32)
        if result.status is not GetMessageStatus.FOUND or result.next_begin_offset <= offset:
            raise GapError(f"a get at {offset} answers {result.status.name}")
        parts += result.buffers
        offset = result.next_begin_offset
    return b"".join(parts)


def read_units(store: MessageStore, key: Key, low: int, high: int) -> bytes:
    """The units of a queue."""
    if low >= high:
        return b""
    queue = store.queue_store.queues[key]
    parts = []
    while low < high:
        part = queue.read(low, high - low)
        if not part:
            raise GapError(f"there is no unit at {low}")
        parts.append(part)
        low += len(part) // UNIT_SIZE
    return b"".join(parts)


def _first_difference(key: Key, content: bytes, messages: list[Sent]) -> str:
    position = 0
    for each in messages:
        if content[position : position + len(each.record)] != each.record:
            return f"N2: {key} at offset {each.queue_offset} does not answer {each}"
        position += len(each.record)
    return f"N2: {key} answers {len(content) - position} bytes too many"


def finish_index(store: MessageStore) -> None:
    """Have the index catch up."""
    index = store.index
    while index.is_behind:
        index.work(3600.0)
        if index.has_full_files:
            index.finish_full_files()


def _check_keys(
    store: MessageStore, present: list[Sent], deleted: set[bytes], count: int
) -> list[str]:
    finish_index(store)
    if store.index.is_broken:
        return ["N7: the index is off"]
    by_key: dict[tuple[str, str], list[Sent]] = {}
    for each in present:
        for name in each.keys:
            by_key.setdefault((each.topic, name), []).append(each)
    wanted = list(by_key)
    step = max(len(wanted) // (count * 4), 1)
    problems = []
    for topic, name in {*wanted[::step], *wanted[-2:]}:
        buffers = store.query_by_key(topic, name, 64, 0, TIME_MAX).buffers
        answer = {bytes(each) for each in buffers}
        right = {each.record for each in by_key[topic, name]}
        # A deleted topic's messages stay in the log, and are found there.
        extra = answer - right - deleted
        if right - answer or extra or len(answer) != len(buffers):
            problems.append(
                f"N7: key {name!r} of {topic} finds {len(buffers)} messages, right are "
                f"{len(right)}, the first is {by_key[topic, name][0]}"
            )
    return problems


def check_config(disk: object, config: MessageStoreConfig, expected: Expectation) -> list[str]:
    """N1 for the configuration file: the old text or the new one."""
    path = f"{config.store_path_root_dir}/{CONFIG}"
    try:
        found = load_newest(disk, path, parse_config)  # type: ignore[arg-type]
    except StoreError as error:
        return [f"N1: {CONFIG} cannot be loaded: {error}"]
    text = None if found is None else found[0]
    if text in expected.texts:
        return []
    allowed = [each and each[:20] for each in expected.texts]
    return [f"N1: {CONFIG} is {text and text[:20]!r}, allowed are {allowed}"]


def parse_config(text: bytes) -> bytes:
    """A configuration text as the simulation writes them."""
    text = text.strip()
    if not (text.startswith(b'{"version":') and text.endswith(b"}")):
        raise ValueError("not a whole configuration")
    return text
