"""Files that appear whole: what is replaced, and what is written into."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from trocket.common.whole_file import replaceable, replacing


def write(path, text=b"new", **more):
    with replacing(path, **more) as file:
        file.write(text)


def test_a_new_file_appears(tmp_path):
    write(tmp_path / "file")
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_bytes() == b"new"


def test_a_link_is_followed_and_stays_a_link(tmp_path):
    real, link = tmp_path / "folder" / "real", tmp_path / "link"
    real.parent.mkdir()
    real.write_bytes(b"old")
    link.symlink_to(real)
    write(link)
    assert link.is_symlink()
    assert real.read_bytes() == b"new"


def test_a_link_to_a_file_that_is_not_there_creates_that_file(tmp_path):
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "later")
    write(link)
    assert link.is_symlink()
    assert (tmp_path / "later").read_bytes() == b"new"


def test_a_replaced_file_keeps_its_permissions(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    path.chmod(0o640)
    write(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_given_permissions_are_set_whatever_the_old_file_had(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    path.chmod(0o666)
    write(path, mode=0o600)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_pipe_is_written_into_and_stays_a_pipe(tmp_path):
    path, got = tmp_path / "pipe", []
    os.mkfifo(path)
    reader = threading.Thread(target=lambda: got.append(path.read_bytes()))
    reader.start()
    write(path)
    reader.join(timeout=10)
    assert got == [b"new"]
    assert path.is_fifo()


def test_a_device_is_written_into():
    assert replaceable(Path("/dev/null")) is None


def test_a_descriptor_goes_on_behind_what_was_written_to_it(tmp_path):
    path = tmp_path / "appended"
    path.write_bytes(b"old ")
    with path.open("ab") as file:
        write(Path(f"/dev/fd/{file.fileno()}"))
    assert path.read_bytes() == b"old new"


def test_a_link_to_standard_output_is_a_descriptor(tmp_path):
    link = tmp_path / "link"
    link.symlink_to("/dev/stdout")
    assert replaceable(link) is None


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(TypeError):
        write(path, "no bytes")
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
    assert path.read_bytes() == b"old"
