"""Filter servers as child processes: started, restarted, stopped; the keys that they get."""

from __future__ import annotations

import itertools
import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
import trio.testing

from trocket.broker.filter_servers import filter_server_keeper as module
from trocket.broker.filter_servers.filter_server_keeper import (
    CHECK_INTERVAL_S,
    COMMAND,
    FIRST_CHECK_S,
    LINE_SIZE_MAX,
    LINES_MAX,
    STOP_GRACE_S,
    STUCK_S,
    ChildLog,
    FilterServerKeeper,
    child_environment,
    child_properties,
)
from trocket.broker.filter_servers.filter_server_manager import FilterServerManager
from trocket.broker.settings.config import BrokerConfig
from trocket.common.config import parse_properties
from trocket.remoting.tls_config import TlsConfig, TlsMode, merge_tls, split_tls, with_changes

from ...kit import embedded_broker
from ..harness import FakeChannel

DEADLINE_S = 20.0
PORT = 10911


def config_of(count: int) -> BrokerConfig:
    return BrokerConfig(broker_ip1="192.0.2.7", filter_server_nums=count)


KEYS = child_properties(config_of(1), PORT)


class FakeChild:
    """A process that runs until it is asked, or made, to end.

    Args:
      stubborn: SIGTERM and the end of its input do not end it.
    """

    def __init__(self, pid: int, *, stubborn: bool = False) -> None:
        self.pid = pid
        self.started_s = trio.current_time()
        self.stdin, self.input = trio.testing.memory_stream_one_way_pair()
        self.output, self.stderr = trio.testing.memory_stream_one_way_pair()
        self.returncode: int | None = None
        self.reaped = False
        self.channel = FakeChannel()
        self._stubborn = stubborn
        self._ended = trio.Event()

    def end(self, status: int) -> None:
        if self.returncode is None:
            self.returncode = status
            self.output.close()
            self._ended.set()

    async def wait(self) -> int:
        await self._ended.wait()
        self.reaped = True
        assert self.returncode is not None
        return self.returncode

    def terminate(self) -> None:
        if not self._stubborn:
            self.end(-signal.SIGTERM)

    def kill(self) -> None:
        self.end(-signal.SIGKILL)


class Kept:
    """A keeper, what it started, and the table it looks at."""

    def __init__(self, count: int, start: Callable[[int], FakeChild]) -> None:
        self.children: list[FakeChild] = []
        self.servers = FilterServerManager(on_change=lambda: self.keeper.wake())
        self.keeper = FilterServerKeeper(
            config_of(count), lambda: PORT, self.servers, open_process=self._open
        )
        self._start = start

    async def _open(self) -> FakeChild:
        await trio.lowlevel.checkpoint()
        child = self._start(len(self.children) + 1)
        self.children.append(child)
        return child

    @property
    def starts(self) -> list[float]:
        return [child.started_s for child in self.children]

    def register(self, child: FakeChild) -> None:
        """As the child does, and every 10 s again."""
        self.servers.register(child.channel, f"h:{child.pid}", now_s=trio.current_time())

    def kill(self, child: FakeChild) -> None:
        """End a process; its connection closes with it."""
        child.kill()
        self.servers.channel_closed(child.channel)


@asynccontextmanager
async def kept(count: int, start: Callable[[int], FakeChild] = FakeChild) -> AsyncIterator[Kept]:
    """A running keeper."""
    made = Kept(count, start)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(made.keeper.run)
        yield made
        nursery.cancel_scope.cancel()


async def test_after_5_s_as_many_are_started_as_are_to_be(autojump_clock):
    async with kept(3) as made:
        await trio.sleep(FIRST_CHECK_S - 0.1)
        assert made.children == []
        await trio.sleep(1)
        assert made.starts == [FIRST_CHECK_S] * 3
        assert made.keeper.child_count == 3


async def test_without_the_key_there_are_none(autojump_clock):
    async with kept(0) as made:
        await trio.sleep(1000)
        assert made.children == []


async def test_a_child_gets_its_keys_and_its_input_stays_open(autojump_clock):
    async with kept(1) as made:
        await trio.sleep(FIRST_CHECK_S + 1)
        (child,) = made.children
        assert await child.input.receive_some(1000) == KEYS.encode()
        with trio.move_on_after(STUCK_S - 5) as waited:
            await child.input.receive_some(1)
        assert waited.cancelled_caught


async def test_those_that_others_started_count(autojump_clock):
    async with kept(2) as made:
        foreign = FakeChild(1000)
        made.register(foreign)
        await trio.sleep(FIRST_CHECK_S + 1)
        assert len(made.children) == 1
        made.register(made.children[0])
        await trio.sleep(100)
        assert len(made.children) == 1
        made.kill(foreign)
        await trio.sleep(1)
        assert len(made.children) == 2


async def test_never_more_run_than_are_to_be_however_few_register(autojump_clock):
    async with kept(2) as made:
        await trio.sleep(FIRST_CHECK_S)
        for _ in range(50):
            made.keeper.wake()
            await trio.sleep(1)
        assert len(made.children) == 2


async def test_one_that_is_killed_is_followed_by_another_at_once_twenty_times(autojump_clock):
    async with kept(1) as made:
        await trio.sleep(FIRST_CHECK_S + 1)
        for number in range(20):
            child = made.children[number]
            made.register(child)
            await trio.sleep(2)
            made.kill(child)
            await trio.sleep(1)
            assert len(made.children) == number + 2
            assert child.reaped
        assert made.keeper.child_count == 1


async def test_one_that_ends_before_the_broker_sees_its_connection_close_is_followed_too(
    autojump_clock,
):
    async with kept(1) as made:
        await trio.sleep(FIRST_CHECK_S + 1)
        (child,) = made.children
        made.register(child)
        child.kill()
        await trio.sleep(5)
        assert len(made.children) == 1  # it seems to be there still
        made.servers.channel_closed(child.channel)
        await trio.sleep(1)
        assert len(made.children) == 2


async def test_what_cannot_start_is_tried_ever_more_seldom(autojump_clock):
    def stillborn(pid: int) -> FakeChild:
        child = FakeChild(pid)
        child.end(1)
        return child

    async with kept(1, stillborn) as made:
        await trio.sleep(FIRST_CHECK_S + 200)
        pauses = [round(b - a, 1) for a, b in itertools.pairwise(made.starts)]
        assert pauses[:6] == [0.5, 1, 2, 4, 8, 16]
        assert set(pauses[6:]) == {CHECK_INTERVAL_S}
        assert all(child.reaped for child in made.children)
        made.register(FakeChild(1000))
        made.servers.channel_closed(FakeChannel())
        count = len(made.children)
        await trio.sleep(CHECK_INTERVAL_S + 1)
        assert len(made.children) == count  # the one that others started suffices


async def test_once_one_has_registered_the_pause_is_short_again(autojump_clock):
    async with kept(1) as made:
        await trio.sleep(FIRST_CHECK_S + 1)
        for _ in range(4):
            made.children[-1].end(1)
            await trio.sleep(10)
        made.register(made.children[-1])
        ended_s = trio.current_time()
        made.kill(made.children[-1])
        await trio.sleep(10)
        assert made.starts[-1] == ended_s + 0.5


async def test_a_process_that_the_system_refuses_is_tried_again(
    autojump_clock, caplog: pytest.LogCaptureFixture
):
    refusals = [OSError(12, "Cannot allocate memory")] * 2

    def start(pid: int) -> FakeChild:
        if refusals:
            raise refusals.pop()
        return FakeChild(pid)

    async with kept(1, start) as made:
        await trio.sleep(FIRST_CHECK_S + 5)
        assert len(made.children) == 1
    assert caplog.text.count("Cannot allocate memory") == 2


async def test_when_it_stops_all_are_ended_and_reaped(autojump_clock):
    async with kept(3) as made:
        await trio.sleep(FIRST_CHECK_S + 1)
        stop_s = trio.current_time()
    assert [child.returncode for child in made.children] == [-signal.SIGTERM] * 3
    assert all(child.reaped for child in made.children)
    assert trio.current_time() == stop_s
    for child in made.children:
        assert await child.input.receive_some(1000) == KEYS.encode()
        assert await child.input.receive_some(1000) == b""


async def test_one_that_does_not_stop_is_killed_after_a_grace(autojump_clock):
    async with kept(2, lambda pid: FakeChild(pid, stubborn=pid == 1)) as made:
        await trio.sleep(FIRST_CHECK_S + 1)
        stop_s = trio.current_time()
    assert [child.returncode for child in made.children] == [-signal.SIGKILL, -signal.SIGTERM]
    assert all(child.reaped for child in made.children)
    assert trio.current_time() - stop_s == pytest.approx(STOP_GRACE_S)


async def test_a_stop_while_one_is_being_started_ends_that_one(autojump_clock):
    made = Kept(1, FakeChild)
    slow = trio.Event()
    opening = made.keeper._open_process

    async def open_slowly() -> FakeChild:
        child = await opening()
        await slow.wait()
        return child

    made.keeper._open_process = open_slowly
    async with trio.open_nursery() as outer, trio.open_nursery() as nursery:
        nursery.start_soon(made.keeper.run)
        await trio.sleep(FIRST_CHECK_S + 1)
        nursery.cancel_scope.cancel()
        outer.start_soon(_later, slow.set)
    assert made.children[0].reaped


async def _later(act: Callable[[], None]) -> None:
    with trio.CancelScope(shield=True):
        await trio.sleep(1)
    act()


async def test_when_all_hang_they_are_started_again(autojump_clock):
    async with kept(2, lambda pid: FakeChild(pid, stubborn=True)) as made:
        await trio.sleep(FIRST_CHECK_S + STUCK_S - 1)
        assert len(made.children) == 2
        await trio.sleep(CHECK_INTERVAL_S)
        assert [child.returncode for child in made.children] == [-signal.SIGKILL] * 2 + [None] * 2


async def test_while_one_of_them_is_registered_none_is_ended(autojump_clock):
    async with kept(2) as made:
        await trio.sleep(FIRST_CHECK_S + 1)
        made.register(made.children[1])
        await trio.sleep(10 * STUCK_S)
        assert [child.returncode for child in made.children] == [None, None]
        made.servers.channel_closed(made.children[1].channel)
        await trio.sleep(STUCK_S - CHECK_INTERVAL_S)
        assert len(made.children) == 2


async def test_what_a_child_says_is_in_our_log_its_last_words_too(
    autojump_clock, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO)
    async with kept(1) as made:
        await trio.sleep(FIRST_CHECK_S + 1)
        (child,) = made.children
        await child.output.send_all(b"2026-01-01 10:00:00,123 INFO trocket: ready\nTraceb")
        await trio.sleep(1)
        assert "filter server 1: 2026-01-01 10:00:00,123 INFO trocket: ready" in caplog.text
        await child.output.send_all(b"ack")
        child.end(1)
        await trio.sleep(1)
    assert ("WARNING", "filter server 1: Traceback") in [
        (record.levelname, record.getMessage()) for record in caplog.records
    ]
    assert "filter server 1 ended: exit status 1" in caplog.text


@pytest.mark.slow
async def test_a_child_that_says_too_much_waits(autojump_clock, caplog: pytest.LogCaptureFixture):
    async with kept(1) as made:
        await trio.sleep(FIRST_CHECK_S + 1)
        await made.children[0].output.send_all(b"x\n" * 100_000)
        before = len(caplog.records)
        await trio.sleep(10)
        assert 1_000 < len(caplog.records) - before < 11_000


def test_lines_are_cut_cleaned_and_have_their_own_level(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG)
    log = ChildLog(7)
    for piece in (b"2026-01-01 10:00:00,1 ERR", b"OR a: b\n\nDEBUG x\n", b"in f\x1b[2J\xff\n"):
        log.receive_data(piece)
    for _ in range(1000):
        log.receive_data(b"y" * 1000)
    log.receive_data(b"\nend")
    log.receive_eof()
    log.receive_eof()
    said = [(r.levelname, r.getMessage().removeprefix("filter server 7: ")) for r in caplog.records]
    assert said == [
        ("ERROR", "2026-01-01 10:00:00,1 ERROR a: b"),
        ("DEBUG", "DEBUG x"),
        ("WARNING", "in f?[2J\ufffd"),
        ("WARNING", "y" * LINE_SIZE_MAX + "…"),
        ("WARNING", "end"),
    ]
    assert {vars(record)["lines_max"] for record in caplog.records} == {LINES_MAX}


# The keys of a child


def keys_of(config: BrokerConfig, port: int = 10911) -> dict[str, str]:
    entries = parse_properties(child_properties(config, port))
    assert len({entry.key for entry in entries}) == len(entries)
    return {entry.key: entry.value for entry in entries}


def test_a_child_has_the_brokers_settings_of_tls_and_can_reach_it() -> None:
    tls = TlsConfig(
        mode=TlsMode.enforcing,
        server_cert_path="/c.pem",
        server_key_path="/k.pem",
        server_key_password="a=b\nc",
    )
    entries = parse_properties(child_properties(config_of(1), PORT, tls))
    config, warnings = merge_tls([], split_tls(entries)[0])
    assert config == with_changes(tls, enable=True)
    assert warnings == []
    assert not [key for key in keys_of(config_of(1)) if key.startswith("tls")]


@pytest.mark.parametrize(
    ("bound", "broker"),
    [
        ("0.0.0.0", "127.0.0.1:10911"),
        ("", "127.0.0.1:10911"),
        ("::", "[::1]:10911"),
        ("192.0.2.7", "192.0.2.7:10911"),
        ("fe80::1", "[fe80::1]:10911"),
    ],
)
def test_a_child_listens_where_its_broker_does_and_finds_it_there(bound: str, broker: str):
    assert keys_of(BrokerConfig(broker_ip1="mq.example.org", bind_address=bound)) == {
        "connectWhichBroker": broker,
        "filterServerIP": "mq.example.org",
        "bindAddress": bound,
    }


def test_a_child_serves_other_machines_what_its_broker_does() -> None:
    config = BrokerConfig(allow_remote_administration=True)
    assert keys_of(config)["allowRemoteAdministration"] == "true"


def test_a_child_gets_the_operators_keys_and_files_by_their_whole_path():
    config = BrokerConfig(
        broker_ip1="h",
        filter_classes_file="filters.json",
        java_filter_enable=True,
        filter_batch_timeout_millis=500,
        namesrv_addr="n:1",
    )
    assert {key: value for key, value in keys_of(config).items() if "ilter" in key} == {
        "filterServerIP": "h",
        "filterClassesFile": str(Path.cwd() / "filters.json"),
        "javaFilterEnable": "true",
        "filterBatchTimeoutMillis": "500",
    }


def test_the_environment_has_what_it_takes_and_no_more():
    environment = {
        "PATH": "/bin",
        "HOME": "/root",
        "JAVA_HOME": "/java",
        "PYTHONPATH": f"lib{os.pathsep}{os.pathsep}/opt/lib",
        "PYTHONSTARTUP": "/tmp/x.py",
        "AWS_SECRET_ACCESS_KEY": "s",
        "LD_PRELOAD": "/tmp/x.so",
    }
    assert child_environment(environment) == {
        "PATH": "/bin",
        "HOME": "/root",
        "JAVA_HOME": "/java",
        "PYTHONPATH": f"{Path.cwd()}/lib{os.pathsep}/opt/lib",
        "PYTHONSAFEPATH": "1",
    }
    assert child_environment({}) == {"PYTHONSAFEPATH": "1"}


# The broker that keeps them


async def test_a_broker_keeps_them_from_its_start_to_its_end(autojump_clock):
    children: list[FakeChild] = []

    async def start() -> FakeChild:
        children.append(FakeChild(len(children) + 1))
        return children[-1]

    async with embedded_broker(filter_server_nums=1, open_process=start) as broker:
        await trio.sleep(FIRST_CHECK_S + 1)
        assert len(children) == 1
        assert b"connectWhichBroker=127.0.0.1:10911\n" in await children[0].input.receive_some(999)
        client = await broker.connect()
        await client.ask(301, {"filterServerAddr": "h:1"})
        children[0].kill()
        await trio.sleep(1)
        assert len(children) == 1  # h:1 is still connected
        await client.stream.aclose()
        await trio.sleep(1)
        assert len(children) == 2
    assert all(child.reaped for child in children)


# Real processes

REPORT = """
import json, os, sys
import trocket.remoting.codec
keys = []
while (line := sys.stdin.readline()) != "\\n":
    keys.append(line)
facts = {
    "keys": keys, "argv": sys.argv, "environment": dict(os.environ), "folder": os.getcwd(),
    "files": [f for f in os.listdir("/proc/self/fd") if os.path.exists("/proc/self/fd/" + f)],
    "leads": os.getsid(0) == os.getpid(), "pid": os.getpid(), "path": sys.path,
}
print("told", file=sys.stderr, flush=True)
with open("PATH.tmp", "w") as file:
    json.dump(facts, file)
os.rename("PATH.tmp", "PATH")
sys.stdin.read()
"""
"""A process that tells what it was given, and ends when its input does."""


def use_reporting_child(monkeypatch: pytest.MonkeyPatch, report: Path) -> None:
    code = REPORT.replace("PATH", str(report))
    monkeypatch.setattr(module, "COMMAND", (sys.executable, "-c", code))


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await trio.testing.wait_all_tasks_blocked(0.01)


def runs(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


async def facts_of(report: Path) -> dict:
    await until(report.exists)
    return taken(report)


def taken(report: Path) -> dict:
    facts = json.loads(report.read_text())
    report.unlink()
    return facts


def test_what_is_run_is_a_constant():
    assert list(COMMAND) == [sys.executable, "-m", "trocket.filtersrv", "--config-from-stdin"]


@pytest.mark.slow
async def test_a_real_child_gets_its_keys_and_little_else_is_replaced_and_stopped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setattr(module, "FIRST_CHECK_S", 0.0)
    monkeypatch.setenv("SECRET", "s")
    report = tmp_path / "report"
    use_reporting_child(monkeypatch, report)
    servers = FilterServerManager(on_change=lambda: None)
    keeper = FilterServerKeeper(config_of(1), lambda: PORT, servers)
    with trio.fail_after(DEADLINE_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keeper.run)
            facts = await facts_of(report)
            assert "".join(facts["keys"]) + "\n" == KEYS
            assert facts["argv"] == ["-c"]
            assert facts["folder"] == "/"
            assert facts["leads"]
            assert sorted(facts["files"]) == ["0", "1", "2"]
            assert "SECRET" not in facts["environment"]
            assert not {"", "/", str(Path.cwd())} & set(facts["path"])
            os.kill(facts["pid"], signal.SIGKILL)
            again = await facts_of(report)
            assert again["pid"] != facts["pid"]
            nursery.cancel_scope.cancel()
    for pid in (facts["pid"], again["pid"]):
        with pytest.raises(ProcessLookupError):  # reaped, too
            os.kill(pid, 0)


BROKER = """
import sys, trio
from trocket.broker.filter_servers import filter_server_keeper as module
from trocket.broker.settings.config import BrokerConfig
from trocket.broker.filter_servers.filter_server_manager import FilterServerManager
module.FIRST_CHECK_S = 0.0
module.COMMAND = (sys.executable, "-c", sys.argv[1])
servers = FilterServerManager(on_change=lambda: None)
config = BrokerConfig(broker_ip1="h", filter_server_nums=1)
trio.run(module.FilterServerKeeper(config, lambda: 1, servers).run)
"""


@pytest.mark.slow
async def test_a_broker_that_is_killed_leaves_no_child(tmp_path: Path):
    report = tmp_path / "report"
    with trio.fail_after(DEADLINE_S):
        broker = await trio.lowlevel.open_process(
            [sys.executable, "-c", BROKER, REPORT.replace("PATH", str(report))],
            stdout=subprocess.DEVNULL,
        )
        try:
            child = (await facts_of(report))["pid"]
            assert runs(child)
        finally:
            broker.kill()
            await broker.wait()
        await until(lambda: not runs(child))
