"""config/*.json: whatever fails, the old text or the new one is there."""

from __future__ import annotations

import errno
import json

import pytest

from trocket.store.errors import CorruptRecordError, StoreIOError
from trocket.store.json_config import load_json, save_json
from trocket.store.memory_disk import MemoryDisk

PATH = "/data/config/topics.json"


def saved(*texts):
    disk = MemoryDisk(journalled=True)
    for text in texts:
        save_json(disk, PATH, text)
    return disk


def test_the_text_before_the_last_is_kept_as_bak():
    disk = saved(b'{"n":1}', b'{"n":2}')
    assert load_json(disk, PATH, json.loads) == {"n": 2}
    assert disk.contents[PATH + ".bak"] == b'{"n":1}'
    assert disk.list("/data/config") == ["topics.json", "topics.json.bak"]


def test_nothing_saved_is_none():
    assert load_json(MemoryDisk(), PATH, json.loads) is None


@pytest.mark.parametrize("text", [b"", b"\0\0\0\0", b'{"n":'])
def test_a_torn_file_falls_back_to_its_bak(text):
    disk = saved(b'{"n":1}', b'{"n":2}')
    disk.contents[PATH] = bytearray(text)
    assert load_json(disk, PATH, json.loads) == {"n": 1}
    del disk.contents[PATH]
    assert load_json(disk, PATH, json.loads) == {"n": 1}


def test_two_bad_files_are_refused_and_not_taken_for_none():
    disk = saved(b'{"n":1}', b'{"n":2}')
    disk.contents[PATH] = disk.contents[PATH + ".bak"] = bytearray(b"{")
    with pytest.raises(CorruptRecordError, match=r"topics\.json"):
        load_json(disk, PATH, json.loads)


def test_whichever_step_fails_or_loses_power_old_or_new_is_there():
    steps = 0
    while True:
        disk = saved(b'{"n":1}')
        left = steps

        def fault(name, path):
            nonlocal left
            left -= 1
            return OSError(errno.ENOSPC, "") if left == -1 else None

        disk.fault = fault
        try:
            save_json(disk, PATH, b'{"n":2}')
            done = True
        except StoreIOError:
            done = False
        disk.fault = None
        disk.power_loss()
        found = load_json(disk, PATH, json.loads)
        assert found == {"n": 2} if done else found in ({"n": 1}, {"n": 2})
        if done:
            break
        steps += 1
    assert steps > 10
