"""The table of delay offsets, and the files that Apache's brokers wrote."""

from __future__ import annotations

import tarfile

import pytest

from trocket.broker.tables.config_text import DELAY_OFFSETS
from trocket.broker.tables.delay_offset_manager import DelayOffsetManager
from trocket.common.clock import ManualClock
from trocket.disk.errors import StoreIOError
from trocket.disk.json_config import parse

STORES = [
    f"{version}-{name}" for version in ("4.9.7", "5.5.0") for name in ("mix", "ext", "killed")
]


class Table(DelayOffsetManager):
    """A table that remembers what it saved."""

    def __init__(self, version_step=200):
        self.files = []
        self.is_full = False
        super().__init__(
            clock=ManualClock(5_000),
            version_step=version_step,
            save=self._save,
        )

    def _save(self, name, text):
        if self.is_full:
            raise StoreIOError("/x", "no space")
        self.files.append((name, text))


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("suffix", ["", ".bak"])
def test_apaches_file_loads_and_is_saved_as_it_was(golden, store, suffix):
    wanted = f"{store}/config/delayOffset.json{suffix}"
    with tarfile.open(golden / "store" / f"{store}.tar.xz") as archive:
        found = [m for m in archive if m.name.removeprefix("./") == wanted]
        (text,) = (archive.extractfile(member).read() for member in found)
    table = Table()
    tree = parse(text)
    assert table.decode(text) == len(tree["offsetTable"])
    again = parse(table.encode())
    assert again["offsetTable"] == tree["offsetTable"]
    assert again["dataVersion"].keys() == {"counter", "stateVersion", "timestamp"}
    if store.startswith("5.5.0"):
        assert table.encode() == text


def test_what_was_saved_loads_again_and_nothing_is_saved_twice():
    table = Table()
    assert not table.file.persist_changed()
    for level, offset in ((18, 4), (2, 7), (2, 8)):
        table.update_offset(level, offset)
    assert table.file.persist_changed()
    assert not table.file.persist_changed()
    ((name, text),) = table.files
    assert name == DELAY_OFFSETS
    again = Table()
    assert again.decode(text) == 2
    assert again.offset_table == {2: 8, 18: 4}
    assert not again.file.persist_changed()


def test_offsets_that_could_not_be_saved_are_saved_the_next_time():
    table = Table()
    table.update_offset(1, 1)
    table.is_full = True
    with pytest.raises(StoreIOError):
        table.file.persist_changed()
    table.is_full = False
    assert table.file.persist_changed()


def test_the_data_version_moves_after_so_many_updates():
    table = Table(version_step=3)
    for offset in range(7):
        table.update_offset(1, offset)
    assert table.data_version.counter == 2


@pytest.mark.parametrize(("offset", "expected"), [(0, 5), (5, 5), (7, 7), (9, 9), (12, 9)])
def test_an_offset_outside_its_queue_is_brought_into_it(offset, expected):
    table = Table()
    table.update_offset(1, offset)
    table.correct(1, min_offset=5, max_offset=9)
    table.correct(2, min_offset=5, max_offset=9)
    assert table.offset_table == {1: expected}


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b'{"offsetTable":[1]}',
        b'{"offsetTable":{"x":1}}',
        b'{"offsetTable":{1:"x"}}',
        b'{"offsetTable":{0:1}}',
        b'{"offsetTable":{1:-1}}',
        b'{"offsetTable":{99999:1}}',
        b'{"offsetTable":{},"dataVersion":7}',
    ],
)
def test_what_is_no_table_is_refused_and_changes_nothing(text):
    table = Table()
    table.update_offset(3, 4)
    with pytest.raises(ValueError, match=r"object|table of delay offsets|JSON|empty|text"):
        table.decode(text)
    assert table.offset_table == {3: 4}
