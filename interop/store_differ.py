"""Our broker and Apache's open each other's stores, and fill two with the same load.

Over each other: what the visits of a chain (`store_chain`) saw is judged by `CHECKS`, each a cell
for each moment. Beside each other: what two stores hold after the same load (`store_twins`).

A check gives the differences that it found, as texts; none: it passed.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import zip_longest
from pathlib import Path
from types import MappingProxyType
from typing import Any

from .apache import version_numbers
from .jobs import Job, Tell
from .log_on_disk import by_place, by_queue
from .peers import parse_peer
from .report.cells import Cell, Kind, Verdict
from .store_chain import FREE_BYTES_MIN, GROUP_MEMBERS, MOMENTS, SIZES, TOPICS, Chain, Visit
from .store_twins import COMPARISONS, Twins, compare_brokers_own

CLIENT = "wire"
SAME_LOAD = "same load: "
TOLD_MAX = 5
"""Differences that a cell tells; of the others it tells how many there are."""
RECORD_COUNT_MIN = 1_000
LOOKUP_COUNT_MIN = 80

Check = Callable[[Chain, Visit], list[str]]


def records_are_served_at_their_place(chain: Chain, visit: Visit) -> list[str]:
    """Every record of the log is served, byte for byte, in its queue and order."""
    found = []
    if len(visit.expected) <= RECORD_COUNT_MIN:
        found.append(f"the log holds {len(visit.expected)} records only")
    expected = by_queue(visit.expected)
    for queue in sorted(expected.keys() | visit.served.keys()):
        pairs = zip_longest(expected.get(queue, []), visit.served.get(queue, []))
        found += [f"{queue}: logged {log}, served {got}" for log, got in pairs if log != got]
    return found


def acknowledged_is_there(chain: Chain, visit: Visit) -> list[str]:
    """What any broker said it had stored is served, and lies where it said."""
    served = by_place(record for records in visit.served.values() for record in records)
    found = []
    for place in visit.acknowledged:
        record = served.get((place.topic, place.queue_id, place.queue_offset))
        if record is None or record.physical_offset != place.physical_offset:
            found.append(f"acknowledged {place}, served {record}")
    return found if visit.acknowledged else ["nothing was acknowledged"]


def queues_have_their_ends(chain: Chain, visit: Visit) -> list[str]:
    """Queues begin at 0 and end after their last message."""
    expected = {queue: (0, len(records)) for queue, records in by_queue(visit.expected).items()}
    return _unequal(expected, visit.ends) if expected else ["the log holds no records"]


def keys_find_their_messages(chain: Chain, visit: Visit) -> list[str]:
    """Keys and unique keys find the messages that have them, and no others."""
    found = []
    if len(visit.lookups) <= LOOKUP_COUNT_MIN:
        found.append(f"{len(visit.lookups)} keys were looked for only")
    for (topic, key, unique), places in visit.lookups.items():
        expected = {
            record.place
            for record in visit.searched
            if record.place[0] == topic and (record.unique == key if unique else key in record.keys)
        }
        # After a kill Apache's broker indexes again what it may have indexed before.
        twice = len(places) != len(expected) and not visit.after_kill
        if set(places) != expected or twice:
            found.append(f"{topic} {key!r}: expected {sorted(expected)}, found {sorted(places)}")
    return found


def times_find_their_messages(chain: Chain, visit: Visit) -> list[str]:
    """A time finds the first message stored then or later.

    4.x looks in the first file that was modified after that time, whatever it holds, and the kernel
    says of a mapped file that it was when it likes; in a file it takes one of the nearest messages,
    before or after.
    """
    queues = by_queue(visit.expected)
    found = [] if visit.times else ["no time was asked for"]
    is_exact = visit.asked == "trocket" or version_numbers(chain.version) >= (5,)
    for (topic, queue_id, time_ms), offset in visit.times.items():
        times = [record.store_timestamp_ms for record in queues[topic, queue_id]]
        expected = next((at for at, time in enumerate(times) if time >= time_ms), len(times))
        if is_exact:
            passed = offset == expected
        elif chain.sizes == "small files":
            passed = 0 <= offset <= len(times)
        else:
            nearest = min(abs(time - time_ms) for time in times)
            passed = 0 <= offset < len(times) and abs(times[offset] - time_ms) == nearest
        if not passed:
            found.append(f"{topic}/{queue_id} at {time_ms}: expected {expected}, found {offset}")
    return found


def tables_are_kept(chain: Chain, visit: Visit) -> list[str]:
    """Topics, the consumer group and its offset are what they were."""
    topics: dict[str, tuple[object, ...]] = {
        topic: (count, count, 6) for topic, count in TOPICS.items()
    }
    found = _unequal(topics, visit.topics) + _unequal(GROUP_MEMBERS, visit.group)
    if visit.offset != visit.offset_expected:
        found.append(f"offset: committed {visit.offset_expected}, found {visit.offset}")
    return found


CHECKS: Mapping[str, Check] = MappingProxyType(
    {
        "every record at its place": records_are_served_at_their_place,
        "nothing acknowledged is missing": acknowledged_is_there,
        "queues begin and end where they did": queues_have_their_ends,
        "keys find their messages": keys_find_their_messages,
        "a time finds a message stored then": times_find_their_messages,
        "topics, groups and offsets are kept": tables_are_kept,
    }
)
"""By what they are called in cells."""


def jobs(ours: Sequence[str], apaches: Sequence[str]) -> list[Job]:
    """A job for each chain, with files of each of `SIZES`, and one for each pair of stores.

    Args:
      ours: brokers that are to be like Apache's: "trocket", or none.
      apaches: names of peers; those that are not run from the jars are left out, for the differ
        must reach their files.
    Raises: PeerError: there is no such peer.
    """
    found: list[Job] = []
    if "trocket" not in ours:
        return found
    for name in apaches:
        peer = parse_peer(name)
        if peer.kind != "apache":
            continue
        for sizes in SIZES:
            owed = tuple(
                Cell(Kind.STORE, feature, CLIENT, _broker(moment, name), Verdict.SKIPPED)
                for feature, moment, _ in _features(sizes)
            )
            play = partial(_play_chain, peer.version, sizes)
            found.append(Job(f"one store of trocket and {name}, {sizes}", owed, play))
        beside = f"trocket beside {name}"
        # 4.x keeps to itself what 5.x adds, and ours is like 5.x.
        same = version_numbers(peer.version) >= (5,)
        owed = tuple(
            Cell(Kind.STORE, SAME_LOAD + what, CLIENT, beside, Verdict.SKIPPED)
            for what, compare in COMPARISONS.items()
            if same or compare is not compare_brokers_own
        )
        found.append(Job(f"stores of {beside}", owed, partial(_play_twins, peer.version)))
    return found


def judged(cell: Cell, differences: Sequence[str], seconds: float = 0.0) -> Cell:
    """The cell with its verdict: passed when there are no differences."""
    if not differences:
        return replace(cell, verdict=Verdict.PASSED, seconds=seconds)
    told = [text[:400] for text in differences[:TOLD_MAX]]
    if len(differences) > TOLD_MAX:
        told.append(f"and {len(differences) - TOLD_MAX} more")
    detail = "; ".join(told)
    return replace(cell, verdict=Verdict.FAILED, detail=detail, seconds=seconds)


def _features(sizes: str) -> Iterable[tuple[str, str, Check]]:
    """The name of each cell of a chain, its moment and its check."""
    for moment in MOMENTS:
        for what, check in CHECKS.items():
            yield f"{moment}: {what}, {sizes}", moment, check


def _broker(moment: str, apache: str) -> str:
    return f"{apache} over trocket" if MOMENTS[moment] == "apache" else f"trocket over {apache}"


def _play_chain(version: str, sizes: str, owed: Sequence[Cell], folder: Path, tell: Tell) -> None:
    free = shutil.disk_usage(folder).free
    if sizes == "default sizes" and free < FREE_BYTES_MIN:
        needed = f"needs {FREE_BYTES_MIN >> 30} GiB of free disk, {free >> 30} are"
        for cell in owed:
            tell(replace(cell, verdict=Verdict.SKIPPED, detail=needed))
        return
    chain = Chain(version, sizes, folder)
    wanted = {cell.feature: cell for cell in owed}
    try:
        chain.run()
    finally:
        # A chain that broke down has seen something before.
        for feature, moment, check in _features(sizes):
            visit = chain.visits.get(moment)
            if feature in wanted and visit is not None and visit.seconds is not None:
                tell(judged(wanted[feature], check(chain, visit), visit.seconds))


def _play_twins(version: str, owed: Sequence[Cell], folder: Path, tell: Tell) -> None:
    started_s = time.monotonic()
    twins = Twins(version, folder).run()
    seconds = time.monotonic() - started_s
    for cell in owed:
        found = list(COMPARISONS[cell.feature.removeprefix(SAME_LOAD)](twins))
        cell_judged = judged(cell, [each.text for each in found if not each.quirk], seconds)
        if found and cell_judged.verdict is Verdict.PASSED:
            quirks = "; ".join(sorted({each.quirk for each in found}))
            cell_judged = replace(cell_judged, verdict=Verdict.QUIRK, detail=quirks)
        tell(cell_judged)


def _unequal(expected: Mapping[Any, object], found: Mapping[Any, object]) -> list[str]:
    names = sorted(expected.keys() | found.keys(), key=repr)
    return [
        f"{name}: expected {expected.get(name)}, found {found.get(name)}"
        for name in names
        if expected.get(name) != found.get(name)
    ]
