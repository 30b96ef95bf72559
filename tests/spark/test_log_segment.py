"""However a log is cut into pieces, each record and each hole is seen once."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("numpy", reason="numpy is of the extra `spark`")
pytest.importorskip("pyarrow", reason="pyarrow is of the extra `spark`")

import itertools

from tests.store.offline.support import FILE_SIZE, LOG, ROOT, poke, stopped_store
from trocket.spark.log_segment import LogSegment
from trocket.store.log.log_reader import Hole
from trocket.store.offline.layout import read_layout
from trocket.store.offline.log_walk import LogWalk


def seen(disk, base, cuts, *, is_newest, verify_crc):
    """(records' positions, holes as (position, size, is a tail)) of one file, cut at `cuts`."""
    file = disk.open(f"{LOG}/{base:020d}")
    segment = LogSegment(
        file, base=base, file_size=FILE_SIZE, limit=file.size(), is_newest=is_newest,
        verify_crc=verify_crc,
    )  # fmt: skip
    starts, holes = [], []
    places = [0, *sorted(cuts), FILE_SIZE]
    for begin, end in itertools.pairwise(places):
        for piece in segment.pieces(begin, end):
            if isinstance(piece, Hole):
                holes.append((piece.start - base, piece.end - piece.start, piece.at_end))
            else:
                starts += [piece.position + int(start) for start in piece.records.starts]
    return starts, holes


def whole_log(disk, cuts, **options):
    bases = sorted(int(path.rpartition("/")[2]) for path in disk.contents if path.startswith(LOG))
    starts, holes = [], []
    for base in bases:
        found = seen(disk, base, cuts, is_newest=base == bases[-1], **options)
        starts += [base + at for at in found[0]]
        holes += [(base + at, size, is_tail) for at, size, is_tail in found[1]]
    return starts, holes


CUTS = st.lists(st.integers(1, FILE_SIZE - 1), unique=True, max_size=40)
DAMAGE = st.lists(
    st.tuples(st.integers(0, 2 * FILE_SIZE), st.binary(min_size=1, max_size=600)), max_size=3
)


@given(CUTS, DAMAGE, st.booleans())
@settings(max_examples=60)
@pytest.mark.slow
def test_any_cuts_show_each_record_and_each_hole_once(cuts, damage, verify_crc) -> None:
    disk = stopped_store()
    for place, data in damage:
        poke(disk, place, data)
    whole = whole_log(disk, [], verify_crc=verify_crc)
    assert whole_log(disk, cuts, verify_crc=verify_crc) == whole
    assert whole[0] == sorted(set(whole[0]))
    if verify_crc:
        walk = LogWalk(read_layout(disk, ROOT).commit_log(disk))
        assert whole[0] == [record.physical_offset for record in walk.records()]


@pytest.mark.slow
def test_a_cut_at_each_place_around_a_hole_gives_it_to_one_piece() -> None:
    disk = stopped_store()
    starts, _ = whole_log(disk, [], verify_crc=False)
    first, bad, after = starts[3:6]
    poke(disk, bad, b"\0" * 8)
    for cut in range(first, after + 2):
        found, holes = whole_log(disk, [cut], verify_crc=False)
        assert found == starts[:4] + starts[5:]
        assert holes == [(bad, after - bad, False)], cut


def test_a_body_that_holds_a_record_of_another_place_makes_no_rows() -> None:
    disk = stopped_store()
    starts, _ = whole_log(disk, [], verify_crc=False)
    size = starts[1] - starts[0]
    copied = bytes(disk.contents[f"{LOG}/{0:020d}"][:size])
    target = next(a for a, b in itertools.pairwise(starts) if b - a > 2 * size + 200)
    poke(disk, target + 88, copied)  # into its body: whole, but it says that it lies at 0
    cuts = range(target + 1, target + 200)
    assert whole_log(disk, cuts, verify_crc=False)[0] == starts


def test_bytes_behind_the_last_record_of_the_newest_file_are_its_tail() -> None:
    disk = stopped_store()
    starts, holes = whole_log(disk, [], verify_crc=False)
    assert holes == []
    end = LogWalk(read_layout(disk, ROOT).commit_log(disk))
    list(end.records())
    poke(disk, end.end, b"torn")
    assert whole_log(disk, [], verify_crc=False) == (starts, [(end.end, 4, True)])


def test_the_same_in_an_older_file_is_a_hole_and_so_is_its_missing_end() -> None:
    disk = stopped_store()
    last = max(at for at in whole_log(disk, [], verify_crc=False)[0] if at < FILE_SIZE)
    del disk.contents[f"{LOG}/{0:020d}"][last + 20 :]
    starts, holes = seen(disk, 0, [], is_newest=False, verify_crc=False)
    assert starts[-1] < last
    assert holes == [(last, FILE_SIZE - last, False)]
    del disk.contents[f"{LOG}/{0:020d}"][last:]
    starts, holes = seen(disk, 0, [], is_newest=False, verify_crc=False)
    assert holes == [(last, FILE_SIZE - last, False)]
    del disk.contents[f"{LOG}/{0:020d}"][:]
    assert seen(disk, 0, [], is_newest=False, verify_crc=False) == ([], [(0, FILE_SIZE, False)])


def test_nothing_is_looked_at_behind_the_limit() -> None:
    disk = stopped_store()
    starts, _ = seen(disk, 0, [], is_newest=False, verify_crc=False)
    file = disk.open(f"{LOG}/{0:020d}")
    limited = LogSegment(file, base=0, file_size=FILE_SIZE, limit=starts[10], is_newest=True)
    pieces = list(limited.pieces(0, FILE_SIZE))
    assert [len(piece.records) for piece in pieces] == [10]


@pytest.mark.parametrize("seed", range(5))
def test_a_checksum_that_is_wrong_is_a_hole_only_when_asked_for(seed) -> None:
    disk = stopped_store()
    starts, _ = whole_log(disk, [], verify_crc=False)
    rng = random.Random(seed)
    row = rng.choice([i for i, at in enumerate(starts[:100]) if starts[i + 1] - at > 300])
    poke(disk, starts[row] + 95, b"!")
    assert whole_log(disk, [], verify_crc=False)[0] == starts
    found, holes = whole_log(disk, [], verify_crc=True)
    assert found == starts[:row] + starts[row + 1 :]
    assert holes == [(starts[row], starts[row + 1] - starts[row], False)]
