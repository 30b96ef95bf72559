"""`trocket up` as a process: ready, stopped, restarted, and started where it cannot run."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from trocket import Message, native
from trocket.blocking import Admin, Producer
from trocket.cli.main import main
from trocket.remoting.message_id import decode_offset_id

from .conftest import END_TIMEOUT_S, Command

pytestmark = pytest.mark.slow

FEW_MIB = 8 << 20
FREE_PORTS = ("--namesrv-port", "0", "--broker-port", "0", "--metrics-port", "0")
Capture = pytest.CaptureFixture[str]
Start = Callable[..., Command]


def taken(folder: Path) -> int:
    """Bytes that the files of a folder take on disk."""
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*"))


def up(start: Start, home: Path, *more: str) -> Command:
    return start("up", "--home", str(home), *FREE_PORTS, *more)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_becomes_ready_and_a_signal_stops_it_cleanly(
    start: Start, home: Path, number: signal.Signals
) -> None:
    command = up(start, home, "--json")
    facts = command.ready()
    assert facts["store"] == str(home / "store")
    assert facts["namesrv"].startswith("127.0.0.1:")
    assert facts["broker"] in facts["listening"]
    assert 0 < facts["seconds"] < 30
    status, out, error = command.end(number)
    assert (status, out) == (0, "")
    assert "Traceback" not in error
    assert (home / "store" / "commitlog").is_dir()
    assert not (home / "store" / "abort").exists()


@pytest.mark.parametrize("several", [(), ("--masters", "2")], ids=["one", "several"])
def test_it_ends_when_the_process_that_started_it_is_killed(
    home: Path, several: tuple[str, ...]
) -> None:
    script = (
        "import subprocess, sys, time\nchild = subprocess.Popen(sys.argv[1:])\ntime.sleep(600)\n"
    )
    words = ("up", "--home", str(home), *FREE_PORTS[:4], *several, "--json", "--exit-with-parent")
    if not several:
        words += FREE_PORTS[4:]
    runner = subprocess.Popen(
        [sys.executable, "-c", script, sys.executable, "-m", "trocket.cli.main", *words],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert runner.stdout is not None
    try:
        facts = json.loads(runner.stdout.readline())
        child = os.pidfd_open(facts["pid"])
    finally:
        runner.kill()
        runner.wait()
        runner.stdout.close()
    ended, _, _ = select.select([child], [], [], END_TIMEOUT_S)
    os.close(child)
    assert ended, "it outlived the process that started it"
    # Not killed, but stopped: the next start finds a store that was closed.
    assert not list(home.rglob("abort"))


def test_it_says_where_what_is_and_ends_with_a_line_that_begins_with_ready(
    start: Start, home: Path
) -> None:
    command = up(start, home)
    lines = [command.first_line()]
    while not lines[-1].startswith("ready "):
        lines.append(command.first_line())
    text = "".join(lines)
    assert str(home / "store") in text
    assert "self-check" in text
    assert f"hot path     {native.choice.description}\n" in text
    for language in ("Java", "Go", "Python"):
        assert f"\n  {language} " in text
    assert float(lines[-1].split()[1]) > 0
    assert command.end(signal.SIGTERM)[0] == 0


def test_the_log_may_be_json(start: Start, home: Path) -> None:
    command = up(start, home, "--json", "--log-level", "info", "--log-format", "json")
    command.ready()
    _, _, error = command.end(signal.SIGTERM)
    lines = [json.loads(line) for line in error.splitlines()]
    assert {"time", "level", "logger", "message"} <= set.intersection(*map(set, lines))
    assert any("the broker" in line["message"] for line in lines)


def test_a_change_of_settings_is_saved_in_the_file_of_the_broker(
    start: Start, home: Path, tmp_path: Path, capsys: Capture
) -> None:
    conf = tmp_path / "disk.conf"
    conf.write_text("# of the operator\ntransactionCheckMax=15\n")
    command = up(start, home, "--json", "-c", str(conf))
    facts = command.ready()
    words = ["cluster", "config", facts["broker"], "--set", "transactionCheckMax=5", "--yes"]
    assert main([*words, "--url", facts["namesrv"]]) == 0
    printed = capsys.readouterr()
    assert f"{facts['broker']}: transactionCheckMax=5 is in effect" in printed.out
    assert "without a file" not in printed.err
    assert conf.read_text() == "# of the operator\ntransactionCheckMax=5\n"
    command.end(signal.SIGTERM)


def test_without_a_file_the_client_is_told_that_a_change_ends_with_the_server(
    start: Start, home: Path, capsys: Capture
) -> None:
    command = up(start, home, "--json")
    facts = command.ready()
    words = ["cluster", "config", facts["broker"], "--set", "transactionCheckMax=5", "--yes"]
    assert main([*words, "--url", facts["namesrv"]]) == 0
    assert "started without a file to save it in" in capsys.readouterr().err
    assert main([*words, "--url", facts["namesrv"], "--json"]) == 0
    changed = json.loads(capsys.readouterr().out)
    assert changed["changed"] == {"transactionCheckMax": "5"}
    assert "until the server ends" in changed["remark"]
    command.end(signal.SIGTERM)


def test_with_json_an_error_is_an_object(start: Start, home: Path, capsys: Capture) -> None:
    command = up(start, home, "--json")
    facts = command.ready()
    words = ["topic", "show", "NoSuchTopic", "--url", facts["namesrv"]]
    assert main([*words, "--json"]) == 1
    caught = capsys.readouterr()
    assert (caught.out, "NoSuchTopic" in json.loads(caught.err)["error"]) == ("", True)
    assert main(words) == 1
    assert capsys.readouterr().err.startswith("trocket: ")
    command.end(signal.SIGTERM)


def test_the_vip_port_is_two_below_the_brokers(start: Start, home: Path) -> None:
    facts = up(start, home, "--json").ready()
    ports = {int(address.rpartition(":")[2]) for address in facts["listening"]}
    port_of_broker = int(facts["broker"].rpartition(":")[2])
    assert {port_of_broker, port_of_broker - 2} <= ports
    for port in (port_of_broker, port_of_broker - 2):
        socket.create_connection(("127.0.0.1", port), timeout=5).close()


def test_it_starts_again_on_the_data_it_left(start: Start, home: Path) -> None:
    for _ in range(2):
        command = up(start, home, "--json")
        command.ready()
        assert command.end(signal.SIGTERM)[0] == 0
    killed = up(start, home, "--json")
    killed.ready()
    killed.end(signal.SIGKILL)
    again = up(start, home, "--json")
    again.ready()
    assert again.end(signal.SIGTERM)[0] == 0


def test_a_store_that_may_only_be_read_is_served_and_says_why(start: Start, home: Path) -> None:
    first = up(start, home, "--json")
    facts = first.ready()
    assert facts["sendsRefused"] == ""
    with Producer(facts["namesrv"]) as producer:
        producer.send(Message("Orders", "one"))
    assert first.end(signal.SIGTERM)[0] == 0
    for path in (home / "store" / "commitlog").iterdir():
        path.unlink()
    again = up(start, home, "--json")
    assert "there is no commit log file" in again.ready()["sendsRefused"]
    assert again.end(signal.SIGTERM)[0] == 0
    assert list((home / "store" / "commitlog").iterdir()) == []


def test_without_a_broker_conf_it_takes_little_disk_and_stores_nothing_itself(
    start: Start, home: Path
) -> None:
    command = up(start, home, "--json")
    facts = command.ready()
    assert taken(home) < FEW_MIB
    with Producer(facts["namesrv"]) as producer:
        first = producer.send(Message("Orders", "one", keys="1"))
    assert decode_offset_id(first.offset_message_id).physical_offset == 0
    assert command.end(signal.SIGTERM)[0] == 0
    assert taken(home) < FEW_MIB
    # Apache's broker reads files of these sizes.
    log = home / "store" / "commitlog" / f"{0:020}"
    assert log.stat().st_size == 1 << 30


def test_in_memory_it_leaves_nothing(start: Start, tmp_path: Path) -> None:
    command = start("up", "--memory", "--json", *FREE_PORTS, environment={"HOME": str(tmp_path)})
    facts = command.ready()
    assert facts["memory"] is True
    with Producer(facts["namesrv"]) as producer:
        producer.send(Message("Orders", "one", keys="1"))
    assert command.end(signal.SIGTERM)[0] == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "reason"),
    [(["--home", "x"], "without --home"), (["--brokers", "2"], "--memory is for one broker")],
)
def test_memory_contradicts_files(words: list[str], reason: str, capsys: Capture) -> None:
    assert main(["up", "--memory", *words]) == 2
    assert reason in capsys.readouterr().err


def test_a_second_process_on_the_same_data_is_refused_in_one_line(start: Start, home: Path) -> None:
    first = up(start, home, "--json")
    first.ready()
    status, out, error = up(start, home, "--json", "--log-level", "error").end()
    assert (status, out) == (1, "")
    assert error.count("\n") == 1
    assert "another process is using this data folder" in json.loads(error)["error"]
    assert first.end(signal.SIGTERM)[0] == 0


def test_a_port_that_is_taken_is_one_line(start: Start, home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ports = ("--namesrv-port", str(port), "--broker-port", "0")
        command = start("up", "--home", str(home), *ports, "--log-level", "error")
        status, out, error = command.end()
    assert (status, out) == (1, "")
    assert error.count("\n") == 1
    assert f"127.0.0.1:{port}" in error


def test_a_brokers_port_that_is_taken_is_one_line_too(start: Start, home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ports = ("--namesrv-port", "0", "--broker-port", str(port))
        command = start("up", "--home", str(home), *ports, "--log-level", "error")
        status, out, error = command.end()
    assert (status, out) == (1, "")
    assert error.count("\n") == 1
    assert str(port) in error


def test_metrics_and_health_are_served(start: Start, home: Path) -> None:
    facts = up(start, home, "--json").ready()
    with urllib.request.urlopen(facts["metrics"], timeout=30) as answer:
        assert b"\ntrocket_ready{" in answer.read()
    with urllib.request.urlopen(facts["metrics"].replace("metrics", "health/ready")) as answer:
        assert json.load(answer) == {"status": "ready", "missing": []}


def test_a_metrics_port_that_is_taken_costs_a_warning(start: Start, home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = up(start, home, "--json", "--metrics-port", str(port))
        facts = command.ready()
        assert str(port) not in facts["metrics"]
        assert "metrics are served on a free port" in command.end(signal.SIGTERM)[2]


def test_a_file_switches_metrics_off(start: Start, home: Path, tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("metricsExporterType=DISABLE\n")
    assert up(start, home, "--json", "-c", str(conf)).ready()["metrics"] == ""


def test_there_is_a_topic_for_message_traces(start: Start, home: Path) -> None:
    facts = up(start, home, "--json").ready()
    with Admin(facts["namesrv"]) as admin:
        assert admin.topic("RMQ_SYS_TRACE_TOPIC").brokers[0].write_queues == 1


def test_a_data_folder_that_cannot_be_made_is_one_line(start: Start, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    status, out, error = up(start, tmp_path / "file", "--log-level", "error").end()
    assert (status, out) == (1, "")
    assert error.count("\n") == 1
    assert str(tmp_path / "file") in error


def test_apaches_own_broker_conf_starts_it(start: Start, home: Path, tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(
        "brokerClusterName = DefaultCluster\nbrokerName = broker-a\nbrokerId = 0\n"
        "deleteWhen = 04\nfileReservedTime = 48\nbrokerRole = ASYNC_MASTER\n"
        "flushDiskType = ASYNC_FLUSH\n"
    )
    command = up(start, home, "--json", "-c", str(conf))
    command.ready()
    assert command.end(signal.SIGTERM)[0] == 0


def test_the_advertised_address_is_what_brokerip1_says(
    start: Start, home: Path, tmp_path: Path
) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("brokerIP1=localhost\n")
    command = up(start, home, "--json", "-c", str(conf))
    assert command.ready()["broker"].startswith("localhost:")


def test_broker_and_name_server_run_as_processes_of_their_own(start: Start, tmp_path: Path) -> None:
    namesrv_conf, broker_conf = tmp_path / "namesrv.conf", tmp_path / "broker.conf"
    namesrv_conf.write_text(f"bindAddress=127.0.0.1\nlistenPort=0\nkvConfigPath={tmp_path}/kv\n")
    namesrv = start("namesrv", "-c", str(namesrv_conf))
    said = namesrv.first_line()
    assert "The Name Server boot success" in said
    address = said.split()[-1]
    broker_conf.write_text(
        "bindAddress=127.0.0.1\nlistenPort=0\nbrokerIP1=127.0.0.1\nbrokerName=b\n"
        f"storePathRootDir={tmp_path}/store\n"
    )
    broker = start("broker", "-c", str(broker_conf), "-n", address)
    said = broker.first_line()
    assert said.startswith("The broker[b, 127.0.0.1:")
    assert f"name server is {address}" in said
    assert broker.end(signal.SIGTERM)[0] == 0
    assert namesrv.end(signal.SIGTERM)[0] == 0
