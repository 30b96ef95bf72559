"""The harness itself: lines, deadlines, ends and measures of child processes. Needs no Java."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from trocket.interop.apache import broker_conf_text
from trocket.interop.ports import free_broker_port
from trocket.interop.process import LineProcess, PeerError
from trocket.interop.trocket_peer import OurProcess
from trocket.interop.usage import anonymous_bytes, cpu_seconds, resident_bytes

ECHO = """
import sys
print("up", flush=True)
for line in sys.stdin:
    print("got", line, end="", flush=True)
"""
DEAF = """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("up", flush=True)
signal.pause()
"""


def start(tmp_path: Path, program: str) -> LineProcess:
    process = LineProcess([sys.executable, "-c", program], folder=tmp_path, name="child")
    process.wait_line(lambda line: line == "up", timeout_s=30.0)
    return process


def test_lines_are_exchanged_and_logged(tmp_path: Path) -> None:
    process = start(tmp_path, ECHO)
    process.write_line("one")
    assert process.wait_line(lambda line: "one" in line, timeout_s=30.0) == "got one"
    process.kill()
    assert not process.running
    assert (tmp_path / "child.out").read_text() == "up\ngot one\n"


def test_a_process_that_ends_is_reported_at_once_with_what_it_said(tmp_path: Path) -> None:
    program = "import sys\nprint('up', flush=True)\nsys.exit('no more')"
    process = start(tmp_path, program)
    with pytest.raises(PeerError, match=r"(?s)child ended without the line.*no more"):
        process.wait_line(lambda line: line == "never", timeout_s=30.0)
    assert process.stop() == 1


def test_a_process_of_ours_must_end_with_0(tmp_path: Path) -> None:
    process = OurProcess([sys.executable, "-c", "raise SystemExit(1)"], folder=tmp_path, name="up")
    with pytest.raises(PeerError, match="ended without"):
        process.wait_line(lambda line: line == "ready", timeout_s=30.0)
    with pytest.raises(PeerError, match="up ended with 1"):
        process.stop()


def test_a_line_that_does_not_come_is_an_error_when_the_time_is_up(tmp_path: Path) -> None:
    process = start(tmp_path, ECHO)
    with pytest.raises(PeerError, match=r"ran for 0\.05 s without the line"):
        process.wait_line(lambda line: line == "never", timeout_s=0.05)
    assert process.running
    assert process.stop() == -signal.SIGTERM


def test_a_process_that_ignores_sigterm_is_killed_and_that_is_an_error(tmp_path: Path) -> None:
    process = start(tmp_path, DEAF)
    with pytest.raises(PeerError, match="did not stop"):
        process.stop(timeout_s=0.05)
    assert not process.running


def test_a_program_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(PeerError, match="cannot start"):
        LineProcess([str(tmp_path / "nothing")], folder=tmp_path, name="child")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks for the part of files")
def test_the_use_of_this_process_is_measured() -> None:
    assert cpu_seconds(os.getpid()) > 0
    assert 0 < anonymous_bytes(os.getpid()) < resident_bytes(os.getpid())


@pytest.mark.parametrize("measure", [cpu_seconds, resident_bytes, anonymous_bytes])
def test_the_use_of_a_process_that_has_ended_is_an_error(measure: Callable[[int], float]) -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    with pytest.raises(PeerError, match=f"of process {child.pid}: "):
        measure(child.pid)


def test_the_ports_of_a_broker_can_all_be_bound() -> None:
    port = free_broker_port()
    for offset in (-2, 0, 1):
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", port + offset))


def test_a_broker_conf_is_written_as_java_reads_it() -> None:
    assert broker_conf_text({"a": True, "b": 7, "c": "x"}) == "a = true\nb = 7\nc = x\n"
