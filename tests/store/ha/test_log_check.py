"""Where two logs part."""

from __future__ import annotations

from zlib import crc32

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from trocket.store.ha import log_check
from trocket.store.ha.log_check import QUESTIONS_MAX, STEP_SIZE, checksum, first_difference

from ..support import open_store
from .support import fill


def ask(ours, theirs, asked):
    """Compares two logs of bytes; a range that one lacks counts as the same."""

    async def same(start, end):
        asked.append((start, end))
        return ours[start:end] == theirs[start:end]

    return same


def find(ours, theirs, begin=0):
    asked = []
    found = trio.run(first_difference, ask(ours, theirs, asked), begin, len(ours))
    return found, asked


@settings(max_examples=40)
@given(st.integers(1, 20), st.data())
def test_the_first_byte_that_differs_is_found(steps, data):
    size = steps * STEP_SIZE + data.draw(st.integers(-100, 100))
    part = data.draw(st.integers(0, size - 1))
    ours = bytes(size)
    theirs = ours[:part] + b"\1" * (size - part)
    found, asked = find(ours, theirs)
    assert found == part
    assert len(asked) < 40


@given(st.integers(0, 3 * STEP_SIZE))
def test_logs_that_end_alike_are_the_same(size):
    found, asked = find(bytes(size), bytes(size))
    assert found is None
    assert len(asked) == (size > 0)


def test_one_question_is_asked_about_the_end_only(monkeypatch):
    monkeypatch.setattr(log_check, "CHECKED_SIZE", 100)
    found, asked = find(b"a" * 1000, b"b" * 900 + b"a" * 100)
    assert (found, asked) == (None, [(900, 1000)])


def test_what_one_of_them_has_not_is_not_compared():
    found, _ = find(bytes(200_000), bytes(150_000) + b"\1" * 50_000, begin=100_000)
    assert found == 150_000


def test_the_largest_log_takes_fewer_questions_than_may_be_asked():
    async def same(start, end):
        asked.append((start, end))
        return end <= part

    asked, part = [], (1 << 50) + 12345
    assert trio.run(first_difference, same, 0, 1 << 51) == part
    assert len(asked) < QUESTIONS_MAX


@pytest.mark.parametrize(("start", "end"), [(0, 0), (0, 10), (65_530, 65_550), (0, 200_000)])
async def test_a_checksum_is_over_all_files(start, end):
    store = open_store()
    fill(store, 250)
    data = b"".join(bytes(store.log.view(base)) for base in store.log.files)
    assert await checksum(store.log, start, end) == crc32(data[start:end])


async def test_a_log_that_lacks_a_file_has_no_checksum():
    store = open_store()
    fill(store, 250)
    del store.log.files[65536]
    assert await checksum(store.log, 60_000, 70_000) is None
    assert await checksum(store.log, 131_072, 140_000) is not None
