"""The epochs of a log: their order, the point up to which two logs agree, and their file."""

from __future__ import annotations

import contextlib
import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trocket.common.java_integers import INT32_MAX, INT64_MAX
from trocket.disk.errors import CorruptRecordError, StoreIOError
from trocket.disk.memory_disk import MemoryDisk
from trocket.store.ha.epochs import (
    NO_EPOCH,
    EpochError,
    EpochFile,
    Epochs,
    consistent_point,
    decode_epochs,
    encode_epochs,
)

PATH = "/data/epochFileCheckpoint"
APACHES = b"1\n1725254278\n1-0\n"
"""Recorded: the file of a broker of 5.5.0 after its first election."""

SIZES = st.lists(st.tuples(st.integers(1, 3), st.sampled_from([0, 1, 2, 50])), max_size=8)
"""Of epochs: by how much the number rises, and the bytes written in it."""


def grown(steps):
    """A list of epochs, and the log whose every byte is the number of its epoch."""
    epochs, log, number = Epochs(), [], 0
    for rise, size in steps:
        number += rise
        epochs = epochs.append(number, len(log))
        log += [number] * size
    return epochs, log


@given(SIZES)
def test_a_list_names_the_epoch_of_every_byte(steps):
    epochs, log = grown(steps)
    for offset, number in enumerate(log):
        index = epochs.index_at(offset)
        assert epochs[index].number == number
        assert epochs[index].start <= offset < epochs.end_of(index, len(log))
    starts = [entry.start for entry in epochs]
    assert starts == sorted(set(starts))
    assert all(start <= len(log) for start in starts)


@given(SIZES, st.integers(0, 500))
def test_a_cut_list_is_that_of_the_cut_log(steps, end):
    epochs, log = grown(steps)
    end = min(end, len(log))
    cut = epochs.cut(end)
    assert all(entry.start < end for entry in cut)
    assert [cut[cut.index_at(offset)].number for offset in range(end)] == log[:end]
    assert cut.append(10**6, end)[-1] == (10**6, end)


@given(SIZES, st.integers(0, 500))
def test_what_expired_is_dropped_and_the_newest_epoch_never(steps, start):
    epochs, log = grown(steps)
    kept = epochs.drop_before(start)
    assert bool(kept) == bool(epochs)
    assert kept.last_number == epochs.last_number
    for offset in range(start, len(log)):
        assert kept[kept.index_at(offset)].number == log[offset]
    assert all(kept.end_of(index, INT64_MAX) > start for index in range(len(kept)))


@given(SIZES, SIZES, SIZES, st.integers(0, 500), st.integers(1, 3))
def test_logs_are_the_same_up_to_the_consistent_point(before, ours, theirs, fork, step):
    """Two logs with a common past; each master has an epoch that no other has."""
    past, log = grown(before)
    fork = min(fork, len(log))
    past, log = past.cut(fork), log[:fork]

    def continued(steps, first):
        epochs, bytes_of, number = past, list(log), first
        for rise, size in steps:
            number += rise * 2
            epochs = epochs.append(number, len(bytes_of))
            bytes_of += [number] * size
        return epochs, bytes_of

    own, own_log = continued(ours, 1000)
    other, other_log = continued(theirs, 1001)
    point = consistent_point(own, len(own_log), other, len(other_log))
    if point is None:
        assert not past
    else:
        assert own_log[:point] == other_log[:point]
        assert point == consistent_point(other, len(other_log), own, len(own_log))
        assert point >= fork if past else point == 0


@pytest.mark.parametrize(
    ("own", "own_end", "theirs", "their_end", "point"),
    [
        ([(1, 0)], 80, [(1, 0)], 100, 80),
        ([(1, 0)], 120, [(1, 0)], 100, 100),
        ([(1, 0)], 120, [(1, 0), (2, 100)], 150, 100),
        ([(1, 0), (2, 50)], 70, [(1, 0), (3, 50)], 90, 50),
        ([(1, 0), (2, 50)], 50, [(1, 0), (2, 50)], 50, 50),
        ([(2, 50)], 70, [(2, 60)], 90, None),
        ([(1, 0)], 70, [(2, 0)], 90, None),
        ([], 70, [(2, 0)], 90, None),
    ],
)
def test_the_newest_epoch_with_the_same_start_decides(own, own_end, theirs, their_end, point):
    assert consistent_point(Epochs(own), own_end, Epochs(theirs), their_end) == point


def test_the_recorded_switch_is_decided_as_apaches_broker_did():
    """switch_ha.jsonl: the old master's log ended at 1,040,682, and was cut to 0xfb1e2."""
    theirs = Epochs([(1, 0), (2, 0xFB1E2)])
    assert consistent_point(Epochs([(1, 0)]), 1_040_682, theirs, 0x1F4627) == 0xFB1E2


def test_an_empty_epoch_is_replaced():
    """Two masters in a row that wrote nothing must not leave the list of the first (F7)."""
    epochs = Epochs([(1, 0), (2, 100)])
    assert epochs.append(3, 100) == Epochs([(1, 0), (3, 100)])
    assert epochs.append(2, 100) is epochs


@pytest.mark.parametrize("entry", [(2, 101), (1, 200), (2, 50), (3, 99), (-1, 200), (3, 2**63)])
def test_an_epoch_that_goes_back_is_an_error(entry):
    with pytest.raises(EpochError):
        Epochs([(1, 0), (2, 100)]).append(*entry)


def test_an_empty_list_has_no_epoch_anywhere():
    assert Epochs().last_number == NO_EPOCH
    assert Epochs().index_at(10**6) == -1
    assert Epochs([(5, 10)]).index_at(9) == -1


# ---- the file ----------------------------------------------------------------------------


def test_the_text_is_apaches():
    assert encode_epochs(Epochs([(1, 0)])) == APACHES
    assert decode_epochs(APACHES) == Epochs([(1, 0)])


@given(SIZES)
def test_a_text_is_read_as_it_was_written(steps):
    epochs, _ = grown(steps)
    assert decode_epochs(encode_epochs(epochs)) == epochs


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(b"1\n0\n1-0\n", id="a checksum of 0 is not checked"),
        pytest.param(b"1\r\n2032886539\r\n1-0\r\n", id="written on Windows"),
        pytest.param(b"1\n-422229370\n1-0\n", id="a signed checksum"),
    ],
)
def test_other_texts_of_apaches_brokers_are_read(text):
    assert decode_epochs(text) == Epochs([(1, 0)])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", "fewer than two lines"),
        (b"1\n", "fewer than two lines"),
        (b"1\n0\n", "has 0 epochs"),
        (b"2\n0\n1-0\n", "has 1 epochs"),
        (b"1\n1725254278\n1-0", "checksum is not 1725254278"),
        (b"1\n1\n1-0\n", "checksum is not 1"),
        (b"x\n0\n1-0\n", "is no number"),
        (b"1_0\n0\n1-0\n", "is no number"),
        (b"1\n0\n1\n", "is no epoch"),
        (b"1\n0\n1--5\n", "epoch 1 at offset -5"),
        (b"1\n0\n-1-5\n", "is no number"),
        (b"1\n0\n%d-0\n" % (INT32_MAX + 1), "epoch 2147483648"),
        (b"1\n0\n1-%d\n" % (INT64_MAX + 1), "at offset 9223372036854775808"),
        (b"1\n0\n1-" + b"9" * 5000 + b"\n", "is no number"),
        (b"2\n0\n2-0\n1-5\n", "epoch 1 at offset 5 after"),
        (b"2\n0\n1-5\n2-4\n", "epoch 2 at offset 4 after"),
        (b"\xff\n\xfe\n\n", "is no number"),
    ],
)
def test_a_text_that_no_broker_wrote_is_refused(text, why):
    with pytest.raises(ValueError, match=why):
        decode_epochs(text)


@given(st.binary(max_size=60))
def test_any_bytes_are_epochs_or_the_one_documented_error(text):
    with contextlib.suppress(ValueError):
        decode_epochs(text)


def saved(*lists):
    disk = MemoryDisk(journalled=True)
    file = EpochFile(disk, PATH)
    for entries in lists:
        file.save(Epochs(entries))
    return disk, file


def test_a_saved_list_is_loaded_and_the_one_before_is_kept():
    disk, _ = saved([(1, 0)], [(1, 0), (2, 50)])
    assert EpochFile(disk, PATH).load() == Epochs([(1, 0), (2, 50)])
    assert disk.contents[f"{PATH}.bak"] == APACHES


def test_no_file_is_no_epoch():
    assert EpochFile(MemoryDisk(), PATH).load() == Epochs()


@pytest.mark.parametrize("text", [None, b"", b"2\n0\n1-0\n", b"0\n0\n", b"\0" * 20])
def test_the_older_file_is_used_for_a_damaged_one(text, caplog):
    disk, _ = saved([(1, 0)], [(1, 0), (2, 50)])
    if text is None:
        del disk.contents[PATH]
    else:
        disk.contents[PATH] = bytearray(text)
    file = EpochFile(disk, PATH)
    assert file.load() == file.epochs == Epochs([(1, 0)])
    if text in (b"", b"\0" * 20):
        assert "is used instead" in caplog.text


def test_two_damaged_files_are_refused_with_the_way_out():
    disk, _ = saved([(1, 0)], [(1, 0), (2, 50)])
    disk.contents[PATH] = disk.contents[f"{PATH}.bak"] = bytearray(b"torn")
    with pytest.raises(CorruptRecordError, match="Restore the file, or remove it and its"):
        EpochFile(disk, PATH).load()


def test_a_damaged_file_does_not_replace_its_spare():
    disk, _ = saved([(1, 0)], [(1, 0), (2, 50)])
    disk.contents[PATH] = bytearray(b"torn")
    file = EpochFile(disk, PATH)
    file.load()
    file.save(Epochs([(1, 0), (3, 60)]))
    assert disk.contents[f"{PATH}.bak"] == APACHES
    assert EpochFile(disk, PATH).load() == Epochs([(1, 0), (3, 60)])


def test_an_empty_list_is_no_file():
    """Apache's broker would read the `.bak` in the place of an empty list."""
    disk, file = saved([(1, 0)], [(1, 0), (2, 50)])
    file.save(Epochs())
    assert disk.list("/data") == []
    assert EpochFile(disk, PATH).load() == Epochs()


def test_a_saved_list_survives_a_power_cut():
    disk, file = saved([(1, 0)], [(1, 0), (2, 50)])
    disk.power_loss()
    assert EpochFile(disk, PATH).load() == file.epochs


@pytest.mark.parametrize("operation", ["open", "pwrite", "sync", "rename"])
def test_a_failed_save_leaves_the_old_list(operation):
    disk, file = saved([(1, 0)])

    def fault(asked, path):
        return OSError(errno.EIO, "") if asked == operation else None

    disk.fault = fault
    with pytest.raises(StoreIOError):
        file.save(Epochs([(1, 0), (2, 50)]))
    disk.fault = None
    assert file.epochs == Epochs([(1, 0)])
    assert EpochFile(disk, PATH).load() == Epochs([(1, 0)])
