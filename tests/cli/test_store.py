"""`trocket store` as people and scripts call it: output, files, exit statuses."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from trocket.cli.main import main
from trocket.store.config import MessageStoreConfig
from trocket.store.log.commit_log import file_name
from trocket.store.message_store import MessageStore
from trocket.store.offline.layout import read_layout
from trocket.store.offline.log_walk import LogWalk
from trocket.store.offline.read_only import ReadOnlyDisk

COUNT = 120
HOST = bytes((127, 0, 0, 1, 0, 0, 0x2A, 0x9F))


def configured(root: Path) -> MessageStoreConfig:
    return MessageStoreConfig(
        store_path_root_dir=str(root),
        mapped_file_size_commit_log=16_384,
        mapped_file_size_consume_queue=400,
        max_hash_slot_num=20,
        max_index_num=50,
    )


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("cli") / "store"
    store = MessageStore(configured(root))
    store.load()
    for number in range(COUNT):
        store.begin_burst()
        store.put_message(
            "Orders", number % 2, b"order %d " % number * 20, b"KEYS\x01k%d\x02" % number,
            tags_code=0, born_timestamp_ms=1, born_host=HOST, store_host=HOST,
        )  # fmt: skip
        store.commit()
    store.close()
    return root


@pytest.fixture
def root(original: Path, tmp_path: Path) -> Path:
    """A new store for each test."""
    folder = tmp_path / "store"
    shutil.copytree(original, folder)
    return folder


def damage(root: Path, number: int = 40) -> int:
    """Spoil one record; its physical offset."""
    disk = ReadOnlyDisk()
    files = read_layout(disk, str(root)).commit_log(disk)
    record = list(LogWalk(files).records())[number]
    files.close()
    base = record.physical_offset - record.physical_offset % 16_384
    with (root / "commitlog" / file_name(base)).open("r+b") as file:
        file.seek(record.physical_offset - base + 4)
        file.write(b"\xff\xff\xff\xff")
    return record.physical_offset


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    status = main(["store", *map(str, words)])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_every_command_has_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "--help")
    assert status == 0
    for command in ("fsck", "dump", "export", "repair"):
        assert command in out
        status, help_text, _ = run(capsys, command, "--help")
        assert status == 0
        assert "PATH" in help_text
        assert "--conf" in help_text


def test_fsck_of_a_good_store_ends_with_0(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capsys, "fsck", root)
    assert (status, err) == (0, "")
    assert f"{COUNT} records" in out
    assert out.endswith("clean\n")


def test_fsck_of_a_damaged_store_ends_with_1_and_lists_what_to_do(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    offset = damage(root)
    status, out, _ = run(capsys, "fsck", root)
    assert status == 1
    assert f"LOSS log.hole: {root}/commitlog/" in out
    assert f" at {offset}" in out
    assert "--skip" in out
    assert out.endswith("NOT CLEAN\n")
    status, out, _ = run(capsys, "fsck", root, "--limit", "0")
    assert status == 1
    assert "more (--limit, or --json)" in out


def test_fsck_says_one_json_document(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    offset = damage(root)
    status, out, err = run(capsys, "fsck", root, "--json")
    assert (status, err) == (1, "")
    report = json.loads(out)
    assert report["clean"] is False
    assert report["lost"] == [{"topic": "Orders", "queueId": 0, "count": 1}]
    assert report["findingCounts"]["loss"] == 1
    (hole,) = [finding for finding in report["findings"] if finding["kind"] == "log.hole"]
    assert (hole["severity"], hole["offset"]) == ("loss", offset)
    assert hole["advice"]


@pytest.mark.parametrize("command", ["fsck", "dump", "export", "repair"])
def test_what_is_no_store_ends_with_2_and_one_line(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ["--dry-run"] if command == "repair" else []
    for path in (tmp_path / "none", tmp_path):
        status, out, err = run(capsys, command, path, *more)
        assert (status, out) == (2, "")
        assert err.startswith(f"trocket store: {path}")
        assert err.count("\n") == 1


def test_a_bad_configuration_ends_with_2(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    conf = root.parent / "broker.conf"
    conf.write_text("mappedFileSizeCommitLog=big\n")
    status, _, err = run(capsys, "fsck", root, "-c", conf)
    assert status == 2
    assert "line 1: mappedFileSizeCommitLog" in err
    status, _, err = run(capsys, "fsck", root, "-c", root / "none.conf")
    assert (status, "cannot read" in err) == (2, True)


def test_dump_lists_messages_for_people_and_scripts(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, _ = run(capsys, "dump", root, "--body", "--limit", "2")
    assert status == 0
    lines = out.splitlines()
    assert len(lines) == 2
    assert "Orders 0 @0  keys=k0" in lines[0]
    assert "'order 0 order 0 " in lines[0]
    words = ("--json", "--body", "--queue", "1", "--from-offset", "3", "--to-offset", "5")
    status, out, _ = run(capsys, "dump", root, *words)
    rows = [json.loads(line) for line in out.splitlines()]
    assert [row["queueOffset"] for row in rows] == [3, 4]
    assert rows[0]["properties"] == {"KEYS": "k7"}
    assert rows[0]["body"] == "order 7 " * 20


@pytest.mark.parametrize("what", ["queue", "index", "checkpoint", "config", "summary"])
def test_dump_lists_the_other_files_as_json_lines(
    what: str, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / "topics.json").write_text('{"topicConfigTable":{}}')
    status, out, _ = run(capsys, "dump", root, "--what", what, "--json")
    assert status == 0
    rows = [json.loads(line) for line in out.splitlines()]
    assert rows
    status, out, _ = run(capsys, "dump", root, "--what", what)
    assert status == 0
    assert out


@pytest.mark.slow
def test_times_are_iso_or_milliseconds_or_so_long_ago(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, _ = run(capsys, "dump", root, "--since", "2020-01-01T00:00:00+00:00", "--json")
    rows = [json.loads(line) for line in out.splitlines()]
    assert len(rows) == COUNT
    last_ms = rows[-1]["storeTimestamp"]
    status, out, _ = run(capsys, "dump", root, "--since", last_ms + 1)
    assert (status, out) == (0, "")
    status, out, _ = run(capsys, "dump", root, "--until", "2020-01-01", "--json")
    assert (status, out) == (0, "")
    for ago, count in (("0s", 0), ("30000d", COUNT)):
        status, out, _ = run(capsys, "dump", root, "--since", ago, "--json")
        assert (status, len(out.splitlines())) == (0, count)
    status, _, err = run(capsys, "dump", root, "--since", "yesterday")
    assert (status, "--since: 'yesterday' is not a time" in err) == (2, True)


def test_dump_of_a_damaged_store_lists_the_rest_and_ends_with_1(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    offset = damage(root)
    status, out, err = run(capsys, "dump", root)
    assert status == 1
    assert len(out.splitlines()) == COUNT - 1
    assert f"the first from {offset} to" in err


def test_export_writes_a_file_or_standard_output(
    root: Path, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    target = tmp_path / "orders.jsonl"
    assert main(["store", "export", str(root), "-o", str(target), "--queue", "0"]) == 0
    assert b"60 messages" in capsysbinary.readouterr().err
    rows = [json.loads(line) for line in target.read_text().splitlines()]
    assert [row["queueOffset"] for row in rows] == list(range(60))
    assert not list(tmp_path.glob("*.partial"))
    assert main(["store", "export", str(root), "--format", "json", "--limit", "3"]) == 0
    assert len(json.loads(capsysbinary.readouterr().out)) == 3


def test_an_export_into_a_pipe_writes_into_it_and_keeps_it(root: Path, tmp_path: Path) -> None:
    pipe, got = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    assert main(["store", "export", str(root), "-o", str(pipe), "--limit", "3"]) == 0
    reader.join(timeout=30)
    assert len(got[0].splitlines()) == 3
    assert pipe.is_fifo()


def test_an_export_follows_links_and_keeps_permissions(root: Path, tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_bytes(b"old")
    real.chmod(0o640)
    link.symlink_to(real)
    assert main(["store", "export", str(root), "-o", str(link), "--limit", "3"]) == 0
    assert link.is_symlink()
    assert (len(real.read_text().splitlines()), real.stat().st_mode & 0o777) == (3, 0o640)


def test_an_export_that_cannot_be_written_ends_with_2(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, _, err = run(capsys, "export", root, "-o", tmp_path / "no" / "where")
    assert (status, "No such file" in err) == (2, True)
    status, _, err = run(capsys, "export", root, "--format", "parquet")
    assert (status, "standard output" in err) == (2, True)


def test_parquet_without_pyarrow_ends_with_2_and_leaves_nothing(
    root: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    target = tmp_path / "x.parquet"
    status, _, err = run(capsys, "export", root, "--format", "parquet", "-o", target)
    assert (status, "pip install" in err) == (2, True)
    assert not list(tmp_path.glob("x.parquet*"))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], "--into NEWDIR"),
        (["--in-place"], "add --yes"),
        (["--in-place", "--yes", "--into", "x"], "--into NEWDIR"),
        (["--skip", "--cut", "--dry-run"], "not both"),
    ],
)
def test_repair_without_a_copy_or_a_yes_is_not_begun(
    words: list[str], expected: str, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = run(capsys, "repair", root, *words)
    assert (status, out) == (2, "")
    assert expected in err


def tree(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_a_dry_run_says_the_plan_and_changes_nothing(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(capsys, "repair", root, "--dry-run")[0] == 0
    damage(root)
    before = tree(root)
    status, out, _ = run(capsys, "repair", root, "--skip", "--dry-run")
    assert status == 1
    assert "1. log.skip: " in out
    assert "1 of Orders queue 0" in out
    status, _, err = run(capsys, "repair", root, "--dry-run")
    assert status == 1
    assert "--skip puts placeholders" in err
    assert tree(root) == before


@pytest.mark.slow
def test_repair_on_a_copy_ends_with_0_when_the_copy_is_clean(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    offset = damage(root)
    before = tree(root)
    copy = tmp_path / "copy"
    assert run(capsys, "repair", root, "--into", copy)[0] == 2  # --skip or --cut?
    assert not copy.exists()
    status, out, err = run(capsys, "repair", root, "--into", copy, "--skip")
    assert status == 0
    assert "log.skip" in out
    assert out.endswith("clean\n")
    assert "copying" in err
    assert tree(root) == before
    assert run(capsys, "fsck", copy)[0] == 0
    status, out, _ = run(capsys, "dump", copy, "--json", "--from-offset", offset, "--limit", "1")
    (row,) = [json.loads(line) for line in out.splitlines()]
    assert (row["queueOffset"], row["properties"]) == (20, {"TROCKET_LOST": "1"})
    assert run(capsys, "repair", root, "--into", copy, "--skip")[0] == 1  # it exists


def test_repair_in_place_keeps_what_it_replaces_and_speaks_json(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    offset = damage(root)
    status, out, _ = run(capsys, "repair", root, "--in-place", "--yes", "--cut", "--json")
    assert status == 0
    said = json.loads(out)
    assert said["plan"]["steps"][0]["kind"] == "log.cut"
    assert said["before"]["clean"] is False
    assert said["after"]["clean"] is True
    assert said["after"]["log"]["maxOffset"] == offset
    assert Path(f"{root}.before-repair/commitlog").is_dir()
    store = MessageStore(configured(root))
    store.load()
    assert store.max_offset("Orders", 0) == 20
    store.close()


@pytest.mark.slow
def test_a_store_in_use_is_refused_but_for_a_look(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = (
        "import sys; from trocket.disk.os_disk import OsDisk;"
        "OsDisk().lock(sys.argv[1] + '/lock');"
        "print('locked', flush=True); sys.stdin.read()"
    )
    broker = subprocess.Popen(
        [sys.executable, "-c", script, str(root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert broker.stdout is not None
        assert broker.stdout.readline() == b"locked\n"
        for words in (["fsck"], ["dump"], ["repair", "--in-place", "--yes"]):
            status, _, err = run(capsys, words[0], root, *words[1:])
            assert (status, "another process" in err) == (2, True)
        status, out, _ = run(capsys, "fsck", root, "--live", "--json")
        assert (status, json.loads(out)["live"]) == (0, True)
        status, out, err = run(capsys, "dump", root, "--live")
        assert (status, len(out.splitlines())) == (0, COUNT)
        assert "a broker is running" in err
    finally:
        broker.communicate(timeout=30)
