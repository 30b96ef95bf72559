"""Nothing that the harness started or made outlives it, however it ends. Needs no Java."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from trocket.interop import guard as guards
from trocket.interop.guard import Guard, read_watched, start_time_ticks, temporary_folder
from trocket.interop.process import LineProcess

from ..kit.waiting import wait_until

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/stat").exists(), reason="looks at processes in /proc: Linux only"
)

TIMEOUT_S = 60.0

PEER = """
import signal, subprocess, sys
# In a new session, so that its process group does not show the owner.
command = [sys.executable, "-c", "import signal; print(1, flush=True); signal.pause()"]
child = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
child.stdout.readline()
print("up", child.pid, flush=True)
signal.pause()
"""
HARNESS_OF_PEERS = f"""
import json, signal, sys
from trocket.interop.guard import temporary_folder
from trocket.interop.process import LineProcess
with temporary_folder() as folder:
    pids = []
    for name in ("one", "two"):
        peer = LineProcess([sys.executable, "-c", {PEER!r}], folder=folder, name=name)
        line = peer.wait_line(lambda line: line.startswith("up"), timeout_s=30.0)
        pids += [peer.pid, int(line.split()[1])]
    print(json.dumps({{"pids": pids, "folder": str(folder)}}), flush=True)
    signal.pause()
"""
HARNESS_OF_A_BROKER = """
import json, signal
from trocket.interop.guard import temporary_folder
from trocket.interop.peers import open_cluster
with temporary_folder() as folder:
    cluster = open_cluster("trocket", folder / "cluster")
    cluster.start()
    print(json.dumps({"pids": cluster.pids, "folder": str(folder)}), flush=True)
    signal.pause()
"""
HARNESS_THAT_FORKS = """
import json, os, signal
from trocket.interop.guard import temporary_folder
with temporary_folder() as folder:
    child = os.fork()
    if child == 0:
        signal.pause()
    print(json.dumps({"pids": [], "child": child, "folder": str(folder)}), flush=True)
    signal.pause()
"""
HARNESS_WITH_A_COMMAND = """
import json, signal, sys
from trocket.interop.guard import guard
write = [sys.executable, "-c", "import sys, pathlib; pathlib.Path(sys.argv[1]).touch()"]
guard().watch_command([*write, sys.argv[1] + "/kept"])
guard().watch_command([*write, sys.argv[1] + "/forgotten"])
guard().forget_command([*write, sys.argv[1] + "/forgotten"])
print(json.dumps({"pids": []}), flush=True)
signal.pause()
"""


def is_there(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def guards_of(pid: int) -> list[int]:
    """The guards that a process has started."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                command = (folder / "cmdline").read_bytes()
            except OSError:
                continue
            if parent == pid and b"guard.py" in command:
                found.append(int(folder.name))
    return found


class Harness:
    """A process that uses the harness and has reported what it started."""

    def __init__(self, program: str, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", program, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self.report: dict[str, Any] = {}
        self.guard_pid = 0

    def read_report(self) -> None:
        """Wait until the program has reported, and until its guard is found."""
        assert self.process.stdout is not None
        self.report = json.loads(self.process.stdout.readline())
        # A process that has just started a program has no command line for a moment.
        wait_until(lambda: len(guards_of(self.process.pid)) == 1, "no guard, or more than one")
        (self.guard_pid,) = guards_of(self.process.pid)

    def end(self, number: int) -> None:
        self.process.send_signal(number)
        self.process.wait(TIMEOUT_S)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def start() -> Iterator[Callable[..., Harness]]:
    started: list[Harness] = []

    def start(program: str, *arguments: str) -> Harness:
        harness = Harness(program, *arguments)
        started.append(harness)
        harness.read_report()
        return harness

    yield start
    for harness in started:
        harness.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    "program", [HARNESS_OF_PEERS, HARNESS_OF_A_BROKER], ids=["peers", "broker"]
)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_killed_harness_leaves_no_process_and_no_folder(
    start: Callable[..., Harness], program: str, number: signal.Signals
) -> None:
    harness = start(program)
    folder = Path(harness.report["folder"])
    pids = harness.report["pids"]
    assert pids
    assert all(is_there(pid) for pid in pids)
    assert list(folder.rglob("*.out"))
    harness.end(number)
    for pid in [*pids, harness.guard_pid]:
        wait_until(lambda pid=pid: not is_there(pid), f"{pid} of {pids} is still there")
    assert not folder.exists()


@pytest.mark.slow
def test_a_forked_child_does_not_keep_the_guard_waiting(start: Callable[..., Harness]) -> None:
    harness = start(HARNESS_THAT_FORKS)
    folder = Path(harness.report["folder"])
    assert folder.is_dir()
    try:
        harness.end(signal.SIGKILL)
        wait_until(lambda: not folder.exists(), f"{folder} is still there")
        assert is_there(harness.report["child"])
    finally:
        os.kill(harness.report["child"], signal.SIGKILL)


@pytest.mark.slow
def test_a_command_is_run_when_the_harness_is_killed_unless_it_was_forgotten(
    start: Callable[..., Harness], tmp_path: Path
) -> None:
    harness = start(HARNESS_WITH_A_COMMAND, str(tmp_path))
    harness.end(signal.SIGKILL)
    wait_until(lambda: not is_there(harness.guard_pid), "the guard is still there")
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen]:
    """A process that is not the harness's."""
    process = subprocess.Popen(
        [sys.executable, "-c", "import signal; signal.pause()"], start_new_session=True
    )
    yield process
    process.kill()
    process.wait()


def test_a_process_whose_id_was_given_again_is_left_alone(stranger: subprocess.Popen) -> None:
    ticks = start_time_ticks(stranger.pid)
    assert ticks is not None
    guards.end_groups([(stranger.pid, ticks - 1)])
    assert is_there(stranger.pid)
    guards.end_groups([(stranger.pid, ticks)])
    assert stranger.wait(TIMEOUT_S) == -signal.SIGKILL


@pytest.mark.slow
def test_a_guard_that_was_killed_is_replaced_and_knows_everything(
    stranger: subprocess.Popen, tmp_path: Path
) -> None:
    folder = tmp_path / "made"
    folder.mkdir()
    guard = Guard()
    try:
        guard.watch_folder(folder)
        first = guards_of(os.getpid())
        guard._process.kill()
        guard._process.wait()
        guard.watch_process(stranger.pid)
        assert guards_of(os.getpid()) != first
    finally:
        guard.close()
    assert not folder.exists()
    assert stranger.wait(TIMEOUT_S) == -signal.SIGKILL


@pytest.mark.slow
def test_what_is_forgotten_stays(stranger: subprocess.Popen, tmp_path: Path) -> None:
    guard = Guard()
    guard.watch_folder(tmp_path)
    guard.watch_process(stranger.pid)
    guard.forget_folder(tmp_path)
    guard.forget_process(stranger.pid)
    guard.close()
    assert tmp_path.is_dir()
    assert is_there(stranger.pid)


PEER_THAT_SHARES_ITS_GROUP = """
import signal, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
print("up", child.pid, flush=True)
signal.pause()
"""


@pytest.mark.slow
def test_a_peer_is_watched_as_long_as_it_runs(tmp_path: Path) -> None:
    peer = LineProcess([sys.executable, "-c", "input()"], folder=tmp_path, name="peer")
    assert f"process {peer.pid}" in guards.guard()._watched
    peer.kill()
    assert f"process {peer.pid}" not in guards.guard()._watched


@pytest.mark.slow
def test_a_killed_peer_takes_along_what_it_started(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PEER_THAT_SHARES_ITS_GROUP]
    peer = LineProcess(command, folder=tmp_path, name="peer")
    line = peer.wait_line(lambda line: line.startswith("up"), timeout_s=TIMEOUT_S)
    child = int(line.split()[1])
    assert is_there(child)
    peer.kill()
    wait_until(lambda: not is_there(child), f"{child} is still there")


def test_a_last_line_that_was_cut_off_is_passed_over() -> None:
    lines = [
        b'["watch","a",["folder","/a"]]\n',
        b'["watch","b",["folder","/b"]]\n',
        b'["forget","a"]\n',
        b'["forget","b',
    ]
    assert read_watched(lines) == [["folder", "/b"]]


def test_a_temporary_folder_is_removed_with_what_is_in_it(tmp_path: Path) -> None:
    with temporary_folder(tmp_path) as folder:
        (folder / "below").mkdir()
        (folder / "below" / "file").write_text("x")
        assert folder.stat().st_mode & 0o777 == 0o700
    assert list(tmp_path.iterdir()) == []
