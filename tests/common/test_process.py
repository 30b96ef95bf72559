"""Exit status and last words of a server's process, and what starts it."""

from __future__ import annotations

import gc
import json
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from trocket.common import process
from trocket.common.config import ConfigError
from trocket.common.log_lines import JsonFormatter


class ExpectedError(Exception):
    """What a server may fail with."""


def serve(main: object) -> int:
    return process.serve(main, program="prog", expected=(ExpectedError,))  # type: ignore[arg-type]


def test_a_main_that_returns_ends_well() -> None:
    async def main(stop: trio.CancelScope) -> None:
        await trio.lowlevel.checkpoint()

    assert serve(main) == process.EXIT_OK
    assert gc.isenabled()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_what_is_in_the_scope_and_then_the_rest(number: signal.Signals) -> None:
    stopped = []

    async def main(stop: trio.CancelScope) -> None:
        with stop:
            os.kill(os.getpid(), number)
            await trio.sleep_forever()
        stopped.append("inner")
        await trio.lowlevel.checkpoint()
        os.kill(os.getpid(), number)  # a second one, while stopping
        await trio.lowlevel.checkpoint()
        stopped.append("outer")

    assert serve(main) == process.EXIT_OK
    assert stopped == ["inner", "outer"]


def test_a_signal_before_the_scope_is_entered_is_not_lost() -> None:
    async def main(stop: trio.CancelScope) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        while not stop.cancel_called:
            await trio.lowlevel.checkpoint()
        with stop:
            await trio.sleep_forever()

    assert serve(main) == process.EXIT_OK


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ExpectedError("the folder is locked"), "the folder is locked"),
        (ConfigError("no", path="b.conf", line=3), "b.conf, line 3: no"),
        (OSError(98, "cannot listen on 127.0.0.1:1"), "cannot listen on 127.0.0.1:1"),
        (PermissionError(13, "Permission denied", "/data/lock"), "/data/lock: Permission denied"),
        (ExpectedError(), "ExpectedError"),
    ],
)
def test_an_expected_error_is_one_line(
    error: Exception, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async def main(stop: trio.CancelScope) -> None:
        async with trio.open_nursery():
            raise error

    assert serve(main) == process.EXIT_FAILED
    assert capsys.readouterr().err == f"prog: {line}\n"


def test_the_same_error_of_two_tasks_is_still_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def main(stop: trio.CancelScope) -> None:
        raise ExceptionGroup("both", [ExpectedError("full"), ExpectedError("full")])

    assert serve(main) == process.EXIT_FAILED
    assert capsys.readouterr().err == "prog: full\n"


def test_any_other_error_keeps_its_traceback() -> None:
    async def main(stop: trio.CancelScope) -> None:
        raise ExceptionGroup("both", [ExpectedError("full"), ZeroDivisionError()])

    with pytest.raises(ExceptionGroup) as caught:
        serve(main)
    assert caught.group_contains(ZeroDivisionError)
    assert gc.isenabled()


def test_ctrl_c_before_there_is_anything_to_stop() -> None:
    async def main(stop: trio.CancelScope) -> None:
        raise KeyboardInterrupt

    assert serve(main) == process.EXIT_INTERRUPTED


def test_a_file_is_read_and_none_is_empty(tmp_path: Path) -> None:
    (tmp_path / "a.conf").write_bytes(b"a=\xe9\n")
    assert process.read_entries(str(tmp_path / "a.conf")) == [("a", "\xe9", 1)]
    assert process.read_entries(None) == []


@pytest.mark.parametrize("name", ["", "none", "zero\0byte"])
def test_a_file_that_cannot_be_read_is_a_config_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        process.read_entries(str(tmp_path / name) if name else str(tmp_path))


def test_an_endless_file_is_refused_unread() -> None:
    with pytest.raises(ConfigError, match="more than"):
        process.read_entries("/dev/zero")


def test_seconds_since_the_start_are_those_of_this_process() -> None:
    first = process.seconds_since_start()
    assert 0 < first <= process.seconds_since_start() < 24 * 3600


def test_as_many_files_may_be_opened_as_the_hard_limit_allows() -> None:
    code = """
import resource
from trocket.common.process import OPEN_FILES_WANTED, raise_open_files_limit
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
raise_open_files_limit()
soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
assert soft == (OPEN_FILES_WANTED if hard < 0 else min(OPEN_FILES_WANTED, hard)) > 64, soft
raise_open_files_limit()
assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == soft
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_values_of_an_event_are_members_by_their_names() -> None:
    text = "queue %(queue_id)d of %(topic)r: %(share).1f %% of %(topics)s by %(peer)s, %(level)s"
    values = {
        "queue_id": 3,
        "topic": "T\n",
        "share": 2.5,
        "topics": ["A", "B"],
        "peer": Path("/x"),
        "level": "not this",
    }
    record = logging.LogRecord("trocket.x", logging.INFO, __file__, 1, text, (values,), None)
    line = JsonFormatter().format(record)
    assert json.loads(line) == {
        "time": json.loads(line)["time"],
        "level": "INFO",
        "logger": "trocket.x",
        "message": "queue 3 of 'T\\n': 2.5 % of ['A', 'B'] by /x, not this",
        "event": "queue {queue_id} of {topic}: {share} % of {topics} by {peer}, {level}",
        "queue_id": 3,
        "topic": "T\n",
        "share": 2.5,
        "topics": ["A", "B"],
        "peer": "/x",
    }


def test_json_log_lines_are_objects_with_their_traceback() -> None:
    record = logging.makeLogRecord(
        {"name": "trocket.x", "levelname": "ERROR", "msg": "a\n%s", "args": ("ü",), "created": 0.5}
    )
    try:
        raise ValueError("bad")
    except ValueError:
        record.exc_info = sys.exc_info()
    line = JsonFormatter().format(record)
    found = json.loads(line)
    assert "\n" not in line
    assert found.pop("traceback").endswith("ValueError: bad")
    assert found == {
        "time": "1970-01-01T00:00:00.500Z",
        "level": "ERROR",
        "logger": "trocket.x",
        "message": "a\nü",
    }
