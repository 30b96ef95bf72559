"""A record that cannot be dispatched hides no other.

On an error Apache's dispatch skips the rest of the mapped file on a master, and spins for ever on a
slave. Here nothing is skipped: the place is named, the store is read-only, and the records behind
it are in their queues.
"""

from __future__ import annotations

import pytest

from trocket.disk.errors import CorruptRecordError

from ..damaged import LOG, assert_read_only, closed
from ..support import ROOT, bodies

SIZE = 93
"""Bytes of a record of a one-digit body."""


def test_a_queue_offset_that_nothing_explains_is_named_and_all_others_are_served():
    disk = closed(10)
    disk.remove_folder(f"{ROOT}/consumequeue")
    disk.contents[LOG][SIZE * 4 + 27] = 40  # message 2 of queue 0 says it is message 40
    store = assert_read_only(disk, SIZE * 4)
    assert "message 40 of queue 0 of topic T, where 2 would be the next" in store.trouble
    assert bodies(store, queue_id=1) == [b"1", b"3", b"5", b"7", b"9"]
    assert store.get_message("T", 0, 0, 32).count == 2
    with pytest.raises(CorruptRecordError):
        store.get_message("T", 0, 2, 32)


def test_a_damaged_queue_id_leaves_both_queues_readable():
    disk = closed(10)
    disk.remove_folder(f"{ROOT}/consumequeue")
    disk.contents[LOG][SIZE * 4 + 15] = 1  # message 2 of queue 0 says it is of queue 1
    store = assert_read_only(disk, SIZE * 5)  # the other record that says so of itself
    for queue_id in (0, 1):
        assert store.get_message("T", queue_id, 0, 32).count == 2
        with pytest.raises(CorruptRecordError):
            store.get_message("T", queue_id, 2, 32)
        assert store.get_message("T", queue_id, 3, 32).count == 2


def test_records_behind_a_bad_one_in_the_same_file_are_dispatched():
    disk = closed(10)
    disk.remove_folder(f"{ROOT}/consumequeue")
    disk.contents[LOG][SIZE * 4 + 88] ^= 1
    store = assert_read_only(disk, SIZE * 4)
    assert bodies(store, queue_id=1) == [b"1", b"3", b"5", b"7", b"9"]
    assert store.get_message("T", 0, 3, 32).count == 2
