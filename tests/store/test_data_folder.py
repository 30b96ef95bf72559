"""A data folder that the store makes itself is on the device before what is in it."""

from __future__ import annotations

from random import Random

import pytest

from ..world.file_system import FileSystem, Image
from ..world.recording_disk import RecordingDisk
from .support import bodies, open_store, send

ROOT = "/device/a/b/store"


@pytest.mark.parametrize("kind", ["none", "random1"])
def test_a_power_cut_takes_neither_the_new_folder_nor_what_was_synced_in_it(kind):
    disk = RecordingDisk(FileSystem(Image({}, {"/device"})))
    store = open_store(disk, root=ROOT)
    send(store)
    store.flusher.flush()
    image = disk.system.crash_image(kind, Random(1))
    again = open_store(RecordingDisk.of_image(image), root=ROOT)
    assert bodies(again) == bodies(store)


def test_a_folder_that_is_there_is_not_synced_again(monkeypatch):
    disk = RecordingDisk(FileSystem(Image({}, {"/device", "/device/a", "/device/a/b", ROOT})))
    open_store(disk, root=ROOT)
    assert not [op for op in disk.journal if op == ("sync_folder", "/device/a/b")]
