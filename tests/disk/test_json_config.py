"""config/*.json: whatever fails, the old text or the new one is there."""

from __future__ import annotations

import errno
import json

import pytest

from trocket.disk.errors import CorruptRecordError, StoreIOError
from trocket.disk.json_config import load_newest, save_json, save_text, sealed, unsealed
from trocket.disk.memory_disk import MemoryDisk

PATH = "/data/config/topics.json"


def load(disk, path, parse):
    found = load_newest(disk, path, parse)
    return None if found is None else found[0]


def saved(*texts):
    disk = MemoryDisk(journalled=True)
    for text in texts:
        save_json(disk, PATH, text)
    return disk


def test_the_text_before_the_last_is_kept_as_bak():
    disk = saved(b'{"n":1}', b'{"n":2}')
    assert load(disk, PATH, json.loads) == {"n": 2}
    assert disk.contents[PATH + ".bak"] == sealed(b'{"n":1}', as_spare=True)
    assert disk.list("/data/config") == ["topics.json", "topics.json.bak"]


def test_nothing_saved_is_none():
    assert load(MemoryDisk(), PATH, json.loads) is None


@pytest.mark.parametrize("text", [b"", b"\0\0\0\0", b'{"n":'])
def test_a_torn_file_falls_back_to_its_bak(text):
    disk = saved(b'{"n":1}', b'{"n":2}')
    disk.contents[PATH] = bytearray(text)
    assert load(disk, PATH, json.loads) == {"n": 1}
    del disk.contents[PATH]
    assert load(disk, PATH, json.loads) == {"n": 1}


def test_an_older_text_is_never_used_without_a_word(caplog):
    disk = saved(b'{"n":1}', b'{"n":2}')
    load(disk, PATH, json.loads)
    assert not caplog.messages
    newest = disk.contents.pop(PATH)
    load(disk, PATH, json.loads)
    assert "topics.json is missing" in caplog.messages.pop()
    disk.contents[PATH], disk.contents[PATH + ".bak"] = disk.contents[PATH + ".bak"], newest
    assert load(disk, PATH, json.loads) == {"n": 1}
    assert "topics.json has older content" in caplog.messages.pop()


def test_two_bad_files_are_refused_and_not_taken_for_none():
    disk = saved(b'{"n":1}', b'{"n":2}')
    disk.contents[PATH] = disk.contents[PATH + ".bak"] = bytearray(b"{")
    with pytest.raises(CorruptRecordError, match=r"topics\.json"):
        load(disk, PATH, json.loads)


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
        found = load(disk, PATH, json.loads)
        assert found == {"n": 2} if done else found in ({"n": 1}, {"n": 2})
        if done:
            break
        steps += 1
    assert steps > 10


@pytest.mark.parametrize("text", [b"", b"{}", b"{}\n", b'{"n":1}' + b" " * 40, bytes(range(256))])
def test_a_seal_is_found_again_and_is_nothing_but_blanks(text):
    data = sealed(text)
    assert data.startswith(text)
    assert not data[len(text) :].strip(b" \t\n")
    assert unsealed(data) == (text, True)


def test_the_seal_is_the_crc_as_spaces_and_tabs_highest_bit_first():
    # CRC32 of "123456789" is cbf43926.
    assert sealed(b"123456789")[9:] == b"\n" + b"".join(
        b"\t" if bit == "1" else b" " for bit in f"{0xCBF43926:032b}"
    )


@pytest.mark.parametrize("text", [b"", b"{}", b'{"n":1}\n', b"x" * 100, b"{}\n" + b" " * 31])
def test_a_text_without_a_seal_is_taken_as_it_is(text):
    assert unsealed(text) == (text, None)


def test_every_bit_of_a_saved_file_counts():
    data = sealed(b'{"offset":12345}')
    for position in range(len(data) * 8):
        changed = bytearray(data)
        changed[position // 8] ^= 1 << position % 8
        disk = saved(b'{"offset":1}', b'{"offset":12345}')
        disk.contents[PATH] = changed
        assert load(disk, PATH, json.loads) in ({"offset": 1}, {"offset": 12345})


def test_a_file_that_apache_wrote_or_a_person_is_read():
    disk = MemoryDisk()
    save_text(disk, PATH, b'{"n":1}')
    assert disk.contents[PATH] == b'{"n":1}'
    assert load(disk, PATH, json.loads) == {"n": 1}


def test_a_damaged_file_never_takes_the_place_of_a_whole_bak():
    for damaged in (sealed(b'{"n":2}').replace(b"2", b"3"), b'{"n":'):
        steps = 0
        done = False
        while not done:
            disk = saved(b'{"n":1}', b'{"n":2}')
            disk.contents[PATH][:] = damaged
            assert load(disk, PATH, json.loads) == {"n": 1}
            calls = iter(range(steps))
            disk.fault = lambda name, path: (
                None if next(calls, None) is not None else OSError(errno.EIO, "")  # noqa: B023
            )
            done = True
            try:
                save_json(disk, PATH, b'{"n":4}')
            except StoreIOError:
                done = False
            disk.fault = None
            assert load(disk, PATH, json.loads) in ({"n": 1}, {"n": 4})
            steps += 1
        assert load(disk, PATH, json.loads) == {"n": 4}
        assert steps > 5


def test_a_damaged_file_is_kept_for_a_person_to_look_at():
    disk = saved(b'{"n":1}', b'{"n":2}')
    edited = bytes(disk.contents[PATH]).replace(b"2", b"7")
    disk.contents[PATH][:] = edited
    assert load(disk, PATH, json.loads) == {"n": 1}
    save_json(disk, PATH, b'{"n":3}')
    assert disk.contents[f"{PATH}.damaged"] == edited
    assert load(disk, PATH, json.loads) == {"n": 3}
