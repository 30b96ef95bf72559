"""The store differ: brokers open each other's stores, or fill two stores with the same load.

Over each other: `CHECKS` compare the visits of a round trip (`store_round_trip`), one cell for each
check and moment; those of `pop_round_trip` what happens to messages that were popped. Beside each
other: two stores are compared after the same load (`store_pair`).

A check returns the differences that it found as strings; none: it passed.
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
from .jobs import Job, OnCell
from .log_on_disk import by_place, by_queue
from .peers import parse_peer
from .pop_round_trip import CHECKS as POP_CHECKS
from .pop_round_trip import ENDINGS, PopRoundTrip
from .pop_round_trip import MOMENTS as POP_MOMENTS
from .report.cells import Cell, Kind, Verdict
from .store_pair import COMPARISONS, StorePair, compare_brokers_own
from .store_round_trip import (
    FREE_BYTES_MIN,
    GROUP_MEMBERS,
    MOMENTS,
    SIZES,
    TOPICS,
    RoundTrip,
    Visit,
)

CLIENT = "wire"
SAME_LOAD = "same load: "
POP_SINCE = (5, 0)
"""The first version with pop consumption."""
SHOWN_MAX = 5
"""Differences listed in a cell's detail; the others are counted."""
RECORD_COUNT_MIN = 1_000
LOOKUP_COUNT_MIN = 80

Check = Callable[[RoundTrip, Visit], list[str]]


def records_are_served_at_their_place(round_trip: RoundTrip, visit: Visit) -> list[str]:
    """Every record of the log is served, byte for byte, in its queue and order."""
    found = []
    if len(visit.expected) <= RECORD_COUNT_MIN:
        found.append(f"the log holds only {len(visit.expected)} records")
    expected = by_queue(visit.expected)
    for queue in sorted(expected.keys() | visit.served.keys()):
        pairs = zip_longest(expected.get(queue, []), visit.served.get(queue, []))
        found += [f"{queue}: logged {log}, served {got}" for log, got in pairs if log != got]
    return found


def acknowledged_is_there(round_trip: RoundTrip, visit: Visit) -> list[str]:
    """Every acknowledged message is served, at its acknowledged place."""
    served = by_place(record for records in visit.served.values() for record in records)
    found = []
    for place in visit.acknowledged:
        record = served.get((place.topic, place.queue_id, place.queue_offset))
        if record is None or record.physical_offset != place.physical_offset:
            found.append(f"acknowledged {place}, served {record}")
    return found if visit.acknowledged else ["nothing was acknowledged"]


def queues_have_their_ends(round_trip: RoundTrip, visit: Visit) -> list[str]:
    """Queues begin at 0 and end behind their last message."""
    expected = {queue: (0, len(records)) for queue, records in by_queue(visit.expected).items()}
    return _unequal(expected, visit.ends) if expected else ["the log holds no records"]


def keys_find_their_messages(round_trip: RoundTrip, visit: Visit) -> list[str]:
    """Keys and unique keys find the messages that have them, and no others."""
    found = []
    if len(visit.lookups) <= LOOKUP_COUNT_MIN:
        found.append(f"only {len(visit.lookups)} keys were looked up")
    for (topic, key, unique), places in visit.lookups.items():
        expected = {
            record.place
            for record in visit.searched
            if record.place[0] == topic and (record.unique == key if unique else key in record.keys)
        }
        # After a kill Apache's broker may index messages twice.
        twice = len(places) != len(expected) and not visit.after_kill
        if set(places) != expected or twice:
            found.append(f"{topic} {key!r}: expected {sorted(expected)}, found {sorted(places)}")
    return found


def times_find_their_messages(round_trip: RoundTrip, visit: Visit) -> list[str]:
    """A time finds the first message stored then or later.

    4.x searches the first file modified after that time, and the kernel sets the time of a mapped
    file when it likes; within a file it takes one of the nearest messages, before or after.
    """
    queues = by_queue(visit.expected)
    found = [] if visit.times else ["no time was looked up"]
    is_exact = visit.asked == "trocket" or version_numbers(round_trip.version) >= (5,)
    for (topic, queue_id, time_ms), offset in visit.times.items():
        times = [record.store_timestamp_ms for record in queues[topic, queue_id]]
        expected = next((at for at, time in enumerate(times) if time >= time_ms), len(times))
        if is_exact:
            passed = offset == expected
        elif round_trip.sizes == "small files":
            passed = 0 <= offset <= len(times)
        else:
            nearest = min(abs(time - time_ms) for time in times)
            passed = 0 <= offset < len(times) and abs(times[offset] - time_ms) == nearest
        if not passed:
            found.append(f"{topic}/{queue_id} at {time_ms}: expected {expected}, found {offset}")
    return found


def tables_are_kept(round_trip: RoundTrip, visit: Visit) -> list[str]:
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
"""By their names in cells."""


def jobs(ours: Sequence[str], apaches: Sequence[str]) -> list[Job]:
    """A job for each round trip, with files of each of `SIZES` or with popped messages, and one for
    each pair of stores.

    Args:
      ours: trocket brokers: "trocket", or none.
      apaches: names of peers; those not run from the jars are ignored, because their files are
        out of reach.
    Raises: PeerError: a name is unknown.
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
                Cell(Kind.STORE, feature, CLIENT, _broker(MOMENTS[moment], name), Verdict.SKIPPED)
                for feature, moment, _ in _features(sizes)
            )
            play = partial(_play_round_trip, peer.version, sizes)
            found.append(Job(f"one store of trocket and {name}, {sizes}", owed, play))
        if version_numbers(peer.version) >= POP_SINCE:
            found += (_pop_job(peer.version, name, ending) for ending in ENDINGS)
        beside = f"trocket beside {name}"
        # 4.x does not add the properties that 5.x adds, and ours does as 5.x.
        same = version_numbers(peer.version) >= (5,)
        owed = tuple(
            Cell(Kind.STORE, SAME_LOAD + what, CLIENT, beside, Verdict.SKIPPED)
            for what, compare in COMPARISONS.items()
            if same or compare is not compare_brokers_own
        )
        found.append(Job(f"stores of {beside}", owed, partial(_play_pair, peer.version)))
    return found


def with_differences(cell: Cell, differences: Sequence[str], seconds: float = 0.0) -> Cell:
    """The cell with its verdict: PASSED if there are no differences."""
    if not differences:
        return replace(cell, verdict=Verdict.PASSED, seconds=seconds)
    shown = [text[:400] for text in differences[:SHOWN_MAX]]
    if len(differences) > SHOWN_MAX:
        shown.append(f"and {len(differences) - SHOWN_MAX} more")
    detail = "; ".join(shown)
    return replace(cell, verdict=Verdict.FAILED, detail=detail, seconds=seconds)


def _features(sizes: str) -> Iterable[tuple[str, str, Check]]:
    """The feature of each cell of a round trip, with its moment and check."""
    for moment in MOMENTS:
        for what, check in CHECKS.items():
            yield f"{moment}: {what}, {sizes}", moment, check


def _broker(whose: str, apache: str) -> str:
    return f"{apache} over trocket" if whose == "apache" else f"trocket over {apache}"


def _pop_features(ending: str) -> Iterable[tuple[str, str, str]]:
    """The feature of each cell of a round trip with popped messages, with its moment and check."""
    for moment in POP_MOMENTS:
        for what in POP_CHECKS:
            yield f"{moment} {ending}: {what}", moment, what


def _pop_job(version: str, apache: str, ending: str) -> Job:
    owed = tuple(
        Cell(Kind.STORE, feature, CLIENT, _broker(POP_MOMENTS[moment], apache), Verdict.SKIPPED)
        for feature, moment, _ in _pop_features(ending)
    )
    play = partial(_play_pops, version, ending)
    return Job(f"popped messages of trocket and {apache}, {ending}", owed, play)


def _play_pops(
    version: str, ending: str, owed: Sequence[Cell], folder: Path, on_cell: OnCell
) -> None:
    started_s = time.monotonic()
    round_trip = PopRoundTrip(version, ending, folder)
    wanted = {cell.feature: cell for cell in owed}
    try:
        round_trip.run()
    finally:
        # After an error the completed visits still count.
        seconds = time.monotonic() - started_s
        for feature, moment, what in _pop_features(ending):
            if feature in wanted and moment in round_trip.record.ended:
                found = POP_CHECKS[what](round_trip.record, moment)
                on_cell(with_differences(wanted[feature], found, seconds))


def _play_round_trip(
    version: str, sizes: str, owed: Sequence[Cell], folder: Path, on_cell: OnCell
) -> None:
    free = shutil.disk_usage(folder).free
    if sizes == "default sizes" and free < FREE_BYTES_MIN:
        needed = f"needs {FREE_BYTES_MIN >> 30} GiB of free disk; there are {free >> 30}"
        for cell in owed:
            on_cell(replace(cell, verdict=Verdict.SKIPPED, detail=needed))
        return
    round_trip = RoundTrip(version, sizes, folder)
    wanted = {cell.feature: cell for cell in owed}
    try:
        round_trip.run()
    finally:
        # After an error the completed visits still count.
        for feature, moment, check in _features(sizes):
            visit = round_trip.visits.get(moment)
            if feature in wanted and visit is not None and visit.seconds is not None:
                on_cell(with_differences(wanted[feature], check(round_trip, visit), visit.seconds))


def _play_pair(version: str, owed: Sequence[Cell], folder: Path, on_cell: OnCell) -> None:
    started_s = time.monotonic()
    pair = StorePair(version, folder).run()
    seconds = time.monotonic() - started_s
    for cell in owed:
        found = list(COMPARISONS[cell.feature.removeprefix(SAME_LOAD)](pair))
        unexpected = [each.text for each in found if not each.quirk]
        cell = with_differences(cell, unexpected, seconds)
        if found and cell.verdict is Verdict.PASSED:
            quirks = "; ".join(sorted({each.quirk for each in found}))
            cell = replace(cell, verdict=Verdict.QUIRK, detail=quirks)
        on_cell(cell)


def _unequal(expected: Mapping[Any, object], found: Mapping[Any, object]) -> list[str]:
    names = sorted(expected.keys() | found.keys(), key=repr)
    return [
        f"{name}: expected {expected.get(name)}, found {found.get(name)}"
        for name in names
        if expected.get(name) != found.get(name)
    ]
