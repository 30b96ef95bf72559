"""Archives of loaded classes: which JVM makes one, and which uses it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trocket.interop.class_archive import QUIET, RECORD, dump, with_archive
from trocket.interop.oracle import Oracle

PID = 4711


@pytest.fixture
def jcmd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `jcmd` in PATH that writes its arguments to the file that it should dump to."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "jcmd"
    program.write_text('#!/bin/sh\necho "$@" > "$4"\n')
    program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return program


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    """The command of a program with two jars."""
    (tmp_path / "jars").mkdir()
    for name in ("a.jar", "b.jar"):
        (tmp_path / "jars" / name).write_bytes(b"classes")
    class_path = f"{tmp_path}/jars/a.jar{os.pathsep}{tmp_path}/jars/*"
    return ["java", "-XX:+UseSerialGC", "-cp", class_path, "org.example.Peer", "argument"]


@pytest.mark.usefixtures("jcmd")
def test_the_first_jvm_dumps_its_classes_and_the_next_one_uses_them(
    tmp_path: Path, command: list[str]
) -> None:
    first = with_archive(command, cache=tmp_path)
    assert first == ["java", QUIET, RECORD, *command[1:]]
    dump(first, PID, cache=tmp_path)
    (archive,) = (tmp_path / "archives").iterdir()
    assert archive.name.startswith("Peer-")
    assert archive.read_text().startswith(f"{PID} VM.cds dynamic_dump ")
    second = with_archive(command, cache=tmp_path)
    assert second == ["java", QUIET, f"-XX:SharedArchiveFile={archive}", *command[1:]]
    archive.write_text("kept")
    dump(first, PID, cache=tmp_path)
    dump(second, PID, cache=tmp_path)
    assert archive.read_text() == "kept"


@pytest.mark.usefixtures("jcmd")
@pytest.mark.parametrize("change", ["a jar", "a collector", "a main class"])
def test_an_archive_is_for_one_program_and_its_jars(
    tmp_path: Path, command: list[str], change: str
) -> None:
    dump(with_archive(command, cache=tmp_path), PID, cache=tmp_path)
    if change == "a jar":
        (tmp_path / "jars" / "b.jar").write_bytes(b"other classes")
    elif change == "a collector":
        command[1] = "-XX:+UseG1GC"
    else:
        command[-2] = "org.example.Other"
    assert RECORD in with_archive(command, cache=tmp_path)


def test_a_failed_dump_leaves_no_archive(tmp_path: Path, jcmd: Path, command: list[str]) -> None:
    first = with_archive(command, cache=tmp_path)
    jcmd.write_text("#!/bin/sh\nexit 1\n")
    dump(first, PID, cache=tmp_path)
    assert list((tmp_path / "archives").iterdir()) == []


@pytest.mark.interop
@pytest.mark.slow
@pytest.mark.usefixtures("java")
def test_the_jvm_maps_the_archive(tmp_path: Path) -> None:
    for name in ("first", "second"):
        with Oracle("5.5.0", tmp_path / name) as oracle:
            mapped = Path(f"/proc/{oracle.pid}/maps").read_text()
            assert oracle.ask("hash_code", text="Aa") == 2112
    assert "/archives/Oracle-" in mapped
