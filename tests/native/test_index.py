"""Index files of the C extension and of pure Python are equal, however entries are divided."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from trocket import native
from trocket.disk.memory_disk import MemoryDisk
from trocket.store.index.index_backlog import IndexBacklog, IndexItem, IndexRun
from trocket.store.index.index_entries import entries_of, entries_of_items
from trocket.store.index.index_file import PACKED_ENTRY, IndexFile

needs_extension = pytest.mark.skipif(native.extension is None, reason=native.choice.description)

KEY = b"UNIQ_KEY\x010123456789ABCDEF\x02"
PIECES = [
    KEY, KEY[:-1], b"UNIQ_KEY\1\2", b"KEYS\1a b  c\2", b"KEYS\1 \2", b"KEYS\1\xff k\2",
    b"XKEYS\1a\2", b"UNIQ_KEY\1sh\2", b"XUNIQ_KEY\1abcdefghijk\2", b"TAGS\1\xc3\xa9\2", b"\2",
    b"UNIQ_KEY\1\xc3\xa9\2", b"TAGS\1TagA\2", b"TAGS\1a || b", b"TAGS\1\2", b"XTAGS\1a\2",
]  # fmt: skip
items = st.lists(
    st.tuples(
        st.integers(0, 2**32 - 1),
        st.lists(st.sampled_from(PIECES), max_size=3).map(b"".join),
        st.integers(0, 2**62),
        st.integers(0, 2**45) | st.sampled_from([0, 999, 1000, 10**12]),
    ),
    max_size=10,
)


TAGS_TWICE = [(0, KEY + b"TAGS\1TagA\2TAGS\1\2", 0, 0), (0, KEY + b"TAGS\1a\2TAGS\1b\2", 0, 0)]


@given(items)
@example(TAGS_TWICE)
def test_entries_of_many_are_those_of_each(given_items: list[IndexItem]) -> None:
    each = [entry for item in given_items for entry in entries_of(*item)]
    assert entries_of_items(given_items) == each


@needs_extension
@given(items)
@example(TAGS_TWICE)
def test_entries(given_items: list[IndexItem]) -> None:
    assert native.extension is not None
    packed, done = native.extension.index_entries(given_items)
    expected = entries_of_items(given_items[:done])
    assert list(PACKED_ENTRY.iter_unpack(packed)) == expected
    if done < len(given_items):
        assert not given_items[done][1].isascii(), "only what is not ASCII is left"


def new_file(begin_ms: int, index_count_max: int) -> tuple[IndexFile, MemoryDisk]:
    disk = MemoryDisk()
    disk.make_folder("/i")
    file = IndexFile(disk, "/i/1", slot_count=7, index_count_max=index_count_max)
    file.create(end_physical_offset=5, end_timestamp_ms=begin_ms)
    return file, disk


entries = st.lists(
    st.tuples(
        st.integers(0, 30) | st.integers(0, 2**31 - 1),
        st.integers(0, 2**62),
        st.integers(0, 2**45) | st.sampled_from([0, 999, 1000, 10**12]),
    ),
    max_size=20,
)


@needs_extension
@given(entries, st.integers(0, 20), st.sampled_from([0, 1, 900, 10**12]), st.integers(2, 30))
def test_files(
    given_entries: list[tuple[int, int, int]], cut: int, begin_ms: int, index_count_max: int
) -> None:
    assert native.extension is not None
    pure, pure_disk = new_file(begin_ms, index_count_max)
    ours, our_disk = new_file(begin_ms, index_count_max)
    put = pure.put_many(given_entries)
    packed = b"".join(PACKED_ENTRY.pack(*entry) for entry in given_entries)
    cut = min(cut, len(given_entries))
    first = ours.put_packed(native.extension, packed[: cut * PACKED_ENTRY.size], 0)
    rest = ours.put_packed(native.extension, packed, cut) if first == cut else 0
    assert first + rest == put
    for name in (
        "begin_timestamp_ms", "end_timestamp_ms", "begin_physical_offset", "end_physical_offset",
        "hash_slot_count", "index_count",
    ):  # fmt: skip
        assert getattr(ours, name) == getattr(pure, name), name
    pure.finish()
    ours.finish()
    assert our_disk.contents == pure_disk.contents


def test_the_first_entry_of_a_file_does_not_lend_its_time_to_the_next() -> None:
    file, disk = new_file(1_000, 10)
    file.put_many([(1, 100, 6_000), (2, 200, 6_000)])
    file.finish()
    entries_at = file.entries_position + 20
    raw = bytes(disk.contents["/i/1"][entries_at : entries_at + 40])
    assert int.from_bytes(raw[12:16], "big") == 5, "from the previous file's end, as in Apache"
    assert int.from_bytes(raw[32:36], "big") == 0


def test_the_backlog_counts_messages() -> None:
    backlog = IndexBacklog(has_runs=True)
    item: IndexItem = (1, b"", 10, 1)
    backlog.add([item, IndexRun(5, b"x", 20), item, item])
    assert (backlog.count, backlog.first_offset) == (8, 10)
    assert backlog.take_runs(10) == b""
    assert backlog.take(10) == [item]
    assert backlog.first_offset == 20
    assert backlog.take_runs(4) == b"x"
    assert (backlog.take(1), backlog.count) == ([item], 1)
    backlog.clear()
    assert not backlog
    assert backlog.count == 0


def test_runs_are_taken_together_up_to_a_count() -> None:
    backlog = IndexBacklog(has_runs=True)
    item: IndexItem = (1, b"", 99, 1)
    backlog.add([IndexRun(5, text, 20) for text in (b"a", b"b", b"c", b"d")])
    backlog.add([item])
    assert (backlog.take_runs(14), backlog.count) == (b"ab", 11)
    assert (backlog.take_runs(1), backlog.count) == (b"c", 6)
    assert (backlog.take_runs(99), backlog.count) == (b"d", 1)
    assert (backlog.take_runs(99), backlog.count) == (b"", 1)
